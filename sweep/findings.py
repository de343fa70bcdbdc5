"""What becomes of a failure: it is repeated, reduced to its smallest case and fewest perturbations, and reported once."""

from __future__ import annotations

import math
import time

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case, parse_case
from flash_attest.properties.failures import LawBroken
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

SECONDS = 120.0  # to repeat a finding, and as long to reduce it: other runs wait meanwhile
MOST_TRIES = 10  # of a step that may make it smaller


def findings_of(run: Run, result: Result, impl: Implementation) -> list[Finding]:
    """The findings of a run that failed, as they were found. What the implementation lists as known stays as it is."""
    return [_finding(run, result, key, headline, impl) for key, headline in _headlines(result).items()]


def _headlines(result: Result) -> dict[str, str]:
    """key -> headline of all that is wrong; a crash has no findings, only a reason."""
    return {key_of(headline): headline for headline in (result.findings or [result.reason])}


def _finding(run: Run, result: Result, key: str, headline: str, impl: Implementation) -> Finding:
    known = impl.known_failures.get(run.law, "")
    return Finding(
        impl=run.impl, version=run.version, law=run.law, layer=run.layer, key=key,
        state=REPORTED if known else FOUND, seed=run.seed, number=run.number, found=now(), headline=headline,
        case_=result.smallest or run.case_, perturbations=run.perturbations, asked=run.asked, device=run.device,
        message=result.message or result.reason, replay=result.replay, known=known,
    )  # fmt: skip


class Examiner:
    """Repeats and reduces one finding. Every step is a run of its law in a process that may die."""

    def __init__(self, finding: Finding, impl: Implementation, job: Job, judging: Judging):
        self.finding, self.impl, self.job, self.judging = finding, impl, job, judging
        self.layer = LAYERS[finding.layer]
        self.tries = 1  # of a step, so that a finding that comes and goes shows

    def examine(self) -> None:
        """Change the finding: how often it shows, its smallest form, the message of that, and a command that shows it."""
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
        """Whether it shows again. Notes how often, and how many tries the next steps need."""
        finding = self.finding
        each = Plan(device=finding.device, repeats=finding.asked).repeats_for(self.impl) if self.layer.counted else 1
        most, made, failed = math.ceil(self.layer.again / each), 0, 0
        case = parse_case(finding.case_)
        while made < most and (made == 0 or time.perf_counter() < stop):
            made += 1
            again = case.but(seed=case.seed + made - 1) if self.layer.ordered else case
            failed += self._judged(again, finding.perturbations) is not None
        what = (
            f"runs of {each} repeats" if self.layer.counted else "orders of threads" if self.layer.ordered else "runs"
        )
        finding.repeated = f"found again in {failed} of {made} {what}"
        finding.repeated += f" (of {most}, as time ran out)" * (made < most)
        if failed:
            self.tries = min(MOST_TRIES, 1 if failed == made else math.ceil(3 * made / failed))  # 3/p: 95 %
        return failed > 0

    def _fewer_perturbations(self) -> None:
        """None, or one of them, if it shows with that."""
        finding = self.finding
        if not self.layer.perturbed or finding.perturbations == NONE:
            return
        names = finding.perturbations.split(",") if finding.perturbations else self.job.perturbations[finding.device]
        for name in (NONE, *names):
            if name != finding.perturbations and (found := self._shows(parse_case(finding.case_), name)) is not None:
                finding.perturbations = name
                self._keep(found)
                return

    def _smaller_case(self) -> None:
        """The case that no single step makes smaller."""

        def run(case: Case) -> None:
            found = self._shows(case, self.finding.perturbations)
            if found is not None:
                kept[case] = found
                raise LawBroken(self.finding.headline)

        kept: dict[Case, Result] = {}
        case = parse_case(self.finding.case_)
        judgement = Judgement(self.layer.law, self.impl)
        _, case = smallest(judgement, case, LawBroken(self.finding.headline), run, seconds=SECONDS)
        if case in kept:
            self._keep(kept[case])

    def _shows(self, case: Case, perturbations: str) -> Result | None:
        """The result of a case in which it shows; None if it does not."""
        for _ in range(self.tries):
            found = self._judged(case, perturbations)
            if found is not None:
                return found
        return None

    def _judged(self, case: Case, perturbations: str) -> Result | None:
        """The result, if it is this finding again."""
        result = self.judging(self.layer.law, self.impl, str(case), perturbations, self.finding.asked)
        return result if result.verdict == FAIL and self.finding.key in _headlines(result) else None

    def _keep(self, result: Result) -> None:
        finding = self.finding
        finding.headline, finding.case_ = _headlines(result)[finding.key], result.smallest
        finding.message, finding.replay = result.message, result.replay

    def _replay(self) -> str:
        """The command, with the repeats of the sweep where those are not what pytest takes."""
        finding, words = self.finding, [self.finding.replay]
        if self.layer.counted and finding.asked != PROFILES[DEFAULT].repeats_on(finding.device):
            words.append(f"--repeats {finding.asked}")
        return " ".join(words)


def _words(finding: Finding) -> str:
    """The case and its perturbations."""
    under = finding.perturbations and f", under {finding.perturbations}"
    return f"{finding.case_}{under}"
