"""Races planted in impls/cuda: asynchronous copies, scratch in global memory, blocks that share it,
a second stream.
"""

from flash_attest.mutants.cuda.build import FORWARD, planted, supporting
from flash_attest.mutants.mutant import STREAMS, TRACED

FA2, FA1, HOST = "fa2_forward.cuh", "fa1_forward.cuh", "host_backward.cuh"

# ---- cp.async ------------------------------------------------------------------------------------

INCLUDE = '#include "scores.cuh"'
KEYS = "load_tile<N, D>(K, p.dtype, k, p.k.row(b, first_key, h_k) + d, p.k.seqlen, left, width);"
VALUES = "load_tile<N, D>(V, p.dtype, v, p.v.row(b, first_key, h_k) + first_column, p.v.seqlen, left, columns);"
LOADED = "            __syncthreads();  // Q, K, V are loaded by all threads: complete them before the products"
SCORES = "        finish_scores<false>(S, p, bias, b, h, first_query, first_key);\n"
LOOP = "    for (int first_key = p.first_key_of(first_query) / N * N; first_key < keys; first_key += N) {\n"

# load_tile of float32, which only starts the copies.
COPY_TILE = (
    INCLUDE,
    f"""#include <cuda_pipeline.h>
{INCLUDE}

template <int ROWS, int D>
__device__ void copy_tile(float* tile, const float* x, int64_t stride, int rows, int headdim) {{
    for (int e = threadIdx.x; e < ROWS * D; e += THREADS) {{
        const int r = e / D, d = e % D;
        const bool exists = r < rows && d < headdim;
        __pipeline_memcpy_async(tile + r * STRIDE<D> + d, exists ? x + r * stride + d : x, 4, exists ? 0 : 4);
    }}
    __pipeline_commit();
}}""",
)
COPIED_KEYS = KEYS.replace("load_tile", "copy_tile").replace("p.dtype, k, ", "static_cast<const float*>(k) + ")
COPIED_VALUES = VALUES.replace("load_tile", "copy_tile").replace("p.dtype, v, ", "static_cast<const float*>(v) + ")
WAIT = "            __pipeline_wait_prior(0);\n"
# The parts of a correct copy of K, some of which the planted races lack.
WAITED = (COPY_TILE, (KEYS, COPIED_KEYS), (LOADED, WAIT + LOADED))
FIRST_KEYS = COPIED_KEYS.replace("first_key", "0").replace(" + d,", ",").replace("left, width", "p.seqlen_k, p.headdim")
NEXT_KEYS = FIRST_KEYS.replace("row(b, 0,", "row(b, first_key + N,").replace(
    "p.seqlen_k, p.headdim", "left - N, p.headdim"
)

# ---- scratch in global memory --------------------------------------------------------------------

TWO_BLOCKS = dict(batch=2, nheads=2, seqlen_q=17, seqlen_k=2)
PROBABILITIES = "    float* P = V + N * STRIDE<D>;  // (M, N)\n"
OLD_STATISTICS = "const float m_old = __shfl_sync(WARP, m_kept, r, LANES), l_old = __shfl_sync(WARP, l_kept, r, LANES);"
SUM = "        l[r] = sum_of_lanes(l[r]);\n"


def slots(register: str, slot: str) -> tuple[tuple[str, str], ...]:
    """Return edits that put P into one of 256 slots of global memory, selected by a special
    register of the multiprocessor.
    """
    memory = "__device__ __align__(16) float slots[256 * 16 * (16 + PAD)];  // (256, M, N)\n\n"
    read = f'    unsigned number;\n    asm volatile("mov.u32 %0, %%{register};" : "=r"(number));\n'
    first = "// WIDE: for head dims beyond D."
    return (
        (first, memory + first),
        (PROBABILITIES, f"{read}    float* P = slots + {slot} * M * STRIDE<N>;\n"),
    )


# ---- a second stream -----------------------------------------------------------------------------

BACKWARD = "// Writes dq, dk, dv, and delta, which bias_gradient needs."
BESIDE = (
    BACKWARD,
    f"""inline cudaStream_t beside() {{
    static cudaStream_t made = [] {{
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        return stream;
    }}();
    return made;
}}
inline void wait(cudaStream_t later, void* earlier) {{
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, static_cast<cudaStream_t>(earlier));
    cudaStreamWaitEvent(later, event, 0);
    cudaEventDestroy(event);
}}

{BACKWARD}""",
)
DELTA = "    int error = launch(name, delta_kernel, blocks, 0, stream, p, dout, out, delta);\n"
ADD = "        error = launch(name, sum_dq_kernel, blocks, 0, stream, p, chosen->m, chosen->n, dq_sums, dq);\n"

