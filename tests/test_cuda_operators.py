"""What a model calls of impls/cuda, flash_attention_1 and _2: gradients, torch.compile, CUDA graphs, and what is refused.

On CUDA tensors where there is a GPU, and always on CPU tensors; the laws judge the same functions on many more cases.
"""

import math
import shutil
import subprocess
import sys
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import oracle
from impls import Absent, Precision, contract
from impls.cuda import algorithm, declared, extension, flash_attention_1, flash_attention_2, host, operators
from impls.cuda.problem import integers

INF = float("inf")
LEFT, RIGHT = "top_left", "bottom_right"
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
CUDA = torch.cuda.is_available() and extension.nvcc() is not None
DEVICES = ("cpu", "cuda") if CUDA else ("cpu",)
on_a_gpu = pytest.mark.skipif(not CUDA, reason="needs a GPU, and nvcc")
on_two_gpus = pytest.mark.skipif(not CUDA or torch.cuda.device_count() < 2, reason="needs a second GPU")
each = pytest.mark.parametrize("function", (flash_attention_1, flash_attention_2), ids=("fa1", "fa2"))
everywhere = pytest.mark.parametrize("device", DEVICES)
OPERATORS = {
    flash_attention_1: (operators.fa1_forward, operators.fa1_backward),
    flash_attention_2: (operators.fa2_forward, operators.fa2_backward),
}


pytestmark = pytest.mark.usefixtures("one_thread")


