"""The benchmark on the CPU: it refuses to time wrong results, and checks its figures.

No test depends on a duration.
"""

from __future__ import annotations

import math

import pytest
import torch

from flash_attest.bench import command, sanity, timing
from flash_attest.impls.contract.tensors import Outputs
from flash_attest.properties.cases.case import Case


@pytest.fixture(autouse=True)
def no_figure(monkeypatch):
    """Leaves bench.png out, which takes longer than the measurements (test_bench_report.py)."""
    monkeypatch.setattr(command, "_drawn", lambda *_: False)


def verdicts(report, name):
    return {cell["pass"]: cell["verdict"] for cell in report["results"] if cell["impl"] == name}


def test_a_right_result_may_be_timed():
    case = Case(batch=2, seqlen_q=33, seqlen_k=33, nheads=2, nheads_k=2, headdim=8, causal=True, dtype=torch.bfloat16)
    x = sanity.make_inputs(case, "cpu", seed=1)
    want = sanity.reference(x, causal=True, backward=True)
    got = {name: tensor.bfloat16() for name, tensor in want.items()}

    assert want.out.shape == want.dq.shape == x.q.shape
    assert sanity.mistake(Outputs(**got), want, sanity.NAMES) is None


def spoilt(name, where, factor):
    """Check results that were multiplied by a factor in one part. Returns the message."""
    x = sanity.make_inputs(Case(batch=2, seqlen_q=33, seqlen_k=33, nheads=2, nheads_k=2, headdim=8), "cpu", seed=1)
    want = sanity.reference(x, causal=False, backward=True)
    got = {n: tensor.clone() for n, tensor in want.items()}
    got[name][where] *= factor
    return sanity.mistake(Outputs(**got), want, sanity.NAMES)


def test_one_row_too_large_is_seen():
    message = spoilt("dv", (1, 20, 1), 3)
    assert message.startswith("dv of batch 1, head 1, row 20 is off by ") and message.endswith("should be 50% at most")


def test_one_head_a_tenth_too_large_is_seen():
    message = spoilt("dk", (0, slice(None), 1), 1.1)
    assert message == "dk of batch 0, head 1 is off by 10% of its length, should be 5% at most"


