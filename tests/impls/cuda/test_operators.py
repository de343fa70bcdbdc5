"""flash_attention_1 and _2 as PyTorch operators: opcheck, torch.compile, CUDA graphs, a second GPU.

The tests run on CPU tensors, and on CUDA tensors if there is a GPU. Values: test_functions.py.
Refusals: test_refused.py.
"""

import shutil
from pathlib import Path

import pytest
import torch

from flash_attest.impls.cuda import flash_attention_1, flash_attention_2, functions
from tests.impls.cuda.calls import RIGHT, each, everywhere, gradients, inputs, on_a_gpu
from tests.impls.cuda.values import randn
from tests.impls.operator_checks import assert_same_bits, captured, on_two_gpus
from tests.runs import python
from tests.thorough import covering

OPERATORS = {
    flash_attention_1: functions.OPERATORS["fa1"],
    flash_attention_2: functions.OPERATORS["fa2"],
}


def run_python(program):
    """Run Python in a new process in the checkout, and return its output."""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@everywhere
@pytest.mark.parametrize(
    "function, bias",
    covering(1, {"fa1": flash_attention_1, "fa2": flash_attention_2}, {"": None, "bias": (1, 4, 20, 37)}),
)
def test_operators_pass_opcheck(function, device, bias):
    """torch.library checks schema, fake tensors, autograd registration, and dynamic shapes."""
    forward, backward = OPERATORS[function]
    x = inputs(device, bias=bias)
    torch.library.opcheck(forward, (*x, True, 9, None, None, 5.0, RIGHT))
    x = [t if t is None else t.detach() for t in x]
    out, lse = forward(*x, False, 9, 3, 0.5, None, RIGHT)
    for wanted in (False, True)[: 1 if bias is None else 2]:
        torch.library.opcheck(backward, (out + 1, *x, out, lse, False, 9, 3, 0.5, None, RIGHT, wanted))


@each
@everywhere
@pytest.mark.parametrize("dynamic", (pytest.param(False, marks=pytest.mark.thorough), True), ids=("static", "dynamic"))
def test_compiled_equals_eager(function, device, dynamic):
    """Forward and backward are compiled to one graph without a break, and their results are equal
    bit for bit.
    """
    x = inputs(device)

    def step(*tensors):
        out, lse = function(*(2.0 * t for t in tensors), causal=True, softmax_scale=0.3, return_lse=True)
        return out + 1, lse

    want, want_lse = step(*x)
    torch._dynamo.reset()
    got, lse = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=dynamic)(*x)
    assert_same_bits(got, want)
    assert_same_bits(lse, want_lse)
    for mine, other in zip(gradients(got, x), gradients(want, x), strict=True):
        assert_same_bits(mine, other)


def test_operators_are_in_torch_ops():
    names = [f"fa{n}_{what}" for n in (1, 2) for what in ("forward", "backward")]
    assert all(hasattr(torch.ops.flash_attest_cuda, name) for name in names)


def test_a_copy_of_the_package_has_its_own_operators(tmp_path):
    """Mutants are such copies, which must not replace the operators of the original."""
    shutil.copytree(Path(functions.__file__).parent, tmp_path / "copied_cuda")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from flash_attest.impls.cuda import functions as ours;"
        " from copied_cuda import functions as copied; import torch;"
        " print([o.OPERATORS['fa1'].forward._qualname for o in (ours, copied)])"
    )
    assert run_python(program) == "['flash_attest_cuda::fa1_forward', 'copied_cuda::fa1_forward']"


@each
@on_a_gpu
def test_graph_replayed_on_other_inputs_equals_eager(function):
    x = inputs("cuda")
    dout = randn(2, 20, 4, 16, device="cuda", seed=5)

    def step():
        out = function(*x, causal=True)
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
def test_tensors_on_a_second_device(function):
    """The first device stays the current one."""
    here, there = inputs("cuda:0"), inputs("cuda:1")
    want, got = function(*here, causal=True), function(*there, causal=True)
    assert torch.cuda.current_device() == 0 and got.device == torch.device("cuda:1")
    assert_same_bits(got.cpu(), want.cpu())
    for mine, other in zip(gradients(got, there), gradients(want, here), strict=True):
        assert_same_bits(mine.cpu(), other.cpu())


def test_importing_compiles_and_loads_nothing():
    """The first call compiles, loads the emulator, imports build tools and makes a CUDA context."""
    program = (
        "import sys, torch, impls.cuda, emulator.cuda.build; print(emulator.cuda.build.runtime.cache_info().currsize,"
        " 'torch.utils.cpp_extension' in sys.modules, torch.cuda.is_initialized())"
    )
    assert run_python(program) == "0 False False"
