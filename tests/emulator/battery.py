"""The notation of batteries: kernels of one idea each, with calls and their verdicts in comments
above them.

    //: swap<true><<<1, 9>>>(x=ramp(9), out=zeros(9)) -> out = x.flip(0)
    //: swap<false><<<1, 9>>>(x=ramp(9), out=zeros(9)) -> race s put get; maybe uninitialised s get

Such a line is a call (of a kernel with <<<grid, block, shared>>>, or of a host function) with
arguments in Python, and a verdict. The verdict on a correct kernel is its result, computed from the
arguments as they were before the call. The verdict on a faulty one is its findings: a kind, a
tensor or shared variable (* for any), and the lines, by the tags "//! put" at their ends; then
"same" or "different" if the values that two threads write must be equal or unequal. `maybe`
precedes a finding that depends on the order of threads: a thread that reads before another has
written reads uninitialised memory. tag? is optional, and a|b is either of the two. `unsafe`: only
for runs with the tracer. `raises`: CudaError without the tracer.

A call may name an edit of the file, which moves no line:

    //: rotate<<<1, 64>>>(out=zeros(64)) without barrier -> race tile put get
    //: rotate<<<1, 64>>>(out=zeros(64)) with wait_group 0 => wait_group 1 -> ...

The first cuts the lines tagged "//! barrier"; the second replaces the left text in each line.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from flash_attest.emulator.observation import Kind

WORDS = {kind.value for kind in Kind}
STOPS = {Kind.DEADLOCK, Kind.LAUNCH, Kind.TRAP}  # these raise CudaError outside a trace
CALL = re.compile(
    r"(?P<name>\w+(?:<[\w ,-]+>)?)(?:<<<(?P<shape>.*?)>>>)?\((?P<args>.*)\)"
    r"(?: without (?P<cut>\w+)| with (?P<old>.+) => (?P<new>.+))?"
)


@dataclass(frozen=True)
class Fault:
    """An expected finding.

    lines: tuples of line numbers; one of each tuple is in the finding. may_lines: lines that may be
    in it too.
    """

    kind: Kind
    tensor: str
    lines: tuple[tuple[int, ...], ...]
    may_lines: tuple[int, ...] = ()
    same_value: bool | None = None

    def fits(self, finding) -> bool:
        named, allowed = lines_of(finding), {*sum(self.lines, ()), *self.may_lines}
        return (
            finding.kind == self.kind
            and self.tensor in ("*", finding.tensor)
            and all(named & set(line) for line in self.lines)
            and named <= allowed
            and self.same_value in (None, finding.same_value)
        )


@dataclass(frozen=True)
class Micro:
    """One call of one kernel, with its expected verdict."""

    file: Path
    call: str
    name: str
    shape: str | None
    edit: tuple[str, str]  # ("", tag) removes the lines with this tag; (old, new) replaces text
    arguments: str
    results: tuple[tuple[str, bool, str], ...]  # (tensor, whether its order is free, formula)
    faults: tuple[Fault, ...]
    may: tuple[Fault, ...]
    plain: str  # outside a trace: "runs", "raises" or "unsafe"

    def __str__(self) -> str:
        return f"{self.file.stem}:{self.call}"

    def values(self) -> dict:
        """Return the arguments by name: new tensors with the same values each time."""
        generator = torch.Generator().manual_seed(0)
        return eval(f"dict({self.arguments})", vars(torch) | HELPERS | {"draws": functools.partial(draws, generator)})

    @property
    def launch(self) -> tuple:
        """Return (grid, block, bytes of dynamic shared memory)."""
        return (*eval(f"({self.shape})"), 0)[:3]

    def text(self) -> str:
        """Return the file's text after the edit."""
        old, new = self.edit
        lines = self.file.read_text().splitlines()
        hit = [n for n, line in enumerate(lines) if (old in line if old else line.endswith(f"//! {new}"))]
        hit = [n for n in hit if not lines[n].startswith("//: ")] if any(self.edit) else []
        assert hit or not any(self.edit), f"{self}: no line for the edit"
        for n in hit:
            lines[n] = lines[n].replace(old, new) if old else ""
        return "\n".join(lines) + "\n"

    def check_results(self, values: dict) -> None:
        for tensor, any_order, formula in self.results:
            want = eval(formula, vars(torch) | HELPERS | self.values())
            got = values[tensor].sort().values if any_order else values[tensor]
            want = torch.as_tensor(want).to(got.dtype).expand(got.shape)
            torch.testing.assert_close(got, want, msg=lambda text, name=tensor: f"{self}: {name}: {text}")

    def check_findings(self, findings: list, how: str) -> None:
        """Check that each expected finding is there, and no other."""
        unexpected = [str(r) for r in findings if not any(fault.fits(r) for fault in (*self.faults, *self.may))]
        missing = [fault for fault in self.faults if not any(fault.fits(finding) for finding in findings)]
        assert not unexpected and not missing, "\n".join(
            [f"{self}, {how}:", *map(str, missing), "not expected:", *unexpected]
        )

    def sure(self, findings: list) -> frozenset:
        """Return the expected faults that must be found in every order of threads."""
        expected = [finding for finding in findings if any(fault.fits(finding) for fault in self.faults)]
        return frozenset((finding.kind, finding.tensor, frozenset(lines_of(finding))) for finding in expected)


