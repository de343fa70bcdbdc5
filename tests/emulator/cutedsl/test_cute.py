"""CuTe DSL itself, and flash-attn-4. Both are installed for the nightly run only: they have 400 MB.

Each test is a process of its own, because a process emulates one GPU, and these kernels need sm_90.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

from tests.places import ROOT

needs_cute = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None, reason="pip install 'nvidia-cutlass-dsl[cu13]' for kernels in CuTe DSL"
)
needs_flash = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None or importlib.util.find_spec("quack") is None,
    reason="pip install flash-attn-4 for its kernels",
)

ADD = """
import cutlass, torch
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def add_one(x: cute.Tensor, beyond: cutlass.Constexpr):
    i, _, _ = cute.arch.thread_idx()
    x[i + beyond] = x[i + beyond] + 1.0

@cute.jit
def host(x: cute.Tensor, beyond: cutlass.Constexpr):
    add_one(x, beyond).launch(grid=(1, 1, 1), block=(32, 1, 1))

x = torch.arange(32.0)
"""
FLASH = """
import math, torch
from flash_attn.cute import flash_attn_func

def inputs(headdim, dtype=torch.float16):
    torch.manual_seed(0)
    return [torch.randn(1, 160, n, headdim, dtype=dtype, device="cuda").requires_grad_() for n in (4, 2, 2)]

def wanted(q, k, v, causal):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = q @ k.repeat_interleave(2, 1).transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return (scores.softmax(-1) @ v.repeat_interleave(2, 1)).transpose(1, 2)

def far(got, wanted):
    return (got.double() - wanted).abs().max().item()
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a program in which kernels are emulated for sm_90. It returns
    what the program prints.
    """

    def run(*parts: str) -> str:
        file = tmp_path / "program.py"  # cutlass reads the source of functions
        begin = "from flash_attest import emulate, trace\nassert emulate(target=90)\n"
        file.write_text(begin + "".join(map(textwrap.dedent, parts)))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-W", "ignore", str(file)]
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert process.returncode == 0, process.stdout + process.stderr[-3000:]
        return process.stdout

    return run


@needs_cute
def test_a_compiled_function_and_a_direct_call(run):
    run(ADD, """
        compiled = cute.compile(host, from_dlpack(x), 0)
        compiled(from_dlpack(x))
        host(from_dlpack(x), 0)
        assert torch.equal(x, torch.arange(32.0) + 2), x
    """)  # fmt: skip


@needs_cute
def test_a_function_that_takes_tensors_by_tvm(run):
    run(ADD, """
        compiled = cute.compile(host, from_dlpack(x, enable_tvm_ffi=True), 0, options="--enable-tvm-ffi")
        compiled(x)
        assert torch.equal(x, torch.arange(32.0) + 1), x
    """)  # fmt: skip


@needs_cute
@pytest.mark.parametrize("options", ["", "--enable-tvm-ffi"])
def test_an_access_outside_is_found_with_its_line(run, options):
    said = run(ADD, f"""
        y = from_dlpack(x, enable_tvm_ffi={bool(options)})
        compiled = cute.compile(host, y, 4, options={options!r})
        print(*trace(lambda: compiled(y)), sep="\\n")
    """)  # fmt: skip
    assert "outside: " in said and "right past the end" in said


@needs_flash
@pytest.mark.parametrize("headdim, causal", [(64, True), (128, False)])
def test_flash_attention_4_forward_is_right_and_without_a_race(run, headdim, causal):
    run(FLASH, f"""
        q, k, v = (x.detach() for x in inputs({headdim}))
        out = flash_attn_func(q, k, v, causal={causal})
        out = out[0] if isinstance(out, tuple) else out
        assert far(out, wanted(q.double(), k.double(), v.double(), {causal})) < 2e-3
        found = trace(lambda: flash_attn_func(q, k, v, causal={causal}))
        assert not found, found
    """)  # fmt: skip


@needs_flash
def test_flash_attention_4_backward_is_right_and_its_one_race_is_known(run):
    """Threads behind the tile write rows of lse of the next tile, which writes the same values."""
    run(FLASH, """
        inputs = inputs(64, torch.bfloat16)
        exact = [x.detach().double().requires_grad_() for x in inputs]
        dout = torch.randn(1, 160, 4, 64, dtype=torch.bfloat16, device="cuda")

        def backward():
            out = flash_attn_func(*inputs, causal=True)
            return torch.autograd.grad(out[0] if isinstance(out, tuple) else out, inputs, dout)

        want = torch.autograd.grad(wanted(*exact, True), exact, dout.double())
        assert max(map(far, backward(), want)) < 4e-2
        found = trace(backward)
        assert [finding.tensor for finding in found] == ["mLSElog2"], found
    """)  # fmt: skip
