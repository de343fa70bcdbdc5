"""The parts of a run that programs read: results.json, JUnit, report.md, annotations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN, Result
from flash_attest.runner.causes import causes_of
from flash_attest.runner.plugin import saved
from flash_attest.runner.plugin.annotations import annotations
from flash_attest.runner.plugin.junit import mark_undecided
from flash_attest.runner.plugin.report import Report
from flash_attest.runner.plugin.summary import summary
from tests.places import PLUGINS, ROOT
from tests.runs import attest_each

SCHEMA = json.loads((ROOT / "runner" / "plugin" / "results.schema.json").read_text())
ENVIRONMENT = {"versions": {}, "command": "pytest", "device": "cpu", "started": "2026-11-22", "state": "complete"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with each verdict: a failure with a picture, laws that need a GPU, a law in which the
    suite raises.
    """
    folder = tmp_path_factory.mktemp("machines")
    plugins = ("-p", "tests.plugins.breaks_the_suite", "--impl-from", PLUGINS / "one_key_short.py")
    chosen = ("properties", "-k", "sees_exactly or out_matches or biased or current_stream")
    return attest_each(
        {"run": (*plugins, *chosen, f"--junit-xml={folder / 'junit.xml'}", "--hypothesis-profile=quick")}, folder
    )["run"]


def record(run) -> dict:
    return json.loads((run.report / "results.json").read_text())


def test_results_are_valid_by_the_schema(run):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    there = record(run)
    jsonschema.validate(there, SCHEMA)
    assert {r["verdict"] for r in there["results"]} == {"pass", "fail", "unknown", "refused"} - {"pass"}


def test_the_schema_knows_every_field_and_reason():
    result = SCHEMA["$defs"]["result"]
    assert set(result["required"]) == set(result["properties"]) == set(Result("", "", "", PASS).as_dict())
    assert set(result["properties"]["why"]["enum"]) == {"", *(why.value for why in Reason)}
    assert SCHEMA["properties"]["format"]["const"] == saved.FORMAT


@pytest.mark.parametrize("change", [{"verdict": "maybe"}, {"tried": [[1, 2, 3]]}, {"why": "new"}, {"cases": -1}])
def test_the_schema_refuses_another_form(run, change):
    there = record(run)
    there["results"][0] |= change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(there, SCHEMA)


def test_a_failure_says_where_it_is_wrong_and_what_was_tried(run):
    (fails,) = [r for r in record(run)["results"] if r["verdict"] == "fail"]
    wrong = fails["wrong"]
    assert (wrong["seqlen_q"], wrong["diagonal"], wrong["queries"]) == (17, 0, [[16, 16]])
    assert (wrong["tensor"], wrong["missing"], wrong["extra"]) == ("lse", [[16, 16]], [])
    assert len(fails["tried"]) == fails["cases"] and [17, 17, 16, None] in fails["tried"]
    assert fails["clue"] == "lengths of 17 or more"
    file, _, line = fails["declared_at"].rpartition(":")
    assert (
        file == "tests/plugins/one_key_short.py" and "def " in Path(ROOT, file).read_text().splitlines()[int(line) - 1]
    )


def test_a_file_of_an_older_version_is_read(run, tmp_path):
    old = record(run)
    old["results"] = [{k: v for k, v in r.items() if k not in saved.NEW} for r in old["results"]]
    del old["format"]
    (tmp_path / "results.json").write_text(json.dumps(old))
    assert all(saved.NEW.keys() <= r.keys() for r in saved.read(tmp_path)["results"])
    (tmp_path / "results.json").write_text(json.dumps(old | {"format": 3}))
    with pytest.raises(saved.NoReport, match="has format 3, which a newer flash-attest wrote: this one reads up to 2"):
        saved.read(tmp_path)


# --- JUnit --------------------------------------------------------------------------------------


def test_undecided_laws_are_errors_in_junit(run):
    tree = ElementTree.parse(run.report.parent / "junit.xml")
    outcomes = {case.get("name"): [child.tag for child in case] for case in tree.iter("testcase")}
    assert outcomes["test_out_matches_the_definition[one_key_short]"] == ["error"]
    assert outcomes["test_query_sees_exactly_its_prefix[one_key_short]"] == ["failure"]
    assert outcomes["test_work_waits_on_the_current_stream[one_key_short]"] == ["skipped"]
    (suite,) = tree.iter("testsuite")
    skipped = sum(tags[-1:] == ["skipped"] for tags in outcomes.values())
    assert (suite.get("errors"), suite.get("failures"), suite.get("skipped")) == ("1", "1", str(skipped))


