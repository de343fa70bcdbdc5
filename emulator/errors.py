"""The exceptions of the emulator. Every message says what to change."""

from __future__ import annotations


class EmulatorError(RuntimeError):
    """The base class. Raised itself for a folder that cannot be written, no compiler, a source that
    does not compile, a failed launch.
    """


class NoCompiler(EmulatorError):
    """There is no g++ on this machine."""


class CompileError(EmulatorError):
    """A compiler rejects the file. The message is the compiler's, with the author's lines."""


class NotCovered(EmulatorError):
    """A kernel uses something that cannot be emulated on a CPU, so its correctness is unknown."""


class Refused(NotCovered, CompileError):
    """The file uses something that a CPU cannot emulate, such as cooperative groups. The message
    has the reason and the line.

    by_nvcc: whether nvcc may be able to compile the file although g++ is not.
    """

    def __init__(self, reason: str, file: str, line: int, by_nvcc: bool = False):
        super().__init__(f"{file}:{line}: not covered on the CPU: {reason}")
        self.reason, self.file, self.line, self.by_nvcc = reason, file, line, by_nvcc
