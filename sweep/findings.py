"""Repeats a failure and reduces it to its smallest case and fewest perturbations."""

from __future__ import annotations

import math
import time

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case, parse_case
from flash_attest.properties.failures import LawBroken, Reason
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.shrink import smallest
from flash_attest.properties.judging.verdict import FAIL, Result
from flash_attest.races.perturb import NONE
from flash_attest.runner.profiles import DEFAULT, PROFILES
from flash_attest.sweep.judging import Judging
from flash_attest.sweep.plan import LAYERS, Job
from flash_attest.sweep.records import FOUND, REPORTED, Finding, Run, key_of
from flash_attest.sweep.store import now

SECONDS = 120.0  # for repeating a finding, and again for reducing it: other runs wait meanwhile
MOST_TRIES = 10  # of each step that may reduce it


def findings_of(run: Run, result: Result, impl: Implementation) -> list[Finding]:
    """Return the findings of a run that failed. A known failure is not repeated or reduced."""
    return [_finding(run, result, key, headline, impl) for key, headline in _headlines(result).items()]


def _headlines(result: Result) -> dict[str, str]:
    """Return {key: headline} of each finding. A crash has only its reason as a headline."""
    return {key_of(headline): headline for headline in (result.findings or [result.reason])}


def _finding(run: Run, result: Result, key: str, headline: str, impl: Implementation) -> Finding:
    known = "" if result.why is Reason.NOT_AS_KNOWN else impl.known_failure(run.law, run.device).why
    return Finding(
        impl=run.impl, version=run.version, law=run.law, layer=run.layer, key=key,
        state=REPORTED if known else FOUND, seed=run.seed, number=run.number, found=now(), headline=headline,
        case_=result.smallest or run.case_, perturbations=run.perturbations, asked=run.asked, device=run.device,
        message=result.message or result.reason, replay=result.replay, known=known,
    )  # fmt: skip


class Examiner:
    """Repeats and reduces one finding. Each step runs the finding's law in a process that may
    die.
    """

    def __init__(self, finding: Finding, impl: Implementation, job: Job, judging: Judging):
        self.finding, self.impl, self.job, self.judging = finding, impl, job, judging
        self.layer = LAYERS[finding.layer]
        self.tries = 1  # runs of each step; an intermittent finding needs several

    def examine(self) -> None:
        """Repeat and reduce the finding, and write the outcome into its fields."""
        finding = self.finding
        began = _words(finding)
        shows = self._repeat(time.perf_counter() + SECONDS)
        if shows:
            self._fewer_perturbations()
            self._smaller_case()
            same = _words(finding) == began
            finding.reduced = "no smaller case was found" if same else f"from {began}"
        else:
            finding.reduced = "no: it did not show again"
        replay = self._replay()
        finding.message = finding.message.replace(finding.replay, replay) if finding.replay else finding.message
        finding.replay = replay

    def _repeat(self, stop: float) -> bool:
        """Repeat the finding until `stop`. Returns whether it occurs again.

        Also records how often it occurs, in words, and the number of tries of the next steps.
        """
        finding = self.finding
        each = Plan(device=finding.device, repeats=finding.asked).repeats_for(self.impl) if self.layer.counted else 1
        most, runs, failed = math.ceil(self.layer.again / each), 0, 0
        case = parse_case(finding.case_)
        while runs < most and (runs == 0 or time.perf_counter() < stop):
            runs += 1
            again = case.but(seed=case.seed + runs - 1) if self.layer.ordered else case
            failed += self._judged(again, finding.perturbations) is not None
        unit = (
            f"runs of {each} repeats" if self.layer.counted else "orders of threads" if self.layer.ordered else "runs"
        )
        finding.repeated = f"found again in {failed} of {runs} {unit}"
        finding.repeated += f" (of {most}, as time ran out)" * (runs < most)
        if failed:
            # If a finding occurs in a run with probability p, it occurs within 3/p runs with a
            # probability of 95 %.
            self.tries = min(MOST_TRIES, 1 if failed == runs else math.ceil(3 * runs / failed))
        return failed > 0

    def _fewer_perturbations(self) -> None:
        """Reduce the perturbations to none or to a single one, if the finding still occurs."""
        finding = self.finding
        if not self.layer.perturbed or finding.perturbations == NONE:
            return
        names = finding.perturbations.split(",") if finding.perturbations else self.job.perturbations[finding.device]
        for name in (NONE, *names):
            if name != finding.perturbations and (result := self._shows(parse_case(finding.case_), name)) is not None:
                finding.perturbations = name
                self._keep(result)
                return

    def _smaller_case(self) -> None:
        """Reduce the case until no single step makes it smaller."""

        def run(case: Case) -> None:
            result = self._shows(case, self.finding.perturbations)
            if result is not None:
                results[case] = result
                raise LawBroken(self.finding.headline)

        results: dict[Case, Result] = {}
        case = parse_case(self.finding.case_)
        judgement = Judgement(self.layer.law, self.impl)
        _, case = smallest(judgement, case, LawBroken(self.finding.headline), run, seconds=SECONDS)
        if case in results:
            self._keep(results[case])

    def _shows(self, case: Case, perturbations: str) -> Result | None:
        """Return the first result that has this finding, from several tries, or None."""
        for _ in range(self.tries):
            result = self._judged(case, perturbations)
            if result is not None:
                return result
        return None

    def _judged(self, case: Case, perturbations: str) -> Result | None:
        """Judge a run. Returns the result if it has this finding, or None."""
        result = self.judging(self.layer.law, self.impl, str(case), perturbations, self.finding.asked)
        return result if result.verdict == FAIL and self.finding.key in _headlines(result) else None

    def _keep(self, result: Result) -> None:
        finding = self.finding
        finding.headline, finding.case_ = _headlines(result)[finding.key], result.smallest
        finding.message, finding.replay = result.message, result.replay

    def _replay(self) -> str:
        """Return the command that replays the finding, with --repeats if pytest's default
        differs.
        """
        finding, words = self.finding, [self.finding.replay]
        if self.layer.counted and finding.asked != PROFILES[DEFAULT].repeats_on(finding.device):
            words.append(f"--repeats {finding.asked}")
        return " ".join(words)


def _words(finding: Finding) -> str:
    """Describe the case and its perturbations in words."""
    under = finding.perturbations and f", under {finding.perturbations}"
    return f"{finding.case_}{under}"
