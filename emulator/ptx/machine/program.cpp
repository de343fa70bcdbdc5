// The functions for Python: they make programs and modules from arrays, and launch them.
#include "machine.h"

#include <cstdio>
#include <string>

using namespace emulator;
using namespace emulator::ptx;

namespace {

struct Code {  // a module in the runtime's form
    Module module;
    std::string name;
};

std::vector<NamedHandler> all_handlers() {
    std::vector<NamedHandler> all;
    for (Handlers table : {arithmetic_handlers(), floating_handlers(), conversion_handlers(), matrix_handlers(), warpgroup_handlers(), bulk_handlers(), tensor_map_handlers(), mbarrier_handlers(), cluster_handlers(),
                           memory_handlers(), atomic_handlers(), control_handlers(), exchange_handlers(),
                           printing_handlers()})
        all.insert(all.end(), table.begin, table.begin + table.count);
    return all;
}

const std::vector<NamedHandler>& handlers() {
    static const std::vector<NamedHandler> all = all_handlers();
    return all;
}

bool starts(const char* name, const char* with) { return !strncmp(name, with, strlen(with)); }

Role role_of(const char* name) {
    if (!strcmp(name, "bra")) return Role::branch;
    if (starts(name, "mma.") || starts(name, "ldmatrix.") || starts(name, "stmatrix.")) return Role::collective;
    if (starts(name, "tensormap.cp")) return Role::collective;
    if (starts(name, "wgmma.") && strcmp(name, "wgmma.touch")) return Role::collective;
    if (!strcmp(name, "ld") || !strcmp(name, "st") || starts(name, "atom.")) return Role::access;
    return Role::plain;
}

// Every barrier except number 0 without a count may join only some warps of a block.
bool joins_warps(const Program& in, const char* name, const int32_t* operand) {
    if (!starts(name, "bar.") || starts(name, "bar.warp")) return false;
    const int32_t* id = operand + starts(name, "bar.red");
    return id[1] != NONE || id[0] >= 0 || *reinterpret_cast<const uint32_t*>(in.constants.data() + ~id[0]) != 0;
}

struct Encoded {
    uint32_t handler;
    int32_t guard;
    uint32_t negated, operands;
};

}  // namespace

extern "C" {

// Writes the names of all handlers, in the order of their numbers, and returns how many there are.
size_t emulator_ptx_handlers(const char** names, size_t most) {
    for (size_t i = 0; i < handlers().size() && i < most; ++i) names[i] = handlers()[i].name;
    return handlers().size();
}

void* emulator_ptx_program(const Encoded* instructions, size_t count, const int32_t* operands, size_t operand_count,
                           const unsigned char* constants, size_t constant_bytes, size_t register_bytes, size_t local_bytes,
                           size_t shared_bytes) {
    auto* program = new Program{};
    program->operands.assign(operands, operands + operand_count);
    program->constants.assign(constants, constants + constant_bytes);
    program->register_bytes = (register_bytes + 63) / 64 * 64;
    program->local_bytes = (local_bytes + 15) / 16 * 16;
    program->shared_bytes = shared_bytes;
    for (size_t i = 0; i < count; ++i) {
        const NamedHandler& handler = handlers()[instructions[i].handler];
        Role role = role_of(handler.name);
        program->instructions.push_back({handler.run, program->operands.data() + instructions[i].operands,
                                         instructions[i].guard, instructions[i].negated != 0, role});
        program->joins_warps |= joins_warps(*program, handler.name, program->instructions.back().operand);
        program->meets_clusters |= starts(handler.name, "cluster.");
        program->waits_relaxed |= starts(handler.name, "mbarrier.t") && strstr(handler.name, ".relaxed");
        program->makes_maps |= starts(handler.name, "tensormap.") || starts(handler.name, "fence.proxy.tensormap");
        program->has_agents |= starts(handler.name, "wgmma.") || starts(handler.name, "st.async") || starts(handler.name, "red.async") || starts(handler.name, "bulk.") || starts(handler.name, "mbarrier.");
    }
    return program;
}

void emulator_ptx_free(void* program) { delete static_cast<Program*>(program); }

// Sets the file and line of each instruction; the texts must outlive the program.
void emulator_ptx_lines(void* program, const char* const* files, const int32_t* lines, size_t count) {
    auto* to = static_cast<Program*>(program);
    to->files.assign(files, files + count);
    to->lines.assign(lines, lines + count);
}

// Adds a .shared variable of the kernel: bytes from .. to of its shared memory.
void emulator_ptx_shared_span(void* program, size_t from, size_t to) {
    static_cast<Program*>(program)->shared_variables.push_back({from, to});
}

// Threads of the kernel may hold copies of a value and all store it, as in Triton's layouts.
void emulator_ptx_replicated(void* program) { static_cast<Program*>(program)->replicated = true; }

void* emulator_ptx_module(const char* name) {
    auto* code = new Code{{1, nullptr, nullptr}, name};
    code->module.name = code->name.c_str();
    return &code->module;
}

// Adds a variable in global or constant memory. Records use its number: the count starts at 0, in
// the order of these calls.
void emulator_ptx_global(void* module, void* base, size_t bytes, int constant) {
    add_global(static_cast<Module*>(module), base, bytes, constant != 0);
}

LaunchStatus emulator_ptx_launch(void* module, void* of, const char* kernel, const unsigned* grid, const unsigned* block,
                                 const unsigned* cluster, size_t dynamic_shared, size_t shared_limit, const void* params, size_t param_bytes,
                                 char* text, size_t text_bytes) {
    const Program* program = static_cast<Program*>(of);
    size_t own = 0;  // without the gaps that the emulator leaves between variables
    for (auto& span : program->shared_variables) own += span.second - span.first;
    if (own + dynamic_shared > shared_limit)
        return snprintf(text, text_bytes, "%s, %zu bytes of shared memory: at most %zu", kernel, own + dynamic_shared,
                        shared_limit),
               LAUNCH_DYNAMIC_SHARED;
    Request request = {};
    request.module = static_cast<Module*>(module);
    request.kernel = kernel;
    request.file = "";
    request.grid = {grid[0], grid[1], grid[2]};
    request.block = {block[0], block[1], block[2]};
    request.cluster = {cluster[0], cluster[1], cluster[2]};
    request.shared = program->shared_bytes + dynamic_shared;
    request.shared_limit = LARGEST_SHARED + 64 * 1024;
    request.params = const_cast<void*>(params);
    request.params_bytes = param_bytes;
    request.engine = engine_of(*program);
    return emulator_launch(&request, text, text_bytes);
}
}
