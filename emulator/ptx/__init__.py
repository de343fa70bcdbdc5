"""PTX on a CPU: what Triton, Numba and nvcc compile runs lane by lane, and every access can be traced (docs/use/tracing-ptx.md).

Python decodes text: `parse` reads it (syntax.py, declarations.py), `inline` replaces calls, `instructions` is the table of
opcodes (rows.py, spelling.py), whose functions are in `families` and `access`, `encode` makes the machine's arrays of it,
`allocate` and `layout` say where registers and variables lie, `decoded` keeps the result. `module` launches kernels,
`storage` is the memory of its variables, `program` explains the records of a kernel. C++: machine/ executes an instruction
for all lanes of a warp.
"""

from flash_attest.emulator.ptx.module import Kernel, Module, PtxError, load

__all__ = ["Kernel", "Module", "PtxError", "load"]
