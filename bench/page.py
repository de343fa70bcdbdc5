"""The page of a benchmark: bench.html, made of what bench.json has. It needs no matplotlib."""

from __future__ import annotations

import itertools
import shlex
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from flash_attest.bench import curves
from flash_attest.bench.cells import REFUSED, TIMED, UNTRUSTED, column
from flash_attest.bench.report import UNSTEADY, in_order, marks, mask, number, size_of, unit
from flash_attest.runner.page.template import BAD, BUSY, GOOD, OPEN, render
from flash_attest.runner.page.words import plural, slug

TEMPLATE = Path(__file__).with_name("page.html.j2")
STATES = {"complete": GOOD, "running": BUSY}  # any other is OPEN
KINDS = {TIMED: "pass", REFUSED: "refused"} | dict.fromkeys(UNTRUSTED, "fail")  # the others are "unknown"
NOT_TOLD = ("versions", "installed", "command", "device", "device_name", "started", "platform", "seconds", "left_out",
            "not_loaded")  # fmt: skip

# What an older bench.json, or one of a run that goes on, lacks.
EMPTY = {"platform": "", "seconds": None, "left_out": [], "not_loaded": []}


@dataclass(frozen=True)
class Shown:
    """A cell of a table of ratios. kind: the class of its colour; share: the bar, in per cent."""

    kind: str
    ratio: str
    rate: str
    share: int
    says: str


def page(report: dict) -> str:
    """Return what bench.json has, as HTML."""
    about, results = EMPTY | report["environment"], report["results"]
    name, factor = unit(about["device"])
    reasons = reasons_of(results)
    bad = [group for group in reasons if group["verdict"] in UNTRUSTED]
    not_loaded = about["not_loaded"]
    dtypes = [dtype for dtype in report["peak"] if any(cell["dtype"] == dtype for cell in results)]
    return render(
        TEMPLATE,
        tone=BAD if bad or not_loaded else STATES.get(report["state"], OPEN),
        headline=headline(report["state"], results, about),
        state=report["state"],
        about=about,
        command=shlex.join(about["command"]) if about.get("command") else "",
        more={key: value for key, value in about.items() if key not in NOT_TOLD},
        versions={key: version for key, version in about["versions"].items() if version},
        without=", ".join(f"{count} {verdict}" for verdict, count in
                          Counter(cell["verdict"] for cell in results if cell["verdict"] != TIMED).items()),
        bad=bad,
        not_loaded=not_loaded,
        left_out=about["left_out"],
        reasons=reasons,
        unit=name,
        overview=overview(results, dtypes),
        tables=[table_of(dtype, results, factor) for dtype in dtypes],
        pictures=curves.drawn(report),
        peaks=[(key, peak["product"], number(factor * peak["tflops"])) for key, peak in report["peak"].items()],
        cells=[_raw(cell, factor) for cell in results],
        choices={
            key: [(value, value) for value in dict.fromkeys(_words(cell)[key] for cell in results)]
            for key in ("dtype", "pass", "mask")
        },
        unsteady=f"{UNSTEADY:.0%}",
    )  # fmt: skip


def headline(state: str, results: list[dict], about: dict) -> str:
    """ "192 of 240 cells timed", with how the run ended if it did not end well."""
    timed = sum(cell["verdict"] == TIMED for cell in results)
    wrong = Counter(cell["verdict"] for cell in results if cell["verdict"] in UNTRUSTED)
    words = f"{timed} of {plural(len(results), 'cell')} timed"
    words += "".join(f", {count} {verdict}" for verdict, count in wrong.items())
    if about["not_loaded"]:
        words += f", {plural(len(about['not_loaded']), 'implementation')} not loaded"
    return words if state == "complete" else f"{state}: {words}"


def _words(cell: dict) -> dict[str, str]:
    """Return the fields of a cell that the filter knows."""
    return {"dtype": cell["dtype"], "pass": cell["pass"], "mask": mask(cell["causal"])}


def overview(results: list[dict], dtypes: Iterable[str]) -> dict:
    """Return the median ratio of each implementation by dtype and pass: columns, and rows."""
    timed = [cell for cell in results if cell["verdict"] == TIMED and cell["ratio"]]
    columns = [
        (dtype, which, next(cell["baseline"] for cell in timed if (cell["dtype"], cell["pass"]) == (dtype, which)))
        for dtype, which in itertools.product(dtypes, dict.fromkeys(cell["pass"] for cell in timed))
        if any((cell["dtype"], cell["pass"]) == (dtype, which) for cell in timed)
    ]
    rows = []
    for impl in sorted({cell["impl"] for cell in timed}, key=column):
        own = [[cell["ratio"] for cell in timed if (cell["impl"], cell["dtype"], cell["pass"]) == (impl, dtype, which)]
               for dtype, which, _ in columns]  # fmt: skip
        rows.append((impl, [_median(impl, ratios) for ratios in own]))
    return {"columns": columns, "rows": rows}


