"""The processes below a process are found, with their children, whatever system this is."""

import os
import subprocess
import sys
import time

from flash_attest.runner.descendants import descendants
from tests.places import ROOT


def test_children_and_their_children_are_found_until_they_have_ended():
    before = {*descendants(os.getpid())}
    process = subprocess.Popen("sleep 1000 & exec sleep 1000", shell=True)
    while len(below := {*descendants(os.getpid())} - before) < 2:
        time.sleep(0.01)
    assert process.pid in dict(below) and len(descendants(process.pid)) == 1
    for pid, _ in below:
        os.kill(pid, 9)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process.pid not in dict(descendants(os.getpid()))
    assert process.pid in dict(descendants(os.getpid(), ended=True))
    process.wait()


def test_one_that_starts_while_the_list_is_read_is_found(monkeypatch):
    """The parent of a daemon has often ended before it is looked at."""
    process, lists, listdir = subprocess.Popen(["sleep", "1000"]), [], os.listdir

    def lacks_it_at_first(folder):
        lists.append([name for name in listdir(folder) if lists or name != str(process.pid)])
        return lists[-1]

    monkeypatch.setattr(os, "listdir", lacks_it_at_first)
    below = dict(descendants(os.getpid()))
    process.kill()
    process.wait()
    assert process.pid in below and str(process.pid) not in lists[0]


def test_a_system_that_does_not_tell_has_none(monkeypatch):
    def fails(folder):
        raise FileNotFoundError(folder)

    monkeypatch.setattr(os, "listdir", fails)
    assert descendants(os.getpid()) == []


def test_the_process_of_an_untrusted_kernel_loads_nothing_for_it():
    code = "import sys, flash_attest.runner.descendants; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name for name in run.stdout.split() if name.partition(".")[0] in ("flash_attest", "torch")}
    assert loaded == {"flash_attest", "flash_attest.runner", "flash_attest.runner.descendants"}
