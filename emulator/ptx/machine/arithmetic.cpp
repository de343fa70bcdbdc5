// The table of integers, bits, comparisons and moves.
#include "table.h"

namespace emulator::ptx {

Handlers arithmetic_handlers() {
    static const Table table = [] {
        Table made;
        add_integers(made);
        add_bits(made);
        add_comparisons(made);
        add_moves(made);
        return made;
    }();
    return table.view();
}

}  // namespace emulator::ptx
