"""Bugs of the example's CUDA forward, run under the tracer. Most of them give correct results on a
CPU and on many GPUs.
"""

from __future__ import annotations

import re
from typing import Any

from flash_attest.mutants.cuda.build import EXAMPLE
from flash_attest.mutants.mutant import CONTRACT, ONE, TRACED, Mutant

FILE = "flash_forward.cu"
# The comments of the barriers, in order.
BARRIERS = re.findall(r"__syncthreads\(\);  (//.*)", (EXAMPLE.folder / FILE).read_text())


def planted(name: str, edits: tuple, story: str, smallest: dict[str, Any] | None = None, law: str = TRACED) -> Mutant:
    """Return a mutant of flash_forward.cu. The tracer must catch it, unless another law is
    named.
    """
    return Mutant(
        name=f"cuda_{name}",
        law=law,
        family=EXAMPLE,
        source=FILE,
        impl="cuda_flash_forward",
        edits=edits,
        smallest=ONE | (smallest or {}),
        story=story,
    )


def without_barrier(number: int) -> tuple[tuple[str, str], ...]:
    """Return the edit that removes a barrier, given its number from 1."""
    reason = BARRIERS[number - 1]
    return ((f"__syncthreads();  {reason}", reason),)


MUTANTS = [
    planted(
        "tiles_are_read_before_they_are_loaded",
        without_barrier(1),
        "the barrier after the load is missing: every value right in 50 of 50 runs on a GPU, one warp a block",
    ),
    planted(
        "scores_are_read_before_they_are_written",
        without_barrier(2),
        "no barrier between S and its row maximum",
    ),
    planted(
        "probabilities_are_read_before_they_are_written",
        without_barrier(3),
        "no barrier between P and the product P V",
    ),
    planted(
        "next_tile_is_loaded_over_the_last",
        without_barrier(4),
        "write after read: the barrier at the end of the loop is missing, and shows from the second tile on",
        dict(seqlen_q=33, seqlen_k=33),
    ),
    planted(
        "last_factor_is_read_before_it_is_written",
        without_barrier(5),
        "the barrier after the loop is missing, which is easier to forget than one inside",
        dict(seqlen_q=2, headdim=2),  # with one element, a race may store the value that was already there
    ),
    planted(
        "last_factor_waits_for_its_warp_alone",
        ((f"__syncthreads();  {BARRIERS[4]}", f"__syncwarp();  {BARRIERS[4]}"),),
        "a barrier of the warp where other warps read: right in the order in which a CPU runs threads",
        dict(seqlen_q=24, seqlen_k=24),
        law="test_repeats_agree",
    ),
    planted(
        "every_second_head_is_summed_from_the_end",
        (
            (
                "for (int c = 0; c < TILE; ++c) sum += S[row * TILE + c] * V[c * headdim + d];",
                "for (int n = 0; n < TILE; ++n) {\n"
                "                const int c = (b + h) % 2 ? TILE - 1 - n : n;\n"
                "                sum += S[row * TILE + c] * V[c * headdim + d];\n            }",
            ),
        ),
        "neighbouring blocks begin at other ends: within the budget and the same in each call, other bits by position",
        dict(batch=2, nheads=3, seqlen_q=24, seqlen_k=24),
        law="test_copies_agree",
    ),
    planted(
        "rows_behind_the_last_are_loaded",
        (
            (
                "tile[e] = i < seqlen ? x[row_start(b, i, h, seqlen, nheads, headdim) + e % headdim] : 0.0f;",
                "tile[e] = x[row_start(b, i, h, seqlen, nheads, headdim) + e % headdim];",
            ),
        ),
        "no guard for seqlen % 32: the neighbouring head, or memory beyond the tensor, is read",
    ),
    planted(
        "rows_behind_the_last_are_stored",
        (("    if (i >= seqlen_q) return;\n", ""),),
        "no guard for seqlen % 32: the neighbouring head is overwritten, blocks race",
    ),
    planted(
        "shared_memory_is_a_row_short",
        (("TILE * TILE + TILE) * sizeof(float)", "TILE * TILE) * sizeof(float)"),),
        "a launch that asks for less shared memory than the kernel uses",
    ),
    planted(
        "scores_of_hidden_keys_are_not_written",
        (
            (
                "            S[row * TILE + c] = first_key + c <= last_key ? softmax_scale * sum : -INFINITY;",
                "            if (first_key + c <= last_key) S[row * TILE + c] = softmax_scale * sum;",
            ),
        ),
        "old contents of shared memory are used as scores",
    ),
    planted(
        "barrier_stands_in_a_branch",
        (
            (
                f"        __syncthreads();  {BARRIERS[1]}",
                f"        if (keeps_row) __syncthreads();\n        else\n            __syncthreads();  {BARRIERS[1]}",
            ),
        ),
        "threads of one block wait at different barriers: fails without the tracer, too",
        law=CONTRACT,
    ),
    planted(
        "failed_launch_is_not_noticed",
        (
            (
                "        cudaFuncSetAttribute(flash_forward_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);\n",
                "        (void)0;\n",
            ),
            ("    return cudaGetLastError();", "    return 0;"),
        ),
        "above 48 KiB of shared memory the launch fails, the error is not checked, and zeros are returned",
        dict(headdim=118),
    ),
]
