// The table of integers, bits, comparisons and moves.
#include "table.h"

namespace emulator::ptx {

Handlers arithmetic_handlers() {
    static const Table table = [] {
        Table table;
        add_integers(table);
        add_bits(table);
        add_comparisons(table);
        add_moves(table);
        return table;
    }();
    return table.view();
}

}  // namespace emulator::ptx
