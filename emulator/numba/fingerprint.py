"""A key for the PTX of a kernel, which changes with everything that Numba compiles into it.

The key covers the kernel's bytecode with its lines and constants, its closures, defaults and
globals. It covers the same of every function that it calls, and of the overloads and intrinsics
that its names refer to. It also covers the types of the arguments, the options, Numba's settings,
and the versions. A kernel that uses anything else has no key (Unkeyed) and is compiled in every
process.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import math
import operator
import sys
import types as python_types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numba_cuda
import numpy as np
from cuda import pathfinder
from numba.cuda import types
from numba.cuda.core import config
from numba.cuda.dispatcher import CUDADispatcher

from flash_attest.emulator.build_cache import key_of
from flash_attest.emulator.devices import emulated
from flash_attest.emulator.numba.taught import Taught, is_of_package, maker

TYPES = (types.Number, types.Boolean, types.NPDatetime, types.NPTimedelta)
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
# Parts of instruction names, which differ between versions of Python.
LOADS = ("GLOBAL", "NAME", "DEREF")
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
# Modules of the standard library whose results depend only on the arguments. os.environ and
# time.time do not qualify.
STEADY = (
    *("math", "cmath", "operator", "builtins", "functools", "itertools", "types", "typing", "enum", "numbers"),
    *("collections", "inspect", "textwrap"),
)


class Unkeyed(Exception):
    """A kernel has no key. The message says why."""


def key(function: Any, argtypes: tuple, options: dict[str, Any]) -> str:
    """Return the key. Raises Unkeyed."""
    if options.get("debug"):
        raise Unkeyed("debug=True: the kernel's exceptions are known to the compiler only")
    _taught.update()
    if _taught.otherwise:
        raise Unkeyed(f"{_taught.otherwise} changes Numba's tables itself")
    walk = _Walk()
    parts = [*map(walk.type, argtypes), *walk.options(options), *walk.function(function)]
    parts += walk.templates(_taught.everywhere)
    return key_of(_surroundings(), _settings(), *parts)


_taught = Taught()


@functools.cache
def _surroundings() -> str:
    """Return the part of the key that is constant in a process."""
    libraries = [Path(pathfinder.load_nvidia_dynamic_lib(name).abs_path) for name in ("nvvm", "nvrtc")]
    files = [(path, path.stat().st_size, path.stat().st_mtime_ns) for path in libraries]
    sources = sorted(Path(__file__).parent.glob("*.py"))
    versions = (sys.version, numba.__version__, numba_cuda.__version__, llvmlite.__version__, np.__version__)
    return key_of(
        *map(str, (*versions, *files, emulated().capability)),
        *(path.read_bytes() for path in sources),
    )


def _settings() -> str:
    """Return Numba's settings, NUMBA_OPT and others."""
    return repr(sorted((k, v) for k, v in vars(config).items() if k.isupper() and isinstance(v, PLAIN)))


# ---- the parts of a function ---------------------------------------------------------------------


class _Walk:
    """Walks through a kernel and the device functions that it calls. Its methods yield parts of the
    key.
    """

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # function -> its number, as functions may call themselves

    def function(self, function: Any) -> Iterator[str]:
        if not isinstance(function, python_types.FunctionType):
            raise Unkeyed(f"{function!r} is not a Python function")
        if id(function) in self._seen:
            yield f"function {self._seen[id(function)]}"
            return
        self._seen[id(function)] = len(self._seen)
        yield function.__module__ or ""
        yield from self.value(function.__defaults__)
        yield from self.value(tuple(sorted((function.__kwdefaults__ or {}).items())))
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        yield from self.code(function.__code__, function.__globals__, cells)

    def code(self, code: Any, names: dict[str, Any], cells: dict[str, Any]) -> Iterator[str]:
        for field in sorted(name for name in dir(code) if name.startswith("co_") and name != "co_lnotab"):
            value = getattr(code, field)
            if isinstance(value, PLAIN) or (isinstance(value, tuple) and field != "co_consts"):
                yield f"{field}={value!r}"
        for constant in code.co_consts:
            if isinstance(constant, python_types.CodeType):
                yield from self.code(constant, names, cells)
            else:
                yield from self.value(constant)
        for name, value in _named(code, names, cells):
            yield name
            yield from self.value(value)

    def value(self, value: Any) -> Iterator[str]:
        kind = type(value)
        if kind in PLAIN:
            yield f"{kind.__name__} {value!r}"
        elif kind in (tuple, list):
            yield f"{kind.__name__} of {len(value)}"
            for each in value:
                yield from self.value(each)
        elif kind in (set, frozenset):
            yield from (f"in a set: {part}" for part in sorted(key_of(*self.value(each)) for each in value))
        elif isinstance(value, np.generic) or kind is np.ndarray:
            array = np.asarray(value)
            if array.dtype.hasobject:
                raise Unkeyed("an array of objects")
            yield f"{kind.__name__} {array.dtype!r} {array.shape} {array.strides} {array.tobytes().hex()}"
        elif isinstance(value, np.dtype):
            yield f"dtype {value!r}"
        elif isinstance(value, types.Type):
            name = str(value)
            yield f"type {name}" if getattr(types, name, None) is value else self.type(value)
        elif isinstance(value, CUDADispatcher):
            yield from self.options(value.targetoptions)
            # Include signatures given in the decorator, because callers' arguments are converted to
            # them.
            if not value._can_compile:
                yield from (str(compiled.signature) for compiled in value.overloads.values())
            yield from self.function(value.py_func)
        elif isinstance(value, enum.EnumMeta):
            yield f"enum {value.__qualname__} {value.__mro__}"
            for member in value:
                yield member.name
                yield from self.value(member.value)
        elif isinstance(value, enum.Enum):
            yield value.name
            yield from self.value(type(value))
        elif isinstance(value, python_types.FunctionType) and not is_of_package(value.__module__):
            yield from self.function(value)
            yield from self.templates(_taught.of.get(id(value), ()))
        elif hasattr(value, "_defn") and not is_of_package(value._defn.__module__):
            yield from self.templates(_taught.of.get(id(value), ()))
        else:
            yield f"known {_known(value)}"

    def templates(self, templates: Iterable[Any]) -> Iterator[str]:
        """Yield the parts of an author's overloads and intrinsics."""
        for template in templates:
            yield template.__name__
            for name in ("_attr", "_jit_options", "_strict", "prefer_literal", "metadata"):
                value = getattr(template, name, None)
                yield from self.value(tuple(sorted(value.items())) if isinstance(value, Mapping) else value)
            yield str(getattr(getattr(template, "_inline", None), "value", None))
            if not isinstance(template.key, python_types.FunctionType) and not hasattr(template.key, "_defn"):
                yield from self.value(template.key)
            yield from self.function(maker(template))

    def type(self, type_: Any) -> str:
        if isinstance(type_, types.BaseTuple):
            fields = getattr(type_, "fields", ())
            return f"{type(type_).__name__} {type_.name} {fields} ({', '.join(map(self.type, type_))})"
        if isinstance(type_, types.Array):
            self.type(type_.dtype)
        elif not isinstance(type_, TYPES) or not is_of_package(type(type_).__module__):
            raise Unkeyed(f"the type {type_}")
        return f"{type(type_).__qualname__} {type_!r}"

    def options(self, options: dict[str, Any]) -> Iterator[str]:
        for name, value in sorted(options.items()):
            if name in ("link", "extensions") and value:
                raise Unkeyed(f"{name}={value!r}")
            yield name
            yield from self.value(value)


