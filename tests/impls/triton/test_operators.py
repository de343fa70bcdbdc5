"""flash_attn_func and its packed forms as PyTorch operators.

opcheck, torch.compile, CUDA graphs, a second GPU. Without a GPU the kernels run in the emulator.
Values: test_functions.py. Refusals: test_refused.py.
"""

import pytest
import torch

from flash_attest.impls.triton.device import lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.triton import functions
from flash_attest.impls.triton.functions import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from tests.impls.operator_checks import assert_same_bits, captured, on_two_gpus
from tests.impls.triton.calls import LEFT, RIGHT, gradients, inputs, on_a_gpu, randn
from tests.thorough import covering

PACKED = {"func": 3, "kvpacked": 2, "qkvpacked": 1}


def packed_as(form, bias=True, dtype=torch.float32, seed=0):
    """Return one of the functions, and its arguments."""
    q, kv, qkv = (randn(*s, dtype=dtype, seed=seed) for s in ((1, 20, 2, 16), (1, 20, 2, 2, 16), (1, 20, 3, 2, 16)))
    function, given = {
        "func": (flash_attn_func, [q, *kv.clone().unbind(2)]),
        "kvpacked": (flash_attn_kvpacked_func, [q, kv]),
        "qkvpacked": (flash_attn_qkvpacked_func, [qkv]),
    }[form]
    given += [randn(1, 2, 20, 20, seed=seed)] if bias else []
    return function, [x.detach().clone().requires_grad_() for x in given]


@pytest.mark.parametrize("form, bias", covering(1, {form: form for form in PACKED}, {"": False, "bias": True}))
def test_operators_pass_opcheck(form, bias):
    """torch.library checks schema, fake tensors, autograd registration, and dynamic shapes."""
    _, x = packed_as(form, bias)
    packed, bias = x[: PACKED[form]], x[-1] if bias else None
    sinks = None if bias is None else randn(2).requires_grad_()
    options = (False, 4, 1, None, 2.0, RIGHT)  # causal, left, right, softmax_scale, softcap, alignment
    torch.library.opcheck(functions.attention_forward, (packed, bias, sinks, *options))

    packed, bias, sinks = [p.detach() for p in packed], *(x if x is None else x.detach() for x in (bias, sinks))
    out, lse = functions.attention_forward(packed, bias, sinks, *options)
    torch.library.opcheck(
        functions.attention_backward,
        (out + 1, None if bias is None else lse + 1, packed, bias, sinks, out, lse, *options, bias is not None),
    )


OPTIONS = {
    "defaults": dict(),
    "all": dict(causal=True, window=(4, 1), softmax_scale=0.3, softcap=2.0, causal_alignment=LEFT),
}


@pytest.mark.parametrize(
    "form, options, dynamic", covering(1, {form: form for form in PACKED}, OPTIONS, {"static": False, "dynamic": True})
)
@pytest.mark.parametrize("backend", ("aot_eager", pytest.param("inductor", marks=on_a_gpu)))
def test_compiled_equals_eager(form, options, dynamic, backend):
    """Forward and backward are compiled to one graph without a break, and their results are equal
    bit for bit.
    """
    function, x = packed_as(form)

    def step(*tensors):
        out, lse = function(*(2.0 * t for t in tensors), **options, return_lse=True)
        return out + 1, lse

    want, want_lse = step(*x)
    torch._dynamo.reset()
    got, lse = torch.compile(step, backend=backend, fullgraph=True, dynamic=dynamic)(*x)

    assert_same_bits(got, want)
    assert_same_bits(lse, want_lse)
    for mine, other in zip(gradients(got, x), gradients(want, x), strict=True):
        assert_same_bits(mine, other)


@on_a_gpu
@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("form", PACKED)
def test_graph_replayed_on_other_inputs_equals_eager(form, dtype):
    function, x = packed_as(form, dtype=dtype)
    dout = randn(1, 20, 2, 16, dtype=dtype, seed=5)

    def step():
        out = function(*x, causal=True)
        return out, *torch.autograd.grad(out, x, dout)

    graph, outputs = captured(step)

    for seed in (1, 2):
        _, others = packed_as(form, dtype=dtype, seed=seed)
        with torch.no_grad():
            for mine, other in zip(x, others, strict=True):
                mine.copy_(other)
            dout.copy_(randn(1, 20, 2, 16, dtype=dtype, seed=6 + seed))
        graph.replay()
        got = [t.clone() for t in outputs]
        for mine, other in zip(got, step(), strict=True):
            assert_same_bits(mine, other)


@on_a_gpu
@on_two_gpus
def test_tensors_on_a_second_device():
    """The first device stays the current one."""
    here, there = inputs(device="cuda:0"), inputs(device="cuda:1")
    want, got = flash_attn_func(*here, causal=True), flash_attn_func(*there, causal=True)
    assert torch.cuda.current_device() == 0 and got.device == torch.device("cuda:1")
    assert_same_bits(got.cpu(), want.cpu())
    for mine, other in zip(gradients(got, there), gradients(want, here), strict=True):
        assert_same_bits(mine.cpu(), other.cpu())
