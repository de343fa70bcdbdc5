"""Reads what was found: each file of findings/ is a proof, a script without this suite.

A proof ends by asserting what is right. It fails as long as the package is wrong. The docstring has
a sentence that says what is wrong, and then the fields of `Finding`, one a line. A longer one goes
on in lines that are indented.
"""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "findings"
FIELDS = ("number", "package", "law", "case", "consequence", "found", "status", "gpu", "shows")
STATUSES = ("not reported", "reported", "confirmed", "fixed in")
GPUS = ("not tried", "seen on", "needed", "not seen on")
MOST_LINES = 10  # of a proof, beside kernels of its own
ENDED_BY_A_THREAD = "terminate called without an active exception"  # of C++


class FindingError(ValueError):
    """A file of findings/ does not have the form of a finding. The message names the file."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong in a package.

    path: the proof. sentence: what is wrong. number: what known failures and documents call it by.
    package: its name, or the repository, as in packages.py. version: the one that is wrong.
    law: the laws that find it, or "none: " and why. case: the smallest failing case.
    consequence: what it means for users. found: the date, year first.
    status: "not reported", "reported URL", "confirmed URL" or "fixed in VERSION".
    gpu: whether it was seen on a GPU: "not tried", "seen on a CARD", "not seen on a CARD", or
        "needed" if the proof does not run without one.
    shows: the last line that the proof prints, or how it begins. Numbers may differ.
    code: the proof without its docstring.
    """

    path: Path
    sentence: str
    number: int
    package: str
    version: str
    law: str
    case: str
    consequence: str
    found: str
    status: str
    gpu: str
    shows: str
    code: str

    @property
    def laws(self) -> list[str]:
        """The names of the laws that find it, without "test_"."""
        return [] if self.law.startswith("none:") else [name.strip() for name in self.law.split(",")]

    @property
    def needs_gpu(self) -> bool:
        """Whether the proof does not run without a GPU; `gpu` may say for what."""
        return self.gpu.startswith("needed")

    @property
    def hidden_by_gpu(self) -> bool:
        """Whether a GPU does not show it, so that the emulator runs the proof there, too."""
        return self.gpu.startswith("not seen on")

    def is_shown_by(self, output: str) -> bool:
        """Return whether a proof that printed this shows the finding.

        A thread of a library that still runs when Python ends may add a line.
        """
        lines = [line for line in output.splitlines() if line.strip() and line != ENDED_BY_A_THREAD]
        last = lines[-1] if lines else ""
        return _words(last).startswith(_words(self.shows))


def findings(folder: Path = FOLDER) -> list[Finding]:
    """Return all findings by number. Raises FindingError if two have the same number."""
    found = sorted(map(read, folder.glob("*.py")), key=lambda finding: finding.number)
    for one, next_one in itertools.pairwise(found):
        if one.number == next_one.number:
            raise FindingError(f"{one.path.name} and {next_one.path.name}: both are number {one.number}")
    return found


def read(path: Path) -> Finding:
    """Read a proof. Raises FindingError."""
    text = path.read_text(encoding="utf-8")
    document = ast.get_docstring(ast.parse(text)) or ""
    sentence, _, rest = document.partition("\n\n")
    pairs = [line.partition(": ")[::2] for line in re.sub(r"\n +", " ", rest).splitlines()]
    if tuple(name for name, _ in pairs) != FIELDS:
        raise FindingError(f"{path.name}: its fields should be {', '.join(FIELDS)}, each on a line")
    values = {name: value.strip() for name, value in pairs}
    package, _, version = values.pop("package").partition(" ")
    code = text[text.index('"""', 3) + 3 :].strip()
    problems = [
        *(f"{name} is empty" for name, value in values.items() if not value),
        *_choices("status", values["status"], STATUSES),
        *_choices("gpu", values["gpu"], GPUS),
        *(
            []
            if re.fullmatch(r"\d{4}-\d\d-\d\d", values["found"])
            else [f"found is {values['found']}: should be a date"]
        ),
        *([] if values["number"].isdecimal() else [f"number is {values['number']}: should be a number"]),
        *([] if version else ["package should be a name and a version"]),
        *([] if (lines := lines_of(code)) <= MOST_LINES else [f"has {lines} lines of code, {MOST_LINES} allowed"]),
    ]
    if problems:
        raise FindingError(f"{path.name}: {'; '.join(problems)}")
    number = int(values.pop("number"))
    return Finding(path, " ".join(sentence.split()), number, package.rstrip(","), version, code=code, **values)


def lines_of(code: str) -> int:
    """Return how many lines of a script are neither empty, nor comments, nor of a kernel."""
    kernels = [each for each in ast.parse(code).body if isinstance(each, ast.FunctionDef) and each.decorator_list]
    inside = {n for each in kernels for n in range(each.decorator_list[0].lineno, each.end_lineno + 1)}
    lines = enumerate(code.splitlines(), start=1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and n not in inside for n, line in lines)


def _choices(name: str, value: str, known: tuple[str, ...]) -> list[str]:
    if value.startswith(known):
        return []
    return [f"{name} is {value!r}: should begin with {', '.join(known)}"]


def _words(line: str) -> str:
    """Return a line with every number replaced, as numbers differ from machine to machine."""
    return re.sub(r"-?\b(\d+(\.\d+)?(e[-+]?\d+)?|inf|nan)\b", "#", line.strip())
