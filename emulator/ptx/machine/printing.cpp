// Vprintf, which nvcc, Triton and Numba use for printing: C's format, then the arguments one after
// another.
#include "machine.h"

#include <cstdio>
#include <string>

namespace emulator::ptx {
namespace {

// The arguments of one call, each at a multiple of its size.
class Arguments {
public:
    explicit Arguments(const unsigned char* first) : first(first) {}

    template <class T>
    T next() {
        at = (at + sizeof(T) - 1) / sizeof(T) * sizeof(T);
        T value;
        memcpy(&value, first + at, sizeof(T));
        at += sizeof(T);
        return value;
    }

private:
    const unsigned char* first;
    size_t at = 0;
};

void print_one(const std::string& how, Arguments& arguments) {
    auto print = [&](auto value) { printf(how.c_str(), value); };
    bool is_long = how.find_first_of("lzjt") != std::string::npos;
    switch (how.back()) {
        case 'd': case 'i': case 'o': case 'u': case 'x': case 'X': case 'c':
            if (is_long) print(arguments.next<long long>());
            else print(arguments.next<int>());
            break;
        case 'p': case 's': print(arguments.next<const char*>()); break;
        case '%': fputc('%', stdout); break;
        default: print(arguments.next<double>());
    }
}

void print(const char* format, Arguments arguments) {
    while (*format) {
        size_t plain = strcspn(format, "%");
        fwrite(format, 1, plain, stdout);
        format += plain;
        if (!*format) break;
        std::string how;
        for (++format; *format && !strchr("diouxXcpsaAeEfFgG%", *format); ++format)
            how += *format == '*' ? std::to_string(arguments.next<int>()) : std::string(1, *format);
        if (!*format) break;
        print_one("%" + how + *format++, arguments);
    }
}

// [format, arguments]: generic addresses
Flow vprintf_(Warp& warp, const Instruction& at, uint32_t mask) {
    const uint64_t *formats = warp.slot<uint64_t>(at.operand[0]), *arguments = warp.slot<uint64_t>(at.operand[1]);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        auto lane = static_cast<unsigned>(__builtin_ctz(rest));
        print(reinterpret_cast<const char*>(formats[lane]), Arguments(reinterpret_cast<const unsigned char*>(arguments[lane])));
    }
    fflush(stdout);
    return Flow::next;
}

const NamedHandler TABLE[] = {{"vprintf", vprintf_}};

}  // namespace

Handlers printing_handlers() { return {TABLE, sizeof TABLE / sizeof *TABLE}; }

}  // namespace emulator::ptx
