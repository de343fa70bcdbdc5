"""Tests each private name of numba-cuda that the emulator uses: its purpose, and the version for
which it is known.

If a test fails after an update of numba-cuda: read how the name changed there, adapt
emulator/numba, then change the version in emulator/numba/__init__.py. Public names are numba.cuda,
its decorators, numba.cuda.types and numba.cuda.extending.
"""

from __future__ import annotations

import inspect
import operator
import re
from importlib import import_module

import numba_cuda
import numpy as np
import pytest
from numba import cuda
from numba.cuda import dispatcher, lowering, types
from numba.cuda.cudadrv import devicearray, devices, driver

from flash_attest.emulator.numba import kernel as emulated
from flash_attest.emulator.numba import patches, taught
from flash_attest.emulator.numba.device import FUNCTIONS
from flash_attest.emulator.numba.kernel import NumbaKernel

LAST_RIGHT = "0.30.4"


@cuda.jit
def sample(x):
    x[cuda.grid(1)] += 1


@pytest.fixture(scope="module")
def library():
    """Return Numba's own library of a compiled kernel."""
    argtypes = (types.Array(types.float32, 1, "C"),)
    return NumbaKernel(sample.py_func, argtypes, **sample.targetoptions)._codelibrary


def check(right: bool, name: str, purpose: str, now: object) -> None:
    """Fail with a message that says what to read."""
    assert right, (
        f"{name}, by which the emulator {purpose}, was last right in numba-cuda {LAST_RIGHT}; this is "
        f"{numba_cuda.__version__}, where it is {now}"
    )


def names_of(function) -> list[str]:
    return list(inspect.signature(function).parameters)


# ---- replaced names (patches.py) -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(owner, name, id=f"{getattr(owner, '__name__', type(owner).__name__)}.{name}")
        for owner, name, _ in patches.REPLACED
        if owner is not driver.driver
    ],
)
def test_every_name_that_is_replaced_is_there(owner, name):
    """Setting a name that Numba no longer has would succeed without any effect."""
    check(name in vars(owner), f"{owner.__name__}.{name}", "takes Numba's place", "not there")
    sources = "".join(map(inspect.getsource, (dispatcher, devices, lowering)))
    uses = re.findall(rf"(?<!def )(?<!class )\b{name}\b", sources)
    check(bool(uses), name, "takes Numba's place", "used neither by the dispatcher, nor the devices, nor the lowering")


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name.startswith("cu")])
def test_every_function_of_the_driver_exists_in_cuda(name):
    check(hasattr(driver.binding, name), f"cuda.bindings.driver.{name}", "copies, waits or measures", "not there")


def test_the_driver_is_one_object_whose_functions_are_attributes():
    now = type(driver.driver).__mro__
    right = isinstance(driver.driver, driver.Driver) and "__getattr__" in vars(driver.Driver)
    check(right, "numba.cuda.cudadrv.driver.driver", "answers calls of CUDA's driver", now)
    for name in ("is_initialized", "initialization_error", "get_device", "get_device_count"):
        source = inspect.getsource(driver.Driver)
        check(name in source, f"Driver.{name}", "says that there is one device", "not there")


def test_the_runtime_is_what_gives_contexts():
    now = inspect.getsource(devices)
    for call in ("_runtime.get_or_create_context(devnum)", "_runtime.ensure_context()", "_runtime.reset()"):
        check(call in now, f"devices.{call}", "is the current context", "not called")


def test_a_kernel_is_made_of_a_function_types_and_options():
    now = names_of(NumbaKernel.__init__)
    check(now[:3] == ["self", "py_func", "argtypes"], "dispatcher._Kernel.__init__", "compiles a kernel", now)
    now = inspect.getsource(dispatcher.CUDADispatcher.compile)
    right = "_Kernel(self.py_func, argtypes, **self.targetoptions)" in now and "kernel.bind()" in now
    check(right, "CUDADispatcher.compile", "gets its kernel made", now)


