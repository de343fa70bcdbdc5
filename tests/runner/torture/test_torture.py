"""Hostile implementations, many in one run, are reported, and cost no other implementation its
verdict.
"""

import importlib
import json
import time
from pathlib import Path

import pytest

from flash_attest.properties.judging.verdict import PASS, UNKNOWN
from tests.places import PLUGINS
from tests.runner.torture.imports import REPEATS, SOURCES
from tests.runner.torture.table import CASE
from tests.runs import attest

LAW = "test_out_matches_the_definition"
HERE = Path(__file__).parent
TABLES = {
    name: importlib.import_module(f"tests.runner.torture.{name}").TABLE for name in ("raises", "outputs", "endings")
}
TABLES |= {name: importlib.import_module(f"tests.runner.torture.{name}").TABLE for name in ("surroundings", "hangs")}
TABLES |= {name: importlib.import_module(f"tests.runner.torture.{name}").TABLE for name in ("patches", "tensors")}
RUNS = {"hangs": (2.0, ["hangs"])}  # name -> --case-timeout, tables
RUNS["others"] = (60.0, [name for name in TABLES if name != "hangs"])
RUN_OF = {name: run for run, (_, names) in RUNS.items() for name in names}
LAW_IS_JUDGED = ("good", "after", "default_dtype", "default_device", "autocast", "json", "seeds", "environment")
LONGEST = 1200.0  # seconds for a run, on a busy machine
LONGEST_PAGE, LONGEST_OUTPUT = 8 << 20, 4 << 20  # bytes of index.html, characters on the terminal


class Judged(dict):
    """(law, implementation) -> entry of results.json. environment: of the run."""

    def __init__(self, report: dict):
        super().__init__({(entry["law"], entry["impl"]): entry for entry in report["results"]})
        self.environment = report["environment"]


def run(folder, files, *arguments):
    """Judge a correct implementation before and after the others."""
    (folder / "after.py").write_text(
        "import dataclasses\nfrom tests.plugins import good\nIMPL = dataclasses.replace(good.IMPL, name='after')\n"
    )
    sources = [f"--impl-from={file}" for file in (PLUGINS / "good.py", *files, folder / "after.py")]
    began = time.perf_counter()
    process = attest(
        *("-n", "0", "--hypothesis-profile", "smoke", "-k", f"{LAW} or test_contract_is_kept", *arguments, *sources),
        report=folder / "report",
    )
    assert time.perf_counter() - began < LONGEST
    report = json.loads((folder / "report" / "results.json").read_text(encoding="utf-8"))
    (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert (folder / "report" / "index.html").stat().st_size < LONGEST_PAGE
    assert len(process.stdout) < LONGEST_OUTPUT
    assert process.returncode == 1, process.stdout[-3000:]
    assert "INTERNALERROR" not in process.stdout
    return Judged(report)


@pytest.fixture(scope="module")
def judged(tmp_path_factory, pytestconfig):
    """A mapping: name of a run -> results. Each run is made only once."""
    runs = {}
    which = ":EVERY" if pytestconfig.getoption("--thorough") else ""

    def of(name):
        if name not in runs:
            runs[name] = None  # a failed run is not repeated by other tests
            limit, tables = RUNS[name]
            files = [f"{HERE / table}.py{which}" for table in tables]
            runs[name] = run(tmp_path_factory.mktemp(name), files, "--case", CASE, "--case-timeout", limit)
        assert runs[name] is not None, "the run failed in an earlier test"
        return runs[name]

    return of


ROWS = [
    pytest.param(table, name, id=name, marks=pytest.mark.thorough if name in rows.repeats else ())
    for table, rows in TABLES.items()
    for name in rows
]


@pytest.mark.parametrize(("table", "name"), ROWS)
def test_a_hostile_implementation_is_named(judged, table, name):
    results, row = judged(RUN_OF[table]), TABLES[table][name]
    entry = results[LAW, name]
    assert entry["verdict"] in row.verdicts, entry["reason"][:500]
    assert row.words in entry["reason"]
    assert entry["verdict"] != UNKNOWN or entry["why"] in (
        "resources",
        "suite",
        "timed out",
        "worker died",
    )  # no excuse leaves the run green
    assert results["test_contract_is_kept", name]["verdict"] == PASS
    if entry["verdict"] != PASS and "message" in entry and "Replay" in entry["message"]:
        assert f"--case '{CASE}'" in entry["replay"]


@pytest.mark.parametrize("run", RUNS)
def test_no_neighbour_loses_a_verdict(judged, run, pytestconfig):
    results = judged(run)
    every = pytestconfig.getoption("--thorough")
    tables = [TABLES[name] for name in RUNS[run][1]]
    rows = [name for table in tables for name in table if every or name not in table.repeats]
    assert {impl for _, impl in results} == {"good", *rows, "after"}
    neighbours = {(law, impl): entry["verdict"] for (law, impl), entry in results.items() if impl in ("good", "after")}
    assert neighbours == dict.fromkeys(
        [(law, impl) for law in (LAW, "test_contract_is_kept") for impl in ("good", "after")], PASS
    )


def test_what_they_leave_is_ended_and_named(judged):
    """Each keeps a process that sleeps for longer than the run takes."""
    left = judged("others").environment["ended_processes"]
    assert {"fork_stays", "daemon_stays"} <= set(left) and "good" not in left and "after" not in left
    assert judged("hangs").environment["ended_processes"]["waits_for_a_fork_that_stays"]


@pytest.fixture(scope="module", params=["1", *(pytest.param(n, marks=pytest.mark.thorough) for n in "02")])
def imported(request, tmp_path_factory, pytestconfig):
    """The results of files that do more than define an implementation when they are imported."""
    folder = tmp_path_factory.mktemp("imports")
    names = [name for name in SOURCES if pytestconfig.getoption("--thorough") or name not in REPEATS]
    for name in names:
        (folder / f"{name}.py").write_text(SOURCES[name][0].replace("{name}", name))
    which = f"test_contract_is_kept or ({LAW} and ({' or '.join(LAW_IS_JUDGED)}))"
    limits = ("-n", request.param, "-k", which, "--case", CASE, "--case-timeout", 10)
    return run(folder, [folder / f"{name}.py" for name in names], *limits)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough if name in REPEATS else ()) for name in SOURCES]
)
def test_an_import_that_does_something_else_is_named(imported, name):
    _, verdicts, words = SOURCES[name]
    entry = imported["test_contract_is_kept", name]
    assert entry["verdict"] in verdicts.split() and words in entry["reason"], entry["reason"]
    if (law := imported.get((LAW, name))) is not None:
        assert (law["verdict"], law["reason"]) == (PASS, "")


def test_imports_cost_no_neighbour_a_verdict(imported):
    both = [(law, impl) for law in (LAW, "test_contract_is_kept") for impl in ("good", "after")]
    assert [(imported[each]["verdict"], imported[each]["reason"]) for each in both] == [(PASS, "")] * len(both)


def test_there_are_enough():
    assert sum(map(len, TABLES.values())) + len(SOURCES) > 140
