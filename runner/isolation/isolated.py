"""Judges like `Judge`, but in a judging process: a law that takes it down gets its verdict from how it ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.calling.raised import device_works
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.conformance import Tried
from flash_attest.properties.judging.plan import Lost, contract_test
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN, Result
from flash_attest.properties.law import Law
from flash_attest.runner.isolation import crashes, importing, tracing, verdicts
from flash_attest.runner.isolation.child import as_result, record_of
from flash_attest.runner.isolation.endings import Ending, Kind
from flash_attest.runner.isolation.parent import JudgingProcess
from flash_attest.runner.judge import Judge, contract_result, suite_raised

MOST_TIMED_OUT = 3  # calls of one law that do not return, after which it is given up
MOST_TIMED_OUT_IN_ALL = 9  # of one implementation
MOST_TRIED_ALONE = 3  # failures of one implementation whose smallest case is judged again, in a fresh process
MOST_LOST = 12  # cases that end the process while the contract is tried
PAUSE = 5.0  # seconds before a process that did not come up is started again: others may fill the GPU for a moment

Place = tuple[str, str]  # an implementation, and the device on which a law judges it


class Isolated:
    """Has laws and contracts judged in a process of its own.

    start(device): what a judging process does first; returns what the parent wants to know (the name of the device).
    objects: the laws and implementations that will be asked about; others cost a fork. A plug-in gets processes that judge
    nothing else: one for each device, as what is traced on the CPU of a machine with a GPU must not find the GPU.
    """

    def __init__(
        self, judge: Judge, start: Callable[[str], dict], objects: Iterable[object], limit: float, keeps_streams: bool
    ):
        self.judge, self.start, self.limit, self.keeps_streams = judge, start, limit, keeps_streams
        self.objects = {id(each): each for each in objects}
        self.remarks: list[str] = []  # what no verdict says
        self.device_name = ""
        self._process: JudgingProcess | None = None
        self._judges = ("", "")  # what the process judges: a plug-in or "" for all others, the device
        self._last = ("", "")  # what it judged last: the implementation, the test id of the law
        self._changes: dict[str, object] = {}  # of the plan, for the law in progress
        self._lost: dict[Place, dict[str, Lost]] = {}  # cases that did not come back from the contract
        self._timed_out: Counter[Place] = Counter()
        self._tried_alone: Counter[Place] = Counter()
        self._traced: Counter[str] = Counter()  # failures by implementation (tracing.py)
        self._not_up: dict[Place, str] = {}  # why no process that judges this can be started

    def law(self, law: Law, impl: Implementation, **changes: object) -> Result:
        """The verdict of a law. changes: fields of the plan that are otherwise for it (Judge.changed)."""
        try:
            self._changes = changes
            with self.judge.changed(**changes):
                return self._law(law, impl)
        except Exception as error:
            return suite_raised(error, Result(impl.name, law.chapter, law.name, UNKNOWN))

    def _law(self, law: Law, impl: Implementation) -> Result:
        began, hung = time.perf_counter(), []
        place, judgement = self._place(impl, law), self.judge.judgement(law, impl)
        ended_by = partial(self.ended_by, law, impl)
        lost = dict(self._lost.get(place, {}))
        while True:
            if (n := self._timed_out[place]) >= MOST_TIMED_OUT_IN_ALL:
                given_up = f"not judged: {n} calls did not return in time"
                return verdicts.undecided(judgement, given_up, Reason.TIMED_OUT, began)
            answer = self._ask(
                {"kind": "law", "law": id(law), "lost": _as_lists(lost), "plan": self._changes}, law, impl
            )
            if isinstance(answer, str):
                return verdicts.undecided(judgement, answer, Reason.WORKER_DIED, began)
            if self._contract_lost(impl, place, answer):
                lost |= self._lost[place]
                continue
            if not isinstance(answer, Ending):
                result = as_result(answer["result"])
                result = crashes.smaller(judgement, result, answer["lost_gpu"], ended_by, self.limit)
                if not answer["over"]:
                    self._tell_whether_it_fails_alone(law, impl, result)
                break
            if answer.breaks:
                result = crashes.result(judgement, answer, ended_by, self.limit)
                break
            if answer.kind is not Kind.TIMED_OUT or not answer.case:
                found = verdicts.found_before(judgement, answer)
                result = found or verdicts.ended(judgement, answer, Reason.WORKER_DIED)
                break
            hung.append(answer)
            self._timed_out[place] += 1
            lost[answer.case] = Lost(answer.headline, breaks=False)
            if len(hung) == MOST_TIMED_OUT or self.judge.plan.case is not None:
                found = verdicts.found_before(judgement, answer)
                result = found or verdicts.hung(judgement, hung, answer.seen.cases, "", self._threads_of(impl))
                break
        if hung and result.verdict not in (FAIL, UNKNOWN):
            right = f"; right on {result.cases} other cases"
            result = verdicts.hung(judgement, hung, result.cases, right, self._threads_of(impl))
        tracing.add_trace(judgement, result, self._traced, partial(self.ask_another, limit=self.limit))
        result.seconds = time.perf_counter() - began
        return result

    def contract(self, impl: object) -> Result:
        """The verdict of the contract check."""
        began = time.perf_counter()
        if not isinstance(impl, Implementation):
            return self.judge.contract(impl)
        place = self._place(impl)
        while True:
            answer = self._ask({"kind": "contract", "lost": _as_lists(self._lost.get(place, {}))}, None, impl)
            if isinstance(answer, str) or not self._contract_lost(impl, place, answer):
                break
        if isinstance(answer, Ending):
            answer = answer.sentence
        if isinstance(answer, str):
            result = contract_result(impl.name, UNKNOWN, answer, Reason.WORKER_DIED)
        else:
            result = as_result(answer["result"])
            lost = self._lost.get(place, {})
            facts = [f"{each.words}: {case}" for case, each in lost.items()]
            result.message = crashes.with_facts(result.message, facts + self._threads_of(impl) if facts else [])
        result.seconds = time.perf_counter() - began
        return result

    def ended_by(self, law: Law, impl: Implementation, case: object, limit: float) -> Ending | dict:
        """What becomes of one case in a process of its own."""
        alone = {"case": str(case), "try_contract": False, "goes_on": False}
        request = {"kind": "law", "law": id(law), "lost": {}, "plan": self._changes | alone}
        return self.ask_another(self._process_for(impl, law), request | self._of(impl, law), limit)

    def ask_another(self, judges: Place, request: dict, limit: float) -> Ending | dict:
        """The answer of a process that judges nothing else."""
        process = self._new_process(judges, limit)
        try:
            return process.begin() or process.ask(request)
        finally:
            process.end()

    def _tell_whether_it_fails_alone(self, law: Law, impl: Implementation, result: Result) -> None:
        """Add to a failure that its case is right in a fresh process, if so. Only the first failures are tried."""
        if result.verdict != FAIL or not result.smallest or self.judge.plan.case is not None:
            return
        place = self._place(impl, law)
        self._tried_alone[place] += 1
        if self._tried_alone[place] <= MOST_TRIED_ALONE:
            alone = self.ended_by(law, impl, parse_case(result.smallest), self.limit)
            if not isinstance(alone, Ending) and as_result(alone["result"]).verdict == PASS:
                result.message = crashes.with_facts(result.message, [crashes.RIGHT_ALONE])

    def forget_troubles(self) -> None:
        """Reset the counts after which laws are given up. The sweep, which judges for hours, has limits of its own."""
        self._timed_out.clear()
        self._not_up.clear()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None
        self.judge.close()

    # --- in the judging process -----------------------------------------------------------------------------------------

    def answer(self, request: dict) -> dict:
        """Judge what is asked for."""
        impl, device = self.objects[request["impl"]], request["device"]
        if request["kind"] == "trace":
            return tracing.answer(self.objects[request["law"]], impl, request["case"])
        lost = {case: Lost(*words) for case, words in request["lost"].items()}
        with self.judge.changed(lost=lost, **request.get("plan", {})):
            if request["kind"] == "contract":
                result = self.judge.contract(impl)
            else:
                result = self.judge.law(self.objects[request["law"]], impl)
        known = self.judge.plan.known
        tried = known.contract(impl, device)
        tried = tried if isinstance(tried, Tried) else Tried([], judged=False)
        return {
            "result": record_of(result),
            "kept": tried.judged and not tried.problems and tried.undecided is None,
            "lost": [tried.lost, tried.problems[0]] if tried.lost else [],  # the case of the contract, what happened
            "lost_gpu": known.lost_case,
            "over": bool(known.lost_in) or (result.verdict in (FAIL, UNKNOWN) and not device_works(device)),
        }

    # --- the process ----------------------------------------------------------------------------------------------------

    def _ask(self, request: dict, law: Law | None, impl: Implementation) -> dict | Ending | str:
        """The answer; how the process ended; or why there is none to ask."""
        test = law.test_id(impl.name) if law else contract_test(impl.name)
        process = self._for(impl, law)
        if isinstance(process, str):
            return process
        answer, self._last = process.ask(request | self._of(impl, law)), (impl.name, test)
        if isinstance(answer, Ending):
            self._process = None
        else:
            if answer["kept"]:  # the next process need not try it again
                self.judge.plan.known.keep_contract(impl, self._place(impl, law)[1], Tried([]))
            if answer["over"]:
                process.end()
                self._process = None
        return answer

    def _for(self, impl: Implementation, law: Law | None) -> JudgingProcess | str:
        """The process that judges this implementation; why there is none."""
        judges = self._process_for(impl, law)
        new = {id(each): each for each in (law, impl) if each is not None and id(each) not in self.objects}
        self.objects |= new
        if self._process is not None and not self._process.alive():
            ending = self._process.ended()
            self._process = None
            died = f"after its verdict on {self._last[1]} the process ended: {ending.words}"
            if impl.name == self._last[0]:  # a thread, perhaps, which the implementation has left
                return died
            self.remarks.append(died)
        if self._process is not None and (new or judges != self._judges):
            self._process.end()
            self._process = None
        if self._process is None and judges not in self._not_up:
            process = self._new_process(judges, self.limit)
            if ending := process.begin():
                time.sleep(PAUSE)  # what died may still hold the GPU
                ending = process.begin()
            if ending:
                said = "; ".join(["", *ending.printed[-1:]])
                self._not_up[judges] = f"no judging process comes up: {ending.words}{said}"
            else:
                self._process, self._judges = process, judges
                self.device_name = process.hello.get("device_name", "") or self.device_name
        return self._process or self._not_up[judges]

    def _new_process(self, judges: Place, limit: float) -> JudgingProcess:
        plug_in, device = judges
        return JudgingProcess(partial(self.start, device), self.answer, limit, self.keeps_streams, kept=bool(plug_in))

    def _threads_of(self, impl: Implementation) -> list[str]:
        return importing.started(self.judge.threads.get(impl.name, ()))

    def _process_for(self, impl: Implementation, law: Law | None) -> Place:
        """What the process judges that this is asked of: a plug-in, or "" for all others; and the device."""
        if impl.name in self.judge.plug_ins:
            return self._place(impl, law)
        return "", self.judge.plan.device

    def _place(self, impl: Implementation, law: Law | None = None) -> Place:
        plan = self.judge.plan
        return impl.name, self.judge.judgement(law, impl).device if law else plan.device

    def _of(self, impl: Implementation, law: Law | None) -> dict:
        """What each request says of the implementation."""
        return {"impl": id(impl), "device": self._place(impl, law)[1]}

    def _contract_lost(self, impl: Implementation, place: Place, answer: Ending | dict) -> bool:
        """Note what took the process, or its GPU, down while the contract was tried; False if nothing did, or again."""
        lost = self._lost.setdefault(place, {})
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
            self.judge.plan.known.keep_contract(impl, place[1], Tried(problems, judged=False))
        return True


def _as_lists(lost: dict[str, Lost]) -> dict[str, list]:
    return {case: [each.words, each.breaks] for case, each in lost.items()}
