"""impls/cuda/fa2.cu: agreement with the oracle, no races in any kernel, and refusals with numbers.

The laws judge it on many more cases (pytest --impl cuda_fa2 --device cpu). These tests have named
corner cases, and kernels with tiles of 16 x 16, which give many tiles in little time.
"""

import math
from dataclasses import dataclass

import pytest
import torch

from flash_attest.races.tracing import trace
from tests.impls.cuda.hosts import Host, Refusal, small_device, unwritten

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
SMALL_DEVICE = 60_000  # bytes of shared memory: head dims above 128 do not fit backward
INVALID_VALUE, INVALID_CONFIGURATION = 1, 9  # cudaError_t


@dataclass(frozen=True)
class Case:
    """A call.

    bias: None, "vector" or "matrix". shared: it broadcasts. mask: the keys that it hides.
    """

    seqlen_q: int
    seqlen_k: int
    headdim: int
    dtype: torch.dtype = F32
    batch: int = 1
    nheads: int = 1
    nheads_k: int = 1
    causal: str | None = None
    window: tuple[int | None, int | None] | None = None
    softcap: float | None = None
    bias: str | None = None
    bias_dtype: torch.dtype = F32
    shared: bool = False
    mask: str | None = None
    softmax_scale: float | None = None
    strided: bool = False
    shift: float = 0.0  # added to all scores
    splits: int = 1  # how many blocks share the keys of a head in the backward

    def __str__(self):
        fields = {name: value for name, value in vars(self).items() if value != type(self).__dict__.get(name)}
        return " ".join(f"{name}={str(value).removeprefix('torch.')}" for name, value in fields.items())

    def call(self):
        """Return the arguments of Host.run."""
        q, k, v, dout, bias = self.inputs()
        options = dict(causal=self.causal, window=self.window, softcap=self.softcap, softmax_scale=self.softmax_scale)
        return dict(q=q, k=k, v=v, dout=dout, bias=bias, splits=self.splits) | options

    def forward(self):
        """Return the arguments of Host.run for the forward only."""
        return self.call() | dict(dout=None)

    def inputs(self):
        """Return q, k, v, dout, bias."""
        generator = torch.Generator().manual_seed(0)

        def normal(*size):
            x = torch.randn(size, generator=generator)
            if not self.strided:
                return x.to(self.dtype)
            batch, seqlen, nheads, headdim = size  # heads first, and an extra column after each row
            room = torch.full((batch, nheads, seqlen, headdim + 1), torch.nan, dtype=self.dtype)
            room[..., :headdim] = x.transpose(1, 2)
            return room[..., :headdim].transpose(1, 2)

        q, dout = (normal(self.batch, self.seqlen_q, self.nheads, self.headdim) for _ in range(2))
        k, v = (normal(self.batch, self.seqlen_k, self.nheads_k, self.headdim) for _ in range(2))
        if self.shift:  # softmax_scale q_0 k_0 = shift
            q[..., 0], k[..., 0] = 16, self.shift / 16 * math.sqrt(self.headdim)
        if self.bias is None:
            return q, k, v, dout, None
        batch, nheads = (1, 1) if self.shared else (self.batch, self.nheads)
        rows = 1 if self.bias == "vector" else self.seqlen_q
        bias = torch.randn(batch, nheads, rows, self.seqlen_k, generator=generator).to(self.bias_dtype)
        if self.mask == "first tile":
            bias[..., : self.seqlen_k - 1] = -torch.inf
        elif self.mask == "dead row":
            bias[..., 0, :] = -torch.inf
        elif self.mask == "least":
            bias[..., self.seqlen_k // 2 :] = torch.finfo(self.bias_dtype).min
        return q, k, v, dout, bias


CASES = [
    Case(1, 1, 1),
    Case(64, 64, 64, batch=2, nheads=2, nheads_k=2),
    Case(65, 130, 64, causal="bottom_right"),
    Case(130, 65, 64, causal="bottom_right"),
    Case(70, 100, 3, causal="top_left"),
    Case(100, 70, 3, causal="top_left", bias="vector"),
    Case(33, 70, 72, F16, nheads=6, nheads_k=2, causal="bottom_right"),
    Case(40, 40, 128, BF16, batch=2, nheads=3, nheads_k=1, bias="matrix", bias_dtype=BF16, shared=True),
    Case(20, 40, 200, F16, bias="vector", bias_dtype=F16, batch=2, nheads=2, nheads_k=1, shared=True),
    Case(40, 20, 256, bias="matrix"),
    Case(70, 70, 31, nheads=2, nheads_k=2, strided=True, causal="bottom_right"),
    Case(70, 70, 64, BF16, nheads=2, nheads_k=1, strided=True, bias="matrix"),
    Case(1, 130, 64, bias="matrix", nheads=2),
    Case(7, 0, 8, bias="matrix"),
    Case(0, 7, 8, bias="vector"),
    Case(70, 140, 16, bias="vector", mask="first tile"),
    Case(70, 70, 16, bias="matrix", mask="dead row", causal="bottom_right"),
    Case(70, 70, 16, bias="matrix", mask="least"),
    Case(70, 70, 16, bias="vector", mask="least", bias_dtype=F16, dtype=F16),
    Case(40, 40, 16, softmax_scale=0.0),
    Case(40, 40, 16, softmax_scale=-0.7, causal="bottom_right"),
    Case(40, 40, 16, shift=150.0),
    Case(40, 70, 16, shift=-150.0),
    Case(100, 300, 16, splits=3, nheads=2, nheads_k=1, causal="bottom_right"),
    Case(300, 200, 16, F16, splits=2, causal="bottom_right"),
    Case(200, 300, 64, splits=8, causal="top_left"),
    Case(100, 300, 16, splits=3, window=(70, None), nheads=2, nheads_k=1),
    Case(300, 200, 16, splits=2, window=(3, 40), softcap=5.0),
    Case(70, 300, 8, F16, splits=4, window=(17, 1), softcap=30.0, bias="matrix"),
    Case(130, 65, 64, BF16, window=(None, 20), softcap=2.0, bias="vector"),
    Case(65, 130, 64, causal="top_left", window=(64, 9), softcap=1e4),
    Case(30, 300, 16, splits=5, window=(0, 0)),
]  # fmt: skip
WIDE = [
    Case(33, 40, 257),
    Case(33, 40, 512, causal="bottom_right"),
    Case(20, 33, 1024, bias="matrix"),
    Case(9, 9, 1024, F16),
    Case(33, 70, 257, window=(20, 3), softcap=5.0),
]
TRACED = [
    Case(1, 1, 1),
    Case(33, 31, 3, nheads=2, nheads_k=1, causal="bottom_right", bias="vector"),
    Case(20, 50, 8, bias="matrix", shared=True, nheads=2, nheads_k=2),
    Case(40, 18, 32, strided=True, causal="top_left"),
    Case(5, 0, 4),
    Case(40, 70, 8, splits=2, causal="bottom_right"),
    Case(40, 33, 8, splits=4, nheads=2, nheads_k=1),
    Case(40, 70, 8, splits=4, window=(20, 3), softcap=5.0, nheads=2, nheads_k=1),
    Case(50, 18, 32, window=(0, None), bias="vector"),
]


@pytest.fixture(scope="module")
def fa2():
    return Host("fa2")


@pytest.fixture
def on_small_device(fa2):
    with small_device(SMALL_DEVICE):
        yield fa2


@pytest.fixture(scope="module")
def tiny():
    """Kernels with tiles of 16 x 16. For these, head dims above 32 count as wide."""
    return Host("fa2", defines={"ONE_INSTANCE": 1})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_is_attention(fa2, case):
    fa2.check(**case.call())


@pytest.mark.parametrize("case", WIDE, ids=str)
def test_wide_heads_are_attention(fa2, case):
    fa2.check(**case.forward())


@pytest.mark.parametrize("headdim", [32, 64, 100])
def test_a_small_device_gets_smaller_tiles(on_small_device, headdim):
    on_small_device.check(**Case(70, 50, headdim, bias="vector").call())


def test_rows_without_keys_are_zero(fa2):
    got = fa2.run(**Case(100, 30, 16, causal="bottom_right").call())
    for name in ("out", "dq"):
        assert (got[name][:, :70] == 0).all() and (got[name][:, 71:] != 0).any(-1).all(), name
    assert (got["lse"][..., :70] == -torch.inf).all() and got["lse"][..., 70:].isfinite().all()


@pytest.mark.parametrize("seqlen_q", [1, 15, 16, 63, 64])
def test_an_infinite_key_affects_only_its_queries(tiny, fa2, seqlen_q):
    """A key of -inf makes only dq NaN, for any number of queries in the last tile."""
    for program in (tiny, fa2):
        case = Case(seqlen_q, 64, 1)
        q, k, v, dout, _ = case.inputs()
        q, k[0, 3] = torch.ones_like(q), -torch.inf
        got = program.run(q, k, v, dout)
        assert all(got[name].isfinite().all() for name in ("out", "dk", "dv"))
        assert got["dq"].isnan().all()  # 0 times the key, as in the definition


def test_a_row_of_the_least_float32_is_not_a_mask(fa2):
    """If the bias of all keys is the least float32, they have equal weights, and none is hidden."""
    case = Case(3, 70, 4, bias="vector")
    q, k, v, _, bias = case.inputs()
    got = fa2.forward(q, k, v, bias=torch.full_like(bias, torch.finfo(F32).min), softmax_scale=0.0)
    assert got["lse"].isfinite().all()
    assert torch.allclose(got["out"], v.mean(1, keepdim=True).expand_as(q), atol=1e-6)


@pytest.mark.parametrize(
    "case, words",
    [
        (Case(4, 4, 1025), "fa2_forward: headdim=1025: should be 1 to 1024"),
        (Case(4, 4, 257), "fa2_backward: headdim=257: should be 1 to 256"),
        (Case(4, 4, 8, nheads=3, nheads_k=2), "fa2_forward: nheads=3 is not a multiple of nheads_k=2"),
    ],
    ids=["headdim_1025", "backward_257", "nheads_3_on_2"],
)
def test_refusals_have_numbers(fa2, case, words):
    with pytest.raises(Refusal) as refused:
        fa2.run(**case.call())
    assert (refused.value.status, str(refused.value)) == (INVALID_VALUE, words)


def test_too_little_shared_memory_is_refused_with_numbers(on_small_device):
    case = Case(4, 4, 256)
    q, k, v, dout, _ = case.inputs()
    got, into = on_small_device.forward(q, k, v), [unwritten(*x.shape) for x in (q, k, v)]
    with pytest.raises(Refusal) as refused:
        on_small_device.backward(dout, q, k, v, got["out"], got["lse"], into=into)
    assert refused.value.status == INVALID_CONFIGURATION
    assert str(refused.value) == (
        "fa2_backward: headdim=256 needs 69120 bytes of shared memory with tiles of 16 queries and 16 keys, "
        "the device has 60000"
    )
    assert all(x.isnan().all() for x in into)


@pytest.mark.parametrize("case", TRACED, ids=str)
def test_has_no_race(tiny, case):
    tiny.check(**case.call())
    for seed in range(3):
        assert [str(finding) for finding in trace(lambda: tiny.run(**case.call()), seed=seed)] == []


def test_wide_heads_have_no_race(tiny):
    case = Case(20, 33, 70, causal="bottom_right", window=(16, 0), softcap=5.0)
    tiny.check(**case.forward())
    assert trace(lambda: tiny.run(**case.forward())) == []
