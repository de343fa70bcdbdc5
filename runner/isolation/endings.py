"""Describes how a judging process ended."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from enum import Enum

from flash_attest.impls.contract import call
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.plan import CALLED_WITH, CONTRACT_CHAPTER
from flash_attest.properties.progress import Seen
from flash_attest.texts import cut

NAMES = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "abort",
    signal.SIGBUS: "bus error",
    signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction",
    signal.SIGTRAP: "trap",
    signal.SIGSYS: "forbidden system call",
    signal.SIGKILL: "killed",
    signal.SIGTERM: "told to end",
}
# Signals that come from another process, or from the system when a resource runs out.
FROM_OUTSIDE = {
    signal.SIGKILL,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGXCPU,
    signal.SIGXFSZ,
}
MOST_PRINTED, WIDEST = 5, 200  # lines, and characters of each
FRAME = re.compile(r'File "(.*)", line (\d+) in (.*)')


class Kind(Enum):
    """The ways in which a process may end."""

    CRASHED = "crashed"  # by a signal that it caused itself
    EXITED = "exited"
    TIMED_OUT = "timed out"
    KILLED = "killed"
    OUT_OF_MEMORY = "out of memory"
    TIME_LIMIT = "time limit"  # of a law or of a run
    TOO_MANY = "too many processes"


@dataclass(frozen=True)
class Ending:
    """The end of a process, and what it was doing. words: for example "signal 11 (segmentation
    fault)".
    """

    kind: Kind
    words: str
    seen: Seen
    printed: tuple[str, ...] = ()  # its last lines
    frames: tuple[str, ...] = ()  # its position in the implementation
    memory: Reason | None = None  # why there was no memory on the GPU for it to start

    @property
    def breaks(self) -> bool:
        """Return whether the implementation broke the contract: it ended the process in a call."""
        return self.seen.in_call and self.kind in (Kind.CRASHED, Kind.EXITED)

    @property
    def why(self) -> Reason:
        """Return the reason of a verdict that this ending leaves undecided."""
        ended = Reason.TIME_LIMIT if self.kind is Kind.TIME_LIMIT else Reason.WORKER_DIED
        return self.memory or ended

    @property
    def of_contract(self) -> bool:
        """Return whether the process ended during the contract check."""
        return self.seen.text.startswith(CONTRACT_CHAPTER)

    @property
    def case(self) -> str:
        """Return the last launched case, in the form of --case, or ""."""
        return self.seen.text.partition(" ")[2].partition(CALLED_WITH)[0]

    @property
    def called_with(self) -> str:
        """Return how the call differed from its case if it was made outside the contract check, or
        "".
        """
        return self.seen.text.partition(CALLED_WITH)[2]

    @property
    def headline(self) -> str:
        """Return what happened in one line, for an issue."""
        if not self.seen.in_call or self.kind in (Kind.TIME_LIMIT, Kind.TOO_MANY):  # the suite ended it
            return self.sentence
        called = f"{CALLED_WITH}{self.called_with}" if self.called_with else ""
        if self.kind is Kind.TIMED_OUT:
            return f"{self.seen.phase} does not return {self.words}{called}"
        return f"{self.seen.phase} ends the process{called}: {self.words}"

    @property
    def sentence(self) -> str:
        """Return what happened, and what the process was doing."""
        case = self.seen.text.partition(" ")[2]
        silent = "it did not return" if self.seen.in_call else "nothing was heard from it"
        words = f"{silent} {self.words}" if self.kind is Kind.TIMED_OUT else self.words
        where = f"in {self.seen.phase}" if self.seen.in_call else "outside of a call"
        last = f"the last case launched was {case}" if case else "it had launched no case"
        return f"the process {_ended(self.kind)} {where}: {words}; {last}"

    def same_as(self, other: object) -> bool:
        """Return whether another process ended in the same way."""
        return isinstance(other, Ending) and (self.words, self.breaks, self.seen.phase) == (
            other.words,
            other.breaks,
            other.seen.phase,
        )

    @property
    def observed(self) -> list[str]:
        """Return facts for a message: stack frames and printed lines."""
        return [*self.frames, *(f"it printed: {line}" for line in self.printed)]


def ending_of(status: int, *, memory_ran_out: bool = False) -> tuple[Kind, str]:
    """Return the kind and the description of an ending, from the status that os.waitpid gave."""
    if os.WIFEXITED(status):
        return Kind.EXITED, f"exit status {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    words = f"signal {number} ({name_of(number)})"
    if number == signal.SIGKILL and memory_ran_out:
        return Kind.OUT_OF_MEMORY, f"{words}: this machine was out of memory"
    if number in FROM_OUTSIDE:
        # Only SIGKILL comes from a system that is out of memory.
        sender = "the system, out of memory, or by another process" if number == signal.SIGKILL else "another process"
        return Kind.KILLED, f"{words}: sent by {sender}"
    return Kind.CRASHED, words


def name_of(number: int) -> str:
    """Return a signal in words."""
    try:
        return NAMES.get(signal.Signals(number)) or signal.Signals(number).name
    except ValueError:  # a real-time signal
        return "unknown"


def frames_in(dump: str) -> tuple[str, ...]:
    """Return the implementation's outermost and innermost frames in a dump of faulthandler."""
    frames = []
    for file, line, function in FRAME.findall(dump):
        if file == call.__file__:
            break
        frames.append(f"at {file}:{line}, in {function}")
    outermost = frames[-1:] if len(frames) < len(FRAME.findall(dump)) else []  # no call in progress
    return tuple(dict.fromkeys([*outermost, *frames[:1]]))


def last_lines(printed: str) -> tuple[str, ...]:
    """Return the last lines that a process printed."""
    lines = [line for line in printed.splitlines() if line.strip()]
    return tuple(cut(line.rstrip(), WIDEST) for line in lines[-MOST_PRINTED:])


def _ended(kind: Kind) -> str:
    if kind in (Kind.TIMED_OUT, Kind.TIME_LIMIT, Kind.TOO_MANY):
        return "was ended"
    return "ended" if kind is Kind.EXITED else "died"
