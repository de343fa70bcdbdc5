// Tiles: loading them into shared memory, and the two products of register tiles in all kernels.
//
//   add_rows_dot_rows    S += A B^T    A (rows, d), B (columns, d)    S, dP, or transposed
//   add_product          O += P V      P (rows, n), V (n, d)          O, dQ, dK, dV
//
// S = Q K^T, dP = dO V^T; O = P V, dQ = dS K, dK = dS^T Q, dV = P^T dO.
//
// A block has THREADS = 8 x 16 threads. The 16 lanes of a group share the rows group, group + 8,
// ... of S and O. A lane owns the columns lane, lane + 16, ... of S, and up to four adjacent
// columns of O in each piece of 64. The lanes of a group are in one warp, so they exchange values
// of their rows by shuffles and __syncwarp() only.
//
//   S: row(r), column(c) for r < TM, c < TN
//   O: row(r), head_column<D>(n) for r < TM, n < D / LANES
//
// A tile in shared memory is float32 with D + PAD floats per row. Memory serves 8 lanes that read
// float4 at once. Thanks to the padding, 8 lanes that read the same columns of 8 rows have no bank
// conflict. Rows beyond the sequence and columns beyond the head dim are 0.
#pragma once

#include "problem.cuh"

constexpr int THREADS = 128, LANES = 16, GROUPS = THREADS / LANES;
constexpr int PAD = 4;
constexpr unsigned WARP = 0xffffffffu;

// Inlined on a GPU, so that tiles are in registers. On the CPU each is compiled once for all
// kernels, in a quarter of the time.
#ifdef CUDA_ON_CPU
#define TILE_FUNCTION __device__ __noinline__
#else
#define TILE_FUNCTION __device__ __forceinline__
#endif

template <int D>
constexpr int STRIDE = D + PAD;  // floats from row to row of a tile with D columns
template <int D>
constexpr int PIECE = D < 4 * LANES ? D : 4 * LANES;  // columns of O that the lanes own before they wrap around
template <int D>
constexpr int ADJACENT = PIECE<D> / LANES;  // adjacent columns of a lane: 4, or 2 for small D

__device__ __forceinline__ int lane() { return threadIdx.x % LANES; }
__device__ __forceinline__ int group() { return threadIdx.x / LANES; }
__device__ __forceinline__ int row(int r) { return group() + GROUPS * r; }
__device__ __forceinline__ int column(int c) { return lane() + LANES * c; }
template <int D>
__device__ __forceinline__ int head_column(int n) {
    return n / ADJACENT<D> * PIECE<D> + lane() * ADJACENT<D> + n % ADJACENT<D>;
}

__host__ __device__ __forceinline__ int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

// ---- memory ------------------------------------------------------------------------------------

template <class T>
struct alignas(4 * sizeof(T)) Four {
    T x[4];
};

__device__ __forceinline__ float4 load4(const float* x) { return *reinterpret_cast<const float4*>(x); }

// Whether every row of x may be read or written four elements at a time, from column 0 to the last.
template <class T>
__device__ __forceinline__ bool by_four(const T* x, int64_t stride, int headdim) {
    return reinterpret_cast<uintptr_t>(x) % sizeof(Four<T>) == 0 && stride % 4 == 0 && headdim % 4 == 0;
}

