// Barriers of a block: each kernel correct, and again with one barrier missing, moved, or not
// reached by all threads.
//
// A line "//: call -> verdict" says how the kernel below it is called, and what the tracer should
// say: "out = ..." is the result of a correct kernel; anything else is a finding of a faulty one,
// with the lines that are tagged "//! tag" in the kernel. tests/emulator/cuda/test_battery.py reads
// both and explains the notation.

//: exchange<true><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.flip(0)
//: exchange<false><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> race tile put get; maybe uninitialised tile get
template <bool FENCED>
__global__ void exchange(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];  //! put
    if (FENCED) __syncthreads();
    out[i] = tile[63 - i];  //! get
}

// A barrier after the reads: without it the next round overwrites what others still read.
//: rounds<true><<<1, 64>>>(x=ramp(192), out=zeros(64)) -> out = x.view(3, 64).flip(1).sum(0)
//: rounds<false><<<1, 64>>>(x=ramp(192), out=zeros(64)) -> race tile put get
template <bool FENCED>
__global__ void rounds(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    float sum = 0;
    for (int round = 0; round < 3; round++) {
        tile[i] = x[round * 64 + i];  //! put
        __syncthreads();
        sum += tile[63 - i];  //! get
        if (FENCED) __syncthreads();
    }
    out[i] = sum;
}

// With two buffers one barrier a round is enough, if threads read from the buffer that was just
// filled.
//: two_buffers<0><<<1, 64>>>(x=ramp(256), out=zeros(64)) -> out = x.view(4, 64).flip(1).sum(0)
//: two_buffers<1><<<1, 64>>>(x=ramp(256), out=zeros(64)) -> race tile put get
template <int BEHIND>
__global__ void two_buffers(const float* x, float* out) {
    __shared__ float tile[2][64];
    int i = threadIdx.x;
    float sum = 0;
    tile[1][i] = 0;
    for (int round = 0; round < 4; round++) {
        tile[round % 2][i] = x[round * 64 + i];  //! put
        __syncthreads();
        sum += tile[(round + BEHIND) % 2][63 - i];  //! get
    }
    out[i] = sum;
}

// Prefix sums after Hillis and Steele: from one buffer into the other; the faulty kernel works in
// place.
//: prefix_sums<true><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.cumsum(0)
//: prefix_sums<false><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> race sums step step
template <bool TWO_BUFFERS>
__global__ void prefix_sums(const float* x, float* out) {
    __shared__ float sums[2][64];
    int i = threadIdx.x, from = 0;
    sums[0][i] = x[i];
    __syncthreads();
    for (int distance = 1; distance < 64; distance *= 2) {
        int to = TWO_BUFFERS ? 1 - from : from;
        sums[to][i] = sums[from][i] + (i >= distance ? sums[from][i - distance] : 0);  //! step
        __syncthreads();
        from = to;
    }
    out[i] = sums[from][i];
}

//: tree<true><<<1, 128>>>(x=ramp(128), out=zeros(1)) -> out = x.sum()
//: tree<false><<<1, 128>>>(x=ramp(128), out=zeros(1)) -> race sum add add
template <bool FENCED>
__global__ void tree(const float* x, float* out) {
    __shared__ float sum[128];
    int i = threadIdx.x;
    sum[i] = x[i];
    __syncthreads();
    for (int s = 64; s > 0; s /= 2) {
        if (i < s) sum[i] += sum[i + s];  //! add
        if (FENCED) __syncthreads();
    }
    if (i == 0) out[0] = sum[0];
}

// Barriers do not wait for threads that have returned.
//: shrinking_tree<<<1, 128>>>(x=ramp(128), out=zeros(1)) -> out = x.sum()
__global__ void shrinking_tree(const float* x, float* out) {
    __shared__ float sum[128];
    int i = threadIdx.x;
    sum[i] = x[i];
    for (int s = 64; s > 0; s /= 2) {
        __syncthreads();
        if (i >= s) return;
        sum[i] += sum[i + s];
    }
    out[0] = sum[0];
}

// A sum over the block, twice with the same scratch: the second call can overwrite the result of
// the first.
template <bool FENCED>
__device__ float block_sum(float value, float* scratch) {
    int i = threadIdx.x;
    if (FENCED) __syncthreads();
    scratch[i] = value;  //! put
    __syncthreads();
    for (int s = 32; s > 0; s /= 2) {
        if (i < s) scratch[i] += scratch[i + s];
        __syncthreads();
    }
    return scratch[0];  //! get
}

//: centred<true><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = (x - x.mean()) / x.var(correction=0).sqrt()
//: centred<false><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> race scratch block_sum.put block_sum.get
template <bool FENCED>
__global__ void centred(const float* x, float* out) {
    __shared__ float scratch[64];
    float mean = block_sum<FENCED>(x[threadIdx.x], scratch) / 64;
    float mine = x[threadIdx.x] - mean;
    out[threadIdx.x] = mine / sqrtf(block_sum<FENCED>(mine * mine, scratch) / 64);
}

// 40 of 64 threads stay; the elements of the others are not written.
//: early_return<true><<<1, 64>>>(x=ramp(40), out=zeros(40), n=40) -> out = x.flip(0)
//: early_return<false><<<1, 64>>>(x=ramp(40), out=zeros(40), n=40) -> uninitialised tile get
template <bool WITHIN>
__global__ void early_return(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    if (i >= n) return;
    tile[i] = x[i];
    __syncthreads();
    out[i] = tile[(WITHIN ? n : 64) - 1 - i];  //! get
}

