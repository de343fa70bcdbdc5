"""The kernels of paged decoding compile for several GPUs, and once for all sizes and strides.

This file is also the program that compiles, in a process of its own (test_compile.py):

    python -m tests.impls.triton.test_compile_paged 90 1 4
"""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from tests.impls.triton.test_compile import PRODUCTS, SHARED, pretend
from tests.runs import python

# (dtype, headdim, group, everything): what decides the constants of a kernel.
KINDS = [("bfloat16", 256, 1, False), ("float32", 64, 1, True), ("float16", 128, 4, True), ("float16", 64, 64, True)]


def compile_calls(capability: int, calls: int, kinds: int) -> list[dict]:
    """Compile kernels of the first `kinds` for `calls` random sizes and strides, and describe
    each.
    """
    compiled = pretend(capability)
    import random

    import torch

    from flash_attest.impls.triton import paged

    paged.EMULATED, paged.check_device = False, lambda q: None
    draw, kernels = random.Random(0), {}

    def tensor(*sizes, dtype):
        return torch.empty(*sizes[:-1], sizes[-1] + draw.choice((0, 8, 64)), dtype=dtype)[..., : sizes[-1]]

    for dtype, headdim, group, everything in KINDS[:kinds]:
        for _ in range(calls):
            batch, nheads_k, page_size = (
                draw.choice((1, 2, 3, 16)),
                draw.choice((1, 2, 5)),
                draw.choice((1, 16, 20, 64)),
            )
            width = dict(dtype=getattr(torch, dtype))
            append = draw.choice((0, 1, 5))
            k, v = (tensor(40, page_size, nheads_k, headdim, **width) for _ in "kv")
            news = [tensor(batch, append, nheads_k, headdim, **width) for _ in "kv"] if append else (None, None)
            lengths = torch.empty(batch + 1, dtype=torch.int32)
            more = dict(window=(draw.randrange(99), None), softcap=2.0) if everything else {}
            if everything:
                more["sinks"] = torch.empty(draw.randrange(2) + nheads_k * group)[-nheads_k * group :]
            compiled.clear()
            paged.PagedDecode().forward(
                tensor(draw.randrange(1, 40), nheads_k * group, headdim, **width), k, v,
                cu_seqlens_q=lengths, max_seqlen_q=draw.randrange(1, 20), k_new=news[0], v_new=news[1],
                block_table=torch.empty(batch, draw.randrange(1, 40), dtype=torch.int32), seqused_k=lengths[1:],
                num_splits=draw.randrange(1, 65), causal=draw.random() < 0.5, **more,
            )  # fmt: skip
            for kernel, _, result in compiled:
                ptx = result.asm["ptx"]
                kernels[kernel.fn.__name__, dtype, headdim, group, result.hash] = dict(
                    kernel=kernel.fn.__name__, kind=[dtype, headdim, group], shared=result.metadata.shared,
                    target=f"sm_{capability}" in ptx, wide="cp.async.cg" in ptx,
                    product=next((word for word in ("wgmma", "mma.sync") if word in ptx), "none"),
                )  # fmt: skip
    return list(kernels.values())


@pytest.mark.parametrize(
    "capability, calls, kinds",
    [(90, 20, 2), *(pytest.param(*each, 4, marks=pytest.mark.thorough) for each in ((90, 20), (80, 2), (86, 2)))],
)
def test_one_variant_compiles_fits_and_multiplies_on_matrix_units(capability, calls, kinds, tmp_path):
    asked = "-m", "tests.impls.triton.test_compile_paged", capability, calls, kinds
    run = python(*asked, TRITON_CACHE_DIR=str(tmp_path))
    assert run.returncode == 0, run.stderr[-4000:]
    kernels = json.loads(run.stdout.splitlines()[-1])
    names = [(each["kernel"], *each["kind"]) for each in kernels]
    assert sorted(names) == sorted(set(names)), "several variants of one kernel"
    assert {name for name, *_ in names} == {"append_kernel", "decode_kernel", "merge_kernel"}
    for each in kernels:
        assert each["target"] and each["shared"] <= SHARED[capability], each
        if each["kernel"] == "decode_kernel":
            halves = each["kind"][0] != "float32"
            assert each["product"] in (PRODUCTS[capability] if halves else ("none",)), each
            assert each["wide"], f"loads of less than 16 bytes: {each}"


if __name__ == "__main__":
    print(json.dumps(compile_calls(*map(int, sys.argv[1:]))))
