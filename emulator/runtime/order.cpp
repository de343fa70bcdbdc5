// The order in which threads and blocks run: in sequence, shuffled, or warp by warp.
#include "runtime.h"

#include <algorithm>
#include <numeric>

namespace emulator {
namespace {

uint64_t random_state;

}  // namespace

void seed_random(uint64_t seed) { random_state = seed; }

uint64_t random_bits() {  // splitmix64
    uint64_t z = (random_state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// The order in which n threads or blocks run: in sequence for seed 0, else shuffled.
std::vector<unsigned> order_of(unsigned n) {
    std::vector<unsigned> order(n);
    std::iota(order.begin(), order.end(), 0u);
    if (gpu.options.seed)
        for (unsigned i = n; i > 1; --i) std::swap(order[i - 1], order[random_bits() % i]);
    return order;
}

Thread& take_ready(Block& in) {
    if (in.next_ready > 4096) {
        in.ready.erase(in.ready.begin(), in.ready.begin() + static_cast<long>(in.next_ready));
        in.next_ready = 0;
    }
    if (gpu.options.by_warp) {
        auto sooner = [&in](uint16_t a, uint16_t b) { return in.rank[a / WARP] < in.rank[b / WARP]; };
        auto from = in.ready.begin() + static_cast<long>(in.next_ready);
        std::iter_swap(from, std::min_element(from, in.ready.end(), sooner));
    } else if (gpu.options.seed) {
        size_t count = in.ready.size() - in.next_ready;
        std::swap(in.ready[in.next_ready], in.ready[in.next_ready + random_bits() % count]);
    }
    return in.threads[in.ready[in.next_ready++]];
}

}  // namespace emulator
