"""Options, settings and declarations in another repository, and runs that use none of them."""

import pytest

from tests.door.hers import beside, pytest_alone, pytest_in


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--attest-case", "seqlen=4"), "--attest-case: there is no field 'seqlen'"),
        (("--attest-repeats", "0"), "--attest-repeats 0: should be at least 1"),
        (("--attest-perturb", "noise"), "--attest-perturb noise: no perturbation"),
        (("-o", "attest_profile=small"), "attest_profile=small: should be one of smoke, quick"),
        (("-o", "attest_seed=one"), "attest_seed=one: should be a number"),
        (("--attest-device", "cuda"), "--attest-device cuda: torch.cuda.is_available() is False here"),
    ],
)
def test_a_wrong_option_is_one_line(repository, arguments, words):
    run = pytest_in(repository, "-q", "-k", "test_right and contract", *arguments)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR and f"ERROR: {words}" in run.stdout, run.stdout


def test_a_report_folder_outside_needs_the_equals_sign(repository, tmp_path):
    """Pytest takes an existing folder after a space for a test path, and ignores the author's
    settings.
    """
    chosen = ("-q", "-k", "test_right and contract")
    run = pytest_in(repository, *chosen, "--attest-report", tmp_path)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR and f"write --attest-report={tmp_path}" in run.stdout, (
        run.stdout
    )
    assert pytest_in(repository, *chosen, f"--attest-report={tmp_path}").returncode == 0
    assert (tmp_path / "results.json").exists()


# The first call of each judging process takes 2 s.
PAUSES = """
import time

calls = []

def pauses(q, k, v, *, causal=False):
    if not calls:
        calls.append(time.sleep(2))
    return attention(q, k, v, causal=causal)

@attention_laws(forward=pauses, **FIELDS)
def test_pauses(law):
    law()
"""


def test_an_option_comes_before_the_settings(repository):
    """The option takes precedence even with its default value."""
    with beside(repository, PAUSES) as file:
        chosen = ("-q", "-rs", file, "-k", "contract", "-o", "attest_case_timeout=0.5")
        run = pytest_in(repository, *chosen)
        assert "flash-attest: not green: 1 law undecided" in run.stdout, run.stdout
        assert "forward does not return within 0.5 s" in run.stdout, run.stdout
        run = pytest_in(repository, *chosen, "--attest-case-timeout", "120")
        assert run.returncode == 0, run.stdout


TWO_OF_ONE_NAME = (
    "@attention_laws(forward=attention)\ndef test_a(law): law()\n"
    "@attention_laws(forward=attention)\ndef test_b(law): law()\n",
    "two implementations are named 'attention'",
)
DECLARATIONS = {
    "two of one name": TWO_OF_ONE_NAME,
    "an unknown field": (
        "@attention_laws(forward=attention, head_dims={64})\ndef test_a(law): law()\n",
        "no field head_dims; did you mean headdims?",
    ),
    "a wrong value": (
        "@attention_laws(forward=attention, layout='sbhd')\ndef test_a(law): law()\n",
        "layout='sbhd': should",
    ),
    "an unknown law": (
        "@attention_laws(forward=attention, known_failures={'test_speed': 'slow, #1'})\ndef test_a(law): law()\n",
        "known_failures names speed: there is no such law",
    ),
}


@pytest.mark.parametrize("mistake", DECLARATIONS)
def test_a_wrong_declaration_is_named(repository, mistake):
    source, words = DECLARATIONS[mistake]
    with beside(repository, source) as file:
        run = pytest_in(repository, "-q", file, "-k", "contract")
    assert run.returncode in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERRUPTED)
    assert words in run.stdout, run.stdout


def test_two_of_one_name_fail_in_workers_too(repository):
    source, words = TWO_OF_ONE_NAME
    with beside(repository, source) as file:
        run = pytest_in(repository, "-q", "-n", 1, file, "-k", "contract")
    assert run.returncode == pytest.ExitCode.TESTS_FAILED and words in run.stdout and "INTERNALERROR" not in run.stdout


def test_a_run_without_laws_imports_no_torch(tmp_path):
    (tmp_path / "test_other.py").write_text("import sys\n\ndef test_other():\n    assert 'torch' not in sys.modules\n")
    run = pytest_alone(tmp_path)
    assert run.returncode == 0, run.stdout


def test_help_spells_options_with_their_prefix(tmp_path):
    run = pytest_alone(tmp_path, "--help")
    assert "as in --attest-case " in run.stdout and "--{" not in run.stdout, run.stdout


def test_the_hook_is_known_in_every_run(tmp_path):
    (tmp_path / "conftest.py").write_text("def pytest_attention_impls(config):\n    return []\n")
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    run = pytest_alone(tmp_path)
    assert run.returncode == 0, run.stdout
