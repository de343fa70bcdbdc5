"""Keeps and reports what was measured: bench.json, complete after every cell, and the table."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flash_attest.bench.cells import BASELINES, NO_FIT, REFUSED, TIMED, column, of_papers
from flash_attest.bench.sizes import Size
from flash_attest.bench.timing import Peak

COLOURS = {REFUSED: "bright_black", NO_FIT: "bright_black"}  # the others are red
CASE = ("pass", "dtype", "causal", "batch", "nheads", "headdim", "seqlen")
UNSTEADY = 0.1  # p80 - p20 over the median: marked in the table


class Measurements:
    """The cells so far.

    bench.json is replaced after each cell, so an interrupted run loses nothing.
    """

    def __init__(self, directory: Path, environment: dict):
        self.directory = directory
        self.environment = environment
        self.state = "running"
        self.peaks: dict[str, Peak] = {}
        self.cells: list[dict] = []

    @property
    def json_file(self) -> Path:
        return self.directory / "bench.json"

    @property
    def page_file(self) -> Path:
        return self.directory / "bench.html"

    def raise_peak(self, product: str, peak: Peak) -> None:
        """Add a measurement of a product's peak (a dtype, or "tf32"). The higher one counts."""
        self.peaks[product] = max(peak, self.peaks.get(product, peak), key=lambda p: p.tflops)

    def add(self, cell: dict) -> None:
        """Add a cell and write bench.json."""
        self.cells.append(cell)
        self.write()

    def everything(self) -> dict:
        """Return what bench.json has: state, environment, peaks, the cells with their ratios."""
        peaks = {name: {"tflops": p.tflops, "product": p.product} for name, p in self.peaks.items()}
        return {"state": self.state, "environment": self.environment, "peak": peaks, "results": self.results()}

    def write(self) -> None:
        """Replace bench.json."""
        self._replace(self.json_file, json.dumps(self.everything(), indent=1))

    def write_page(self) -> None:
        """Replace bench.html."""
        from flash_attest.bench.page import page  # it imports this module

        self._replace(self.page_file, page(self.everything()))

    def _replace(self, file: Path, text: str) -> None:
        unfinished = file.with_suffix(f"{file.suffix}.part")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, file)

    def results(self) -> list[dict]:
        """Return the cells. A timed one also has its share, its ratio and the baseline.

        share: its tflops over the dtype's peak; ratio: the baseline's ms over its own.
        """
        timed: dict[tuple, dict[str, float]] = {}
        for cell in self.cells:
            if cell["verdict"] == TIMED:
                timed.setdefault(key(cell), {})[cell["impl"]] = cell["ms"]
        found = []
        for cell in self.cells:
            cell = dict(cell)
            if cell["verdict"] == TIMED:
                beside = timed[key(cell)]
                baseline = next((name for name in BASELINES if name in beside), None)
                cell["share"] = cell["tflops"] / self.peaks[cell["dtype"]].tflops
                cell["ratio"] = beside[baseline] / cell["ms"] if baseline else None
                cell["baseline"] = baseline
            found.append(cell)
        return found


def key(cell: dict) -> tuple:
    """Return a key that is equal for two cells that differ only in their implementation."""
    return tuple(cell[name] for name in CASE)


def unit(device: str) -> tuple[str, float]:
    """Return the unit that rates are shown in, and how many of them a TFLOP/s is."""
    return ("TFLOP/s", 1.0) if device == "cuda" else ("GFLOP/s", 1e3)


def number(x: float) -> str:
    """Write a number with three digits, or all before the point: 0.123, 1.20, 12.3, 123, 1234."""
    return f"{x:.0f}" if x >= 99.95 else f"{x:#.3g}"


def mask(causal: bool) -> str:
    return "causal" if causal else "full"


def size_of(cell: dict) -> Size:
    """Return the size of a cell."""
    return Size(cell["batch"], cell["nheads"], cell["seqlen"], cell["headdim"])


def on_curves(results: list[dict], device: str) -> list[dict]:
    """Return the cells of the papers' sizes. Other batches and heads do not form a curve."""
    return [cell for cell in results if size_of(cell) == of_papers(device, cell["headdim"], cell["seqlen"])]


