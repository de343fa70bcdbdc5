// Atomics: two of them never race, an atomic and a plain access do. Counters, histograms, maxima,
// slots, flags. See barriers.cu for the notation.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

//: histogram<true><<<2, 64>>>(x=ints(128), bins=zeros(8, dtype=int32)) -> bins = full((8,), 16)
//: histogram<false><<<2, 64>>>(x=ints(128), bins=zeros(8, dtype=int32)) -> race mine add add
template <bool ATOMIC>
__global__ void histogram(const int* x, int* bins) {
    __shared__ int mine[8];
    int i = threadIdx.x, bin = x[blockIdx.x * 64 + i] % 8;
    if (i < 8) mine[i] = 0;
    __syncthreads();
    if (ATOMIC) {
        atomicAdd(&mine[bin], 1);
    } else {
        mine[bin] += 1;  //! add
    }
    __syncthreads();
    if (i < 8) atomicAdd(&bins[i], mine[i]);
}

// One thread of each block adds to the total.
//: total_of_blocks<true><<<3, 64>>>(x=ramp(192), total=zeros(1)) -> total = x.sum()
//: total_of_blocks<false><<<3, 64>>>(x=ramp(192), total=zeros(1)) -> race total add add
template <bool ATOMIC>
__global__ void total_of_blocks(const float* x, float* total) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[blockIdx.x * 64 + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) {
        if (ATOMIC) {
            atomicAdd(total, sum);
        } else {
            *total += sum;  //! add
        }
    }
}

// An atomic, then a plain read of the same cell, with and without a barrier between them.
//: counted<true><<<1, 64>>>(out=zeros(64, dtype=int32)) -> out = full((64,), 64)
//: counted<false><<<1, 64>>>(out=zeros(64, dtype=int32)) -> race count add get
template <bool FENCED>
__global__ void counted(int* out) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1);  //! add
    if (FENCED) __syncthreads();
    out[threadIdx.x] = count;  //! get
}

// A plain write, and then atomics.
//: zeroed<true><<<1, 64>>>(out=zeros(1, dtype=int32)) -> out = 64
//: zeroed<false><<<1, 64>>>(out=zeros(1, dtype=int32)) -> race count zero add; maybe uninitialised count add
template <bool FENCED>
__global__ void zeroed(int* out) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;  //! zero
    if (FENCED) __syncthreads();
    atomicAdd(&count, 1);  //! add
    __syncthreads();
    if (threadIdx.x == 0) out[0] = count;
}

// A plain read of a cell that other blocks add to; no barrier orders blocks.
//: read_of_a_counter<true><<<2, 32>>>(counter=zeros(1, dtype=int32), out=zeros(64, dtype=int32)) -> counter = 64
//: read_of_a_counter<false><<<2, 32>>>(counter=zeros(1, dtype=int32), out=zeros(64, dtype=int32))
//:     -> race counter add get
template <bool ATOMIC>
__global__ void read_of_a_counter(int* counter, int* out) {
    atomicAdd(counter, 1);  //! add
    __syncthreads();
    int now = ATOMIC ? atomicAdd(counter, 0) : *counter;  //! get
    out[blockIdx.x * 32 + threadIdx.x] = now;
}

// The largest float, by a loop over compare-and-swap that starts from a guess.
//: largest_by_swaps<<<2, 64>>>(x=draws(128).abs(), most=zeros(1)) -> most = x.max()
__global__ void largest_by_swaps(const float* x, float* most) {
    float mine = x[blockIdx.x * 64 + threadIdx.x];
    int* bits = reinterpret_cast<int*>(most);
    int assumed, old = 0;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(fmaxf(mine, __int_as_float(assumed))));
    } while (old != assumed);
}

//: swapped<<<1, 64>>>(out=zeros(1, dtype=int32)) -> out = 64 * 65 // 2
__global__ void swapped(int* out) {
    __shared__ int slot, sum;
    if (threadIdx.x == 0) slot = sum = 0;
    __syncthreads();
    atomicAdd(&sum, atomicExch(&slot, threadIdx.x + 1));  // each number is put in once, and taken out once or left
    __syncthreads();
    if (threadIdx.x == 0) out[0] = sum + slot;
}

//: operations<<<2, 32>>>(x=ints(64), out=tensor([0, 99, 0, 5, 2, 0, 1023, 0], dtype=int32))
//:     -> out = tensor([63, 0, -2016, 3, 10, 63, 320, 63])
__global__ void operations(const int* x, int* out) {
    int mine = x[blockIdx.x * 32 + threadIdx.x];
    unsigned* bits = reinterpret_cast<unsigned*>(out);
    atomicMax(&out[0], mine);
    atomicMin(&out[1], mine);
    atomicSub(&out[2], mine);
    atomicInc(&bits[3], 10);  // 0 to 10, and around
    if (mine < 3) atomicDec(&bits[4], 10);
    atomicOr(&bits[5], mine);
    atomicAnd(&bits[6], mine | 320);
    if (mine > 0) atomicXor(&bits[7], mine - 1);
}

