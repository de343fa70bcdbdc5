"""Writes the pages that the tests open."""

from __future__ import annotations

from pathlib import Path

from flash_attest.bench.page import page as bench_page
from flash_attest.mutants.power.page import page as power_page
from flash_attest.mutants.power.tables import tables_of
from flash_attest.runner.compare import compare
from flash_attest.runner.page.compare import compare_page
from flash_attest.runner.page.run import run_page
from flash_attest.sweep.page import page as sweep_page
from tests.bench.measured import cell, measured
from tests.places import ROOT
from tests.runner.page.data import RUNS, compared
from tests.sweep.summaries import green, red


def write_all(folder: Path) -> dict[str, Path]:
    """Write each page to a file. Returns name -> file."""
    pages = {name: run_page(*run()) for name, run in RUNS.items()}
    records = compared()
    pages["compare"] = compare_page(compare(*records), ["old", "new"], list(records))
    pages |= {"sweep_green": sweep_page(green(folder)), "sweep_red": sweep_page(red(folder))}
    pages["power"] = power_page(tables_of([ROOT / "docs" / "measured" / "power.json"]))
    bench = measured()
    bench["results"].append(cell("mine", 512, verdict="wrong", reason="out of batch 0 is off by 10%"))
    pages["bench"] = bench_page(bench)
    files = {}
    for name, page in pages.items():
        files[name] = folder / f"{name}.html"
        files[name].write_text(page, encoding="utf-8")
    return files
