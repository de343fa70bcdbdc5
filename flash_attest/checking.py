"""Judges implementations by the laws of attention: check(), for scripts and for loops that write
kernels. It does not need pytest to run it.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from flash_attest.did_you_mean import did_you_mean
from flash_attest.emulator import devices
from flash_attest.emulator.errors import EmulatorError
from flash_attest.impls.contract.entry import Entry
from flash_attest.impls.contract.loading import file_of_function
from flash_attest.impls.contract.record import DEVICES, Absent, Implementation
from flash_attest.properties.cases.case import Case, CaseError, parse_case
from flash_attest.properties.judging.explained import place_of
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.origin import Scripted
from flash_attest.properties.judging.plain_text import all_plain
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, Result
from flash_attest.properties.law import Law, laws
from flash_attest.properties.machine.gpus import emulate_if_no_gpu, emulated_on
from flash_attest.races.perturb import chosen
from flash_attest.runner.green import Asked, not_green, verdict_line
from flash_attest.runner.isolation.isolated import Isolated
from flash_attest.runner.isolation.parent import forks_can_use_cuda, possible
from flash_attest.runner.judge import Judge, compare_with_known
from flash_attest.runner.limits import TimeLimits
from flash_attest.runner.plugin.aside import Aside
from flash_attest.runner.profiles import DEFAULT, PROFILES
from flash_attest.runner.start import judge_of

IN_THIS_PROCESS = Known()  # whether it has lost its GPU, for one


@dataclass(frozen=True)
class CheckResult:
    """The verdicts of `check`, in the order in which they were reached.

    A result has law, impl, verdict ("pass", "fail", "refused" or "unknown") and reason, which is
    one line. A failure also has message (what pytest would print), smallest (the smallest failing
    case as text) and replay.
    """

    results: tuple[Result, ...]
    replayed: bool = False  # whether one given case was judged, instead of drawn cases
    device: str = "cpu"  # the device on which they were reached
    emulated: str = ""  # the GPU whose kernels ran in the emulator, such as sm_80; "" on a GPU
    remarks: tuple[str, ...] = ()  # what else there is to say: which processes had to be ended, for one

    @property
    def failures(self) -> list[Result]:
        """The laws that do not hold, except those listed as known_failures."""
        return [result for result in self.results if result.verdict == FAIL and not result.known]

    @property
    def undecided(self) -> str:
        """A line on why a result without failures is not green: what could not be decided, or of
        which implementation no law was judged. "" if everything was.
        """
        return not_green([result.as_dict() for result in self.results], self._asked)

    @property
    def ok(self) -> bool:
        """Whether every law that applies holds, all of them could be decided, and each
        implementation passed at least one.
        """
        return bool(self.results) and not self.failures and not self.undecided

    @property
    def _asked(self) -> Asked:
        return Asked(named=True, replayed=self.replayed)

    def to_json(self) -> str:
        """Return the results as JSON: a list of objects, with the fields of results.json
        (docs/use/reading-a-failure.md).
        """
        return json.dumps([result.as_dict() for result in self.results], indent=1)

    def __str__(self) -> str:
        """Return the verdict in one line, followed by a line for each failure and each remark."""
        results = [result.as_dict() for result in self.results]
        verdict = verdict_line(results, self._asked, device=self.device, emulated=self.emulated)
        failures = (f"{result.impl}: {result.law}: {result.reason}" for result in self.failures)
        return "\n".join([verdict, *failures, *self.remarks])


def check(
    implementation: Implementation | Sequence[Implementation],
    *,
    profile: str = DEFAULT,
    laws: Iterable[str] | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    emulated: Literal[80, 90] | None = None,
    seed: int = 0,
    case: str | None = None,
    repeats: int | None = None,
    perturb: str = "",
    case_timeout: float = 120.0,
    law_time_limit: float = 0.0,
    time_limit: float = 0.0,
    isolated: bool = True,
    on_result: Callable[[Result], None] | None = None,
) -> CheckResult:
    """Judge an implementation, or several, by the laws of attention.

        result = check(Implementation(name="mine", forward=my_attention), profile="smoke")
        if not result.ok:
            print(result.failures[0].message)

    profile: how many cases each law gets: "smoke" 2, "quick" 12, "default" 30,
        "thorough" 400, "nightly" 4000.
    laws: names of laws, with or without "test_"; None judges all that apply, after the
        contract. `flash-attest laws` lists them.
    device: the device to judge on; "auto" takes a GPU if there is one.
    emulated: without a GPU, the one for which kernels in Triton and Numba are compiled: 80, an
        A100, or 90, an H100. None is what FLASH_ATTEST_EMULATED names, else 80.
    seed: which cases are drawn.
    case: judge this case alone, such as "seqlen_q=65 headdim=64 causal=True".
    repeats, perturb: how often the laws about races repeat a call, and under which perturbations.
        By default, the profile sets the number, and all perturbations are used.
    case_timeout: seconds for one call of the implementation; 0 for no limit.
    law_time_limit, time_limit: seconds for a law on one implementation, and for everything; 0 for
        no limit. A law that is not decided by then is unknown.
    isolated: call the implementation in a process of its own, so that a crash is a failure and
        does not end this process. That is possible on Linux, until this process uses CUDA.
    on_result: called with each result as soon as it is known.

    Returns a CheckResult. Raises ValueError for an argument that makes no sense; the message says
    what it should be.
    """
    impls = _implementations(implementation)
    limits = {"case_timeout": case_timeout, "law_time_limit": law_time_limit, "time_limit": time_limit}
    wanted = _checked(impls, profile, laws, device, limits, repeats, seed)
    on = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
    if device == "cuda" and on == "cpu":
        raise ValueError('device="cuda": torch.cuda.is_available() is False here')
    try:
        if on == "cuda" and emulated is not None:
            raise EmulatorError(f'emulated={emulated}: a GPU runs the kernels here: hide it with device="cpu"')
        if emulated is not None:
            devices.choose(emulated)
        target = emulated_on(on)
    except EmulatorError as error:
        raise ValueError(str(error)) from None
    if perturb:
        chosen(perturb, on)
    settings = PROFILES[profile]
    plan = Plan(
        device=on,
        examples=settings.cases,
        seed=seed,
        repeats=repeats or settings.repeats_on(on),
        perturbations=perturb,
        case=_case(case) if case else None,
        only_case=bool(case),
        case_timeout=case_timeout,
        small=settings.small,
    )
    apart = isolated and possible() and (on == "cpu" or forks_can_use_cuda())
    if not apart:
        plan.known = IN_THIS_PROCESS
        emulate_if_no_gpu(device)
    impls = [impl.on(on) for impl in impls]
    entries = [Entry(impl, file_of_function(impl.forward)) for impl in impls]
    with tempfile.TemporaryDirectory(prefix="attest-", ignore_cleanup_errors=True) as folder:
        judge = judge_of(
            plan,
            entries,
            Path(folder),
            isolated=apart,
            limit=case_timeout,
            limits=TimeLimits(law_time_limit, time_limit, time.monotonic()),
            origin_of=lambda entry: Scripted(entry.name),
        )
        try:
            found = tuple(_verdicts(judge, impls, wanted, device=on, contract=laws is None, on_result=on_result))
        finally:
            judge.close()
    aside = Aside()
    aside.add_of(judge)
    return CheckResult(
        found, replayed=case is not None, device=on, emulated=target, remarks=tuple(all_plain(aside.lines))
    )


def _implementations(given: object) -> list[Implementation]:
    """Read the first argument of `check`. Raises ValueError, which says what to pass."""
    one = isinstance(given, (Implementation, str)) or not isinstance(given, Iterable)
    impls = [given] if one else list(given)
    for impl in impls:
        if not isinstance(impl, Implementation):
            raise ValueError(f"check: {impl!r} should be a flash_attest.Implementation{_instead_of(impl)}")
    if not impls:
        raise ValueError("check: no implementation is given")
    return impls


def _instead_of(given: object) -> str:
    """Return what to do with something that should be an Implementation, for a message."""
    if isinstance(given, str):
        return f"; `flash-attest check {given}` judges a file"
    if isinstance(given, Absent):
        return f"; it cannot be loaded on this machine: {given.reason}"
    return ": Implementation(name=..., forward=that function)" if callable(given) else ""


def _case(text: str) -> Case:
    """Read a case. Raises ValueError, which names the wrong field."""
    try:
        return parse_case(text)
    except CaseError as error:
        raise ValueError(str(error).replace("--case: ", "case: ", 1)) from None


def _verdicts(
    judge: Judge | Isolated,
    impls: list[Implementation],
    wanted: list[Law],
    *,
    device: str,
    contract: bool,
    on_result: Callable[[Result], None] | None,
) -> Iterable[Result]:
    for impl in impls:
        for law in ([None] if contract else []) + wanted:
            result = judge.contract(impl) if law is None else judge.law(law, impl)
            compare_with_known(result, impl, device)
            result.made_plain()
            if on_result is not None:
                on_result(result)
            yield result


def _checked(
    impls: list[Implementation],
    profile: str,
    names: Iterable[str] | None,
    device: str,
    limits: dict[str, float],
    repeats: int | None,
    seed: int,
) -> list[Law]:
    """Return the laws to judge; those that may end a process come last.

    Raises ValueError for arguments that make no sense.
    """
    if twice := [name for name, n in Counter(impl.name for impl in impls).items() if n > 1]:
        raise ValueError(f"two implementations are named {twice[0]!r}: give one of them another name")
    if profile not in PROFILES:
        raise ValueError(f"profile={profile!r}: should be one of {', '.join(PROFILES)}")
    if device not in ("auto", *DEVICES):
        raise ValueError(f"device={device!r}: should be auto, cpu or cuda")
    if not isinstance(seed, int):
        raise ValueError(f"seed={seed!r}: should be a whole number")
    for name, seconds in limits.items():
        if not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
            raise ValueError(f"{name}={seconds!r}: should be a number of seconds, or 0 for no limit")
    if repeats is not None and repeats < 1:
        raise ValueError(f"repeats={repeats!r}: should be at least 1")
    known = laws()
    if names is None:
        return sorted(known.values(), key=lambda law: (law.last, place_of(law.chapter)))
    asked = [f"test_{name.removeprefix('test_')}" for name in ([names] if isinstance(names, str) else names)]
    if not asked:
        raise ValueError("laws is empty: name some, or pass None for all that apply")
    if unknown := [name for name in asked if name not in known]:
        raise ValueError(
            f"there is no law {unknown[0]}{did_you_mean(unknown[0], known)}; `flash-attest laws` lists them"
        )
    return [known[name] for name in asked]
