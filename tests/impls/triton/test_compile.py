"""Every kernel compiles for several GPUs, with every choice of tiles, and once per kind of problem.

No GPU is needed: a stub driver names the target, and nothing is launched. It runs in a separate
process, because a process has one driver. This file is also the program that runs there:

    python -m tests.impls.triton.test_compile '{"count": {"problems": 100, "aligned": true}}'

compile_jobs.py says what is compiled for which GPU. ptxas assembles only the kernels of head dim
64, all with --thorough.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys

import pytest

from tests.impls.triton.compile_jobs import PARTS, THOROUGH, least, lists, tiles_of

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from tests.runs import python

KIB = 1024
# Bytes of shared memory that one program may use: CUDA C++ Programming Guide, technical
# specifications per compute capability.
SHARED = {80: 163 * KIB, 86: 99 * KIB, 90: 227 * KIB}
PRODUCTS = {80: ("mma.sync",), 86: ("mma.sync",), 90: ("wgmma", "mma.sync")}  # wgmma needs at least 64 rows


# --- in a separate process ------------------------------------------------------------------------


def pretend(capability: int):
    """Simulate a GPU, for which kernels are compiled but not launched.

    Returns a list that collects the compiled kernels.
    """
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.backends.nvidia.driver import CudaDriver
    from triton.runtime.jit import JITFunction

    class Pretended:
        get_current_target = staticmethod(lambda: GPUTarget("cuda", capability, 32))
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device: 0)
        get_active_torch_device = staticmethod(lambda: torch.device("cpu"))
        map_python_to_cpp_type = CudaDriver.map_python_to_cpp_type

    compiled, run = [], JITFunction.run

    def without_launch(self, *args, grid, warmup, **arguments):
        kernel = run(self, *args, grid=grid, warmup=True, **arguments)
        compiled.append((self, arguments, kernel))
        return kernel

    JITFunction.run = without_launch
    from flash_attest.impls.triton import problem, tuning

    problem.check_device = lambda q: None  # all tensors are on the CPU here
    problem.EMULATED = tuning.EMULATED = False  # choices are a GPU's
    triton.runtime.driver.set_active(Pretended())
    triton.backends.backends["nvidia"] = triton.backends.Backend(CUDABackend, CudaDriver)
    return compiled


def launch_only(name: str | None) -> None:
    """Make every call launch only this kernel (None: all) from now on."""
    from flash_attest.impls.triton.tuning import Kernel

    launch = vars(Kernel).get("launch_all", Kernel.launch)
    Kernel.launch_all = launch
    Kernel.launch = lambda self, *args, **more: launch(self, *args, **more) if name in (None, self.name) else None


def call(way, q, k, v, bias=None, name=None, dlse=False, **options):
    """Call forward, or the whole backward, or both, as the kernel called `name` needs."""
    launch_only(name)
    lse = q.new_empty(*q.shape[:-3], q.shape[-2], q.shape[-3]).float()
    out = q.new_empty(*q.shape[:-1], v.shape[-1])
    options |= {} if bias is None else dict(bias=bias)
    if name in (None, "forward"):
        way.forward(q, k, v, **options)
    if name != "forward":
        way.backward(out, q, k, v, out, lse, dlse=lse if dlse else None, **options)


def lengths(q, k) -> dict:
    """Return the arguments of a single sequence that has all rows of q and k (total, heads, ..)."""
    import torch

    return {f"max_seqlen_{name}": len(x) for name, x in (("q", q), ("k", k))} | {
        f"cu_seqlens_{name}": torch.tensor([0, 0, len(x)], dtype=torch.int32)[1:] for name, x in (("q", q), ("k", k))
    }


def assemble_only(when) -> None:
    """Make ptxas run only if when() is true, because it takes a third of the time and is rarely
    needed.
    """
    from triton.backends.nvidia.compiler import CUDABackend

    assemble = CUDABackend.make_cubin
    CUDABackend.make_cubin = lambda *arguments: assemble(*arguments) if when() else b""


def compile_all(capability: int, assembled: list[int], jobs: list[dict]) -> list[dict]:
    """Compile jobs, and return them with their results.

    A job has kernel, tile, BLOCK_D, dtype, tf32, fit ("even", "aligned", "odd"), bias, newer.
    assembled: the BLOCK_D for which ptxas runs.
    """
    compiled = pretend(capability)
    assemble_only(lambda: job["BLOCK_D"] in assembled)
    import torch

    from flash_attest.impls.triton.attention import FlashAttention2
    from flash_attest.impls.triton.tuning import Tile

    for job in jobs:
        block_d, dtype, name = job["BLOCK_D"], getattr(torch, job["dtype"]), job["kernel"]
        headdim = {"even": block_d, "aligned": block_d // 2 + 8, "odd": block_d // 2 + 1}[job["fit"]]
        x = torch.zeros(1, 16, 1, headdim, dtype=dtype)
        bias = torch.zeros(1, 1, 16, 16) if job["bias"] else None
        way = FlashAttention2(atomic=name == "dk_dv_dq", tf32=job["tf32"], tiles={name: Tile(*job["tile"])})
        compiled.clear()
        newer = dict(window=(3, 1), softcap=2.0, sinks=torch.zeros(1), dlse=True) if job["newer"] else {}
        call(way, x, x, x[..., : headdim // 2] if newer else x, bias, name=name, **newer)
        ((_, arguments, kernel),) = compiled
        if name not in ("delta", "dbias"):  # these have only one choice, which is not passed
            assert [arguments[field] for field in Tile._fields] == job["tile"], arguments
        assert arguments.get("BLOCK_D", arguments["BLOCK_DV"]) == block_d, arguments
        assert (arguments["ALIGN"] > 1) == (job["fit"] != "odd" and dtype.itemsize == 2), arguments
        ptx = kernel.asm["ptx"]
        assert bool(kernel.asm["cubin"]) == (block_d in assembled), f"ptxas: {job}"
        job["shared"], job["target"] = kernel.metadata.shared, f"sm_{capability}" in ptx
        job["product"] = next((word for word in ("wgmma", "mma.sync") if word in ptx), "none")
    return jobs


def count_variants(problems: int, aligned: bool) -> list[list]:
    """Call with random sizes, heads and strides, also for packed sequences, and count the compiled
    variants.

    Returns [kernel, its constants and dtypes, the number of its variants] for each kernel.
    """
    compiled = pretend(90)
    import random

    import torch
    from triton.runtime.jit import JITFunction

    from flash_attest.impls.triton.attention import FlashAttention2
    from flash_attest.impls.triton.varlen import FlashAttention2Varlen
    from flash_attest.properties.cases.sparse_memory import spread

    def only_remembered(self, key, signature, device, constexprs, options, attrs, warmup):
        self.device_caches[device][0][key] = key
        return key

    JITFunction._do_compile = only_remembered
    draw = random.Random(0)

    def tensor(*sizes):
        """Return a float16 tensor with dimensions in any order and with gaps, or with one large
        stride.

        Unless aligned, rows start at any address.
        """
        step = 8 if aligned else 1
        gaps = [draw.randrange(3) for _ in range(3)] + [step * draw.randrange(3)]
        whole = [n + gap for n, gap in zip(sizes, gaps, strict=True)]
        order = draw.sample(range(3), 3)
        memory = torch.empty([whole[n] for n in order] + [whole[3]], dtype=torch.float16)
        begin = step * draw.randrange(gaps[3] // step + 1)
        memory = memory.permute(*(order.index(n) for n in range(3)), 3)
        return sometimes_far(memory[: sizes[0], : sizes[1], : sizes[2], begin : begin + sizes[3]])

    def sometimes_far(x):
        return spread(x, draw.randrange(3)) if draw.random() < 0.2 else x

    def bias_for(batch, nheads, seqlen_q, seqlen_k):
        shape = [draw.choice((1, n)) for n in (batch, nheads, seqlen_q)]
        begin = 0 if aligned else draw.randrange(4)
        return sometimes_far(torch.empty([*shape, seqlen_k + begin])[..., begin:])

    def newer(q):
        """Return a window, a softcap, sinks and whether there is a dlse, each every second time."""
        some = lambda made: made() if draw.random() < 0.5 else None  # noqa: E731
        return dict(
            window=some(lambda: tuple(some(lambda: draw.choice((0, 1, 5, 16, 2**40))) for _ in "lr")),
            softcap=some(lambda: draw.choice((1.0, 2, 30.0))),
            sinks=some(lambda: torch.empty(1 + q.shape[2])[draw.randrange(2) :][: q.shape[2]]),
            dlse=draw.random() < 0.5,
        )

    variants: dict[tuple, set] = {}
    for _ in range(problems):
        batch, nheads_k, group = draw.choice((1, 2, 3, 16)), draw.choice((1, 2, 5, 16)), draw.choice((1, 2, 4))
        seqlen_q, seqlen_k = (draw.choice((1, 2, 16, 17, 63, 64, 100, 128)) for _ in "qk")
        headdim = draw.choice((64, 56)) if aligned else draw.choice((64, 63))
        q = tensor(batch, seqlen_q, nheads_k * group, headdim)
        k, v = (tensor(batch, seqlen_k, nheads_k, headdim) for _ in "kv")
        bias = bias_for(batch, nheads_k * group, seqlen_q, seqlen_k) if draw.random() < 0.5 else None
        if draw.random() < 0.3:
            v = tensor(batch, seqlen_k, nheads_k, headdim // 16 * 8 + headdim % 8)
        compiled.clear()
        way, options = FlashAttention2(atomic=draw.random() < 0.5), dict(causal=draw.random() < 0.5, **newer(q))
        call(way, q, k, v, bias, **options)
        q, k, v = (x[draw.randrange(batch)] for x in (q, k, v))
        call(FlashAttention2Varlen(way), q, k, v, **options, **lengths(q, k))
        for kernel, arguments, key in compiled:
            constants = {n: x for n, x in arguments.items() if n.isupper() or n.startswith("num_")}
            dtypes = {n: str(x.dtype) for n, x in arguments.items() if n.endswith("_ptr") and x is not None}
            variants.setdefault((kernel.fn.__name__, json.dumps([constants, dtypes])), set()).add(key)
    return [[*kernel, len(keys)] for kernel, keys in variants.items()]


def widths_at_one_address(pairs: list[list[int]], atomics: list[bool]) -> list[list]:
    """Compile every kernel for halves with these head dims of k and v, not aligned, for sm_90.

    atomics: whether dq is summed by atomics.

    Returns [head dims, kernel, the layouts] for each shared address whose tiles wgmma reads in more
    than one layout.
    """
    compiled = pretend(90)
    assemble_only(lambda: False)
    import torch

    from flash_attest.impls.triton.attention import FlashAttention2

    found = []
    for headdim, headdim_v in pairs:
        q, v = (torch.zeros(1, 16, 1, d, dtype=torch.float16) for d in (headdim, headdim_v))
        compiled.clear()
        for atomic in atomics:
            call(FlashAttention2(atomic=atomic), q, q, v, window=(3, 1))
        assert sum("wgmma" in kernel.asm["ptx"] for _, _, kernel in compiled) >= 2 * len(atomics)
        for kernel, _, each in compiled:
            layouts = layouts_of(each.asm["ptx"])
            found += [[[headdim, headdim_v], kernel.fn.__name__, sorted(some)] for some in layouts if len(some) > 1]
    return found


def layouts_of(ptx: str) -> list[set[str]]:
    """Return the layouts of the tiles at each shared address that wgmma reads.

    The upper half of a descriptor has the layout; the lower half has the address.
    """
    read = set(re.findall(r"wgmma\.mma_async\S* \{[^}]*\}, (?:\{[^}]*\}|%rd\d+), (%rd\d+)", ptx))
    layouts: dict[str, set[str]] = {}
    for name, address, constant in re.findall(r"(?:or\.b64|add\.s64)\s+(%rd\d+), (%rd\d+), (-?\d+);", ptx):
        if name in read:
            layouts.setdefault(address, set()).add(f"{int(constant) % 2**64 >> 32:#x}")
    assert bool(layouts) == bool(read), "the descriptors of wgmma look different"
    return list(layouts.values())


# --- the tests ------------------------------------------------------------------------------------

BLOCKS = [32, 64, 128, 256]
CHECKED = [pytest.param(*part, [64], id=name) for name, part in PARTS.items()]
CHECKED += [pytest.param(*part, BLOCKS, id=name, marks=pytest.mark.thorough) for name, part in THOROUGH.items()]


def ask(request, cache):
    """Run this file as a program with a separate Triton cache, and return its answer."""
    run = python("-m", "tests.impls.triton.test_compile", json.dumps(request), TRITON_CACHE_DIR=str(cache))
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("capability, jobs, assembled", CHECKED)
def test_every_choice_compiles_fits_and_multiplies_on_matrix_units(capability, jobs, assembled, tmp_path):
    """Choices fit into shared memory; halves and tf32 use matrix units, float32 does not."""
    wanted = list(jobs())

    results = ask({"compile": {"capability": capability, "assembled": assembled, "jobs": wanted}}, tmp_path)

    assert len(results) == len(wanted) >= 4
    for one in results:
        units = (
            PRODUCTS[capability]
            if one["kernel"] != "delta" and (one["tf32"] or one["dtype"] != "float32")
            else ("none",)
        )
        assert one["target"] and one["product"] in units, f"products by {one['product']}, should be by {units}: {one}"
        # Only these must fit: a launch may skip the others.
        must_fit = one["tile"] in (list(tiles_of(one)[0]), list(least(tiles_of(one))))
        fits = one["shared"] <= SHARED[capability]
        assert fits or not must_fit, f"{one['shared']} bytes shared, should be at most {SHARED[capability]}: {one}"


def test_thorough_compiles_every_choice():
    """Together with the other jobs, these have every choice for each head dim and operand size."""
    every = {(kernel, d, n, tuple(tile)) for n in (2, 4) for kernel, d, tiles in lists(n) for tile in tiles}
    jobs = [job for capability, jobs in (*PARTS.values(), *THOROUGH.values()) if capability == 90 for job in jobs()]
    size = {"float16": 2, "bfloat16": 2, "float32": 4}
    assert {(job["kernel"], job["BLOCK_D"], size[job["dtype"]], tuple(job["tile"])) for job in jobs} == every


@pytest.mark.parametrize("aligned", (True, False), ids=("aligned", "unaligned"))
def test_one_variant_is_compiled_of_each_kernel(aligned, tmp_path):
    """One variant serves all sizes, heads, strides and addresses.

    Each further variant costs seconds, and laws draw hundreds of sizes.
    """
    variants = ask({"count": {"problems": 50, "aligned": aligned}}, tmp_path)
    assert {kernel for kernel, _, _ in variants} == {
        f"{k}_kernel" for k in ("forward", "dq", "dk_dv", "delta", "dbias")
    }
    assert {f"{kernel} {constants}": count for kernel, constants, count in variants if count != 1} == {}


@pytest.mark.parametrize(
    ("pairs", "atomics"),
    [([[33, 20]], [False]), pytest.param([[33, 20], [20, 33]], [False, True], marks=pytest.mark.thorough)],
)
def test_products_read_tiles_of_one_width_at_one_address(pairs, atomics, tmp_path):
    """ptxas 12.8 confuses addresses of tiles with rows of 64 and of 128 bytes, if they share one.

    K and V do where loads are not wide, so the smaller head dim is padded further beside a larger
    one.
    """
    assert ask({"widths": {"pairs": pairs, "atomics": atomics}}, tmp_path) == []


ANSWERS = {"compile": compile_all, "count": count_variants, "widths": widths_at_one_address}

if __name__ == "__main__":
    ((name, request),) = json.loads(sys.argv[1]).items()
    print(json.dumps(ANSWERS[name](**request)))
