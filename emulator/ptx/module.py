"""A loaded PTX module, whose kernels are launched with CPU tensors."""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from flash_attest.emulator.errors import EmulatorError
from flash_attest.emulator.ptx.clusters import cluster_of
from flash_attest.emulator.ptx.decoded import Decoded, Head, decoded
from flash_attest.emulator.ptx.machine import machine
from flash_attest.emulator.ptx.program import Program
from flash_attest.emulator.ptx.storage import Storage
from flash_attest.emulator.ptx.syntax import Parameter
from flash_attest.emulator.ptx.tensor_map import BYTES as TENSOR_MAP_BYTES
from flash_attest.emulator.ptx.tensor_map import TensorMap
from flash_attest.emulator.runtime import watch
from flash_attest.emulator.runtime.calls import Dims, memory_of, raise_observed, refuse_large, three

LARGEST_SHARED = 227 * 1024  # bytes of shared memory for each block, as in runtime.h
LAUNCH_DONE, LAUNCH_INVALID, LAUNCH_STOPPED = 0, 2, 5  # enum LaunchStatus
_serial = itertools.count(1)
_lock = threading.RLock()  # held while loading


class PtxError(EmulatorError):
    """A launch failed, or a kernel did something that stops it on a GPU: a deadlock, an illegal
    address, a trap.
    """


def load(text: str | bytes, source: str = "<ptx>", kernels: Sequence[str] = (), replicated: bool = False) -> Module:
    """Decode PTX text (once; later it comes from the cache).

    source: its name, for messages. kernels: names of kernels that must be covered; others are
    checked when launched. replicated: threads may hold copies of a value and all store it, as in
    Triton's code, so two writes of one value are no race. Raises CompileError with the line of
    anything that is not PTX; Refused with the opcode and the line of anything that is not covered;
    KeyError for an unknown name.
    """
    if isinstance(text, bytes):
        text = text.rstrip(b"\0").decode(errors="replace")
    if not isinstance(text, str):
        raise TypeError(f"PTX should be text, is {type(text).__name__}")
    with _lock:
        module = Module(text, source, decoded(text, source), replicated)
    for name in kernels:
        module[name].check()
    return module


class Module:
    """A PTX module: module["name"] is a kernel.

    Its .global and .const variables keep their values between launches.
    """

    def __init__(self, text: str, source: str, content: Decoded, replicated: bool = False):
        self.text, self.source, self.decoded, self.replicated = text, source, content, replicated
        self.library = f"ptx:{content.key}:{next(_serial)}"
        self.kernels: Mapping[str, Kernel] = {name: Kernel(self, kernel) for name, kernel in content.kernels.items()}

    def __getitem__(self, name: str) -> Kernel:
        if name not in self.kernels:
            known = ", ".join(self.kernels) or "none"
            raise KeyError(f"{self.source} has no kernel {name!r}; its kernels: {known}")
        return self.kernels[name]

    def __repr__(self) -> str:
        return f"<{self.source}: {', '.join(self.kernels)}>"

    @functools.cached_property
    def variables(self) -> dict[str, tuple[int, int]]:
        """Return (address, bytes) of each .global and .const variable."""
        return {variable.name: (self.storage.address(variable.name), variable.size) for variable in self.storage}

    @functools.cached_property
    def storage(self) -> Storage:
        """Return the memory of the variables. Raises Refused if one cannot be initialised."""
        return Storage(self.decoded.variables, self.source)


