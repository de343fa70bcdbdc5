"""Implementations that take a GPU down are reported, and cost no other implementation its verdict.

The runs have one process and two.
"""

import pytest
import torch

from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from tests.runner.torture.on_gpu import NO_CONTRACT, TABLE, WRONG_STREAM
from tests.runner.torture.table import CASE
from tests.runner.torture.test_torture import HERE, LAW, run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
STREAM = "test_work_waits_on_the_current_stream"
GPU = (
    "--device",
    "cuda",
    "--case",
    CASE,
    "--case-timeout",
    5.0,
    "-k",
    f"{LAW} or test_contract_is_kept or {STREAM} and (good or wrong or after)",
)
WORKERS = ("0", "2")


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A mapping: number of workers -> results. Each run is made only once."""
    runs = {}

    def with_workers(n):
        if n not in runs:
            runs[n] = None
            runs[n] = run(tmp_path_factory.mktemp("on_gpu"), [HERE / "on_gpu.py"], *GPU, "-n", n)
        assert runs[n] is not None, "the run failed in an earlier test"
        return runs[n]

    return with_workers


@pytest.mark.parametrize("n", WORKERS)
@pytest.mark.parametrize("name", TABLE)
def test_what_takes_a_gpu_down_is_named(judged, name, n):
    entry, row = judged(n)[LAW, name], TABLE[name]
    assert entry["verdict"] in row.verdicts and row.words in entry["reason"], entry["reason"][:500]
    if row.words != "out of memory":  # that depends on what else uses the GPU
        assert f"--case '{CASE}'" in entry["replay"]


@pytest.mark.parametrize("n", WORKERS)
def test_a_wrong_stream_is_named(judged, n):
    entries = judged(n)
    assert entries[STREAM, WRONG_STREAM.name]["verdict"] == FAIL
    assert "on a stream that is busy" in entries[STREAM, WRONG_STREAM.name]["reason"]
    assert entries[STREAM, "good"]["verdict"] == entries[STREAM, "after"]["verdict"] == PASS


@pytest.mark.parametrize("n", WORKERS)
def test_no_neighbour_on_the_gpu_loses_a_verdict(judged, n):
    verdicts = {impl: entry["verdict"] for (law, impl), entry in judged(n).items() if law == LAW}
    assert verdicts["good"] == verdicts["after"] == PASS
    assert set(verdicts) == {"good", *TABLE, WRONG_STREAM.name, NO_CONTRACT.name, "after"}


@pytest.mark.parametrize("n", WORKERS)
def test_an_illegal_access_in_every_call_breaks_the_contract(judged, n):
    contract, law = (judged(n)[test, NO_CONTRACT.name] for test in ("test_contract_is_kept", LAW))
    assert contract["verdict"] == FAIL and "illegal memory access" in contract["reason"]
    # The library that notices depends on the process.
    assert (law["verdict"], law["why"]) == (UNKNOWN, "contract") and "illegal memory access" in law["reason"]


def test_drawn_cases_of_an_illegal_access_shrink_in_processes_of_their_own(tmp_path):
    """The search tries the lengths 1, 2 and 3 first, and has 300 s for them."""
    drawn = ("--device", "cuda", "--hypothesis-profile", "quick", "--case-timeout", 60, "-p", "tests.plugins.patient")
    entries = run(tmp_path, [f"{HERE / 'on_gpu.py'}:DRAWN"], *drawn)
    assert "illegal memory access" in entries[LAW, "drawn"]["reason"]
    assert entries[LAW, "drawn"]["smallest"].startswith("seqlen_q=3 seqlen_k=3 ")
    assert entries[LAW, "good"]["verdict"] == entries[LAW, "after"]["verdict"] == PASS
