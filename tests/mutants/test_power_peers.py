"""The rules of other suites: each rejects a planted bug that it can detect, and accepts one that it
cannot detect.
"""

from dataclasses import replace
from itertools import islice

import pytest
import torch

from flash_attest.impls import Implementation, Supports, python_tiled
from flash_attest.impls.contract.tensors import Outputs
from flash_attest.impls.cuda.extension import _explained
from flash_attest.mutants import ALL
from flash_attest.mutants.mutant import build
from flash_attest.mutants.power.peers import Draw, Peer, Size, Try, judge_peer
from flash_attest.mutants.power.references import differentiated, math_kernel, written_out
from flash_attest.mutants.power.rules import FUDGE, PEERS, _at_most_twice_pytorch, _within_fudge, inputs_of, turns
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import Undecided
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED

RIGHT = replace(python_tiled.IMPL, share=0.05)  # the smallest shapes


def planted_bug(name):
    """Return the edited implementation of a mutant of python_tiled.py, on the smallest shapes."""
    return replace(build(next(m for m in ALL if m.name == name)), share=0.05)


def judged(peer: Peer, impl: Implementation, unedited=lambda: RIGHT):
    return judge_peer(peer, impl, unedited, "cpu")


SEEN = {  # peer -> a bug that it rejects
    "flash_attention": "dq_is_not_scaled",
    "pytorch": "delta_is_omitted",
    "allclose": "dq_keeps_the_last_key_tile_only",
    "kernel_bench_1e_2": "row_sum_is_not_rescaled",
    "kernel_bench_1e_4": "row_sum_is_not_rescaled",
}


def test_every_peer_is_tested():
    assert sorted(SEEN) == sorted(peer.name for peer in PEERS)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peer_rejects_one_planted_bug_and_accepts_another(peer):
    """delta_has_an_epsilon adds 1e-7 to delta, which is below the tolerances of all other
    suites.
    """
    verdict, case = judged(peer, planted_bug(SEEN[peer.name]))
    assert verdict == FAIL and case.startswith("seqlen_q=")
    verdict, words = judged(peer, planted_bug("delta_has_an_epsilon"))
    assert verdict == PASS and words.startswith("accepts ") and "without the bug" not in words


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peer_says_what_it_does_and_what_is_smaller_here(peer):
    assert "github" in peer.rule or "/" in peer.rule or "tutorial" in peer.rule
    assert "CPU" in peer.reduced


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peer_rejects_an_exception(peer):
    def raises(*tensors, **options):
        raise RuntimeError("no kernel image")

    assert judged(peer, replace(RIGHT, forward=raises))[0] == FAIL


def test_a_kernel_that_does_not_compile_was_not_judged():
    """An edit that nvcc refuses on a GPU is not a bug that any suite caught, either."""

    def not_built(*tensors, **options):
        raise RuntimeError(_explained("fa2", "error: expected a ;"))

    with pytest.raises(Undecided, match="could not be built for CUDA tensors"):
        judged(PEERS[0], replace(RIGHT, forward=not_built))


def test_what_is_rejected_without_the_bug_too_is_a_false_alarm_and_no_catch():
    """A rule that is too strict must not seem to detect bugs."""
    peer = next(peer for peer in PEERS if peer.name == "allclose")
    wrong = planted_bug(SEEN["allclose"])
    verdict, words = judged(peer, wrong, lambda: wrong)
    assert verdict == PASS and "without the bug, too" in words


def test_inputs_that_are_not_supported_are_left_out():
    cases = {
        (t.case.causal, t.case.bias, t.case.nheads == t.case.nheads_k) for t in PEERS[0].tries(RIGHT, Size.SMALLEST)
    }
    assert len(cases) > 4
    plain = replace(RIGHT, supports=Supports(dtypes={torch.float32}, headdims=(32,), cross=True))
    plain_cases = [t.case for t in PEERS[0].tries(plain, Size.SMALLEST) if not unsupported(plain, t.case)]
    assert plain_cases and all(
        (c.causal, c.bias, c.nheads, c.dtype) == (False, None, c.nheads_k, torch.float32) for c in plain_cases
    )