def print_tables(measurements: Measurements, console: Console) -> None:
    """Print a table for each dtype, and then why cells have no figure.

    It has a row for each case and pass, and a column for each implementation. An implementation
    that refuses the whole dtype has a line below instead of a column.
    """
    results = measurements.results()
    name, factor = unit(measurements.environment["device"])
    for dtype, peak in measurements.peaks.items():
        cells = [cell for cell in results if cell["dtype"] == dtype]
        if not cells:
            continue
        reached = f"{number(factor * peak.tflops)} {name} of a matrix product ({peak.product})"
        title = f"{dtype}: ms, {name}, share of the {reached}"
        if baseline := next((cell["baseline"] for cell in cells if cell.get("baseline")), None):
            title += f", speed beside {baseline}"
        title += "; size is batch x nheads x seqlen x headdim"
        impls = sorted({cell["impl"] for cell in cells if cell["verdict"] != REFUSED}, key=column)
        console.print(f"\n[bold]{title}[/]", highlight=False, soft_wrap=True)
        console.print(_table(cells, impls, factor))
        for impl, product in sorted({(cell["impl"], cell["product"]) for cell in cells if "product" in cell}):
            console.print(f"{impl} multiplies in {product}, of which a matrix product reaches "
                          f"{number(factor * measurements.peaks[product].tflops)} {name}: its share may be above 100%",
                          highlight=False, soft_wrap=True)  # fmt: skip
    _print_legend(results, console)
    _print_remarks(results, console)


def _table(cells: list[dict], impls: list[str], factor: float) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("pass", "mask"):
        table.add_column(heading, no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    for heading in impls:
        table.add_column(heading, justify="right")
    rows: dict[tuple, dict[str, str]] = {}
    for cell in cells:
        row = (cell["pass"], mask(cell["causal"]), size_of(cell))
        rows.setdefault(row, {})[cell["impl"]] = _shown(cell, factor)
    before = None
    for (which, visible, size), shown in sorted(rows.items(), key=in_order):
        group = (which, visible, size.headdim)
        if before not in (None, group):
            table.add_row()
        table.add_row(*(group[:2] if group != before else ("", "")), str(size), *(shown.get(i, "") for i in impls))
        before = group
    return table


def in_order(row: tuple[tuple, dict]) -> tuple:
    """Return the sort key: forward first, full before causal, then by head dim and length."""
    which, mask, size = row[0]
    return which != "forward", mask == "causal", size.headdim, size.seqlen, size


def _shown(cell: dict, factor: float) -> str:
    if cell["verdict"] != TIMED:
        return f"[{COLOURS.get(cell['verdict'], 'bold red')}]{cell['verdict']}[/]"
    ratio = f" {cell['ratio']:5.2f}x" if cell["ratio"] else ""
    rate = f"{number(factor * cell['tflops']):>5} [bright_black]{cell['share']:4.0%}[/]"
    return f"{marks(cell)}{number(cell['ms'])} ms {rate}{ratio}"


def marks(cell: dict) -> str:
    unsteady = cell["ms_p80"] - cell["ms_p20"] > UNSTEADY * cell["ms"]
    return ("*" if "note" in cell else "") + ("~" if unsteady else "")


def _print_legend(results: list[dict], console: Console) -> None:
    shown = "".join(marks(cell) for cell in results if cell["verdict"] == TIMED)
    console.print()
    if "~" in shown:
        console.print(f"~  unsteady: the 20th and 80th percentile lie more than {UNSTEADY:.0%} of the median apart")
    if "*" in shown:
        console.print("*  launch-bound: the host takes longer to issue the call than the device to do it")


def _print_remarks(results: list[dict], console: Console) -> None:
    """Print why cells have no figure: each reason once for each implementation.

    A reason of a single cell names its case.
    """
    grouped: dict[tuple[str, str, str], list[dict]] = {}
    for cell in results:
        if cell.get("reason"):
            grouped.setdefault((cell["impl"], cell["verdict"], cell["reason"]), []).append(cell)
    for (impl, verdict, reason), cells in sorted(grouped.items(), key=lambda item: column(item[0][0])):
        c = cells[0]
        one = f"{c['dtype']} {c['pass']} {mask(c['causal'])} {size_of(c)}"
        where = one if len(cells) == 1 else f"{len(cells)} cells"
        console.print(f"[{COLOURS.get(verdict, 'bold red')}]{verdict:12}[/]  {escape(impl)}  {where}: {escape(reason)}",
                      highlight=False, soft_wrap=True)  # fmt: skip
