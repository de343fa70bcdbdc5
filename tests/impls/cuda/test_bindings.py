"""The bindings of impls/cuda compile, declare the host functions, and name what is written.

g++ and a parser check this, so nvcc is not needed.
"""

import re
import subprocess
from pathlib import Path

import pytest
import torch

from flash_attest.impls.cuda import extension

FOLDER = Path(extension.__file__).parent
ALGORITHMS = ("fa1", "fa2")
HEADERS = Path(torch.__file__).parent / "include"


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.skipif(not (HEADERS / "torch" / "csrc" / "stable" / "library.h").exists(), reason="torch has no headers")
def test_binding_compiles_against_the_headers_of_this_pytorch(name):
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-fsyntax-only", "-DUSE_CUDA", "-isystem", HEADERS]
    done = subprocess.run([*command, FOLDER / f"{name}_binding.cpp"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def one_line(text):
    return re.sub(r"\s+", " ", text)


def declarations(name):
    """Return {function: its parameters} for the host functions that a binding declares."""
    text = one_line((FOLDER / f"{name}_binding.cpp").read_text())
    return dict(re.findall(r"int (\w+)\(([^()]*)\);", text))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_host_functions_are_declared_as_they_are_defined(name):
    """A mismatch is an undefined symbol, which is noticed only on a machine with a GPU."""
    source = one_line((FOLDER / f"{name}.cu").read_text())
    declared = declarations(name)
    assert set(declared) == {f"{name}_{what}" for what in ("forward", "backward", "bias_gradient", "refusal")}
    for function, parameters in declared.items():
        assert f"int {function}({parameters}) {{" in source


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("what", ("forward", "backward", "bias_gradient"))
def test_schema_says_what_the_host_function_writes(name, what):
    """A schema has one tensor for each pointer, in order; pointers to non-const are written.

    binding.h has the schemas that both algorithms share.
    """
    files = (f"{name}_binding.cpp", "binding.h")
    text = " ".join(one_line((FOLDER / file).read_text()) for file in files).replace('" "', "")
    (schema,) = re.findall(rf'"{what}\((.*?)\) -> \(\)"', text)
    *parameters, stream = declarations(name)[f"{name}_{what}"].split(", ")
    assert stream == "void* stream"
    kinds = [("number" if p.startswith("double") else "read" if p.startswith("const") else "written", p.split()[-1])
             for p in parameters]  # fmt: skip
    of_schema = [("number" if a.startswith("float ") else "written" if "!" in a else "read", a.split()[-1])
                 for a in schema.split(", ")]  # fmt: skip
    assert of_schema == kinds
    written = re.findall(r"\((\w)!\)", schema)
    assert len(set(written)) == len(written)  # each has its own alias
