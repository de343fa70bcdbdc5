"""Bugs of the Numba kernels in their reads and writes, and in their launches."""

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.mutant import CONTRACT, STREAMS
from flash_attest.mutants.numba.build import FORWARD, planted, supporting

LAUNCH = "kernel[blocks, THREADS, 0, bytes_]"
KEYS = "range(first_key_of(p, i0) // N * N, keys_of(p, min(i0 + M, p.seqlen_q) - 1), N)"
STORE = "        if i < rows:\n            if wide:\n                if d < headdim:\n                    store4("
CHOOSE = '    tile = choose("fa2_forward"'

MUTANTS = [
    planted(
        "grid_and_block_are_swapped",
        CONTRACT,
        "launch.py",
        ((LAUNCH, "kernel[THREADS, blocks, 0, bytes_]"),),
        "kernel[threads, blocks]: with a single thread in a block no race is left, and most of a tile is never loaded",
        FORWARD | dict(devices={"cpu"}, unavailable={}),  # launches on a GPU are in another file
    ),
    planted(
        "sizes_are_frozen_from_globals",
        "test_split_keys_merge_by_lse",
        "fa2.py",
        (
            (KEYS, "range(0, SEQLEN_K, N)"),
            (CHOOSE, "    global SEQLEN_K\n    SEQLEN_K = p.seqlen_k\n" + CHOOSE),
        ),
        "Numba compiles a global as the constant that it was at the first launch: later calls walk over as many keys",
        FORWARD,
        dict(seqlen_k=130),
    ),
    planted(
        "rows_behind_the_last_are_read",
        "test_memory_around_inputs_is_not_read",
        "tiles.py",
        (
            ("if i < rows and d < headdim else", "if d < headdim else"),
            ("if i < rows and d < headdim:", "if d < headdim:"),
        ),
        "no bounds for the tail: whatever lies behind the tensor enters the tile",
        supporting(backward=False, strides=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "rows_behind_the_last_are_stored",
        "test_order_of_batches_and_heads_does_not_matter",
        "tiles.py",
        ((STORE, STORE.replace("i < rows", "True")),),
        "the next head's out is overwritten; behind the last head it is memory of somebody else",
        FORWARD,
        dict(nheads=2, seqlen_q=2),
    ),
    planted(
        "columns_behind_headdim_are_read",
        "test_any_layout_equals_the_contiguous_one",
        "tiles.py",
        (("if i < rows and d < headdim else", "if i < rows else"),),
        "head dims are rounded up to a multiple of 4: the columns after the last are the next row's",
        supporting(backward=False, strides=True),
        dict(batch=2, nheads=2),
    ),
    planted(
        "out_is_stored_by_the_strides_of_q",
        "test_any_layout_equals_the_contiguous_one",
        "fa2.py",
        (("p.seqlen_q, p.out.row)", "p.seqlen_q, p.q.row)"),),
        "q comes from a packed tensor, out is contiguous",
        supporting(backward=False, strides=True),
        dict(seqlen_q=2, nheads=2, seqlen_k=2),
    ),
    planted(
        "offsets_have_32_bits",
        "test_offsets_need_64_bits",
        "tiles.py",
        (
            ("return b * strides.batch + h * strides.head", "return int32(b * strides.batch + h * strides.head)"),
            ("from numba import cuda, float32", "from numba import cuda, float32, int32"),
        ),
        "an index of a flat array is int64 in Numba only if its factors are",
        supporting(backward=False, strides=True),
        dict(batch=2, nheads=2, seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "launches_on_the_default_stream",
        STREAMS,
        "on_gpu.py",
        (("stream = torch.cuda.current_stream(device).cuda_stream", "stream = 0"),),
        "Numba launches on its default stream unless it is given one",
        dict(backward=None, supports=Supports(dtypes={torch.float32}, headdims=range(1, 65))),
        device="cuda",
    ),
]
