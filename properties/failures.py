"""The exceptions that stop a law, and the reasons for a missing verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

import torch

from flash_attest.races.finding import Finding

if TYPE_CHECKING:
    from flash_attest.properties.checks.wrong import Wrong

# The words of CUDA, its libraries, Triton and torch's CPU allocator, which raise plain
# RuntimeErrors. For GPU memory that torch allocates itself, it has an exception type.
OUT_OF_MEMORY = re.compile(
    r"CUDA.*out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|DefaultCPUAllocator: can't allocate|bad_alloc"
    r"|CU\w+_STATUS_(\w+_)?ALLOC(ATION)?_FAILED",  # cuBLAS, cuDNN, cuSOLVER
    re.IGNORECASE,
)


class Reason(Enum):
    """The reason why a law neither passes nor fails. results.json has the value as `why`."""

    NOT_DECLARED = "not declared"  # refused: the law, or the given case, needs what is not declared
    # refused: no case is both wanted by the law and supported, or the given one is not. unknown:
    # none is supported
    NO_CASE = "no case"
    NOT_INSTALLED = "not installed"  # refused: a library that the implementation needs is missing
    OTHER_DEVICE = "other device"  # unknown: the implementation does not run on the device of this run
    LAW_OF_OTHER_DEVICE = "law of other device"  # unknown: the law cannot fail on the device of this run
    NO_SPARSE_MEMORY = "no sparse memory"  # unknown: too few addresses here, or none that stay unmapped
    NO_SANITIZER = "no sanitizer"  # unknown: compute-sanitizer is missing, or cannot watch the calls here
    NOT_COVERED = "not covered"  # unknown: a kernel uses what the emulator cannot run on a CPU
    CONTRACT = "contract"  # unknown: the implementation breaks the contract
    RESOURCES = "resources"  # unknown: out of memory, or another limit of this machine
    CONTEXT_LOST = "context lost"  # unknown: an earlier law left this process without a working GPU
    WORKER_DIED = "worker died"  # unknown: the process ended during the law
    TIMED_OUT = "timed out"  # unknown: a call did not return within --case-timeout
    SUITE = "suite"  # unknown: the suite itself raised an exception


class LawBroken(AssertionError):
    """A law does not hold.

    headline: one line that is enough to file an issue.
    observed: the facts below it.
    suggests: a guess from the pattern, which is shown as one.
    investigate: makes further calls, once, when the smallest case is known. It returns a phrase for
        the end of the headline, and lines for what was observed.
    findings: everything that is wrong, while the headline names only the first. Repeats agree if
        they have the same findings.
    found: the findings of a layer of race detection.
    wrong: which queries and keys are wrong, for the page.
    """

    def __init__(
        self,
        headline: str,
        *observed: str,
        suggests: str | None = None,
        investigate: Callable[[], tuple[str, list[str]]] | None = None,
        findings: Iterable[str] = (),
        found: Iterable[Finding] = (),
        wrong: Wrong | None = None,
    ):
        super().__init__(headline)
        self.headline = headline
        self.observed = [line for text in observed for line in text.splitlines()]
        self.suggests = suggests
        self.investigate = investigate
        self.findings = frozenset(findings) or frozenset({headline})
        self.found = tuple(found)
        self.wrong = wrong


def findings_of(found: Iterable[Finding]) -> LawBroken:
    """Return what a layer of race detection found in one case, as a failure.

    Findings that leave all values unchanged come last.
    """
    ranked = sorted(found, key=lambda finding: finding.keeps_values)
    headlines = [finding.headline for finding in ranked]
    return LawBroken(headlines[0], *(f"{finding}\n" for finding in ranked), findings=headlines, found=ranked)


class Raises(LawBroken):
    """The implementation raised an exception for a case that it declares to support."""


class AnotherCase(Exception):
    """The law says nothing about this case, or needs an unsupported one: draw another."""


class Undecided(Exception):
    """The law could not be decided on this machine, so the verdict is unknown, with this reason."""

    def __init__(self, text: str, why: Reason = Reason.RESOURCES):
        super().__init__(text)
        self.why = why


class OutOfMemory(Undecided):
    """Memory ran out, on any device."""


@contextmanager
def undecided_without_memory(where: str) -> Iterator[None]:
    """Turn any error about memory in this block into OutOfMemory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise OutOfMemory(f"out of memory {where}") from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out on any device, which is no mistake of the implementation."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(words_of(error)) is not None


def words_of(error: BaseException) -> str:
    """Return the text of an exception, whatever its __str__ does."""
    try:
        return str(error)
    except BaseException:  # the __str__, too, may be the implementation's
        return "(no message: its __str__ raises)"
