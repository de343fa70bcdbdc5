"""The benchmark's options choose sizes, dtypes and implementations; wrong values are rejected."""

from __future__ import annotations

import pytest

from flash_attest.bench import cells
from flash_attest.bench.options import parsed, parser_of_options
from flash_attest.bench.plan import plan
from flash_attest.bench.sizes import DTYPES, Size
from flash_attest.command.bench import run
from flash_attest.properties.cases.case import DTYPES as OF_CASES
from flash_attest.properties.cases.case import text_of

pytestmark = pytest.mark.usefixtures("gpus_stay")

# --- sizes ----------------------------------------------------------------------------------------


def asked(device, **options):
    """Return {dtypes: sizes} of each grid that takes part, with sizes written as for --size."""
    return {dtypes: [str(size) for size in sizes] for _, dtypes, sizes in cells.grids(device, **options)}


def test_a_gpu_has_two_grids():
    sizes = asked("cuda")

    assert list(sizes) == [("bfloat16", "float16"), ("float32",)]
    assert "4x16x4096x128" in sizes["bfloat16", "float16"] and len(sizes["bfloat16", "float16"]) == 12
    assert sizes["float32",] == ["16x12x64x64", "8x12x1024x64"]


@pytest.mark.parametrize(
    ("options", "want"),
    [
        (dict(dtypes=("float32",)), {("float32",): ["16x12x64x64", "8x12x1024x64"]}),
        (dict(sizes=(Size(1, 2, 3, 4),)), {("float32",): ["1x2x3x4"]}),
        (dict(sizes=(Size(1, 2, 3, 4),), dtypes=("float16",)), {("float16",): ["1x2x3x4"]}),
        (dict(headdims=(128,), seqlens=(512,)), {("bfloat16", "float16"): ["32x16x512x128"]}),
        (dict(headdims=(128,), seqlens=(512,), dtypes=("float32",)), {("float32",): ["32x16x512x128"]}),
    ],
)
def test_options_choose_among_the_grids(options, want):
    assert asked("cuda", **options) == want


def test_a_dtype_is_measured_by_the_implementations_of_its_grid():
    half, single = cells.GRIDS["cuda"]
    sizes = (Size(1, 2, 3, 4),)

    assert cells.grids("cuda", sizes=sizes) == [(single, ("float32",), sizes)]
    assert cells.grids("cuda", ("float16", "float32"), sizes) == [
        (half, ("float16",), sizes),
        (single, ("float32",), sizes),
    ]


def test_sizes_may_differ_in_batch_only(bench, tmp_path):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "bench.png").write_text("of an earlier run")
    status, text, report = bench("--impl", "torch_math,torch_sdpa_flash_cpu", "--size", "2x3x16x8,1x3x16x8", sized=True)
    rows = [line.split() for line in text.splitlines() if "x3x16x8" in line and " ms " in line]

    assert status == 0
    assert {cell["dtype"] for cell in report["results"]} == {"float32"}
    assert {(cell["batch"], cell["nheads"], cell["seqlen"]) for cell in report["results"]} == {(2, 3, 16), (1, 3, 16)}
    assert [cell["ratio"] for cell in report["results"] if cell["impl"] == cell["baseline"]] == [1] * 8
    assert len(rows) == 8 and rows[0][:3] == ["forward", "full", "1x3x16x8"] and rows[1][0] == "2x3x16x8"
    assert "size is batch x nheads x seqlen x headdim" in text
    assert not (tmp_path / "report" / "bench.png").exists() and "bench.png" not in text  # two sizes do not form a curve


def on_a_gpu(*options):
    """Return (dtypes, names of implementations) of each grid that would be measured on a GPU."""
    options = parser_of_options().parse_args(options)
    options.device = "cuda"
    return [({text_of(c.dtype) for c in p.cases}, {e.name for e in p.entries}) for p in plan(options)]


def test_without_dtype_option_refused_dtypes_are_left_out(benched):
    half, single = {"bfloat16", "float16"}, {"float32"}
    both = on_a_gpu("--impl", "torch_math,torch_sdpa_flash")

    assert both == [(half, {"torch_math", "torch_sdpa_flash"}), (single, {"torch_math"})]
    assert on_a_gpu("--impl", "torch_sdpa_flash") == [(half, {"torch_sdpa_flash"})]
    assert on_a_gpu("--impl", "torch_sdpa_flash", "--dtype", "fp32") == [(single, {"torch_sdpa_flash"})]
    assert [("mine" in names) for _, names in on_a_gpu("--impl-from", str(benched()))] == [False, True]


def test_an_option_that_is_given_again_adds_to_the_earlier_use():
    again = [f"--{option}={value}" for option, value in (
        ("dtype", "bf16"), ("dtype", "fp32"), ("seqlen", "8"), ("seqlen", "9,8,10"), ("pass", "forward"),
        ("pass", "backward"),
    )]  # fmt: skip
    _, options = parsed(again)
    assert [*options.dtype] == ["bfloat16", "float32"]
    assert [*options.seqlen] == [8, 9, 10] and [*options.passes] == ["forward", "backward"]


def test_dtypes_are_those_of_cases():
    assert tuple(OF_CASES) == DTYPES  # the parser has a copy, because it does not import torch


# --- wrong values ---------------------------------------------------------------------------------

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
        run(["--device", "cpu", *options])

    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_missing_device_is_an_error_that_names_what_is_missing(benched, capsys):
    file = benched()
    declared = 'IMPL = Implementation(name="mine", devices={"cuda"}, unavailable={"cpu": "no g++ found"},'
    file.write_text(file.read_text().replace('IMPL = Implementation(name="mine",', declared))
    with pytest.raises(SystemExit):
        run(["--device", "cpu", "--impl-from", str(file)])
    message = "mine runs on cuda only: should run on cpu (--device), but no g++ found"
    assert message in " ".join(capsys.readouterr().err.split())


def test_help_says_what_happens_without_options(capsys):
    with pytest.raises(SystemExit) as stopped:
        run(["--help"])

    assert stopped.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "Without options, on a GPU, two grids" in text and "bfloat16 and float16 torch_math, torch_sdpa_flash" in text
    )
    assert "With --size: float32, by the implementations of the second grid" in text
    single = cells.GRIDS["cuda"][1]
    assert f"float32 {', '.join(single.impls)}; --size {','.join(map(str, single.sizes))}," in text
