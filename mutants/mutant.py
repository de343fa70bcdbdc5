"""What a mutant is: an implementation of ours with one mistake edited into its source, and the law that must catch it.

A mutant is kept as the edit alone, so it reads as a diff and the implementation stays free of switches. Every snippet
that it replaces must occur exactly once in the source: if the implementation is rewritten, its mutants speak up.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch

from emulator.build_cache import cache_folder, key_of
from emulator.compiler import no_compiler
from impls import Implementation
from impls.cuda.extension import nvcc
from properties.cases.case import parse_case, text_of

ROOT = Path(__file__).parent.parent
IMPLS = ROOT / "impls"
CUDA_PACKAGE = ("*.py", "*.cu", "*.cuh", "*.h", "*.cpp")
OF_16_BITS = re.compile(r" *case B?FLOAT16: return .*\n")  # as_dtype of problem.cuh
OF_BACKWARD = re.compile(r"^(int fa[12]_(?:backward|bias_gradient)\([^{]*\{).*?^\}", re.DOTALL | re.MULTILINE)  # fa?.cu


class MutantError(ValueError):
    """A mutant that cannot be built: the message names the mutant and the snippet."""


@dataclass(frozen=True, eq=False)
class Mutant:
    """One planted bug.

    name: the mistake, in the present tense. law: the name of the law that must catch it, or "test_contract_is_kept".
    edits: (old, new) snippets of the source; each old occurs there exactly once.
    source: a module of impls, package/module, the path of a .cu with a Python file of its name beside it, or the path of one
    of the CUDA files of impls/cuda.
    impl: the implementation that it is planted in, if not of the module's name.
    smallest: what the shrunk case must not exceed, field by field: numbers are upper bounds, anything else is exact.
    story: the real bug that this is, in a line. declares: fields of the Implementation that it declares otherwise.
    device: where it shows; "cuda" for a mistake of which a CPU, or an interpreter on one, knows nothing.
    """

    name: str
    law: str
    edits: tuple[tuple[str, str], ...]
    smallest: Mapping[str, Any]
    story: str
    source: str = "python_tiled"
    impl: str = ""
    declares: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def __repr__(self) -> str:
        return f"Mutant({self.name})"


def source_file(mutant: Mutant) -> Path:
    """The file that the mutant edits."""
    return ROOT / mutant.source if is_cuda(mutant) else IMPLS / f"{mutant.source}.py"


def is_cuda(mutant: Mutant) -> bool:
    """Whether it is planted in CUDA C++."""
    return mutant.source.endswith((".cu", ".cuh"))


def edited_source(mutant: Mutant) -> str:
    """The source of the implementation with the mutant's edits made. Raises MutantError if a snippet does not fit."""
    path = source_file(mutant)
    text = path.read_text()
    for old, new in mutant.edits:
        if (times := text.count(old)) != 1:
            raise MutantError(
                f"mutant {mutant.name}: the snippet\n{old}\noccurs {times} times in {path.relative_to(ROOT)}, "
                "should occur once: edit the mutant along with the implementation"
            )
        text = text.replace(old, new)
    return text


@cache  # one object per mutant and process
def build(mutant: Mutant) -> Implementation:
    """The mutant as an Implementation called mutant_<name>, from a module of its own; tracebacks show its lines."""
    text, wanted = edited_source(mutant), mutant.impl or mutant.source
    if is_cuda(mutant):
        kind = _from_cuda_package if source_file(mutant).parent.parent == IMPLS else _beside_cuda
    else:
        kind = _from_package if "/" in mutant.source else _from_module
    module = kind(mutant, text)
    known = {impl.name: impl for impl in getattr(module, "IMPLS", None) or [module.IMPL]}
    if not isinstance(known.get(wanted), Implementation):
        raise MutantError(f"mutant {mutant.name}: {mutant.source} has no implementation called {wanted} here")
    return replace(known[wanted], name=f"mutant_{mutant.name}", **mutant.declares)


def _from_module(mutant: Mutant, text: str) -> ModuleType:
    path = IMPLS / f"{mutant.source}.py"
    shown = f"<mutant {mutant.name} of {path.name}>"
    linecache.cache[shown] = (len(text), None, text.splitlines(keepends=True), shown)
    module = ModuleType(f"mutants.built.{mutant.name}")
    module.__file__ = str(path)
    exec(compile(text, shown, "exec"), module.__dict__)
    return module


