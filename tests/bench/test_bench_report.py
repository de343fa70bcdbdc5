"""The benchmark writes the table, bench.json and the plot, even when it is interrupted."""

from __future__ import annotations

import io
import json
import math

from rich.console import Console
from rich.progress import Progress

from flash_attest.bench import cells, timing
from flash_attest.bench.cells import flops
from flash_attest.bench.command import _progress_printer
from flash_attest.bench.plan import Part
from flash_attest.bench.report import Measurements, number
from flash_attest.bench.sizes import PASSES, Size
from flash_attest.impls.contract.registry import ours
from flash_attest.properties.cases.case import Case


def test_table_json_and_plot(bench, benched, tmp_path):
    status, text, report = bench("--impl-from", benched(), "--seqlen", "16,32")

    assert status in (0, 1)  # 1 if one of our own cannot be loaded here
    assert report["state"] == "complete"
    names = {cell["impl"] for cell in report["results"]}
    assert names >= {"mine", "torch_math", "torch_sdpa_flash_cpu", "python_tiled"}
    assert len(report["results"]) == len(names) * 2 * 2 * 2
    for cell in report["results"]:
        if cell["verdict"] == "timed":
            assert cell["ms_p20"] <= cell["ms"] <= cell["ms_p80"] and cell["repeats"] >= 5
            case = Case(batch=1, seqlen_q=cell["seqlen"], seqlen_k=cell["seqlen"], nheads=2, nheads_k=2,
                        headdim=8, causal=cell["causal"])  # fmt: skip
            assert math.isclose(cell["tflops"] * 1e12 * cell["ms"] / 1e3, flops(case, cell["pass"]))
            assert math.isclose(cell["share"], cell["tflops"] / report["peak"]["float32"]["tflops"])
            assert cell["baseline"] == "torch_sdpa_flash_cpu"
            assert cell["impl"] != cell["baseline"] or cell["ratio"] == 1
    assert {"device_name", "versions", "started", "threads", "command"} <= report["environment"].keys()
    words = " ".join(text.split())
    assert "float32: ms, GFLOP/s, share of the " in words and "1x2x16x8" in words
    assert "This is the CPU" in text and "GFLOP/s" in text and "torch_sdpa_flash_cpu" in text
    for cell in report["results"]:
        if cell["verdict"] == "timed":
            rate, share = number(1e3 * cell["tflops"]), f"{cell['share']:.0%}"
            assert " ".join([number(cell["ms"]), "ms", rate, share, f"{cell['ratio']:.2f}x"]) in words
    assert (tmp_path / "report" / "bench.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report" / "bench.html").read_text()
    assert "cells timed" in page and page.count('<tr data-item="uncounted"') == len(report["results"])
    assert f"see {tmp_path}/report/bench.html, bench.json, bench.png" in text
    assert not list((tmp_path / "report").glob("*.part"))


def test_an_interrupted_run_keeps_its_results(bench, monkeypatch, tmp_path):
    measure, calls = timing.measure, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 4:  # the first call measures the peak
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(timing, "measure", interrupted)
    status, text, report = bench("--impl", "torch_math,torch_sdpa_flash_cpu")

    assert status == 130
    assert report["state"] == "interrupted" and [c["verdict"] for c in report["results"]] == ["timed", "timed"]
    assert "interrupted: 2 of 2 cells timed" in text
    assert (tmp_path / "report" / "bench.png").exists()
    assert "interrupted: 2 of 2 cells timed" in (tmp_path / "report" / "bench.html").read_text()


def test_the_file_is_complete_after_every_cell(bench, monkeypatch, tmp_path):
    measure, seen = timing.measure, []

    def look(*arguments):
        seen.append(json.loads((tmp_path / "report" / "bench.json").read_text()))
        return measure(*arguments)

    monkeypatch.setattr(timing, "measure", look)
    bench("--impl", "torch_math")

    assert [len(report["results"]) for report in seen] == [0, 0, 1, 2, 3]
    assert {report["state"] for report in seen} == {"running"}


def test_a_log_says_once_that_a_first_call_may_compile(tmp_path):
    file = io.StringIO()
    console, measurements = Console(file=file), Measurements(tmp_path, {"device": "cuda"})
    few = cells.cases(["float32"], [Size(1, 2, 3, 4), Size(1, 2, 5, 4)], [True])
    part = Part([e for e in ours() if e.name in ("cuda_fa1", "torch_math")], few, [])
    with Progress(console=console) as progress:
        show = _progress_printer([part], PASSES, measurements, progress, console)
        for case in few:
            for name in ("torch_math", "cuda_fa1"):
                show(case, "forward", name)
    lines = [line.strip() for line in file.getvalue().splitlines() if "first call" in line or " of 2 " in line]

    assert lines == [f"1 of 2  {few[0]}", "first call of cuda_fa1, which may compile", f"2 of 2  {few[1]}"]


def test_numbers_have_three_digits():
    assert [number(x) for x in (0.12345, 1.2, 12.34, 99.96, 123.4, 1234.5)] == [
        "0.123", "1.20", "12.3", "100", "123", "1234"]  # fmt: skip