def times(ratio: float) -> str:
    """Write how many times as fast: "1.53x", "0.006x"."""
    return f"{ratio:.2f}x" if ratio >= 0.095 else f"{ratio:.1g}x"


def _median(impl: str, ratios: list[float]) -> Shown | None:
    if not ratios:
        return None
    middle = statistics.median(ratios)
    says = f"{impl}: {times(min(ratios))} to {times(max(ratios))} in {plural(len(ratios), 'case')}"
    return Shown("pass", times(middle), "", min(100, round(100 * middle)), says)


def table_of(dtype: str, results: list[dict], factor: float) -> dict:
    """Return the table of one dtype: its implementations, and a row for each case and pass."""
    cells = [cell for cell in results if cell["dtype"] == dtype]
    impls = sorted({cell["impl"] for cell in cells if cell["verdict"] != REFUSED}, key=column)
    rows: dict[tuple, dict[str, Shown]] = {}
    for cell in cells:
        key = cell["pass"], mask(cell["causal"]), size_of(cell)
        rows.setdefault(key, {})[cell["impl"]] = _shown(cell, factor)
    ordered = [(key, [shown.get(impl) for impl in impls]) for key, shown in sorted(rows.items(), key=in_order)]
    baseline = next((cell["baseline"] for cell in cells if cell.get("baseline")), None)
    return {"dtype": dtype, "anchor": slug("ratios", dtype), "impls": impls, "rows": ordered, "baseline": baseline}


def _shown(cell: dict, factor: float) -> Shown:
    kind = KINDS.get(cell["verdict"], "unknown")
    if cell["verdict"] != TIMED:
        return Shown(kind, cell["verdict"], "", 0, cell.get("reason", ""))
    ratio = times(cell["ratio"]) if cell["ratio"] else ""
    says = f"{number(cell['ms_p20'])} to {number(cell['ms_p80'])} ms in the middle of {cell['repeats']} repeats"
    says += f"; {cell['note']}" if "note" in cell else ""
    rate = f"{marks(cell)}{number(cell['ms'])} ms, {number(factor * cell['tflops'])}, {cell['share']:.0%}"
    return Shown(kind, ratio, rate, min(100, round(100 * cell["share"])), says)


def reasons_of(results: list[dict]) -> list[dict]:
    """Return why cells have no figure, by implementation and reason, untrusted ones first."""
    groups: dict[tuple, list[dict]] = {}
    for cell in results:
        if cell.get("reason"):
            groups.setdefault((cell["impl"], cell["verdict"], cell["reason"]), []).append(cell)
    entries = [
        {"impl": impl, "verdict": verdict, "kind": KINDS.get(verdict, "unknown"), "reason": reason,
         "cells": len(cells), "one": _one(cells[0]), "anchor": slug("reason", impl, verdict, reason[:40])}
        for (impl, verdict, reason), cells in groups.items()
    ]  # fmt: skip
    return sorted(
        entries, key=lambda group: (group["kind"] != "fail", group["kind"] == "refused", column(group["impl"]))
    )


def _one(cell: dict) -> str:
    return f"{cell['dtype']} {cell['pass']} {mask(cell['causal'])} {size_of(cell)}"


def _raw(cell: dict, factor: float) -> dict:
    """Return a row of the table of all cells."""
    figures = {"ms": "", "ms_p20": "", "ms_p80": "", "repeats": "", "rate": "", "share": "", "ratio": ""}
    if "ms" in cell:
        figures = {name: number(cell[name]) for name in ("ms", "ms_p20", "ms_p80")}
        figures |= {"repeats": cell["repeats"], "rate": number(factor * cell["tflops"])}
        figures["share"] = f"{cell['share']:.1%}" if "share" in cell else ""
        figures["ratio"] = times(cell["ratio"]) if cell.get("ratio") else ""
    remark = "; ".join(filter(None, [
        cell.get("reason", ""), cell.get("note", ""),
        f"multiplies in {cell['product']}" if "product" in cell else "",
    ]))  # fmt: skip
    return {"impl": cell["impl"], **_words(cell), "size": str(size_of(cell)), "verdict": cell["verdict"],
            "kind": KINDS.get(cell["verdict"], "unknown"), "remark": remark, **figures}  # fmt: skip
