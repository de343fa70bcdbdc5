"""The commands of docs/use/first-verdict.md and README.md print what these pages show.

A line "..." of a page stands for any lines.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from flash_attest import assert_attention_close, trace
from tests import runs
from tests.door.hers import WITHOUT_GPU, pytest_in
from tests.places import ROOT

PAGE = (ROOT / "docs" / "use" / "first-verdict.md").read_text()
README = (ROOT / "README.md").read_text()
FAILURE = re.search(r"<!-- failure -->\n```console\n(.*?)```\n<!-- /failure -->", README, flags=re.S)[1]
TRACED = re.search(r"<!-- traced -->\n```\n(.*?)```\n<!-- /traced -->", README, flags=re.S)[1]
PYTHON = re.findall(r"^```python\n(.*?)^```$", README, flags=re.M | re.S)
STATUSES = [0, 1, 0, 0, 0, 0]  # of the page's commands


@dataclass
class Step:
    """A command of the page with the output shown below it, or an edit."""

    command: list[str]
    shown: list[str]
    edit: tuple[str, str] | None = None


def steps(text: str) -> list[Step]:
    """Return the steps of a page in order."""
    parsed = []
    for language, body in re.findall(r"^```(console|diff)\n(.*?)^```$", text, flags=re.M | re.S):
        if language == "diff":
            old, new = ("".join(f"{line[1:]}\n" for line in body.splitlines() if line[0] == sign) for sign in "-+")
            parsed.append(Step([], [], (old, new)))
            continue
        for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
            command, *shown = part.splitlines()
            parsed.append(Step(shlex.split(command), shown))
    return parsed


def prints(shown: list[str], printed: list[str]) -> bool:
    """Return whether a program prints these lines, where "..." stands for any lines."""
    # The pieces between "..." have to follow each other. Taking the earliest position of each piece
    # is always possible.
    pieces, at = [[]], 0
    for line in shown:
        if line == "...":
            pieces.append([])
        else:
            pieces[-1].append(line)
    for n, piece in enumerate(pieces):
        starts = range(at, len(printed) - len(piece) + 1) if n else [0]
        if n and n == len(pieces) - 1 and piece:
            starts = [len(printed) - len(piece)]
        at = next((i + len(piece) for i in starts if i >= at and printed[i : i + len(piece)] == piece), None)
        if at is None:
            return False
    return shown[-1:] == ["..."] or at == len(printed)


def run(words: list[str], folder: Path) -> runs.Run:
    """Run flash-attest or pytest in a folder.

    `check` gets no workers, because each would import torch again.
    """
    program, *arguments = words
    if program == "flash-attest":
        alone = ["-n", "0"] if arguments[0] == "check" else []
        return runs.check(*arguments, *alone, folder=folder, **WITHOUT_GPU)
    return pytest_in(folder, *arguments)


@pytest.fixture(scope="module")
def page(tmp_path_factory, gxx) -> list[tuple[Step, runs.Run]]:
    """Follow the steps of the page. Returns its commands and their runs."""
    pytest.importorskip("triton")
    folder, runs_of_page = tmp_path_factory.mktemp("first"), []
    for step in steps(PAGE):
        if step.edit:
            file, (old, new) = folder / "one_key_short.py", step.edit
            assert file.read_text().count(old) == 1
            file.write_text(file.read_text().replace(old, new))
        elif step.command[0] == "cd":
            folder = folder / step.command[1]
        else:
            runs_of_page.append((step, run(step.command, folder)))
    return runs_of_page


def test_commands_print_what_the_page_says(page):
    for step, result in page:
        assert prints(step.shown, result.stdout.splitlines()), f"{shlex.join(step.command)}\n{result.stdout}"
    assert [result.returncode for _, result in page] == STATUSES


def test_the_first_screen_of_the_readme_says_what_runs_without_a_gpu():
    lines = README.splitlines()
    first = " ".join(lines[:25])
    assert len(lines) <= 120
    assert all(word in first for word in ("Triton", "Numba", "CUDA", "race-traced without a GPU"))


def test_the_readme_shows_that_failure(page):
    (step,) = steps(f"```console\n{FAILURE}```\n")
    (result,) = [result for other, result in page if other.command == step.command]
    assert prints(step.shown, result.stdout.splitlines()), result.stdout


def test_the_readme_shows_a_race_that_is_traced(cu):
    kernel = cu(
        """
        __global__ void reverse(float* out, const float* x, int n) {
            __shared__ float tile[64];
            tile[threadIdx.x] = x[threadIdx.x];
            out[threadIdx.x] = tile[n - 1 - threadIdx.x];
        }
        """,
        "reverse",
    ).reverse
    x, out = torch.arange(2.0), torch.empty(2)
    (finding,) = trace(lambda: kernel.launch((1,), (2,))(out, x, 2))
    assert prints([*TRACED.splitlines(), "..."], str(finding).splitlines()), str(finding)


def test_the_readmes_plug_in_is_right(tmp_path):
    (tmp_path / "my_attention.py").write_text(PYTHON[0])
    words = shlex.split("flash-attest check my_attention.py --chapter forward --profile smoke")
    result = run(words, tmp_path)
    green = re.search(r"^green: [1-9]\d* laws hold", result.stdout, flags=re.M)
    assert result.returncode == 0 and green, result.stdout


def test_the_readmes_tests_are_right():
    q, k, v = torch.randn(3, 1, 40, 2, 64, dtype=torch.float16)
    names = {"attention": attention, "torch": torch, "q": q, "k": k, "v": v}
    exec(PYTHON[1], names)
    names["test_forward"]()
    assert "out_averages_exactly_its_prefix" in names["test_attention"].pytestmark[0].kwargs["ids"]
    with pytest.raises(AssertionError, match="out is the one of causal=True"):
        assert_attention_close(attention(q, k, v, causal=True), q, k, v)


def attention(q, k, v, *, causal=False):
    """Compute attention: (batch, seqlen, nheads, headdim) x 3 -> out."""
    return scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=causal).transpose(1, 2)


@pytest.mark.parametrize(
    ("shown", "matches"),
    [
        ("a b c", True), ("a ... c", True), ("... b ...", True), ("... c", True), ("a ...", True), ("...", True),
        ("a c", False), ("b c", False), ("... b", False), ("... c b ...", False), ("... c ... b ...", False), ("a b", False),
    ],
)  # fmt: skip
def test_lines_left_out(shown, matches):
    assert prints(shown.split(), ["a", "b", "c"]) == matches