class Kernel:
    """A kernel of a module: kernel.launch(grid, block, shared)(*arguments)."""

    def __init__(self, module: Module, content: Head):
        self.module, self.head, self.name = module, content, content.name

    def __repr__(self) -> str:
        return f"<{self.name} of {self.module.source}>"

    @property
    def parameters(self) -> list[Parameter]:
        """Return the parameters in the order of the PTX."""
        return self.head.parameters

    def check(self) -> None:
        """Check the kernel.

        Raises Refused with the opcode and the line of anything that is not covered.
        """
        _ = self._program

    def launch(
        self, grid: Dims, block: Dims, shared: int = 0, shared_limit: int = LARGEST_SHARED, cluster: Dims | None = None
    ) -> Callable[..., None]:
        """Return a function that launches this kernel with arguments.

        grid, block: 1 to 3 sizes. shared: bytes of dynamic shared memory; shared_limit: the limit
        of shared memory, including the kernel's own. cluster: 1 to 3 sizes of a cluster, in blocks,
        if the PTX does not say them. An argument is a CPU tensor, a TensorMap, None (a null
        pointer), a number, or the bytes of a parameter. names=[...]: what messages call the
        arguments. Raises Refused, PtxError (a failed launch; without tracing also an error that
        stops a kernel on a GPU).
        """
        _ = self._program  # refuses the kernel now rather than when the result is called
        shape = three("grid", grid), three("block", block)
        clusters = None if cluster is None else tuple(three("cluster", cluster))
        if not isinstance(shared, int) or shared < 0:
            raise ValueError(f"shared={shared!r}: should be a number of bytes")

        def call(*arguments: Any, names: Sequence[str] | None = None) -> None:
            self._call(*shape, shared, shared_limit, arguments, names, clusters)

        return call

    def start(
        self,
        grid: Dims,
        block: Dims,
        shared: int,
        params: bytes,
        shared_limit: int | None = None,
        cluster: Sequence[int] | None = None,
    ) -> tuple[int, str]:
        """Run the kernel in memory that is already set up.

        params: the parameter buffer, with the addresses that kernels use.

        Returns (a LaunchStatus of the runtime, the reason of a failure or "").
        """
        program = self._program
        grid, block = three("grid", grid), three("block", block)
        cluster, wrong = cluster_of(self.head.directives, cluster, tuple(grid))
        if wrong := self._wrong_block(tuple(block)) or wrong:
            return LAUNCH_INVALID, wrong
        text = ctypes.create_string_buffer(1024)
        status = machine().emulator_ptx_launch(
            program.handle, program.address, self.name.encode(), grid, block, (ctypes.c_uint * 3)(*cluster), shared,
            LARGEST_SHARED if shared_limit is None else shared_limit, params, len(params), text, len(text),
        )  # fmt: skip
        return status, text.value.decode(errors="replace")

    # ---- implementation
    # ------------------------------------------------------------------------------

    @functools.cached_property
    def _program(self) -> Program:
        with _lock:
            module = self.module
            module.decoded.code(self.name)  # errors of the kernel are raised before errors of a variable
            return Program(module.decoded, self.name, module.storage, module.library, module.replicated)

    @property
    def _who(self) -> str:
        return f"{self.name} of {self.module.source}"

    def _wrong_block(self, block: tuple[int, ...]) -> str:
        """Return why the kernel cannot be launched with these blocks; "" if it can."""
        required, most = (self.head.directives.get(name) for name in ("reqntid", "maxntid"))
        if required and (*required, 1, 1)[:3] != block:
            return f"block={block}: the kernel was compiled for {(*required, 1, 1)[:3]} (.reqntid)"
        if most and block[0] * block[1] * block[2] > (limit := functools.reduce(lambda a, b: a * b, most)):
            return f"block={block}: the kernel was compiled for at most {limit} threads (.maxntid)"
        return ""

    def _call(
        self,
        grid: Dims,
        block: Dims,
        shared: int,
        limit: int,
        arguments: tuple,
        names: Sequence[str] | None,
        cluster: Sequence[int] | None,
    ) -> None:
        names = self._names(arguments, names)
        given = zip(names, arguments, strict=True)
        tensors = [(name, getattr(a, "tensor", a)) for name, a in given if isinstance(a, (torch.Tensor, TensorMap))]
        packed = self._packed(arguments, names)
        watching = watch.current()
        with memory_of(tensors) as memory:
            addresses = iter(memory.addresses)
            for parameter, argument in zip(self.parameters, arguments, strict=True):
                if isinstance(argument, torch.Tensor):
                    struct.pack_into("<Q", packed, parameter.offset, next(addresses))
                elif isinstance(argument, TensorMap):
                    packed[parameter.offset : parameter.offset + parameter.size] = argument.encoded(next(addresses))
            if watching:
                refuse_large(self._who, memory.storages, PtxError)
            status, text = self.start(tuple(grid), tuple(block), shared, bytes(packed), limit, cluster)
            observations = memory.take_observations()
            if watching:
                watching.observe(observations)
            if status not in (LAUNCH_DONE, LAUNCH_STOPPED):
                raise PtxError("\n".join([f"{self._who} cannot be launched: {text}", *map(str, observations)]))
            if not watching:
                raise_observed(self._who, observations, memory.storages, PtxError)

    def _names(self, arguments: tuple, names: Sequence[str] | None) -> list[str]:
        wanted = [parameter.name for parameter in self.parameters]
        if len(arguments) != len(wanted):
            listed = f" ({', '.join(wanted)})" if wanted else ""
            raise TypeError(f"{self._who} takes {len(wanted)} arguments{listed}, got {len(arguments)}")
        if names is not None and len(names) != len(wanted):
            raise ValueError(f"names={list(names)}: {self._who} takes {len(wanted)} arguments")
        return list(names or wanted)

    def _packed(self, arguments: tuple, names: list[str]) -> bytearray:
        """Return the parameter buffer, without the addresses of tensors."""
        size = max((p.offset + p.size for p in self.parameters), default=0)
        packed = bytearray(size)
        for parameter, argument, name in zip(self.parameters, arguments, names, strict=True):
            try:
                value = packed_argument(parameter, argument)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{self._who}, {name}: {error}") from None
            packed[parameter.offset : parameter.offset + parameter.size] = value
        return packed


