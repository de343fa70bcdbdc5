"""Other suites as judges: a peer tries its usual inputs, and accepts or rejects an implementation.

A try is one call: its case, its inputs, and the rule. A try that the implementation does not
support is left out, as a user of that suite would leave it out. If a peer rejects the
implementation without the planted bug, too, that is a false alarm and does not count as caught.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

import torch

from flash_attest.impls import Implementation
from flash_attest.impls.contract import call
from flash_attest.impls.contract.heads import ordered
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.mutants.judging import is_not_compiled
from flash_attest.properties.calling.raised import device_works
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import keywords_of
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import Undecided, is_out_of_memory
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED

SLOW = 0.1  # an implementation that is judged on a smaller share of the cases gets the smallest shapes


class Size(Enum):
    """The scale of a peer's shapes."""

    WHOLE = "on a GPU"
    REDUCED = "on a CPU"
    SMALLEST = "emulated on a CPU"

    @classmethod
    def of(cls, impl: Implementation, device: str) -> Size:
        """Return the size for an implementation on "cpu" or "cuda"."""
        if device == "cuda":
            return cls.WHOLE
        return cls.SMALLEST if impl.share_on(device) < SLOW else cls.REDUCED


class Draw:
    """Random tensors of one try, always the same ones."""

    def __init__(self, case: Case, device: str):
        self.device = device
        self.generator = torch.Generator(device).manual_seed(zlib.crc32(str(case).encode()))

    def normal(self, *shape: int) -> torch.Tensor:
        """Draw standard normal numbers, float32."""
        return torch.randn(shape, generator=self.generator, device=self.device)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Draw from U[0, 1), float32."""
        return torch.rand(shape, generator=self.generator, device=self.device)


@dataclass(frozen=True)
class Try:
    """One call that a peer makes. accepts(implementation, inputs, outputs) is the peer's rule."""

    case: Case
    inputs: Callable[[Draw], Inputs]
    accepts: Callable[[Implementation, Inputs, Outputs], bool]
    backward: bool = True


@dataclass(frozen=True)
class Peer:
    """Another suite. tries(implementation, size) yields its calls; its docstring is the rule.

    reduced: says which of its shapes are smaller here.
    """

    name: str
    title: str
    tries: Callable[[Implementation, Size], Iterable[Try]]
    reduced: str

    @property
    def rule(self) -> str:
        """The rule in words, and where it is written."""
        function = getattr(self.tries, "func", self.tries)  # of a partial
        return " ".join((function.__doc__ or "").split())


def judge_peer(
    peer: Peer, impl: Implementation, unedited: Callable[[], Implementation], device: str
) -> tuple[str, str]:
    """Return the verdict and a detail.

    "fail" comes with the case that the peer rejects, "pass" with how many it accepts; "refused"
    means that none of its inputs is supported. unedited: makes the implementation without the
    planted bug, which is called if the peer rejects something.
    """
    accepted, false_alarms = 0, []
    for attempt in peer.tries(impl, Size.of(impl, device)):
        if unsupported(impl, attempt.case):
            continue
        if _accepted(attempt, impl, device):
            accepted += 1
        elif not device_works(device) or _accepted(attempt, unedited(), device):
            return FAIL, str(attempt.case)
        else:
            false_alarms.append(str(attempt.case))
    words = f"accepts {accepted}"
    if false_alarms:
        words += f", rejects {len(false_alarms)} without the bug, too, such as {false_alarms[0]}"
    return (PASS, words) if accepted or false_alarms else (REFUSED, "none of its inputs is supported")


def _accepted(attempt: Try, impl: Implementation, device: str) -> bool:
    """Return whether the peer accepts the answer. An exception other than OOM is a failed test."""
    x = attempt.inputs(Draw(attempt.case, device))
    theirs = ordered(impl, x).items()
    turned = {name: t if name == "bias" or impl.layout == "bshd" else t.transpose(1, 2) for name, t in theirs}
    if attempt.case.layout == "contiguous":
        turned = {name: tensor.contiguous() for name, tensor in turned.items()}
    backward = attempt.backward and impl.backward is not None
    try:
        got = call.run(impl, Inputs(**turned), backward=backward, **keywords_of(attempt.case))
        if device == "cuda":
            torch.cuda.synchronize()
    except Exception as error:
        if is_out_of_memory(error):
            raise Undecided(f"out of memory on {attempt.case}") from error
        if is_not_compiled(error):
            raise Undecided(str(error).splitlines()[0]) from error
        return False
    return attempt.accepts(impl, x, got)
