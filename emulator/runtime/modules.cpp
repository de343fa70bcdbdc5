// The memory of a module: its globals, its kernels' static shared memory, and dynamic shared
// memory.
//
// Static shared variables are thread_local variables of the compiled library. They form one block
// of memory (TLS), which contains nothing else of the program. Dynamic shared memory is one buffer.
#include "runtime.h"

#include <algorithm>
#include <cstring>
#include <link.h>
#include <map>

// The margin after it catches writes past its end.
extern "C" {
alignas(1024) unsigned char emulator_dynamic_shared[emulator::MOST_BLOCKS * (emulator::LARGEST_SHARED + 64 * 1024)] = {};
}

namespace emulator {
namespace {

constexpr uintptr_t NEAR = 4096;  // bytes: an access this close to static shared memory is recorded as beside it

struct Loaded {  // where a module's data lie
    uintptr_t code = 0;
    std::vector<Region> globals;
    Region shared = {};
    std::vector<Variable> variables;  // in shared memory
    std::vector<Variable> named;  // in the library's data: the variables that a kernel may access
};
std::map<const Module*, Loaded> modules;  // known modules
// Addresses of their TLS blocks in this OS thread.
thread_local std::map<const Module*, uintptr_t> shared_of_thread;
Loaded* entered = nullptr;  // the module of the launch in progress
Region dynamic[MOST_BLOCKS] = {};  // dynamic shared memory of the launch, of each block of a cluster
Region parameters = {};  // parameters of the launch: kernels may read them in place

// A part of the library's data. In data that stays writable a kernel may access the author's
// variables; the rest is the emulator's and the loader's.
void add_data(Loaded& loaded, uintptr_t low, uintptr_t high, bool read_only) {
    if (low >= high) return;
    Region region = {};
    region.low = region.margin_low = low;
    region.high = region.margin_high = high;
    region.space = MODULE;
    region.read_only = read_only;
    region.id = -1;
    if (!read_only) {
        region.spans.push_back({low, low});  // nothing is accessible until a span is added
        for (const Variable& variable : loaded.named)
            if (loaded.code + variable.start >= low && loaded.code + variable.end <= high)
                region.spans.push_back({loaded.code + variable.start, loaded.code + variable.end});
    }
    loaded.globals.push_back(region);
}

// Finds the module's segments, and its TLS block in this OS thread.
struct Search {
    uintptr_t inside, tls, tls_bytes;
    Loaded* loaded;
};

int visit(dl_phdr_info* info, size_t, void* data) {
    auto* search = static_cast<Search*>(data);
    bool is_module = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        auto& header = info->dlpi_phdr[i];
        is_module |= header.p_type == PT_LOAD && search->inside - (info->dlpi_addr + header.p_vaddr) < header.p_memsz;
    }
    if (!is_module) return 0;
    Loaded& loaded = *search->loaded;
    loaded.code = info->dlpi_addr;
    loaded.globals.clear();
    uintptr_t fixed_low = 0, fixed_high = 0;  // writable only until the loader has filled it
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        auto& header = info->dlpi_phdr[i];
        if (header.p_type != PT_GNU_RELRO) continue;
        fixed_low = info->dlpi_addr + header.p_vaddr;
        fixed_high = fixed_low + header.p_memsz;
    }
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        auto& header = info->dlpi_phdr[i];
        uintptr_t low = info->dlpi_addr + header.p_vaddr, high = low + header.p_memsz;
        if (header.p_type == PT_TLS) {
            search->tls = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
            search->tls_bytes = header.p_memsz;
        } else if (header.p_type == PT_LOAD && fixed_low >= low && fixed_high <= high && fixed_low < fixed_high) {
            add_data(loaded, low, fixed_low, false);
            add_data(loaded, fixed_low, fixed_high, true);
            add_data(loaded, fixed_high, high, false);
        } else if (header.p_type == PT_LOAD) {
            add_data(loaded, low, high, !(header.p_flags & PF_W));
        }
    }
    return 1;
}

// A module's data, looked up at an OS thread's first launch from it.
Loaded& loaded_of(const Module* module) {
    Loaded& loaded = modules[module];
    if (!module->anchor) return loaded;
    auto [shared, is_new] = shared_of_thread.try_emplace(module, 0);
    if (is_new) {
        module->anchor();  // creates the TLS block of this thread
        Search search = {reinterpret_cast<uintptr_t>(module), 0, 0, &loaded};
        dl_iterate_phdr(visit, &search);
        shared->second = search.tls;
        loaded.shared.high = loaded.shared.low + search.tls_bytes;
    }
    return loaded;
}

// All kernels of a file have their shared variables in one TLS block; on a GPU a kernel has only
// its own.
void limit_to_kernel(Loaded& loaded) {
    Region& region = loaded.shared;
    auto kernel = reinterpret_cast<uintptr_t>(gpu.launch->request->function);
    region.spans.clear();
    region.unwatched.clear();
    for (const Variable& variable : loaded.variables) {
        bool foreign = variable.kernel && kernel && loaded.code + variable.kernel != kernel;
        auto& list = variable.guard ? region.unwatched : region.spans;
        if (!foreign) list.push_back({region.low + variable.start, region.low + variable.end});
    }
    if (region.spans.empty() && !loaded.variables.empty()) region.spans.push_back({region.low, region.low});
}

}  // namespace