template <int ROWS, int D, bool BY_FOUR, class T>
__device__ __forceinline__ void load_tile_by(float* tile, const T* x, int64_t stride, int rows, int headdim) {
    constexpr int PER_ROW = PIECE<D> / 4, AT_ONCE = THREADS / PER_ROW;  // threads per row; rows at once
    constexpr int TIMES = (ROWS + AT_ONCE - 1) / AT_ONCE;
    const int first = threadIdx.x / PER_ROW;
    for (int d = threadIdx.x % PER_ROW * 4; d < round_up(headdim, PIECE<D>); d += PIECE<D>) {
        const T* at = x + first * stride + d;
        Four<T> four[TIMES];  // issue all loads before waiting for the first
#pragma unroll
        for (int n = 0; n < TIMES; ++n, at += AT_ONCE * stride) {
            // Predicate the load: out-of-bounds memory may be NaN or unmapped.
            const int columns = first + n * AT_ONCE < (rows < ROWS ? rows : ROWS) ? headdim - d : 0;
#pragma unroll
            for (int e = 0; e < 4; ++e) four[n].x[e] = from_float<T>(0.0f);
            if (BY_FOUR) {
                if (columns > 0) four[n] = *reinterpret_cast<const Four<T>*>(at);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (e < columns) four[n].x[e] = at[e];
            }
        }
#pragma unroll
        for (int n = 0; n < TIMES; ++n) {
            const int r = first + n * AT_ONCE;
            if (ROWS % AT_ONCE == 0 || r < ROWS)
                *reinterpret_cast<float4*>(tile + r * STRIDE<D> + d) =
                    make_float4(to_float(four[n].x[0]), to_float(four[n].x[1]), to_float(four[n].x[2]),
                                to_float(four[n].x[3]));
        }
    }
}

// All threads load rows of a tensor into a tile (ROWS, round_up(headdim, PIECE)). The rows are
// `stride` apart and have headdim columns; the first is at x[at]. Rows from `rows` on and columns
// from headdim on become 0.
template <int ROWS, int D>
TILE_FUNCTION void load_tile(float* tile, Dtype dtype, const void* x, int64_t at, int64_t stride, int rows,
                             int headdim) {
    as_dtype(dtype, x, [=](auto* typed) {
        if (by_four(typed + at, stride, headdim))
            load_tile_by<ROWS, D, true>(tile, typed + at, stride, rows, headdim);
        else
            load_tile_by<ROWS, D, false>(tile, typed + at, stride, rows, headdim);
    });
}

// Stores factor * O to x, within bounds. x points to row 0 of the tile; `rows` rows remain from
// there.
template <int TM, int D, class T>
TILE_FUNCTION void store_rows(T* x, int64_t stride, int rows, int headdim, const float (&O)[TM][D / LANES],
                              const float (&factor)[TM]) {
    constexpr int N = ADJACENT<D>;
    const bool together = N == 4 && by_four(x, stride, headdim);
#pragma unroll
    for (int r = 0; r < TM; ++r) {
        if (row(r) >= rows) continue;
#pragma unroll
        for (int n = 0; n < D / LANES; n += N) {
            const int d = head_column<D>(n);
            T* at = x + row(r) * stride + d;
            if (together) {
                Four<T> four;
#pragma unroll
                for (int e = 0; e < 4; ++e) four.x[e] = from_float<T>(factor[r] * O[r][(n + e) % (D / LANES)]);
                if (d < headdim) *reinterpret_cast<Four<T>*>(at) = four;
            } else {
#pragma unroll
                for (int e = 0; e < N; ++e)
                    if (d + e < headdim) at[e] = from_float<T>(factor[r] * O[r][n + e]);
            }
        }
    }
}

// Stores factor * O to rows of a tensor of any dtype. The first row is at x[at].
template <int TM, int D>
TILE_FUNCTION void store_tile(Dtype dtype, void* x, int64_t at, int64_t stride, int rows, int headdim,
                              const float (&O)[TM][D / LANES], const float (&factor)[TM]) {
    as_dtype(dtype, x, [&](auto* typed) { store_rows<TM, D>(typed + at, stride, rows, headdim, O, factor); });
}

// Loads the elements that store_rows writes from float32 rows in global memory into O; 0 elsewhere.
template <int TM, int D>
TILE_FUNCTION void fetch_rows(float (&O)[TM][D / LANES], const float* x, int64_t stride, int rows,
                              int headdim) {
    constexpr int N = ADJACENT<D>;
    const bool together = N == 4 && by_four(x, stride, headdim);
#pragma unroll
    for (int r = 0; r < TM; ++r) {
#pragma unroll
        for (int n = 0; n < D / LANES; n += N) {
            const int d = head_column<D>(n);
            const float* at = x + row(r) * stride + d;
            Four<float> four = {};
            if (row(r) < rows && together && d < headdim) four = *reinterpret_cast<const Four<float>*>(at);
#pragma unroll
            for (int e = 0; e < N; ++e) {
                if (row(r) < rows && !together && d + e < headdim) four.x[e] = at[e];
                O[r][n + e] = four.x[e];
            }
        }
    }
}

