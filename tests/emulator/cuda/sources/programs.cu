// Interprets programs given as data, so that many can be tested with one kernel: each thread has
// its own list of instructions. An instruction is five ints; programs.py writes them:
//
//     READ WRITE ATOMIC   which of the memories below, byte offset, size in bytes, which of two lines
//     BLOCK_BARRIER       form
//     WARP_BARRIER        mask
//     WARP_OPERATION      form, mask       a shuffle or a vote, which orders nothing
//     FENCE               which orders nothing either
//     RETURN              leaves the kernel early
//     END
//
// Each kind of access to each memory has two lines of its own, so that findings can be told apart
// by line.

#include <cuda_fp16.h>

enum Op { END, READ, WRITE, ATOMIC, BLOCK_BARRIER, WARP_BARRIER, WARP_OPERATION, FENCE, RETURN };
enum Form { SYNCTHREADS, SYNCTHREADS_OR, SYNCTHREADS_AND, SYNCTHREADS_COUNT };
enum WarpForm { SHUFFLE, BALLOT, ALL, MATCH };

#define READ_FROM(memory, sign)                                                                                        \
    switch (size) {                                                                                                    \
        case 1: sum sign memory[offset]; break;                                                                        \
        case 2: sum sign *reinterpret_cast<unsigned short*>(memory + offset); break;                                   \
        case 4: sum sign *reinterpret_cast<int*>(memory + offset); break;                                              \
        case 8: sum sign int(*reinterpret_cast<long long*>(memory + offset)); break;                                   \
        case 16: int4 all = *reinterpret_cast<int4*>(memory + offset); sum sign all.x ^ all.y ^ all.z ^ all.w;         \
    }

#define WRITE_TO(memory, value)                                                                                        \
    switch (size) {                                                                                                    \
        case 1: memory[offset] = value; break;                                                                         \
        case 2: *reinterpret_cast<unsigned short*>(memory + offset) = value; break;                                    \
        case 4: *reinterpret_cast<int*>(memory + offset) = value; break;                                               \
        case 8: *reinterpret_cast<long long*>(memory + offset) = value; break;                                         \
        case 16: *reinterpret_cast<int4*>(memory + offset) = make_int4(value, value, value, value);                    \
    }

#define ADD_TO(memory)                                                                                                 \
    switch (size) {                                                                                                    \
        case 2: atomicAdd(reinterpret_cast<__half*>(memory + offset), __float2half(1.0f)); break;                      \
        case 4: atomicAdd(reinterpret_cast<int*>(memory + offset), 1); break;                                          \
        case 8: atomicAdd(reinterpret_cast<unsigned long long*>(memory + offset), 1ull);                               \
    }

// A compare-and-swap that fails is also an atomic access.
#define SWAP_IN(memory)                                                                                                \
    switch (size) {                                                                                                    \
        case 2: atomicCAS(reinterpret_cast<unsigned short*>(memory + offset), 0, 1); break;                            \
        case 4: atomicCAS(reinterpret_cast<int*>(memory + offset), 0, 1); break;                                       \
        case 8: atomicCAS(reinterpret_cast<unsigned long long*>(memory + offset), 0ull, 1ull);                         \
    }

