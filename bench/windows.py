"""Times causal attention in a window, forward and backward, beside causal attention to all keys.

    python -m flash_attest.bench.windows

On a GPU, implementations that take windows. The ratio says which part of the time a window leaves:
a kernel that skips hidden tiles needs about window / (seqlen / 2) of it. flex_attention gets a
BlockMask, as its users give it; our `torch_flex` has none and computes all scores. As in the rest
of the benchmark, results are compared with float32 attention before they are timed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from flash_attest.bench import timing
from flash_attest.bench.cells import SECONDS
from flash_attest.bench.lines import Line, printed
from flash_attest.bench.sanity import NAMES, make_inputs, mistake, reference
from flash_attest.impls.contract import registry
from flash_attest.impls.contract.call import run
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.supports import Supports
from flash_attest.impls.contract.tensors import Inputs, to_layout
from flash_attest.impls.torch_flex import bounds_of
from flash_attest.properties.cases.case import Case, Window

SEQLENS, TOKENS = (4096, 16384), 16384
NHEADS, HEADDIM = 16, 64
KEYS = 256  # that a query sees: itself and those before it
IMPLS = ("triton_fa2",)


def case_of(seqlen: int, tokens: int = TOKENS) -> Case:
    """Return the case of a length."""
    return Case(
        batch=tokens // seqlen, seqlen_q=seqlen, seqlen_k=seqlen, nheads=NHEADS, nheads_k=NHEADS, headdim=HEADDIM,
        dtype=torch.bfloat16, causal=True,
    )  # fmt: skip


@functools.cache
def blocks_of(seqlen: int, causal: bool, window: Window | None, device: torch.device) -> BlockMask:
    """Return the tiles with visible keys, of as many queries as keys."""
    first, last = bounds_of(window, causal, seqlen, seqlen)
    return create_block_mask(
        lambda b, h, i, j: (i + first <= j) & (j <= i + last), None, None, seqlen, seqlen, device=device
    )


@functools.cache
def compiled_flex() -> Callable:
    """Return flex_attention, compiled. torch.compile imports the compiler, which takes seconds."""
    return torch.compile(flex_attention, fullgraph=True)


def by_blocks(q, k, v, *, causal=False, window=None):
    """(b, h, s, d), (b, h, s, d), (b, h, s, d) -> out (b, h, s, d)."""
    return compiled_flex()(q, k, v, block_mask=blocks_of(q.shape[2], causal, window, q.device))


BY_BLOCKS = Implementation(
    name="flex_blocks",
    forward=by_blocks,
    backward="autograd",
    layout="bhsd",
    supports=Supports(causal="optional", window={"left", "right", "both"}),
)


def measured(impl: Implementation, x: Inputs, window: Window | None, device: str, seconds: float) -> list[float] | Line:
    """Return the milliseconds of the forward and of the backward, or why there are none."""
    given = Inputs(**{name: to_layout(impl, tensor).clone() for name, tensor in x.items()})
    got = run(impl, given, causal=True, window=window, backward=True)
    if reason := mistake(got, reference(x, True, True, window), NAMES):
        return Line.of_mistake(reason)
    calls = (call(impl, given, True, window=window) for call in (timing.forward_call, timing.backward_call))
    return [timing.measure(call, device, seconds).ms for call in calls]


def lines(impl: Implementation, case: Case, keys: int, device: str, seconds: float) -> Iterator[Line]:
    """Yield a line with the times for all keys, and one for those in the window."""
    x, first = make_inputs(case, device, seed=0), None
    for what, window in (("all keys", None), (f"{keys} keys", (keys - 1, None))):
        times = measured(impl, x, window, device, seconds)
        if isinstance(times, Line):
            yield times._replace(text=f"{what:9}  {times.text}")
            continue
        first = first or times
        of_all = (f"{ms:8.3f} ms {ms / all_:5.2f}" for ms, all_ in zip(times, first, strict=True))
        yield Line("  ".join([f"{what:9}", *map(" ".join, zip(("forward", "backward"), of_all, strict=True))]))


def all_lines() -> Iterator[Line]:
    """Measure every implementation at each length, and yield a line for each time."""
    for seqlen in SEQLENS:
        for impl in (*(entry.impl for entry in registry.ours(IMPLS) if entry.name in IMPLS), BY_BLOCKS):
            for line in lines(impl, case_of(seqlen), KEYS, "cuda", SECONDS["cuda"]):
                yield line._replace(text=f"seqlen {seqlen:6}  {impl.name:12} {line.text}")


def main() -> int:
    """Print the lines. Returns the exit status."""
    title = f"bfloat16, {NHEADS} heads, headdim {HEADDIM}, causal, {TOKENS} tokens"
    return printed(
        "windows", f"{title}\nthe last number of each pass: its time over the time for all keys", all_lines()
    )


if __name__ == "__main__":
    sys.exit(main())
