"""Implementations that make one mistake of the table, or an edit of python_tiled, for tests."""

from __future__ import annotations

from dataclasses import replace

import torch

from flash_attest.impls import Implementation, Supports
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.mutants.mutant import build
from flash_attest.mutants.tiled.build import planted
from flash_attest.oracle import form_of
from flash_attest.properties.cases.case import Case, parse_case
from flash_attest.properties.cases.features import variant_of
from flash_attest.properties.instead.answer import Answer
from flash_attest.properties.instead.matches import statements
from flash_attest.properties.instead.mistake import Mistake
from flash_attest.properties.judging.computed import answer_in, computed_instead
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.law import laws

BLOCK = (8, 24)  # of a block mask
EVERYTHING = Supports(
    dtypes={torch.float32, torch.float16, torch.bfloat16},
    headdims=range(1, 257),
    causal="optional",
    bias={"vector", "matrix", "boolean_vector", "boolean_matrix"},
    bias_grad=True,
    cross=True,
    gqa=True,
    softmax_scale=True,
)
ALL_FEATURES = replace(
    EVERYTHING,
    window={"left", "right", "both"},
    softcap=True,
    sinks=True,
    sink_grad=True,
    lse_grad=True,
    headdims_v={(7, 13), (7, 130)},
    hidden={"blocks"},
    hidden_block=BLOCK,
)


def said(impl: Implementation, case: str) -> list[str]:
    """Return what the message of a failure says about what the kernel computed instead."""
    judgement = Judgement(laws()["test_out_matches_the_definition"], impl, Plan(try_contract=False))
    return computed_instead(judgement, [parse_case(case)])


def said_of(impl: Implementation, case: str) -> list[str]:
    """Return what is said of this case alone."""
    return statements([answer_of_case(impl, case)])


def answer_of_case(impl: Implementation, case: str) -> Answer:
    """Return the answer of a kernel in a case."""
    judgement = Judgement(laws()["test_out_matches_the_definition"], impl, Plan(try_contract=False))
    (answer,) = answer_in(judgement, parse_case(case))
    return answer


def making(mistake: Mistake | None, name: str = "stand_in", **declared) -> Implementation:
    """Return a kernel that makes a mistake: the oracle under it, rounded. None: no mistake."""

    def answer(x: Inputs, got: dict, options: dict) -> Answer:
        case = _case(x, **options)
        x = x.with_(bias=variant_of(case, impl.causal_alignment, x).bias)
        return Answer(impl, case, x, got, lambda precision: form_of("spread", case.dtype, precision))

    def forward(q, k, v, *, bias=None, sinks=None, block_mask=None, **options):
        nothing = q.new_zeros(*q.shape[:3], v.shape[3])
        x = Inputs(q, k, v, nothing, bias, sinks, block_mask=block_mask)
        right = answer(x, {"out": nothing}, options).right.want
        got = answer(x, {"out": nothing, "lse": right["lse"]}, options)
        results = right | _first(mistake, got, ("out", "lse"))
        return results["out"].to(q.dtype), results["lse"].float()

    def backward(dout, q, k, v, out, lse, *, bias=None, sinks=None, block_mask=None, dlse=None, **options):
        x = Inputs(q, k, v, dout, bias, sinks, dlse, block_mask)
        shaped = {"dq": q, "dk": k, "dv": v}
        if bias is not None and bias.dtype != torch.bool:
            shaped["dbias"] = bias
        if sinks is not None:
            shaped["dsink"] = sinks
        got = answer(x, {"out": out, "lse": lse} | shaped, options)
        results = got.right.want | _first(mistake, got, tuple(shaped))
        return tuple(results[name].to(like.dtype) for name, like in shaped.items())

    impl = Implementation(
        name=name, forward=forward, backward=backward, lse="natural", supports=ALL_FEATURES, devices={"cpu"}, **declared
    )
    return impl


def _first(mistake: Mistake | None, answer: Answer, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Return these outputs by the first prediction that has any of them."""
    for predicted in mistake.predict(answer) if mistake else ():
        if found := {name: predicted.want[name] for name in names if name in predicted.want}:
            return found
    return {}


def _case(x: Inputs, **options) -> Case:
    (batch, seqlen_q, nheads, headdim), (_, seqlen_k, nheads_k, _) = x.q.shape, x.k.shape
    bias = {}
    if x.bias is not None:
        kind = "vector" if x.bias.shape[2] == 1 and seqlen_q != 1 else "matrix"
        bias = dict(bias=kind, bias_batch=x.bias.shape[0], bias_nheads=x.bias.shape[1], bias_dtype=x.bias.dtype)
        if x.bias.dtype == torch.bool:
            bias |= dict(bias=f"boolean_{kind}", bias_dtype=torch.float32)
    kind = None if x.sinks is None else "spread"
    if x.block_mask is not None:
        options |= dict(hidden="documents", hidden_block=BLOCK)
    given = dict(headdim_v=x.v.shape[3], sinks=kind, dlse=x.dlse is not None)
    return Case(batch, seqlen_q, seqlen_k, nheads, nheads_k, headdim, x.q.dtype, **given, **options, **bias)


def edited(*edits: tuple[str, str], impl: str = "python_tiled", **declares) -> Implementation:
    """Return python_tiled with these edits, which need not be a planted bug."""
    number = abs(hash(edits))
    mutant = planted(name=f"edit_{number}", law="test_out_matches_the_definition", edits=edits, smallest={},
                     story="", impl=impl)  # fmt: skip
    return replace(build(mutant), tile=None, **declares)
