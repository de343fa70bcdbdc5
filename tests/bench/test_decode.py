"""The benchmark of decoding: its calls are right on a CPU, and wrong ones are not timed."""

from dataclasses import replace

import pytest
import torch

from flash_attest.bench import decode
from flash_attest.impls.contract import registry
from flash_attest.impls.torch_math import IMPL as MANUAL
from flash_attest.impls.triton.device import lacking

SMALL = dict(batch=2, seqlen_k=40, nheads=6, nheads_k=2, headdim=16)
PAGED = "triton_paged_decode"


def few(case):
    return case.but(**SMALL)


def paged():
    if lacking():
        pytest.skip(lacking())
    return next(entry.impl for entry in registry.ours([PAGED]) if entry.name == PAGED)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels are on the GPU")
def test_paged_and_dense_decodes_are_timed():
    cases = [few(case) for case in decode.cases()][: len(decode.SPLITS)]
    for case in cases:
        assert "GB/s" in decode.measured(paged(), case, "cpu", 0.0).text
    first, *others = (decode.measured(MANUAL, case, "cpu", 0.0) for case in cases)
    assert "GB/s" in first.text and others == [None] * (len(cases) - 1)  # dense: once


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels are on the GPU")
def test_a_wrong_decode_is_not_timed():
    case = few(next(decode.cases()))
    impl = paged()
    for wrong in (
        replace(impl, forward=lambda *x, seqused_k, **more: impl.forward(*x, seqused_k=seqused_k // 2, **more)),
        replace(MANUAL, forward=lambda *x, **more: MANUAL.forward(*(t[:, :1] for t in x), **more)),
    ):
        line = decode.measured(wrong, case, "cpu", 0.0)
        assert line.wrong and line.text.startswith("wrong: out of batch")


def test_what_is_not_supported_is_refused():
    case = few(next(decode.cases()))
    alone = replace(MANUAL, supports=replace(MANUAL.supports, gqa=False))
    line = decode.measured(alone, case, "cpu", 0.0)
    assert not line.wrong and line.text.startswith("refused: ")
