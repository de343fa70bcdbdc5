"""docs/use/tracing-cuda.md is correct: its examples run and print the quoted text, and its tables
match the code.
"""

import re
from pathlib import Path

import pytest
import torch

from flash_attest.emulator import build_cache, compiler
from flash_attest.emulator.cuda import Refused, load, nvcc
from flash_attest.emulator.observation import Kind
from flash_attest.races.tracing import trace
from tests.places import ROOT
from tests.runs import python

TEXT = (ROOT / "docs" / "use" / "tracing-cuda.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, flags=re.M | re.S)  # (language, content)
# FILES: the blocks that begin with a comment with a file name. PRINTED: the block after each
# script.
FILES = {match[1]: body for _, body in BLOCKS if (match := re.match(r"(?://|#) (\w+\.(?:cu|py))\b", body))}
PRINTED = {
    name: BLOCKS[n + 1][1]
    for name in FILES
    for n, (_, body) in enumerate(BLOCKS)
    if body == FILES[name] and name.endswith(".py")
}


def table(heading):
    """Return the cells of the table whose first column has this heading."""
    _, below = re.split(rf"^\| {re.escape(heading)} \|.*\n\|[-|]+\n", TEXT, maxsplit=1, flags=re.M)
    rows = re.match(r"(?:\|.*\n)*", below)[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


@pytest.fixture
def folder(tmp_path):
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    return tmp_path


@pytest.mark.parametrize("script", sorted(PRINTED))
def test_scripts_print_what_the_text_says(folder, script):
    done = python(script, folder=folder)
    assert (done.stdout, done.stderr) == (PRINTED[script], "")


def test_the_scripts_are_all_run():
    assert sorted(FILES) == ["damage.py", "differences.cu", "differences.py"]


def test_example_is_short():
    assert sum(len(FILES[name].splitlines()) for name in ("differences.cu", "differences.py")) < 40


def test_fixed_example_has_no_race(folder):
    (diff,) = (body.splitlines() for language, body in BLOCKS if language == "diff")
    before = "".join(f"{line[1:]}\n" for line in diff if not line.startswith("+"))
    after = "".join(f"{line[1:]}\n" for line in diff if not line.startswith("-"))
    cu = folder / "differences.cu"
    assert cu.read_text().count(before) == 1
    cu.write_text(cu.read_text().replace(before, after))
    function, x, out = load(cu, "differences").differences, torch.arange(64.0) ** 2, torch.empty(64)
    for seed in range(5):
        assert trace(lambda: function(x, out), seed=seed, switch=0.1 * (seed > 0)) == []
        assert torch.equal(out, torch.diff(x, prepend=torch.zeros(1)))


SCALE = """
#include "by.h"
template <class T, int N>
__global__ void scale(T* out, const T* x, T by, int n) {
    for (int i = N * (blockIdx.x * BLOCK + threadIdx.x), end = min(n, i + N); i < end; ++i) out[i] = BY(x[i], by);
}
int scale_all(float* out, const float* x, float by, int n, cudaStream_t stream) {
    scale<float, 1><<<(n + BLOCK - 1) / BLOCK, BLOCK, 0, stream>>>(out, x, by, n);
    return cudaGetLastError();
}
"""


def test_calls_are_made_as_the_text_has_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scale.cu").write_text(SCALE)
    Path("headers").mkdir()
    Path("headers/by.h").write_text("#define BY(x, by) ((x) * (by))")
    (lines,) = (body.splitlines() for _, body in BLOCKS if body.startswith('cu = load("scale.cu"'))
    known = {"load": load, "x": torch.arange(200.0), "out": torch.zeros(200), "n": 200}
    for call in lines[1:]:
        known["out"].zero_()
        exec(f"{lines[0]}\n{call}", known)
        assert torch.equal(known["out"], 0.5 * known["x"])


def test_kinds_are_those_of_the_code():
    assert {row[0].strip("`"): row[1] for row in table("kind")} == {kind.value: kind.meaning for kind in Kind}


@pytest.mark.parametrize("used, reason", [row[:2] for row in table("in the file")])
def test_what_is_refused_says_why(tmp_path, used, reason):
    code = used.strip("`")
    include, statement = (code, "") if code.startswith("#") else ("", code)
    (tmp_path / "mine.cu").write_text(f"{include}\n__global__ void kernel(float* p) {{\n{statement}\n}}\n")
    with pytest.raises(Refused) as refused:
        load(tmp_path / "mine.cu", "kernel", through="g++")
    assert str(refused.value) == f"{tmp_path / 'mine.cu'}:{1 if include else 3}: not covered on the CPU: {reason}"


def test_environment_variables_are_those_that_are_read():
    sources = "".join(Path(module.__file__).read_text() for module in (compiler, build_cache, nvcc))
    read = re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", sources)
    named = [name for row in table("variable") for name in re.findall(r"`(\w+)`", row[0])]
    assert set(named) == set(read) - {"XDG_CACHE_HOME"} and "$XDG_CACHE_HOME" in TEXT


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT):
        assert (ROOT / "docs" / "use" / target).exists(), target
