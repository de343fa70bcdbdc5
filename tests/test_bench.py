"""The bench itself, on the CPU: what it counts, refuses to time, and leaves behind. How long anything takes: never."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from rich.progress import Progress

from bench import cells, sanity, timing
from bench.__main__ import _teller, main
from bench.cells import flops, visible_pairs
from bench.options import parser_of_options
from bench.plan import Part, plan
from bench.report import Report, number
from impls import Absent, Implementation, Precision, Supports
from impls.handover import Outputs
from impls.registry import Broken, Entry, ours
from impls.torch_math import IMPL as MANUAL
from oracle.masks import visible
from properties.case import Case, text_of

SMALL = ("--device", "cpu", "--dtype", "float32", "--headdim", "8", "--seqlen", "16", "--seconds", "0.001")
SIZED = ("--device", "cpu", "--seconds", "0.001")  # with --size

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

MEASURED_PEAK = timing.peak


@pytest.fixture(autouse=True)
def quick_peak(monkeypatch):
    """Peaks of small products, and then so high that a busy machine cannot make a cell beat it."""

    def peak(*arguments):
        best = MEASURED_PEAK(*arguments)
        return timing.Peak(100 * best.tflops, best.product)

    monkeypatch.setitem(timing.PEAK_SIZES, "cpu", (64,))
    monkeypatch.setattr(timing, "peak", peak)


@pytest.fixture
def bench(tmp_path):
    """bench(*options) -> exit status, what was printed, bench.json."""

    def run(*options, sized=False):
        console = Console(width=200, record=True, file=io.StringIO())
        small = SIZED if sized else SMALL
        status = main([*small, "--report", str(tmp_path / "report"), *map(str, options)], console)
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
    (case,) = cells.cases(["bfloat16"], cells.curves("cuda", [128], [4096]), [False])

    assert (case.batch, case.nheads) == (4, 16)
    assert flops(case, "forward") == 4 * 4096**2 * 128 * 16 * 4


def test_every_length_has_the_same_tokens_on_a_gpu():
    grid = cells.GRIDS["cuda"][0]
    found = cells.cases(grid.dtypes, grid.sizes, [False, True])

    assert len(found) == 2 * 2 * 2 * 6
    assert {case.batch * case.seqlen_q for case in found} == {16384}
    assert {case.nheads * case.headdim for case in found} == {2048}


def test_manual_attention_says_how_much_does_not_fit(monkeypatch):
    monkeypatch.setattr(cells, "memory", lambda device: 80 * 2**30)
    (case,) = cells.cases(["bfloat16"], cells.curves("cuda", [64], [16384]), [True])

    assert cells.too_large(MANUAL, case, "forward", "cuda") == "needs 106 GiB, there are 80"
    assert cells.too_large(MANUAL, case.but(batch=1, nheads=1), "forward", "cuda") is None


# Who takes part


ANY = Supports(dtypes={torch.float32, torch.float16, torch.bfloat16}, headdims=range(1, 257), causal="optional")


def entry(name, *devices, supports=ANY, **declared):
    impl = Implementation(name=name, forward=lambda q, k, v: q, devices=set(devices), supports=supports, **declared)
    return Entry(impl, f"{name}.py")


def names_of(grid, known, device):
    return {entry.name for entry in grid.entries(known, device)}


def test_new_kernels_enter_by_their_names():
    known = [entry("triton_fa3", "cuda", "cpu"), entry("cuda_fa9", "cuda"), entry("numba_fa2", "cuda"), *ours()]
    half, _ = cells.GRIDS["cuda"]
    on_gpu, on_cpu = names_of(half, known, "cuda"), names_of(cells.GRIDS["cpu"][0], known, "cpu")

    assert on_gpu >= {"torch_math", "torch_sdpa_flash", "torch_sdpa_cudnn", "triton_fa3"}
    assert on_gpu.isdisjoint({"numba_fa2", "cuda_fa9", "torch_flex", "python_tiled"})
    assert on_cpu >= {"torch_math", "torch_sdpa_flash_cpu", "python_tiled"}
    assert not any(name.startswith(("triton_", "cuda_")) for name in on_cpu)


def test_kernels_without_matrix_units_are_measured_in_float32():
    mine = [entry(name, "cuda") for name in ("cuda_fa1", "cuda_fa2", "cuda_fa2_top_left", "triton_fa2", "triton_fa3")]
    known = [e for e in ours() if e.name.startswith("torch_")] + mine
    half, single = (names_of(grid, known, "cuda") for grid in cells.GRIDS["cuda"])

    assert single == {"torch_math", "torch_sdpa_efficient_float32", "triton_fa2", "cuda_fa1", "cuda_fa2"}
    assert half == {"torch_math", "torch_sdpa_flash", "torch_sdpa_cudnn", "triton_fa2", "triton_fa3"}


def test_what_cannot_be_loaded_is_not_forgotten():
    broken = Entry(Broken("triton", "no compiler"), "triton")
    assert cells.GRIDS["cuda"][0].entries([broken], "cuda") == [broken]


def test_what_cannot_do_the_grid_is_no_column():
    """A variant for float32 alone, and what is not installed."""
    narrow = entry("triton_tf32", "cuda", supports=replace(ANY, dtypes={torch.float32}))
    known = [entry("triton_fast", "cuda"), narrow, Entry(Absent("triton_gone", "not installed"), "")]
    assert names_of(cells.GRIDS["cuda"][0], known, "cuda") == {"triton_fast"}


def test_what_is_named_in_the_grid_and_cannot_be_timed_has_a_reason():
    absent = Entry(Absent("triton_fa2", "not installed"), "")
    known = [entry("cuda_fa1", "cpu", unavailable={"cuda": "no nvcc found"}), entry("cuda_fa2", "cpu"), absent]
    assert cells.GRIDS["cuda"][1].left_out([entry("torch_math", "cuda"), *known], "cuda") == [
        "cuda_fa1: no nvcc found",
        "cuda_fa2: it does not run on cuda",
        "triton_fa2: not installed",
    ]


def test_what_is_asked_for_and_is_not_here_says_what_is_missing(tmp_path, capsys):
    file = tmp_path / "gpu_only.py"
    declared = 'IMPL = Implementation(name="mine", devices={"cuda"}, unavailable={"cpu": "no g++ found"},'
    file.write_text(PLUGIN.format(mistake="").replace('IMPL = Implementation(name="mine",', declared))
    with pytest.raises(SystemExit):
        main(["--device", "cpu", "--impl-from", str(file)])
    wanted = "mine runs on cuda only: should run on cpu (--device), but no g++ found"
    assert wanted in " ".join(capsys.readouterr().err.split())


# Which sizes


def asked(device, **options):
    """The dtypes of each grid that takes part -> its sizes, as --size has them."""
    return {dtypes: [str(size) for size in sizes] for _, dtypes, sizes in cells.grids(device, **options)}


def test_a_gpu_has_two_grids():
    found = asked("cuda")

    assert list(found) == [("bfloat16", "float16"), ("float32",)]
    assert "4x16x4096x128" in found["bfloat16", "float16"] and len(found["bfloat16", "float16"]) == 12
    assert found["float32",] == ["16x12x64x64", "8x12x1024x64"]


@pytest.mark.parametrize(
    ("options", "want"),
    [
        (dict(dtypes=("float32",)), {("float32",): ["16x12x64x64", "8x12x1024x64"]}),
        (dict(sizes=(cells.Size(1, 2, 3, 4),)), {("float32",): ["1x2x3x4"]}),
        (dict(sizes=(cells.Size(1, 2, 3, 4),), dtypes=("float16",)), {("float16",): ["1x2x3x4"]}),
        (dict(headdims=(128,), seqlens=(512,)), {("bfloat16", "float16"): ["32x16x512x128"]}),
        (dict(headdims=(128,), seqlens=(512,), dtypes=("float32",)), {("float32",): ["32x16x512x128"]}),
    ],
)
def test_options_choose_among_the_grids(options, want):
    assert asked("cuda", **options) == want


def test_a_dtype_is_measured_by_the_implementations_of_its_grid():
    half, single = cells.GRIDS["cuda"]
    sizes = (cells.Size(1, 2, 3, 4),)

    assert cells.grids("cuda", sizes=sizes) == [(single, ("float32",), sizes)]
    assert cells.grids("cuda", ("float16", "float32"), sizes) == [
        (half, ("float16",), sizes),
        (single, ("float32",), sizes),
    ]


def test_sizes_may_differ_in_their_batch_alone(bench, tmp_path):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "bench.png").write_text("of an earlier run")
    status, text, found = bench("--impl", "torch_math,torch_sdpa_flash_cpu", "--size", "2x3x16x8,1x3x16x8", sized=True)
    rows = [line.split() for line in text.splitlines() if "x3x16x8" in line and " ms " in line]

    assert status == 0
    assert {cell["dtype"] for cell in found["results"]} == {"float32"}
    assert {(cell["batch"], cell["nheads"], cell["seqlen"]) for cell in found["results"]} == {(2, 3, 16), (1, 3, 16)}
    assert [cell["ratio"] for cell in found["results"] if cell["impl"] == cell["baseline"]] == [1] * 8
    assert len(rows) == 8 and rows[0][:3] == ["forward", "full", "1x3x16x8"] and rows[1][0] == "2x3x16x8"
    assert "size is batch x nheads x seqlen x headdim" in text
    assert not (tmp_path / "report" / "bench.png").exists() and "bench.png" not in text  # two sizes are no curve


def on_a_gpu(*options):
    """What would be measured there: for each grid, the dtypes of its cases, and who takes part."""
    options = parser_of_options().parse_args(options)
    options.device = "cuda"
    return [({text_of(c.dtype) for c in p.cases}, {e.name for e in p.entries}) for p in plan(options)]


def test_who_names_no_dtype_is_told_of_no_refused_ones(plugin):
    half, single = {"bfloat16", "float16"}, {"float32"}
    both = on_a_gpu("--impl", "torch_math,torch_sdpa_flash")

    assert both == [(half, {"torch_math", "torch_sdpa_flash"}), (single, {"torch_math"})]
    assert on_a_gpu("--impl", "torch_sdpa_flash") == [(half, {"torch_sdpa_flash"})]
    assert on_a_gpu("--impl", "torch_sdpa_flash", "--dtype", "fp32") == [(single, {"torch_sdpa_flash"})]
    assert [("mine" in names) for _, names in on_a_gpu("--impl-from", str(plugin()))] == [False, True]


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


def test_what_multiplies_in_tf32_is_bounded_by_tf32(bench, monkeypatch):
    """And has its share of the float32 product all the same, as the others in the table."""
    peaks = {"float32": timing.Peak(1e-9, "slow"), "tf32": timing.Peak(1e9, "fast")}
    monkeypatch.setattr(timing, "peak", lambda product, device: peaks[product])
    monkeypatch.setattr("bench.run.product_of", lambda *arguments: "tf32")
    status, text, found = bench("--impl", "torch_math", "--full", "--pass", "forward")
    (cell,) = found["results"]

    assert status == 0
    assert cell["product"] == "tf32" and math.isclose(cell["share"], cell["tflops"] / 1e-9)
    assert "torch_math multiplies in tf32, of which a matrix product reaches 1000000000000 GFLOP/s" in text


def test_tf32_is_what_is_declared():
    tf32 = replace(MANUAL, precision=Precision(multiply="tf32"))

    assert cells.product_of(tf32, torch.float32, "cuda") == "tf32"
    assert cells.product_of(tf32, torch.float16, "cuda") == "float16"
    assert cells.product_of(tf32, torch.float32, "cpu") == cells.product_of(MANUAL, torch.float32, "cuda") == "float32"


MATMUL = torch.backends.cuda.matmul


@pytest.fixture(params=[False, True])
def allowed_before(request):
    """Whether tf32 is allowed when the test starts."""
    before, MATMUL.allow_tf32 = MATMUL.allow_tf32, request.param
    yield request.param
    MATMUL.allow_tf32 = before


@pytest.mark.parametrize("product", ["float32", "tf32", "float16"])
def test_tf32_is_on_for_its_own_peak_alone(product, allowed_before, monkeypatch):
    seen = []

    def look(kind, *arguments):
        seen.append((kind, MATMUL.allow_tf32))
        return timing.Peak(1.0, kind)

    monkeypatch.setattr(timing, "_product", look)
    MEASURED_PEAK(product, "cuda")

    assert set(seen) == {(product, product == "tf32")}
    assert MATMUL.allow_tf32 is allowed_before


def test_manual_attention_is_measured_without_tf32(bench, plugin, allowed_before):
    status, _, _ = bench("--impl-from", plugin("assert not torch.backends.cuda.matmul.allow_tf32"), "--impl", "mine")

    assert status == 0
    assert MATMUL.allow_tf32 is allowed_before


def test_a_first_call_is_not_timed(bench, plugin):
    file = plugin("import time; len(CALLS) > 1 or time.sleep(1.1)")
    _, text, found = bench("--impl-from", file, "--impl", "mine", "--full", "--pass", "forward")

    assert found["results"][0]["ms_p80"] < 1000
    assert "(1 s of it first calls, which compile and are not timed)" in text


def test_a_log_says_once_that_something_may_compile(tmp_path):
    file = io.StringIO()
    console, report = Console(file=file), Report(tmp_path, {"device": "cuda"})
    few = cells.cases(["float32"], [cells.Size(1, 2, 3, 4), cells.Size(1, 2, 5, 4)], [True])
    part = Part([entry("cuda_fa1", "cuda"), entry("torch_math", "cuda")], few, [])
    with Progress(console=console) as progress:
        tell = _teller([part], cells.PASSES, report, progress, console)
        for case in few:
            for name in ("torch_math", "cuda_fa1"):
                tell(case, "forward", name)
    lines = [line.strip() for line in file.getvalue().splitlines() if "first call" in line or " of 2 " in line]

    assert lines == [f"1 of 2  {few[0]}", "first call of cuda_fa1, which may compile", f"2 of 2  {few[1]}"]


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
    words = " ".join(text.split())
    assert "float32: ms, GFLOP/s, share of the " in words and "1x2x16x8" in words
    assert "This is the CPU" in text and "GFLOP/s" in text and "torch_sdpa_flash_cpu" in text
    for cell in found["results"]:
        if cell["verdict"] == "timed":
            rate, share = number(1e3 * cell["tflops"]), f"{cell['share']:.0%}"
            assert " ".join([number(cell["ms"]), "ms", rate, share, f"{cell['ratio']:.2f}x"]) in words
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

FOUR = "should be batch x nheads x seqlen x headdim, four whole numbers, such as 8x12x1024x64"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dtype", "bf16,int8"], "argument --dtype: 'int8' should be one of float32, float16, bfloat16"),
        (["--size", "8x12x1024"], f"argument --size: '8x12x1024' {FOUR}"),
        (["--size", "8x12x1024x64,8x0x1024x64"], f"argument --size: '8x0x1024x64' {FOUR}"),
        (["--size", ""], f"argument --size: '' {FOUR}"),
        (["--size", "1x2x3x4", "--headdim", "64"], "--size with --headdim: should be one of them"),
        (["--size", "1x2x3x4", "--seqlen", "64"], "--size with --seqlen: should be one of them"),
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
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "Without options, on a GPU, two grids" in text and "bfloat16 and float16 torch_math, torch_sdpa_flash" in text
    )
    assert "With --size: in float32, by the implementations of the second grid" in text
    single = cells.GRIDS["cuda"][1]
    assert f"float32 {', '.join(single.impls)}; --size {','.join(map(str, single.sizes))}," in text


def test_numbers_have_three_digits():
    assert [number(x) for x in (0.12345, 1.2, 12.34, 99.96, 123.4, 1234.5)] == [
        "0.123", "1.20", "12.3", "100", "123", "1234"]  # fmt: skip
