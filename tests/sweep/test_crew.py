"""The workers of a host are started, restarted, and given up."""

from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from flash_attest.sweep.crew import COMPLETE, MOST_DEATHS, STOPPED, Crew
from tests.sweep.sweeps import passed, store
from tests.sweep.test_findings import job


@pytest.mark.parametrize("others, trouble", [({}, "no worker is left: see standard error"), ({"w1": None}, "")])
def test_a_sweep_without_workers_does_not_end_as_if_all_were_well(tmp_path, others, trouble):
    lines = []
    with closing(store(tmp_path / "sweep.db")) as database:
        crew = Crew(job(tmp_path), [("w0", None), ("w1", None)], database, SimpleNamespace(tell=lines.append))
        crew._workers, crew._start = dict(others), lambda *_: None
        for _ in range(MOST_DEATHS):
            crew._died("w0", -9)
    assert crew.trouble == trouble and "worker w0 is not started again" in lines[-1]


@pytest.mark.parametrize("done, again", [(0, 3), (2, 1), (3, None)])
def test_a_worker_that_died_is_started_again_with_what_is_left_of_its_share(tmp_path, done, again):
    """Of four workers that share 10 runs, the first two make three runs each."""
    started = []
    with closing(store(tmp_path / "sweep.db")) as database:
        crew = Crew(
            replace(job(tmp_path), most=10),
            [(f"w{n}", None) for n in range(4)],
            database,
            SimpleNamespace(tell=lambda text: None),
        )
        crew._context = SimpleNamespace(
            Process=lambda args, **_: SimpleNamespace(start=lambda: started.append(args[0]))
        )
        crew._share_out()
        assert [job.most for job in started] == [3, 3, 2, 2]
        started.clear()
        for number in range(done):
            database.launch(passed(number, worker="w0"))
            database.done(passed(number, worker="w0"), [])
        crew._died("w0", -9)
    assert [job.most for job in started] == ([again] if again else [])


@pytest.mark.parametrize(
    "most, done, state, trouble",
    [
        (4, 4, COMPLETE, ""),
        (4, 3, STOPPED, "3 of 4 runs were made: see the runs without a verdict"),  # a worker had nothing left to draw
        (0, 3, STOPPED, "nothing is left to draw: see the runs without a verdict"),
    ],
)
def test_workers_that_end_early_are_not_the_end_of_the_sweep(tmp_path, most, done, state, trouble):
    with closing(store(tmp_path / "sweep.db")) as database:
        for number in range(done):
            database.launch(passed(number, worker=f"w{number % 2}"))
            database.done(passed(number, worker=f"w{number % 2}"), [])
        crew = Crew(
            replace(job(tmp_path), most=most),
            [("w0", None), ("w1", None)],
            database,
            SimpleNamespace(show=lambda *_, **__: None),
        )
        crew._start = lambda *_: None
        assert (crew.work(), crew.trouble) == (state, trouble)