MUTANTS = [
    planted(
        "fa2_copies_are_not_waited_for",
        TRACED,
        FA2,
        (COPY_TILE, (KEYS, COPIED_KEYS)),
        "cp.async without a wait: a barrier waits for threads, not for their copies",
        FORWARD,
    ),
    planted(
        "fa2_last_batch_of_copies_is_not_waited_for",
        TRACED,
        FA2,
        (
            COPY_TILE,
            (KEYS, COPIED_KEYS),
            (VALUES, COPIED_VALUES),
            (LOADED, WAIT.replace("(0)", "(1)") + LOADED),
        ),
        "wait_prior(1) where there is no next tile in flight: the values have arrived, the keys may not",
        FORWARD,
    ),
    planted(
        "fa2_copies_are_waited_for_behind_the_barrier",
        TRACED,
        FA2,
        (COPY_TILE, (KEYS, COPIED_KEYS), (LOADED, f"{LOADED}\n{WAIT.rstrip()}")),
        "the wait is for a thread's own copies, and the barrier came before it: those of other threads may be under way",
        FORWARD,
    ),
    planted(
        "fa2_next_keys_are_copied_over_the_last",
        TRACED,
        FA2,
        (
            COPY_TILE,
            (LOOP, f"    {FIRST_KEYS}\n{LOOP}"),
            (KEYS, WAIT.strip()),
            (SCORES, f"{SCORES}        if (first_key + N < keys) {NEXT_KEYS}\n"),
        ),
        "this warp has its scores and prefetches the next K; other warps still compute theirs from this one",
        FORWARD,
        dict(seqlen_k=17),
    ),
    planted(
        "fa2_row_sums_go_through_memory",
        TRACED,
        FA2,
        (
            (
                SUM,
                SUM + "        if (row(r) < queries) {\n"
                "            float* sum = lse + (int64_t(b) * p.nheads + h) * p.seqlen_q + first_query + row(r);\n"
                "            if (lane() == 0) *sum = l[r];\n"
                "            l[r] = *sum;\n"
                "        }\n",
            ),
        ),
        "a lane stores the sum of its row to global memory, from where the others load it without a barrier",
        FORWARD,
    ),
    planted(
        "fa1_statistics_are_read_while_they_are_written",
        TRACED,
        FA1,
        (
            (
                OLD_STATISTICS,
                "const float m_old = row(r) < rows ? m[i0 + row(r)] : -INFINITY;\n"
                "                const float l_old = row(r) < rows ? l[i0 + row(r)] : 0.0f;",
            ),
        ),
        "all lanes load the row's statistics from memory, and one stores the new ones: write after read without a barrier",
        FORWARD,
        impl="cuda_fa1",
    ),
    planted(
        "fa1_statistics_of_all_heads_share_their_scratch",
        TRACED,
        FA1,
        (
            (
                "l += rows_before, m += rows_before, lse += rows_before;",
                "l += int64_t(b) * p.seqlen_q, m += int64_t(b) * p.seqlen_q, lse += rows_before;",
            ),
        ),
        "scratch for each batch, but a block for each head: right as long as blocks run one after another",
        FORWARD,
        dict(nheads=2),
        impl="cuda_fa1",
    ),
    planted(
        "fa2_lse_behind_the_last_row_is_stored",
        TRACED,
        FA2,
        (("if (row(r) < queries && lane() == 0 && first_column == 0)", "if (lane() == 0 && first_column == 0)"),),
        "the last tile of a head writes the next one's lse, which that head overwrites if its block comes later",
        FORWARD,
    ),
    planted(
        "fa2_blocks_of_a_multiprocessor_share_their_scratch",
        TRACED,
        FA2,
        slots("smid", "number"),
        "scratch for each multiprocessor (%smid): right as long as it holds one block at a time",
        FORWARD,
        TWO_BLOCKS,
    ),
    planted(
        "fa2_scratch_has_a_slot_for_each_multiprocessor",
        TRACED,
        FA2,
        slots("nsmid", "(blockIdx.x % number)"),
        "as many slots as multiprocessors, but more blocks: two of them are in one slot once a second wave runs",
        FORWARD,
        TWO_BLOCKS,
    ),
    planted(
        "backward_delta_is_not_waited_for",
        STREAMS,
        HOST,
        (BESIDE, (DELTA, f"    wait(beside(), stream);\n{DELTA.replace('0, stream,', '0, beside(),')}")),
        "delta is computed on a second stream, for which the first does not wait",
        supporting(),
        device="cuda",
    ),
    planted(
        "backward_sums_are_added_before_they_are_there",
        STREAMS,
        HOST,
        (
            BESIDE,
            (
                ADD,
                f"{ADD.replace('0, stream,', '0, beside(),')}    wait(static_cast<cudaStream_t>(stream), beside());\n",
            ),
        ),
        "a second stream adds the sums of dq without waiting for the kernel that writes them",
        supporting(),
        device="cuda",
    ),
]
