"""PTX text -> what is needed to run it. Decoding takes tenths of a second, so it is done once for each text and kept on disk."""

from __future__ import annotations

import functools
import pickle
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from emulator.build_cache import built, key_of
from emulator.errors import CompileError, Refused
from emulator.ptx.encode import Encoded, encode
from emulator.ptx.parse import parse
from emulator.ptx.syntax import Function, Parameter, Text, Variable

KEPT = 64  # texts in memory


@dataclass
class DecodedKernel:
    """A kernel: its code, or why it cannot be run."""

    name: str
    parameters: list[Parameter]
    directives: dict[str, tuple[int, ...]]
    encoded: Encoded | None
    problem: tuple[str, int] | str = ""  # (reason, line) of what is not covered; the message of what is wrong

    def code(self, source: str) -> Encoded:
        """Raises Refused, CompileError."""
        if isinstance(self.problem, tuple):
            raise Refused(self.problem[0], source, self.problem[1])
        if self.encoded is None:
            raise CompileError(self.problem)
        return self.encoded


@dataclass
class Decoded:
    """A text: `places` are the (file, line) of its .loc lines."""

    kernels: dict[str, DecodedKernel]
    variables: dict[str, Variable]
    places: list[tuple[str, int]]


_known: OrderedDict[str, Decoded] = OrderedDict()


def decoded(text: str, source: str) -> tuple[str, Decoded]:
    """(its key, the decoded text). Raises CompileError with the line of what is not PTX."""
    key = key_of(_version(), source, text)
    found = _known.get(key)
    if found is None:
        found = _read(built(key, lambda to: to.write_bytes(pickle.dumps(_decode(text, source), 5)), ".ptx"))
        if found is None:  # written by a process that was stopped
            found = _decode(text, source)
        _known[key] = found
        if len(_known) > KEPT:
            _known.popitem(last=False)
    _known.move_to_end(key)
    return key, found


def _read(path: Path) -> Decoded | None:
    try:
        return pickle.loads(path.read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        return None


@functools.cache
def _version() -> str:
    """Changes with the code that decodes."""
    return key_of(*(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))


def _decode(text: str, source: str) -> Decoded:
    read = parse(text, source)
    kernels = {name: _kernel(function, read) for name, function in read.kernels.items()}
    places = [(read.files.get(place.file, ""), place.line) for place in read.places]
    return Decoded(kernels, read.variables, places)


def _kernel(function: Function, text: Text) -> DecodedKernel:
    made = DecodedKernel(function.name, function.parameters, function.directives, None)
    try:
        made.encoded = encode(function, text)
    except Refused as refused:
        made.problem = (refused.reason, refused.line)
    except CompileError as error:
        made.problem = str(error)
    return made
