"""Perturbations: which are chosen, when each is active, and how each affects a launch."""

import time
from collections import Counter
from contextlib import ExitStack, nullcontext
from itertools import combinations, islice

import pytest
import torch

from flash_attest.races.perturb import ALL, Perturbation, Setting, chosen, gpu, order, rounds
from flash_attest.races.poison import current

ON_CPU = ["other_case", "poison", "order"]
ON_GPU = ["other_case", "cold", "stress", "squeezed", "poison", "shifted", "producer"]


@pytest.fixture
def with_triton(monkeypatch):
    """Make every perturbation available, as if Triton were installed."""
    for name in ("stress", "squeezed", "producer"):
        object.__setattr__(ALL[name], "lacking", lambda: "")
    yield
    for name in ("stress", "squeezed", "producer"):
        object.__setattr__(ALL[name], "lacking", gpu._lacking)


def names(perturbations) -> list[str]:
    return [each.name for each in perturbations]


# --- chosen ---------------------------------------------------------------------------------------


def test_nothing_said_means_all_of_the_device(with_triton):
    assert (names(chosen("", "cpu")), names(chosen("", "cuda"))) == (ON_CPU, ON_GPU)


def test_what_orders_threads_acts_in_the_emulator_only():
    assert names(chosen("", "cpu", emulated=False)) == ["other_case", "poison"]
    assert names(chosen("order,poison", "cpu", emulated=False)) == ["poison"]


@pytest.mark.parametrize(
    ("text", "expected"), [("none", []), ("cold", ["cold"]), (" poison , cold,", ["cold", "poison"])]
)
def test_names_are_chosen_in_the_order_in_which_they_are_applied(text, expected):
    assert names(chosen(text, "cuda")) == expected


@pytest.mark.parametrize(
    ("text", "device", "words"),
    [
        (
            "cold,colder",
            "cuda",
            "colder: no perturbation; those are other_case .a call of .* runs in between., cold .*, and none",
        ),
        ("stress,cold", "cpu", "stress, cold: not on cpu; there are other_case, poison, order"),
        ("none,cold", "cuda", "none,cold: none stands alone"),
    ],
)
def test_bad_names_are_errors_that_list_the_known(text, device, words):
    with pytest.raises(ValueError, match=words):
        chosen(text, device)


def test_what_lacks_something_is_left_out_unless_it_is_named(monkeypatch):
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    assert names(chosen("", "cuda")) == ["other_case", "cold", "poison", "shifted"]
    with pytest.raises(ValueError, match="stress: Triton is not installed"):
        chosen("stress", "cuda")


@pytest.mark.parametrize(("blocking", "there"), [("1", False), ("0", True), ("", True)])
def test_nothing_runs_beside_launches_that_block(monkeypatch, blocking, there):
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", blocking)
    late = {"stress", "squeezed", "producer"}
    assert late & {*names(chosen("", "cuda"))} == (late if there else set())
    if not there:
        with pytest.raises(ValueError, match="squeezed: CUDA_LAUNCH_BLOCKING is set"):
            chosen("squeezed", "cuda")


# --- rounds ---------------------------------------------------------------------------------------


def some(n: int, slots: int = 1) -> list[Perturbation]:
    return [Perturbation("abcdefgh"[k], "", None, slots=slots) for k in range(n)]


def test_each_round_has_each_as_often_as_it_has_slots_and_one_launch_without_any():
    own = [*some(3), Perturbation("z", "", None, slots=3)]
    results = [names(active) for active in islice(rounds(own, 1), 7 * 300)]
    for start in range(0, len(results), 7):
        assert results[start : start + 7].count([]) == 1
    counts = Counter(name for active in results for name in active)
    assert min(counts[name] for name in "abc") >= 300 and counts["z"] >= 900


@pytest.mark.parametrize("seed", range(5))
def test_each_is_active_alone_and_each_pair_together(seed):
    results = [tuple(names(active)) for active in islice(rounds(some(7), seed), 400)]
    assert {(name,) for name in "abcdefg"} | set(combinations("abcdefg", 2)) | {()} <= set(results)
    assert max(map(len, results)) > 2


def test_a_seed_is_one_schedule():
    def drawn(seed):
        return [names(active) for active in islice(rounds(some(5), seed), 60)]

    assert drawn(3) == drawn(3) != drawn(4)


def test_none_chosen_are_none_active():
    assert set(islice(rounds([], 0), 5)) == {()}


# --- what each does -------------------------------------------------------------------------------


def test_poison_fills_fresh_memory_and_says_so_to_a_kernel_process():
    seen = set()
    for repeat in range(12):
        with ALL["poison"].applied(Setting("cpu", repeat, 0, nbytes=[64])):
            seen.add(bytes(torch.empty(4).view(torch.uint8).tolist()))
            assert current()[1:] == ("cpu", [64])
    assert seen == {bytes([pattern]) * 16 for pattern in (0x7F, 0xFF, 0x00)} and current() is None