def _from_package(mutant: Mutant, text: str) -> ModuleType:
    """The edited file's whole package, imported under another name from a copy, as its modules import each other.

    The copy is gone when this returns. Its lines stay, in linecache: Triton reads a kernel's source when it runs it.
    """
    folder, file = mutant.source.split("/")
    with TemporaryDirectory() as directory:
        copy = Path(directory) / folder
        shutil.copytree(IMPLS / folder, copy, ignore=shutil.ignore_patterns("tests", "__pycache__"))
        (copy / f"{file}.py").write_text(text)
        module = _imported(mutant, copy / "__init__.py")
        for path in map(str, copy.glob("*.py")):
            lines = linecache.getlines(path)
            linecache.cache[path] = (sum(map(len, lines)), None, lines, path)  # None: never looked for on disk again
    return module


def _from_cuda_package(mutant: Mutant, text: str) -> ModuleType:
    """impls/cuda, imported from a copy in which one file is edited, and which holds little else than the mutant needs.

    Of each kernel it has one instance, with tiles of 16; without the 16-bit dtypes or the backward if the mutant promises
    none: each halves the time to compile. The PyTorch operators of the copy have names of their own, as two libraries
    must not define the same.
    """
    path = source_file(mutant)
    files = {p.name: p.read_text() for pattern in CUDA_PACKAGE for p in sorted(path.parent.glob(pattern))}
    files[path.name] = text
    promised = mutant.declares.get("supports")
    if promised and set(promised.dtypes) == {torch.float32}:
        files["problem.cuh"] = OF_16_BITS.sub("", files["problem.cuh"])
    for name in [name for name in files if name.endswith(".cu")]:
        files[name] = f"#define ONE_INSTANCE {files[name]}"
        if "backward" in mutant.declares and mutant.declares["backward"] is None:
            stubs = OF_BACKWARD.sub(r"\1 return cudaErrorInvalidValue; }", files[name])
            files[name] = stubs.replace('"host_backward.cuh"', '"host.cuh"')
    namespace = f"flash_attest_{key_of(*files.values())}"
    files = {name: text.replace("flash_attest_cuda", namespace) for name, text in files.items()}
    return _imported(mutant, _kept(files) / "__init__.py")


def _beside_cuda(mutant: Mutant, text: str) -> ModuleType:
    """The Python file beside a .cu, imported beside the edited one."""
    path = source_file(mutant)
    wrapper = path.with_suffix(".py")
    return _imported(mutant, _kept({path.name: text, wrapper.name: wrapper.read_text()}) / wrapper.name)


def _kept(files: Mapping[str, str]) -> Path:
    """A folder with these files that stays, as CUDA files are read late. It is named by what it holds, as what is compiled
    is known by its path, too: so the next process finds both, and compiles nothing again.
    """
    folder = cache_folder() / f"mutant_{key_of(*(part for file in files.items() for part in file))}"
    if not folder.exists():
        with TemporaryDirectory(dir=cache_folder()) as directory:
            whole = Path(directory) / folder.name
            whole.mkdir()
            for name, text in files.items():
                (whole / name).write_text(text)
            try:
                os.rename(whole, folder)
            except OSError:
                if not folder.exists():  # else another process was first
                    raise
    return folder


def _imported(mutant: Mutant, file: Path) -> ModuleType:
    """A module, or a package by its __init__.py, under a name that no other has: it stays in sys.modules."""
    name = f"mutant_{mutant.name}_{id(mutant)}"
    within = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=within)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def elsewhere(mutant: Mutant) -> str:
    """Why a mutant cannot be judged in this process, in words; "" if it can."""
    if mutant.device == "cuda" and not torch.cuda.is_available():
        return "shows on a GPU only: there is none"
    if is_cuda(mutant) and mutant.device == "cpu" and (reason := no_compiler()):
        return f"runs in CUDA C++ on the CPU: {reason}"
    if is_cuda(mutant) and mutant.device == "cuda" and not nvcc():
        return "shows on a GPU only: there is no nvcc to compile it"
    if not mutant.source.startswith("triton/"):
        return ""
    from impls.triton.interpreter import INTERPRETED, installed

    if not installed():
        return "Triton is not installed"
    if INTERPRETED and mutant.device == "cuda":
        return "shows compiled only: TRITON_INTERPRET is set"
    if not INTERPRETED and mutant.device == "cpu":
        return "runs in Triton's interpreter: set TRITON_INTERPRET=1 before Python starts"
    return ""


def beyond_smallest(mutant: Mutant, shrunk: str) -> list[str]:
    """What is larger in the shrunk case (as text) than the mutant allows, in words; [] if nothing is."""
    case = parse_case(shrunk)
    return [
        f"{name}={text_of(getattr(case, name))}, should be {'at most ' if _is_number(bound) else ''}{text_of(bound)}"
        for name, bound in mutant.smallest.items()
        if not (getattr(case, name) <= bound if _is_number(bound) else getattr(case, name) == bound)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
