"""The exceptions that stop a law, and the reasons for a missing verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

import torch

from flash_attest.races.finding import Finding
from flash_attest.texts import cut, words_of

if TYPE_CHECKING:
    from flash_attest.properties.checks.reading import Reading
    from flash_attest.properties.checks.wrong import Wrong

# Messages of CUDA, its libraries, Triton and torch's CPU allocator, which raise plain
# RuntimeErrors. torch has an exception type only for GPU memory that it allocates itself.
OUT_OF_MEMORY = re.compile(
    r"CUDA.*out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|DefaultCPUAllocator: can't allocate|bad_alloc"
    r"|CU\w+_STATUS_(\w+_)?ALLOC(ATION)?_FAILED",  # cuBLAS, cuDNN, cuSOLVER
    re.IGNORECASE,
)
# What extensions that were built with torch's stable ABI before 2.13 raise: which call has failed,
# but not why.
WITHOUT_REASON = re.compile(r"\bAPI call failed at \S+, line \d+")


LONGEST_HEADLINE = 2000  # characters


class Reason(Enum):
    """The reason why a law neither passes nor fails, or why nothing could be judged at all.

    The value is `why` in results.json.
    """

    NOT_LOADED = "not loaded"  # fail: the file of the implementation cannot be loaded, so no law is judged
    NOT_DECLARED = "not declared"  # refused: the law, or the given case, needs something that is not declared
    # refused: no case is both wanted by the law and supported, or the given case is not. unknown:
    # no case is supported at all
    NO_CASE = "no case"
    NOT_INSTALLED = "not installed"  # refused: a library that the implementation needs is missing
    OTHER_DEVICE = "other device"  # unknown: the implementation does not run on the device of this run
    LAW_OF_OTHER_DEVICE = "law of other device"  # unknown: the law cannot fail on the device of this run
    NO_SPARSE_MEMORY = "no sparse memory"  # unknown: this machine has too few addresses, or cannot keep them unmapped
    GPU_MEMORY = "gpu memory"  # unknown: the law's tensors do not fit this GPU, even if nothing else is on it
    NO_SANITIZER = "no sanitizer"  # unknown: compute-sanitizer is missing, or cannot watch the calls here
    # unknown: racecheck reports races in kernels that use TMA, mbarriers or wgmma, which it does
    # not know
    ASYNCHRONOUS = "asynchronous"
    NOT_COVERED = "not covered"  # unknown: a kernel uses a feature that the emulator lacks
    CONTRACT = "contract"  # unknown: the implementation breaks the contract
    RESOURCES = "resources"  # unknown: out of memory, or another limit of this machine
    WRONG_ALREADY = "wrong already"  # unknown: results that a law compares are wrong by the definition, and alike
    CONTEXT_LOST = "context lost"  # unknown: an earlier law left this process without a working GPU
    WORKER_DIED = "worker died"  # unknown: the process ended during the law
    TIMED_OUT = "timed out"  # unknown: a call did not return within --case-timeout
    TIME_LIMIT = "time limit"  # unknown: not decided within the time limit of a law or of the run
    SUITE = "suite"  # unknown: the suite itself raised an exception
    # fail: `accepts` refuses the case of the law's known failure, so that the law holds in all
    # others, and it fails in another
    NOT_AS_KNOWN = "not as known"


class LawBroken(AssertionError):
    """A law does not hold.

    headline: one line that is enough to file an issue.
    observed: lines with the facts, printed below the headline.
    suggests: a guess at the cause that the law itself makes, shown as a guess.
    reading: from which further guesses are made, if other failing cases do not contradict them.
    investigate: called once, when the smallest case is known, to make further calls. It returns a
    phrase for the end of the headline, and further lines of `observed`.
    findings: everything that is wrong; the headline names only the first. Repeats of a failure
    agree if they have the same findings.
    found: the findings of a race detector.
    wrong: which queries and keys are wrong, for the page.
    part: the part of the law that fails, if it makes several calls beside each other (Trial.part).
    of_rule: whether the law's rule explains it.
    """

    of_rule = True

    def __init__(
        self,
        headline: str,
        *observed: str,
        suggests: str | None = None,
        investigate: Callable[[], tuple[str, list[str]]] | None = None,
        findings: Iterable[str] = (),
        found: Iterable[Finding] = (),
        wrong: Wrong | None = None,
        reading: Reading | None = None,
        part: str = "",
    ):
        self.headline = headline = cut(headline, LONGEST_HEADLINE)
        super().__init__(headline)
        self.observed = [line for text in observed for line in cut(text).splitlines()]
        self.suggests = suggests
        self.investigate = investigate
        self.findings = frozenset(findings) or frozenset({headline})
        self.found = tuple(found)
        self.matches: list[str] = []  # what the kernel computed instead, as explain.py finds out
        self.wrong = wrong
        self.reading = reading
        self.part = part


def findings_of(found: Iterable[Finding]) -> LawBroken:
    """Return the failure for what a race detector found in one case.

    Findings that leave all values unchanged come last.
    """
    ranked = sorted(found, key=lambda finding: finding.rank)
    headlines = [finding.headline for finding in ranked]
    return LawBroken(headlines[0], *(f"{finding}\n" for finding in ranked), findings=headlines, found=ranked)


class Raises(LawBroken):
    """The implementation raised an exception for a case that it declares to support."""

    of_rule = False


class Replaces(LawBroken):
    """Calls replaced functions that the suite uses, too."""

    of_rule = False


class AnotherCase(Exception):
    """Draw another case: the law says nothing about this one, or needs an unsupported one.

    Its text is the reason, if there is one to show.
    """


class Undecided(Exception):
    """The law could not be decided on this machine. The verdict is unknown, with this reason."""

    def __init__(self, text: str, why: Reason = Reason.RESOURCES):
        super().__init__(text)
        self.why = why


class WrongAlready(Undecided):
    """The law compares results that are wrong by the definition, and differ by far less than that.

    The law goes on with other cases. If it finds nothing, the verdict is unknown.
    """

    def __init__(self, text: str):
        super().__init__(text, Reason.WRONG_ALREADY)


class OutOfMemory(Undecided):
    """Memory ran out, on any device.

    Its reason is Reason.GPU_MEMORY if the GPU is too small: the process was alone on it, and less
    was free than drawn cases may need.
    """


@contextmanager
def undecided_without_memory(where: str) -> Iterator[None]:
    """Raise OutOfMemory instead of any other error about memory in this block."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise OutOfMemory(f"out of memory {where}") from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, on any device. That is not a mistake of the implementation."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(words_of(error)) is not None
