// FlashAttention-2, forward (FA2 Alg. 1), in float32. One block per (tile of queries, head, batch).
//
//   S = scale Q K^T   m = rowmax(S)   P = exp(S - m)   l = rowsum(P)   O = P V / l   lse = m + ln l
//
// A loop over tiles of keys updates m, l, O: alpha = exp(m_old - m_new) scales the earlier sums.
// q, out (batch, seqlen_q, nheads, headdim), k, v (batch, seqlen_k, nheads, headdim), contiguous;
// lse (batch, nheads, seqlen_q). Causal: query i sees keys 0 .. i + seqlen_k - seqlen_q. If a query
// sees no key, out is 0 and lse -inf.
#include <cuda_runtime.h>
#include <math.h>

constexpr int TILE = 32;                    // queries of a block, and keys of a tile
constexpr int THREADS = 128;
constexpr int PER_ROW = THREADS / TILE;     // threads that share a row of S and of O
constexpr int MAX_HEADDIM = 128;
constexpr int FREE_SHARED = 48 * 1024;      // bytes that a kernel can have without opting in

// The start of row i of head h, in (batch, seqlen, nheads, headdim). 64 bits: a large q has more than 2^31 elements.
__device__ size_t row_start(int b, int i, int h, int seqlen, int nheads, int headdim) {
    return ((size_t(b) * seqlen + i) * nheads + h) * headdim;
}

// All threads load rows first .. first + TILE - 1 of x into tile (TILE, headdim); missing rows as 0.
__device__ void load_tile(float* tile, const float* x, int b, int first, int h, int seqlen, int nheads, int headdim) {
    for (int e = threadIdx.x; e < TILE * headdim; e += THREADS) {
        int i = first + e / headdim;
        tile[e] = i < seqlen ? x[row_start(b, i, h, seqlen, nheads, headdim) + e % headdim] : 0.0f;
    }
}

__global__ void flash_forward_kernel(const float* q, const float* k, const float* v, float* out, float* lse,
                                     int seqlen_q, int seqlen_k, int headdim, float softmax_scale, bool causal) {
    extern __shared__ float shared[];
    float* Q = shared;                      // (TILE, headdim)
    float* K = Q + TILE * headdim;          // (TILE, headdim)
    float* V = K + TILE * headdim;          // (TILE, headdim)
    float* S = V + TILE * headdim;          // (TILE, TILE), then P in the same place
    float* factor = S + TILE * TILE;        // (TILE): the next factor of each row of O

    const int first_query = blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z, nheads = gridDim.y;
    const int row = threadIdx.x / PER_ROW, part = threadIdx.x % PER_ROW;  // this thread: columns part, part + PER_ROW, ...
    const bool keeps_row = threadIdx.x < TILE;  // thread i < TILE keeps m and l of row i
    float m = -INFINITY, l = 0.0f;
    float O[MAX_HEADDIM / PER_ROW] = {};

    load_tile(Q, q, b, first_query, h, seqlen_q, nheads, headdim);
    // The last query of the tile sees the most keys; tiles after those are skipped.
    const int keys = causal ? min(seqlen_k, first_query + TILE + seqlen_k - seqlen_q) : seqlen_k;
    for (int first_key = 0; first_key < keys; first_key += TILE) {
        load_tile(K, k, b, first_key, h, seqlen_k, nheads, headdim);
        load_tile(V, v, b, first_key, h, seqlen_k, nheads, headdim);
        __syncthreads();  // Q, K, V were loaded by all threads: no product before they are whole

        // S = scale Q K^T, -inf where query i does not see key j
        const int i = first_query + row;
        const int last_key = causal ? min(seqlen_k - 1, i + seqlen_k - seqlen_q) : seqlen_k - 1;
        for (int c = part; c < TILE; c += PER_ROW) {
            float sum = 0.0f;
            for (int d = 0; d < headdim; ++d) sum += Q[row * headdim + d] * K[c * headdim + d];
            S[row * TILE + c] = first_key + c <= last_key ? softmax_scale * sum : -INFINITY;
        }
        __syncthreads();  // a row of S comes from PER_ROW threads: no maximum of it before it is whole

        if (keeps_row) {
            float* S_row = S + threadIdx.x * TILE;
            float m_new = m;
            for (int c = 0; c < TILE; ++c) m_new = fmaxf(m_new, S_row[c]);  // m_new = max(m, rowmax(S))
            const float shift = m_new == -INFINITY ? 0.0f : m_new;  // no visible key yet: avoids -inf - -inf, which is NaN
            const float alpha = expf(m - shift);
            l *= alpha;
            for (int c = 0; c < TILE; ++c) {
                S_row[c] = expf(S_row[c] - shift);  // P = exp(S - m_new)
                l += S_row[c];                      // l = alpha l + rowsum(P)
            }
            m = m_new;
            factor[threadIdx.x] = alpha;
        }
        __syncthreads();  // P and alpha of a row come from one thread, PER_ROW others are about to use them

        // O = alpha O + P V
        for (int n = 0, d = part; d < headdim; ++n, d += PER_ROW) {
            float sum = factor[row] * O[n];
            for (int c = 0; c < TILE; ++c) sum += S[row * TILE + c] * V[c * headdim + d];
            O[n] = sum;
        }
        __syncthreads();  // V, P and alpha are still being read: nobody may write the next ones yet
    }

    if (keeps_row) {
        factor[threadIdx.x] = l == 0.0f ? 0.0f : 1.0f / l;  // ==, not >, so that a NaN in l propagates
        const int i = first_query + threadIdx.x;
        if (i < seqlen_q) lse[(size_t(b) * nheads + h) * seqlen_q + i] = l == 0.0f ? -INFINITY : m + logf(l);
    }
    __syncthreads();  // 1 / l comes from one thread, PER_ROW others are about to use it

    const int i = first_query + row;
    if (i >= seqlen_q) return;
    const size_t start = row_start(b, i, h, seqlen_q, nheads, headdim);
    for (int n = 0, d = part; d < headdim; ++n, d += PER_ROW) out[start + d] = factor[row] * O[n];  // O / l
}

// Launches the kernel. Returns a cudaError_t, 0 for success.
int flash_forward(const float* q, const float* k, const float* v, float* out, float* lse, int batch, int nheads,
                  int seqlen_q, int seqlen_k, int headdim, float softmax_scale, bool causal) {
    if (headdim < 1 || headdim > MAX_HEADDIM) return cudaErrorInvalidValue;
    if (batch == 0 || nheads == 0 || seqlen_q == 0) return cudaSuccess;  // a grid of 0 blocks cannot be launched
    const int bytes = (3 * TILE * headdim + TILE * TILE + TILE) * sizeof(float);
    if (bytes > FREE_SHARED)
        cudaFuncSetAttribute(flash_forward_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const dim3 grid((seqlen_q + TILE - 1) / TILE, nheads, batch);
    flash_forward_kernel<<<grid, THREADS, bytes>>>(q, k, v, out, lse, seqlen_q, seqlen_k, headdim, softmax_scale,
                                                   causal);
    return cudaGetLastError();
}
