"""Small CUDA kernels of one idea each, half of them correct and half faulty: the tracer gives the expected verdict.

The kernels and their verdicts are in tests/emulator/cuda_sources/battery/*.cu. Above a kernel, in a comment,

    //: exchange<true><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> out = x.flip(0)
    //: exchange<false><<<1, 64>>>(x=ramp(64), out=zeros(64)) -> race tile put get; maybe uninitialised tile get

is a call (of a kernel with <<<grid, block, shared>>>, or of a host function) with arguments in Python, and a verdict. The
verdict on a correct kernel is its result, computed from the arguments as they were before the call. The verdict on a faulty
one is its findings: a kind, a tensor or shared variable (* for any), and the lines, by the tags "//! put" at their ends; then
"same" or "different" if the values that two threads write must be so. `maybe` precedes a finding that depends on the order of
threads: a thread that reads before another has written reads uninitialised memory. tag? is optional, a|b is one of the two.
`unsafe`: not to be run without the tracer. `raises`: CudaError without the tracer.
"""

import functools
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from emulator.cuda import CudaError, load
from emulator.observation import Kind
from races.tracing import trace

HERE = Path(__file__).parent / "cuda_sources" / "battery"
LEVEL = "-O1"  # the tracer's own; an author may ask for another
LEVELS = (LEVEL, *(pytest.param(level, marks=pytest.mark.thorough) for level in ("-O0", "-O2")))
WORDS = {kind.value for kind in Kind}
STOPS = {Kind.DEADLOCK, Kind.LAUNCH, Kind.TRAP}  # raise CudaError outside a trace
CALL = re.compile(r"(?P<name>\w+(?:<[\w ,-]+>)?)(?:<<<(?P<shape>.*)>>>)?\((?P<args>.*)\)")


@dataclass(frozen=True)
class Fault:
    """An expected finding. lines: tuples of line numbers, one of each is in the finding; may_lines: may be in it too."""

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
    """One call of one kernel, and its verdict."""

    file: Path
    call: str
    name: str
    shape: str | None
    arguments: str
    results: tuple[tuple[str, bool, str], ...]  # (tensor, whether its order is free, formula)
    faults: tuple[Fault, ...]
    may: tuple[Fault, ...]
    plain: str  # outside a trace: "runs", "raises" or "unsafe"

    def __str__(self) -> str:
        return f"{self.file.stem}:{self.call}"

    def values(self) -> dict:
        """The arguments by name: new tensors with the same values each time."""
        generator = torch.Generator().manual_seed(0)
        return eval(f"dict({self.arguments})", vars(torch) | HELPERS | {"draws": functools.partial(draws, generator)})

    def on(self, cu, values: dict) -> None:
        function = cu[self.name]
        if self.shape is not None:
            grid, block, shared = (*eval(f"({self.shape})"), 0)[:3]
            function = function.launch(grid=grid, block=block, shared=shared)
        function(*values.values())

    def check_results(self, values: dict) -> None:
        for tensor, any_order, formula in self.results:
            want = eval(formula, vars(torch) | HELPERS | self.values())
            got = values[tensor].sort().values if any_order else values[tensor]
            want = torch.as_tensor(want).to(got.dtype).expand(got.shape)
            torch.testing.assert_close(got, want, msg=lambda text, name=tensor: f"{self}: {name}: {text}")

    def traced(self, level: str, seed: int = 0, switch: float = 0.0) -> list:
        """The findings; also checks the results of a correct kernel."""
        cu, values = module(self.file, level), self.values()
        findings = trace(lambda: self.on(cu, values), seed=seed, switch=switch)
        unexpected = [str(r) for r in findings if not any(fault.fits(r) for fault in (*self.faults, *self.may))]
        missing = [fault for fault in self.faults if not any(fault.fits(finding) for finding in findings)]
        assert not unexpected and not missing, "\n".join(
            [f"{self} at {level}, seed={seed}, switch={switch}:", *map(str, missing), "not expected:", *unexpected]
        )
        self.check_results(values)
        return findings


def ramp(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float32)


def ints(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.int32)


def draws(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator)


HELPERS = {"ramp": ramp, "ints": ints}


def lines_of(finding) -> set[int]:
    return {site.line for site in finding.sites}


# --- the notation -----------------------------------------------------------------------------------------------------


def read_battery(file: Path) -> list[Micro]:
    text = re.sub(r"\n//: {2,}", " ", file.read_text())  # a call on one line
    return [read_call(file, line.removeprefix("//: ")) for line in text.splitlines() if line.startswith("//: ")]


def read_call(file: Path, line: str) -> Micro:
    call, verdict = line.split(" -> ", 1)
    name, shape, arguments = CALL.fullmatch(call).groups()
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
    return Micro(file, call, name, shape, arguments, tuple(results), tuple(faults), tuple(may), plain)


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
    """The first line with this tag after the definition of the kernel, or of a function that it calls, as in `block_sum.put`.

    A host function comes after its kernels, so for it the search starts at its calls "//:".
    """
    function, tag = tag.split(".") if "." in tag else (call.split("<")[0], tag)
    lines = file.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if re.match(rf"(//: |.* ){function}[<(]", line))
    return next(n for n, line in enumerate(lines, 1) if n > start and line.endswith(f"//! {tag}"))


