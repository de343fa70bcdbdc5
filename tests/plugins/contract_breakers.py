"""One implementation for each way to break the contract."""

import math

import torch

from flash_attest import Implementation, Supports
from tests.plugins import good

SUPPORTS = Supports(dtypes={torch.float32}, headdims={16})


def with_lse(q, k, v):
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    return good.forward(q, k, v), torch.logsumexp(s, dim=-1)


def base_2(q, k, v):
    out, lse = with_lse(q, k, v)
    return out, lse / math.log(2)


def in_place(q, k, v):
    out = good.forward(q, k, v)
    q.mul_(0.5)
    return out


def raises(q, k, v):
    raise RuntimeError("no kernel image is available for execution on the device")


def make(name, forward, supports=SUPPORTS, **declared):
    return Implementation(name=name, forward=forward, supports=supports, **declared)


IMPLS = [
    make("wrong_shape", lambda q, k, v: good.forward(q, k, v)[:, :, :, :8]),
    make("wrong_layout", lambda q, k, v: good.forward(q, k, v).transpose(1, 2)),
    make("wrong_dtype", lambda q, k, v: good.forward(q, k, v).half()),
    make("lse_undeclared", with_lse),
    make("lse_missing", good.forward, lse="natural"),
    make("lse_in_base_2", base_2, lse="natural"),
    make("modifies_q", in_place),
    make("raises", raises),
    make("returns_nothing", lambda q, k, v: None),
    make("takes_no_causal", good.forward, Supports(dtypes={torch.float32}, headdims={16}, causal="optional")),
    make("two_gradients", with_lse, lse="natural", backward=lambda dout, q, k, v, out, lse: (q, k)),
    make("not_differentiable", lambda q, k, v: good.forward(q, k, v).detach(), backward="autograd"),
]