def randn(*shape, device="cpu", dtype=F32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def inputs(device, seqlen_q=20, seqlen_k=37, headdim=16, dtype=F32, bias=(1, 4, 20, 37)):
    """q, k, v and a bias of that shape (or None), with two query heads for each key head; leaves."""
    of_q, of_k = (2, seqlen_q, 4, headdim), (2, seqlen_k, 2, headdim)
    tensors = [randn(*shape, device=device, dtype=dtype, seed=n) for n, shape in enumerate((of_q, of_k, of_k))]
    tensors.append(None if bias is None else randn(*bias, device=device, seed=3))
    return [x if x is None else x.requires_grad_() for x in tensors]


def gradients(out, tensors, dout=None):
    """d(out * dout) of those tensors that require it, with dout drawn from out's shape."""
    wanted = [x for x in tensors if x is not None and x.requires_grad]
    dout = randn(*out.shape, device=out.device, dtype=out.dtype, seed=9) if dout is None else dout
    return torch.autograd.grad(out, wanted, dout)


def is_attention(got, q, k, v, bias=None, causal=False, softmax_scale=None, alignment=RIGHT):
    """Every output in `got` is within the budget of the oracle; dout as `gradients` draws it."""
    q, k, v, bias = (x if x is None else x.detach().cpu() for x in (q, k, v, bias))
    dout = randn(*q.shape, dtype=q.dtype, seed=9)
    options = dict(causal=causal, bias=bias, softmax_scale=softmax_scale, dout=dout, alignment=alignment)
    want = oracle.attention(q, k, v, **options)
    budget = oracle.budget(q, k, v, want, precision=Precision(probabilities="float32"), **options)
    for name, x in got.items():
        score = budget.score(name, x.detach().cpu(), getattr(want, name))
        assert score.within, f"{name}: z={score.worst_z}, rms_ratio={score.rms_ratio}"


def assert_same_bits(got, want):
    torch.testing.assert_close(got, want, rtol=0.0, atol=0.0)


# --- values -------------------------------------------------------------------------------------------------------------

WAYS = {
    "plain": dict(),
    "causal": dict(causal=True),
    "top_left": dict(causal=True, causal_alignment=LEFT),
    "scale_0": dict(softmax_scale=0),
    "scale_negative": dict(softmax_scale=-0.5, causal=True),
}


@each
@everywhere
@pytest.mark.parametrize("dtype", (F32, F16, BF16), ids=str)
@pytest.mark.parametrize("bias", (None, (1, 4, 20, 37), (2, 1, 1, 37)), ids=("", "matrix", "vector"))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_out_lse_and_gradients_are_those_of_the_definition(function, device, dtype, bias, way):
    x = inputs(device, dtype=dtype, bias=bias)
    out, lse = function(*x, **way, return_lse=True)
    assert (out.dtype, lse.dtype, out.device.type) == (dtype, F32, device)
    got = dict(zip(("dq", "dk", "dv", "dbias"), gradients(out, x), strict=False), out=out, lse=lse)
    is_attention(got, *x, **{name.removeprefix("causal_"): value for name, value in way.items()})


@each
@everywhere
@pytest.mark.parametrize("wrt", [w for w in product((False, True), repeat=4) if any(w)], ids=lambda w: "".join(
    name for name, is_so in zip(("q", "k", "v", "bias"), w, strict=True) if is_so))  # fmt: skip
def test_a_subset_of_inputs_may_require_grad(function, device, wrt):
    """What it gets is what it would get among all, bit for bit."""
    everything = inputs(device, 5, 9, bias=(2, 1, 5, 9))
    whole = gradients(function(*everything), everything)
    some = [x.detach().requires_grad_(wanted) for x, wanted in zip(everything, wrt, strict=True)]
    want = [grad for grad, wanted in zip(whole, wrt, strict=True) if wanted]
    for mine, other in zip(gradients(function(*some), some), want, strict=True):
        assert_same_bits(mine, other)


@each
def test_dbias_is_computed_only_if_it_is_wanted(function, monkeypatch):
    called = []
    call = host.call
    monkeypatch.setattr(host, "call", lambda name, what, *x: (called.append(what), call(name, what, *x)))
    *qkv, bias = inputs("cpu", 5, 9, bias=(1, 1, 1, 9))
    gradients(function(*qkv, bias.detach()), qkv)
    assert called == ["forward", "backward"]
    gradients(function(*qkv, bias), [bias])
    assert called[2:] == ["forward", "backward", "bias_gradient"]


@everywhere
def test_keys_that_several_blocks_share(device):
    """The backward of FlashAttention-2, by the length of k and its heads; and that it is right then."""
    lengths = {(1, 130, 1): 3, (1, 64, 1): 1, (1, 5000, 1): 8, (200, 5000, 1): 4, (100, 5000, 8): 1, (0, 0, 0): 1}
    assert {shape: algorithm.splits_of(zeros(*shape, 8)) for shape in lengths} == lengths
    x = inputs(device, 20, 130, bias=None)
    is_attention(dict(zip(("dq", "dk", "dv"), gradients(flash_attention_2(*x), x), strict=True)), *x)


@each
def test_lse_has_no_gradient_and_out_keeps_its_own(function):
    x = inputs("cpu", 5, 9, bias=None)
    out, lse = function(*x, return_lse=True)
    assert out.requires_grad and not lse.requires_grad
    with torch.no_grad():
        out, lse = function(*x, return_lse=True)
    assert not out.requires_grad and not lse.requires_grad


@each
@everywhere
def test_no_queries_and_no_keys(function, device):
    x = inputs(device, seqlen_q=0, bias=None)
    out = function(*x)
    assert out.shape == (2, 0, 4, 16)
    assert [bool(g.any()) for g in gradients(out, x)] == [False] * 3
    x = inputs(device, seqlen_k=0, bias=(1, 1, 1, 0))
    out, lse = function(*x, return_lse=True)
    assert not out.any() and (lse == -INF).all()
    assert [bool(g.any()) for g in gradients(out, x)] == [False] * 4


@each
@everywhere
def test_any_strides(function, device):
    """Every other column, heads before rows, dout expanded, a bias read from right to left of its memory."""
    x = inputs(device)
    want = function(*x)
    dout = randn(1, 1, 1, 16, device=device)
    strange = [torch.stack([t, t + 1], -1).flatten(-2)[..., ::2].detach().requires_grad_() for t in x[:2]]
    strange += [x[2].detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()]
    strange += [x[3].detach().permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0).requires_grad_()]
    assert not any(t.is_contiguous() for t in strange)
    got = function(*strange)
    assert_same_bits(got, want)
    expanded, copied = dout.expand(got.shape), dout.expand(got.shape).contiguous()
    for mine, other in zip(gradients(got, strange, expanded), gradients(want, x, copied), strict=True):
        assert_same_bits(mine, other)


