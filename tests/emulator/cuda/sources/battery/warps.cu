// Warps: shuffles and votes pass values, but only __syncwarp orders memory, and only among the
// lanes of its mask. See barriers.cu for the notation.

constexpr unsigned FULL = 0xffffffff, LOW = 0x0000ffff, HIGH = 0xffff0000;

//: sum_by_shuffles<<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.view(2, 32).sum(1).repeat_interleave(32)
__global__ void sum_by_shuffles(const float* x, float* out) {
    float v = x[threadIdx.x];
    for (int m = 16; m > 0; m /= 2) v += __shfl_xor_sync(FULL, v, m);
    out[threadIdx.x] = v;
}

//: scan_by_shuffles<<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.view(2, 32).cumsum(1).view(-1)
__global__ void scan_by_shuffles(const float* x, float* out) {
    int lane = threadIdx.x % 32;
    float v = x[threadIdx.x];
    for (int d = 1; d < 32; d *= 2) {
        float left = __shfl_up_sync(FULL, v, d);
        if (lane >= d) v += left;
    }
    out[threadIdx.x] = v;
}

// Segments of 8 and 16 lanes; a source beyond the segment gives the lane's own value, an index
// wraps around.
//: segments<<<1, 32>>>(x=ints(32), out=zeros(4, 32, dtype=int32)) -> out = stack((x // 8 * 8 + 3,
//:     where(x % 16 < 12, x + 4, x), where(x % 8 >= 2, x - 2, x), x // 16 * 16 + 15))
__global__ void segments(const int* x, int* out) {
    int lane = threadIdx.x;
    out[lane] = __shfl_sync(FULL, x[lane], 3, 8);
    out[32 + lane] = __shfl_down_sync(FULL, x[lane], 4, 16);
    out[64 + lane] = __shfl_up_sync(FULL, x[lane], 2, 8);
    out[96 + lane] = __shfl_sync(FULL, x[lane], -1, 16);
}

// A butterfly over more than a segment: lanes read from earlier segments, but not from later ones.
//: butterfly_beyond_a_segment<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=int32))
//:     -> out = where((x ^ 12) < x // 8 * 8 + 8, x ^ 12, x)
__global__ void butterfly_beyond_a_segment(const int* x, int* out) {
    out[threadIdx.x] = __shfl_xor_sync(FULL, x[threadIdx.x], 12, 8);
}

//: shuffled_types<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=float64))
//:     -> out = x.double().flip(0) / 4 + 2.0 ** 40 * x.double().roll(-1)
__global__ void shuffled_types(const int* x, double* out) {
    int lane = threadIdx.x;
    double quarter = __shfl_sync(FULL, x[lane] / 4.0, 31 - lane);
    long long large = __shfl_sync(FULL, x[lane] * (1LL << 40), (lane + 1) % 32);
    out[lane] = quarter + large;
}

//: votes<<<1, 64>>>(x=ints(64), out=zeros(64, dtype=int32)) -> out = where(x < 32, 31 + 100 + 1000, 31 + 100 + 10000)
__global__ void votes(const int* x, int* out) {
    int mine = x[threadIdx.x];
    unsigned odd = __ballot_sync(FULL, mine & 1);
    out[threadIdx.x] = (31 - __clz(odd)) + 100 * (__popc(odd) == 16) + 1000 * (__all_sync(FULL, mine < 32) != 0) +
                       10000 * (__any_sync(FULL, mine > 40) != 0);
}

// Groups of 8 lanes have the same value: their first lane, their number; all agree on 7, but not on
// their lane.
//: matches<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=int32)) -> out = x // 8 * 8 + 1800
__global__ void matches(const int* x, int* out) {
    int lane = threadIdx.x, seven, lanes;
    unsigned group = __match_any_sync(FULL, x[lane] / 8);
    unsigned all = __match_all_sync(FULL, 7, &seven), none = __match_all_sync(FULL, x[lane], &lanes);
    out[lane] = __ffs(group) - 1 + 100 * __popc(group) + 1000 * (all == FULL && seven && none == 0 && !lanes);
}

//: reductions<<<1, 32>>>(x=ints(32) - 16, out=zeros(6, dtype=int32)) -> out = tensor([-16, -16, 15, 0, 31, 0])
__global__ void reductions(const int* x, int* out) {
    int lane = threadIdx.x, v = x[lane];
    int sum = __reduce_add_sync(FULL, v), least = __reduce_min_sync(FULL, v), most = __reduce_max_sync(FULL, v);
    unsigned common = __reduce_and_sync(FULL, (unsigned)lane), any = __reduce_or_sync(FULL, (unsigned)lane);
    unsigned parity = __reduce_xor_sync(FULL, (unsigned)lane);
    int all[6] = {sum, least, most, (int)common, (int)any, (int)parity};
    if (lane < 6) out[lane] = all[lane];
}

