"""What a mutant is: an implementation of ours with one mistake edited into its source, and the law that must catch it.

A mutant is kept as the edit alone, so it reads as a diff and the implementation stays free of switches. Every snippet
that it replaces must occur exactly once in the source: if the implementation is rewritten, its mutants speak up.
"""

from __future__ import annotations

import atexit
import importlib.util
import linecache
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import ModuleType
from typing import Any

import torch

from impls import Implementation
from properties.case import parse_case, text_of
from races.cuda.build import has_compiler

ROOT = Path(__file__).parent.parent
IMPLS = ROOT / "impls"


class MutantError(ValueError):
    """A mutant that cannot be built: the message names the mutant and the snippet."""


@dataclass(frozen=True, eq=False)
class Mutant:
    """One planted bug.

    name: the mistake, in the present tense. law: the name of the law that must catch it, or "test_contract_is_kept".
    edits: (old, new) snippets of the source; each old occurs there exactly once.
    source: a module of impls, package/module, or the path of a .cu with a Python file of its name beside it.
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
    return ROOT / mutant.source if mutant.source.endswith(".cu") else IMPLS / f"{mutant.source}.py"


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
    kind = _beside_cuda if mutant.source.endswith(".cu") else _from_package if "/" in mutant.source else _from_module
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
    name = f"mutant_{mutant.name}_{id(mutant)}"  # its modules stay in sys.modules: no two mutants may share them
    with TemporaryDirectory() as directory:
        copy = Path(directory) / name
        shutil.copytree(IMPLS / folder, copy, ignore=shutil.ignore_patterns("tests", "__pycache__"))
        (copy / f"{file}.py").write_text(text)
        spec = importlib.util.spec_from_file_location(
            name, copy / "__init__.py", submodule_search_locations=[str(copy)]
        )
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for path in map(str, copy.glob("*.py")):
            lines = linecache.getlines(path)
            linecache.cache[path] = (sum(map(len, lines)), None, lines, path)  # None: never looked for on disk again
    return module


def _beside_cuda(mutant: Mutant, text: str) -> ModuleType:
    """The Python file beside a .cu, imported beside the edited one. Both stay until the process ends: they are read late."""
    path = source_file(mutant)
    folder = Path(mkdtemp(prefix=f"mutant_{mutant.name}_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / path.name).write_text(text)
    wrapper = shutil.copy(path.with_suffix(".py"), folder)
    spec = importlib.util.spec_from_file_location(f"mutants.built.{mutant.name}", wrapper)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def elsewhere(mutant: Mutant) -> str:
    """Why a mutant cannot be judged in this process, in words; "" if it can."""
    if mutant.device == "cuda" and not torch.cuda.is_available():
        return "shows on a GPU only: there is none"
    if mutant.source.endswith(".cu") and not has_compiler():
        return "runs in CUDA C++ on the CPU: there is no g++ to compile it"
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
