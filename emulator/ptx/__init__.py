"""PTX on a CPU: code compiled by Triton, Numba or nvcc runs lane by lane, and every access can be
traced.

The documentation is docs/use/tracing-ptx.md. In Python, text is decoded: `parse` reads it
(syntax.py, declarations.py), `inline` replaces calls, `instructions` is the table of opcodes
(rows.py, spelling.py), whose functions are in `families` and `access`, `encode` turns it into the
machine's arrays, `allocate` and `layout` decide where registers and variables lie, `decoded` keeps
the result. `module` launches kernels, `storage` is the memory of a module's variables, `program`
explains the records of a kernel. In C++, machine/ executes an instruction for all lanes of a warp.
"""

from flash_attest.emulator.ptx.module import Kernel, Module, PtxError, load

__all__ = ["Kernel", "Module", "PtxError", "load"]