def test_a_kernel_is_launched_with_grid_block_stream_and_shared_memory():
    now = names_of(NumbaKernel.launch)
    wanted = ["self", "args", "griddim", "blockdim", "stream", "sharedmem"]
    check(now == wanted == names_of(emulated.Kernel.launch), "_Kernel.launch", "runs a kernel", now)
    now = inspect.getsource(dispatcher.CUDADispatcher.call)
    right = "kernel.launch(args, griddim, blockdim, stream, sharedmem)" in now
    check(right, "CUDADispatcher.call", "runs a kernel", now)


def test_a_kernel_is_rebuilt_from_what_the_cache_has():
    now = names_of(NumbaKernel._rebuild)
    wanted = ["cooperative", "name", "signature", "codelibrary", "debug", "lineinfo", "call_helper", "extensions"]
    check(now[:8] == wanted, "_Kernel._rebuild", "makes a kernel of kept PTX", now)
    compiled = set(vars(NumbaKernel(sample.py_func, (types.Array(types.int8, 1, "C"),), **sample.targetoptions)))
    x = np.zeros(1, np.int8)
    for again in range(2):  # the second one comes from the cache
        fresh = cuda.jit(sample.py_func)
        fresh[1, 1](x)
        (kernel,) = fresh.overloads.values()
        lacks = (
            compiled
            - set(vars(kernel))
            - {"target_context", "fndesc", "environment", "_referenced_environments", "lifted"}
        )
        check(not lacks, "_Kernel's attributes", f"makes a kernel of kept PTX ({again})", f"more: {sorted(lacks)}")


@pytest.mark.parametrize("name", ("py_func", "argument_types", "extensions", "debug", "entry_name", "cooperative"))
def test_what_a_kernel_has_when_it_is_compiled(name):
    kernel = NumbaKernel(sample.py_func, (types.Array(types.int8, 1, "C"),), **sample.targetoptions)
    check(hasattr(kernel, name), f"_Kernel.{name}", "knows what to launch", "not there")
    check(kernel.launch_config_sensitive is False, "_Kernel.launch_config_sensitive", "knows what to keep", "not False")


def test_exceptions_are_found_by_number():
    kernel = NumbaKernel(
        sample.py_func, (types.Array(types.int8, 1, "C"),), **{**sample.targetoptions, "debug": True, "opt": False}
    )
    now = names_of(kernel.call_helper.get_exception)
    check(now == ["exc_id"], "call_helper.get_exception", "raises with debug=True", now)
    text = kernel.inspect_asm(None)
    for name in ("errcode", *(f"tid{i}" for i in "xyz"), *(f"ctaid{i}" for i in "xyz")):
        check(
            f"{kernel.entry_name}__{name}__" in text, f"the variable __{name}__", "raises with debug=True", "not there"
        )


def test_lines_are_an_option_of_the_compiler():
    now = names_of(inspect.unwrap(dispatcher.compile_cuda))
    right = {"debug", "lineinfo"} <= set(now)
    check(right, "dispatcher.compile_cuda", "has Python lines in the PTX", now)
    source = inspect.getsource(dispatcher)
    right = source.count("compile_cuda(") == 2  # of kernels and of device functions
    check(
        right, "dispatcher.compile_cuda", "has Python lines in the PTX", f"called {source.count('compile_cuda(')} times"
    )


def test_lines_without_variables_have_a_kind_of_their_own():
    source = inspect.getsource(import_module("numba.cuda.lowering")) + inspect.getsource(
        import_module("numba.cuda.debuginfo")
    )
    right = f'"{patches.LINES_ONLY}"' in source and "emission_kind" in source
    check(
        right,
        "CUDADIBuilder.emission_kind",
        "hides variables from NVVM, which rejects some",
        f"not {patches.LINES_ONLY}",
    )


# ---- names that are read -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ("_linking_files", "llvm_strs", "get_asm_strs", "get_cufunc", "use_cooperative"))
def test_the_code_library_has_the_text_and_what_it_links(library, name):
    check(hasattr(library, name), f"CUDACodeLibrary.{name}", "gets the whole PTX of a kernel (text.py)", "not there")