@each
@everywhere
@pytest.mark.parametrize("headdim", (257, 1024))
def test_wide_heads(function, device, headdim):
    x = [t if t is None else t.detach() for t in inputs(device, 5, 9, headdim, bias=None)]
    out, lse = function(*x, causal=True, return_lse=True)
    is_attention(dict(out=out, lse=lse), *x, causal=True)


# --- PyTorch's machinery ------------------------------------------------------------------------------------------------


@each
@everywhere
@pytest.mark.parametrize("bias", (None, (1, 4, 20, 37)), ids=("", "bias"))
def test_operators_are_what_they_say_to_pytorch(function, device, bias):
    """Schema, fake tensors, autograd registration, and tracing with dynamic shapes: torch.library's own check."""
    forward, backward = OPERATORS[function]
    x = inputs(device, bias=bias)
    torch.library.opcheck(forward, (*x, True, None, RIGHT))
    x = [t if t is None else t.detach() for t in x]
    out, lse = forward(*x, True, 0.5, RIGHT)
    for wanted in (False, True)[: 1 if bias is None else 2]:
        torch.library.opcheck(backward, (out + 1, *x, out, lse, True, 0.5, RIGHT, wanted))


@each
@everywhere
@pytest.mark.parametrize("dynamic", (False, True), ids=("static", "dynamic"))
def test_compiled_equals_eager(function, device, dynamic):
    """As one graph, without a break; forward and backward, bit for bit."""
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


def test_operators_stand_in_torch_ops():
    names = [f"fa{n}_{what}" for n in (1, 2) for what in ("forward", "backward")]
    assert all(hasattr(torch.ops.flash_attest_cuda, name) for name in names)


def test_a_copy_of_the_package_has_operators_of_its_own(tmp_path):
    """As mutants are: a changed copy must not be what the original calls from then on."""
    shutil.copytree(Path(operators.__file__).parent, tmp_path / "copied_cuda")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from impls.cuda import operators as ours;"
        " from copied_cuda import operators as copied; import torch;"
        " print([o.fa1_forward._qualname for o in (ours, copied)])"
    )
    assert run_python(program) == "['flash_attest_cuda::fa1_forward', 'copied_cuda::fa1_forward']"


@each
@on_a_gpu
def test_the_current_stream_is_used(function):
    """Behind a long wait on a stream of its own: on another stream the kernel would read q before it is written."""
    q, k, v, _ = (x if x is None else x.detach() for x in inputs("cuda", bias=None))
    want = function(q, k, v)
    late, stream = torch.zeros_like(q), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # cycles: some 50 ms
        late.copy_(q)
        got = function(late, k, v)
    stream.synchronize()
    assert_same_bits(got, want)


@each
@on_a_gpu
def test_graph_replayed_on_other_inputs_equals_eager(function):
    x = inputs("cuda")
    dout = randn(2, 20, 4, 16, device="cuda", seed=5)

    def step():
        out = function(*x, causal=True)
        return out, *torch.autograd.grad(out, x, dout)

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        step()  # compiles, which is not allowed while capturing
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in (1, 2):
        with torch.no_grad():
            for n, t in enumerate(x):
                t.copy_(randn(*t.shape, device="cuda", seed=10 * seed + n))
        graph.replay()
        got = [t.clone() for t in captured]
        for mine, other in zip(got, step(), strict=True):
            assert_same_bits(mine, other)


@each
@on_two_gpus
def test_tensors_on_a_second_device(function):
    """While the first is the current one."""
    here, there = inputs("cuda:0"), inputs("cuda:1")
    want, got = function(*here, causal=True), function(*there, causal=True)
    assert torch.cuda.current_device() == 0 and got.device == torch.device("cuda:1")
    assert_same_bits(got.cpu(), want.cpu())
    for mine, other in zip(gradients(got, there), gradients(want, here), strict=True):
        assert_same_bits(mine.cpu(), other.cpu())


