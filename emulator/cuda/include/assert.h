// assert, in device code a trap of the kernel, in host code the end of the program.
//
// May be included again, with NDEBUG or without, as the standard's.
#undef assert

#ifdef NDEBUG
#define assert(...) ((void)0)
#else
extern "C" [[noreturn]] void cuda_trace_assert_failed(const char* expression, const char* file, int line);
#define assert(...) ((__VA_ARGS__) ? (void)0 : cuda_trace_assert_failed(#__VA_ARGS__, __FILE__, __LINE__))
#endif
