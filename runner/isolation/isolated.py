"""Judges like `Judge`, but in a judging process.

If a law ends the process, its verdict is derived from how the process ended.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.conformance import Tried
from flash_attest.properties.judging.explained import Explained
from flash_attest.properties.judging.plan import Lost, contract_test
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN, Result
from flash_attest.properties.law import Law
from flash_attest.properties.state import patched
from flash_attest.runner.isolation import crashes, importing, leftovers, tracing, verdicts
from flash_attest.runner.isolation.child import as_result, record_of
from flash_attest.runner.isolation.endings import Ending, Kind
from flash_attest.runner.isolation.parent import JudgingProcess
from flash_attest.runner.judge import Judge, contract_result, suite_raised
from flash_attest.runner.limits import NEVER, NO_DEADLINE, Deadline

MOST_TIMED_OUT = 3  # hanging calls after which a law is given up
MOST_TIMED_OUT_IN_ALL = 9  # hanging calls after which an implementation is given up
MOST_TRIED_ALONE = 3  # failures of one implementation whose smallest case is judged again in a fresh process
MOST_LOST = 12  # cases that end the process during the contract check
LATER = 1.0  # seconds after its time limit when a law is ended that has not ended itself
PAUSE = 5.0  # seconds before a failed start is tried again: others may fill the GPU for a moment

Target = tuple[str, str]  # an implementation, and the device on which a law judges it


class Isolated:
    """Judges laws and contracts in a separate process.

    start(device): what a judging process does first; it returns what the parent wants to know, such
    as the device's name. objects: the laws and implementations that are expected in requests; each
    other one costs a fork. Each plug-in gets processes that judge nothing else, one for each
    device: a trace on the CPU must not find the machine's GPU.
    """

    def __init__(
        self, judge: Judge, start: Callable[[str], dict], objects: Iterable[object], limit: float, keeps_streams: bool
    ):
        self.judge, self.start, self.limit, self.keeps_streams = judge, start, limit, keeps_streams
        self.objects = {id(each): each for each in objects}
        self.remarks: list[str] = []  # for the report, beside the verdicts
        self.left: dict[str, Counter[str]] = {}  # impl -> commands of processes that had to be ended
        self.device_name = ""
        self._process: JudgingProcess | None = None
        self._judges = ("", "")  # judged in the process: (a plug-in, or "" for all others; device)
        self._last = ("", "")  # the last judgement: (implementation, test id of the law)
        self._changes: dict[str, object] = {}  # changes to the plan for the law in progress
        self._lost: dict[Target, dict[str, Lost]] = {}  # cases that ended or hung a contract check
        self._timed_out: Counter[Target] = Counter()
        self._tried_alone: Counter[Target] = Counter()
        self._traced: Counter[str] = Counter()  # traced failures by implementation (tracing.py)
        self._crashes: dict[Target, list[crashes.Known]] = {}  # the smallest cases that end the process
        self._not_up: dict[Target, str] = {}  # why no process could be started
        patched.keep_for_forks()

    def law(self, law: Law, impl: Implementation, **changes: object) -> Result:
        """Return the verdict of a law. changes: fields of the plan to replace for this law."""
        try:
            self._changes = changes
            with self.judge.changed(**changes):
                return self._law(law, impl)
        except Exception as error:
            return suite_raised(error, Result(impl.name, law.chapter, law.name, UNKNOWN))

    def _law(self, law: Law, impl: Implementation) -> Result:
        """Ask until the law has a verdict, leaving out cases from which the process did not
        return.
        """
        began, hung, deadline = time.perf_counter(), [], self.judge.limits.of_law()
        target, judgement = self._target(impl, law), self.judge.judgement(law, impl)
        ended_by = partial(self.ended_by, law, impl)
        lost = dict(self._lost.get(target, {}))
        while True:
            if (n := self._timed_out[target]) >= MOST_TIMED_OUT_IN_ALL:
                given_up = f"not judged: {n} calls did not return in time"
                return verdicts.undecided(judgement, given_up, Reason.TIMED_OUT, began)
            if time.monotonic() > deadline.at:
                return verdicts.undecided(judgement, self.judge.limits.over or deadline.words, Reason.TIME_LIMIT, began)
            explained = [asdict(each) for each in self.judge.explanations.of(impl.name)]
            request = {"kind": "law", "law": id(law), "lost": _as_lists(lost), "plan": self._until(deadline)}
            request["explained"] = explained
            answer = self._ask_for(law, request, impl, replace(deadline, at=deadline.at + LATER))
            if isinstance(answer, str):
                return verdicts.undecided(judgement, answer, Reason.WORKER_DIED, began)
            # The contract check ended the process: judge again without that case.
            if self._contract_lost(impl, target, answer):
                lost |= self._lost[target]
                continue
            # The law has a verdict.
            if not isinstance(answer, Ending):
                result = as_result(answer["result"])
                result = crashes.smaller(judgement, result, answer["lost_gpu"], ended_by, self.limit)
                if not answer["over"]:
                    self._tell_whether_it_fails_alone(law, impl, result)
                break
            # The process ended. A crash in a call is a failure; any other ending leaves the law
            # undecided.
            if answer.breaks:
                result = crashes.result(judgement, answer, ended_by, self.limit, self._crashes.setdefault(target, []))
                break
            if answer.kind is not Kind.TIMED_OUT or not answer.case:
                failure = verdicts.found_before(judgement, answer)
                result = failure or verdicts.ended(judgement, answer, answer.why)
                break
            # A call hangs: judge again without this case, a few times.
            hung.append(answer)
            self._timed_out[target] += 1
            lost[answer.case] = Lost(answer.headline, breaks=False)
            if len(hung) == MOST_TIMED_OUT or self.judge.plan.case is not None:
                failure = verdicts.found_before(judgement, answer)
                result = failure or verdicts.hung(judgement, hung, answer.seen.cases, "", self._threads_of(impl))
                break
        if hung and result.verdict not in (FAIL, UNKNOWN):
            right = f"; right on {result.cases} other case{'s' * (result.cases != 1)}"
            result = verdicts.hung(judgement, hung, result.cases, right, self._threads_of(impl))
        if not result.same_as:
            tracing.add_trace(judgement, result, self._traced, partial(self.ask_another, limit=self.limit))
        self.judge.explains(judgement, result)
        result.seconds = time.perf_counter() - began
        return result

    def contract(self, impl: object) -> Result:
        """Return the verdict of the contract check."""
        began, deadline = time.perf_counter(), self.judge.limits.of_law()
        if self.judge.limits.over or not isinstance(impl, Implementation):
            return self.judge.contract(impl)
        target = self._target(impl)
        while True:
            request = {"kind": "contract", "lost": _as_lists(self._lost.get(target, {}))}
            answer = self._ask(request, None, impl, deadline)
            if isinstance(answer, str) or not self._contract_lost(impl, target, answer):
                break
        why = Reason.WORKER_DIED
        if isinstance(answer, Ending):
            why, answer = answer.why, answer.sentence
        if isinstance(answer, str):
            result = contract_result(impl.name, UNKNOWN, answer, why)
        else:
            result = as_result(answer["result"])
            lost = self._lost.get(target, {})
            facts = [f"{each.words}: {case}" for case, each in lost.items()]
            result.message = crashes.with_facts(result.message, facts + self._threads_of(impl) if facts else [])
        result.seconds = time.perf_counter() - began
        return result

    def ended_by(self, law: Law, impl: Implementation, case: object, limit: float) -> Ending | dict:
        """Judge one case in a fresh process. Returns its answer, or how it ended."""
        alone = {"case": str(case), "try_contract": False, "goes_on": False}
        request = {"kind": "law", "law": id(law), "lost": {}, "plan": self._changes | alone}
        return self.ask_another(self._process_for(impl, law), request | self._of(impl, law), limit)

    def ask_another(
        self, judges: Target, request: dict, limit: float, deadline: Deadline = NO_DEADLINE
    ) -> Ending | dict:
        """Return the answer of a fresh process that judges nothing else, or how it ended."""
        process = self._new_process(judges, limit)
        try:
            return process.begin() or process.ask(request, deadline)
        finally:
            process.end()

    def _tell_whether_it_fails_alone(self, law: Law, impl: Implementation, result: Result) -> None:
        """Add to a failure that its case passes in a fresh process, if that is so.

        Only the first failures of an implementation are tried.
        """
        if result.verdict != FAIL or result.same_as or not result.smallest or self.judge.plan.case is not None:
            return
        target = self._target(impl, law)
        self._tried_alone[target] += 1
        if self._tried_alone[target] <= MOST_TRIED_ALONE:
            alone = self.ended_by(law, impl, parse_case(result.smallest), self.limit)
            if not isinstance(alone, Ending) and as_result(alone["result"]).verdict == PASS:
                result.message = crashes.with_facts(result.message, [crashes.RIGHT_ALONE])

    def forget_troubles(self) -> None:
        """Reset the give-up counters. The sweep has its own limits."""
        self._timed_out.clear()
        self._not_up.clear()

    def close(self) -> None:
        """End the judging process."""
        if self._process is not None:
            self._process.end()
            self._process = None
        self.judge.close()

    # --- in the judging process -------------------------------------------------------------------

    def answer(self, request: dict) -> dict:
        """Judge what a request asks for, in the judging process."""
        impl, device = self.objects[request["impl"]], request["device"]
        if request["kind"] == "trace":
            with self.judge.at_home(impl):
                return tracing.answer(self.objects[request["law"]], impl, request["case"])
        lost = {case: Lost(*words) for case, words in request["lost"].items()}
        explained = [Explained.of_dict(each) for each in request.get("explained", ())]
        with self.judge.changed(lost=lost, explained=explained, **request.get("plan", {})):
            if request["kind"] == "contract":
                result = self.judge.contract(impl)
            else:
                result = self.judge.law(self.objects[request["law"]], impl)
        known, key = self.judge.plan.known, self.judge.plan.contract_key(impl, device)
        contract = known.contract(impl, key)
        contract = contract if isinstance(contract, Tried) else Tried([], judged=False)
        return {
            "result": record_of(result),
            "kept": key if contract.judged and not contract.problems and contract.undecided is None else "",
            "lost": [contract.lost, contract.problems[0]]
            if contract.lost
            else [],  # the case of the contract check, what happened
            "lost_gpu": known.lost_case,
            "over": self.judge.is_over(result, device),
        }

    # --- the process ------------------------------------------------------------------------------

    def _ask_for(self, law: Law, request: dict, impl: Implementation, deadline: Deadline) -> dict | Ending | str:
        """Ask for the verdict of a law, as `_ask` does. If the law is about the first call of a
        process, a new one is asked, once the usual one has found that the contract is kept.
        """
        if not law.new_process:
            return self._ask(request, law, impl, deadline)
        judges, of = self._process_for(impl, law), self._of(impl, law)
        if not self._keeps_contract(impl, of["device"]):
            self._ask({"kind": "contract", "lost": request["lost"]}, None, impl, deadline)
            if not self._keeps_contract(impl, of["device"]):
                return self._ask(request, law, impl, deadline)
        self.objects |= {id(law): law, id(impl): impl}
        plan = request["plan"] | {"try_contract": False}
        return self.ask_another(judges, request | of | {"plan": plan}, self.limit, deadline)

    def _keeps_contract(self, impl: Implementation, device: str) -> bool:
        plan = self.judge.plan
        known = plan.known.contract(impl, plan.contract_key(impl, device))
        return isinstance(known, Tried) and not known.problems

    def _ask(self, request: dict, law: Law | None, impl: Implementation, deadline: Deadline) -> dict | Ending | str:
        """Return the answer, how the process ended, or why no process can be asked."""
        test = law.test_id(impl.name) if law else contract_test(impl.name)
        process = self._for(impl, law)
        if not isinstance(process, JudgingProcess):
            return process
        answer, self._last = process.ask(request | self._of(impl, law), deadline), (impl.name, test)
        if isinstance(answer, Ending):
            self._process = None
        else:
            if answer["kept"]:  # spares the next process the contract check
                self.judge.plan.known.keep_contract(impl, answer["kept"], Tried([]))
            if answer["over"]:
                process.end()
                self._process = None
        return answer

    def _for(self, impl: Implementation, law: Law | None) -> JudgingProcess | Ending | str:
        """Return the process that judges this implementation, or why there is none."""
        judges = self._process_for(impl, law)
        new = {id(each): each for each in (law, impl) if each is not None and id(each) not in self.objects}
        self.objects |= new
        if self._process is not None and not self._process.alive():
            ending = self._process.ended()
            self._process = None
            died = f"after its verdict on {self._last[1]} the process ended: {ending.words}"
            if impl.name == self._last[0]:  # perhaps because of a thread that it left behind
                return died
            self.remarks.append(died)
        if self._process is not None and (new or judges != self._judges):
            self._process.end()
            self._process = None
        if self._process is None and judges not in self._not_up:
            process = self._new_process(judges, self.limit)
            if (ending := process.begin()) and ending.memory is None:
                time.sleep(PAUSE)  # the dead process may still hold the GPU
                ending = process.begin()
            if ending and ending.memory:  # it has waited; there may be some for the next law
                return ending
            if ending:
                last_line = "; ".join(["", *ending.printed[-1:]])
                self._not_up[judges] = f"no judging process comes up: {ending.words}{last_line}"
            else:
                self._process, self._judges = process, judges
                self.device_name = process.hello.get("device_name", "") or self.device_name
        return self._process or self._not_up[judges]

    def _new_process(self, judges: Target, limit: float) -> JudgingProcess:
        plug_in, device = judges

        def tell_left(commands: list[str]) -> None:
            leftovers.counted(self.left, plug_in or self._last[0], commands)

        keepers = 2 if plug_in else 1
        start = partial(self.start, device)
        return JudgingProcess(start, self.answer, limit, self.keeps_streams, keepers, tell_left)

    def _until(self, deadline: Deadline) -> dict[str, object]:
        """Return the changes to the plan, with the moment at which the law has to be decided."""
        return self._changes | ({"until": [deadline.at, deadline.words]} if deadline.at < NEVER else {})

    def _threads_of(self, impl: Implementation) -> list[str]:
        return importing.started(self.judge.threads.get(impl.name, ()))

    def _process_for(self, impl: Implementation, law: Law | None) -> Target:
        """Return (a plug-in, or "" for all others; the device), which identifies the process that
        judges this.
        """
        if impl.name in self.judge.plug_ins:
            return self._target(impl, law)
        return "", self.judge.plan.device

    def _target(self, impl: Implementation, law: Law | None = None) -> Target:
        plan = self.judge.plan
        return impl.name, self.judge.judgement(law, impl).device if law else plan.device

    def _of(self, impl: Implementation, law: Law | None) -> dict:
        """Return the fields of a request that name the implementation and its device."""
        return {"impl": id(impl), "device": self._target(impl, law)[1]}

    def _contract_lost(self, impl: Implementation, target: Target, answer: Ending | dict) -> bool:
        """Record a case that ended the process, or lost its GPU, during the contract check.

        Returns False if there was no such case, or if it is known already. A time limit says
        nothing about the case: the next law has time of its own.
        """
        if isinstance(answer, Ending) and answer.kind is Kind.TIME_LIMIT:
            return False
        lost = self._lost.setdefault(target, {})
        if isinstance(answer, Ending):
            case = answer.case if answer.of_contract and answer.seen.in_call else ""
            words, breaks = answer.headline, answer.breaks
        else:
            (case, words), breaks = answer["lost"] or ("", ""), True
        if not case or case in lost:
            return False
        lost[case] = Lost(words, breaks)
        timed_out = sum(not each.breaks for each in lost.values())
        if len(lost) >= MOST_LOST or timed_out >= MOST_TIMED_OUT:
            problems = list(dict.fromkeys(each.words for each in lost.values()))
            tried = Tried(problems, judged=False, timed_out=timed_out == len(lost))
            self.judge.plan.known.keep_contract(impl, target[1], tried)
        return True


def _as_lists(lost: dict[str, Lost]) -> dict[str, list]:
    return {case: [each.words, each.breaks] for case, each in lost.items()}