# --- refusals -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_launch(monkeypatch):
    def launched(name, what, *arguments):
        raise AssertionError(f"{name}_{what} was called before the arguments were checked")

    monkeypatch.setattr(host, "call", launched)


def zeros(*shape, **how):
    return torch.zeros(*shape, **how)


def of_headdim(headdim, dtype=F32, **how):
    shapes = dict(q=(1, 2, 1, headdim), k=(1, 3, 1, headdim), v=(1, 3, 1, headdim))
    return {name: zeros(*shape, dtype=dtype, **how) for name, shape in shapes.items()}


Q, K = (2, 5, 4, 8), (2, 7, 2, 8)
FULL_BIAS = r"should be \(2 or 1, 4 or 1, 5 or 1, 7\)"
LONG = dict(q=zeros(0, 5, 4, 8), k=zeros(0, 2**30 + 1, 2, 8), v=zeros(0, 2**30 + 1, 2, 8))
# name: (what is given instead, what the message must name)
REFUSED = {
    "q_no_tensor": (dict(q=[1.0]), "q is a list: should be a tensor"),
    "sparse": (dict(q=zeros(*Q).to_sparse()), "q has layout torch.sparse_coo: should be torch.strided"),
    "k_of_3_dimensions": (dict(k=zeros(7, 2, 8)), r"k has shape \(7, 2, 8\): should be \(batch, seqlen, nheads, headdim\)"),
    "seqlen_of_v": (dict(v=zeros(2, 6, 2, 8)), r"k \(2, 7, 2, 8\), v \(2, 6, 2, 8\): k and v should have one shape"),
    "headdim_of_q": (dict(q=zeros(2, 5, 4, 16)), r"q \(2, 5, 4, 16\), k \(2, 7, 2, 8\)"),
    "nheads_no_multiple": (dict(q=zeros(2, 5, 3, 8)), "nheads is 3: should be a multiple of nheads_k, which is 2"),
    "headdim_0": (of_headdim(0), "headdim is 0: should be 1 to 1024$"),
    "headdim_1025": (of_headdim(1025), "headdim is 1025: should be 1 to 1024$"),
    "headdim_257_half": (of_headdim(257, F16), "headdim is 257: should be 1 to 256 in torch.float16$"),
    "headdim_257_grad": (of_headdim(257, requires_grad=True), "headdim is 257: should be 1 to 256 where a gradient is"),
    "too_long": (LONG, "seqlen_k is 1073741825: should be at most 1073741824"),
    "mixed_dtypes": (dict(k=zeros(*K, dtype=F16)), r"q is torch.float32, k torch.float16, v torch.float32"),
    "float64": (of_headdim(8, torch.float64), "q is torch.float64: should be one of torch.float32, torch.float16, torch.bf"),
    "another_device": (dict(k=zeros(*K, device="meta")), "q is on cpu, k is on meta, v is on cpu: should be one device"),
    "meta": (of_headdim(8, device="meta"), "q is on meta: should be on a CPU or CUDA device"),
    "bias_elsewhere": (dict(bias=zeros(2, 4, 5, 7, device="meta")), "bias is on meta"),
    "bias_of_2_dimensions": (dict(bias=zeros(5, 7)), rf"bias has shape \(5, 7\): {FULL_BIAS}"),
    "bias_of_one_key": (dict(bias=zeros(2, 4, 5, 1)), rf"bias has shape \(2, 4, 5, 1\): {FULL_BIAS}"),
    "bias_of_key_heads": (dict(bias=zeros(1, 2, 5, 7)), rf"bias has shape \(1, 2, 5, 7\): {FULL_BIAS}"),
    "bias_of_three_batches": (dict(q=zeros(1, 5, 1, 8), k=zeros(1, 7, 1, 8), v=zeros(1, 7, 1, 8), bias=zeros(3, 1, 5, 7)),
                              r"should be \(1, 1, 5 or 1, 7\), that is"),
    "scale_true": (dict(softmax_scale=np.True_), "softmax_scale is .*True.*: should be a number"),
    "bias_half_for_float32": (dict(bias=zeros(2, 4, 5, 7, dtype=F16)), "bias is torch.float16: should be torch.float32$"),
    "scale_nan": (dict(softmax_scale=math.nan), "softmax_scale is nan"),
    "scale_beyond_float32": (dict(softmax_scale=1e39), r"softmax_scale is 1e\+39"),
    "scale_a_word": (dict(softmax_scale="0.5"), "softmax_scale is '0.5': should be a number"),
    "causal_a_number": (dict(causal=0.125), "causal is 0.125: should be True or False"),
    "alignment": (dict(causal_alignment="top"), "causal_alignment is 'top': should be one of 'bottom_right', 'top_left'"),
}  # fmt: skip


