"""The line below Replay, and how another process finds the implementation, for each origin of an
implementation.
"""

import shlex

import pytest

from flash_attest.impls.contract.loading import option_of
from flash_attest.properties.judging.origin import DECORATED as DECORATES
from flash_attest.properties.judging.origin import OURS, Checked, DecoratedTest, OwnRun, Scripted

TEST = "properties/test_causal.py::test_query_sees_exactly_its_prefix[mine]"
CASE = "seqlen_q=65 headdim=64"
TESTS = {
    "test_query_sees_exactly_its_prefix": "tests/test_attn.py::test_attention[query_sees_exactly_its_prefix]",
    "test_contract_is_kept": "tests/test_attn.py::test_attention[contract_is_kept]",
}
DECORATED = DecoratedTest(TESTS, ("/r/tests/test_attn.py", "--rootdir=/r"))


@pytest.mark.parametrize(
    "origin, command",
    [
        (OURS, f"pytest '{TEST}' --case '{CASE}'"),
        (OwnRun(option_of("my file.py")), f"pytest '{TEST}' '--impl-from=my file.py' --case '{CASE}'"),
        (
            Checked("mine.py"),
            f"flash-attest check mine.py --law query_sees_exactly_its_prefix --case '{CASE}'",
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
    assert Checked("my file.py:IMPL").replay(TEST, **how) == (
        "flash-attest check 'my file.py:IMPL' --law query_sees_exactly_its_prefix --perturb stress,cold --device cpu"
    )
    assert DECORATED.replay(TEST, **how).endswith(
        "[query_sees_exactly_its_prefix]' --attest-perturb stress,cold --attest-device cpu"
    )


def test_a_gpu_that_is_not_the_default_is_named():
    assert OURS.replay(TEST, CASE, emulated="90").endswith(f" --emulated 90 --case '{CASE}'")
    assert Checked("mine.py").replay(TEST, emulated="90").endswith(" --emulated 90")
    assert DECORATED.replay(TEST, emulated="90").endswith(" --attest-emulated 90")
    assert Scripted("mine").replay(TEST, CASE, emulated="90").endswith(f", emulated=90, case={CASE!r})")


def test_a_call_that_did_not_return_has_its_limit():
    untrusted = Checked("mine.py", option="--untrusted --impl-from=mine.py")
    assert untrusted.replay(TEST).startswith("flash-attest check mine.py --untrusted --law ")
    assert Checked("mine.py").replay(TEST, CASE, timeout="1.5").endswith(f" --case-timeout 1.5 --case '{CASE}'")
    assert DECORATED.replay(TEST, CASE, timeout="1.5").endswith(f" --attest-case-timeout 1.5 --attest-case '{CASE}'")
    assert Scripted("mine").replay(TEST, CASE, timeout="1.5").endswith(f", case_timeout=1.5, case={CASE!r})")


def test_the_contract_check_is_replayed_without_a_case():
    contract = "properties/test_contract.py::test_contract_is_kept[mine]"
    assert OURS.replay(contract) == f"pytest '{contract}'"
    assert shlex.split(DECORATED.replay(contract)) == ["pytest", "tests/test_attn.py::test_attention[contract_is_kept]"]


def test_another_process_finds_it_with_the_same_option():
    assert OURS.again() == []
    assert OwnRun(option_of("my file.py")).again() == ["--impl-from=my file.py"]
    assert Checked("a_package", "", option_of("a_package.attest:IMPL")).again() == ["--impl-from=a_package.attest:IMPL"]
    assert DECORATED.again() == [DECORATES, "/r/tests/test_attn.py", "--rootdir=/r"]


def test_of_a_target_with_several_the_implementation_is_named():
    command = Checked("mine.py", "fast").replay(TEST)
    assert command == "flash-attest check mine.py --impl fast --law query_sees_exactly_its_prefix"