def test_a_call_with_other_values_runs_before_the_launch():
    calls = []
    with ALL["other_case"].applied(Setting("cpu", 0, 0, other=lambda: calls.append("other"))):
        calls.append("launch")
    assert calls == ["other", "launch"]


def test_threads_are_switched_at_accesses_unless_that_takes_long(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        order, "ordered", lambda seed, switch, by_warp: drawn.append((switch, by_warp)) or nullcontext()
    )
    for large in (False, True):
        for repeat in range(40):
            ALL["order"].applied(Setting("cpu", repeat, 0, large=large))
    ways = {(0.0, False), (0.0, True)}
    assert ({*drawn[:40]}, {*drawn[40:]}) == (ways | {(order.SWITCH, False)}, ways)


def test_moved_inputs_are_equal_and_lie_elsewhere():
    packed = torch.arange(120.0).view(2, 5, 3, 4)[:, :, 1]
    setting = Setting("cpu", 0, 0, handed={"q": packed, "k": torch.arange(3.0), "none": torch.empty(0, 4)})
    before = dict(setting.handed)
    with ALL["shifted"].applied(setting):
        for name, tensor in setting.handed.items():
            assert torch.equal(tensor, before[name]) and tensor.stride() == before[name].stride()
        offsets = [setting.handed[name].storage_offset() * 4 for name in ("q", "k")]
    assert all(offset > 0 and offset % 64 == 0 for offset in offsets) and len(set(offsets)) == 2


def test_an_expanded_input_is_not_moved():
    expanded = torch.ones(1, 4).expand(3, 4)
    assert (
        not gpu.is_dense(expanded)
        and gpu.is_dense(expanded.contiguous())
        and gpu.is_dense(torch.ones(1, 4).expand(1, 4))
    )


def test_memory_before_it_is_written_leads_nowhere():
    """It is NaN. Lengths and numbers of pages are 0, with which no kernel faults."""
    floats, lengths = (gpu.unwritten(torch.ones(2, 3, dtype=dtype).T) for dtype in (torch.float16, torch.int32))
    assert floats.isnan().all() and (lengths == 0).all() and lengths.dtype == torch.int32
    assert floats.stride() == lengths.stride() == (1, 3)


def test_inputs_are_written_late(monkeypatch, gxx):
    """The inputs are NaN until the pause is over. A launch on another stream would read the NaN."""
    beside = kernels()
    setting, q = Setting("cpu", 0, 0, handed={"q": torch.ones(4)}), torch.ones(4)
    waited = []

    def wait(device, nanoseconds):
        waited.append(nanoseconds)

    monkeypatch.setattr(beside, "launch_wait", wait)
    monkeypatch.setattr(gpu, "moved", lambda tensor, n: waited.append("moved") or torch.empty_like(tensor))
    with ALL["producer"].applied(setting):
        assert torch.equal(setting.handed["q"], q)
    assert waited[0] == "moved" and gpu.SHORTEST <= waited[1] <= gpu.LONGEST


def kernels():
    """Return the module of the kernels that run beside a launch. They run in the emulator here."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("in this process, Triton's kernels run on the GPU")
    from flash_attest.emulator.triton import activate

    if not activate():
        pytest.skip("TRITON_INTERPRET is set")
    from flash_attest.races.perturb import beside

    return beside


@pytest.mark.parametrize("done", [0, 1])
def test_what_runs_beside_a_launch_ends_with_it_or_after_its_time(gxx, done):
    """A block must not occupy an SM forever if nothing tells it that the launch has ended."""
    beside = kernels()
    flag = torch.full((1,), done, dtype=torch.int32)
    nanoseconds = 10**15 if done else 50_000  # with 10**15 it returns only because of the flag
    beside.launch_hold(flag, 2, nanoseconds)
    beside.launch_work(flag, 2, torch.ones(4096), nanoseconds)
    if not done:
        beside.launch_wait("cpu", nanoseconds)
    assert flag.item() == done


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("active", [*([name] for name in ON_GPU), ON_GPU], ids="+".join)
def test_on_a_gpu_a_launch_gives_the_same_and_what_runs_beside_it_ends(active):
    q = torch.randn(512, 512, device="cuda")
    want = q @ q

    def launched(repeat: int) -> torch.Tensor:
        setting = Setting("cuda", repeat, 0, handed={"q": q}, nbytes=[q.nbytes], other=lambda: q @ q.T)
        with ExitStack() as around:
            for name in active:
                around.enter_context(ALL[name].applied(setting))
            return setting.handed["q"] @ setting.handed["q"]

    launched(0)  # compiles
    torch.cuda.synchronize()
    began = time.perf_counter()
    results = [launched(repeat) for repeat in range(20)]
    torch.cuda.synchronize()
    assert all(torch.equal(result, want) for result in results)
    assert time.perf_counter() - began < 2.0  # far more than 20 times the longest time that anything runs beside