// Between a lane's write and another's read: nothing, __syncwarp, a shuffle, a vote, a memory
// fence.
//: neighbours<0><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> race tile put get; maybe uninitialised tile get
//: neighbours<1><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> out = x.view(16, 2).flip(1).view(-1)
//: neighbours<2><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> race tile put get; maybe uninitialised tile get
//: neighbours<3><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> race tile put get; maybe uninitialised tile get
//: neighbours<4><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> race tile put get; maybe uninitialised tile get
template <int BETWEEN>
__global__ void neighbours(const float* x, float* out) {
    __shared__ float tile[32];
    int lane = threadIdx.x;
    tile[lane] = x[lane];  //! put
    if (BETWEEN == 1) __syncwarp();
    if (BETWEEN == 2) __shfl_sync(FULL, lane, 0);
    if (BETWEEN == 3) __any_sync(FULL, lane);
    if (BETWEEN == 4) __threadfence_block();
    out[lane] = tile[lane ^ 1];  //! get
}

// The last steps of a reduction. Without the guard lane 16 writes sum[16] while lane 0 reads it.
//: warp_tree<true, true><<<1, 32>>>(x=ramp(64), out=zeros(1)) -> out = x.sum()
//: warp_tree<true, false><<<1, 32>>>(x=ramp(64), out=zeros(1)) -> race sum add add
//: warp_tree<false, true><<<1, 32>>>(x=ramp(64), out=zeros(1)) -> race sum add add
template <bool GUARDED, bool FENCED>
__global__ void warp_tree(const float* x, float* out) {
    __shared__ float sum[64];
    int lane = threadIdx.x;
    sum[lane] = x[lane];
    sum[lane + 32] = x[lane + 32];
    __syncwarp();
    for (int s = 32; s > 0; s /= 2) {
        if (!GUARDED || lane < s) sum[lane] += sum[lane + s];  //! add
        if (FENCED) __syncwarp();
    }
    if (lane == 0) out[0] = sum[0];
}

// Without the guard, but with reading and writing separated.
//: read_then_write<<<1, 32>>>(x=ramp(64), out=zeros(1)) -> out = x.sum()
__global__ void read_then_write(const float* x, float* out) {
    __shared__ float sum[64];
    int lane = threadIdx.x;
    sum[lane] = x[lane];
    sum[lane + 32] = x[lane + 32];
    __syncwarp();
    for (int s = 32; s > 0; s /= 2) {
        float other = sum[lane + s];
        __syncwarp();
        sum[lane] += other;
        __syncwarp();
    }
    if (lane == 0) out[0] = sum[0];
}

// The form that was usual before Volta.
//: unrolled<<<1, 64>>>(x=ramp(64), out=zeros(1)) -> race sum add add
__global__ void unrolled(const float* x, float* out) {
    __shared__ float sum[64];
    int i = threadIdx.x;
    sum[i] = x[i];
    __syncthreads();
    if (i < 32) {
        volatile float* s = sum;
        s[i] += s[i + 16], s[i] += s[i + 8], s[i] += s[i + 4], s[i] += s[i + 2], s[i] += s[i + 1];  //! add
        if (i == 0) out[0] = s[0];
    }
}

// Each half of the warp waits for its own lanes.
//: halves<8><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> out = x.view(2, 2, 8).flip(1).view(-1)
//: halves<16><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> race tile put get; maybe uninitialised tile get
template <int DISTANCE>
__global__ void halves(const float* x, float* out) {
    __shared__ float tile[32];
    int lane = threadIdx.x;
    tile[lane] = x[lane];  //! put
    __syncwarp(lane < 16 ? LOW : HIGH);
    out[lane] = tile[lane ^ DISTANCE];  //! get
}

// A barrier of 0 and 1, then one of 1 and 2: what 0 wrote is ordered before reads by 2. Not in the
// other order.
//: chain<true><<<1, 3>>>(out=zeros(1)) -> out = 5.0
//: chain<false><<<1, 3>>>(out=zeros(1)) -> race cell put get; maybe uninitialised cell get
template <bool FORWARD>
__global__ void chain(float* out) {
    __shared__ float cell;
    int lane = threadIdx.x;
    if (lane == 0) cell = 5;  //! put
    if (FORWARD && lane < 2) __syncwarp(0b011);
    if (lane > 0) __syncwarp(0b110);
    if (!FORWARD && lane < 2) __syncwarp(0b011);
    if (lane == 2) out[0] = cell;  //! get
}

// A tile that one warp fills: that warp can read it after __syncwarp, others only after a barrier.
//: tile_of_a_warp<1><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.view(32, 2).flip(1).view(-1)
//: tile_of_a_warp<32><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> race tile put get; maybe uninitialised tile get
template <int DISTANCE>
__global__ void tile_of_a_warp(const float* x, float* out) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];  //! put
    __syncwarp();
    out[i] = tile[i ^ DISTANCE];  //! get
}

