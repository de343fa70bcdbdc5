// Assert: traps in device code, aborts in host code. It can be included again with or without
// NDEBUG, as the standard's.
#undef assert

#ifdef NDEBUG
#define assert(...) ((void)0)
#else
extern "C" [[noreturn]] void emulator_assert_failed(const char* expression, const char* file, int line);
#define assert(...) ((__VA_ARGS__) ? (void)0 : emulator_assert_failed(#__VA_ARGS__, __FILE__, __LINE__))
#endif
