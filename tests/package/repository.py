"""Writes the repository of a kernel author: kernels, their tests, options and files to check."""

from __future__ import annotations

from pathlib import Path

from tests.kernel_author import CONFTEST, KERNELS, LAWS

PROJECT = """
[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
attest_profile = "smoke"
"""
TESTS = (
    LAWS
    + """

@attention_laws(forward=attention, **FIELDS)
def test_right(law):
    law()


@attention_laws(forward=scaled_twice, **FIELDS)
def test_wrong(law):
    law()


def test_options_are_hers(request):
    names = ("device", "case", "report", "repeats", "shard", "resume")
    assert [request.config.getoption(name) for name in names] == ["tpu", "hers", "hers", "hers", "hers", True]


def close(forward):
    q, k, v = torch.randn(3, 2, 4, 65, 16, generator=torch.Generator().manual_seed(0))
    worst = assert_attention_close(forward(q, k, v, causal=True), q, k, v, causal=True, layout="bhsd")
    assert 0 < worst["out"] < 8


def test_right_is_close():
    close(attention)


def test_wrong_is_not_close():
    close(scaled_twice)
"""
)
# A file that imports the module beside it. Their folder has a space in its name, and they are
# checked from outside of it.
FORMULA = """
import torch


def attention(q, k, v):
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v), s.logsumexp(-1)


def one_key_short(q, k, v):
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
    if s.shape[-1] > 64 and s.shape[-1] % 64:
        s[..., -1, -1] = -torch.inf
    return torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v), s.logsumexp(-1)
"""
CHECKED = """
import torch
{imported}

from flash_attest import Implementation, Supports

IMPL = Implementation(
    name="{function}",
    forward={function},
    lse="natural",
    tile=(64, 64),
    outside="undefined",
    supports=Supports(dtypes={{torch.float32}}, headdims={{1, 16}}, causal="always"),
)
"""
# CUDA C++ with a race. The salt makes the file differ in each installation, so no cache has it.
CUDA = """
// {salt}
__global__ void differences_kernel(const float* x, float* out) {{
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    out[i] = tile[i] - (i > 0 ? tile[i - 1] : 0.0f);
}}

int differences(const float* x, float* out) {{
    differences_kernel<<<1, 64>>>(x, out);
    return cudaGetLastError();
}}
"""
TRACED = """
from pathlib import Path

import torch

from flash_attest.emulator.cuda import load

cu = load(Path(__file__).with_name("differences.cu"), "differences")
assert cu.differences(torch.arange(64.0), torch.empty(64)) == 0
"""
# This was written for a GPU and knows nothing of flash-attest.
TRITON_TESTS = """
import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


@pytest.mark.parametrize("factor", [3.0, -1.0])
def test_scale(factor):
    x = torch.randn(1000, device="cuda")
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(1000, 128),)](x, out, 1000, factor, BLOCK=128)
    assert out.is_cuda
    torch.testing.assert_close(out, factor * x)
"""


def write(folder: Path) -> Path:
    """Write the repository to a folder."""
    files = {
        "conftest.py": CONFTEST,
        "pyproject.toml": PROJECT,
        "kernels.py": KERNELS,
        "tests/test_attention.py": TESTS,
        "gpu/test_scale.py": TRITON_TESTS,
        "gpu/differences.cu": CUDA.format(salt=folder),
        "gpu/differences.py": TRACED,
        "alone.py": FORMULA + CHECKED.format(imported="", function="attention"),
        "my kernels/formula.py": FORMULA,
        "my kernels/wrong.py": CHECKED.format(imported="from formula import one_key_short", function="one_key_short"),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.lstrip())
    return folder
