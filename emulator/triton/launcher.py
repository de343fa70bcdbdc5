"""Converts Triton's arguments of a launch to the arguments of the PTX, in the order of the PTX."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import torch
from triton.runtime import _allocation

from flash_attest.emulator import ptx as engine
from flash_attest.emulator.errors import EmulatorError, NotCovered
from flash_attest.emulator.ptx.tensor_map import BYTES, TensorMap
from flash_attest.emulator.triton.descriptors import descriptor
from flash_attest.emulator.triton.lines import relocated

PACKED = {
    "i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp16": "e", "fp32": "f", "f32": "f", "fp64": "d",
}  # fmt: skip
# The type of values compiled into the kernel, including None and the integer 1.
NOT_PASSED = "constexpr"
SCRATCH = ("global scratch", "profile scratch")  # the last parameters of every kernel


class Launcher:
    """The object that Triton calls to launch a compiled kernel; each kernel has one. `src`,
    `metadata`: results of the compilation.
    """

    def __init__(self, src: Any, metadata: Any):
        self.name = metadata.name
        self.metadata = metadata
        self.source = getattr(src, "fn", None)
        self.loaded: Any = None
        self.signature = {_name(src, key): type_ for key, type_ in src.signature.items()}
        if getattr(metadata, "launch_cooperative_grid", False):
            raise NotCovered(
                f"{self.name}: launch_cooperative_grid=True: should be False on the CPU, where programs run one after another"
            )

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, ptx: str, packed_metadata: tuple, launch_metadata: Any,
        enter_hook: Any, exit_hook: Any, *values: Any,
    ) -> None:  # fmt: skip
        """Run grid_x * grid_y * grid_z programs.

        values: one value for each of the kernel's Python parameters.
        """
        programs = grid_x * grid_y * grid_z
        if enter_hook is not None:
            enter_hook(launch_metadata)
        kernel = self._load(ptx)
        if programs > 0:  # as on a GPU, nothing is launched if there are no programs
            layouts = iter(getattr(self.metadata, "tensordesc_meta", None) or ())
            named = [pair for (name, type_), value in zip(self.signature.items(), values, strict=True)
                     for pair in flat(name, type_, value, layouts)]  # fmt: skip
            ctas = getattr(self.metadata, "num_ctas", 1)  # blocks of a program, which form a cluster
            named += self._scratch(programs * ctas, len(kernel.parameters) - len(named), stream)
            names, arguments = zip(*named, strict=True) if named else ((), ())
            self._check(kernel, names, arguments)
            threads = 32 * self.metadata.num_warps
            cluster = (ctas, 1, 1) if ctas > 1 else None
            launch = kernel.launch(
                (grid_x * ctas, grid_y, grid_z), (threads, 1, 1), self.metadata.shared, cluster=cluster
            )
            launch(*arguments, names=list(names))
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _load(self, ptx: str) -> Any:
        """Load the kernel into emulator.ptx.

        This happens here, because only the compilation knows the Python files of its lines.
        """
        if self.loaded is None:
            text = ptx if self.source is None else relocated(ptx, self.source)
            loaded = engine.load(text, source=f"{self.name}.ptx", replicated=True)
            self.loaded = loaded.kernels[self.name]
        return self.loaded

    def _scratch(self, blocks: int, wanted: int, stream: int) -> list[tuple[str, Any]]:
        """Return the parameters that Triton adds: null, or memory that its compiler asks for, with
        one part for each block. A kernel that makes tensor descriptors asks for some.
        """
        if not 0 <= wanted <= len(SCRATCH):
            raise EmulatorError(
                f"{self.name}: its PTX has {wanted:+d} parameters more than its signature: {self.signature}"
            )
        sizes = [getattr(self.metadata, f"{name.replace(' ', '_')}_size", 0) or 0 for name in SCRATCH]
        memory = [torch.empty(blocks * size, dtype=torch.uint8) if size else None for size in sizes]
        if sizes[0]:  # as on a GPU, the author's function allocates it; without one, it raises RuntimeError
            align = getattr(self.metadata, "global_scratch_align", 1)
            memory[0] = pointed_to(_allocation._allocator.get()(blocks * sizes[0], align, stream))
        return list(zip(SCRATCH, memory, strict=True))[:wanted]

    def _check(self, kernel: Any, names: tuple[str, ...], arguments: tuple) -> None:
        for parameter, name, argument in zip(kernel.parameters, names, arguments, strict=True):
            size = len(argument) if isinstance(argument, bytes) else BYTES if isinstance(argument, TensorMap) else 8
            if parameter.size != size:
                raise EmulatorError(f"{self.name}: {name} has {parameter.size} bytes in the PTX, should have {size}")
            if isinstance(argument, torch.Tensor) and argument.device.type != "cpu":
                raise ValueError(f"{self.name}: {name} is on {argument.device}: should be on the CPU")


def flat(name: str, type_: Any, value: Any, layouts: Iterator[dict | None]) -> Iterator[tuple[str, Any]]:
    """Yield (name, argument) for each PTX parameter of an argument. Each is a tensor, a tensor map,
    bytes of a number, an address or None.

    layouts: those of the tensor descriptors, in order (descriptors.py).
    """
    if isinstance(type_, tuple):
        fields = getattr(value, "_fields", None) or range(len(type_))
        for field, of, part in zip(fields, type_, value, strict=True):
            yield from flat(f"{name}.{field}" if isinstance(field, str) else f"{name}[{field}]", of, part, layouts)
    elif type_ == NOT_PASSED:
        return
    elif type_.startswith("*"):
        yield name, pointed_to(value)
    elif type_.startswith("tensordesc"):
        yield from descriptor(name, type_, value, next(layouts, None))
    elif type_ == "bf16":
        yield name, torch.tensor(value, dtype=torch.bfloat16).view(torch.int16).numpy().tobytes()
    elif type_ in PACKED:
        yield name, struct.pack(f"<{PACKED[type_]}", _number(value, PACKED[type_]))
    else:
        raise NotCovered(f"{name} has the type {type_}, which is not covered on the CPU")


def pointed_to(value: Any) -> Any:
    """Return the tensor that a pointer points to, or the address if that is all that the object
    provides.
    """
    if value is None or isinstance(value, (torch.Tensor, int)):
        return value
    if hasattr(value, "base"):  # triton.reinterpret
        return pointed_to(value.base)
    return int(value.data_ptr())


def _number(value: Any, code: str) -> int | float:
    """Convert a number to the range of the type: Triton passes integers of 2**31 to 2**32 - 1 as
    i64, and addresses unchanged.
    """
    if code in "fed":
        return float(value)
    value, bits = int(value), 8 * struct.calcsize(f"<{code}")
    value &= 2**bits - 1
    return value - 2**bits if code.islower() and value >> (bits - 1) else value


def _name(src: Any, key: Any) -> str:
    """Return the Python name of a parameter; PTX or IR loaded from a file has only numbers."""
    if isinstance(key, str):
        return key
    names = getattr(getattr(src, "fn", None), "arg_names", None)
    index = key[0] if isinstance(key, tuple) else key
    return names[index] if names else f"argument {index}"
