"""Compares outputs of the calls that are timed, and of a call after them.

A kernel that was right in its first call may be wrong while its time is taken: it may count its
calls, or return what it has computed before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from flash_attest.bench.sanity import NAMES, mistake
from flash_attest.impls.contract.call import run
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs, Outputs, from_layout

COMPARED = 3  # outputs of timed calls, about: which ones cannot be predicted


@dataclass
class TimedOutputs:
    """The outputs of the timed calls of one cell. x: in the implementation's layout.

    mistake: what is wrong with one that was compared, or None.
    """

    impl: Implementation
    x: Inputs
    want: Outputs
    causal: bool
    backward: bool
    mistake: str | None = None

    def see(self, n: int, repeats: int, result: object) -> None:
        """Compare the result of the n-th of `repeats` timed calls, if it is drawn or the last."""
        if self.mistake is None and (n == repeats - 1 or random.random() < COMPARED / repeats):
            wrong = self._wrong(self._outputs(result), self.want)
            self.mistake = wrong and f"in timed call {n + 1} of {repeats}, {wrong}"

    def compare_with_other_values(self) -> None:
        """Call once more with v, or for a backward dout, negated where it lies.

        The outputs should then be negated. Each cell has inputs of its own.
        """
        if self.mistake is not None:
            return
        (self.x.dout if self.backward else self.x.v).neg_()
        names = NAMES[1:] if self.backward else NAMES[:1]
        want = Outputs(**{name: -getattr(self.want, name) for name in names})
        got = run(self.impl, self.x, causal=self.causal, backward=self.backward)
        if wrong := self._wrong(got, want):
            self.mistake = f"after the timed calls, with other values in the same inputs, {wrong}"

    def _wrong(self, got: Outputs, want: Outputs) -> str | None:
        return mistake(got, want, NAMES[1:] if self.backward else NAMES[:1])

    def _outputs(self, result: object) -> Outputs:
        tensors = [result] if isinstance(result, torch.Tensor) else list(result)
        names = NAMES[1:] if self.backward else NAMES[:1]
        return Outputs(**{name: from_layout(self.impl, t.detach()) for name, t in zip(names, tensors, strict=False)})