// ---- products ----------------------------------------------------------------------------------

// S[r][c] += sum_d A[row(r)][d] B[column(c)][d] for d < columns (the head dim; the tiles are 0 up
// to a multiple of 4).
template <int D, int TM, int TN>
TILE_FUNCTION void add_rows_dot_rows(float (&S)[TM][TN], const float* A, const float* B, int columns) {
    A += group() * STRIDE<D>;
    B += lane() * STRIDE<D>;
#pragma unroll 2
    for (int d = 0; d < columns; d += 4) {
        float4 a[TM];
#pragma unroll
        for (int r = 0; r < TM; ++r) a[r] = load4(A + GROUPS * r * STRIDE<D> + d);
#pragma unroll
        for (int c = 0; c < TN; ++c) {
            const float4 b = load4(B + LANES * c * STRIDE<D> + d);
#pragma unroll
            for (int r = 0; r < TM; ++r) {
                S[r][c] += a[r].x * b.x;
                S[r][c] += a[r].y * b.y;
                S[r][c] += a[r].z * b.z;
                S[r][c] += a[r].w * b.w;
            }
        }
    }
}

// O[r][n] += sum_j P[row(r)][j] V[j][head_column(n)] for j < length (P and V are 0 up to a multiple
// of 4). P has NP columns. Whole pieces of columns beyond the head dim are skipped.
template <int D, int NP, int TM>
TILE_FUNCTION void add_product(float (&O)[TM][D / LANES], const float* P, const float* V, int length,
                               int headdim) {
    constexpr int N = ADJACENT<D>;
    P += group() * STRIDE<NP>;
    V += lane() * N;
#pragma unroll 2
    for (int j = 0; j < length; j += 4) {
        float p[TM][4];
#pragma unroll
        for (int r = 0; r < TM; ++r) {
            const float4 four = load4(P + GROUPS * r * STRIDE<NP> + j);
            p[r][0] = four.x, p[r][1] = four.y, p[r][2] = four.z, p[r][3] = four.w;
        }
#pragma unroll
        for (int first = 0; first < D; first += PIECE<D>) {
            if (first > 0 && first >= headdim) break;
            const int n = first / LANES;
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float* at = V + (j + e) * STRIDE<D> + first;
                float v[4];
                if (N == 4) {
                    const float4 four = load4(at);
                    v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
                } else {
                    const float2 two = *reinterpret_cast<const float2*>(at);
                    v[0] = two.x, v[1] = two.y;
                }
#pragma unroll
                for (int r = 0; r < TM; ++r)
#pragma unroll
                    for (int i = 0; i < N; ++i) O[r][n + i] += p[r][e] * v[i];
            }
        }
    }
}

// Stores this thread's piece of S to a tile (rows, 16 TN) in shared memory, for add_product. Only
// the lanes of a group read its rows, so a __syncwarp() before reading is enough.
template <int TM, int TN>
__device__ __forceinline__ void share(float* tile, const float (&S)[TM][TN]) {
#pragma unroll
    for (int r = 0; r < TM; ++r)
#pragma unroll
        for (int c = 0; c < TN; ++c) tile[row(r) * STRIDE<LANES * TN> + column(c)] = S[r][c];
}

// ---- rows --------------------------------------------------------------------------------------

// The maximum and the sum over the 16 lanes of a group, the same bits for all. Every thread of the
// block must take part.
__device__ __forceinline__ float maximum_of_lanes(float x) {
    for (int other = LANES / 2; other; other /= 2) x = fmaxf(x, __shfl_xor_sync(WARP, x, other));
    return x;
}
__device__ __forceinline__ float sum_of_lanes(float x) {
    for (int other = LANES / 2; other; other /= 2) x += __shfl_xor_sync(WARP, x, other);
    return x;
}
