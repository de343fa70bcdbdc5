// The functions that g++ calls in a traced file: -fsanitize=thread calls one before each access,
// -fsanitize=alignment one for each address that does not fit its type. libtsan and libubsan are
// not linked; the functions here replace theirs.
#include "../../runtime/runtime.h"

#include <cstdio>
#include <cstring>

using namespace emulator;

#define CHECK(address, bytes, what) \
    emulator_access(const_cast<const void*>(static_cast<const volatile void*>(address)), bytes, what, \
                    reinterpret_cast<uintptr_t>(__builtin_return_address(0)))

#define SIZED(N) \
    void __tsan_read##N(void* a) { CHECK(a, N, READ); } \
    void __tsan_write##N(void* a) { CHECK(a, N, WRITE); } \
    void __tsan_unaligned_read##N(void* a) { CHECK(a, N, READ); } \
    void __tsan_unaligned_write##N(void* a) { CHECK(a, N, WRITE); } \
    void __tsan_volatile_read##N(void* a) { CHECK(a, N, READ); } \
    void __tsan_volatile_write##N(void* a) { CHECK(a, N, WRITE); }

// C++ atomics, which host code of a .cu may use (the guard of a static variable is one); in a
// kernel they count as atomics.
#define UPDATE(BITS, T, NAME, BUILTIN) \
    T __tsan_atomic##BITS##_##NAME(volatile T* a, T v, int) { \
        CHECK(a, sizeof(T), ATOMIC); \
        return __atomic_##BUILTIN(a, v, __ATOMIC_SEQ_CST); \
    }
#define ATOMICS(BITS, T) \
    T __tsan_atomic##BITS##_load(const volatile T* a, int) { CHECK(a, sizeof(T), ATOMIC); return *a; } \
    void __tsan_atomic##BITS##_store(volatile T* a, T v, int) { CHECK(a, sizeof(T), ATOMIC); *a = v; } \
    UPDATE(BITS, T, exchange, exchange_n) \
    UPDATE(BITS, T, fetch_add, fetch_add) \
    UPDATE(BITS, T, fetch_sub, fetch_sub) \
    UPDATE(BITS, T, fetch_and, fetch_and) \
    UPDATE(BITS, T, fetch_or, fetch_or) \
    UPDATE(BITS, T, fetch_xor, fetch_xor) \
    int __tsan_atomic##BITS##_compare_exchange_strong(volatile T* a, T* c, T v, int, int) { \
        CHECK(a, sizeof(T), ATOMIC); return __atomic_compare_exchange_n(a, c, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); } \
    int __tsan_atomic##BITS##_compare_exchange_weak(volatile T* a, T* c, T v, int, int) { \
        CHECK(a, sizeof(T), ATOMIC); return __atomic_compare_exchange_n(a, c, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); }

namespace {

struct SourceLocation {
    const char* file;
    uint32_t line, column;
};
struct TypeDescriptor {
    uint16_t kind, info;
    char name[1];
};
struct TypeMismatch {  // the layout that g++ and clang use
    SourceLocation where;
    const TypeDescriptor* type;
    unsigned char log_alignment, check;
};

const char* VERB[] = {"read", "write", "use", "use", "use", "use", "use", "use", "use", "use", "use", "use"};

void misaligned(const TypeMismatch* data, uintptr_t address) {
    if (!gpu.thread || !gpu.launch->traced) return;
    Side side = side_here(data->check == 1 ? WRITE : READ, 0);
    side.file = data->where.file;
    side.line = static_cast<int>(data->where.line);
    Region* region = region_of(address);
    Record& record = add_record(MISALIGNED, region, address, size_t(1) << data->log_alignment, 1, side);
    size_t off = address & ((size_t(1) << data->log_alignment) - 1);
    snprintf(record.text, sizeof record.text, "to %s %s the address must be a multiple of %zu; it is %zu more",
             VERB[data->check % 12], data->type->name, size_t(1) << data->log_alignment, off);
    stop_launch();  // as on a GPU
}

}  // namespace

extern "C" {

SIZED(1) SIZED(2) SIZED(4) SIZED(8) SIZED(16)
ATOMICS(8, uint8_t) ATOMICS(16, uint16_t) ATOMICS(32, uint32_t) ATOMICS(64, uint64_t)

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
void __tsan_read_range(void* a, size_t n) { CHECK(a, n, READ); }
void __tsan_write_range(void* a, size_t n) { CHECK(a, n, WRITE); }

void __ubsan_handle_type_mismatch_v1(TypeMismatch* data, uintptr_t address) { misaligned(data, address); }
void __ubsan_handle_type_mismatch_v1_abort(TypeMismatch* data, uintptr_t address) { misaligned(data, address); }

// Calls of memcpy, memmove and memset in a traced file, which the compiler does not announce.
void* emulator_memcpy(void* to, const void* from, size_t n) {
    CHECK(from, n, READ);
    CHECK(to, n, WRITE);
    return memcpy(to, from, n);
}
void* emulator_memmove(void* to, const void* from, size_t n) {
    CHECK(from, n, READ);
    CHECK(to, n, WRITE);
    return memmove(to, from, n);
}
void* emulator_memset(void* to, int value, size_t n) {
    CHECK(to, n, WRITE);
    return memset(to, value, n);
}
}
