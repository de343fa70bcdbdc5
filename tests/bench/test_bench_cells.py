"""The cells of the benchmark: their FLOPs, the grids, and the implementations of each grid."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from flash_attest.bench import cells
from flash_attest.bench.cells import flops, visible_pairs
from flash_attest.bench.run import Bench, Workload
from flash_attest.impls import Absent, Implementation, Precision, Supports
from flash_attest.impls.contract.entry import Entry, Unloadable
from flash_attest.impls.contract.registry import ours
from flash_attest.impls.torch_math import IMPL as MANUAL
from flash_attest.oracle import Mask
from flash_attest.properties.cases.case import Case

# --- FLOPs and products ---------------------------------------------------------------------------


@pytest.mark.parametrize("seqlen", [1, 2, 7, 64, 129])
@pytest.mark.parametrize("causal", [False, True])
def test_visible_pairs_are_those_of_the_mask(seqlen, causal):
    assert visible_pairs(seqlen, causal) == int(Mask(causal).visible(seqlen, seqlen).sum())


@pytest.mark.parametrize("causal", [False, True])
def test_flops_are_two_products_of_every_visible_pair(causal):
    case = Case(batch=2, seqlen_q=9, seqlen_k=9, nheads=3, nheads_k=3, headdim=5, causal=causal)
    pairs = sum(1 for i in range(9) for j in range(9) if j <= i or not causal)

    want = 2 * 3 * pairs * (2 * 5 + 2 * 5)  # per head: a multiplication and an addition each, in q k and in P v

    assert flops(case, "forward") == want
    assert flops(case, "backward") == 2.5 * want


def test_flops_are_those_of_the_paper():
    """Section 4.1 of the FlashAttention-2 paper counts 4 * seqlen^2 * headdim * nheads per batch,
    with 16k tokens and width 2048.
    """
    (case,) = cells.cases(["bfloat16"], cells.curves("cuda", [128], [4096]), [False])

    assert (case.batch, case.nheads) == (4, 16)
    assert flops(case, "forward") == 4 * 4096**2 * 128 * 16 * 4


def test_every_length_has_the_same_tokens_on_a_gpu():
    grid = cells.GRIDS["cuda"][0]
    drawn = cells.cases(grid.dtypes, grid.sizes, [False, True])

    assert len(drawn) == 2 * 2 * 2 * 6
    assert {case.batch * case.seqlen_q for case in drawn} == {16384}
    assert {case.nheads * case.headdim for case in drawn} == {2048}


def test_manual_attention_says_how_much_memory_it_needs(monkeypatch):
    monkeypatch.setattr(cells, "memory", lambda device: 80 * 2**30)
    (case,) = cells.cases(["bfloat16"], cells.curves("cuda", [64], [16384]), [True])

    assert cells.too_large(MANUAL, case, "forward", "cuda") == "needs 106 GiB, there are 80"
    assert cells.too_large(MANUAL, case.but(batch=1, nheads=1), "forward", "cuda") is None


def test_only_declared_tf32_counts_as_tf32():
    tf32 = replace(MANUAL, precision=Precision(multiply="tf32"))

    assert cells.product_of(tf32, torch.float32, "cuda") == "tf32"
    assert cells.product_of(tf32, torch.float16, "cuda") == "float16"
    assert cells.product_of(tf32, torch.float32, "cpu") == cells.product_of(MANUAL, torch.float32, "cuda") == "float32"


# --- implementations ------------------------------------------------------------------------------

ANY = Supports(dtypes={torch.float32, torch.float16, torch.bfloat16}, headdims=range(1, 257), causal="optional")


def entry(name, *devices, supports=ANY, file="mine.py", **declared):
    impl = Implementation(name=name, forward=lambda q, k, v: q, devices=set(devices), supports=supports, **declared)
    return Entry(impl, file)


def in_triton(name, *devices, **declared):
    return entry(name, *devices, file=cells.TRITON, **declared)


def names_of(grid, known, device):
    return {entry.name for entry in grid.entries(known, device)}


def test_new_triton_kernels_take_part_by_their_package():
    """A kernel takes part because of its package, not because of its name."""
    others = [entry("cuda_fa9", "cuda", file=cells.CUDA), entry("numba_fa9", "cuda", file=cells.NUMBA)]
    others += [entry("triton_mine", "cuda")]
    known = [in_triton("triton_fa3", "cuda", "cpu"), *others, *ours()]
    half, _ = cells.GRIDS["cuda"]
    on_gpu, on_cpu = names_of(half, known, "cuda"), names_of(cells.GRIDS["cpu"][0], known, "cpu")

    assert on_gpu >= {"torch_math", "torch_sdpa_flash", "torch_sdpa_cudnn", "triton_fa3"}
    assert on_gpu.isdisjoint({"numba_fa9", "triton_mine", "cuda_fa9", "torch_flex", "python_tiled"})
    assert on_cpu >= {"torch_math", "torch_sdpa_flash_cpu", "python_tiled"}
    assert on_cpu.isdisjoint(e.name for e in known if e.file in cells.GPU_KERNELS)


def test_kernels_without_matrix_units_are_measured_in_float32():
    mine = [entry(name, "cuda", file=cells.CUDA) for name in ("cuda_fa1", "cuda_fa2", "cuda_fa2_top_left")]
    mine += [entry(name, "cuda", file=cells.NUMBA) for name in ("numba_fa1", "numba_fa2", "numba_fa2_top_left")]
    mine += [in_triton(name, "cuda") for name in ("triton_fa2", "triton_fa3")]
    known = [e for e in ours() if e.file not in cells.GPU_KERNELS] + mine
    half, single = (names_of(grid, known, "cuda") for grid in cells.GRIDS["cuda"])

    ours_ = {"triton_fa2", "cuda_fa1", "cuda_fa2", "numba_fa1", "numba_fa2"}
    assert single == {"torch_math", "torch_sdpa_efficient_float32"} | ours_
    assert half == {"torch_math", "torch_sdpa_flash", "torch_sdpa_cudnn", "triton_fa2", "triton_fa3"}


def test_an_implementation_that_cannot_be_loaded_stays_in_the_grid():
    broken = Entry(Unloadable("triton", "no compiler"), "triton")
    assert cells.GRIDS["cuda"][0].entries([broken], "cuda") == [broken]


def test_an_implementation_that_cannot_do_the_whole_grid_has_no_column():
    """Examples are a variant that supports only float32, and an implementation that is not
    installed.
    """
    narrow = in_triton("triton_tf32", "cuda", supports=replace(ANY, dtypes={torch.float32}))
    known = [in_triton("triton_fast", "cuda"), narrow, Entry(Absent("triton_gone", "not installed"), cells.TRITON)]
    assert names_of(cells.GRIDS["cuda"][0], known, "cuda") == {"triton_fast"}


def test_only_dense_calls_have_a_column():
    packed = in_triton("triton_packed", "cuda", supports=replace(ANY, form="varlen"))
    known = [in_triton("triton_fast", "cuda"), packed]
    assert names_of(cells.GRIDS["cuda"][0], known, "cuda") == {"triton_fast"}


def test_a_named_implementation_of_another_form_is_refused():
    named = entry("packed", "cpu", supports=replace(ANY, form="varlen"))
    workload = Workload(Case(headdim=64, dtype=torch.float32), "cpu", seed=0, backward=False)
    cell = Bench(None, "cpu", 0.0).fill(named, workload, "forward")
    assert cell["verdict"] == cells.REFUSED and "form is 'varlen': see bench/varlen.py" in cell["reason"]


def test_a_named_implementation_that_cannot_be_timed_has_a_reason():
    absent = Entry(Absent("triton_fa2", "not installed"), "")
    known = [entry("cuda_fa1", "cpu", unavailable={"cuda": "no nvcc found"}), entry("cuda_fa2", "cpu"), absent]
    assert cells.GRIDS["cuda"][1].left_out([entry("torch_math", "cuda"), *known], "cuda") == [
        "cuda_fa1: no nvcc found",
        "cuda_fa2: it does not run on cuda",
        "triton_fa2: not installed",
    ]


def test_only_dense_calls_are_timed():
    """Implementations of another form are in no grid; bench/decode.py measures them."""
    paging = replace(
        MANUAL.supports, form="paged", page_sizes=(16,), bias="none", bias_grad=False, sink_grad=False, lse_grad=False
    )
    paged = replace(MANUAL, backward=None, supports=paging)
    (case,) = cells.cases(["float32"], cells.curves("cpu", [64], [128]), [False])
    assert cells.refusal(MANUAL, case, "forward") is None
    assert "only dense calls are timed" in cells.refusal(paged, case, "forward")
    grid = replace(cells.GRIDS["cpu"][0], impls=None)
    entries = [Entry(impl, "file") for impl in (MANUAL, paged)]
    assert grid.entries(entries, "cpu") == entries[:1]