// program (blocks, threads of a block, length, 5); g0 .. g3 (16,); sink (blocks * threads of a
// block,): what was read
__global__ void interpret(const int* program, int length, unsigned char* g0, unsigned char* g1, unsigned char* g2,
                          unsigned char* g3, int* sink) {
    __shared__ __align__(16) unsigned char s0[16];
    __shared__ __align__(16) unsigned char s1[16];
    __shared__ __align__(16) unsigned char s2[16];
    extern __shared__ __align__(16) unsigned char dynamic[];

    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int me = thread + blockDim.x * blockDim.y * blockDim.z * blockIdx.x;
    int sum = 0;

    for (const int* at = program + 5 * length * me; at[0] != END; at += 5) {
        int op = at[0], which = at[1], offset = at[2], size = at[3], line = at[4];
        if (op == READ) {
            switch (2 * which + line) {
                case 0: READ_FROM(g0, +=) break;
                case 1: READ_FROM(g0, -=) break;
                case 2: READ_FROM(g1, +=) break;
                case 3: READ_FROM(g1, -=) break;
                case 4: READ_FROM(g2, +=) break;
                case 5: READ_FROM(g2, -=) break;
                case 6: READ_FROM(g3, +=) break;
                case 7: READ_FROM(g3, -=) break;
                case 8: READ_FROM(s0, +=) break;
                case 9: READ_FROM(s0, -=) break;
                case 10: READ_FROM(s1, +=) break;
                case 11: READ_FROM(s1, -=) break;
                case 12: READ_FROM(s2, +=) break;
                case 13: READ_FROM(s2, -=) break;
                case 14: READ_FROM(dynamic, +=) break;
                case 15: READ_FROM(dynamic, -=) break;
            }
        } else if (op == WRITE) {
            switch (2 * which + line) {
                case 0: WRITE_TO(g0, 0) break;
                case 1: WRITE_TO(g0, 1) break;
                case 2: WRITE_TO(g1, 0) break;
                case 3: WRITE_TO(g1, 1) break;
                case 4: WRITE_TO(g2, 0) break;
                case 5: WRITE_TO(g2, 1) break;
                case 6: WRITE_TO(g3, 0) break;
                case 7: WRITE_TO(g3, 1) break;
                case 8: WRITE_TO(s0, 0) break;
                case 9: WRITE_TO(s0, 1) break;
                case 10: WRITE_TO(s1, 0) break;
                case 11: WRITE_TO(s1, 1) break;
                case 12: WRITE_TO(s2, 0) break;
                case 13: WRITE_TO(s2, 1) break;
                case 14: WRITE_TO(dynamic, 0) break;
                case 15: WRITE_TO(dynamic, 1) break;
            }
        } else if (op == ATOMIC) {
            switch (2 * which + line) {
                case 0: ADD_TO(g0) break;
                case 1: SWAP_IN(g0) break;
                case 2: ADD_TO(g1) break;
                case 3: SWAP_IN(g1) break;
                case 4: ADD_TO(g2) break;
                case 5: SWAP_IN(g2) break;
                case 6: ADD_TO(g3) break;
                case 7: SWAP_IN(g3) break;
                case 8: ADD_TO(s0) break;
                case 9: SWAP_IN(s0) break;
                case 10: ADD_TO(s1) break;
                case 11: SWAP_IN(s1) break;
                case 12: ADD_TO(s2) break;
                case 13: SWAP_IN(s2) break;
                case 14: ADD_TO(dynamic) break;
                case 15: SWAP_IN(dynamic) break;
            }
        } else if (op == BLOCK_BARRIER) {
            int form = at[1];
            if (form == SYNCTHREADS) __syncthreads();
            if (form == SYNCTHREADS_OR) sum += __syncthreads_or(thread == 0);
            if (form == SYNCTHREADS_AND) sum += __syncthreads_and(thread == 0);
            if (form == SYNCTHREADS_COUNT) sum += __syncthreads_count(thread == 0);
        } else if (op == WARP_BARRIER) {
            __syncwarp(unsigned(at[1]));
        } else if (op == WARP_OPERATION) {
            int form = at[1];
            unsigned mask = at[2];
            if (form == SHUFFLE) sum += __shfl_sync(mask, thread, thread % 32);
            if (form == BALLOT) sum += __ballot_sync(mask, thread & 1);
            if (form == ALL) sum += __all_sync(mask, thread & 1);
            if (form == MATCH) sum += __match_any_sync(mask, thread & 1);
        } else if (op == FENCE) {
            __threadfence();
        } else if (op == RETURN) {
            sink[me] = sum;
            return;
        }
    }
    sink[me] = sum;
}
