"""flash-attest check: what it judges from any folder, and what it reports if it cannot judge."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from flash_attest.command import chapters, check, targets
from flash_attest.properties.law import laws
from tests.command.test_command import refused
from tests.runs import check as flash_attest
from tests.runs import results

LAW = "query_sees_exactly_its_prefix"
SHORT = ("--profile", "smoke", "--device", "cpu", "-n", "0")


def judged(folder, *arguments, **variables):
    """Run `flash-attest check` in a folder, with few cases."""
    return flash_attest("check", *arguments, *SHORT, folder=folder, **variables)


# --- what is judged -------------------------------------------------------------------------------


def test_a_file_is_judged_and_no_settings_of_its_folder_are_read(hers):
    run = judged(hers, "mine.py", "--law", LAW, "--json", "copy.json", PYTEST_ADDOPTS="--no-such-option")
    assert run.returncode == 0, run.stdout
    entries = results(run.report)
    assert {key: entry["verdict"] for key, entry in entries.items()} == {f"test_{LAW}[mine]": "pass"}
    assert json.loads((hers / "copy.json").read_text()) == json.loads((run.report / "results.json").read_text())
    assert json.loads((hers / "copy.json").read_text())["environment"]["command"].startswith(
        "flash-attest check mine.py"
    )


def test_a_wrong_file_is_not_green(hers):
    run = judged(hers, "wrong.py:IMPL", "--law", f"test_{LAW}")
    assert run.returncode == 1 and "query 0 sees 2 keys, should see 1" in run.stdout, run.stdout


def test_a_case_is_judged_again(hers):
    run = judged(hers, "wrong.py", "--law", LAW, "--case", "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 causal=True")
    assert run.returncode == 1 and "query 0 sees 2 keys, should see 1" in run.stdout, run.stdout


def test_a_module_is_imported_by_its_name(hers):
    run = judged(hers, "package.attention:IMPL", "--law", LAW)
    assert run.returncode == 0, run.stdout
    assert list(results(run.report)) == [f"test_{LAW}[of_module]"]


def test_a_file_imports_what_lies_beside_it(hers, tmp_path):
    run = judged(tmp_path, hers / "beside.py", "--law", LAW)
    assert run.returncode == 0 and list(results(run.report)) == [f"test_{LAW}[beside]"], run.stdout


def test_ours_are_judged_by_name_in_chapters(tmp_path):
    run = judged(tmp_path, "torch_math", "--chapter", "forward")
    assert run.returncode == 0, run.stdout
    assert {key.partition("[")[2] for key in results(run.report)} == {"torch_math]"}
    assert {entry["chapter"] for entry in results(run.report).values()} == {"test_forward"}


def test_an_adapter_is_found_by_its_name(hers, monkeypatch):
    monkeypatch.setattr(targets, "adapters", lambda: {"her_package": "package.attention:IMPL"})
    assert targets.resolved(["her_package"]).imported == ["package.attention:IMPL"]
    assert "; did you mean her_package?" in targets.unknown("her_packge", ["torch_math"])


# --- how pytest is called -------------------------------------------------------------------------


def given(*arguments) -> list[str]:
    """Return the arguments that pytest receives for a command line."""
    options = check.parser_of_options().parse_args([*map(str, arguments)])
    return check.pytest_arguments(options, targets.Targets(imported=["mine.py"]), [])


def test_every_option_reaches_pytest():
    arguments = given(
        "mine.py", "--profile", "quick", "--seed", "7", "--device", "cpu", "--report", "there", "--repeats", "3",
        "--perturb", "cold", "--case-timeout", "9", "--shard", "1/2", "--resume", "--untrusted", "--here",
        "--no-isolation", "-k", "causal", "-x", "-vv",
    )  # fmt: skip
    for text in (
        "--impl-from=mine.py", "--hypothesis-profile=quick", "--hypothesis-seed=7", "--device=cpu", "--report=there",
        "--repeats=3", "--perturb=cold", "--case-timeout=9.0", "--shard=1/2", "--resume", "--untrusted",
        "--here", "--no-isolation", "-x", "--numprocesses=auto",
    ):  # fmt: skip
        assert text in arguments
    assert arguments[arguments.index("-k") + 1] == "causal" and arguments.count("-v") == 2
    assert arguments[arguments.index("-c") + 1] == str(check.CONFIG) and "--noconftest" in arguments


@pytest.mark.parametrize(
    ("options", "workers"), [((), "auto"), (("--case", "headdim=8"), "0"), (("-n", "3"), "3"), (("-n", "0"), "0")]
)
def test_a_single_case_needs_no_workers(options, workers):
    assert f"--numprocesses={workers}" in given("mine.py", *options)


# --- what cannot be judged ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name what to judge: FILE.py, MODULE:NAME, a package with an adapter, or one of ours (--list)"),
        (["mne.py"], "mne.py: there is no file mne.py; did you mean mine.py?"),
        (["mine.py", "--law", "query_sees_its_prefix"], f"no law is called query_sees_its_prefix; did you mean {LAW}?"),
        (["mine.py", "--law", f"{LAW},no_such_law"], "no law is called no_such_law (flash-attest laws lists them)"),
        (["mine.py", "--no-such"], "unrecognized arguments: --no-such (flash-attest check --help lists the options)"),
        (["mine.py", "--chapter", "casual"], "no chapter is called casual; did you mean causal? (chapters: backward"),
        (["no_such_module:IMPL"], "no_such_module:IMPL: there is no module no_such_module"),
        (["package.no_such:IMPL"], "package.no_such:IMPL: there is no module package.no_such"),
        (["mine.py", "torch_math"], "torch_math is one of ours, mine.py is not: judge them in two runs"),
        (["torch_math", "--untrusted"], "torch_math: --untrusted judges files: name FILE.py"),
        (["mine.py", "--seed", "x"], "argument --seed: x: should be a whole number, or random"),
        (["mine.py", "--shard", "3/2"], "argument --shard: 3/2: should be i/n"),
        (["mine.py", "-n", "few"], "argument -n: few: should be a whole number, or auto"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_one_line(arguments, words, hers, monkeypatch, capsys):
    monkeypatch.chdir(hers)
    assert words in refused(check.run, *arguments, capsys=capsys)


def test_an_unknown_name_is_told_with_the_known_ones(tmp_path):
    run = judged(tmp_path, "torch_mth")
    assert run.returncode == 2 and not run.report.exists()
    assert (
        "torch_mth is no file, no module (MODULE:NAME) and no known implementation; did you mean torch_math?"
        in run.stdout
    )
    assert "(known: cuda_fa1, " in run.stdout and "Traceback" not in run.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["broken.py"], 1, "broken.py:1: importing it raises ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        (["broken.py", "--law", LAW], 1, "broken cannot be loaded: broken.py:1: importing it raises ModuleNotFoundError"),
        (["field.py"], 1, "unexpected keyword argument 'lsee'; its fields are name, forward, "),
        (["on_gpu.py", "--law", LAW], 1, "runs on cuda only; this run judges on cpu"),
        (["on_gpu.py", "--here"], 2, "nothing is left to judge; not judged here: on_gpu (runs on cuda only)"),
        (["mine.py", "same_name.py"], 2, "two implementations are named 'mine': in mine.py and in same_name.py"),
        (["mine.py", "-k", "nothing_is_called_this"], 2, "nothing is left to judge: see --law, --chapter, --shard and -k"),
        (["mine.py", "--perturb", "colt"], 2, "--perturb colt: no perturbation; those are "),
        (["mine.py:NAME"], 2, "there is no NAME in it; it has IMPL"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_named(arguments, status, words, hers):
    run = judged(hers, *arguments)
    assert run.returncode == status and words in run.stdout, run.stdout
    assert "INTERNALERROR" not in run.stdout and "Traceback" not in run.stdout


def test_a_misspelt_field_gets_a_suggestion(hers):
    assert "; did you mean lse?" in judged(hers, "field.py", "--law", "contract_is_kept").stdout


def test_without_gxx_a_kernel_says_so(tmp_path):
    run = judged(tmp_path, "cuda_fa2", "--law", LAW, CXX="/no/g++")
    assert (
        run.returncode == 1 and "no g++ found (CXX='/no/g++'), which compiles the kernels for CPU tensors" in run.stdout
    )


# --- the names of laws ----------------------------------------------------------------------------


def test_the_names_that_are_read_are_those_of_the_laws():
    read = {name for names in chapters.laws_by_chapter().values() for name in names}
    assert read == {*laws(), "test_contract_is_kept"}


def test_a_copy_that_cannot_be_written_is_not_green(tmp_path, monkeypatch, capsys):
    (tmp_path / "results.json").write_text("{}" * 10)
    monkeypatch.setattr(pytest, "main", lambda arguments: 0)
    options = Namespace(report=tmp_path, json=Path("/dev/full"))
    assert check._judge([], options) == 1
    assert capsys.readouterr().out == "not green: --json /dev/full cannot be written: No space left on device\n"
    assert "is a folder, should be a file" in refused(check.run, "mine.py", "--json", tmp_path, capsys=capsys)