def test_only_the_test_with_that_address_is_marked(tmp_path):
    """The test's class and module count, in the form in which pytest writes them."""
    test = tmp_path / "test_a.py"
    test.write_text(
        "import pytest\n\nclass TestB:\n    @pytest.mark.parametrize('x', ['d', 'e/f.py'])\n"
        "    def test_c(self, x):\n        pytest.skip('why')\n\ndef test_c():\n    pytest.skip('why')\n"
    )
    file = tmp_path / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={file}", "test_a.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    mark_undecided(file, {"test_a.py::TestB::test_c[e/f.py]": "unknown: no memory"})
    tree = ElementTree.parse(file)
    marked = [c for c in tree.iter("testcase") if c.find("error") is not None]
    assert [(c.get("classname"), c.get("name")) for c in marked] == [("test_a.TestB", "test_c[e/f.py]")]
    assert marked[0].find("error").get("message") == "unknown: no memory"


def test_a_reason_with_any_character_leaves_the_file_valid(tmp_path):
    file = tmp_path / "junit.xml"
    case = '<testcase classname="ci.test_a" name="test_c"><skipped/></testcase>'
    file.write_text(f'<testsuites><testsuite skipped="1" errors="0">{case}</testsuite></testsuites>')
    mark_undecided(file, {"test_a.py::test_c": "unknown: odd \ufffe \x00 <&>"}, prefix="ci")
    (error,) = ElementTree.parse(file).iter("error")
    assert error.get("message") == "unknown: odd ? ? <&>"


# --- report.md ----------------------------------------------------------------------------------


def failure(**fields) -> dict:
    given = {"reason": "out is wrong", "message": "out is wrong\n", "replay": "pytest x"} | fields
    return Result("mine", "test_causal", "test_a", FAIL, **given).as_dict()


def test_the_summary_has_verdict_rows_and_causes(run):
    text = (run.report / "report.md").read_text()
    assert text.startswith("## flash-attest: not green: 1 law fails; 1 undecided")
    assert "\n| one\\_key\\_short | fail | 0 | 1 | 1 | " in text
    assert "\n### one\\_key\\_short: query 16 sees 16 keys, should see 17: key 16 is missing (" in text
    assert "--case 'seqlen_q=17 seqlen_k=17 headdim=16 dtype=float32 causal=True'`" in text


def test_no_text_of_an_implementation_is_markup_in_the_summary():
    text = summary(ENVIRONMENT, [failure(reason="<b>|a| [x](y) `z`", message="```\n<script>\n````\n", replay="a `b`")])
    assert "&lt;b&gt;\\|a\\| \\[x\\]\\(y\\) \\`z\\`" in text and "\n`````text\n```\n<script>\n````\n`````\n" in text
    assert "`` a `b` ``" in text


def test_a_very_long_message_is_cut_in_the_summary():
    text = summary(ENVIRONMENT, [failure(message="x" * 100_000)])
    assert len(text) < 6000 and "index.html has all of it" in text


def test_a_report_that_was_replaced_has_no_old_summary(tmp_path):
    (tmp_path / "report.md").write_text("old")
    report = Report(tmp_path)
    report.start(ENVIRONMENT, 1)
    assert not (tmp_path / "report.md").exists()
    report.finish()


# --- annotations --------------------------------------------------------------------------------


def test_an_annotation_points_to_the_implementation():
    (line,) = annotations(causes_of([failure(declared_at="a,b/mine.py:12", reason="50 % of out\nis: wrong")]))
    assert line == "::error file=a%2Cb/mine.py,line=12,title=mine%3A a::50 %25 of out%0Ais: wrong%0Apytest x"


def test_a_path_begins_at_the_root_of_the_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path / "kernels")
    (line,) = annotations(causes_of([failure(declared_at="mine.py:12")]))
    assert line.startswith("::error file=kernels/mine.py,line=12,")


def test_a_finding_points_to_the_line_of_the_kernel():
    (line,) = annotations(causes_of([failure(declared_at="mine.py:12", found_at="kernel.cu:4")]))
    assert line.startswith("::error file=kernel.cu,line=4,")


def test_there_are_no_more_annotations_than_are_shown():
    many = [failure(reason=f"{n}") | {"law": f"test_{n}"} for n in range(30)]
    assert len(list(annotations(causes_of(many)))) == 10


def test_annotations_are_printed_in_a_job_of_github_alone(run, tmp_path, monkeypatch):
    assert "::error" not in run.stdout
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    chosen = ("--impl-from", PLUGINS / "one_key_short.py", "properties/test_causal.py", "-k", "sees_exactly")
    there = attest_each({"run": chosen}, tmp_path)["run"]
    lines = there.stdout.splitlines()
    (error,) = [line for line in lines if line.startswith("::error ")]
    assert "file=tests/plugins/one_key_short.py,line=" in error
    # Between the two commands no line of a message is one.
    stop = next(line for line in lines if line.startswith("::stop-commands::"))
    again = f"::{stop.removeprefix('::stop-commands::')}::"
    assert lines.index(stop) < lines.index("Replay") < lines.index(again) < lines.index(error)


def test_unknown_results_alone_have_no_annotation():
    assert not list(annotations(causes_of([Result("mine", "test_a", "test_a", UNKNOWN).as_dict()])))
