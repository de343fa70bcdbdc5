"""Torch's answers while its GPU is emulated. They end with the block."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
import threading
import warnings

import pytest
import torch

from flash_attest.emulator import guards
from flash_attest.emulator.answers import memory
from flash_attest.emulator.errors import NotCovered
from tests.places import ROOT
from tests.runs import python

GPU = torch.device("cuda", 0)
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU answers for itself")
pytestmark = needs_no_gpu


@pytest.fixture
def gpu():
    with guards.as_cuda():
        yield


def places(*tensors):
    return [str(x.device) for x in tensors]


def test_all_ways_to_make_a_tensor_on_the_gpu(gpu):
    x = torch.ones(2, device="cuda")
    half = torch.ones(2).to(device=GPU, dtype=torch.half)
    tensors = [
        torch.randn(2, device="cuda"), torch.zeros(2, device=GPU), torch.arange(3, device=0),
        torch.tensor([1], device="cuda:0"), torch.ones(2).cuda(), torch.ones(2).to("cuda"), torch.ones(2).to(0), half,
        torch.ones(2).to(x), torch.empty_like(torch.ones(2), device="cuda"), x.new_zeros(3), torch.zeros_like(x), x + 1, x[0],
        torch.ones(2).type("torch.cuda.HalfTensor"), torch.cuda.FloatTensor([1.0]), torch.eye(2, device="cuda")[1:],
        torch.fft.fftfreq(4, device="cuda"), torch.as_tensor([1.0], device="cuda"), torch.randperm(4, device="cuda"),
        torch.ones(2).pin_memory().cuda(non_blocking=True), torch.empty(2, device="cuda", pin_memory=True),
    ]  # fmt: skip
    assert set(places(*tensors)) == {"cuda:0"} and all(each.is_cuda and each.get_device() == 0 for each in tensors)
    assert half.dtype == torch.half and x.type() == "torch.cuda.FloatTensor"


def test_all_ways_to_make_a_tensor_on_the_host(gpu):
    x = torch.ones(2, device="cuda")
    tensors = [
        torch.randn(2), torch.zeros(2, device="cpu"), x.cpu(), x.to("cpu"), x.to(torch.device("cpu"), torch.half),
        torch.from_numpy(torch.ones(2).numpy()), torch.zeros_like(torch.ones(2)), torch.ones(2).new_ones(2), torch.ones(2)[0],
        torch.empty_like(x, device="cpu"), torch.tensor(3), torch.ones(2).detach(), torch.ones(2).half(), x.cpu().data,
    ]  # fmt: skip
    # half() is an operator of torch, which does not report the tensors that it makes: they count as
    # on the GPU.
    assert places(*tensors) == ["cuda:0" if each is tensors[12] else "cpu" for each in tensors]
    assert not tensors[0].is_cuda and tensors[0].get_device() == -1


def test_a_move_copies_only_between_host_and_gpu(gpu):
    host, x = torch.ones(2), torch.ones(2, device="cuda")
    moved = host.cuda()
    moved += 1
    assert host.tolist() == [1, 1]
    back = x.cpu()
    back += 1
    assert x.tolist() == [1, 1]
    assert x.cuda() is x and x.to("cuda") is x and host.cpu() is host and host.to("cpu") is host
    leaf = torch.ones(2, requires_grad=True)
    leaf.cuda().sum().backward()
    assert leaf.grad.tolist() == [1, 1]


def test_meta_tensors_stay_meta(gpu):
    x = torch.ones(2, device="meta")
    assert places(x, torch.zeros_like(x), x.to("meta"), torch.ones(2, device="cuda").to("meta")) == ["meta"] * 4


def test_a_device_is_torchs_own_and_compares_as_with_a_gpu(gpu):
    x = torch.ones(2, device="cuda")
    assert isinstance(x.device, torch.device) and x.device == GPU and x.device.type == "cuda" and x.device.index == 0
    assert x.device == (x + 1).device and x.device != torch.device("cpu")
    assert x.device != torch.device("cuda")  # as on a GPU: one has an index, the other has none


def test_there_is_one_gpu(gpu):
    for ask in (
        lambda: torch.ones(2, device="cuda:1"),
        lambda: torch.ones(2).to("cuda:1"),
        lambda: torch.ones(2).cuda(1),
        lambda: torch.cuda.device(1),
    ):
        with pytest.raises(RuntimeError, match="cuda:1: the emulated machine has one GPU"):
            ask()


@pytest.mark.parametrize("name", ["max_memory_allocated", "memory_allocated", "CUDAGraph", "graph", "memory_summary"])
def test_what_has_no_answer_says_its_name(gpu, name):
    with pytest.raises(NotCovered, match=rf"torch\.cuda\.{name} has no answer where the GPU is emulated"):
        getattr(torch.cuda, name)()


def test_tensors_survive_copies_pickles_and_files(gpu):
    x = torch.arange(3.0, device="cuda", requires_grad=True)
    file = io.BytesIO()
    torch.save({"x": x}, file)
    for map_location in (None, "cuda", "cuda:0", {"cuda:0": "cuda"}):
        file.seek(0)
        assert torch.load(file, map_location=map_location)["x"].is_cuda
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), torch.nn.Parameter(x)):
        assert twin.is_cuda and twin.requires_grad and torch.equal(twin, x)
    assert pickle.loads(pickle.dumps(x.device)) == x.device


def test_modules_are_moved(gpu):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    everything = [*module.parameters(), *module.buffers()]
    assert not any(x.is_cuda for x in everything)
    module.cuda()
    assert all(x.is_cuda for x in (*module.parameters(), *module.buffers()))
    assert torch.nn.Linear(2, 2, device="cuda").weight.is_cuda
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.randn(4, 3, device="cuda")).sum().backward()
    optimizer.step()
    module.to("cpu")
    assert torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0) > 0


def test_default_devices(gpu):
    with torch.device("cuda"):
        assert set(places(torch.ones(2), torch.nn.Linear(2, 2).weight, torch.tensor(1.0))) == {"cuda:0"}
        assert torch.ones(2, device="cpu").device.type == "cpu"
    torch.set_default_device("cuda")
    try:
        assert torch.ones(2).is_cuda and torch.get_default_device() == GPU
    finally:
        torch.set_default_device(None)
    assert not torch.ones(2).is_cuda and torch.get_default_device().type == "cpu"


def test_random_numbers(gpu):
    state = torch.cuda.get_rng_state()
    first = torch.randn(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, torch.randn(3, device="cuda"))
    for seed in (torch.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all):
        seed(7)
        again = torch.randn(3, device="cuda")
        seed(7)
        assert torch.equal(again, torch.randn(3, device="cuda"))
    generator = torch.Generator("cuda").manual_seed(3)
    assert isinstance(generator, torch.Generator) and isinstance(torch.default_generator, torch.Generator)
    assert generator.device == GPU and torch.Generator().device.type == "cpu"
    one = torch.randn(3, device="cuda", generator=generator)
    assert torch.equal(one, torch.randn(3, device="cuda", generator=torch.Generator(device="cuda").manual_seed(3)))


def test_autocast(gpu):
    x = torch.randn(4, 4, device="cuda")
    with torch.autocast("cuda"):
        assert (x @ x).dtype == torch.float16 and torch.is_autocast_enabled("cuda")
        with torch.autocast("cuda", enabled=False):
            assert (x @ x).dtype == torch.float32
        with torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16):
            assert (x @ x).dtype == torch.bfloat16 and torch.get_autocast_dtype("cuda") == torch.bfloat16
    assert (x @ x).dtype == torch.float32 and not torch.is_autocast_enabled("cuda")


def test_streams_and_events(gpu):
    stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        event.record(stream)
    stream.wait_event(event)
    torch.cuda.current_stream().wait_stream(stream)
    end = torch.cuda.current_stream().record_event()
    assert stream.query() and event.query() and event.elapsed_time(end) > 0 and stream == torch.cuda.default_stream()
    torch.ones(2, device="cuda").record_stream(stream)
    with pytest.raises(RuntimeError, match="both events should be recorded"):
        torch.cuda.Event().elapsed_time(end)


def test_compiled_and_scripted_functions_run(gpu):
    x = torch.ones(3, device="cuda")
    assert torch.equal(torch.compile(lambda x: x + torch.ones(3, device=x.device) if x.is_cuda else None)(x), x + 1)

    @torch.compile(dynamic=True)
    def twice(x):
        return 2 * x

    assert torch.equal(twice(x), 2 * x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that scripts are deprecated
        script = torch.jit.CompilationUnit("def f(x):\n    return x + torch.zeros(3) + torch.ones_like(x)\n")
    assert torch.equal(script.f(x), x + 1)


def test_checkpoints_and_double_backward(gpu):
    x = torch.randn(3, device="cuda", requires_grad=True)
    torch.utils.checkpoint.checkpoint(
        lambda x: (x * torch.ones_like(x, device=x.device)).sin(), x, use_reentrant=False
    ).sum().backward()
    assert torch.allclose(x.grad, x.detach().cos())
    assert torch.autograd.gradgradcheck(
        lambda x: x**3, torch.rand(3, dtype=torch.float64, device="cuda", requires_grad=True)
    )


def test_backward_runs_where_torch_has_a_gpu_in_another_thread_too(gpu):
    seen = []

    class Asks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, dout):
            seen.append(dout.is_cuda)
            return dout

    x = torch.ones(2, device="cuda", requires_grad=True)
    thread = threading.Thread(target=lambda: Asks.apply(x).sum().backward())
    thread.start()
    thread.join()
    assert seen == [True] and x.grad.is_cuda


def test_a_kernel_for_cuda_comes_before_the_cpus(gpu):
    library = torch.library.Library("test_emulate", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("thrice(Tensor x) -> Tensor")
    for key, factor in (("CPU", 0), ("CUDA", 2), ("CPU", 0)):
        library.impl("twice", lambda x, factor=factor: factor * x, key)
    torch.library.Library("test_emulate", "IMPL", "CUDA").impl("thrice", lambda x: 3 * x)
    x = torch.ones(2, device="cuda")
    assert torch.ops.test_emulate.twice(x).tolist() == [2, 2]
    torch.library.register_kernel("test_emulate::thrice", "cuda", lambda x: 4 * x)
    assert torch.ops.test_emulate.thrice(x).tolist() == [4, 4]


def test_an_operator_of_torch_is_not_replaced(gpu):
    with pytest.raises(NotCovered, match=r"aten::add\.Tensor for CUDA"):
        torch.library.Library("aten", "IMPL", "CUDA").impl("add.Tensor", lambda x, y: x)


def test_the_suite_is_told_the_truth_and_what_it_makes_is_on_the_gpu(gpu):
    module = {"__name__": "flash_attest.made_up", "torch": torch}
    exec(
        "x = [torch.ones(2), torch.ones(2, device='cpu'), torch.from_numpy(torch.ones(2).numpy()), torch.ones(2).cpu()]\n"
        "seen = torch.cuda.is_available(), torch.cuda.device_count(), x[0].is_cuda, x[0].device.type\n",
        module,
    )
    assert module["seen"] == (False, 0, False, "cpu")
    assert all(x.is_cuda for x in module["x"]) and torch.cuda.is_available()


def test_a_tensor_that_hides_its_storage_is_on_the_gpu(gpu):
    seen = []
    host, x = torch.ones(3, 2), torch.ones(3, 2, device="cuda")
    torch.func.vmap(lambda row: seen.append(row.is_cuda) or row.sum())(x)
    assert seen == [True] and not host.is_cuda


def test_freed_tensors_of_the_host_are_forgotten(gpu, monkeypatch):
    monkeypatch.setattr(memory, "_most", 10)
    monkeypatch.setattr(memory, "_host", {})
    tensors = [torch.ones(1) for _ in range(5)]
    for _ in range(100):
        torch.ones(1)
    assert len(memory._host) <= 11 and not any(x.is_cuda for x in tensors)
    tensors += [torch.ones(1) for _ in range(100)]
    assert memory._most > 10 and not any(x.is_cuda for x in tensors)


def test_nothing_stays_behind():
    owners = [owner for owner, _ in guards.ANSWERS]
    before = [dict(vars(owner)) for owner in owners]
    x = torch.ones(3)
    with guards.as_cuda():
        y = torch.ones(3, device="cuda")
        with guards.as_cuda():
            assert x.is_cuda and y.is_cuda and torch.cuda.is_available()
        assert x.is_cuda and torch.cuda.is_available()
    assert [dict(vars(owner)) for owner in owners] == before
    assert places(x, y) == ["cpu", "cpu"] and not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.empty(3, device="cuda")


def test_blocks_of_two_threads_overlap():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with guards.as_cuda():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with guards.as_cuda():
        thread.start()
        assert inside.wait(60)
    assert torch.cuda.is_available()  # the other block has not ended
    leave.set()
    thread.join()
    assert not torch.cuda.is_available()


def new_python(code: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


def test_importing_it_imports_no_torch():
    code = (
        "import sys, flash_attest.emulated; from flash_attest import emulate, trace, assert_race_free; "
        "print('torch' in sys.modules)"
    )
    assert new_python(code).stdout == "False\n"


def test_emulate_answers_for_the_process_and_for_what_is_imported_later(gxx):
    pytest.importorskip("triton")
    done = new_python(
        "from flash_attest import emulate\n"
        "assert emulate() and emulate()\n"
        "import torch, triton\n"
        "x = torch.ones(3, device='cuda')\n"
        "assert x.is_cuda and triton.runtime.driver.active.get_active_torch_device() == x.device\n"
        "from flash_attest.emulation import emulated\n"
        "with emulated(): pass\n"
        "assert torch.cuda.is_available()\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_as_gpu_torch_is_left_alone():
    program = (
        "from flash_attest import emulate\nassert emulate(as_gpu=False)\n"
        "import torch\nassert not torch.cuda.is_available()\n"
    )
    done = python("-c", program)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "name, whose", [("TRITON_INTERPRET", "Triton's interpreter"), ("NUMBA_ENABLE_CUDASIM", "Numba's simulator")]
)
def test_simulators_of_others_are_warned_of(name, whose):
    done = python("-c", "from flash_attest import emulate\nemulate()\n", **{name: "1"})
    assert f"RuntimeWarning: {name}=1: {whose} runs its kernels instead of the emulator" in done.stderr
