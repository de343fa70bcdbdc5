"""Writes the pages that the tests open."""

from __future__ import annotations

from pathlib import Path

from flash_attest.runner.compare import compare
from flash_attest.runner.page.compare import compare_page
from flash_attest.runner.page.run import run_page
from tests.runner.page.data import RUNS, compared


def write_all(folder: Path) -> dict[str, Path]:
    """Write each page to a file. Returns name -> file."""
    pages = {name: run_page(*run()) for name, run in RUNS.items()}
    records = compared()
    pages["compare"] = compare_page(compare(*records), ["old", "new"], list(records))
    files = {}
    for name, page in pages.items():
        files[name] = folder / f"{name}.html"
        files[name].write_text(page, encoding="utf-8")
    return files
