"""Times packed sequences of different lengths, forward and backward, under a causal mask.

    python -m flash_attest.bench.varlen

On a GPU, kernels that read packed sequences beside kernels that read the same ones padded to the
longest. Sequences of one length show what cu_seqlens cost. FLOP/s count visible pairs of real rows
only. As in the rest of the benchmark, results are compared with float32 attention before they are
timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from flash_attest.bench import timing
from flash_attest.bench.cells import SECONDS, visible_pairs
from flash_attest.bench.lines import Line, printed
from flash_attest.bench.sanity import NAMES, mistake
from flash_attest.impls.contract import registry
from flash_attest.impls.contract.tensors import Outputs

# About 16,384 tokens each, as in the grid: batches of one length, of a long tail, of one long
# sequence among short ones.
LENGTHS = {
    "equal": [2048] * 8,
    "long tail": [4096, 3072, 2048, 1536, 1024, 1024, 768, 512, 512, 384, 256, 256, 256, 192, 192, 128, 128],
    "one long": [8192] + [128] * 64,
}
NHEADS, HEADDIM = 16, 128
Call = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Batch:
    """Sequences one behind the other: q, k, v, dout (total, nheads, headdim), and their lengths."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor
    lengths: list[int]

    @property
    def packing(self) -> dict:
        """The keywords of the form varlen."""
        starts = torch.tensor([0, *self.lengths], device=self.q.device).cumsum(0).int()
        longest = max(self.lengths)
        return dict(cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=longest, max_seqlen_k=longest)

    def padded(self) -> Batch:
        """Return these sequences as (batch, longest, nheads, headdim), with zeros behind them."""
        tensors = (
            torch.nn.utils.rnn.pad_sequence(x.split(self.lengths), batch_first=True)
            for x in (self.q, self.k, self.v, self.dout)
        )
        return Batch(*tensors, self.lengths)

    def packed(self, x: torch.Tensor) -> torch.Tensor:
        """Return a padded result as (total, nheads, headdim)."""
        return torch.cat([one[:length] for one, length in zip(x, self.lengths, strict=True)])


def batch_of(lengths: list[int], nheads: int, headdim: int, dtype: torch.dtype, device: str) -> Batch:
    """Draw q, k, v and dout from the standard normal distribution."""
    generator = torch.Generator(device).manual_seed(0)
    size = sum(lengths), nheads, headdim
    return Batch(*(torch.randn(*size, generator=generator, device=device).to(dtype) for _ in range(4)), lengths)


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """(b, s, h, d) -> out. A causal mask hides padding keys from all real queries."""
    return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)


def reference(x: Batch) -> Outputs:
    """Return float32 attention and its gradients (1, total, h, d), a sequence at a time."""
    results = []
    for q, k, v, dout in zip(*(t.float().split(x.lengths) for t in (x.q, x.k, x.v, x.dout)), strict=True):
        leaves = [t[None].requires_grad_() for t in (q, k, v)]
        out = sdpa(*leaves)
        results.append([out.detach(), *torch.autograd.grad(out, leaves, dout[None])])
    return Outputs(**{name: torch.cat(parts, 1) for name, *parts in zip(NAMES, *results, strict=True)})


def differentiated(function: Call, x: Batch) -> tuple[Call, Callable]:
    """Return a call of a function of (q, k, v), and one of its backward alone, by autograd."""
    leaves = [t.detach().requires_grad_() for t in (x.q, x.k, x.v)]
    out = function(*leaves)
    return lambda: function(x.q, x.k, x.v), lambda: torch.autograd.grad(out, leaves, x.dout, retain_graph=True)


def of_ours(name: str, x: Batch, **options) -> tuple[Call, Callable]:
    """Return calls of the forward and the backward of one of our implementations."""
    impl = next(entry.impl for entry in registry.ours([name]) if entry.name == name)
    out, lse = impl.forward(x.q, x.k, x.v, causal=True, **options)
    return (
        lambda: impl.forward(x.q, x.k, x.v, causal=True, **options)[0],
        lambda: impl.backward(x.dout, x.q, x.k, x.v, out, lse, causal=True, **options),
    )


def by_torch(x: Batch) -> tuple[Call, Callable]:
    """Return calls of PyTorch's varlen_attn, which needs a GPU."""
    from torch.nn.attention.varlen import varlen_attn  # not in older releases

    starts, longest = x.packing["cu_seqlens_q"], max(x.lengths)
    return differentiated(
        lambda q, k, v: varlen_attn(q, k, v, starts, starts, longest, longest, window_size=(-1, 0)), x
    )


# name: (whether it gets padded sequences, calls of forward and backward)
WAYS = {
    "triton_fa2_varlen": (False, lambda x: of_ours("triton_fa2_varlen", x, **x.packing)),
    "torch varlen_attn": (False, by_torch),
    "triton_fa2, padded": (True, lambda x: of_ours("triton_fa2", x)),
    "torch sdpa, padded": (True, lambda x: differentiated(sdpa, x)),
}


def measured(name: str, x: Batch, device: str, seconds: float) -> Line:
    """Return the times of a forward and a backward in words, or why there are none."""
    pads, calls = WAYS[name]
    given = x.padded() if pads else x
    try:
        forward, backward = calls(given)
    except ImportError as error:
        return Line(f"not here: {error}")
    results = [t.detach() for t in (forward(), *backward())]
    got = Outputs(**dict(zip(NAMES, ((x.packed(t) if pads else t)[None] for t in results), strict=True)))
    if reason := mistake(got, reference(x), NAMES):
        return Line.of_mistake(reason)
    operations = 4 * x.q.shape[1] * x.q.shape[2] * sum(visible_pairs(length, True) for length in x.lengths)
    words = []
    for which, call, factor in (("forward", forward, 1.0), ("backward", backward, 2.5)):
        took = timing.measure(call, device, seconds)
        words.append(f"{which} {took.ms:8.3f} ms  {factor * operations / took.ms / 1e9:6.1f} TFLOP/s")
    return Line("   ".join(words))


def all_lines() -> Iterator[Line]:
    """Measure every batch in each way, and yield a line for each."""
    for words, lengths in LENGTHS.items():
        x = batch_of(lengths, NHEADS, HEADDIM, torch.bfloat16, "cuda")
        for name in WAYS:
            line = measured(name, x, "cuda", SECONDS["cuda"])
            yield line._replace(text=f"{words:10} {name:20} {line.text}")


def main() -> int:
    """Print the lines. Returns the exit status."""
    return printed("varlen", f"bfloat16, {NHEADS} heads, headdim {HEADDIM}, causal", all_lines())


if __name__ == "__main__":
    sys.exit(main())