def test_chunks_of_heads_change_nothing(monkeypatch):
    case = Case(batch=3, seqlen_q=16, seqlen_k=16, nheads=2, nheads_k=2, headdim=8, causal=True)
    x = sanity.make_inputs(case, "cpu", seed=2)
    whole = sanity.reference(x, causal=True, backward=True)
    monkeypatch.setattr(sanity, "SCORES_AT_ONCE", 4 * 16**2)

    for name, tensor in sanity.reference(x, causal=True, backward=True).items():
        torch.testing.assert_close(tensor, getattr(whole, name))


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [
        ("out = torch.cat([out[:, :-1], 0 * out[:, -1:]], 1)", "out of batch 0, head"),
        pytest.param(
            "out = out * torch.where(out.detach() == out.detach().max(), torch.nan, 1.0)",
            "out: 1 of 256 values are not",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_wrong_implementation_is_wrong_and_not_timed(bench, benched, mistake, reason):
    status, text, report = bench("--impl-from", benched(mistake), "--impl", "mine,torch_math", "--full")

    assert status == 1
    assert verdicts(report, "mine") == {"forward": "wrong", "backward": "wrong"}
    assert verdicts(report, "torch_math") == {"forward": "timed", "backward": "timed"}
    for cell in report["results"]:
        if cell["impl"] == "mine":
            assert "ms" not in cell and reason in cell["reason"]
            assert f"pytest --impl-from={benched(mistake)} --case 'seqlen_q=16" in cell["reason"]
    assert "wrong" in text and reason in text


def test_what_writes_to_its_inputs_is_wrong_and_its_neighbours_are_not(bench, benched):
    file = benched("q.detach().mul_(0.5)")
    status, _, report = bench("--impl-from", file, "--impl", "mine,torch_math", "--full")

    assert status == 1
    reasons = {c["reason"] for c in report["results"] if c["impl"] == "mine" and c["pass"] == "forward"}
    assert reasons == {"q modified: inputs should come back as they were"}
    assert verdicts(report, "torch_math") == {"forward": "timed", "backward": "timed"}


def test_a_wrong_gradient_is_wrong_where_the_forward_is_right(bench, benched):
    file = benched("out = out + 0.5 * (out - out.detach())")
    status, _, report = bench("--impl-from", file, "--impl", "mine", "--full")

    assert status == 1
    assert verdicts(report, "mine") == {"forward": "timed", "backward": "wrong"}


@pytest.mark.parametrize(
    ("when_timed", "reason"),
    [
        ("out = out if len(CALLS) < 4 else 0 * out", "in timed call "),
        (
            "out = vars(forward).setdefault(str((q.data_ptr(), q.requires_grad, causal)), out)",
            "after the timed calls, with other values in the same inputs, out of",
        ),
    ],
)
def test_what_is_wrong_while_it_is_timed_gets_no_time(bench, benched, when_timed, reason):
    file = benched(when_timed)
    status, _, report = bench("--impl-from", file, "--impl", "mine,torch_math")

    assert status == 1
    (cell,) = [c for c in report["results"] if c["impl"] == "mine" and c["pass"] == "forward" and not c["causal"]]
    assert cell["verdict"] == "wrong" and reason in cell["reason"] and "ms" not in cell
    assert verdicts(report, "torch_math")["forward"] == "timed"


def test_an_exception_is_reported_and_the_others_still_run(bench, benched):
    status, _, report = bench("--impl-from", benched("raise RuntimeError('no such tile')"), "--impl", "mine,torch_math")

    assert status == 1
    assert {c["reason"] for c in report["results"] if c["impl"] == "mine"} == {"RuntimeError: no such tile"}
    assert len([c for c in report["results"] if c["verdict"] == "timed"]) == 4


def test_a_refusal_is_reported_and_is_not_a_failure(bench, benched):
    status, text, report = bench("--impl-from", benched(), "--impl", "mine,torch_math", "--headdim", "8,12")
    refused = [cell for cell in report["results"] if cell["verdict"] == "refused"]

    assert status == 0
    assert {(cell["impl"], cell["headdim"]) for cell in refused} == {("mine", 12)}
    assert "4 cells: headdim 12 is not supported by mine" in text


def test_above_the_peak_is_an_error(bench, monkeypatch):
    monkeypatch.setattr(timing, "peak", lambda *arguments: timing.Peak(1e-9, "a slow product"))
    status, text, report = bench("--impl", "torch_math", "--full", "--pass", "forward")
    (cell,) = report["results"]

    assert status == 1
    assert cell["verdict"] == "above peak" and "share" not in cell
    assert cell["tflops"] > 1e-9 and "a matrix product's 1e-09: a mistake in measuring" in cell["reason"]
    assert "above peak" in text


def test_a_disturbed_peak_is_measured_again(bench, monkeypatch):
    measured = iter([1e-9, 1e9])
    monkeypatch.setattr(timing, "peak", lambda *arguments: timing.Peak(next(measured), "a product"))
    status, _, report = bench("--impl", "torch_math", "--full", "--pass", "forward")

    assert status == 0
    assert report["peak"]["float32"]["tflops"] == 1e9
    assert report["results"][0]["verdict"] == "timed"


def test_a_kernel_that_multiplies_in_tf32_is_bounded_by_tf32(bench, monkeypatch):
    """The share of such a kernel in the table is still relative to the float32 product, as for the
    others.
    """
    peaks = {"float32": timing.Peak(1e-9, "slow"), "tf32": timing.Peak(1e9, "fast")}
    monkeypatch.setattr(timing, "peak", lambda product, device: peaks[product])
    monkeypatch.setattr("flash_attest.bench.run.product_of", lambda *arguments: "tf32")
    status, text, report = bench("--impl", "torch_math", "--full", "--pass", "forward")
    (cell,) = report["results"]

    assert status == 0
    assert cell["product"] == "tf32" and math.isclose(cell["share"], cell["tflops"] / 1e-9)
    assert "torch_math multiplies in tf32, of which a matrix product reaches 1000000000000 GFLOP/s" in text


MATMUL = torch.backends.cuda.matmul


@pytest.fixture(params=[False, True])
def allowed_before(request):
    """Saves the setting of tf32 when the test starts."""
    before, MATMUL.allow_tf32 = MATMUL.allow_tf32, request.param
    yield request.param
    MATMUL.allow_tf32 = before


@pytest.mark.parametrize("product", ["float32", "tf32", "float16"])
def test_tf32_is_on_only_for_its_own_peak(product, allowed_before, monkeypatch):
    seen = []

    def look(kind, *arguments):
        seen.append((kind, MATMUL.allow_tf32))
        return timing.Peak(1.0, kind)

    monkeypatch.setattr(timing, "_product", look)
    timing.peak(product, "cuda")

    assert set(seen) == {(product, product == "tf32")}
    assert MATMUL.allow_tf32 is allowed_before


def test_manual_attention_is_measured_without_tf32(bench, benched, allowed_before):
    status, _, _ = bench("--impl-from", benched("assert not torch.backends.cuda.matmul.allow_tf32"), "--impl", "mine")

    assert status == 0
    assert MATMUL.allow_tf32 is allowed_before


def test_a_first_call_is_not_timed(bench, benched):
    file = benched("import time; len(CALLS) > 1 or time.sleep(1.1)")
    _, text, report = bench("--impl-from", file, "--impl", "mine", "--full", "--pass", "forward")

    assert report["results"][0]["ms_p80"] < 1000
    assert "(1 s of it first calls, which compile and are not timed)" in text
