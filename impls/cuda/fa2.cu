// FlashAttention-2 in CUDA C++: the host functions. The kernels are in fa2_forward.cuh and fa2_backward.cuh.
//
// q, k, v, bias, ... are as problem.cuh describes them, their sizes and strides in `problem`; bias may be null. All
// return a cudaError_t, 0 for success. If it is another, fa2_refusal gives the reason in words, with the numbers.
#include <type_traits>

#include "fa2_backward.cuh"

namespace {

constexpr int LARGEST_FORWARD = 1024, LARGEST_BACKWARD = 256, NARROW = 256;  // head dims; NARROW: of one block

template <class... S>
struct Shapes {};
// Taken is the first that has the columns for the head dim and fits in shared memory. (On an H100 that is always one of
// 8 or 4 rows a thread; those of 2 are for devices with less.)
using ForwardShapes = Shapes<Shape<32, 8, 4>, Shape<64, 8, 4>, Shape<128, 8, 2>, Shape<128, 2, 1>, Shape<256, 4, 2>,
                             Shape<256, 2, 1>>;
using WideShapes = Shapes<Shape<NARROW, 4, 2>, Shape<NARROW, 2, 1>>;
using KeyShapes = Shapes<Shape<32, 8, 4>, Shape<64, 8, 2>, Shape<128, 8, 2>, Shape<128, 2, 1>, Shape<256, 4, 2>,
                         Shape<256, 2, 1>>;
using QueryShapes = Shapes<Shape<32, 8, 4>, Shape<64, 8, 4>, Shape<128, 8, 2>, Shape<128, 2, 1>, Shape<256, 4, 2>,
                           Shape<256, 2, 1>>;

// What a block keeps in shared memory, in floats.
constexpr auto FORWARD = [](auto s) { return (s.ROWS + 2 * s.COLUMNS) * STRIDE<s.D> + s.P_FLOATS; };
constexpr auto BACKWARD = [](auto s) { return 2 * (s.ROWS + s.COLUMNS) * STRIDE<s.D> + s.P_FLOATS; };
constexpr auto BIAS_GRADIENT = [](auto s) { return 2 * (s.ROWS + s.COLUMNS) * STRIDE<s.D> + GROUPS * s.COLUMNS; };

int check(const Problem& p, int largest_headdim) {
    if (p.headdim < 1 || p.headdim > largest_headdim)
        return refuse(cudaErrorInvalidValue, "headdim=%d: should be 1 to %d", p.headdim, largest_headdim);
    for (int size : {p.batch, p.nheads, p.nheads_k, p.seqlen_q, p.seqlen_k})
        if (size < 0)
            return refuse(cudaErrorInvalidValue, "batch=%d nheads=%d nheads_k=%d seqlen_q=%d seqlen_k=%d: negative",
                          p.batch, p.nheads, p.nheads_k, p.seqlen_q, p.seqlen_k);
    if (p.nheads && (p.nheads_k == 0 || p.nheads % p.nheads_k))
        return refuse(cudaErrorInvalidValue, "nheads_k=%d should divide nheads=%d", p.nheads_k, p.nheads);
    if (p.dtype < FLOAT32 || p.dtype > BFLOAT16 || p.bias_dtype < FLOAT32 || p.bias_dtype > BFLOAT16)
        return refuse(cudaErrorInvalidValue, "dtype %d, of bias %d: should be 0 to 2", p.dtype, p.bias_dtype);
    return cudaSuccess;
}

// -> run(T()) with the type of q.
template <class Run>
int with_dtype(const Problem& p, Run run) {
    switch (p.dtype) {
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return run(0.0f);
    }
}

// -> run(shape, its bytes of shared memory) with the first shape that will do.
template <class... S, class Floats, class Run>
int with_shape(const char* name, Shapes<S...>, int headdim, Floats floats, Run run) {
    int64_t limit = 0, least = INT64_MAX;
    int error = shared_memory_limit(&limit);
    bool found = error != cudaSuccess;
    auto consider = [&](auto shape) {
        const int64_t bytes = floats(shape) * sizeof(float);
        if (found || headdim > shape.D) return;
        least = bytes < least ? bytes : least;
        found = bytes <= limit;
        if (found) error = run(shape, bytes);
    };
    (consider(S()), ...);
    return found ? error
                 : refuse(cudaErrorInvalidConfiguration,
                          "%s: headdim=%d needs %lld bytes of shared memory in a block, the device has %lld", name,
                          headdim, static_cast<long long>(least), static_cast<long long>(limit));
}

int64_t tiles(int length, int tile) { return round_up(length, tile) / tile; }

}  // namespace

// Why the last call of this thread did not succeed -> text, cut to `size` bytes with the 0 at its end. -> its length
int fa2_refusal(char* text, int size) { return snprintf(text, size, "%s", refusal); }

