"""Builds mutants of CUDA C++: of impls/cuda, imported from a copy with one edited file, and of the
example in examples/.

They run on the CPU, plain or traced, with tiles of 16 queries by 16 keys (ONE_INSTANCE of fa1.cu
and fa2.cu).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch

from flash_attest.emulator.build_cache import key_of
from flash_attest.emulator.compiler import no_compiler
from flash_attest.impls import Supports
from flash_attest.impls.cuda.extension import nvcc
from flash_attest.mutants.loading import import_copy, kept_folder
from flash_attest.mutants.mutant import IMPLS, ROOT, Family, Mutant
from flash_attest.mutants.mutant import planted as planted_in

FILES = ("*.py", "*.cu", "*.cuh", "*.h", "*.cpp")
OF_16_BITS = re.compile(r" *case B?FLOAT16: return .*\n")  # as_dtype of problem.cuh
OF_BACKWARD = re.compile(r"^(int fa[12]_(?:backward|bias_gradient)\([^{]*\{).*?^\}", re.DOTALL | re.MULTILINE)  # fa?.cu


def load_kernels(mutant: Mutant, text: str) -> ModuleType:
    """Import impls/cuda from a copy in which one file is edited, and which has little more than the
    mutant needs.

    Each kernel has one instance, with tiles of 16. The 16-bit dtypes and the backward are left out
    if the mutant does not support them: each halves the compile time. The copy's PyTorch operators
    get their own names, because two libraries must not define the same operator.
    """
    files = {p.name: p.read_text() for pattern in FILES for p in sorted(mutant.file.parent.glob(pattern))}
    files[mutant.file.name] = text
    supports = mutant.declares.get("supports")
    if supports and set(supports.dtypes) == {torch.float32}:
        files["problem.cuh"] = OF_16_BITS.sub("", files["problem.cuh"])
    for name in [name for name in files if name.endswith(".cu")]:
        files[name] = f"#define ONE_INSTANCE {files[name]}"
        if "backward" in mutant.declares and mutant.declares["backward"] is None:
            stubs = OF_BACKWARD.sub(r"\1 return cudaErrorInvalidValue; }", files[name])
            files[name] = stubs.replace('"host_backward.cuh"', '"host.cuh"')
    namespace = f"flash_attest_{key_of(*files.values())}"
    files = {name: text.replace("flash_attest_cuda", namespace) for name, text in files.items()}
    return import_copy(mutant, kept_folder(files) / "__init__.py")


def load_example(mutant: Mutant, text: str) -> ModuleType:
    """Import the Python file of the example from a folder in which its .cu file is edited."""
    wrapper = mutant.file.with_suffix(".py")
    folder = kept_folder({mutant.file.name: text, wrapper.name: wrapper.read_text()})
    return import_copy(mutant, folder / wrapper.name)


def lacking(mutant: Mutant) -> str:
    """Return what this process lacks: g++ for the CPU, or nvcc for a GPU."""
    if mutant.device == "cpu" and (reason := no_compiler()):
        return f"runs in CUDA C++ on the CPU: {reason}"
    if mutant.device == "cuda" and not nvcc():
        return "shows on a GPU only: there is no nvcc to compile it"
    return ""


KERNELS = Family("cuda", IMPLS / "cuda", load_kernels, lacking)
EXAMPLE = Family("cuda example", ROOT / "examples", load_example, lacking)


def supporting(*dtypes: torch.dtype, headdims: Sequence[int] = range(1, 33), backward: bool = True, **features: Any):
    """Return fields of an Implementation that supports only these features, so that every drawn
    case uses them.
    """
    supports = Supports(dtypes=dtypes or {torch.float32}, headdims=headdims, **features)
    return dict(supports=supports, tile=(16, 16), **({} if backward else {"backward": None}))


FORWARD = supporting(backward=False, cross=True)


planted = partial(planted_in, KERNELS, impl="cuda_fa2")
