"""Judges one planted bug in a process of its own: each law up to its first failure, then each peer.

Verdicts go through a pipe. A kernel that writes out of bounds, hangs or ends the process harms no
other bug.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from flash_attest.emulator.errors import EmulatorError
from flash_attest.impls import Implementation
from flash_attest.mutants import ALL
from flash_attest.mutants.cuda.build import KERNELS
from flash_attest.mutants.judging import EXAMPLES, contract_result, first_failure, is_not_compiled
from flash_attest.mutants.mutant import CONTRACT, Mutant, build
from flash_attest.mutants.power.peers import judge_peer
from flash_attest.mutants.power.rules import PEERS
from flash_attest.properties.calling.raised import device_works
from flash_attest.properties.failures import Undecided
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, UNKNOWN, Result
from flash_attest.properties.law import laws
from flash_attest.runner.plugin.process import prepare

PEER = "peer:"  # begins the items that are peers
SEARCH = "search"  # the item that judges the named law again, in more cases


@dataclass(frozen=True)
class How:
    """The settings for every bug: a plain record, as it is sent to other processes."""

    device: str
    cases: int
    repeats: int
    small: bool
    seed: int

    def plan(self, known: Known) -> Plan:
        """Return the plan for judge. known: what this process has found out before."""
        return Plan(self.device, self.cases, self.seed, self.repeats, small=self.small, known=known)


@dataclass(frozen=True)
class Begins:
    """An item is about to be judged."""

    item: str


@dataclass(frozen=True)
class Judged:
    """The verdict of an item."""

    item: str
    verdict: str
    detail: str
    seconds: float


@dataclass(frozen=True)
class NeedsAnother:
    """The process lost its GPU: another one has to go on."""


Message = Begins | Judged | NeedsAnother


def items() -> list[str]:
    """Return the items that judge every bug, in this order: the contract, the laws, the peers."""
    return [CONTRACT, *laws(), *(PEER + peer.name for peer in PEERS)]


def judge_items(pipe: Connection, name: str, how: How, wanted: list[str]) -> None:
    """Judge a mutant by these items and send a message before and after each.

    The last item may be SEARCH.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent ends us, after it has read what was sent
    mutant = replace(next(m for m in ALL if m.name == name), device=how.device)
    # This imports Triton or Numba, if needed, before prepare. An error comes again with the first
    # item.
    with suppress(Exception):
        build(mutant)
    prepare(how.device, is_worker=True)
    known = Known()
    caught = False  # by the law that it names, so there is nothing to search for
    try:
        for item in wanted:
            if item == SEARCH and caught:
                continue
            pipe.send(Begins(item))
            started = time.perf_counter()
            verdict, detail = verdict_of(item, mutant, how, known)
            pipe.send(Judged(item, verdict, detail, time.perf_counter() - started))
            caught = caught or (item, verdict) == (mutant.law, FAIL)
            if not device_works(how.device):
                pipe.send(NeedsAnother())
                return
    except BrokenPipeError:  # the parent is gone
        return


def verdict_of(item: str, mutant: Mutant, how: How, known: Known) -> tuple[str, str]:
    """Return the verdict of one item, and the rejected case or the reason.

    If an item cannot be judged, its verdict is unknown; nothing is raised.
    """
    judge: Callable[[], tuple[str, str]]
    if item.startswith(PEER):
        judge = lambda: _of_peer(item.removeprefix(PEER), mutant, how)  # noqa: E731
    elif CONTRACT in (item, mutant.law if item == SEARCH else ""):
        judge = lambda: _words(contract_result(mutant, known))  # noqa: E731
    else:
        law = laws()[mutant.law if item == SEARCH else item]
        plan = how.plan(known)
        plan = replace(plan, examples=EXAMPLES, small=False) if item == SEARCH else plan
        judge = lambda: _words(first_failure(law, mutant, plan))  # noqa: E731
    try:
        return judge()
    except Undecided as undecided:
        return UNKNOWN, str(undecided)
    except EmulatorError as error:  # the edited file does not compile, so nothing was judged
        return UNKNOWN, _first_line(error)
    except Exception as error:
        return UNKNOWN, f"judging it raises {type(error).__name__}: {_first_line(error)}"


def _of_peer(name: str, mutant: Mutant, how: How) -> tuple[str, str]:
    peer = next(peer for peer in PEERS if peer.name == name)
    return judge_peer(peer, whole(mutant), lambda: whole(replace(mutant, edits=())), how.device)


def whole(mutant: Mutant) -> Implementation:
    """Return the edited implementation with everything that it supports.

    Many bugs declare less, so that few cases suffice for the laws. CUDA kernels keep their head
    dims, because mutants of them have one instance (ONE_INSTANCE of fa1.cu and fa2.cu).
    """
    impl = build(replace(mutant, declares={}))
    if mutant.family is KERNELS and "supports" in mutant.declares:
        supports = replace(impl.supports, headdims=mutant.declares["supports"].headdims)
        impl = replace(impl, supports=supports, tile=mutant.declares["tile"])
    return impl


def _words(result: Result | tuple) -> tuple[str, str]:
    if isinstance(result, Result):
        return result.verdict, result.reason
    broken, case = result
    if broken.__cause__ is not None and is_not_compiled(broken.__cause__):
        return UNKNOWN, broken.headline
    return FAIL, f"{broken.headline} [{case}]"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
