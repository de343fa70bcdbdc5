"""The PTX that is kept on disk has a key that changes with everything that is compiled into it."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types
from numba.cuda.core import config

from flash_attest.emulator.build_cache import built
from flash_attest.emulator.numba import fingerprint
from flash_attest.emulator.numba.fingerprint import Unkeyed
from flash_attest.emulator.numba.kernel import Kernel
from tests.runs import python

SOURCE = """
import math
import os
from os import getenv as from_os
from enum import IntEnum
import numpy as np
from numba import cuda, float32
from numba.cuda import libdevice, types
from numba.cuda.extending import intrinsic, overload
import numbers_of_an_author

SCALE, UNUSED = 3, 4
TABLE = np.arange(4.0)
Kind = IntEnum("Kind", {"ONE": 1})

def shifted(x):
    raise NotImplementedError

@overload(shifted)
def _shifted(x):
    return lambda x: x + 5

def added(builder, x):
    return builder.fadd(x, x)

@intrinsic
def doubled(context, x):
    def generate(context, builder, signature, arguments):
        return added(builder, arguments[0])
    return x(x), generate

@cuda.jit(device=True)
def inner(x):
    return x * 7

@cuda.jit(device=True)
def outer(x):
    return inner(x) + 1

@cuda.jit("float64(float64)", device=True)
def converting(x):
    return x

def make(STEP):
    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        x[i] = outer(x[i]) * SCALE + STEP + TABLE[1] + numbers_of_an_author.OFFSET + Kind.ONE.value
        x[i] += doubled(shifted(x[i])) + math.sqrt(4.0) + math.pi + converting(x[i])
    return kernel

