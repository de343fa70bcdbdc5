"""Runs the emulator beside a GPU: both run each launch of an implementation's drawn cases, from the
same memory.

python -m tests.emulator.ptx.beside_gpu --impl triton_fa2 --cases 200

The GPU gets the same PTX that the emulator runs (made for sm_80, or for sm_90 with
FLASH_ATTEST_EMULATED=90; the driver compiles it for the present GPU). For each kernel, a line says
how many launches left the same bits in all memory that they can reach. For each output of the
implementation, a line says how far both are from the oracle. The exit status is 1 if a result of
either is beyond the budget, or if a kernel without approximate instructions and matrix products
differs in a bit.

--products compares single wgmmas on random numbers instead: how far the GPU's sums are from the
exact ones, and from the emulator's.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import torch

from flash_attest.emulator.ptx import load
from tests.emulator.ptx.warpgroups import (
    AT_A,
    AT_B,
    MEMORY,
    TYPES,
    Operand,
    Product,
    accumulators,
    fragments,
    matrix,
    put,
)

PRODUCTS = (("f16", "f32"), ("bf16", "f32"), ("tf32", "f32"), ("f16", "f16"))  # types of A and B, and of D
# For these the PTX manual gives only bounds, or none: approximations, and the order of a matrix
# product's sum.
INEXACT = re.compile(
    r"\b(?:mma|wmma)\.sync|\bwgmma\.mma_async|\.approx\b|\bdiv\.full|\b(?:atom|red)\.\S*\.f(?:16|32|64)"
)


@dataclass
class Compared:
    """The results of one kernel's launches."""

    launches: int = 0
    equal: int = 0
    elements: int = 0  # 32-bit words that either has changed
    differing: int = 0
    inexact: set[str] = field(default_factory=set)  # its instructions that may differ


