"""The repository of a kernel author: kernels, and options with the same names as ours."""

CONFTEST = """
def pytest_addoption(parser):
    for name in ("--device", "--case", "--report", "--repeats", "--shard", "--impl", "--perturb"):
        parser.addoption(name, default="hers")
    parser.addoption("--resume", action="store_true")
"""
KERNELS = '''
import ctypes

import torch


def attention(q, k, v, *, causal=False):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    s = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    n, m = s.shape[-2:]
    if causal:
        s = s.masked_fill(torch.ones(n, m, dtype=torch.bool).triu(1 + m - n), -torch.inf)
    return torch.einsum("bhij,bhjd->bhid", s.softmax(-1), v)


def scaled_twice(q, k, v, *, causal=False):
    return attention(q * q.shape[-1] ** -0.5, k, v, causal=causal)


def crashes(q, k, v, *, causal=False):
    if q.shape[2] > 1:
        ctypes.string_at(0)
    return attention(q, k, v, causal=causal)
'''
# The beginning of a file of tests.
LAWS = """
import pytest
import torch
from kernels import attention, crashes, scaled_twice

from flash_attest import assert_attention_close, attention_laws

FIELDS = dict(layout="bhsd", causal="optional", headdims={16}, dtypes={torch.float32}, outside="undefined")
"""
