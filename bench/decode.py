"""Times decodes: one query for each sequence, over many keys.

    python -m flash_attest.bench.decode

On a GPU, the time of a decode from pages, in several numbers of splits, beside dense kernels on the
same keys in contiguous memory. A decode reads each key and value once and computes little, so the
figure beside the time is the rate at which it reads them. As in the rest of the benchmark, a result
is compared with float32 attention before it is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from flash_attest.bench import timing
from flash_attest.bench.cells import SECONDS
from flash_attest.bench.lines import Line, printed
from flash_attest.bench.sanity import mistake
from flash_attest.impls.contract import registry
from flash_attest.impls.contract.call import form_keywords, keywords, run
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import ONE_LAYOUT, Inputs, Outputs, to_layout
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.forms import packed

IMPLS = ("triton_paged_decode", "triton_fa2", "torch_sdpa_flash", "torch_sdpa_cudnn")
SPLITS = (1, 4, 16, 64)
# (batch, nheads, nheads_k, seqlen_k): one long sequence, a few, and a full server; 8 heads for each
# key head as in Llama 3 70B, and none shared.
SIZES = ((1, 64, 8, 65536), (8, 64, 8, 16384), (64, 64, 8, 4096), (8, 32, 32, 8192))
HEADDIM, PAGE_SIZE = 128, 16


def cases() -> Iterator[Case]:
    """Yield each size in each number of splits."""
    for batch, nheads, nheads_k, seqlen_k in SIZES:
        for splits in SPLITS:
            yield Case(
                batch=batch, seqlen_q=1, seqlen_k=seqlen_k, nheads=nheads, nheads_k=nheads_k, headdim=HEADDIM,
                dtype=torch.bfloat16, num_splits=splits, page_size=PAGE_SIZE, page_order="shuffled",
            )  # fmt: skip


def inputs_of(case: Case, device: str) -> Inputs:
    """Draw q, k, v (b, s, h, d) from the standard normal distribution. dout, as long as q, is 0."""
    generator = torch.Generator(device).manual_seed(case.seed)
    sizes = [(case.seqlen_q, case.nheads), (case.seqlen_k, case.nheads_k), (case.seqlen_k, case.nheads_k)]
    q, k, v = (
        torch.randn(case.batch, *size, case.headdim, generator=generator, device=device).to(case.dtype)
        for size in sizes
    )
    return Inputs(q, k, v, torch.zeros_like(q))


def reference(x: Inputs) -> Outputs:
    """Return float32 attention (b, s, h, d), a sequence at a time."""
    each = [
        F.scaled_dot_product_attention(*(t[None].float().transpose(1, 2) for t in one), enable_gqa=True).transpose(1, 2)
        for one in zip(x.q, x.k, x.v, strict=True)
    ]
    return Outputs(out=torch.cat(each))


def measured(impl: Implementation, case: Case, device: str, seconds: float) -> Line | None:
    """Return the time of a call in words, or why there is none.

    What only a form has is left out of a case for a dense kernel, which is measured once, and has
    None for other numbers of splits.
    """
    if impl.supports.form == "dense":
        if case.num_splits > 1:
            return None
        case = case.but(page_size=None, page_order="in_order")
    if reason := unsupported(impl, case):
        return Line(f"refused: {reason}")
    x = inputs_of(case, device)
    buffers = packed(impl, case, x, fill=0.0)
    stored = {n: t.contiguous() if n in ONE_LAYOUT else to_layout(impl, t) for n, t in buffers.items()}
    handed = buffers.with_(**stored)
    options = keywords(impl.supports, num_splits=case.num_splits) | form_keywords(impl.supports, handed)
    got = run(impl, handed, num_splits=case.num_splits)
    if reason := mistake(got, reference(x), ("out",)):
        return Line.of_mistake(reason)
    took = timing.measure(lambda: impl.forward(handed.q, handed.k, handed.v, **options), device, seconds)
    words = f"{took.ms:8.3f} ms  {(x.k.nbytes + x.v.nbytes) / took.ms / 1e6:6.0f} GB/s"
    return Line(words + "  launch-bound" * (took.issue_ms >= took.ms))


def all_lines() -> Iterator[Line]:
    """Measure every case of each implementation, and yield a line for each."""
    known = {entry.name: entry.impl for entry in registry.ours(IMPLS)}
    impls = [known[name] for name in IMPLS if isinstance(known.get(name), Implementation)]
    for case in cases():
        size = f"batch {case.batch}, {case.nheads} heads, {case.nheads_k} key heads, {case.seqlen_k} keys"
        for impl in impls:
            if line := measured(impl, case, "cuda", SECONDS["cuda"]):
                splits = f"{case.num_splits} splits" if impl.supports.takes_splits else ""
                yield line._replace(text=f"{size:50} {impl.name:20} {splits:10} {line.text}")


def main() -> int:
    """Print the lines. Returns the exit status."""
    return printed("decode", f"bfloat16, headdim {HEADDIM}, seqlen_q 1, pages of {PAGE_SIZE} keys", all_lines())


if __name__ == "__main__":
    sys.exit(main())
