"""Calls the host functions of fa1.cu and fa2.cu on the CPU. Outputs and scratch are NaN before a
call.
"""

import contextlib
from collections.abc import Iterator

import torch

from flash_attest.emulator.cuda import load
from flash_attest.emulator.cuda.build import host
from flash_attest.impls.contract.arguments import Sizes
from flash_attest.impls.cuda.problem import integers
from flash_attest.impls.diagonals import diagonals
from tests.impls.cuda import values
from tests.places import ROOT

FOLDER = ROOT / "impls" / "cuda"
WHATS = ("forward", "backward", "bias_gradient", "refusal")


class Refusal(Exception):
    """A host function returned an error: `status`, a cudaError_t, and its message."""

    def __init__(self, status, words):
        super().__init__(words)
        self.status = status


@contextlib.contextmanager
def small_device(most: int) -> Iterator[None]:
    """Let a block have at most this many bytes of shared memory, as on a smaller device."""
    before = host().emulator_cuda_set_most_shared(most)
    try:
        yield
    finally:
        host().emulator_cuda_set_most_shared(before)


class Host:
    """The host functions of "fa1" or "fa2". options: options of `load`, such as defines.

    q, dout (b, sq, h, d), k, v (b, sk, hk, d), bias (b | 1, h | 1, 1 | sq, sk); causal is None or
    the alignment. Without causal a window is aligned at the bottom right.
    """

    def __init__(self, name, **options):
        self.name = name
        self.file = load(FOLDER / f"{name}.cu", *(f"{name}_{what}" for what in WHATS), **options)

    def call(self, what, *arguments):
        """Call fa1_forward, ... with all arguments except the stream. Raises Refusal."""
        if status := self.file[f"{self.name}_{what}"](*arguments, None):
            text = torch.zeros(512, dtype=torch.int8)
            length = self.file[f"{self.name}_refusal"](text, len(text))
            raise Refusal(status, bytes(text[:length].tolist()).decode())

    def forward(self, q, k, v, *, bias=None, causal=None, window=None, softmax_scale=None, softcap=None, out=None):
        """Return {"out", "lse"}, and for FlashAttention-1 also "l" and "m". out: a tensor to write
        to.
        """
        batch, seqlen_q, nheads, headdim = q.shape
        out = unwritten(*q.shape, dtype=q.dtype) if out is None else out
        lse, l, m = (unwritten(batch, nheads, seqlen_q) for _ in range(3))
        got, scratch = dict(out=out, lse=lse), ()
        if self.name == "fa1":  # sums is in float32, because a 16-bit out would round at each step
            sums = None if q.dtype == torch.float32 else unwritten(batch, nheads, seqlen_q, headdim)
            got, scratch = got | dict(l=l, m=m), (sums, l, m)
        n = integers(q, k, v, bias, mask_of(q, k, causal, window), out=out)
        self.call("forward", q, k, v, bias, out, *scratch, lse, n, scale_of(q, softmax_scale), softcap or 0.0)
        return got

    def backward(
        self, dout, q, k, v, out, lse, *, bias=None, causal=None, window=None, softmax_scale=None, softcap=None,
        splits=1, into=None,
    ):  # fmt: skip
        """Return {"dq", "dk", "dv"} and, with a bias, "dbias". into: dq, dk, dv to write to."""
        dq, dk, dv = into or (unwritten(*x.shape, dtype=x.dtype) for x in (q, k, v))
        delta, sums = unwritten(*lse.shape), unwritten(splits, *lse.shape, q.shape[-1])
        numbers = scale_of(q, softmax_scale), softcap or 0.0
        n = integers(q, k, v, bias, mask_of(q, k, causal, window), splits, out=out, dout=dout, dq=dq, dk=dk, dv=dv)
        self.call("backward", dout, q, k, v, bias, out, lse, delta, sums, dq, dk, dv, n, *numbers)
        if bias is None:
            return dict(dq=dq, dk=dk, dv=dv)
        dbias = unwritten(*bias.shape, dtype=bias.dtype)
        strides = torch.tensor(dbias.expand(*lse.shape, k.shape[1]).stride(), dtype=torch.int64)
        self.call("bias_gradient", dout, q, k, v, bias, lse, delta, dbias, n, strides, *numbers)
        return dict(dq=dq, dk=dk, dv=dv, dbias=dbias)

    def run(self, q, k, v, dout=None, splits=1, **options):
        """Return the results of forward and, with a dout, of backward.

        options: bias, causal, window, softmax_scale, softcap.
        """
        got = self.forward(q, k, v, **options)
        if dout is not None:
            got |= self.backward(dout, q, k, v, got["out"], got["lse"], splits=splits, **options)
        return got

    def check(self, q, k, v, dout=None, splits=1, **options):
        """Call `run`, check that every output is within the budget, and return the outputs."""
        got = self.run(q, k, v, dout, splits, **options)
        is_attention(got, q, k, v, dout, **options)
        return got


def is_attention(got, q, k, v, dout=None, *, bias=None, causal=None, **options):
    """Check that every output is within the budget, and that l and m agree with lse."""
    got = dict(got)
    if "l" in got:
        l, m = got.pop("l"), got.pop("m")
        assert torch.allclose(m + l.log(), got["lse"], rtol=1e-6, atol=1e-6), "m + log(l) should be lse"
    options |= dict(causal=causal is not None, alignment=causal or "bottom_right")
    values.is_attention(got, q, k, v, bias, dout, **options)


def unwritten(*shape, dtype=torch.float32):
    return torch.full(shape, torch.nan, dtype=dtype)


def mask_of(q, k, causal=None, window=None):
    (batch, seqlen_q, nheads, headdim), (seqlen_k, nheads_k) = q.shape, k.shape[1:3]
    sizes = Sizes(batch, seqlen_q, seqlen_k, nheads, nheads_k, headdim)
    return diagonals(sizes, causal is not None, window, causal or "bottom_right")


def scale_of(q, softmax_scale):
    return q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
