"""The bench itself, on the CPU: what it counts, refuses to time, and leaves behind. How long anything takes: never."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from bench import cells, sanity, timing
from bench.__main__ import main
from bench.cells import flops, visible_pairs
from bench.report import number
from impls import Absent, Implementation, Supports
from impls.handover import Outputs
from impls.registry import Broken, Entry, ours
from impls.torch_math import IMPL as MANUAL
from oracle.masks import visible
from properties.case import Case

SMALL = ("--device", "cpu", "--dtype", "float32", "--headdim", "8", "--seqlen", "16", "--seconds", "0.001")

PLUGIN = """
import torch
from impls import Implementation, Supports
from impls.torch_math import forward as right

CALLS = []

def forward(q, k, v, *, causal=False):
    CALLS.append(1)
    out = right(q, k, v, causal=causal)[0]
    {mistake}
    return out

IMPL = Implementation(name="mine", forward=forward, backward="autograd",
                      supports=Supports(dtypes={{torch.float32}}, headdims={{8, 16}}, causal="optional"))
"""


@pytest.fixture(autouse=True)
def quick_peak(monkeypatch):
    """Peaks of small products, and then so high that a busy machine cannot make a cell beat it."""
    measured = timing.peak

    def peak(*arguments):
        best = measured(*arguments)
        return timing.Peak(100 * best.tflops, best.product)

    monkeypatch.setitem(timing.PEAK_SIZES, "cpu", (64,))
    monkeypatch.setattr(timing, "peak", peak)


@pytest.fixture
def bench(tmp_path):
    """bench(*options) -> exit status, what was printed, bench.json."""

    def run(*options):
        console = Console(width=200, record=True, file=io.StringIO())
        status = main([*SMALL, "--report", str(tmp_path / "report"), *map(str, options)], console)
        return status, console.export_text(), json.loads((tmp_path / "report" / "bench.json").read_text())

    return run


@pytest.fixture
def plugin(tmp_path):
    """plugin(mistake) -> a file with an implementation `mine`, right but for that line."""

    def write(mistake="pass"):
        file = tmp_path / "mine.py"
        file.write_text(PLUGIN.format(mistake=mistake))
        return file

    return write


def verdicts(found, name):
    return {cell["pass"]: cell["verdict"] for cell in found["results"] if cell["impl"] == name}


# What is counted


@pytest.mark.parametrize("seqlen", [1, 2, 7, 64, 129])
@pytest.mark.parametrize("causal", [False, True])
def test_visible_pairs_are_those_of_the_mask(seqlen, causal):
    assert visible_pairs(seqlen, causal) == int(visible(seqlen, seqlen, causal=causal).sum())


@pytest.mark.parametrize("causal", [False, True])
def test_flops_are_two_products_of_every_visible_pair(causal):
    case = Case(batch=2, seqlen_q=9, seqlen_k=9, nheads=3, nheads_k=3, headdim=5, causal=causal)
    pairs = sum(1 for i in range(9) for j in range(9) if j <= i or not causal)

    want = 2 * 3 * pairs * (2 * 5 + 2 * 5)  # for each head: a multiplication and an addition, in q k and in P v

    assert flops(case, "forward") == want
    assert flops(case, "backward") == 2.5 * want


def test_the_papers_figure_is_met():
    """FA2, Sec. 4.1: 4 * seqlen^2 * headdim * nheads for each of the batch, with 16k tokens and width 2048."""
    (case,) = cells.cases("cuda", ["bfloat16"], [128], [False], [4096])

    assert (case.batch, case.nheads) == (4, 16)
    assert flops(case, "forward") == 4 * 4096**2 * 128 * 16 * 4


def test_every_length_has_the_same_tokens_on_a_gpu():
    grid = cells.GRIDS["cuda"]
    found = cells.cases("cuda", grid.dtypes, grid.headdims, [False, True], grid.seqlens)

    assert len(found) == 2 * 2 * 2 * 6
    assert {case.batch * case.seqlen_q for case in found} == {16384}
    assert {case.nheads * case.headdim for case in found} == {2048}


def test_manual_attention_says_how_much_does_not_fit(monkeypatch):
    monkeypatch.setattr(cells, "memory", lambda device: 80 * 2**30)
    (case,) = cells.cases("cuda", ["bfloat16"], [64], [True], [16384])

    assert cells.too_large(MANUAL, case, "forward", "cuda") == "needs 106 GiB, there are 80"
    assert cells.too_large(MANUAL, case.but(batch=1, nheads=1), "forward", "cuda") is None


# Who takes part


def entry(name, *devices):
    impl = Implementation(name=name, forward=lambda q, k, v: q, devices=set(devices), supports=Supports())
    return Entry(impl, f"{name}.py")


def test_new_kernels_enter_by_their_names():
    known = [entry("triton_fa2", "cuda", "cpu"), entry("cuda_fa1", "cuda"), entry("numba_fa2", "cuda"), *ours()]
    on_gpu = {e.name for e in cells.implementations(known, "cuda")}
    on_cpu = {e.name for e in cells.implementations(known, "cpu")}

    assert on_gpu >= {"torch_math", "torch_sdpa_flash", "torch_sdpa_cudnn", "triton_fa2", "cuda_fa1"}
    assert on_gpu.isdisjoint({"numba_fa2", "torch_flex", "python_tiled"})
    assert on_cpu >= {"torch_math", "torch_sdpa_flash_cpu", "python_tiled"}
    assert not any(name.startswith(("triton_", "cuda_")) for name in on_cpu)


def test_what_cannot_be_loaded_is_not_forgotten():
    broken = Entry(Broken("triton", "no compiler"), "triton")
    assert cells.implementations([broken], "cuda") == [broken]


def test_what_cannot_do_the_grid_is_no_column():
    """A variant for float32 alone, and what is not installed."""
    fast = replace(MANUAL, name="cuda_fast", devices={"cuda"})
    narrow = replace(fast, name="cuda_tf32", supports=replace(fast.supports, dtypes={torch.float32}))
    known = [Entry(impl, "") for impl in (fast, narrow, Absent("cuda_gone", "not installed"))]
    assert [entry.name for entry in cells.implementations(known, "cuda")] == ["cuda_fast"]


# What is not timed


def test_a_right_result_is_fit_to_be_timed():
    case = Case(batch=2, seqlen_q=33, seqlen_k=33, nheads=2, nheads_k=2, headdim=8, causal=True, dtype=torch.bfloat16)
    x = sanity.make_inputs(case, "cpu", seed=1)
    want = sanity.reference(x, causal=True, backward=True)
    got = {name: tensor.bfloat16() for name, tensor in want.items()}

    assert want.out.shape == want.dq.shape == x.q.shape
    assert sanity.mistake(Outputs(**got), want, sanity.NAMES) is None


def spoilt(name, where, factor):
    """The message about right results, one part of which is multiplied by a factor."""
    x = sanity.make_inputs(Case(batch=2, seqlen_q=33, seqlen_k=33, nheads=2, nheads_k=2, headdim=8), "cpu", seed=1)
    want = sanity.reference(x, causal=False, backward=True)
    got = {n: tensor.clone() for n, tensor in want.items()}
    got[name][where] *= factor
    return sanity.mistake(Outputs(**got), want, sanity.NAMES)


def test_one_row_too_large_is_seen():
    message = spoilt("dv", (1, 20, 1), 3)
    assert message.startswith("dv of batch 1, head 1, row 20 is off by ") and message.endswith("should be 50% at most")


def test_one_head_a_tenth_too_large_is_seen():
    message = spoilt("dk", (0, slice(None), 1), 1.1)
    assert message == "dk of batch 0, head 1 is off by 10% of its length, should be 5% at most"


def test_chunks_of_heads_change_nothing(monkeypatch):
    case = Case(batch=3, seqlen_q=16, seqlen_k=16, nheads=2, nheads_k=2, headdim=8, causal=True)
    x = sanity.make_inputs(case, "cpu", seed=2)
    whole = sanity.reference(x, causal=True, backward=True)
    monkeypatch.setattr(sanity, "SCORES_AT_ONCE", 4 * 16**2)

    for name, tensor in sanity.reference(x, causal=True, backward=True).items():
        torch.testing.assert_close(tensor, getattr(whole, name))


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [
        ("out = torch.cat([out[:, :-1], 0 * out[:, -1:]], 1)", "out of batch 0, head"),
        ("out = out * torch.where(out.detach() == out.detach().max(), torch.nan, 1.0)", "out: 1 of 256 values are not"),
    ],
)
def test_a_wrong_implementation_is_wrong_and_not_timed(bench, plugin, mistake, reason):
    status, text, found = bench("--impl-from", plugin(mistake), "--impl", "mine,torch_math", "--full")

    assert status == 1
    assert verdicts(found, "mine") == {"forward": "wrong", "backward": "wrong"}
    assert verdicts(found, "torch_math") == {"forward": "timed", "backward": "timed"}
    for cell in found["results"]:
        if cell["impl"] == "mine":
            assert "ms" not in cell and reason in cell["reason"]
            assert f"pytest --impl-from={plugin(mistake)} --case 'seqlen_q=16" in cell["reason"]
    assert "wrong" in text and reason in text


def test_a_wrong_gradient_is_wrong_where_the_forward_is_right(bench, plugin):
    file = plugin("out = out + 0.5 * (out - out.detach())")
    status, _, found = bench("--impl-from", file, "--impl", "mine", "--full")

    assert status == 1
    assert verdicts(found, "mine") == {"forward": "timed", "backward": "wrong"}


def test_an_exception_is_told_and_the_rest_goes_on(bench, plugin):
    status, _, found = bench("--impl-from", plugin("raise RuntimeError('no such tile')"), "--impl", "mine,torch_math")

    assert status == 1
    assert {c["reason"] for c in found["results"] if c["impl"] == "mine"} == {"RuntimeError: no such tile"}
    assert len([c for c in found["results"] if c["verdict"] == "timed"]) == 4


def test_a_refusal_is_told_and_no_failure(bench, plugin):
    status, text, found = bench("--impl-from", plugin(), "--impl", "mine,torch_math", "--headdim", "8,12")
    refused = [cell for cell in found["results"] if cell["verdict"] == "refused"]

    assert status == 0
    assert {(cell["impl"], cell["headdim"]) for cell in refused} == {("mine", 12)}
    assert "4 cells: headdim 12 is not in what mine supports" in text


def test_above_the_peak_is_an_error(bench, monkeypatch):
    monkeypatch.setattr(timing, "peak", lambda *arguments: timing.Peak(1e-9, "a slow product"))
    status, text, found = bench("--impl", "torch_math", "--full", "--pass", "forward")
    (cell,) = found["results"]

    assert status == 1
    assert cell["verdict"] == "above peak" and "share" not in cell
    assert cell["tflops"] > 1e-9 and "a matrix product's 1e-09: a mistake in measuring" in cell["reason"]
    assert "above peak" in text


def test_a_peak_that_was_disturbed_is_measured_again(bench, monkeypatch):
    measured = iter([1e-9, 1e9])
    monkeypatch.setattr(timing, "peak", lambda *arguments: timing.Peak(next(measured), "a product"))
    status, _, found = bench("--impl", "torch_math", "--full", "--pass", "forward")

    assert status == 0
    assert found["peak"]["float32"]["tflops"] == 1e9
    assert found["results"][0]["verdict"] == "timed"


# What is left behind


def test_table_json_and_plot(bench, plugin, tmp_path):
    status, text, found = bench("--impl-from", plugin(), "--seqlen", "16,32")

    assert status in (0, 1)  # 1 if one of our own cannot be loaded here
    assert found["state"] == "complete"
    names = {cell["impl"] for cell in found["results"]}
    assert names >= {"mine", "torch_math", "torch_sdpa_flash_cpu", "python_tiled"}
    assert len(found["results"]) == len(names) * 2 * 2 * 2
    for cell in found["results"]:
        if cell["verdict"] == "timed":
            assert cell["ms_p20"] <= cell["ms"] <= cell["ms_p80"] and cell["repeats"] >= 5
            case = Case(batch=1, seqlen_q=cell["seqlen"], seqlen_k=cell["seqlen"], nheads=2, nheads_k=2,
                        headdim=8, causal=cell["causal"])  # fmt: skip
            assert math.isclose(cell["tflops"] * 1e12 * cell["ms"] / 1e3, flops(case, cell["pass"]))
            assert math.isclose(cell["share"], cell["tflops"] / found["peak"]["float32"]["tflops"])
            assert cell["baseline"] == "torch_sdpa_flash_cpu"
            assert cell["impl"] != cell["baseline"] or cell["ratio"] == 1
    assert {"device_name", "versions", "started", "threads", "command"} <= found["environment"].keys()
    assert "This is the CPU" in text and "GFLOP/s" in text and "torch_sdpa_flash_cpu" in text
    assert (tmp_path / "report" / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert not list((tmp_path / "report").glob("*.part"))


def test_an_interrupt_keeps_what_is_there(bench, monkeypatch, tmp_path):
    measure, calls = timing.measure, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 4:  # the first is the peak's
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(timing, "measure", interrupted)
    status, text, found = bench("--impl", "torch_math,torch_sdpa_flash_cpu")

    assert status == 130
    assert found["state"] == "interrupted" and [c["verdict"] for c in found["results"]] == ["timed", "timed"]
    assert "interrupted: 2 of 2 cells timed" in text
    assert (tmp_path / "report" / "bench.png").exists()


def test_the_file_is_whole_after_every_cell(bench, monkeypatch, tmp_path):
    measure, seen = timing.measure, []

    def look(*arguments):
        seen.append(json.loads((tmp_path / "report" / "bench.json").read_text()))
        return measure(*arguments)

    monkeypatch.setattr(timing, "measure", look)
    bench("--impl", "torch_math")

    assert [len(found["results"]) for found in seen] == [0, 0, 1, 2, 3]
    assert {found["state"] for found in seen} == {"running"}


# What cannot be asked for


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dtype", "bf16,int8"], "argument --dtype: 'int8' should be one of float32, float16, bfloat16"),
        (["--headdim", "64,x"], "argument --headdim: 'x' should be a whole number, at least 1"),
        (["--seqlen", "0"], "argument --seqlen: '0' should be a whole number, at least 1"),
        (["--pass", "sideways"], "argument --pass: 'sideways' should be one of forward, backward"),
        (["--seconds", "-1"], "argument --seconds: '-1' should be a number of seconds above 0"),
        (["--impl", "torch_maths"], "--impl torch_maths: unknown 'torch_maths'; known are cuda_fa1, cuda_fa1_wide, "),
        (["--impl", "torch_sdpa_flash"], "torch_sdpa_flash runs on cuda only: should run on cpu"),
        (["--impl-from", "nowhere.py"], "--impl-from nowhere.py: there is no file nowhere.py"),
        (["--device", "tpu"], "argument --device: invalid choice: 'tpu'"),
        (["--report", __file__], f"--report {__file__}: "),
    ],
)
def test_a_bad_option_is_named_with_its_value(options, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--device", "cpu", *options])

    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_help_tells_what_happens_without_options(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])

    assert stopped.value.code == 0
    assert "Without options, on a GPU: torch_math, torch_sdpa_flash" in capsys.readouterr().out


def test_numbers_have_three_digits():
    assert [number(x) for x in (0.12345, 1.2, 12.34, 99.96, 123.4, 1234.5)] == [
        "0.123", "1.20", "12.3", "100", "123", "1234"]  # fmt: skip