// -> out, lse. Head dims up to 1024.
int fa2_forward(const void* q, const void* k, const void* v, const void* bias, void* out, float* lse,
                const int64_t* problem, double softmax_scale, void* stream) {
    const Problem p = problem_of(problem, softmax_scale);
    if (int error = check(p, LARGEST_FORWARD)) return error;
    return with_dtype(p, [&](auto element) {
        using T = decltype(element);
        auto run = [&](auto wide, auto shape, int64_t bytes) {
            using S = decltype(shape);
            const int64_t blocks = tiles(p.seqlen_q, S::ROWS) * tiles(p.headdim, S::D) * p.nheads * p.batch;
            return launch("fa2_forward", fa2_forward_kernel<T, S, decltype(wide)::value>, blocks, bytes, stream,
                          static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), bias,
                          static_cast<T*>(out), lse, p);
        };
        if (p.headdim > NARROW)
            return with_shape("fa2_forward", WideShapes(), NARROW, FORWARD,
                              [&](auto shape, int64_t bytes) { return run(std::true_type(), shape, bytes); });
        return with_shape("fa2_forward", ForwardShapes(), p.headdim, FORWARD,
                          [&](auto shape, int64_t bytes) { return run(std::false_type(), shape, bytes); });
    });
}

// -> dq, dk, dv, and delta (batch, nheads, seqlen_q), which the gradient of the bias needs. Head dims up to 256.
int fa2_backward(const void* dout, const void* q, const void* k, const void* v, const void* bias, const void* out,
                 const float* lse, float* delta, void* dq, void* dk, void* dv, const int64_t* problem,
                 double softmax_scale, void* stream) {
    const Problem p = problem_of(problem, softmax_scale);
    if (int error = check(p, LARGEST_BACKWARD)) return error;
    return with_dtype(p, [&](auto element) {
        using T = decltype(element);
        auto of = [](const void* x) { return static_cast<const T*>(x); };
        auto to = [](void* x) { return static_cast<T*>(x); };
        const int64_t rows = int64_t(p.batch) * p.nheads * p.seqlen_q;
        if (int error = launch("fa2_delta", fa2_delta_kernel<T>, (rows + THREADS / 32 - 1) / (THREADS / 32), 0, stream,
                               of(out), of(dout), delta, p))
            return error;
        int error = with_shape("fa2_dk_dv", KeyShapes(), p.headdim, BACKWARD, [&](auto shape, int64_t bytes) {
            using S = decltype(shape);
            const int64_t blocks = tiles(p.seqlen_k, S::ROWS) * p.nheads_k * p.batch;
            return launch("fa2_dk_dv", fa2_dk_dv_kernel<T, S>, blocks, bytes, stream, of(dout), of(q), of(k), of(v),
                          bias, lse, delta, to(dk), to(dv), p);
        });
        if (error) return error;
        return with_shape("fa2_dq", QueryShapes(), p.headdim, BACKWARD, [&](auto shape, int64_t bytes) {
            using S = decltype(shape);
            const int64_t blocks = tiles(p.seqlen_q, S::ROWS) * p.nheads * p.batch;
            return launch("fa2_dq", fa2_dq_kernel<T, S>, blocks, bytes, stream, of(dout), of(q), of(k), of(v), bias,
                          lse, delta, to(dq), p);
        });
    });
}

// -> dbias, summed over what its strides (batch, head, query, key) say: a dimension that was broadcast has stride 0.
// delta as fa2_backward has left it. dbias has bias's dtype; q's sizes are those of the problem.
int fa2_bias_gradient(const void* dout, const void* q, const void* k, const void* v, const void* bias, const float* lse,
                      const float* delta, void* dbias, const int64_t* problem, const int64_t* dbias_strides,
                      double softmax_scale, void* stream) {
    const Problem p = problem_of(problem, softmax_scale);
    if (int error = check(p, LARGEST_BACKWARD)) return error;
    const BiasStrides strides = {dbias_strides[0], dbias_strides[1], dbias_strides[2], dbias_strides[3]};
    return with_dtype(p, [&](auto element) {
        using T = decltype(element);
        auto of = [](const void* x) { return static_cast<const T*>(x); };
        return with_shape("fa2_bias_gradient", QueryShapes(), p.headdim, BIAS_GRADIENT, [&](auto shape, int64_t bytes) {
            using S = decltype(shape);
            const int64_t blocks = tiles(p.seqlen_k, S::COLUMNS) * (strides.query ? tiles(p.seqlen_q, S::ROWS) : 1) *
                                   (strides.head ? p.nheads : 1) * (strides.batch ? p.batch : 1);
            return launch("fa2_bias_gradient", fa2_bias_gradient_kernel<T, S>, blocks, bytes, stream, of(dout), of(q),
                          of(k), of(v), bias, lse, delta, dbias, strides, p);
        });
    });
}
