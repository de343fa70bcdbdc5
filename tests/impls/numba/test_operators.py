"""flash_attention_1 and _2 as PyTorch operators: opcheck, torch.compile, CUDA graphs, a second GPU.

Values: test_functions.py. Errors: test_refused.py.
"""

import shutil
from pathlib import Path

import pytest
import torch

from flash_attest.impls.numba.device import lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.numba import functions
from tests.impls.cuda.values import randn
from tests.impls.numba.calls import gradients, inputs, on_a_gpu
from tests.impls.operator_checks import assert_same_bits, captured, on_two_gpus
from tests.runs import python
from tests.thorough import covering

each = pytest.mark.parametrize("name", ("fa1", "fa2"))
FUNCTIONS = {"fa1": functions.flash_attention_1, "fa2": functions.flash_attention_2}


def printed(program):
    """Run a program in a new process. Returns its output."""
    run = python("-c", program)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("name", (pytest.param("fa1", marks=pytest.mark.thorough), "fa2"))
@pytest.mark.parametrize("bias", (None, (1, 4, 20, 37)), ids=("", "bias"))
def test_operators_pass_opcheck(name, bias):
    """torch.library checks schema, fake tensors, autograd registration, and dynamic shapes."""
    forward, backward = functions.OPERATORS[name]
    x = inputs(bias=bias)
    torch.library.opcheck(forward, (*x, True, 9, None, None, 5.0, "bottom_right"))
    x = [t if t is None else t.detach() for t in x]
    out, lse = forward(*x, False, 9, 3, 0.5, None, "bottom_right")
    for wanted in (False, True)[: 1 if bias is None else 2]:
        torch.library.opcheck(backward, (out + 1, *x, out, lse, False, 9, 3, 0.5, None, "bottom_right", wanted))


@pytest.mark.parametrize(
    ("name", "dynamic"), covering(1, {"fa1": "fa1", "fa2": "fa2"}, {"static": False, "dynamic": True})
)
def test_compiled_equals_eager(name, dynamic):
    """Forward and backward are compiled to one graph without a break, and their results are equal
    bit for bit.
    """
    x = inputs()

    def step(*tensors):
        scaled = [2.0 * t for t in tensors]
        out, lse = FUNCTIONS[name](*scaled, causal=True, softmax_scale=0.3, return_lse=True)
        return out + 1, lse

    want, want_lse = step(*x)
    torch._dynamo.reset()
    got, lse = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=dynamic)(*x)
    assert_same_bits(got, want)
    assert_same_bits(lse, want_lse)
    for mine, other in zip(gradients(got, x), gradients(want, x), strict=True):
        assert_same_bits(mine, other)


def test_operators_are_in_torch_ops():
    for name in ("fa1_forward", "fa1_backward", "fa2_forward", "fa2_backward"):
        assert hasattr(torch.ops.flash_attest_numba, name)


def test_a_copy_of_the_package_has_its_own_operators(tmp_path):
    """Mutants are such copies, which must not replace the operators of the original."""
    shutil.copytree(Path(functions.__file__).parent, tmp_path / "edited_numba")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from flash_attest.impls.numba import functions as ours;"
        " from edited_numba import functions as edited;"
        " print([f.OPERATORS['fa2'].forward._qualname for f in (ours, edited)])"
    )
    assert printed(program) == "['flash_attest_numba::fa2_forward', 'edited_numba::fa2_forward']"


@each
@on_a_gpu
def test_graph_replayed_on_other_inputs_equals_eager(name):
    x = inputs()
    dout = randn(2, 20, 4, 16, device="cuda", seed=5)

    def step():
        out = FUNCTIONS[name](*x, causal=True)
        return out, *torch.autograd.grad(out, x, dout)

    graph, outputs = captured(step)
    for seed in (1, 2):
        with torch.no_grad():
            for n, t in enumerate(x):
                t.copy_(randn(*t.shape, device="cuda", seed=10 * seed + n))
        graph.replay()
        got = [t.clone() for t in outputs]
        for mine, other in zip(got, step(), strict=True):
            assert_same_bits(mine, other)


@each
@on_a_gpu
@on_two_gpus
def test_tensors_on_a_second_device(name):
    """The first device stays the current one."""
    here, there = inputs(device="cuda:0"), inputs(device="cuda:1")
    want, got = FUNCTIONS[name](*here, causal=True), FUNCTIONS[name](*there, causal=True)
    assert torch.cuda.current_device() == 0 and got.device == torch.device("cuda:1")
    assert_same_bits(got.cpu(), want.cpu())
    for mine, other in zip(gradients(got, there), gradients(want, here), strict=True):
        assert_same_bits(mine.cpu(), other.cpu())


def test_importing_compiles_nothing():
    """Importing does not make a CUDA context either. The first call of a kernel makes it."""
    program = (
        "import torch, flash_attest.impls.numba.functions; from flash_attest.impls.numba import backward, bias_gradient, fa2;"
        " makers = (fa2.make_forward, backward.make_backward, bias_gradient.make_bias_gradient);"
        " print(sum(make.cache_info().currsize for make in makers), len(backward.delta_kernel.overloads),"
        " torch.cuda.is_initialized())"
    )
    assert printed(program) == "0 0 False"