kernel = make(2)
"""
EDITS = {
    "the kernel": ("+ STEP", "- STEP"),
    "a device function": ("inner(x) + 1", "inner(x) + 2"),
    "a device function of a device function": ("x * 7", "x * 8"),
    "a constant in a closure": ("make(2)", "make(3)"),
    "its type": ("make(2)", "make(2.0)"),
    "a global number": ("= 3, 4", "= 5, 4"),
    "an array": ("arange(4.0)", "arange(4.0) * 2"),
    "an enumeration": ('"ONE": 1', '"ONE": 2'),
    "an overload": ("x + 5", "x + 6"),
    "an option of an overload": ("@overload(shifted)", "@overload(shifted, strict=False)"),
    "what an intrinsic calls": ("fadd(x, x)", "fmul(x, x)"),
    "an option of the kernel": ("    @cuda.jit\n", "    @cuda.jit(fastmath=True)\n"),
    "launch bounds": ("    @cuda.jit\n", "    @cuda.jit(launch_bounds=(64, 2))\n"),
    "an option of a device function": ("device=True)\ndef inner", "device=True, forceinline=True)\ndef inner"),
    "a signature of a device function": ('"float64(float64)"', '"float64(float32)"'),
    "what a name of a library means": ("math.sqrt(4.0)", "math.cos(4.0)"),
    "a line": ("\nKind", "\n\nKind"),
}
ARRAY = types.Array(types.float64, 1, "C")


class Author:
    """A file of kernels that is edited."""

    def __init__(self, folder: Path):
        self.file = folder / "kernels_of_an_author.py"

    def load(self, source: str = SOURCE) -> dict:
        self.file.write_text(source)
        names = {"__name__": "kernels_of_an_author", "__file__": str(self.file)}
        exec(compile(source, self.file, "exec"), names)
        return names

    def key(self, source: str = SOURCE, array: types.Array = ARRAY) -> str:
        kernel = self.load(source)["kernel"]
        return fingerprint.key(kernel.py_func, (array,), kernel.targetoptions)


@pytest.fixture
def author(tmp_path, monkeypatch):
    numbers = type(sys)("numbers_of_an_author")
    numbers.OFFSET = 10
    monkeypatch.setitem(sys.modules, numbers.__name__, numbers)
    return Author(tmp_path)


def value(kernel) -> float:
    x = np.ones(1)
    kernel[1, 1](x)
    return x[0]


def test_the_same_kernel_has_the_same_key_whatever_else_is_there(author):
    key = author.key()
    assert author.key() == key
    # This edits another global, which the kernel does not name.
    assert author.key(SOURCE.replace("= 3, 4", "= 3, 99")) == key
    # This edits another overload, which the kernel does not name.
    author.load(SOURCE.replace("x + 5", "x + 6").replace("shifted", "moved"))
    assert author.key() == key


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_changes_the_key(author, edit):
    before, after = EDITS[edit]
    assert SOURCE.count(before) == 1
    assert author.key(SOURCE.replace(before, after)) != author.key()


@pytest.mark.parametrize("edit", ["a device function", "a constant in a closure", "an overload", "an array"])
def test_an_edited_kernel_is_compiled_anew(author, edit):
    """The result changes, although the old kernel is in the cache."""
    before = value(author.load()["kernel"])
    assert value(author.load()["kernel"]) == before
    assert value(author.load(SOURCE.replace(*EDITS[edit]))["kernel"]) != before


def test_a_number_of_another_module_the_types_and_the_settings_change_the_key(author, monkeypatch):
    keys = {author.key(), author.key(array=types.Array(types.float64, 1, "A"))}
    keys.add(author.key(array=types.Array(types.float32, 1, "C")))
    keys.add(author.key(array=types.Array(types.float64, 1, "C", readonly=True)))
    with monkeypatch.context() as patched:
        patched.setattr(config, "OPT", 1)
        keys.add(author.key())
    sys.modules["numbers_of_an_author"].OFFSET = 11
    keys.add(author.key())
    assert len(keys) == 6


def test_an_author_s_module_may_be_called_like_one_of_python(author, monkeypatch, tmp_path):
    own = type(sys)("statistics")
    own.__file__, own.OFFSET = str(tmp_path / "statistics.py"), 10
    monkeypatch.setitem(sys.modules, "statistics", own)
    source = SOURCE.replace("numbers_of_an_author", "statistics")
    key = author.key(source)
    own.OFFSET = 11
    assert author.key(source) != key


def test_a_file_elsewhere_has_another_key_as_findings_name_it(author, tmp_path):
    (tmp_path / "copy").mkdir()
    assert Author(tmp_path / "copy").key() != author.key()


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (("    @cuda.jit\n", "    @cuda.jit(debug=True, opt=False)\n"), "debug=True"),
        (("    @cuda.jit\n", '    @cuda.jit(link=["f.cu"])\n'), "link="),
        (("        return added(", "        import os\n        return added("), "generate imports os"),
        (
            ("numbers_of_an_author.OFFSET", "vars(numbers_of_an_author)"),
            "the module numbers_of_an_author, used as a value",
        ),
        (("SCALE, UNUSED = 3, 4", "SCALE, UNUSED = object(), 4"), "builtins.object"),
        (("        return added(", "        os.environ\n        return added("), "^os, which may say something else"),
        (("        return added(", "        from_os()\n        return added("), "^os, which may say something else"),
        (("TABLE = np.arange(4.0)", "TABLE = [object()]"), "builtins.object"),
    ],
)
def test_what_cannot_be_covered_has_no_key(author, edit, why):
    source = SOURCE.replace(*edit)
    assert source != SOURCE
    with pytest.raises(Unkeyed, match=why):
        author.key(source)


def test_a_library_that_somebody_changed_has_another_key(author, monkeypatch):
    key = author.key()
    monkeypatch.setattr(math, "sqrt", lambda x: x)
    changed = author.key()
    monkeypatch.setattr(math, "sqrt", lambda x: x + 1)
    assert len({key, changed, author.key()}) == 3


def test_argument_types_of_an_author_have_no_key(author):
    class Mine(types.Type):
        pass

    kernel = author.load()["kernel"]
    with pytest.raises(Unkeyed, match="the type mine"):
        fingerprint.key(kernel.py_func, (Mine("mine"),), kernel.targetoptions)


def test_a_torn_file_of_the_cache_is_compiled_again(author):
    kernel = author.load()["kernel"]
    wanted = value(kernel)
    path = built(fingerprint.key(kernel.py_func, (ARRAY,), kernel.targetoptions), lambda path: 1 / 0, ".numba")
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    try:
        assert value(author.load()["kernel"]) == wanted
    finally:
        path.write_text(whole)


def test_a_kernel_from_the_cache_is_compiled_when_somebody_asks_for_more(author):
    def compiled(kernel):
        value(kernel)
        (overload,) = kernel.overloads.values()
        assert isinstance(overload, Kernel)
        return overload, overload.library._compiled is not None

    compiled(author.load()["kernel"])
    kernel = author.load()["kernel"]
    overload, at_once = compiled(kernel)
    assert not at_once and overload.argument_types == (ARRAY,) and not overload.debug
    (text,) = kernel.inspect_asm().values()
    assert ".entry" in text and overload.library._compiled is not None
    assert "define void" in overload.inspect_llvm()


def test_another_process_does_not_compile_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        from flash_attest.emulator.numba import activate
        activate()
        import numpy as np
        from numba import cuda
        @cuda.jit
        def kernel(x):
            x[cuda.grid(1)] += 41
        x = np.ones(2)
        kernel[1, 2](x)
        import json
        (made,) = kernel.overloads.values()
        print(json.dumps([x.tolist(), made.library._compiled is not None]))
    """)
    )
    ran = [json.loads(python(script).stdout) for _ in range(2)]
    assert ran == [[[42, 42], True], [[42, 42], False]]


def test_numba_s_own_cache_is_left_alone(tmp_path):
    """Numba's cache keeps machine code, and its files would lie beside the author's."""
    file = tmp_path / "cached.py"
    file.write_text("from numba import cuda\n@cuda.jit(cache=True)\ndef kernel(x):\n    x[0] = 3\n")
    names = {"__name__": "cached"}
    exec(compile(file.read_text(), file, "exec"), names)
    assert value(names["kernel"]) == 3
    assert not list(tmp_path.rglob("*.nb?")) and cuda.is_available()