@each
@pytest.mark.parametrize("name", REFUSED)
def test_refuses_before_any_launch_and_names_the_value(function, name, no_launch):
    instead, words = REFUSED[name]
    given = dict(q=zeros(*Q), k=zeros(*K), v=zeros(*K)) | instead
    with pytest.raises(ValueError, match=words):
        function(**given)


@each
@pytest.mark.parametrize("name", ("q", "k", "v", "bias"))
def test_forward_mode_is_refused(function, name, no_launch):
    """PyTorch would give a tangent of zeros (torch.func), or none."""
    given = dict(q=zeros(*Q), k=zeros(*K), v=zeros(*K), bias=zeros(2, 4, 5, 7))
    x = given.pop(name)
    with pytest.raises(NotImplementedError, match=f"^{name} has a tangent: should have none"):
        torch.func.jvp(lambda x: function(**given, **{name: x}), (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=f"^{name} has a tangent: should have none"):
        function(**given, **{name: forward_ad.make_dual(x, x)})


@each
def test_others_may_be_differentiated_in_forward_mode_around_a_call(function):
    x = inputs("cpu", 5, 9, bias=None)
    with forward_ad.dual_level():
        assert_same_bits(function(*x), function(*x))


@each
@pytest.mark.parametrize("dtype", (np.float16, np.float32, np.float64, np.int64))
def test_scale_may_be_a_number_of_numpy(function, dtype):
    x = inputs("cpu", 5, 9, bias=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_bits(function(*x, softmax_scale=dtype(2)), function(*x, softmax_scale=2))


def test_refusals_are_checked_against_a_call_that_is_taken():
    """What they change is the only thing that is wrong."""
    sizes = algorithm.check(zeros(*Q), zeros(*K), zeros(*K), zeros(2, 4, 5, 7), True, 0.5, LEFT)
    assert sizes == (2, 5, 7, 4, 2, 8) and sizes.scores == (2, 4, 5, 7)


@each
@pytest.mark.parametrize(
    ("name", "wrong"),
    [("lse", lambda x: x.half()), ("out", lambda x: x[:, :1]), ("dout", lambda x: x[..., :8]), ("lse", lambda x: None)],
    ids=("lse_half", "out_of_one_row", "dout_of_half_the_columns", "lse_missing"),
)
def test_backward_refuses_what_forward_did_not_give(function, name, wrong, no_launch):
    q, lse = zeros(1, 5, 2, 16), zeros(1, 2, 5)
    given = {"dout": q, "out": q, "lse": lse}
    given[name] = wrong(given[name])
    way = algorithm.Algorithm("fa1" if function is flash_attention_1 else "fa2")
    with pytest.raises(ValueError, match=rf"^{name} is .*should be"):
        way.backward(given["dout"], q, q, q, given["out"], given["lse"])


def beyond(name, device):
    """q, lse, a problem whose head dim is 2000, and what fa1 takes beside."""
    x, s = zeros(1, 4, 2, 8, device=device), zeros(1, 2, 4, device=device)
    numbers = integers(x, x, x, None, None)
    numbers[5] = 2000
    return x, s, numbers, (None, s, s) if name == "fa1" else ()


@pytest.mark.parametrize("name", ("fa1", "fa2"))
def test_what_the_host_function_refuses_is_raised_in_its_words(name):
    """Behind the checks: shared memory that the device lacks, say. Here, a head dim that was let through."""
    x, s, numbers, scratch = beyond(name, "cpu")
    with pytest.raises(RuntimeError, match=r"headdim=2000: should be 1 to 1024"):
        host.call(name, "forward", x, x, x, None, x, *scratch, s, numbers, 1.0)


@on_a_gpu
@pytest.mark.parametrize("name", ("fa1", "fa2"))
def test_what_the_host_function_refuses_on_a_gpu_is_raised_in_its_words(name):
    x, s, numbers, scratch = beyond(name, "cuda")
    with pytest.raises(RuntimeError, match=r"headdim=2000: should be 1 to 1024"):
        host.call(name, "forward", x, x, x, None, x, *scratch, s, numbers, 1.0)
    with pytest.raises(RuntimeError, match="numbers should be on the CPU"):
        host.call(name, "forward", x, x, x, None, x, *scratch, s, numbers.cuda(), 1.0)
    with pytest.raises(RuntimeError, match="statistics and sums should be float32"):
        host.call(name, "forward", x, x, x, None, x, *scratch, s.half(), numbers, 1.0)


# --- declared -----------------------------------------------------------------------------------------------------------


def run_python(program):
    """A fresh interpreter in the checkout -> what it prints."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_compiles_and_loads_nothing():
    """Not even what would compile; and no CUDA context."""
    program = (
        "import sys, torch, impls.cuda; print([m for m in sys.modules if m.startswith('races')],"
        " 'torch.utils.cpp_extension' in sys.modules, torch.cuda.is_initialized())"
    )
    assert run_python(program) == "[] False False"


def test_devices_are_those_with_a_compiler(monkeypatch):
    monkeypatch.setattr(declared, "nvcc", lambda: None)
    no_nvcc = {"cuda": "no nvcc found, which compiles the kernels for CUDA tensors"}
    found = declared.implementations()
    assert all((impl.devices, impl.unavailable) == ({"cpu"}, no_nvcc) and impl.traced for impl in found)
    monkeypatch.setattr(declared, "nvcc", lambda: "/somewhere/nvcc")
    monkeypatch.setattr(declared.shutil, "which", lambda name: None)
    found = declared.implementations()
    no_gxx = {"cpu": "no g++ found, which compiles the kernels for CPU tensors"}
    assert all((impl.devices, impl.unavailable) == ({"cuda"}, no_gxx) and not impl.traced for impl in found)
    monkeypatch.setattr(declared, "nvcc", lambda: None)
    absent = declared.implementations()
    assert [entry.name for entry in absent] == [impl.name for impl in found] == list(declared.NAMES)
    assert all(entry == Absent(entry.name, f"{no_gxx['cpu']}; {no_nvcc['cuda']}") for entry in absent)
    monkeypatch.setenv("CXX", "nosuch")
    assert declared.implementations()[0].reason.startswith("no g++ found (CXX='nosuch'), which compiles")


def test_nothing_is_missing_where_both_compilers_are(monkeypatch):
    monkeypatch.setattr(declared, "nvcc", lambda: "/somewhere/nvcc")
    monkeypatch.setattr(declared.shutil, "which", lambda name: "/somewhere/g++")
    assert all((impl.devices, impl.unavailable) == ({"cpu", "cuda"}, {}) for impl in declared.implementations())


def test_wide_ones_promise_the_head_dims_that_the_others_do_not():
    promised = {impl.name: impl.supports.headdim_list for impl in declared.implementations()}
    whole = list(range(1, contract.LARGEST_HEADDIM + 1))
    assert promised["cuda_fa1"] + promised["cuda_fa1_wide"] == whole
    assert promised["cuda_fa2"] + promised["cuda_fa2_wide"] == whole
