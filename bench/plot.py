"""Draws bench.png: rate over seqlen, a line for each implementation.

There is a panel for each dtype, pass, mask and head dim. It shows the papers' sizes. Other batches
and heads (--size, and the second grid on a GPU) do not form a curve.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from flash_attest.bench.cells import TIMED, column
from flash_attest.bench.report import Measurements, mask, on_curves, unit

# Okabe and Ito's colours, which are safe for colour-blind readers. PyTorch's own come first, the
# baseline in black.
COLOURS = ("#999999", "#000000", "#e69f00", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442")
MARKERS = "osD^vP*Xh"
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
}


def draw(measurements: Measurements, file: Path) -> bool:
    """Write the figure. Returns False if there is nothing to draw."""
    device = measurements.environment["device"]
    results = on_curves(measurements.results(), device)
    cells = [cell for cell in results if cell["verdict"] == TIMED]
    if not cells:
        return False
    name, factor = unit(device)
    rows = list(dict.fromkeys((cell["dtype"], cell["pass"]) for cell in sorted(cells, key=_row)))
    columns = sorted({(cell["causal"], cell["headdim"]) for cell in cells})
    impls = sorted({cell["impl"] for cell in results}, key=column)
    looks = {impl: {"color": COLOURS[n % len(COLOURS)], "marker": MARKERS[n % len(MARKERS)]}
             for n, impl in enumerate(impls)}  # fmt: skip
    with plt.rc_context(STYLE):
        size = (max(5.0, 0.8 + 2.7 * len(columns)), 1.3 + 2.3 * len(rows))
        figure, panels = plt.subplots(len(rows), len(columns), figsize=size, sharex=True, sharey="row", squeeze=False)
        for (dtype, which), line in zip(rows, panels, strict=True):
            for (causal, headdim), panel in zip(columns, line, strict=True):
                here = {"dtype": dtype, "pass": which, "causal": causal, "headdim": headdim}
                chosen = [cell for cell in cells if here.items() <= cell.items()]
                _panel(panel, chosen, factor, looks, factor * measurements.peaks[dtype].tflops)
                panel.set_title(f"{which}, {mask(causal)}, headdim {headdim}", fontsize=9)
            line[0].set_ylabel(f"{dtype}\n{name}")
        for panel in panels[-1]:
            panel.set_xlabel("seqlen")
        _headings(
            figure, measurements, {impl: look for impl, look in looks.items() if impl in {c["impl"] for c in cells}}
        )
        figure.savefig(file, dpi=160)
        plt.close(figure)
    return True


def _row(cell: dict) -> tuple:
    """Return the sort key: forward above backward. Dtypes keep their order."""
    return (cell["pass"] != "forward",)


def _panel(panel: Axes, cells: list[dict], factor: float, looks: dict[str, dict], peak: float) -> None:
    """Draw median rates as lines, the percentiles as bands, the measured peak as a dashed line."""
    for impl, look in looks.items():
        mine = sorted((cell for cell in cells if cell["impl"] == impl), key=lambda cell: cell["seqlen"])
        if not mine:
            continue
        x, y = [cell["seqlen"] for cell in mine], [factor * cell["tflops"] for cell in mine]
        low, high = ([r * cell["ms"] / cell[p] for r, cell in zip(y, mine, strict=True)] for p in ("ms_p80", "ms_p20"))
        panel.plot(x, y, linewidth=1.5, markersize=4, **look)
        panel.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    panel.axhline(peak, color="#666666", linestyle="--", linewidth=1)
    seqlens = sorted({cell["seqlen"] for cell in cells})
    panel.set_xscale("log", base=2)
    panel.set_xticks(seqlens, [f"{n // 1024}k" if n % 1024 == 0 else str(n) for n in seqlens])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_ylim(bottom=0)


def _headings(figure: Figure, measurements: Measurements, looks: dict[str, dict]) -> None:
    """Write the title with device and versions above the panels, and the legend below it."""
    about = measurements.environment
    versions = ", ".join(f"{name} {about['versions'][name]}" for name in ("torch", "triton") if about["versions"][name])
    handles = [plt.Line2D([], [], linewidth=1.5, markersize=4, label=impl, **look) for impl, look in looks.items()]
    handles.append(plt.Line2D([], [], color="#666666", linestyle="--", linewidth=1, label="matrix product, measured"))
    height = figure.get_figheight()
    figure.suptitle(f"{about['device_name']}   {versions}   {about['started'][:10]}", y=1 - 0.12 / height, va="top")
    columns = max(1, int(figure.get_figwidth() / 1.9))
    lines = -(-len(handles) // columns)
    figure.legend(handles=handles, loc="upper center", ncols=columns, bbox_to_anchor=(0.5, 1 - 0.35 / height))
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.32 + 0.2 * lines) / height))
