"""The peers: the tests of FlashAttention and PyTorch, allclose, and KernelBench. The code is ours.

The shapes on a CPU, and for emulated kernels, are smaller than theirs; `Peer.reduced` says how. Not
every product of parameters is tried: each length occurs with every mask and bias, and dtypes, head
dims and heads take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import cycle, product

import torch

from flash_attest.impls import Implementation
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.mutants.power.peers import Draw, Peer, Size, Try
from flash_attest.mutants.power.references import differentiated, math_kernel, written_out
from flash_attest.properties.cases.case import Case

HALVES = (torch.float16, torch.bfloat16)
CAUSAL = (False, True)
Lengths = tuple[int, int]  # of queries, of keys


def dtypes(impl: Implementation, *preferred: torch.dtype) -> list[torch.dtype]:
    """Return the suite's own dtypes that are supported, or float32 if none is."""
    return [d for d in preferred if d in impl.supports.dtypes] or [torch.float32]


def turns(impl: Implementation, headdims: tuple[int, ...]) -> Iterator[int]:
    """Yield the supported ones of these head dims again and again, or the smallest supported one.

    Those beyond the largest supported one are halved until they fit. An edited CUDA kernel is
    compiled for 32 at most, so 59 becomes 29, and odd head dims are tried on it, too.
    """
    supported = impl.supports.headdim_list
    fitting = [next(d >> n for n in range(d) if d >> n <= supported[-1]) for d in headdims]
    return cycle([d for d in fitting if d in supported] or supported[:1])


def in_halves(impl: Implementation, size: Size, lengths: Iterable[Lengths]) -> Iterator[tuple[Lengths, torch.dtype]]:
    """Yield these lengths, each with a half dtype in turn. Emulated kernels get the first one."""
    halves = dtypes(impl, *HALVES)
    return zip(lengths, cycle(halves[:1] if size is Size.SMALLEST else halves), strict=False)


def inputs_of(case: Case, draw: Draw, kind: str, bias: torch.Tensor | None = None) -> Inputs:
    """Draw contiguous q, k, v and dout, in the dtype of the case. kind: a method of Draw."""
    q = (case.batch, case.seqlen_q, case.nheads, case.headdim)
    k = (case.batch, case.seqlen_k, case.nheads_k, case.headdim)
    drawn = [getattr(draw, kind)(*shape).to(case.dtype) for shape in (q, k, k, q)]
    return Inputs(*drawn, bias=bias)