def test_head_dims_of_a_kernel_compiled_for_few_are_halved():
    """A suite whose head dims are 32, 59, 64 ... would otherwise try only 32 on an edited CUDA
    kernel.
    """
    small = replace(RIGHT, supports=replace(RIGHT.supports, headdims=range(1, 33)))
    assert list(islice(turns(small, (32, 64, 59, 128, 96)), 6)) == [32, 32, 29, 32, 24, 32]
    assert list(islice(turns(RIGHT, (32, 59, 256)), 4)) == [32, 59, 256, 32]
    wide = replace(RIGHT, supports=replace(RIGHT.supports, headdims=range(33, 100)))
    assert list(islice(turns(wide, (32, 59, 128)), 3)) == [59, 64, 59]


def test_kernel_bench_has_no_tolerance_of_1e_4_for_half():
    half = replace(RIGHT, supports=replace(RIGHT.supports, dtypes={torch.float16}))
    verdicts = {peer.name: judged(peer, half)[0] for peer in PEERS if peer.name.startswith("kernel")}
    assert verdicts == {"kernel_bench_1e_2": PASS, "kernel_bench_1e_4": REFUSED}


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
@pytest.mark.parametrize("size", Size, ids=lambda size: size.name)
def test_shapes_are_in_what_our_kernels_support(peer, size):
    """A suite whose inputs are all left out would accept anything."""
    cases = [t.case for t in peer.tries(RIGHT, size)]
    assert [str(case) for case in cases if unsupported(RIGHT, case)] == [] and cases
    assert len(cases) == len(set(map(str, cases))) or peer.name == "flash_attention"


# ---- the formulas --------------------------------------------------------------------------------

CASE = Case(seqlen_q=16, seqlen_k=16, headdim=8, dtype=torch.float16)


def moved(outputs: Outputs, name: str, by: float) -> Outputs:
    """Return outputs in which one element of one output is changed."""
    tensor = getattr(outputs, name).float().clone()
    tensor[0, 0, 0, 0] += by
    return replace(outputs, **{name: tensor})


@pytest.mark.parametrize("name", ("out", "dq", "dk", "dv"))
def test_flash_attention_allows_twice_the_error_of_pytorch(name):
    x = inputs_of(CASE, Draw(CASE, "cpu"), "normal")
    want = differentiated(written_out(RIGHT, CASE, upcast=True), x)
    torchs = differentiated(written_out(RIGHT, CASE, upcast=False), x)
    allowed = 2 * (getattr(torchs, name) - getattr(want, name)).abs().max().item() + 1e-5
    assert _at_most_twice_pytorch(CASE, RIGHT, x, moved(want, name, 0.9 * allowed))
    assert not _at_most_twice_pytorch(CASE, RIGHT, x, moved(want, name, 1.1 * allowed))
    assert not _at_most_twice_pytorch(CASE, RIGHT, x, moved(want, name, float("nan")))


@pytest.mark.parametrize("name", FUDGE)
def test_pytorch_allows_the_error_of_its_math_kernel_times_a_factor(name):
    x = inputs_of(CASE, Draw(CASE, "cpu"), "uniform")
    want = differentiated(math_kernel(CASE), x, torch.float32)
    lower = differentiated(math_kernel(CASE), x)
    allowed = max(1e-5, FUDGE[name] * (getattr(lower, name) - getattr(want, name)).abs().max().item())
    assert _within_fudge(CASE, RIGHT, x, moved(want, name, 0.9 * allowed))
    assert not _within_fudge(CASE, RIGHT, x, moved(want, name, 1.1 * allowed))


def test_attention_written_out_is_that_of_the_definition():
    """The cases are causal, with fewer keys than queries, GQA and a bias; the first rows see no
    key.
    """
    case = Case(2, 7, 5, 4, 2, 8, torch.float32, True, bias="matrix", bias_batch=2, bias_nheads=4)
    draw = Draw(case, "cpu")
    x = inputs_of(case, draw, "normal", draw.normal(*case.bias_shape))
    got = differentiated(written_out(RIGHT, case, upcast=True), x)
    out, lse = python_tiled.forward(x.q, x.k, x.v, causal=True, bias=x.bias)
    gradients = python_tiled.backward(x.dout, x.q, x.k, x.v, out, lse, causal=True, bias=x.bias)
    for name, want in zip(("out", "dq", "dk", "dv", "dbias"), (out, *gradients), strict=True):
        assert torch.allclose(getattr(got, name), want, atol=1e-5), name


def test_a_try_draws_the_same_tensors_every_time():
    attempt: Try = next(iter(PEERS[0].tries(RIGHT, Size.SMALLEST)))
    first, second = (attempt.inputs(Draw(attempt.case, "cpu")) for _ in range(2))
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(first.items(), second.items(), strict=True))
