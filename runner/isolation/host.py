"""A process that is forked early and does all judging.

A process that has used CUDA cannot fork another one that uses it, and in another repository other
tests of the same pytest process use the GPU. So the host is forked before they run. It starts,
watches and replaces the judging processes; the pytest process only sends it questions.
"""

from __future__ import annotations

import signal

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import UNKNOWN, Result
from flash_attest.properties.law import Law
from flash_attest.runner.isolation.child import as_result, record_of
from flash_attest.runner.isolation.endings import Ending
from flash_attest.runner.isolation.isolated import Isolated
from flash_attest.runner.isolation.parent import JudgingProcess
from flash_attest.runner.judge import contract_result

NO_LIMIT = 0.0  # the host itself limits the time of calls


class Host:
    """Judges as `Isolated` does, in a process that lives from the call of `begin` to the call of
    `close`.
    """

    def __init__(self, isolated: Isolated, impls: list[Implementation], laws: dict[str, Law]):
        self.isolated, self.laws = isolated, laws
        self.impls = {impl.name: impl for impl in impls}
        self.device_name = ""
        self.remarks: list[str] = []
        self.left: dict[str, dict[str, int]] = {}  # as Isolated has it
        self._process = JudgingProcess(self._start, self._answer, NO_LIMIT, isolated.keeps_streams, keepers=0)
        self._ended = ""  # how the host ended, if it did

    def begin(self) -> None:
        """Fork the host. Call this before the pytest process uses CUDA."""
        ending = self._process.begin()
        if ending is not None:
            self._ended = ending.words

    def law(self, law: Law, impl: Implementation) -> Result:
        """Return the verdict of a law."""
        answer = self._ask({"impl": impl.name, "law": law.name})
        if isinstance(answer, str):
            return Result(impl.name, law.chapter, law.name, UNKNOWN, answer, Reason.WORKER_DIED)
        return answer

    def contract(self, impl: Implementation) -> Result:
        """Return the verdict of the contract check."""
        answer = self._ask({"impl": impl.name, "law": ""})
        return contract_result(impl.name, UNKNOWN, answer, Reason.WORKER_DIED) if isinstance(answer, str) else answer

    def close(self) -> None:
        """End the host and everything it started. After Ctrl-C it may have ended already."""
        if self._process.alive() and not isinstance(answer := self._process.ask({"close": True}), Ending):
            self._remember(answer)
        self._process.end()

    def _ask(self, question: dict) -> Result | str:
        if not self._ended and self._process.alive():
            answer = self._process.ask(question)
            if not isinstance(answer, Ending):
                self._remember(answer)
                return as_result(answer["result"])
            self._ended = answer.words
        return f"the process that hosts the judging ended{self._ended and f': {self._ended}'}"

    def _remember(self, answer: dict) -> None:
        self.device_name = answer["device_name"] or self.device_name
        self.remarks, self.left = answer["remarks"], answer["left"]

    # --- in the host ------------------------------------------------------------------------------

    def _start(self) -> dict:
        """Let SIGTERM raise KeyboardInterrupt, so that the judging process is ended first."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return {}

    def _answer(self, question: dict) -> dict:
        if question.get("close"):
            self.isolated.close()
            return self._about()
        impl = self.impls[question["impl"]]
        law = self.laws[question["law"]] if question["law"] else None
        result = self.isolated.contract(impl) if law is None else self.isolated.law(law, impl)
        return {"result": record_of(result)} | self._about()

    def _about(self) -> dict:
        isolated = self.isolated
        return {"device_name": isolated.device_name, "remarks": isolated.remarks, "left": isolated.left}
