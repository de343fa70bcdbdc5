"""Calls of the oracle with a variant's fields as keywords, and a budget that scores by name."""

from dataclasses import dataclass

import torch

from flash_attest import oracle
from flash_attest.oracle import INDEPENDENT, Mask, Variant

NAMES = ("out", "dq", "dk", "dv")


def variant(
    causal=False,
    alignment="bottom_right",
    bias=None,
    softmax_scale=None,
    window=None,
    softcap=None,
    sinks=None,
) -> Variant:
    return Variant(Mask(causal, alignment, window), bias, softmax_scale, softcap, sinks)


def attention(q, k, v, *, dout=None, dlse=None, **options) -> oracle.Attention:
    return oracle.attention(q, k, v, variant(**options), dout=dout, dlse=dlse)


@dataclass(frozen=True, kw_only=True)
class ScoringBudget(oracle.Budget):
    """A budget that knows the dtypes of the outputs: q's, the bias's, and float32 for lse."""

    dtype: torch.dtype
    bias_dtype: torch.dtype | None
    form: str

    def score(self, name, got, want) -> oracle.Score:
        dtype = {"lse": torch.float32, "dsink": torch.float32, "dbias": self.bias_dtype}.get(name, self.dtype)
        return oracle.score(got, want, getattr(self, name), dtype, self.form)


def budget(q, k, v, want, *, dout=None, dlse=None, precision, form=INDEPENDENT, **options) -> ScoringBudget:
    sigma = oracle.budget(q, k, v, variant(**options), want, dout=dout, dlse=dlse, precision=precision, form=form)
    bias = options.get("bias")
    return ScoringBudget(**vars(sigma), dtype=q.dtype, bias_dtype=None if bias is None else bias.dtype, form=form)


def conservation(q, k, v, dout, got, *, dlse=None, precision, form=INDEPENDENT, **options):
    return oracle.conservation(q, k, v, variant(**options), dout, got, dlse=dlse, precision=precision, form=form)


def text(scores):
    """Return a line with the scores by name."""
    return ", ".join(f"{name}: z {s.worst_z:.1f}, rms {s.rms_ratio:.2f}" for name, s in scores.items())
