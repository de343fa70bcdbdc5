"""Laws share a GPU, and one can be alone on it. Threads with locks of their own stand in for
processes.
"""

import os
import signal
import threading
import time

import pytest

from flash_attest.properties.machine import gpu_turns
from flash_attest.properties.machine.gpu_turns import Turns

SOON = 10.0  # seconds, on a busy machine


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Puts the locks into a folder of this test."""
    monkeypatch.setattr(gpu_turns, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(gpu_turns, "POLL", 0.01)


class Other(threading.Thread):
    """Another process, which runs what a test gives it and records what happens."""

    def __init__(self, events, work):
        super().__init__(daemon=True)
        self.turns, self.events, self.work = Turns("gpu"), events, work
        self.start()

    def run(self):
        self.work(self)

    def ended(self):
        self.join(SOON)
        return not self.is_alive()


def _until(condition):
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_cases_share_a_gpu():
    one, other = Turns("gpu"), Turns("gpu")
    with one.shared(), other.shared():
        assert not one.wanted()


def test_many_cases_may_begin_at_the_same_moment(monkeypatch):
    """One that waits for another sleeps for POLL, which is longer than most cases take."""
    one, other = Turns("gpu"), Turns("gpu")
    monkeypatch.setattr(gpu_turns.time, "sleep", lambda seconds: pytest.fail("it waits"))
    with gpu_turns._held(one._entrance, "LOCK_SH"), other.shared():
        pass


def test_a_wish_is_known_although_another_process_asks_for_it_in_that_moment():
    events, here = [], Turns("gpu")

    def alone(other):
        with other.turns.alone():
            events.append("alone")

    with here.shared():
        with gpu_turns._held(here._wish, "LOCK_SH"):  # as `wanted` does
            wants = Other(events, alone)
            time.sleep(0.05)
        _until(here.wanted)
    assert wants.ended() and events == ["alone"]


def test_one_that_wants_to_be_alone_waits_for_the_others_and_lets_no_new_law_begin():
    events, here = [], Turns("gpu")

    def alone(other):
        with other.turns.shared(), other.turns.alone():
            events.append("alone")
            time.sleep(0.05)
            events.append("no longer")

    def law(other):
        with other.turns.shared():
            events.append("law")

    with here.shared():
        wants = Other(events, alone)
        _until(here.wanted)
        comes = Other(events, law)
        time.sleep(0.05)
        assert events == []
        events.append("ended")
    assert wants.ended() and comes.ended()
    assert events == ["ended", "alone", "no longer", "law"]
    assert not here.wanted()


def test_a_law_that_waits_for_its_turn_with_large_tensors_does_not_block_the_one_that_has_it():
    events, here = [], Turns("gpu")

    def large(other):
        with other.turns.shared(), other.turns.large():
            events.append("the next")

    with here.shared(), here.large():
        waits = Other(events, large)
        time.sleep(0.05)
        with here.alone():
            events.append("alone")
    assert waits.ended()
    assert events == ["alone", "the next"]


def test_a_process_that_is_killed_lets_go():
    ready, say = os.pipe()
    if (pid := os.fork()) == 0:
        with Turns("gpu").shared():
            os.write(say, b"x")
            time.sleep(SOON)
        os._exit(0)
    os.read(ready, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    began = time.monotonic()
    with Turns("gpu").alone():
        assert time.monotonic() - began < SOON / 2


def test_a_lock_that_is_never_released_is_not_awaited_forever(monkeypatch):
    monkeypatch.setattr(gpu_turns, "LONGEST", 0.05)
    with Turns("gpu").shared(), Turns("gpu").alone():
        pass


def test_a_case_that_is_alone_waits_for_no_one_with_large_tensors():
    """It holds the entrance, for which a case with large tensors may wait."""
    events, here = [], Turns("gpu")

    def large(other):
        with other.turns.shared(), other.turns.large(), other.turns.alone():
            events.append("the other")

    with here.alone():
        waits = Other(events, large)
        time.sleep(0.05)
        with here.large(), here.alone():
            events.append("alone")
    assert waits.ended()
    assert events == ["alone", "the other"]


def test_a_block_of_large_tensors_leaves_no_lock_behind():
    here, other = Turns("gpu"), Turns("gpu")
    with here.large():
        pass
    began = time.monotonic()
    with other.alone():
        assert time.monotonic() - began < SOON / 2


def test_without_locks_nobody_waits(monkeypatch):
    def refuses(*how):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(gpu_turns.fcntl, "flock", refuses)
    here = Turns("gpu")
    with here.shared(), here.large(), here.alone():
        assert not here.wanted()