class Gpu:
    """Launches kernels of emulator.ptx on the GPU, through the driver."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        torch.zeros(1, device="cuda")  # makes the context
        self.driver = driver
        self.loaded: dict[tuple[str, str], object] = {}

    def checked(self, answer: tuple) -> object:
        error, *values = answer
        if error != self.driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"CUDA driver: {error.name}")
        return values[0] if values else None

    def function(self, module, name: str, shared: int):
        key = (module.decoded.key, name)
        if key not in self.loaded:
            library = self.checked(self.driver.cuModuleLoadData(module.text.encode() + b"\0"))
            self.loaded[key] = self.checked(self.driver.cuModuleGetFunction(library, name.encode()))
        function = self.loaded[key]
        limit = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        if shared > 48 * 1024:
            self.checked(self.driver.cuFuncSetAttribute(function, limit, shared))
        return function

    def configured(self, grid, block, shared: int, cluster):
        """Return the configuration of a launch."""
        config = self.driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = three(grid)
        config.blockDimX, config.blockDimY, config.blockDimZ = three(block)
        config.sharedMemBytes = shared
        if cluster is not None:
            attribute = self.driver.CUlaunchAttribute()
            attribute.id = self.driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            sizes = attribute.value.clusterDim
            sizes.x, sizes.y, sizes.z = three(cluster)
            config.attrs, config.numAttrs = [attribute], 1
        return config

    def launch(
        self, kernel, grid, block, shared: int, arguments: tuple, names, cluster=None
    ) -> dict[int, torch.Tensor]:
        """Run the kernel on copies of the arguments' storages. cluster: 1 to 3 sizes in blocks.

        Returns {address of a storage: its bytes afterwards}.
        """
        tensors = [getattr(a, "tensor", a) for a in arguments]
        copies = {at: memory.cuda() for at, memory in storages_of(arguments).items()}
        packed = bytearray(kernel._packed(arguments, names))
        for parameter, argument, tensor in zip(kernel.parameters, arguments, tensors, strict=True):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage().data_ptr()
                address = copies[storage].data_ptr() + tensor.data_ptr() - storage if tensor.numel() else 0
                encoded = argument.encoded(address) if tensor is not argument else address.to_bytes(8, "little")
                packed[parameter.offset : parameter.offset + parameter.size] = encoded
        memory = (ctypes.c_ubyte * (len(packed) + 64))()
        start = -ctypes.addressof(memory) % 64 + ctypes.addressof(memory)  # as a tensor map requires
        ctypes.memmove(start, bytes(packed), len(packed))
        starts = [start + p.offset for p in kernel.parameters]
        pointers = (ctypes.c_void_p * max(1, len(starts)))(*starts)
        function = self.function(kernel.module, kernel.name, shared)
        config = self.configured(grid, block, shared, cluster)
        self.checked(self.driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0))
        self.checked(self.driver.cuCtxSynchronize())
        return {at: copy.cpu() for at, copy in copies.items()}


def three(sizes) -> tuple[int, int, int]:
    """Return 1 to 3 sizes as three."""
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    return (*given, *(1,) * (3 - len(given)))


def storages_of(arguments: tuple) -> dict[int, torch.Tensor]:
    """Return {address: bytes} of the storages that the arguments of a launch can reach."""
    tensors = (getattr(argument, "tensor", argument) for argument in arguments)
    return {t.untyped_storage().data_ptr(): bytes_of(t) for t in tensors if isinstance(t, torch.Tensor)}


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole storage of a tensor, as bytes, without a copy."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


@contextmanager
def launches_beside(gpu: Gpu, compared: dict[str, Compared], keep_gpu: Callable[[], bool]) -> Iterator[None]:
    """Repeat each launch in the emulator on the GPU. keep_gpu() says whether the caller gets the
    GPU's memory or the emulator's.
    """
    from flash_attest.emulator.ptx import module

    emulated = module.Kernel._call

    def call(kernel, grid, block, shared, limit, arguments, names, cluster) -> None:
        names = kernel._names(arguments, names)
        tensors = [t for t in (getattr(a, "tensor", a) for a in arguments) if isinstance(t, torch.Tensor)]
        before = {at: memory.clone() for at, memory in storages_of(arguments).items()}
        theirs = gpu.launch(kernel, grid, block, shared, arguments, names, cluster)
        emulated(kernel, grid, block, shared, limit, arguments, names, cluster)
        seen = compared[kernel.name]
        seen.launches += 1
        seen.inexact |= set(INEXACT.findall(kernel.module.text))
        same = True
        for tensor in {t.untyped_storage().data_ptr(): t for t in tensors}.values():
            at, ours = tensor.untyped_storage().data_ptr(), bytes_of(tensor)
            changed = (ours != before[at]) | (theirs[at] != before[at])
            differ = (ours != theirs[at]) & ~both_nan(ours, theirs[at], tensor)
            same &= not bool(differ.any())
            seen.elements += int(changed.sum()) // tensor.element_size()
            seen.differing += elements(differ, tensor.element_size())
            if keep_gpu() and bool(differ.any()):
                ours.copy_(theirs[at])
        seen.equal += same

    with mock.patch.object(module.Kernel, "_call", call):
        yield


def elements(differ: torch.Tensor, width: int) -> int:
    """Return how many elements of `width` bytes have a differing byte."""
    whole = differ[: differ.numel() // width * width].view(-1, width)
    return int(whole.any(1).sum())


def both_nan(a: torch.Tensor, b: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Mark bytes of elements that are NaN in both, because the manual leaves a NaN's bits open."""
    width = like.element_size()
    whole = a.numel() // width * width
    result = torch.zeros_like(a, dtype=torch.bool)
    if like.is_floating_point():
        nan = a[:whole].view(like.dtype).isnan() & b[:whole].view(like.dtype).isnan()
        result[:whole] = nan.repeat_interleave(width)
    return result


def compare(name: str, cases: int, seed: int) -> bool:
    """Print the results, and return whether all of them are as they should be."""
    from flash_attest.impls.contract import registry
    from flash_attest.oracle import score
    from flash_attest.properties.cases.drawing import Drawing
    from flash_attest.properties.cases.draws import Draws
    from flash_attest.properties.cases.strategies import attention_cases
    from flash_attest.properties.checks.comparisons import stored_dtype
    from flash_attest.properties.trial import Trial

    impl = registry.select(registry.ours(), name)[0].impl
    compared: dict[str, Compared] = defaultdict(Compared)
    worst: dict[str, list[float]] = {}
    outcome = {"cases": 0, "equal": 0, "beyond": 0}
    keep, gpu = [False], Gpu()

    def judge(case) -> None:
        results = []
        for keep[0] in (False, True):
            trial = Trial(impl, case, "cpu")
            results.append(trial.run(backward=bool(impl.backward)))
        want = trial.want(backward=bool(impl.backward))
        budget = trial.budget(want, backward=bool(impl.backward))
        ours, theirs = (dict(got.items()) for got in results)
        outcome["cases"] += 1
        outcome["equal"] += all(torch.equal(ours[n].nan_to_num(), theirs[n].nan_to_num()) for n in ours)
        for output in ours:
            for at, got in enumerate((ours, theirs)):
                scores = score(
                    got[output], getattr(want, output), getattr(budget, output),
                    stored_dtype(trial, output, got[output]), trial.form,
                )  # fmt: skip
                seen = worst.setdefault(output, [0.0, 0.0])
                seen[at] = max(seen[at], scores.worst_z)
                outcome["beyond"] += not scores.within

    with launches_beside(gpu, compared, lambda: keep[0]):
        for case in Drawing(attention_cases(impl, "cpu", Draws.of()), seed, cases).cases:
            judge(case)

    print(f"{name}: {outcome['cases']} cases; all outputs bit for bit equal in {outcome['equal']}; beyond the budget: "
          f"{outcome['beyond']}")  # fmt: skip
    print("worst z, emulator / GPU:  " + "  ".join(f"{n} {a:.2f} / {b:.2f}" for n, (a, b) in worst.items()))
    print(f"{'kernel':44} launches  equal  elements  differing  may differ by")
    for kernel, seen in sorted(compared.items()):
        print(f"{kernel[:44]:44} {seen.launches:8} {seen.equal:6} {seen.elements:9} {seen.differing:10}  "
              f"{' '.join(sorted(seen.inexact)) or '-'}")  # fmt: skip
    wrong = [kernel for kernel, seen in compared.items() if seen.equal < seen.launches and not seen.inexact]
    if wrong:
        print(f"wrong: {', '.join(wrong)}: exact kernels should leave the same bits")
    return not wrong and not outcome["beyond"]