def ramp(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float32)


def ints(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.int32)


def draws(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator)


HELPERS = {"ramp": ramp, "ints": ints}


def lines_of(finding) -> set[int]:
    return {site.line for site in finding.sites}


def read_battery(file: Path) -> list[Micro]:
    text = re.sub(r"\n//: {2,}", " ", file.read_text())  # puts each call on one line
    return [read_call(file, line.removeprefix("//: ")) for line in text.splitlines() if line.startswith("//: ")]


def read_call(file: Path, line: str) -> Micro:
    call, verdict = line.split(" -> ", 1)
    name, shape, arguments, cut, old, new = CALL.fullmatch(call).groups()
    faults, may, results, plain = [], [], [], None
    for part in verdict.split("; "):
        words = part.split()
        if part in ("unsafe", "raises"):
            plain = part
        elif words[0] == "maybe":
            may.append(read_fault(file, name, words[1:]))
        elif words[0] in WORDS:
            faults.append(read_fault(file, name, words))
        else:
            tensor, formula = part.split(" = ", 1)
            results.append((tensor.removeprefix("sorted "), tensor.startswith("sorted "), formula))
    assert bool(faults) != bool(results), f"{file}: {line}: either faults or results"
    plain = plain or ("raises" if {fault.kind for fault in faults} & STOPS else "runs")
    return Micro(
        file,
        call,
        name,
        shape,
        (old or "", new or cut or ""),
        arguments,
        tuple(results),
        tuple(faults),
        tuple(may),
        plain,
    )


def read_fault(file: Path, name: str, words: list[str]) -> Fault:
    kind, tensor, *tags = words
    same_value = {"same": True, "different": False}.get(tags[-1]) if tags else None
    tags = tags if same_value is None else tags[:-1]
    tagged = functools.partial(line_tagged, file, name)
    return Fault(
        Kind(kind),
        {"dynamic": "dynamic shared memory"}.get(tensor, tensor),
        tuple(tuple(tagged(tag) for tag in choice.split("|")) for choice in tags if not choice.endswith("?")),
        tuple(tagged(tag[:-1]) for tag in tags if tag.endswith("?")),
        same_value,
    )


@functools.cache
def line_tagged(file: Path, call: str, tag: str) -> int:
    """Return the first line with this tag after the definition of the kernel, or of a function that
    it calls (`block_sum.put`).

    A host function comes after its kernels, so the search for it starts at its calls, the lines
    "//:".
    """
    function, tag = tag.split(".") if "." in tag else (call.split("<")[0], tag)
    lines = file.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if re.match(rf"(//: |.* ){function}[<(]", line))
    return next(n for n, line in enumerate(lines, 1) if n > start and line.endswith(f"//! {tag}"))
