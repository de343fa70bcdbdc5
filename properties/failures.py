"""What stops a law: it is broken, it needs another case, or it cannot be decided; and the reasons for a missing verdict."""

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

# As CUDA, its libraries, Triton and torch's allocator of the CPU say it, whose errors are RuntimeErrors; torch has a type of
# its own for what it allocates itself on a GPU.
OUT_OF_MEMORY = re.compile(
    r"CUDA.*out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|DefaultCPUAllocator: can't allocate|bad_alloc"
    r"|CU\w+_STATUS_(\w+_)?ALLOC(ATION)?_FAILED",  # cuBLAS, cuDNN, cuSOLVER
    re.IGNORECASE,
)


class Reason(Enum):
    """Why a law has no verdict of pass or fail. results.json holds the value as `why`, beside the reason in words."""

    NOT_DECLARED = "not declared"  # refused: the implementation does not declare what the law, or the given case, needs
    # refused: no case, or not the given one, is both wanted by the law and supported; unknown: none is supported at all
    NO_CASE = "no case"
    NOT_INSTALLED = "not installed"  # refused: what the implementation is written in is not there
    OTHER_DEVICE = "other device"  # unknown: the implementation does not run on the device of this run
    LAW_OF_OTHER_DEVICE = "law of other device"  # unknown: the law cannot fail on the device of this run
    NO_SPARSE_MEMORY = "no sparse memory"  # unknown: this machine gives too few addresses, or none that stay unmapped
    NO_SANITIZER = "no sanitizer"  # unknown: compute-sanitizer is not installed, or cannot watch the calls here
    NOT_COVERED = "not covered"  # unknown: a kernel uses what the emulator cannot run on a CPU
    CONTRACT = "contract"  # unknown: the implementation breaks the contract
    RESOURCES = "resources"  # unknown: out of memory, or another limit of this machine
    CONTEXT_LOST = "context lost"  # unknown: an earlier law left this process without a working GPU
    WORKER_DIED = "worker died"  # unknown: the process ended during the law
    TIMED_OUT = "timed out"  # unknown: a call did not return within --case-timeout
    SUITE = "suite"  # unknown: the suite itself raised an exception


class LawBroken(AssertionError):
    """A law does not hold: `headline` alone is enough to file an issue, `observed` are the facts below it.

    `suggests` is a guess read off the pattern, and is shown as one. `investigate` makes further calls, once, when the
    smallest case is known: it returns a phrase for the end of the headline, and lines for what was observed.
    `findings` are all that is wrong, where the headline names only the first: repeats that find the same agree. `found`:
    the same as a layer of race detection found it. `wrong`: which queries and keys are wrong, for the page.
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
    """What a layer of race detection found in one case, as a failure: what keeps values comes last."""
    ranked = sorted(found, key=lambda finding: finding.keeps_values)
    headlines = [finding.headline for finding in ranked]
    return LawBroken(headlines[0], *(f"{finding}\n" for finding in ranked), findings=headlines, found=ranked)


class Raises(LawBroken):
    """The implementation raised an exception for a case that it declares to support, whichever law was being judged."""


class AnotherCase(Exception):
    """The law says nothing about this case, or would need what the implementation does not support. Draw another."""


class Undecided(Exception):
    """The law could not be decided on this machine: the verdict is unknown, with this reason."""

    def __init__(self, text: str, why: Reason = Reason.RESOURCES):
        super().__init__(text)
        self.why = why


class OutOfMemory(Undecided):
    """Memory ran out, on whichever device."""


@contextmanager
def undecided_without_memory(where: str) -> Iterator[None]:
    """In this block an error for want of memory is OutOfMemory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise OutOfMemory(f"out of memory {where}") from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on whichever device: what a machine lacks is no mistake of the implementation."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(words_of(error)) is not None


def words_of(error: BaseException) -> str:
    """The text of an exception, whatever its __str__ does."""
    try:
        return str(error)
    except BaseException:  # the implementation wrote its __str__, too
        return "(no message: its __str__ raises)"