// Lanes may call the same operation from two places.
//: two_call_sites<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=int32)) -> out = x.roll(16) + 100 * (x < 16)
__global__ void two_call_sites(const int* x, int* out) {
    int lane = threadIdx.x, v = x[lane];
    if (lane < 16) {
        out[lane] = 100 + __shfl_sync(FULL, v, lane + 16);
    } else {
        out[lane] = __shfl_sync(FULL, v, lane - 16);
    }
}

//: lanes_by_ballot<<<1, 64>>>(x=ints(40), out=zeros(40, dtype=int32), n=40)
//:     -> out = cat((full((32,), 496), full((8,), 36 * 8 - 4)))
__global__ void lanes_by_ballot(const int* x, int* out, int n) {
    int i = threadIdx.x;
    unsigned there = __ballot_sync(FULL, i < n);
    if (i < n) out[i] = __reduce_add_sync(there, x[i]);
}

//: twenty_lanes<<<1, 32>>>(x=ints(20), out=zeros(20, dtype=int32)) -> out = x.flip(0)
__global__ void twenty_lanes(const int* x, int* out) {
    int lane = threadIdx.x;
    if (lane >= 20) return;
    out[lane] = __shfl_sync((1u << 20) - 1, x[lane], 19 - lane);
}

//: never_comes<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=int32)) -> deadlock * shuffle barrier?
__global__ void never_comes(const int* x, int* out) {
    int lane = threadIdx.x, v = x[lane];
    if (lane < 16) v = __shfl_sync(FULL, v, 0);  //! shuffle
    __syncthreads();  //! barrier
    out[lane] = v;
}

//: another_operation<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=int32)) -> deadlock * shuffle vote
__global__ void another_operation(const int* x, int* out) {
    int lane = threadIdx.x, v = x[lane];
    if (lane < 16) {
        out[lane] = __shfl_sync(FULL, v, 0);  //! shuffle
    } else {
        out[lane] = __any_sync(FULL, v > 3);  //! vote
    }
}

//: not_in_its_mask<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=int32)) -> mask * shuffle
__global__ void not_in_its_mask(const int* x, int* out) {
    int lane = threadIdx.x;
    out[lane] = __shfl_sync(0xfffffffe, x[lane], 1);  //! shuffle
}

//: not_in_its_fence<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=int32)) -> mask * fence
__global__ void not_in_its_fence(const int* x, int* out) {
    int lane = threadIdx.x;
    __syncwarp(LOW);  //! fence
    out[lane] = x[lane];
}

// The halves of a warp run separate loops, with as many shuffles as each needs.
//: halves_apart<<<1, 32>>>(x=ints(32), out=zeros(32, dtype=int32)) -> out = where(x < 16, 120, 2 * 376)
__global__ void halves_apart(const int* x, int* out) {
    int lane = threadIdx.x, v = x[lane];
    unsigned mine = lane < 16 ? LOW : HIGH;
    for (int m = 1; m < 16; m *= 2) v += __shfl_xor_sync(mine, v, m);
    if (lane >= 16) v = __reduce_add_sync(HIGH, v) / 8;
    out[lane] = v;
}

// A block of 20: lanes 20 to 31 of a full mask do not exist and are not waited for.
//: part_of_a_warp<<<1, 20>>>(x=ints(20), out=zeros(20, dtype=int32)) -> out = x.flip(0)
__global__ void part_of_a_warp(const int* x, int* out) {
    out[threadIdx.x] = __shfl_sync(FULL, x[threadIdx.x], 19 - threadIdx.x);
}

// __syncwarp in a loop, after writing and after reading; without the second the next round
// overwrites what others read.
//: rotations<true><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> out = x.roll(-5)
//: rotations<false><<<1, 32>>>(x=ramp(32), out=zeros(32)) -> race tile put get
template <bool FENCED>
__global__ void rotations(const float* x, float* out) {
    __shared__ float tile[32];
    int lane = threadIdx.x;
    float v = x[lane];
    for (int round = 0; round < 5; round++) {
        tile[lane] = v;  //! put
        __syncwarp();
        v = tile[(lane + 1) % 32];  //! get
        if (FENCED) __syncwarp();
    }
    out[lane] = v;
}

// Lanes that have returned are not waited for, though the mask includes them.
//: lanes_left<<<1, 32>>>(x=ramp(20), out=zeros(20), n=20) -> out = x.flip(0)
__global__ void lanes_left(const float* x, float* out, int n) {
    __shared__ float tile[32];
    int lane = threadIdx.x;
    if (lane >= n) return;
    tile[lane] = x[lane];
    __syncwarp();
    out[lane] = tile[n - 1 - lane];
}