def _named(code: Any, names: dict[str, Any], cells: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each global and closure variable that the code loads. For a module,
    yield the attributes that it loads.
    """
    for name, attributes in _loads(code):
        if name in cells:
            try:
                value = cells[name].cell_contents
            except ValueError:
                raise Unkeyed(f"{name} has no value yet") from None
        elif name in code.co_cellvars or name in code.co_freevars:
            continue  # a variable of the enclosing function
        else:
            value = names.get(name, getattr(builtins, name, None))
        within = None
        for attribute in attributes:
            if not isinstance(value, python_types.ModuleType) or not hasattr(value, attribute):
                break
            within, name, value = value, f"{name}.{attribute}", getattr(value, attribute)
        if within and is_of_package(within.__name__) and is_of_package(getattr(value, "__module__", "numba")):
            _check_steady(within.__name__)
            name, value = f"{within.__name__}, {name}", None  # its version is in the key
        yield name, value


@functools.lru_cache(maxsize=1024)
def _loads(code: Any) -> list[tuple[str, list[str]]]:
    """Yield (name, the attributes that follow it) of each variable that the code loads from
    outside.
    """
    variables: list[tuple[str, list[str]]] = []
    follows = False  # whether an attribute loaded next belongs to the last variable
    for instruction in dis.get_instructions(code):
        name, value = instruction.opname, instruction.argval
        if name.startswith("IMPORT_"):
            raise Unkeyed(f"{code.co_name} imports {value}")
        if name.startswith("LOAD_") and any(part in name for part in LOADS):
            variables.append((value, []))
            follows = True
        elif follows and name in ATTRIBUTES:
            variables[-1][1].append(value)
        else:
            follows = False
    return variables


def _check_steady(module: str) -> None:
    """Raise Unkeyed for an unknown module, because overloads and intrinsics may use it when a
    kernel is compiled.
    """
    top = module.partition(".")[0].removeprefix("_")
    if top in sys.stdlib_module_names and top not in STEADY:
        raise Unkeyed(f"{module}, which may say something else in another process")


def _known(value: Any) -> str:
    """Return the name of an object of a package whose version is in the key: math.exp,
    numpy.float32, cuda.grid.
    """
    if isinstance(value, python_types.ModuleType):
        if is_of_package(value.__name__) and sys.modules.get(value.__name__) is value:
            _check_steady(value.__name__)
            return value.__name__
        raise Unkeyed(f"the module {value.__name__}, used as a value")
    module = getattr(value, "__module__", None) or ""
    name = getattr(value, "__qualname__", None) or getattr(value, "_name", None) or ""
    if is_of_package(module) and module in sys.modules:
        try:
            if operator.attrgetter(name)(sys.modules[module]) is value:
                _check_steady(module)
                return f"{module}.{name}"
        except AttributeError:
            pass
    # Some functions, such as NumPy's ufuncs, do not know their module.
    for module in (math, np, operator):
        if getattr(module, getattr(value, "__name__", ""), None) is value:
            return f"{module.__name__}.{value.__name__}"
    raise Unkeyed(f"{type(value).__module__}.{type(value).__qualname__} {getattr(value, '__name__', '')}")