BATTERY = [micro for file in sorted(HERE.glob("*.cu")) for micro in read_battery(file)]
RIGHT = [micro for micro in BATTERY if not micro.faults]
FAULTY = [micro for micro in BATTERY if micro.faults]


@functools.cache
def module(file: Path, level: str | None):
    """The file, compiled with all its functions."""
    names = dict.fromkeys(micro.name for micro in BATTERY if micro.file == file)
    return load(file, *names, level=level)


# --- the tests --------------------------------------------------------------------------------------------------------

every = pytest.mark.parametrize("micro", BATTERY, ids=str)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("level", LEVELS)
@every
def test_verdict_and_result(micro: Micro, level: str):
    for finding in micro.traced(level):
        for site in finding.sites:
            assert Path(site.file).name == micro.file.name and f"{micro.file.name}:{site.line}" in str(finding)
            assert site.text == micro.file.read_text().splitlines()[site.line - 1].strip() and site.text in str(finding)


@every
def test_without_the_tracer(micro: Micro):
    """The plain build computes the same; a stopped kernel raises."""
    if micro.plain == "unsafe":
        pytest.skip("would read or write memory of other objects")
    cu, values = module(micro.file, LEVEL), micro.values()
    if micro.plain == "raises":
        with pytest.raises(CudaError):
            micro.on(cu, values)
        return
    try:
        micro.on(cu, values)
    except CudaError:
        assert {fault.kind for fault in (*micro.faults, *micro.may)} & {Kind.BARRIER, Kind.MASK}  # may run on or stop
    micro.check_results(values)


@every
def test_verdict_does_not_depend_on_the_order_of_threads(micro: Micro):
    """Nor on switching threads at accesses. The result of a correct kernel does not depend on them either."""
    verdicts = Counter()
    for seed, switch in [*((seed, 0.0) for seed in range(20)), (1, 0.1), (2, 0.3)]:
        findings = micro.traced(LEVEL, seed, switch)
        sure = [finding for finding in findings if any(fault.fits(finding) for fault in micro.faults)]
        verdicts[frozenset((finding.kind, finding.tensor, frozenset(lines_of(finding))) for finding in sure)] += 1
    assert len(verdicts) == 1, verdicts


SHOWS = "exchange<false>", "total_of_blocks<false>", "histogram<false>", "rounds<false>", "product<true, false>"


@pytest.mark.parametrize("micro", [micro for micro in FAULTY if micro.name in SHOWS], ids=str)
def test_switching_threads_turns_a_race_into_a_wrong_result(micro: Micro):
    """The result is wrong if it differs from that of the correct kernel of the same name."""
    right = next(m for m in RIGHT if m.name.split("<")[0] == micro.name.split("<")[0])
    wrong = 0
    for seed in range(1, 11):
        cu, values = module(micro.file, LEVEL), micro.values()
        trace(lambda cu=cu, values=values: micro.on(cu, values), seed=seed, switch=0.3)
        try:
            right.check_results(values)
        except AssertionError:
            wrong += 1
    assert wrong > 0


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("file", sorted(HERE.glob("*.cu")), ids=lambda file: file.stem)
def test_nvcc_takes_it(file: Path, tmp_path: Path):
    """The battery is CUDA, not only what the shim accepts. A table of the functions instantiates the templates."""
    names = dict.fromkeys(micro.name for micro in BATTERY if micro.file == file)
    table = "".join(f"    (const void*){name},\n" for name in names)
    (tmp_path / "all.cu").write_text(f'#include "{file}"\nconst void* table[] = {{\n{table}}};\n')
    command = ("nvcc", "-ptx", "-std=c++17", "-arch=sm_80", "-o", str(tmp_path / "all.ptx"), str(tmp_path / "all.cu"))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kernels = {micro.name.split("<")[0] for micro in BATTERY if micro.file == file and micro.shape is not None}
    ptx = (tmp_path / "all.ptx").read_text()
    assert [kernel for kernel in sorted(kernels) if f"{len(kernel)}{kernel}" not in ptx] == []


def test_the_battery_is_large_and_half_of_it_faulty():
    assert len(BATTERY) >= 72 and abs(len(RIGHT) - len(FAULTY)) <= len(BATTERY) / 4, (len(RIGHT), len(FAULTY))
    assert {fault.kind for micro in FAULTY for fault in micro.faults} == set(Kind)
    assert len({str(micro) for micro in BATTERY}) == len(BATTERY)


def test_every_tag_is_used():
    """A tag that no verdict names is a typing error."""
    for file in sorted(HERE.glob("*.cu")):
        lines = enumerate(file.read_text().splitlines(), 1)
        written = {n for n, line in lines if re.search(r"//! \w+$", line)}
        faults = [fault for micro in FAULTY if micro.file == file for fault in (*micro.faults, *micro.may)]
        used = {line for fault in faults for line in (*sum(fault.lines, ()), *fault.may_lines)}
        assert written == used, file
