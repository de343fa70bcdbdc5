"""The workers of a host: when they are not started again."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from sweep.crew import MOST_DEATHS, Crew
from tests.sweep.sweeps import store
from tests.sweep.test_findings import job


@pytest.mark.parametrize("others, trouble", [({}, "no worker is left: see standard error"), ({"w1": None}, "")])
def test_a_sweep_without_workers_does_not_end_as_if_all_were_well(tmp_path, others, trouble):
    said = []
    with closing(store(tmp_path / "sweep.db")) as there:
        crew = Crew(job(tmp_path), [("w0", None), ("w1", None)], there, SimpleNamespace(tell=said.append))
        crew._workers, crew._start = dict(others), lambda *_: None
        for _ in range(MOST_DEATHS):
            crew._died("w0", -9)
    assert crew.trouble == trouble and "worker w0 is not started again" in said[-1]
