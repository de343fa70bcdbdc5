// Small and wide types: a race is about bytes, so adjacent halves and bytes do not race, and
// overlapping accesses do. See barriers.cu for the notation.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

//: small_cells<unsigned char><<<1, 64>>>(x=ints(64), out=zeros(64, dtype=int32)) -> out = x.flip(0)
//: small_cells<signed char><<<1, 64>>>(x=ints(64) - 32, out=zeros(64, dtype=int32)) -> out = x.flip(0)
//: small_cells<short><<<1, 64>>>(x=ints(64) * 100, out=zeros(64, dtype=int32)) -> out = x.flip(0)
//: small_cells<__half><<<1, 64>>>(x=ints(64) * 10, out=zeros(64, dtype=int32)) -> out = x.flip(0)
//: small_cells<bool><<<1, 64>>>(x=ints(64) % 3, out=zeros(64, dtype=int32)) -> out = x.flip(0) > 0
template <typename T>
__global__ void small_cells(const int* x, int* out) {
    __shared__ T cells[64];
    int i = threadIdx.x;
    cells[i] = x[i];
    __syncthreads();
    out[i] = cells[63 - i];
}

//: bytes_of_a_tensor<<<2, 32>>>(x=ints(64), out=zeros(64, dtype=uint8), odd=zeros(64, dtype=bool))
//:     -> out = x; odd = x % 2 == 1
__global__ void bytes_of_a_tensor(const int* x, unsigned char* out, bool* odd) {
    int i = blockIdx.x * 32 + threadIdx.x;
    out[i] = x[i];
    odd[i] = x[i] & 1;
}

// 32 threads write the even halves, 32 the odd ones; in the faulty kernel the first 32 write whole
// words.
//: even_and_odd<false><<<1, 64>>>(out=zeros(64, dtype=int32)) -> out = tensor([1, 2] * 32)
//: even_and_odd<true><<<1, 64>>>(out=zeros(64, dtype=int32)) -> race cells even odd
template <bool WORDS>
__global__ void even_and_odd(int* out) {
    __shared__ __align__(4) unsigned short cells[64];
    int i = threadIdx.x;
    if (WORDS) {
        if (i < 32) reinterpret_cast<unsigned*>(cells)[i] = 1;  //! even
    } else {
        if (i < 32) cells[2 * i] = 1;
    }
    if (i >= 32) cells[2 * (i - 32) + 1] = 2;  //! odd
    __syncthreads();
    out[i] = cells[i];
}

struct Nibbles {
    unsigned char low : 4, high : 4;
};

struct Bytes {
    unsigned char low, high;
};

// Two fields of one byte are one cell, two bytes are two.
//: fields<Bytes><<<1, 64>>>(x=ints(64) % 16, out=zeros(32, dtype=int32)) -> out = x[::2] + 16 * x[1::2]
//: fields<Nibbles><<<1, 64>>>(x=ints(64) % 16, out=zeros(32, dtype=int32)) -> race pairs low high
template <typename Pair>
__global__ void fields(const int* x, int* out) {
    __shared__ Pair pairs[32];
    int i = threadIdx.x;
    if (i < 32) pairs[i] = Pair{};
    __syncthreads();
    if (i % 2 == 0) pairs[i / 2].low = x[i];  //! low
    if (i % 2 == 1) pairs[i / 2].high = x[i];  //! high
    __syncthreads();
    if (i < 32) out[i] = pairs[i].low + 16 * pairs[i].high;
}

// Each thread writes one component.
//: components<<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.view(32, 2).flip(1).view(-1)
__global__ void components(const float* x, float* out) {
    __shared__ float2 pairs[32];
    int i = threadIdx.x;
    if (i < 32) {
        pairs[i].x = x[2 * i];
    } else {
        pairs[i - 32].y = x[2 * (i - 32) + 1];
    }
    __syncthreads();
    if (i < 32) reinterpret_cast<float2*>(out)[i] = make_float2(pairs[i].y, pairs[i].x);
}

