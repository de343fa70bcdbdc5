"""Races planted in impls/numba: asynchronous copies, scratch in global memory, blocks that share
it, a second stream.
"""

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.mutant import STREAMS, TRACED
from flash_attest.mutants.numba.build import FORWARD, planted

TOTAL = "            total = sum_of_lanes(l[r])\n"
LSE = "            if lane() == 0 and i0 + row(r) < p.seqlen_q:\n"
DELTA = "    launch(delta_kernel, rows, 0, dout, out, delta, p)\n"
SUMS = "    launch(sum_dq_kernel, rows, 0, dq_sums, dq, tile.M, tile.N, splits, p)\n"
# These support few features, so that few variants are compiled.
ON_A_GPU = dict(supports=Supports(dtypes={torch.float32}, headdims=range(1, 33)))

IMPORTS = "from .memory import load4, store4\n"
LOAD_FOUR = "        if i < rows and d < headdim:\n            four = load4(x, i, d)\n"
STORE_FOUR = "        store4(tile, row(r), d, (loaded[r, 0], loaded[r, 1], loaded[r, 2], loaded[r, 3]))\n"
# Loads tile[row, d .. d + 3] = x[i, d .. d + 3] by one cp.async of 16 bytes.
COPY_FOUR = '''from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from .memory import _address_of_four, load4, store4


@intrinsic
def copy4(typing_context, tile, row, d, x, i):
    """Begin to copy x[i, d .. d + 3] to tile[row, d .. d + 3]."""

    def generate(context, builder, signature, arguments):
        tile, row, d, x, i = arguments
        to, _ = _address_of_four(context, builder, signature.args[0], tile, row, d)
        source, _ = _address_of_four(context, builder, signature.args[3], x, i, d)
        int64 = ir.IntType(64)
        addresses = [builder.ptrtoint(pointer, int64) for pointer in (to, source)]
        text = (
            "{ .reg .u64 a, b; cvta.to.shared.u64 a, $0; cvta.to.global.u64 b, $1; "
            "cp.async.ca.shared.global [a], [b], 16; cp.async.commit_group; }"
        )
        builder.asm(ir.FunctionType(ir.VoidType(), [int64, int64]), text, "l,l", addresses, True)
        return context.get_dummy_value()

    return types.void(tile, types.int64, types.int64, x, types.int64), generate
'''
COPIES = (
    (IMPORTS, COPY_FOUR),
    (LOAD_FOUR, LOAD_FOUR.replace("        if i < rows", "        if False and i < rows")),
    (
        STORE_FOUR,
        "        i = first_row + row(r)\n"
        "        if i < rows and d < headdim:\n"
        "            copy4(tile, row(r), d, x, i)\n"
        "        else:\n"
        f"    {STORE_FOUR}",
    ),
)

# (slots, M, N) in global memory; in the emulator there are as many slots as its GPU has
# multiprocessors.
MULTIPROCESSORS = """    slots = torch.cuda.get_device_properties(q.device).multi_processor_count if q.is_cuda else 4
    scratch = lse.new_empty(slots * tile.M * (tile.N + PAD))
"""
SLOTS = "P = matrix(scratch, cuda.blockIdx.x % (scratch.shape[0] // (M * (N + PAD))) * (M * (N + PAD)), M, N + PAD)"


def beside(launched: str) -> str:
    """Return the launch on a second stream, which waits for the first."""
    return (
        "    other = torch.cuda.Stream()\n"
        "    other.wait_stream(torch.cuda.current_stream())\n"
        f"    with torch.cuda.stream(other):\n    {launched}"
    )


MUTANTS = [
    planted(
        "copies_are_not_waited_for",
        TRACED,
        "tiles.py",
        COPIES,
        "cp.async without a wait: a barrier waits for threads, not for their copies",
        FORWARD,
        dict(headdim=32),
    ),
    planted(
        "fa2_row_sums_go_through_memory",
        TRACED,
        "fa2.py",
        (
            (
                TOTAL,
                f"{TOTAL}            if i0 + row(r) < p.seqlen_q:\n"
                "                if lane() == 0:\n"
                "                    lse[head * p.seqlen_q + i0 + row(r)] = total\n"
                "                total = lse[head * p.seqlen_q + i0 + row(r)]\n",
            ),
        ),
        "a lane stores the sum of its row to global memory, from where the others load it without a barrier",
        FORWARD,
    ),
    planted(
        "fa2_lse_behind_the_last_row_is_stored",
        TRACED,
        "fa2.py",
        ((LSE, "            if lane() == 0:\n"),),
        "the last tile of a head writes the next one's lse, which that head overwrites if its block comes later",
        FORWARD,
    ),
    planted(
        "fa2_scratch_has_a_slot_for_each_multiprocessor",
        TRACED,
        "fa2.py",
        (
            ("import numpy as np\n", "import numpy as np\nimport torch\n"),
            ("bias, out, lse, softmax_scale, softcap, p):\n", "bias, out, lse, scratch, softmax_scale, softcap, p):\n"),
            ("P = matrix(shared, (M + 2 * N) * (D + PAD), M, N + PAD)", SLOTS),
            ("    launch(\n        kernel", f"{MULTIPROCESSORS}    launch(\n        kernel"),
            ("bias, out, lse, np.float32", "bias, out, lse, scratch, np.float32"),
        ),
        "as many slots as multiprocessors, but more blocks: two of them are in one slot once a second wave runs",
        FORWARD,
        dict(batch=5, nheads=5, seqlen_q=257, seqlen_k=2),
    ),
    planted(
        "backward_delta_is_not_waited_for",
        STREAMS,
        "backward.py",
        ((DELTA, beside(DELTA)),),
        "delta is computed on a second stream, for which the first does not wait",
        ON_A_GPU,
        device="cuda",
    ),
    planted(
        "backward_sums_of_dq_are_not_waited_for",
        STREAMS,
        "backward.py",
        ((SUMS, beside(SUMS)),),
        "the sums of dq are added on a second stream, for which the caller's does not wait",
        ON_A_GPU,
        device="cuda",
    ),
]
