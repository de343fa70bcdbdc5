"""Calls of the oracle with a variant's fields as keywords, and a budget that scores by name."""

from dataclasses import dataclass

import torch

from flash_attest import oracle
from flash_attest.oracle import INDEPENDENT, Mask, Variant

NAMES = ("out", "dq", "dk", "dv")


def variant(causal=False, alignment="bottom_right", bias=None, softmax_scale=None) -> Variant:
    return Variant(Mask(causal, alignment), bias, softmax_scale)


def attention(q, k, v, *, dout=None, **options) -> oracle.Attention:
    return oracle.attention(q, k, v, variant(**options), dout=dout)


@dataclass(frozen=True, kw_only=True)
class ScoringBudget(oracle.Budget):
    """A budget that knows the dtypes of the outputs: q's, the bias's, and float32 for lse."""

    dtype: torch.dtype
    bias_dtype: torch.dtype | None
    form: str

    def score(self, name, got, want) -> oracle.Score:
        dtype = {"lse": torch.float32, "dbias": self.bias_dtype}.get(name, self.dtype)
        return oracle.score(got, want, getattr(self, name), dtype, self.form)


def budget(q, k, v, want, *, dout=None, precision, form=INDEPENDENT, **options) -> ScoringBudget:
    sigma = oracle.budget(q, k, v, variant(**options), want, dout=dout, precision=precision, form=form)
    bias = options.get("bias")
    return ScoringBudget(**vars(sigma), dtype=q.dtype, bias_dtype=None if bias is None else bias.dtype, form=form)


def conservation(q, k, v, dout, got, *, precision, form=INDEPENDENT, **options):
    return oracle.conservation(q, k, v, variant(**options), dout, got, precision=precision, form=form)


def text(scores):
    """Return a line with the scores by name."""
    return ", ".join(f"{name}: z {s.worst_z:.1f}, rms {s.rms_ratio:.2f}" for name, s in scores.items())