def largest_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Return max |got - want|, or NaN if there is one."""
    return (got - want).abs().max().item()


def close(names: tuple[str, ...], got: Outputs, want: Outputs, atol: float, rtol: float) -> bool:
    """Return whether each of these outputs that came back is allclose. NaN is close to nothing."""
    pairs = [(getattr(got, name), getattr(want, name)) for name in names]
    return all(g is None or torch.allclose(g.float(), w.float(), atol=atol, rtol=rtol) for g, w in pairs)


# --- FlashAttention -------------------------------------------------------------------------------

FLASH_LENGTHS = (
    (113, 203), (128, 217), (108, 256), (512, 256), (1, 239), (3, 799), (127, 513),
    (113, 211), (256, 512), (127, 512), (1024, 1024), (1023, 1024), (1024, 1023), (2048, 2048),
)  # fmt: skip
ON_A_CPU = FLASH_LENGTHS[:7]
FLASH_SIZES = {  # batch (2, as with 1 nobody sees whose batch a tensor is of), heads, lengths, head dims
    Size.WHOLE: (2, 6, FLASH_LENGTHS, (32, 64, 59, 128, 96)),
    Size.REDUCED: (2, 4, ON_A_CPU, (32, 64, 59, 128, 96)),
    Size.SMALLEST: (2, 4, ((113, 203), (1, 239)), (32, 59)),
}


def flash_attention(impl: Implementation, size: Size) -> Iterator[Try]:
    """tests/test_flash_attn.py of Dao-AILab/flash-attention (test_flash_attn_output,
    test_flash_attn_causal): inputs randn in float16 and bfloat16; causal and not; MHA, MQA, GQA;
    with and without ALiBi. The largest error of out, dq, dk and dv against attention in float32,
    rounded to the dtype, is at most twice the error of PyTorch operations in the same dtype, plus
    1e-5 (as in test_flash_attn_causal; the other test allows three times for gradients). dbias and
    lse are not compared."""
    batch, nheads, lengths, headdims = FLASH_SIZES[size]
    headdims, grouped = turns(impl, headdims), cycle((nheads, 1, max(1, nheads // 2)))
    for ((seqlen_q, seqlen_k), dtype), causal in product(in_halves(impl, size, lengths), CAUSAL):
        nheads_k = next(grouped) if impl.supports.gqa else nheads
        plain = Case(batch, seqlen_q, seqlen_k, nheads, nheads_k, next(headdims), dtype, causal)
        alibi = plain.but(bias="matrix", bias_batch=batch, bias_nheads=nheads, bias_mask="alibi")
        for case in (plain, alibi):
            yield Try(case, partial(_with_alibi, case), partial(_at_most_twice_pytorch, case))


def _with_alibi(case: Case, draw: Draw) -> Inputs:
    """Slopes are U[0, 0.3) for each batch and head."""
    if case.bias is None:
        return inputs_of(case, draw, "normal")
    slopes = 0.3 * draw.uniform(case.batch, case.nheads, 1, 1)
    i = torch.arange(case.seqlen_q, device=draw.device)[:, None] + case.seqlen_k - case.seqlen_q
    j = torch.arange(case.seqlen_k, device=draw.device)
    return inputs_of(case, draw, "normal", bias=-slopes * (i - j).abs())


def _at_most_twice_pytorch(case: Case, impl: Implementation, x: Inputs, got: Outputs) -> bool:
    want = differentiated(written_out(impl, case, upcast=True), x)
    torchs = differentiated(written_out(impl, case, upcast=False), x)
    names = [name for name in ("out", "dq", "dk", "dv") if getattr(got, name) is not None]
    triples = [(getattr(got, name), getattr(want, name), getattr(torchs, name)) for name in names]
    return all(largest_error(g, w) <= 2 * largest_error(t, w) + 1e-5 for g, w, t in triples)


# --- PyTorch --------------------------------------------------------------------------------------

FUDGE = dict(out=4, dq=180, dk=16, dv=4)
FUDGE_WITH_MASK = dict(out=4, dq=160, dk=25, dv=8, dbias=45)
# Fixed tolerances, (atol, rtol).
FIXED = {torch.float32: (1e-5, 5e-6), torch.float16: (1e-2, 1e-2), torch.bfloat16: (5e-2, 5e-2)}
TORCH_SIZES = {  # batch, lengths of queries, of keys, head dims, heads with GQA; lengths with fixed tolerances
    Size.WHOLE: (2, (4, 143, 2048), (4, 127, 579, 2048), (8, 59, 64), (16, 8), ()),
    Size.REDUCED: (2, (4, 143, 256), (4, 127, 256), (8, 203, 64, 256, 16), (4, 2), (267,)),
    Size.SMALLEST: (2, (4, 143), (4, 127), (8, 59), (4, 2), (130,)),
}


def pytorch(impl: Implementation, size: Size) -> Iterator[Try]:
    """test/test_transformers.py of pytorch/pytorch. test_flash_attention_vs_math_ref_grads and its
    like with a mask: inputs, mask and dout U[0, 1); causal where seqlen_q = seqlen_k; scale None or
    1 / headdim; 4 heads, or 16 and 8 with GQA. The largest error against the math kernel in higher
    precision is at most 1e-5, or the error of the math kernel in the same dtype times 4 (out), 180
    (dq), 16 (dk), 4 (dv); with a mask 4, 160, 25, 8, and 45 (dbias). On a CPU also
    test_scaled_dot_product_fused_attention_vs_math_cpu: q, k, v packed, randn, dout = 1; atol and
    rtol 1e-5 and 5e-6 in float32, 1e-2 in float16, 5e-2 in bfloat16."""
    batch, lengths_q, lengths_k, headdims, grouped, fixed_lengths = TORCH_SIZES[size]
    headdims, scaled = turns(impl, headdims), cycle((False, True))
    for (seqlen_q, seqlen_k), dtype in in_halves(impl, size, product(lengths_q, lengths_k)):
        headdim = next(headdims)
        scale = 1 / headdim if next(scaled) and impl.supports.softmax_scale else None
        plain = Case(batch, seqlen_q, seqlen_k, 4, 4, headdim, dtype, softmax_scale=scale)
        cases = [
            plain,
            plain.but(bias="matrix", bias_batch=batch, bias_nheads=4, bias_dtype=dtype),
            plain.but(nheads=grouped[0], nheads_k=grouped[1]),
        ]
        for case in cases + [plain.but(causal=True)] * (seqlen_q == seqlen_k):
            yield Try(case, partial(_uniform, case), partial(_within_fudge, case))
    for seqlen, headdim, dtype, causal in product(fixed_lengths, (8, 16), dtypes(impl, *FIXED), CAUSAL):
        layout = "packed" if impl.supports.strides else "contiguous"
        case = Case(2, seqlen, seqlen, 3, 3, headdim, dtype, causal, layout=layout)
        yield Try(case, partial(_packed_with_ones, case), partial(_within_fixed, case))


def _uniform(case: Case, draw: Draw) -> Inputs:
    bias = None
    if case.bias:
        bias = draw.uniform(*case.bias_shape).to(case.dtype)
    return inputs_of(case, draw, "uniform", bias)


def _within_fudge(case: Case, impl: Implementation, x: Inputs, got: Outputs) -> bool:
    higher = torch.float64 if case.dtype == torch.float32 else torch.float32
    attention = math_kernel(case)
    want, lower = differentiated(attention, x, higher), differentiated(attention, x)

    def fits(name: str, factor: float) -> bool:
        g, w, low = (getattr(outputs, name) for outputs in (got, want, lower))
        return g is None or largest_error(g, w) <= max(1e-5, factor * largest_error(low, w))

    return all(fits(name, factor) for name, factor in (FUDGE_WITH_MASK if case.bias else FUDGE).items())


def _packed_with_ones(case: Case, draw: Draw) -> Inputs:
    """q, k and v are thirds of one projection; the loss is out.sum()."""
    x = draw.normal(case.batch, case.seqlen_q, 3, case.nheads, case.headdim).to(case.dtype)
    q, k, v = x.unbind(2)
    return Inputs(q, k, v, torch.ones_like(q).contiguous())


def _within_fixed(case: Case, impl: Implementation, x: Inputs, got: Outputs) -> bool:
    want = differentiated(math_kernel(case), x, torch.float32)
    return close(("out", "dq", "dk", "dv"), got, want, *FIXED[case.dtype])


# --- allclose, KernelBench ------------------------------------------------------------------------

ALLCLOSE_SHAPES = {  # batch, heads, seqlen, head dim
    Size.WHOLE: ((2, 4, 128, 64), (1, 2, 1024, 64)),
    Size.REDUCED: ((2, 4, 128, 64), (1, 2, 512, 64)),
    Size.SMALLEST: ((1, 2, 128, 64),),
}
KERNEL_BENCH_SHAPE = {Size.WHOLE: (2, 4, 512), Size.REDUCED: (1, 2, 256), Size.SMALLEST: (1, 1, 128)}
KERNEL_BENCH_HEADDIM = {Size.WHOLE: 128, Size.REDUCED: 64, Size.SMALLEST: 64}
TRIALS = 5


def allclose(impl: Implementation, size: Size) -> Iterator[Try]:
    """Tests of many kernels check this, such as Triton's tutorial 06-fused-attention (atol=1e-2):
    out, dq, dk and dv are allclose to PyTorch's at atol = rtol = 1e-2; inputs randn, in float16 or
    else the first dtype that is supported, causal and not, at one or two lengths that are powers of
    two."""
    dtype = dtypes(impl, torch.float16, torch.bfloat16)[0]
    for batch, nheads, seqlen, headdim in ALLCLOSE_SHAPES[size]:
        for causal in CAUSAL:
            case = Case(batch, seqlen, seqlen, nheads, nheads, _power_of_two(impl, headdim), dtype, causal)
            yield Try(case, partial(inputs_of, case, kind="normal"), partial(_within, 1e-2, case))


def kernel_bench(tolerance: float, impl: Implementation, size: Size) -> Iterator[Try]:
    """src/kernelbench/eval.py and problem 97 of level 1 of ScalingIntelligence/KernelBench: five
    inputs by torch.rand at one shape, not causal, out alone, torch.allclose with this atol and
    rtol. float32 is compared at 1e-4, in early versions at 1e-2; float16 and bfloat16 are compared
    at 1e-2."""
    half = torch.float32 not in impl.supports.dtypes
    if half and tolerance < 1e-2:
        return
    batch, nheads, seqlen = KERNEL_BENCH_SHAPE[size]
    headdim = _power_of_two(impl, KERNEL_BENCH_HEADDIM[size])
    for seed in range(TRIALS):
        causal = impl.supports.causal == "always"
        dtype = dtypes(impl, *HALVES)[0] if half else torch.float32
        case = Case(batch, seqlen, seqlen, nheads, nheads, headdim, dtype, causal, seed=seed)
        yield Try(case, partial(inputs_of, case, kind="uniform"), partial(_within, tolerance, case), backward=False)


def _within(tolerance: float, case: Case, impl: Implementation, x: Inputs, got: Outputs) -> bool:
    want = differentiated(math_kernel(case), x)
    return close(("out", "dq", "dk", "dv"), got, want, tolerance, tolerance)


def _power_of_two(impl: Implementation, most: int) -> int:
    """Return the largest supported head dim that is a power of two, at most `most`.

    If there is none, return the largest supported one.
    """
    powers = [2**n for n in range(11) if 2**n <= most and 2**n in impl.supports.headdims]
    return max(powers) if powers else impl.supports.headdim_list[-1]


PEERS = (
    Peer(
        "flash_attention",
        "FlashAttention",
        flash_attention,
        "Batch 2; dtypes, head dims (32, 59, 64, 96, 128 of 32 to 256) and heads take turns. On a CPU 4 heads, 7 of "
        "14 lengths, up to 799. Emulated: lengths (113, 203) and (1, 239), head dims 32, 59, float16",
    ),
    Peer(
        "pytorch",
        "PyTorch",
        pytorch,
        "Batch 2 of 1 and 8; dtypes, head dims (8, 59, 64 of 8, 203, 256) and scales take turns; on a GPU no float32, which "
        "takes long to compile. On a CPU length 256 in place of 579 and 2048, head dims 8 to 256, 2 key heads with GQA, "
        "fixed tolerances at 267. Emulated: lengths 4, 127, 143, head dims 8, 59, float16, fixed tolerances at 130",
    ),
    Peer("allclose", "allclose 1e-2", allclose, "On a CPU: 512 in place of 1024. Emulated: 128 alone"),
    *(
        Peer(
            f"kernel_bench_{tolerance:.0e}".replace("e-0", "e_"),
            f"KernelBench {tolerance:.0e}".replace("e-0", "e-"),
            partial(kernel_bench, tolerance),
            "In place of 32 x 32 x 512 x 1024: on a GPU 2 x 4 x 512 x 128; on a CPU 1 x 2 x 256 x 64; emulated "
            "1 x 1 x 128 x 64",
        )
        for tolerance in (1e-2, 1e-4)
    ),
)