void enter_module(const Module* module) {
    Loaded& loaded = loaded_of(module);
    size_t bytes = loaded.shared.high - loaded.shared.low;
    Region& region = loaded.shared;
    region.low = shared_of_thread[module];
    region.high = region.low + bytes;
    region.margin_low = region.low - NEAR;
    region.margin_high = region.high + NEAR;
    region.space = SHARED_STATIC;
    region.shift = 2;
    region.id = -1;
    limit_to_kernel(loaded);
    entered = &loaded;
    gpu.launch->code = module->anchor ? loaded.code : reinterpret_cast<uintptr_t>(module);
    if (module->anchor)
        for (Region& each : loaded.globals) gpu.launch->code_bytes = std::max(gpu.launch->code_bytes, each.high - loaded.code);
    for (Region& each : loaded.globals) add_region(&each);
    if (module->anchor) add_region(&region);
    const uintptr_t memory = shared_memory();
    for (unsigned rank = 0; rank < gpu.launch->cluster; ++rank) {
        Region& of = dynamic[rank];
        of.spans.clear();
        of.low = of.margin_low = memory + rank * gpu.launch->window;
        of.high = of.low + gpu.launch->request->shared;
        of.margin_high = rank + 1 < gpu.launch->cluster ? of.low + gpu.launch->window : memory + sizeof emulator_dynamic_shared;
        of.soft = true;
        of.space = SHARED_DYNAMIC;
        of.shift = 2;
        of.id = -1;
        add_region(&of);
    }
    parameters.low = parameters.margin_low = reinterpret_cast<uintptr_t>(gpu.launch->request->params);
    parameters.high = parameters.margin_high = parameters.low + gpu.launch->request->params_bytes;
    parameters.space = PARAMETER;
    add_region(&parameters);
}

void leave_module() {
    for (Region& each : entered->globals) remove_region(&each);
    remove_region(&entered->shared);
    for (Region& of : dynamic) remove_region(&of);
    remove_region(&parameters);
    entered->shared.cells = nullptr;
    for (Region& of : dynamic) of.cells = nullptr;
    entered = nullptr;
}

void limit_dynamic(const std::vector<std::pair<size_t, size_t>>& spans) {
    for (unsigned rank = 0; rank < gpu.launch->cluster; ++rank)
        for (auto& span : spans) dynamic[rank].spans.push_back({dynamic[rank].low + span.first, dynamic[rank].low + span.second});
}

void add_global(const Module* module, void* base, size_t bytes, bool read_only) {
    Region region = {};
    region.low = region.margin_low = reinterpret_cast<uintptr_t>(base);
    region.high = region.margin_high = region.low + bytes;
    region.space = MODULE;
    region.read_only = read_only;
    region.shift = 2;
    region.id = static_cast<int>(modules[module].globals.size());
    modules[module].globals.push_back(region);
}

size_t static_shared_bytes() { return entered->shared.high - entered->shared.low; }

void map_shared(Block& of, size_t dynamic_bytes) {
    if (!gpu.launch->traced) return;
    if (of.shared_static.empty()) {
        of.shared_static.resize(static_shared_bytes() / 4 + 1);
        of.shared_dynamic.resize((dynamic_bytes / 4 + 1) * gpu.launch->cluster);
    }
    entered->shared.cells = of.shared_static.data();
    for (unsigned rank = 0; rank < gpu.launch->cluster; ++rank)
        dynamic[rank].cells = of.shared_dynamic.data() + rank * (dynamic_bytes / 4 + 1);
}

void poison_shared(size_t dynamic_bytes) {
    memset(reinterpret_cast<void*>(entered->shared.low), POISON, static_shared_bytes());
    memset(emulator_dynamic_shared, POISON, std::min(dynamic_bytes + 4096, sizeof emulator_dynamic_shared));
}

void swap_shared(Block* out, Block* in) {
    auto* statics = reinterpret_cast<unsigned char*>(entered->shared.low);
    size_t bytes = static_shared_bytes(), more = (gpu.launch->cluster - 1) * gpu.launch->window + gpu.launch->request->shared;
    if (out) {
        out->image.assign(statics, statics + bytes);
        out->image.insert(out->image.end(), emulator_dynamic_shared, emulator_dynamic_shared + more);
    }
    if (in->image.empty()) {
        poison_shared(more);
    } else {
        memcpy(statics, in->image.data(), bytes);
        memcpy(emulator_dynamic_shared, in->image.data() + bytes, more);
    }
}

void forget_cells() {
    for (auto& [module, loaded] : modules)
        for (Region& region : loaded.globals) region.forget();
    forget_regions();
    forget_shadows();
}

size_t static_shared_of(const Module* module, const void* kernel) {
    Loaded& loaded = loaded_of(module);
    size_t bytes = 0;
    for (const Variable& variable : loaded.variables)
        if (kernel && !variable.guard && loaded.code + variable.kernel == reinterpret_cast<uintptr_t>(kernel))
            bytes += variable.end - variable.start;
    return bytes;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

// The author's variables in a library: shared memory first, then the others.
void emulator_variables(const Module* module, size_t count, const Variable* shared, size_t others, const Variable* named) {
    modules[module].variables.assign(shared, shared + count);
    modules[module].named.assign(named, named + others);
}

void emulator_forget_shadows() { forget_cells(); }
}