def test_an_array_becomes_seven_kinds_of_parameters(library):
    """The parameters are meminfo, parent, size, itemsize, data, shape, strides, of 8 bytes each
    (arguments.py).
    """
    entry = library.get_asm_str().partition(".entry")[2].partition(")")[0]
    now = entry.count(".param .u64")
    check(
        now == 7 == entry.count(".param"),
        "the parameters of an array",
        "passes arrays (arguments.py)",
        f"{now} of 8 bytes",
    )
    now = inspect.getsource(NumbaKernel._prepare_args)
    order = ["append(meminfo", "append(parent", "append(devary.size", "append(itemsize", "append(devary.ptr"]
    places = [now.find(each) for each in (*order, "extend(shape", "strides_in_bytes")]
    check(-1 not in places and places == sorted(places), "_Kernel._prepare_args", "passes arrays (arguments.py)", now)


@pytest.mark.parametrize(
    ("module", "name", "purpose"),
    [
        ("typing.typeof", "typeof_impl.register", "types tensors (arguments.py)"),
        ("np.numpy_support", "from_dtype", "types tensors (arguments.py)"),
        ("np.numpy_support", "as_dtype", "compares arrays with what was compiled (arguments.py)"),
        ("args", "ArgHint", "takes cuda.In and cuda.Out (arguments.py)"),
        ("typing", "signature", "makes a kernel of kept PTX (kernel.py)"),
        ("core.config", "OPT", "keys kernels by Numba's settings (fingerprint.py)"),
        ("core.errors", "NumbaDebugInfoWarning", "does not warn about lines that nobody asked for (patches.py)"),
        ("cudadrv.nvrtc", "get_arch_option", "compiles what a kernel links (text.py)"),
    ],
)
def test_names_of_other_modules_are_there(module, name, purpose):

    try:
        operator.attrgetter(name)(import_module(f"numba.cuda.{module}"))
    except (ImportError, AttributeError) as error:
        check(False, f"numba.cuda.{module}.{name}", purpose, error)


def test_device_arrays_say_where_they_lie():
    array = cuda.device_array((2, 3), np.float32)
    right = isinstance(array, devicearray.DeviceNDArrayBase) and array.device_ctypes_pointer.value
    check(bool(right), "devicearray.DeviceNDArrayBase", "passes device arrays (arguments.py)", array)


@pytest.mark.parametrize("name", ("MemoryPointer", "PinnedMemory", "MemoryInfo", "Stream", "Event", "host_pointer"))
def test_memory_streams_and_events_are_numba_s_own(name):
    check(hasattr(driver, name), f"cudadrv.driver.{name}", "has memory and streams (device.py)", "not there")


@pytest.mark.parametrize("module", taught.REGISTRIES)
def test_numba_s_tables_are_lists_that_grow(module):
    registry = getattr(__import__(module, fromlist=["x"]), taught.REGISTRIES[module], None)
    lists = [name for name in taught.LISTS if isinstance(getattr(registry, name, None), list)]
    check(len(lists) >= 3, f"{module}.{taught.REGISTRIES[module]}", "knows what Numba was taught (taught.py)", registry)


def test_overloads_and_intrinsics_have_the_author_s_function():
    from numba.cuda.extending import intrinsic, overload
    from numba.cuda.typing.templates import builtin_registry

    def stub(x):
        raise NotImplementedError

    @overload(stub)
    def taught_overload(x):
        return lambda x: x

    @intrinsic
    def taught_intrinsic(context, x):
        return x(x), lambda context, builder, signature, arguments: arguments[0]

    makers = [getattr(taught.maker(each), "__name__", "") for each in builtin_registry.functions[-2:]]
    wanted = ["taught_overload", "taught_intrinsic"]
    check(makers == wanted, "_overload_func, _definition_func", "keys what Numba was taught (taught.py)", makers)
    check(taught_intrinsic._defn.__name__ == wanted[1], "_Intrinsic._defn", "keys intrinsics", taught_intrinsic)


def test_a_device_function_with_a_signature_cannot_compile_another():
    fixed = cuda.jit("float32(float32)", device=True)(lambda x: x)
    right = fixed._can_compile is False and [str(each.signature) for each in fixed.overloads.values()]
    check(
        right == ["(float32,) -> float32"],
        "CUDADispatcher._can_compile",
        "keys device functions (fingerprint.py)",
        right,
    )
    free = cuda.jit(device=True)(lambda x: x)
    check(free._can_compile is True, "CUDADispatcher._can_compile", "keys device functions (fingerprint.py)", free)