// Each thread writes two halves; in the faulty kernel the second thread begins one half too early.
//: pairs_of_halves<true><<<1, 32>>>(x=ramp(64), out=zeros(64, dtype=float16)) -> out = 2 * x
//: pairs_of_halves<false><<<1, 32>>>(x=ramp(64), out=zeros(64, dtype=float16)) -> race out pair one
template <bool APART>
__global__ void pairs_of_halves(const float* x, __half* out) {
    int i = threadIdx.x;
    __half2 two = __hmul2(__floats2half2_rn(x[2 * i], x[2 * i + 1]), __float2half2_rn(2.0f));
    reinterpret_cast<__half2*>(out)[i] = two;  //! pair
    if (!APART && i > 0) out[2 * i - 1] = __low2half(two);  //! one
}

//: bf16_tile<<<1, 64>>>(x=draws(64).to(bfloat16), out=zeros(64)) -> out = x.float().flip(0)
__global__ void bf16_tile(const __nv_bfloat16* x, float* out) {
    __shared__ __nv_bfloat16 tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    __syncthreads();
    out[i] = __bfloat162float(tile[63 - i]);
}

//: half_products<<<1, 32>>>(x=draws(32).half(), y=draws(32).half(), out=zeros(32, dtype=float16)) -> out = x * y + x
__global__ void half_products(const __half* x, const __half* y, __half* out) {
    int i = threadIdx.x;
    out[i] = __hadd(__hmul_rn(x[i], y[i]), x[i]);
}

union Word {
    float number;
    unsigned bits;
    unsigned char bytes[4];
};

// The sign of a float, cleared in its bits or in its highest byte.
//: through_a_union<<<1, 32>>>(x=-1 - ramp(32), out=zeros(32)) -> out = -x
__global__ void through_a_union(const float* x, float* out) {
    Word word;
    word.number = x[threadIdx.x];
    if (threadIdx.x % 2) {
        word.bits &= 0x7fffffff;
    } else {
        word.bytes[3] &= 0x7f;
    }
    out[threadIdx.x] = word.number;
}

// Floats as integers in shared memory, by reinterpret_cast and by __float_as_int.
//: as_integers<<<1, 32>>>(x=ramp(32) + 0.5, out=zeros(32)) -> out = x.flip(0)
__global__ void as_integers(const float* x, float* out) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    reinterpret_cast<int*>(tile)[i] = __float_as_int(x[i]);
    __syncthreads();
    out[i] = tile[31 - i];
}

//: four_bytes<<<1, 16>>>(x=ints(64).to(uint8), out=zeros(16, dtype=int32)) -> out = x.view(16, 4).sum(1)
__global__ void four_bytes(const unsigned char* x, int* out) {
    uchar4 v = reinterpret_cast<const uchar4*>(x)[threadIdx.x];
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}

// Wide elements: 16 bytes at once of integers and of doubles.
//: sixteen_bytes<<<1, 16>>>(x=ints(64), y=ramp(32).double(), out=zeros(64, dtype=int32), z=zeros(32, dtype=float64))
//:     -> out = x.view(16, 4).flip(1).view(-1); z = y / 2
__global__ void sixteen_bytes(const int* x, const double* y, int* out, double* z) {
    __shared__ int4 ints[16];
    __shared__ double2 doubles[16];
    int i = threadIdx.x;
    ints[15 - i] = reinterpret_cast<const int4*>(x)[15 - i];
    doubles[15 - i] = reinterpret_cast<const double2*>(y)[15 - i];
    __syncthreads();
    int4 v = ints[i];
    double2 w = doubles[i];
    reinterpret_cast<int4*>(out)[i] = make_int4(v.w, v.z, v.y, v.x);
    reinterpret_cast<double2*>(z)[i] = make_double2(w.x / 2, w.y / 2);
}

// Volatile cells need barriers like others, and race without them.
//: through_volatile<true><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.flip(0)
//: through_volatile<false><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> race tile put get; maybe uninitialised tile get
template <bool FENCED>
__global__ void through_volatile(const float* x, float* out) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];  //! put
    if (FENCED) __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];  //! get
}

//: mathematics<<<1, 32>>>(x=draws(32), out=zeros(5, 32))
//:     -> out = stack((x.exp(), x.exp2(), x.abs().rsqrt(), x * x + x, x.clamp(0, 1)))
__global__ void mathematics(const float* x, float* out) {
    int i = threadIdx.x;
    float v = x[i];
    out[i] = __expf(v);
    out[32 + i] = exp2f(v);
    out[64 + i] = rsqrtf(fabsf(v));
    out[96 + i] = __fmaf_rn(v, v, v);
    out[128 + i] = __saturatef(v);
}