def compare_products(seeds: int) -> bool:
    """Print how far single wgmmas are from exact sums, in units of 2**-23 of the largest summand.

    Returns whether the GPU's are within 64 units, and the rounding of sums in float16.
    """
    gpu, results = Gpu(), []
    for (type, d), n, a in itertools.product(PRODUCTS, (8, 64, 128), (Operand(), None)):
        product = Product(type, n, a, d=d)
        kernel, worst = load(product.text())["test"], [0.0, 0.0, 0.0]
        rounding = 2.0**-11 if product.d == "f16" else 0.0
        for seed in range(seeds):
            made = torch.Generator().manual_seed(seed)
            shapes = (64, product.k), (product.k, product.n), (64, product.n)
            a, b, c = (torch.randn(shape, generator=made) for shape in shapes)
            a, b = (without_low_bits(x.to(TYPES[product.type]), product.type) for x in (a, b))
            memory = torch.zeros(MEMORY, dtype=torch.uint8)
            for at, values, how in ((AT_A, a, product.a), (AT_B, b.T, product.b)):
                if how:
                    put(memory[at:], values, how)
            arguments = memory, fragments(a), accumulators(c, product.d)
            sums = arguments[2].untyped_storage().data_ptr()
            left = gpu.launch(kernel, (1, 1, 1), (128, 1, 1), MEMORY, arguments, kernel._names(arguments, None))[sums]
            theirs = matrix(left.view(torch.int32).view_as(arguments[2]), product.d, product.n).double()
            kernel.launch(1, 128, MEMORY)(*arguments)
            ours = matrix(arguments[2], product.d, product.n).double()
            start = c.to(torch.float16).double() if product.d == "f16" else c.double()
            exact = a.double() @ b.double() + start
            unit = torch.maximum((a.double()[:, :, None] * b.double()[None]).abs().amax(1), start.abs()) * 2.0**-23
            for i, (x, y) in enumerate(((theirs, exact), (ours, exact), (ours, theirs))):
                worst[i] = max(worst[i], float(((x - y).abs() / unit).max()))
            results.append(bool(((theirs - exact).abs() <= 64 * unit + rounding * exact.abs()).all()))
        shape = f"m64n{product.n}k{product.k}.{product.d}.{product.type}{'' if product.a else ', A in registers'}"
        print(f"{shape:44} GPU {worst[0]:8.2f}   emulator {worst[1]:8.2f}   apart {worst[2]:8.2f}")
    return all(results)


def without_low_bits(x: torch.Tensor, type: str) -> torch.Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32) if type == "tf32" else x


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.emulator.ptx.beside_gpu", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--impl", default="triton_fa2", help="implementations, separated by commas (triton_fa2)")
    parser.add_argument("--cases", type=int, default=200, help="how many for each (200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--products", action="store_true", help="compare single wgmmas, with --cases random matrices each"
    )
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("no GPU here")
    torch.set_num_threads(1)
    if options.products:
        return int(not compare_products(options.cases))
    # Implementations choose the emulator if torch sees no GPU; this process reaches the GPU through
    # the driver.
    with mock.patch.object(torch.cuda, "is_available", lambda: False):
        results = [compare(name, options.cases, options.seed) for name in options.impl.split(",")]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
