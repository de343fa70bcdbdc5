"""The line under Replay, and how another process finds the implementation, for each place that it may come from."""

import shlex

import pytest

from flash_attest.impls.contract.registry import option_of
from flash_attest.properties.judging.origin import DECORATED as DECORATED_TESTS
from flash_attest.properties.judging.origin import OURS, CheckedFile, DecoratedTest, OwnRun

TEST = "properties/test_causal.py::test_query_sees_exactly_its_prefix[mine]"
CASE = "seqlen_q=65 headdim=64"
DECORATED = DecoratedTest(
    {
        "test_query_sees_exactly_its_prefix": "tests/test_attn.py::test_attention[query_sees_exactly_its_prefix]",
        "test_contract_is_kept": "tests/test_attn.py::test_attention[contract_is_kept]",
    },
    ("tests/test_attn.py",),
)


@pytest.mark.parametrize(
    "origin, command",
    [
        (OURS, f"pytest '{TEST}' --case '{CASE}'"),
        (OwnRun(option_of("my file.py")), f"pytest '{TEST}' '--impl-from=my file.py' --case '{CASE}'"),
        (
            CheckedFile("mine.py"),
            f"flash-attest check mine.py --law test_query_sees_exactly_its_prefix --case '{CASE}'",
        ),
        (
            DECORATED,
            f"pytest 'tests/test_attn.py::test_attention[query_sees_exactly_its_prefix]' --attest-case '{CASE}'",
        ),
    ],
)
def test_each_kind_has_its_own_command(origin, command):
    assert origin.replay(TEST, CASE) == command


def test_what_the_case_alone_does_not_say_is_named():
    how = dict(perturbations="stress,cold", device="cpu")
    assert OwnRun("-p mine").replay(TEST, CASE, **how) == (
        f"pytest '{TEST}' -p mine --perturb stress,cold --device cpu --case '{CASE}'"
    )
    assert CheckedFile("my file.py:IMPL").replay(TEST, **how) == (
        "flash-attest check 'my file.py:IMPL' --law test_query_sees_exactly_its_prefix --perturb stress,cold --device cpu"
    )
    assert DECORATED.replay(TEST, **how).endswith(
        "[query_sees_exactly_its_prefix]' --attest-perturb stress,cold --attest-device cpu"
    )


def test_the_contract_check_is_replayed_without_a_case():
    contract = "properties/test_contract.py::test_contract_is_kept[mine]"
    assert OURS.replay(contract) == f"pytest '{contract}'"
    assert shlex.split(DECORATED.replay(contract)) == ["pytest", "tests/test_attn.py::test_attention[contract_is_kept]"]


def test_another_process_finds_what_an_option_or_a_file_names(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("")
    assert OURS.again() == []
    assert OwnRun(option_of("my file.py")).again() == ["--impl-from=my file.py"]
    assert CheckedFile(str(file)).again() == [f"--impl-from={file}"]
    assert DECORATED.again() == [DECORATED_TESTS, "tests/test_attn.py"]
    assert CheckedFile(f"{file}:NAME").again() == [f"--impl-from={file}:NAME"]


@pytest.mark.parametrize("origin", [CheckedFile("a_package"), CheckedFile("a_package.module:NAME")])
def test_what_no_option_names_is_not_found_again(origin):
    assert origin.again() is None
