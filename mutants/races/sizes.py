"""Races that need two batches, two heads, GQA, two tiles of queries, or three tiles of keys; and
scratch that is read before anything has written it.

The case of the matrix of races lacks some of these sizes, so these bugs are not part of it. The
cases that the law of traced races chooses have them all.
"""

from flash_attest.mutants.cuda.build import FORWARD as CUDA_FORWARD
from flash_attest.mutants.cuda.build import planted as in_cuda
from flash_attest.mutants.cuda.build import supporting as cuda_supporting
from flash_attest.mutants.mutant import TRACED, Mutant
from flash_attest.mutants.numba.build import planted as in_numba
from flash_attest.mutants.numba.build import supporting as numba_supporting
from flash_attest.mutants.triton.build import planted as in_triton
from flash_attest.mutants.triton.build import supporting as triton_supporting

CUDA_LSE = "lse[(int64_t(b) * p.nheads + h) * p.seqlen_q + first_query + row(r)]"
STILL_READ = "        __syncthreads();  // K, V and P are still being read: do not write the next ones yet"
NUMBA_LSE = "lse[head * p.seqlen_q + i0 + row(r)]"
TRITON_LSE = "lse_ptr += statistics_of(bh, h, b_q, seqlen_q, total_q, VARLEN)"
TRITON_STORE = "tl.store(lse_ptr + i, lse, mask=i < seqlen_q)"

# A block for each query head, as if it were a block for each key head.
OF_QUERY_HEADS = (
    (
        "cuda.blockIdx.x // (p.batch * p.nheads_k), cuda.blockIdx.x % (p.batch * p.nheads_k)",
        "cuda.blockIdx.x // (p.batch * p.nheads), cuda.blockIdx.x % (p.batch * p.nheads)",
    ),
    ("b, h_k = rest // p.nheads_k, rest % p.nheads_k", "b, h_k = rest // p.nheads, rest % p.nheads // p.group"),
    (
        "for h in range(h_k * p.group, (h_k + 1) * p.group):",
        "for h in range(rest % p.nheads, rest % p.nheads + 1):",
    ),
    ("splits * p.batch * p.nheads_k, backward_bytes", "splits * p.batch * p.nheads, backward_bytes"),
)


def cuda_lse(name: str, index: str, story: str, smallest: dict, **changed) -> Mutant:
    """Return the race of blocks that store lse at this index."""
    return in_cuda(
        name, TRACED, "fa2_forward.cuh", ((CUDA_LSE, f"lse[{index}]"),), story, CUDA_FORWARD | changed, smallest
    )


MUTANTS = [
    cuda_lse(
        "fa2_heads_share_lse_from_65_queries_on",
        "(int64_t(b) * p.nheads + (p.seqlen_q > 64 ? 0 : h)) * p.seqlen_q + first_query + row(r)",
        "the path for more than one tile of 64 queries lacks the offset of the head: heads overwrite each other's lse",
        dict(nheads=2, seqlen_q=65),
        tile=(64, 64),
    ),
    cuda_lse(
        "fa2_batches_share_lse",
        "h * p.seqlen_q + first_query + row(r)",
        "lse lacks the offset of the batch: its batches overwrite each other's",
        dict(batch=2),
    ),
    cuda_lse(
        "fa2_tiles_of_queries_share_lse",
        "(int64_t(b) * p.nheads + h) * p.seqlen_q + row(r)",
        "lse lacks the first query of the tile: all tiles write the rows of the first one",
        dict(seqlen_q=17),
    ),
    cuda_lse(
        "fa2_query_heads_of_a_group_share_lse",
        "(int64_t(b) * p.nheads + h_k * p.group()) * p.seqlen_q + first_query + row(r)",
        "lse is stored for each key head: right without GQA",
        dict(nheads=2, nheads_k=1),
        **cuda_supporting(backward=False, cross=True, gqa=True),
    ),
    in_cuda(
        "fa2_third_tile_of_keys_is_loaded_over_the_second",
        TRACED,
        "fa2_forward.cuh",
        ((STILL_READ, STILL_READ.replace("__syncthreads();", "if (first_key == 0) __syncthreads();")),),
        "the barrier behind a tile of keys is left out from the second tile on, so only a third one is loaded too early",
        CUDA_FORWARD,
        dict(seqlen_k=33),
    ),
    in_cuda(
        "fa2_lanes_wait_at_two_barriers_of_one_line",
        TRACED,
        "fa2_forward.cuh",
        (
            (
                STILL_READ,
                "        if (lane() < LANES / 2) { __syncthreads(); } else { __syncthreads(); }  // K, V, P are read",
            ),
        ),
        "both branches of a condition wait: two barriers, of which each sees half of the threads; g++ would merge them",
        CUDA_FORWARD,
    ),
    in_numba(
        "fa2_batches_share_lse",
        TRACED,
        "fa2.py",
        ((NUMBA_LSE, "lse[h * p.seqlen_q + i0 + row(r)]"),),
        "lse lacks the offset of the batch: its batches overwrite each other's",
        numba_supporting(backward=False, cross=True),
        dict(batch=2),
    ),
    in_numba(
        "query_heads_of_a_group_store_one_dk",
        TRACED,
        "backward.py",
        OF_QUERY_HEADS,
        "a block for each query head stores dk and dv of its key head, without atomics: right without GQA",
        numba_supporting(gqa=True),
        dict(nheads=2, nheads_k=1),
    ),
    in_triton(
        name="triton_compiled_heads_share_lse",
        law=TRACED,
        source="forward.py",
        declares=triton_supporting(backward=False),
        edits=((TRITON_LSE, "lse_ptr += b.to(tl.int64) * nheads * seqlen_q"),),
        smallest=dict(batch=1, nheads=2),
        story="lse lacks the offset of the head: heads overwrite each other's",
    ),
    in_triton(
        name="triton_compiled_tiles_of_queries_share_lse",
        law=TRACED,
        source="forward.py",
        declares=triton_supporting(backward=False),
        edits=((TRITON_STORE, "tl.store(lse_ptr + i - i0, lse, mask=i < seqlen_q)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=65),
        story="lse lacks the first query of the tile: all tiles write the rows of the first one",
    ),
    in_cuda(
        "fa1_sums_begin_as_torch_empty",
        TRACED,
        "fa1_forward.cuh",
        (("l[i0 + kept] = 0.0f, m[i0 + kept] = -INFINITY;", "m[i0 + kept] = -INFINITY;"),),
        "the statistics are scratch from torch.empty, and l is taken for 0",
        CUDA_FORWARD,
        impl="cuda_fa1",
    ),
    in_numba(
        "sums_of_dq_begin_as_torch_empty",
        TRACED,
        "backward.py",
        (("p.seqlen_q if i0 < summed else 0, p.headdim", "p.seqlen_q, p.headdim"),),
        "scratch from torch.empty is loaded for the first tile of keys, too, which has no sum yet",
        numba_supporting(),
    ),
    in_triton(
        name="triton_compiled_atomics_add_to_torch_empty",
        law=TRACED,
        source="attention.py",
        impl="triton_fa2_atomic",
        declares=triton_supporting(),
        edits=(("total = torch.zeros(x.q.shape", "total = torch.empty(x.q.shape"),),
        smallest=dict(batch=1, nheads=1),
        story="programs add to dq by atomics, and nothing has set it to 0",
    ),
]
