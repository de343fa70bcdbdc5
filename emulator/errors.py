"""Errors of the emulator; every message says what to change."""

from __future__ import annotations


class EmulatorError(RuntimeError):
    """Base class: a folder that cannot be written, no compiler, a source that does not compile, a
    failed launch.
    """


class NoCompiler(EmulatorError):
    """There is no g++ on this machine."""


class CompileError(EmulatorError):
    """g++ rejects the file; the message is g++'s, with the author's lines."""


class NotCovered(EmulatorError):
    """A kernel uses something that cannot be emulated on a CPU, so its correctness is unknown."""


class Refused(NotCovered, CompileError):
    """The file uses something that a CPU cannot emulate (inline PTX, cooperative groups, ...): has
    the reason and the line.

    by_nvcc: whether nvcc may compile it where g++ cannot.
    """

    def __init__(self, reason: str, file: str, line: int, by_nvcc: bool = False):
        super().__init__(f"{file}:{line}: not covered on the CPU: {reason}")
        self.reason, self.file, self.line, self.by_nvcc = reason, file, line, by_nvcc
