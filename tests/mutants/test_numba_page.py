"""docs/why/numba-flash-attention.md is correct: it quotes the code of impls/numba and the messages
of the planted bugs.
"""

import re
from dataclasses import replace

import pytest

from flash_attest.mutants import ALL, CONTRACT, build, elsewhere
from flash_attest.mutants.judging import contract_result, plan
from flash_attest.mutants.mutant import ROOT
from flash_attest.mutants.numba.build import NUMBA
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.law import laws

TEXT = (ROOT / "docs" / "why" / "numba-flash-attention.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, flags=re.M | re.S)  # (language, content)
QUOTES = [body.split("\n", 1) for language, body in BLOCKS if language == "python"]  # (# file, lines)
MESSAGES = [body.splitlines() for language, body in BLOCKS if language == "text"]  # name of the mutant and case, lines
MUTANTS = {mutant.name: mutant for mutant in ALL if mutant.family is NUMBA}


@pytest.mark.parametrize("file, lines", QUOTES, ids=lambda x: None if "\n" in x else x)
def test_quoted_code_is_in_the_file(file, lines):
    assert f"\n{lines}" in (ROOT / file.removeprefix("# ")).read_text()


def test_the_whole_walk_over_the_keys_is_quoted():
    """The loop is quoted line by line, and no statement of it is left out."""
    kernel = (NUMBA.folder / "fa2.py").read_text().partition("load_tile(Q, q_bh")[2].partition("return fa2_forward")[0]
    quoted = {line for _, lines in QUOTES for line in lines.splitlines()}
    statements = [line for line in kernel.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    assert len(statements) > 30 and [line for line in statements if line not in quoted] == []


def each_message(names):
    """Mark all but the kept messages as thorough, because each compiles a planted bug."""
    for first, *lines in MESSAGES:
        name = first.split()[0]
        yield pytest.param(first, lines, id=name, marks=() if name in names else pytest.mark.thorough)


def message_of(name: str, case: str) -> str:
    """Return the suite's message about a planted bug in this case."""
    mutant = MUTANTS[name]
    if mutant.law == CONTRACT:
        return contract_result(mutant).message
    how = replace(plan(), case=parse_case(case), try_contract=False)
    return judge(laws()[mutant.law], build(mutant), how).message


@pytest.mark.skipif(bool(elsewhere(next(iter(MUTANTS.values())))), reason=elsewhere(next(iter(MUTANTS.values()))))
@pytest.mark.parametrize("first, lines", list(each_message(names=("numba_lse_is_the_row_sum",))))
def test_quoted_messages_are_the_real_ones(first, lines):
    """Numbers are ignored, because addresses and line numbers change with every edit of a
    kernel.
    """
    name, _, case = first.partition(" ")
    real = iter(plain(line) for line in message_of(name, case).splitlines())
    for line in lines:
        wanted, cut, _ = plain(line).partition("...")
        assert any(got.startswith(wanted) if cut else got == wanted for got in real), line


def plain(line: str) -> str:
    """Remove indentation, and replace every number by N."""
    return re.sub(r"-?\d+(\.\d+)?(e[+-]\d+)?", "N", " ".join(line.split()))


def test_every_link_to_a_heading_exists():
    headings = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", TEXT, flags=re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= headings