def packed_argument(parameter: Parameter, argument: Any) -> bytes:
    """Return the bytes of an argument; zeros for a tensor.

    Raises TypeError or ValueError, which say what the argument should be.
    """
    kind, size = parameter.kind, parameter.size
    if isinstance(argument, (bytes, bytearray, memoryview)):
        if len(argument) != size:
            raise ValueError(f"should have {size} bytes, has {len(argument)}")
        return bytes(argument)
    if isinstance(argument, TensorMap):
        if size != TENSOR_MAP_BYTES:
            raise ValueError(f"should be a struct of {size} bytes, is a tensor map of {TENSOR_MAP_BYTES}")
        return bytes(size)
    if kind.endswith("[]"):
        raise TypeError(f"should be the {size} bytes of a struct, is {type(argument).__name__}")
    if isinstance(argument, torch.Tensor):
        if argument.device.type != "cpu":
            raise ValueError(f"should be a CPU tensor, is on {argument.device}")
        if kind not in ("u64", "s64", "b64"):
            raise TypeError(f"should be a number (.{kind}), is a tensor")
        return bytes(8)
    if argument is None:
        if kind not in ("u64", "s64", "b64"):
            raise TypeError(f"should be a number (.{kind}), is None")
        return bytes(8)
    if not isinstance(argument, (int, float)):
        raise TypeError(f"should be a CPU tensor, a number or None, is {type(argument).__name__}")
    if kind in ("f32", "f64", "f16"):
        return struct.pack("<" + {"f32": "f", "f64": "d", "f16": "e"}[kind], argument)
    if isinstance(argument, float):
        if not argument.is_integer():
            raise ValueError(f"should be an integer (.{kind}), is {argument!r}")
        argument = int(argument)
    if not -(2 ** (8 * size - 1)) <= argument < 2 ** (8 * size):
        raise ValueError(f"should have {8 * size} bits (.{kind}), is {argument!r}")
    return (argument % 2 ** (8 * size)).to_bytes(size, "little")
