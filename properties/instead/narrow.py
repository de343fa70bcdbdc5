"""Roundings of the backward that no `Precision` declares: dS or P in a narrow dtype, in float32.

They are emulated. The kernel rounds its own dS, which may lie on the other side of a tie, so the
budget has a whole rounding of each dS more. The evidence is that the results are four times closer
to the emulated ones than to the right ones (Answer.fits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from flash_attest.oracle import roundoff
from flash_attest.properties.cases.case import text_of
from flash_attest.properties.instead.answer import Answer, Predicted
from flash_attest.properties.instead.emulated import nearest_tf32
from flash_attest.properties.instead.gradients import dr_of
from flash_attest.properties.instead.mistake import Mistake

Round = Callable[[torch.Tensor], torch.Tensor]
TF32_ROUNDOFF = 2.0**-11


def _narrow(name: str, words: str, u: float, of_t: Round, of_factor: Round = lambda x: x) -> Mistake:
    """Return the mistake of rounding dS for dq and dk, P for dv, and perhaps the other factor."""

    def predict(answer: Answer) -> Iterator[Predicted]:
        if not answer.backward or answer.case.dtype != torch.float32 or answer.wrong.keys() & {"out", "lse"}:
            return
        p, probs, _ = answer.operands(answer.plain)
        t, dout = dr_of(answer), p.dout
        dq = p.scale * (of_t(t) @ of_factor(p.k))
        dk = p.scale * p.sum_group(of_t(t).mT @ of_factor(p.q))
        dv = p.sum_group(of_t(probs).mT @ of_factor(dout))
        want = {"dq": dq.transpose(1, 2), "dk": dk.transpose(1, 2), "dv": dv.transpose(1, 2)}

        def sigma() -> dict[str, torch.Tensor]:
            of_dq = abs(p.scale) * (t.square() @ p.k.square()).sqrt()
            of_dk = abs(p.scale) * p.sum_group(t.square().mT @ p.q.square()).sqrt()
            of_dv = p.sum_group(probs.square().mT @ dout.square()).sqrt()
            more = {"dq": of_dq, "dk": of_dk, "dv": of_dv}
            right = answer.right_sigma
            return {name: right[name] + u * more[name].transpose(1, 2) for name in more}

        yield Predicted(want, sigma)

    return Mistake(name, words, predict)


def _to(dtype: torch.dtype) -> Round:
    return lambda x: x.to(dtype).double()


def _tf32(x: torch.Tensor) -> torch.Tensor:
    return nearest_tf32(x.float()).double()


NARROW = (
    *(
        _narrow(
            f"dS in {text_of(dtype)}",
            f"with dS, or P for dv, rounded to {text_of(dtype)}: keep it in float32",
            roundoff(dtype),
            _to(dtype),
        )
        for dtype in (torch.float16, torch.bfloat16)
    ),
    _narrow("backward in tf32", "with products of the backward in tf32", TF32_ROUNDOFF, _tf32, _tf32),
)
