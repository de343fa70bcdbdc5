"""If all roundings go in the same direction, errors stay within the linear form and exceed the
independent form.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from flash_attest import oracle
from flash_attest.oracle import FORM_OF_REGIME, Z_LIMIT, Z_WORST
from flash_attest.oracle.algebra import FORMS
from flash_attest.oracle.rounding import units
from tests.oracle.attentions import DTYPES, Precision, draw
from tests.oracle.calls import NAMES, attention, budget, text


def worst_roundings(q, k, v, dout, un, sign):
    """Return out, dq, dk, dv with an error of sign(tensor) u in each rounding of P, T and out."""
    q, k, v, dout = (x.transpose(1, 2).double() for x in (q, k, v, dout))
    scale = q.shape[-1] ** -0.5

    def cast(x, u):
        return x * (1 + u * sign(x))

    s = scale * (q @ k.mT)
    probs = torch.softmax(s + 4 * 2.0**-24 * sign(s), -1)
    out = cast(cast(probs, un.u_p) @ v, un.u_out)
    delta = (dout * out).sum(-1, keepdim=True)
    t = cast(probs * (dout @ v.mT - delta), un.u_p)
    grads = scale * (t @ k), scale * (t.mT @ q), cast(probs, un.u_p).mT @ dout
    out, dq, dk, dv = (x.transpose(1, 2) for x in (out, *(cast(x, un.u_out) for x in grads)))
    return SimpleNamespace(out=out, dq=dq, dk=dk, dv=dv)


DIRECTIONS = {
    "all up": lambda x: 1.0,
    "all down": lambda x: -1.0,
    "away from 0": lambda x: x.sign(),
    "even keys up, odd down": lambda x: 1.0 - 2.0 * (torch.arange(x.shape[-1]) % 2),
}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_correlated_roundings_stay_within_the_linear_form(dtype, direction):
    un = units(dtype, Precision())
    for regime in ("flat", "exact", "spread", "mean"):
        q, k, v, dout = draw(regime, (1, 60, 100, 2, 16), dtype)
        if regime == "flat":
            v, dout = torch.ones_like(v), torch.ones_like(dout)
        want = attention(q, k, v, dout=dout)
        sigma = budget(q, k, v, want, dout=dout, precision=Precision(), form="linear")
        got = worst_roundings(q, k, v, dout, un, DIRECTIONS[direction])
        scores = {name: sigma.score(name, getattr(got, name), getattr(want, name)) for name in NAMES}
        assert all(s.within for s in scores.values()), f"{regime}: {text(scores)}"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_one_product_reaches_the_worst_case_and_no_more(dtype):
    """With one query, dv_j is the single product P_j dout.

    P just above a power of two rounds by nearly u, which gives z = 6 although no term is missing.
    """
    u = oracle.roundoff(dtype)
    p = 0.5 * (1 + 10.98 * u)  # rounds to 0.5 (1 + 10 u)
    q, k, v, dout = draw("flat", (1, 1, 2, 1, 512), dtype)
    bias = torch.tensor([math.log(p / (1 - p)), 0.0]).view(1, 1, 1, 2)
    want = attention(0 * q, k, v, bias=bias, dout=dout)
    sigma = budget(0 * q, k, v, want, bias=bias, dout=dout, precision=Precision(), form="linear")

    def worst_z(rounded):
        return sigma.score("dv", (rounded * dout.double()).to(dtype)[:, :1], want.dv[:, :1]).worst_z

    sigma = replace(sigma, dv=sigma.dv[:, :1])
    assert 5.0 < worst_z(0.5 * (1 + 10 * u)) <= 1.01 * Z_WORST
    assert worst_z(0.5 * (1 + 8 * u)) > Z_LIMIT  # truncated, with one bit less


def test_equal_roundings_exceed_the_independent_form():
    """The equal errors of 400 equal P add up to 400 times one error, not 20 times.

    This is why the regime flat uses the linear form.
    """
    q, k, v, dout = draw("flat", (1, 8, 400, 1, 16), torch.float16)
    v = torch.ones_like(v)
    want = attention(q, k, v, dout=dout)
    got = want.out * (1 + 2.0**-11) ** 2  # P and out, each rounded up
    for form, holds in (("independent", False), ("linear", True)):
        sigma = budget(q, k, v, want, dout=dout, precision=Precision(), form=form)
        assert sigma.score("out", got, want.out).within == holds, form


def test_an_operand_rounded_once_for_all_keys_exceeds_the_independent_form():
    """With few columns per score, the rounding of q shifts a whole row in one direction.

    This is why tf32 uses the linear form.
    """

    def tf32(x):  # to nearest, half away from zero
        return ((x.float().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)

    q, k, v, _ = draw("spread", (1, 325, 353, 3, 1), torch.float32)
    want, rounded = attention(q, k, v), attention(tf32(q), tf32(k), tf32(v))
    precision = Precision(multiply="tf32")
    assert oracle.form_of("spread", torch.float32, precision) == "linear"
    assert oracle.form_of("spread", torch.float16, precision) == "independent"  # float16 operands are exact in tf32
    for form, holds in (("independent", False), ("linear", True)):
        sigma = budget(q, k, v, want, precision=precision, form=form)
        assert sigma.score("lse", rounded.lse, want.lse).within == holds, form
        assert sigma.score("out", rounded.out, want.out).within or not holds, form


def test_the_linear_bound_is_no_less_than_one_independent_deviation():
    for regime in FORM_OF_REGIME:
        q, k, v, dout = draw(regime, (1, 60, 100, 2, 16), torch.float16)
        want = attention(q, k, v, dout=dout)
        tight, loose = (budget(q, k, v, want, dout=dout, precision=Precision(), form=form) for form in FORMS)
        for name in (*NAMES, "lse"):
            assert (Z_LIMIT * getattr(loose, name) >= getattr(tight, name)).all(), f"{regime} {name}"