//: uniform_branch<<<1, 64>>>(x=ramp(64), out=zeros(64), turn=1) -> out = x.flip(0)
//: uniform_branch<<<1, 64>>>(x=ramp(64), out=zeros(64), turn=0) -> out = x
__global__ void uniform_branch(const float* x, float* out, int turn) {
    __shared__ float tile[64];
    int i = threadIdx.x, from = i;
    tile[i] = x[i];
    if (turn) {
        __syncthreads();
        from = 63 - i;
    }
    out[i] = tile[from];
}

//: past_the_end<<<1, 64>>>(x=ramp(64), out=zeros(64)) -> barrier * wait
__global__ void past_the_end(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    if (i < 32) {
        __syncthreads();  //! wait
        out[i] = tile[31 - i];
    }
}

//: two_places<<<1, 64>>>(x=ramp(64), out=zeros(64)) -> barrier * odd even
__global__ void two_places(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    if (i % 2) {
        tile[i] = x[i];
        __syncthreads();  //! odd
    } else {
        tile[i] = -x[i];
        __syncthreads();  //! even
    }
    out[i] = tile[i];
}

// The same number of rounds for each thread; in the faulty kernel, as many as the thread has
// elements.
//: trips<true, false><<<1, 64>>>(x=ramp(96), out=zeros(96), n=96) -> out = x
//: trips<false, false><<<1, 64>>>(x=ramp(96), out=zeros(96), n=96) -> barrier * inside
//: trips<false, true><<<1, 64>>>(x=ramp(96), out=zeros(96), n=96) -> barrier * inside after; maybe barrier * after
template <bool UNIFORM, bool AFTER>
__global__ void trips(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    int rounds = UNIFORM ? (n + 63) / 64 : (n - i + 63) / 64;
    for (int round = 0; round < rounds; round++) {
        int at = round * 64 + i;
        tile[i] = at < n ? x[at] : 0;
        __syncthreads();  //! inside
        if (at < n) out[at] = tile[i];
    }
    if (AFTER) __syncthreads();  //! after
}

//: votes_of_a_block<<<1, 64>>>(x=ints(64), out=zeros(64, dtype=int32)) -> out = full((64,), 22 * 8 + 4 + 2)
__global__ void votes_of_a_block(const int* x, int* out) {
    int mine = x[threadIdx.x];
    int thirds = __syncthreads_count(mine % 3 == 0);
    bool all = __syncthreads_and(mine < 64), any = __syncthreads_or(mine == 63), none = __syncthreads_or(mine == 64);
    out[threadIdx.x] = 8 * thirds + 4 * all + 2 * any + none;
}

// A vote of the block is a barrier, too.
//: ordered_by_vote<<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.flip(0)
__global__ void ordered_by_vote(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    if (__syncthreads_or(x[i] > 5)) out[i] = tile[63 - i];
}

// Many threads set a flag to the same value: still a race.
//: found<0><<<1, 64>>>(x=ramp(64), out=zeros(64, dtype=int32)) -> race any put put same
//: found<1><<<1, 64>>>(x=ramp(64), out=zeros(64, dtype=int32)) -> out = ones(64)
//: found<2><<<1, 64>>>(x=ramp(64), out=zeros(64, dtype=int32)) -> out = ones(64)
template <int HOW>
__global__ void found(const float* x, int* out) {
    __shared__ int any;
    int i = threadIdx.x;
    if (i == 0) any = 0;
    __syncthreads();
    if (HOW == 0 && x[i] > 9) any = 1;  //! put
    if (HOW == 1 && x[i] > 9) atomicOr(&any, 1);
    int voted = __syncthreads_or(x[i] > 9);
    out[i] = HOW == 2 ? voted != 0 : any;
}

//: last_writer<false><<<1, 64>>>(out=zeros(1)) -> race out put put different
//: last_writer<true><<<1, 64>>>(out=zeros(1)) -> out = 63.0
template <bool ONE>
__global__ void last_writer(float* out) {
    if (!ONE || threadIdx.x == 63) out[0] = threadIdx.x;  //! put
}

// What a thread wrote before it returned happens before what others do after a barrier, which waits
// for arrival or return.
//: zeros_and_leaves<true><<<1, 64>>>(x=ramp(40), out=zeros(40), n=40) -> out = cat((x, zeros(24))).flip(0)[:40]
//: zeros_and_leaves<false><<<1, 64>>>(x=ramp(40), out=zeros(40), n=40) -> out = cat((x, zeros(24))).flip(0)[:40]
template <bool STAYS>
__global__ void __launch_bounds__(64) zeros_and_leaves(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    if (i < n) {
        tile[i] = x[i];
    } else {
        tile[i] = 0;
        if (!STAYS) return;
    }
    __syncthreads();
    if (i < n) out[i] = tile[63 - i];
}

// Two lines read before the write.
//: two_readers<true><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.flip(0) + x.roll(-1)
//: two_readers<false><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> race tile put mirrored; race tile put next;
//:     maybe uninitialised tile mirrored; maybe uninitialised tile next
template <bool FENCED>
__global__ void two_readers(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];  //! put
    if (FENCED) __syncthreads();
    float sum = tile[63 - i];   //! mirrored
    sum += tile[(i + 1) % 64];  //! next
    out[i] = sum;
}

// Shared memory of a function: the same for each of its calls.
__device__ float* common_tile() {
    __shared__ float tile[64];
    return tile;
}

//: by_function<true><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.flip(0)
//: by_function<false><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> race tile put get; maybe uninitialised tile get
template <bool FENCED>
__global__ void by_function(const float* x, float* out) {
    common_tile()[threadIdx.x] = x[threadIdx.x];  //! put
    if (FENCED) __syncthreads();
    out[threadIdx.x] = common_tile()[63 - threadIdx.x];  //! get
}
