"""The benchmark of packed sequences: its calls are right on a CPU, and wrong ones are not timed."""

import pytest
import torch

from flash_attest.bench import varlen
from flash_attest.impls.triton.device import lacking

HERE = ["torch sdpa, padded", *([] if lacking() else ["triton_fa2_varlen", "triton_fa2, padded"])]

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels are on the GPU")


@pytest.fixture(scope="module")
def batch():
    return varlen.batch_of([5, 1, 40], 2, 16, torch.float16, "cpu")


@pytest.mark.parametrize("name", HERE)
def test_packed_and_padded_sequences_are_timed(name, batch):
    words = varlen.measured(name, batch, "cpu", 0.0).text.split()
    assert [words[0], words[5]] == ["forward", "backward"] and words.count("TFLOP/s") == 2


def test_a_wrong_call_is_not_timed(monkeypatch, batch):
    """Attention over the whole buffer mixes sequences."""
    mixed = (False, lambda x: varlen.differentiated(lambda *qkv: varlen.sdpa(*(t[None] for t in qkv))[0], x))
    monkeypatch.setitem(varlen.WAYS, "mixed", mixed)
    line = varlen.measured("mixed", batch, "cpu", 0.0)
    assert line.wrong and line.text.startswith("wrong: out of batch 0")


def test_an_older_release_of_torch_has_no_column(monkeypatch, batch):
    def missing(x):
        raise ImportError("No module named 'torch.nn.attention.varlen'")

    monkeypatch.setitem(varlen.WAYS, "torch varlen_attn", (False, missing))
    line = varlen.measured("torch varlen_attn", batch, "cpu", 0.0)
    assert not line.wrong and line.text.startswith("not here: No module")
