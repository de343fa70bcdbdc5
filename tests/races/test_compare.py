"""Results are compared bit for bit on their device, by torch or by a kernel (emulated here)."""

import math
import subprocess
import sys

import pytest
import torch

from flash_attest.emulator import triton as emulated_triton
from flash_attest.races import compare
from flash_attest.races.compare import Comparison
from tests.places import ROOT


def _kernel():
    """Return the comparison that GPUs use."""
    pytest.importorskip("triton")
    from flash_attest.emulator.triton import activate

    if not activate():
        pytest.skip("TRITON_INTERPRET is set")
    from flash_attest.races.compare_kernel import ByKernel

    return ByKernel


def by(way, first, n):
    """Return a Comparison that uses this way of comparing."""
    result = Comparison(first, n)
    result._compare = way([*result.rows.values()], [*result.counts.values()], result.differed, result.most)
    return result


class OnGpu(Comparison):
    """A Comparison of copies on a GPU, whose addresses the kernel gets."""

    def __init__(self, first, n):
        super().__init__(_on_gpu(first), n)

    def see(self, repeat, results):
        super().see(repeat, _on_gpu(results))

    def elements(self, name):
        return super().elements(name).cpu()


def _on_gpu(tensors):
    return {name: tensor.cuda() for name, tensor in tensors.items()}


@pytest.fixture(params=["torch", "kernel", "gpu"])
def comparison(request):
    """comparison(first, n) makes a Comparison that compares in one of the ways."""
    if request.param == "torch":
        return lambda first, n: by(compare.ByTorch, first, n)
    if request.param == "gpu":
        if not torch.cuda.is_available():
            pytest.skip("there is no GPU")
        if emulated_triton.is_active():
            pytest.skip(
                "kernels run in the emulator in this process: test_a_kernel_compares_on_a_gpu_as_here starts another"
            )
        return OnGpu
    request.getfixturevalue("gxx")
    own = _kernel()
    return lambda first, n: by(own, first, n)


def test_what_compares_on_a_device(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    ways = [compare._way(torch.device(device)).__name__ for device in ("cpu", "cuda")]
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert [*ways, compare._way(torch.device("cuda")).__name__] == ["ByTorch", "ByKernel", "ByTorch"]


def results(**changed) -> dict[str, torch.Tensor]:
    """Return outputs of several dtypes and layouts. One is empty, and one has more than one
    block.
    """
    generator = torch.Generator().manual_seed(0)
    normal = {
        "out": torch.randn(1, 30, 3, 50, generator=generator).half(),
        "lse": torch.randn(1, 3, 30, generator=generator).double(),
        "dq": torch.randn(1, 3, 30, 50, generator=generator).bfloat16().transpose(1, 2),
        "dk": torch.randn(5, generator=generator),
        "dv": torch.empty(0, 2),
    }
    return normal | changed


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_kernel_compares_on_a_gpu_as_here():
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", __file__, "-k", "[gpu"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0 and "skipped" not in ended.stdout.splitlines()[-1], ended.stdout


def test_equal_results_show_nothing(comparison):
    result = comparison(results(lse=torch.full((3,), math.nan)), 2)
    for repeat in range(2):
        result.see(repeat, results(lse=torch.full((3,), math.nan)))
    assert result.which() == {} and not any(result.elements(name).any() for name in results())


def test_what_differs_is_counted_by_element(comparison):
    first, second = results(), {name: tensor.clone() for name, tensor in results().items()}
    second["out"][0, 29, 2, 3] += 0.5
    second["dq"][0, 7, 1, 2:4] += 2
    third = second | {"out": first["out"]}
    result = comparison(first, 3)
    for repeat, seen in enumerate((first, second, third)):
        result.see(repeat, seen)
    assert result.which() == {"out": [1], "dq": [1, 2]}
    assert result.elements("out").nonzero().tolist() == [[0, 29, 2, 3]]
    assert result.elements("dq").nonzero().tolist() == [[0, 7, 1, 2], [0, 7, 1, 3]] and result.elements("dq").max() == 2
    assert 0.49 < result.largest("out") < 0.51 and 1.9 < result.largest("dq") < 2.1


def test_a_difference_in_float64_that_float32_does_not_have_has_a_size(comparison):
    lse = torch.ones(1, 3, 30, dtype=torch.float64)
    result = comparison(results(lse=lse), 1)
    result.see(0, results(lse=lse + 1e-9))
    assert 0.9e-9 < result.largest("lse") < 1.1e-9


@pytest.mark.parametrize("name", ["out", "lse", "dq", "dk"])
def test_a_bit_is_a_difference_in_every_dtype(comparison, name):
    second = results()
    second[name] = second[name].clone()
    at = (0,) * second[name].dim()
    second[name][at] = torch.nextafter(second[name][at].float(), torch.tensor(9.0)) if name == "dk" else 9.0
    result = comparison(results(), 1)
    result.see(0, second)
    assert result.which() == {name: [0]} and result.elements(name).sum() == 1


def test_the_sign_of_zero_and_nan_are_differences(comparison):
    first = {"out": torch.zeros(4), "lse": torch.zeros(4)}
    result = comparison(first, 1)
    result.see(0, {"out": -torch.zeros(4), "lse": torch.tensor([0, math.nan, 0, 0])})
    assert result.which() == {"out": [0], "lse": [0]}
    assert (result.largest("out"), result.largest("lse")) == (0.0, math.inf) and result.elements("lse").tolist() == [
        0,
        1,
        0,
        0,
    ]


def test_results_may_be_stored_in_another_order_than_the_first(comparison):
    first = {"out": torch.arange(6.0).view(2, 3)}
    result = comparison(first, 1)
    result.see(0, {"out": torch.arange(6.0).view(2, 3).T.contiguous().T})
    assert result.which() == {}


def test_the_first_result_is_kept(comparison):
    first = {"out": torch.zeros(4)}
    result = comparison(first, 1)
    first["out"] += 1
    result.see(0, first)
    assert result.which() == {"out": [0]} and result.elements("out").tolist() == [1, 1, 1, 1]


def test_dense_memory_is_not_copied():
    """Copying each result would cost more than comparing it."""
    tensor = torch.zeros(2, 5, 3, 4).transpose(1, 2)
    assert compare.Dense(tensor).stored(tensor) is tensor


def test_a_kernel_is_compiled_once_for_cases_of_any_size(gxx):
    own = _kernel()
    from flash_attest.races.compare_kernel import compare_kernel

    compiled = set()
    for n in (64, 17, 1, 4097):
        result = by(own, {"out": torch.zeros(n), "lse": torch.zeros(n)}, 20)
        for repeat in (0, 1, 2, 16):
            result.see(repeat, {"out": torch.zeros(n), "lse": torch.zeros(n)})
        compiled.add(tuple(len(caches[0]) for caches in compare_kernel.device_caches.values()))
    assert len(compiled) == 1


def test_results_that_are_not_aligned_are_compared_by_a_kernel_for_them(gxx):
    """The compiled kernel that a repeat launches may require pointers that are multiples of 16."""
    first = {"out": torch.arange(5000.0)}
    result = by(_kernel(), first, 4)
    unaligned = torch.empty(5001)[1:]
    unaligned.copy_(first["out"])
    for repeat, seen in enumerate((first["out"], unaligned, first["out"], unaligned)):
        result.see(repeat, {"out": seen})
    assert result._compare.launch is not None and result.which() == {}
    unaligned[4999] += 1
    result.see(3, {"out": unaligned})
    assert result.which() == {"out": [3]} and result.elements("out").nonzero().tolist() == [[4999]]
