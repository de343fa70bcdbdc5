"""Decodes PTX text to code that can run. Each kernel is decoded once and kept on disk."""

from __future__ import annotations

import functools
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flash_attest.emulator.build_cache import built, key_of
from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.ptx.encode import Encoded, encode
from flash_attest.emulator.ptx.inline import inlined
from flash_attest.emulator.ptx.parse import Parser
from flash_attest.emulator.ptx.syntax import Parameter, Place, Variable

KEPT = 64  # texts in memory
# Lines in these files are not the author's. Findings show the line that calls them, as for the
# headers of emulator/cuda.
LIBRARIES = re.compile(
    r"/triton/(language|experimental|tools)/|-packages/numba(_cuda)?/|^/usr/|/cuda[^/]*/([^/]+/)*include/|/nvidia/([^/]+/)*include/"
)

LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")


@dataclass
class Head:
    """A kernel before it is decoded."""

    name: str
    parameters: list[Parameter]
    directives: dict[str, tuple[int, ...]]


@dataclass
class Code:
    """A kernel's code, or the reason why it cannot run.

    places: the (file, line) for each number in `encoded.places`.
    """

    encoded: Encoded | None
    places: list[tuple[str, int]]
    problem: tuple[str, str, int] | str = ""  # (reason, file, line) of code that is not covered, or an error message


class Decoded:
    """A decoded text: its variables and its kernels. Kernels are decoded on demand."""

    def __init__(self, text: str, source: str, key: str):
        self.text, self.source, self.key = text, source, key
        self._parser: Parser | None = None
        self.kernels, self.variables = _kept(key, self._read_heads)
        self._codes: dict[str, Code] = {}

    def code(self, kernel: str) -> tuple[Encoded, list[tuple[str, int]]]:
        """Return (the kernel encoded for the machine, the source lines that it refers to).

        Raises Refused, CompileError.
        """
        code = self._codes.get(kernel)
        if code is None:
            code = self._codes[kernel] = _kept(key_of(self.key, kernel), lambda: self._decode(kernel))
            self._parser = None
        if isinstance(code.problem, tuple):
            raise Refused(*code.problem)
        if code.encoded is None:
            raise CompileError(code.problem)
        return code.encoded, code.places

    @functools.cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def _parsed(self) -> Parser:
        self._parser = self._parser or Parser(self.text, self.source)
        return self._parser

    def _read_heads(self) -> tuple[dict[str, Head], dict[str, Variable]]:
        read = self._parsed().module
        heads = {name: Head(name, f.parameters, f.directives) for name, f in read.kernels.items() if f.has_body}
        return heads, read.variables

    def _decode(self, kernel: str) -> Code:
        parser = self._parsed()
        try:
            encoded = encode(inlined(parser.read(kernel), parser.module, parser.read), parser.module)
        except Refused as refused:
            return Code(None, [], self._where(refused, parser.module.files))
        except CompileError as error:
            return Code(None, [], str(error))
        return Code(encoded, [_author(place, parser.module.files) for place in parser.module.places])

    def _where(self, refused: Refused, files: dict[int, str]) -> tuple[str, str, int]:
        """Return (reason, file, line). The line is the author's if a .loc precedes the line of the
        PTX.
        """
        for line in reversed(self.lines[: refused.line]):
            if match := LOC.match(line):
                path = files.get(int(match[1]), "")
                if path and not LIBRARIES.search(path):
                    return f"{refused.reason}, in line {refused.line} of its PTX", path, int(match[2])
                break
        return refused.reason, self.source, refused.line


_known: OrderedDict[str, Decoded] = OrderedDict()


def decoded(text: str, source: str) -> Decoded:
    """Return the decoded form of a text, from an earlier call if there was one.

    Raises CompileError with the line of anything that is not PTX.
    """
    key = key_of(_version(), source, text)
    result = _known.get(key) or Decoded(text, source, key)
    _known[key] = result
    _known.move_to_end(key)
    if len(_known) > KEPT:
        _known.popitem(last=False)
    return result


def _kept(key: str, make: Callable[[], Any]) -> Any:
    """Return the result of make(), computed now or in another process."""
    path = built(key, lambda to: to.write_bytes(pickle.dumps(make(), 5)), ".ptx")
    try:
        return pickle.loads(path.read_bytes())
    # An error means that the disk is full, or that the cache is being cleaned.
    except (OSError, EOFError, pickle.UnpicklingError):
        return make()


@functools.cache
def _version() -> str:
    """Return a key that changes whenever the code that decodes changes."""
    return key_of(*(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))


def _author(place: Place, files: dict[int, str]) -> tuple[str, int]:
    """Return (file, line) of a .loc. For a line in a library, return the nearest enclosing line of
    the author.
    """
    for file, line in ((place.file, place.line), *place.within):
        path = files.get(file, "") if isinstance(file, int) else _path(file, files)
        if path and not LIBRARIES.search(path):
            return path, line
    return files.get(place.file, ""), place.line


def _path(name: str, files: dict[int, str]) -> str:
    """Return the full path of a file of which only the last part is known."""
    return next((path for path in files.values() if path.rpartition("/")[2] == name), name)