//: wide<<<2, 64>>>(x=ints(128), sums=zeros(2, dtype=int64), exact=zeros(1, dtype=float64))
//:     -> sums = tensor([8128 * 2**40, 127 * 2**40]); exact = 8128 / 2 + 128 * 2.0**40
__global__ void wide(const int* x, long long* sums, double* exact) {
    unsigned long long* s = reinterpret_cast<unsigned long long*>(sums);
    int mine = x[blockIdx.x * 64 + threadIdx.x];
    atomicAdd(&s[0], (unsigned long long)mine << 40);
    atomicMax(&s[1], (unsigned long long)mine << 40);
    atomicAdd(exact, mine / 2.0 + (1LL << 40));
}

// Each half of a word holds a sum.
//: narrow<<<2, 32>>>(halves=zeros(3, dtype=float16), brain=zeros(1, dtype=bfloat16))
//:     -> halves = tensor([64.0, 32.0, 64.0]); brain = 64.0
__global__ void narrow(__half* halves, __nv_bfloat16* brain) {
    atomicAdd(&halves[2], __float2half(1.0f));
    atomicAdd(reinterpret_cast<__half2*>(halves), __floats2half2_rn(1.0f, 0.5f));
    atomicAdd(brain, __float2bfloat16(1.0f));
}

//: within_a_block<<<2, 64>>>(out=zeros(2, dtype=int32)) -> out = tensor([64, 64])
__global__ void within_a_block(int* out) {
    atomicAdd_block(&out[blockIdx.x], 1);
}

// A slot for each even number; the faulty kernel uses one slot for two numbers.
//: slots<1><<<2, 32>>>(x=ints(64), used=zeros(1, dtype=int32), out=zeros(32, dtype=int32))
//:     -> used = 32; sorted out = x[::2]
//: slots<2><<<2, 32>>>(x=ints(64), used=zeros(1, dtype=int32), out=zeros(32, dtype=int32))
//:     -> race out put put different
template <int SHARE>
__global__ void slots(const int* x, int* used, int* out) {
    int mine = x[blockIdx.x * 32 + threadIdx.x];
    if (mine % 2 == 0) out[atomicAdd(used, 1) / SHARE] = mine;  //! put
}

// Bits of one word, set by all lanes.
//: bits<true><<<1, 32>>>(out=zeros(1, dtype=int32)) -> out = -1
//: bits<false><<<1, 32>>>(out=zeros(1, dtype=int32)) -> race word set set
template <bool ATOMIC>
__global__ void bits(int* out) {
    __shared__ unsigned word;
    if (threadIdx.x == 0) word = 0;
    __syncthreads();
    if (ATOMIC) {
        atomicOr(&word, 1u << threadIdx.x);
    } else {
        word |= 1u << threadIdx.x;  //! set
    }
    __syncthreads();
    if (threadIdx.x == 0) out[0] = word;
}

// Threads wait for a flag that another warp sets, or that no thread sets.
//: flag<true><<<1, 64>>>(out=zeros(1, dtype=int32)) -> out = 7
//: flag<false><<<1, 64>>>(out=zeros(1, dtype=int32)) -> deadlock * spin
template <bool SET>
__global__ void flag(int* out) {
    if (threadIdx.x == 0) while (atomicAdd(out, 0) == 0) {}  //! spin
    if (SET && threadIdx.x == 32) atomicExch(out, 7);
}

//: volatile_flag<<<1, 2>>>(out=zeros(2, dtype=int32)) -> deadlock * spin; unsafe
__global__ void volatile_flag(int* out) {
    volatile int* set = out;
    if (threadIdx.x == 0) while (set[0] == 0) {}  //! spin
    out[1] = 1;
}

//: shares_of_the_sum(x=ramp(128), total=zeros(1), out=zeros(128)) -> total = x.sum(); out = x / x.sum()
__global__ void sum_into(const float* x, float* total) {
    float v = x[blockIdx.x * 64 + threadIdx.x];
    for (int m = 16; m > 0; m /= 2) v += __shfl_xor_sync(0xffffffff, v, m);
    if (threadIdx.x % 32 == 0) atomicAdd(total, v);
}

__global__ void divide_by(const float* x, const float* total, float* out) {
    int i = blockIdx.x * 64 + threadIdx.x;
    out[i] = x[i] / *total;
}

void shares_of_the_sum(const float* x, float* total, float* out) {  // a launch is over before the next one begins
    sum_into<<<2, 64>>>(x, total);
    divide_by<<<2, 64>>>(x, total, out);
}
