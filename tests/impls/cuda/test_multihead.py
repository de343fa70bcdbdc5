"""multihead_attention: heads lie side by side in columns, within the limits of a course
exercise.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flash_attest.impls.cuda import host, multihead_attention
from tests.impls.cuda import values
from tests.impls.cuda.calls import everywhere

LONGEST = 1000  # rows: the limit of the exercise
WIDEST = 1024  # columns of one head


def uniform(N, d_model, largest, seed, device):
    """Return Q, K, V with values from -largest to largest."""
    random = torch.Generator().manual_seed(seed)
    return [torch.empty(N, d_model).uniform_(-largest, largest, generator=random).to(device) for _ in range(3)]


def is_attention(out, Q, K, V, h):
    """Assert that each head is attention on its columns, within the error budget."""
    N, d_model = Q.shape
    out, q, k, v = (x.reshape(1, N, h, d_model // h) for x in (out, Q, K, V))
    values.is_attention(dict(out=out), q, k, v)


@everywhere
def test_known_answer(device):
    Q = torch.tensor([[1.0, 0, 2, 3], [4, 5, 6, 7]], device=device)
    K = torch.arange(1.0, 9, device=device).view(2, 4)
    V = torch.tensor([[0.5, 1, 1.5, 2], [2.5, 3, 3.5, 4]], device=device)
    want = torch.tensor([[2.3884, 2.8884, 3.5, 4], [2.5, 3, 3.5, 4]], device=device)
    assert torch.allclose(multihead_attention(Q, K, V, 2), want, rtol=0, atol=5e-5)


@st.composite
def calls(draw, device, large):
    """Draw N up to 1000, d_model from 2 to 1024, and an h that divides d_model.

    Large sizes are rare, and even rarer on a CPU. There all calls may be small ones, as the longest
    and the widest have tests of their own.
    """
    few, most = (24, int(large)) if device == "cpu" else (LONGEST, 4)
    N = draw(st.one_of([st.integers(1, few)] * 6 + [st.integers(few, LONGEST)] * most))
    widths = st.integers(2, 96) | st.sampled_from([128, 512, 768, 1000, WIDEST][: None if large else 1])
    d_model = draw(widths if few >= N else st.integers(2, 32 if device == "cpu" else WIDEST))
    return N, d_model, draw(st.sampled_from([h for h in range(1, d_model + 1) if d_model % h == 0]))


@everywhere
@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_every_call_within_the_limits_is_attention(device, large):
    @settings(max_examples=200 if device == "cuda" else 10 if large else 3, deadline=None)
    @given(calls(device, large), st.integers(0, 1000), st.sampled_from([0.01, 1.0, 10.0]))
    def holds(call, seed, largest):
        N, d_model, h = call
        Q, K, V = uniform(N, d_model, largest, seed, device)
        is_attention(multihead_attention(Q, K, V, h), Q, K, V, h)

    holds()


@everywhere
@pytest.mark.parametrize("h", (1, 1024))
def test_the_widest_and_the_narrowest_heads(device, h):
    Q, K, V = uniform(3, WIDEST, 10.0, 0, device)
    is_attention(multihead_attention(Q, K, V, h), Q, K, V, h)


@everywhere
def test_the_longest_call(device):
    Q, K, V = uniform(LONGEST, 4, 10.0, 0, device)
    is_attention(multihead_attention(Q, K, V, 2), Q, K, V, 2)


def test_nothing_is_copied(monkeypatch):
    """The kernel reads the columns of the caller's matrices, even with gaps between rows."""
    given_to = {}
    call = host.call
    monkeypatch.setattr(host, "call", lambda name, what, *x: (given_to.update(x=x), call(name, what, *x)))
    wide = torch.randn(3, 5, 40)
    Q, K, V = wide[..., 8:20].unbind(0)
    out = multihead_attention(Q, K, V, 3)
    assert [x.data_ptr() for x in given_to["x"][:3]] == [x.data_ptr() for x in (Q, K, V)]
    assert given_to["x"][4].data_ptr() == out.data_ptr()
    is_attention(out, Q, K, V, 3)


def test_gradients_are_in_the_same_columns():
    Q, K, V = (x.requires_grad_() for x in uniform(5, 6, 1.0, 0, "cpu"))
    heads = [x.view(5, 2, 3).transpose(0, 1) for x in (Q, K, V)]
    want = torch.nn.functional.scaled_dot_product_attention(*heads).transpose(0, 1).reshape(5, 6)
    got = multihead_attention(Q, K, V, 2)
    dout = torch.randn(5, 6)
    for mine, other in zip(torch.autograd.grad(got, (Q, K, V), dout), torch.autograd.grad(want, (Q, K, V), dout),
                           strict=True):  # fmt: skip
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_h_may_be_an_int_of_numpy():
    Q, K, V = uniform(5, 6, 1.0, 0, "cpu")
    assert torch.equal(multihead_attention(Q, K, V, np.int64(3)), multihead_attention(Q, K, V, 3))


ROWS = torch.zeros(4, 6)
REFUSED = {
    "h_divides_nothing": (dict(h=4), "h is 4: should be an int, a number of heads that divides d_model, which is 6"),
    "h_0": (dict(h=0), "h is 0: .* which is 6"),
    "h_negative": (dict(h=-2), "h is -2: .* which is 6"),
    "h_a_float": (dict(h=2.0), r"h is 2\.0: .* which is 6"),
    "h_of_numpy_a_float": (dict(h=np.float64(2)), r"h is .*2\.0.*: should be an int"),
    "h_true": (dict(h=True), "h is True: .* which is 6"),
    "Q_of_3_dimensions": (dict(Q=torch.zeros(1, 4, 6)), r"Q is \(1, 4, 6\) torch.float32: should be \(N, d_model\)"),
    "Q_half": (dict(Q=ROWS.half()), r"Q is \(4, 6\) torch.float16: should be \(N, d_model\) torch.float32"),
    "Q_no_tensor": (dict(Q=[1.0]), "Q is a list: should be a tensor"),
    "K_of_other_rows": (dict(K=torch.zeros(5, 6)), r"K is \(5, 6\) torch.float32 on cpu: should be \(4, 6\)"),
    "V_double": (dict(V=ROWS.double()), r"V is \(4, 6\) torch.float64 on cpu: should be \(4, 6\) torch.float32"),
    "V_elsewhere": (dict(V=ROWS.to("meta")), r"V is \(4, 6\) torch.float32 on meta: should be .* on cpu"),
    "no_columns": (dict.fromkeys("QKV", torch.zeros(4, 0)) | dict(h=1), "h is 1: .* which is 0"),
    "head_too_wide": (
        dict.fromkeys("QKV", torch.zeros(2, 2050)) | dict(h=2),
        "h is 2, .* is 1025: .* at most 1024$",
    ),
    "head_too_wide_for_gradients": (
        dict(Q=torch.zeros(2, 257, requires_grad=True), K=torch.zeros(2, 257), V=torch.zeros(2, 257), h=1),
        "h is 1, .* is 257: .* at most 256 where a gradient",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_numbers(name):
    instead, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        multihead_attention(**dict(Q=ROWS, K=ROWS, V=ROWS, h=2) | instead)
