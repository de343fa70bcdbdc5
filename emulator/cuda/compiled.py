"""A .cu file compiled by nvcc. Its host code runs natively, and its launches go to the PTX engine
(emulator/ptx).
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from flash_attest.emulator import ptx
from flash_attest.emulator.cuda import build, nvcc
from flash_attest.emulator.cuda.module import CudaFile, Entry, library_lock
from flash_attest.emulator.cuda.ptx_lines import with_own_lines
from flash_attest.emulator.errors import EmulatorError, NotCovered
from flash_attest.emulator.runtime.symbols import base_name

FAILED = -1  # returned by a launch that raised in Python; no LaunchStatus has this value

# These match Launcher and Refuser in cudart/launches.cpp.
_LAUNCHER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint), ctypes.c_size_t,
    ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_size_t,
)  # fmt: skip
_REFUSER = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class CompiledFile(CudaFile):
    """A .cu file compiled by nvcc.

    The library of its host code is the same inside and outside of a trace; only the engine differs.
    """

    def __init__(self, path: Path, names: tuple[str, ...], flags: tuple[str, ...], compiler: str):
        super().__init__(path, names, flags, build.LEVEL)
        self.compiler = compiler
        self._raised: BaseException | None = None

    def entries(self, traced: bool) -> dict[str, Entry]:
        with library_lock:
            if not self._libraries:
                build.host()  # loaded first, because the library needs its functions
                self._libraries[False] = self._loaded()
            return self._libraries[False]

    def raise_failed(self) -> None:
        """Raise the exception, if any, that a launch of the last call raised."""
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _loaded(self) -> dict[str, Entry]:
        library = ctypes.CDLL(str(nvcc.library(self.compiler, self.path, self.names, self.flags)))
        library.emulator_cuda_entries.restype = ctypes.POINTER(Entry)
        library.emulator_cuda_variable.restype = ctypes.c_char_p
        text = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "emulator_cuda_ptx"))).decode()
        text = with_own_lines(text, nvcc.include_folder(self.compiler).resolve())
        self.module = ptx.load(text, source=f"{self.path.name}, compiled")
        self.kernels = tuple(base_name(name) for n, name in enumerate(self.names) if library.emulator_cuda_is_kernel(n))
        # The references keep these alive, because the library calls them later.
        self._called = _LAUNCHER(self._launch), _REFUSER(self._refuse)
        library.emulator_cuda_connect(*self._called)
        n = 0
        while name := library.emulator_cuda_variable(ctypes.c_size_t(n)).decode():
            # The compiler leaves out variables that no kernel uses.
            if name in self.module.variables:
                library.emulator_cuda_place(ctypes.c_size_t(n), ctypes.c_void_p(self.module.variables[name][0]))
            n += 1
        return dict(zip(self.names, library.emulator_cuda_entries(), strict=False))

    def _launch(self, name: bytes, grid, block, shared: int, limit: int, arguments, text: int, text_bytes: int) -> int:
        try:
            kernel = self.module.kernels[name.decode()]
            params = bytearray(max((p.offset + p.size for p in kernel.parameters), default=0))
            for parameter, address in zip(kernel.parameters, arguments, strict=False):
                params[parameter.offset : parameter.offset + parameter.size] = ctypes.string_at(address, parameter.size)
            status, said = kernel.start(tuple(grid[:3]), tuple(block[:3]), shared, bytes(params), shared_limit=limit)
            ctypes.memmove(text, said.encode()[: text_bytes - 1] + b"\0", min(len(said.encode()), text_bytes - 1) + 1)
            return status
        except BaseException as error:  # the exception cannot pass through C++; raise_failed raises it later
            self._raised = self._raised or error
            return FAILED

    def _refuse(self, what: bytes) -> None:
        error = NotCovered(f"{self.path.name}: not covered on the CPU: {what.decode()}")
        self._raised = self._raised or error


def compile_through_nvcc(path: Path, names: tuple[str, ...], flags: tuple[str, ...]) -> CompiledFile:
    """Load a .cu through nvcc.

    Raises EmulatorError without nvcc, CompileError, and Refused for an instruction that is not
    covered.
    """
    compiler = nvcc.nvcc()
    if compiler is None:
        raise EmulatorError(f"{path.name}: {nvcc.NONE}")
    file = CompiledFile(path, names, flags, compiler)
    file.entries(traced=False)
    return file