// Bytes by four threads, read as one word by another, and the other way around.
//: bytes_and_words<true><<<1, 64>>>(x=ints(64).to(uint8), out=zeros(16, dtype=int32), back=zeros(64, dtype=uint8))
//:     -> out = x.view(16, 4).long() @ tensor([1, 2**8, 2**16, 2**24]); back = x
//: bytes_and_words<false><<<1, 64>>>(x=ints(64).to(uint8), out=zeros(16, dtype=int32), back=zeros(64, dtype=uint8))
//:     -> race bytes put word; maybe uninitialised bytes word
template <bool FENCED>
__global__ void bytes_and_words(const unsigned char* x, int* out, unsigned char* back) {
    __shared__ __align__(4) unsigned char bytes[64];
    __shared__ int words[16];
    int i = threadIdx.x;
    bytes[i] = x[i];  //! put
    if (FENCED) __syncthreads();
    if (i < 16) words[i] = out[i] = reinterpret_cast<int*>(bytes)[i];  //! word
    __syncthreads();
    back[i] = reinterpret_cast<unsigned char*>(words)[i];
}

// A word of which only one half was ever written.
//: half_written<2><<<1, 32>>>(out=zeros(32, dtype=int32)) -> out = full((32,), 7 + 7 * 2**16)
//: half_written<1><<<1, 32>>>(out=zeros(32, dtype=int32)) -> uninitialised words get
template <int HALVES>
__global__ void half_written(int* out) {
    __shared__ int words[32];
    int i = threadIdx.x;
    for (int k = 0; k < HALVES; k++) reinterpret_cast<short*>(words)[2 * i + k] = 7;
    __syncthreads();
    out[i] = words[31 - i];  //! get
}

struct Complex {
    float re, im;
    Complex() = default;
    __host__ __device__ Complex(float re, float im) : re(re), im(im) {}
    __device__ Complex operator*(Complex o) const { return {re * o.re - im * o.im, re * o.im + im * o.re}; }
};

// Structs with constructors, in shared memory and out of it.
//: squares<true><<<1, 32>>>(x=ramp(64), out=zeros(64))
//:     -> out = view_as_real(view_as_complex(x.view(32, 2)).flip(0).square()).view(-1)
//: squares<false><<<1, 32>>>(x=ramp(64), out=zeros(64)) -> race tile put get; maybe uninitialised tile get
template <bool FENCED>
__global__ void squares(const float* x, float* out) {
    __shared__ Complex tile[32];
    int i = threadIdx.x;
    tile[i] = Complex(x[2 * i], x[2 * i + 1]);  //! put
    if (FENCED) __syncthreads();
    Complex v = tile[31 - i];  //! get
    reinterpret_cast<Complex*>(out)[i] = v * v;
}

// The same memory first as floats, then as integers; between them a barrier, or none.
//: two_lives<true><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = 65 * x.flip(0)
//: two_lives<false><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> race memory old new
template <bool FENCED>
__global__ void two_lives(const float* x, float* out) {
    __shared__ union {
        float numbers[64];
        short small[128];
    } memory;
    int i = threadIdx.x;
    memory.numbers[i] = x[i];
    __syncthreads();
    float v = memory.numbers[63 - i];  //! old
    if (FENCED) __syncthreads();
    memory.small[i] = i;  //! new
    __syncthreads();
    out[i] = v + 64 * memory.small[63 - i];
}

// Through a lambda, and through a struct with an operator: the lines are those where it is called.
struct Padded {
    float cells[8][9];
    __device__ __forceinline__ float& operator()(int i) { return cells[i / 8][i % 8]; }
};

//: indirectly<true><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.flip(0)
//: indirectly<false><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> race tile put get; race padded move last;
//:     maybe uninitialised tile get; maybe uninitialised padded last
template <bool FENCED>
__global__ void indirectly(const float* x, float* out) {
    __shared__ float tile[64];
    __shared__ Padded padded;
    auto at = [&](int i) -> float& { return tile[i ^ 1]; };
    int i = threadIdx.x;
    at(i) = x[i];  //! put
    if (FENCED) __syncthreads();
    float v = at(63 - i);  //! get
    padded(i) = v;  //! move
    if (FENCED) __syncthreads();
    out[i] = padded(i ^ 1) + v - padded(i ^ 1);  //! last
}
