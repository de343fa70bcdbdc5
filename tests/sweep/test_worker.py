"""A worker gives up pairs, ends in order, and reports if kernels are not isolated."""

import os
import signal
import time
from contextlib import closing
from types import SimpleNamespace

import torch

from flash_attest.impls import Supports
from flash_attest.properties.judging.verdict import REFUSED, UNKNOWN, Result
from flash_attest.runner.isolation.isolated import MOST_TIMED_OUT_IN_ALL, Isolated
from flash_attest.sweep import worker
from flash_attest.sweep.judging import Judging
from flash_attest.sweep.plan import LAYERS
from tests.sweep.sweeps import run, status_of, store
from tests.sweep.test_drawing import ENTRIES, entry
from tests.sweep.test_findings import IMPL, job


def test_a_pair_that_was_given_up_is_in_the_file(tmp_path, monkeypatch):
    """One pair has no case, and the other pair is refused again and again."""
    monkeypatch.setattr(worker, "version_of", lambda *_: "1")
    none = entry("none", supports=Supports(dtypes={torch.float32}, headdims={8}, accepts=lambda case: "nothing"))
    with closing(store(tmp_path / "sweep.db")) as database:
        one = worker.Worker(job(tmp_path), "w0", database, [none, ENTRIES[0]], judging=None)
        one.pairs = [(none, LAYERS["repeat"]), (ENTRIES[0], LAYERS["copies"])]
        one.left = list(one.pairs)
        while len(one.left) == 2:
            one._next()
        for _ in range(worker.GIVEN_UP[REFUSED]):
            one._note(run(0, impl="one", layer="copies", verdict=REFUSED, reason="it is not for this law"))
        assert one.left == [] and database.noted("s", "given_up") == [
            ["none", "repeat", "none: no case that test_repeats_agree wants lies in what it supports"],
            ["one", "copies", "50 runs in a row without a verdict, the last: it is not for this law"],
        ]


def test_runs_that_are_refused_and_runs_that_are_unknown_are_counted_apart(tmp_path):
    with closing(store(tmp_path / "sweep.db")) as database:
        one = worker.Worker(job(tmp_path), "w0", database, [ENTRIES[0]], judging=None)
        one.pairs = one.left = [(ENTRIES[0], LAYERS["copies"])]
        for verdict in [UNKNOWN] * 2 + [REFUSED] * 10 + [UNKNOWN] * 2:
            one._note(run(0, impl="one", layer="copies", verdict=verdict, reason="out of memory"))
        assert len(one.left) == 1
        one._note(run(0, impl="one", layer="copies", verdict=UNKNOWN, reason="out of memory"))
        assert one.left == []


def test_its_end_is_not_taken_for_one_of_the_implementation(tmp_path, monkeypatch):
    """If kernels ran in the worker, its SystemExit would be a finding."""

    def work(*_):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        except (Exception, SystemExit):
            os._exit(70)

    monkeypatch.setattr(worker, "_work", work)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        worker.main(job(tmp_path), "w0", None, parent)
        os._exit(0)
    assert status_of(child) == 0


def test_it_says_where_kernels_are_not_isolated(tmp_path, monkeypatch):
    judging = SimpleNamespace(isolated=False, close=lambda: None, left=[])
    monkeypatch.setattr(worker, "Judging", lambda *_: judging)
    monkeypatch.setattr(worker.plan, "entries", lambda *_, **__: [])
    with closing(store(tmp_path / "sweep.db")) as reader:
        for name in ("w0", "w1"):
            worker._work(job(tmp_path, stop=0.0), name)
        assert reader.noted("s", "remarks") == [worker.NOT_ISOLATED]
        judging.isolated = True
        reader.begin("t", {})
        worker._work(job(tmp_path, stop=0.0, session="t"), "w0")
        assert reader.noted("t", "remarks") == []


def test_calls_that_do_not_return_are_counted_for_each_run(monkeypatch):
    """Over hours, many calls time out. The worker gives up one layer, not the implementation."""
    isolated = object.__new__(Isolated)
    isolated._timed_out, isolated._not_up = {IMPL.name: MOST_TIMED_OUT_IN_ALL}, {(IMPL.name, "cpu"): "no memory"}
    monkeypatch.setattr(Isolated, "law", lambda self, law, impl, **_: Result(impl.name, law.chapter, law.name, UNKNOWN))
    judging = object.__new__(Judging)
    judging._judge = isolated
    judging(LAYERS["repeat"].law, IMPL, "seqlen_q=1", "", 10)
    assert not isolated._timed_out and not isolated._not_up
