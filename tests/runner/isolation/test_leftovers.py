"""No process that an implementation starts outlives the judging process, and each is named."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.runner.isolation import leftovers, parent
from flash_attest.runner.isolation.leftovers import FORK, sentences
from flash_attest.runner.isolation.parent import answer_of
from tests.plugins import good
from tests.runner.isolation.judging import LAW, LONG, hostile, isolated

WAIT = 10.0  # seconds for processes to be gone


@pytest.fixture
def seconds(request) -> str:
    """A time to sleep that no other process sleeps, so that the process can be found."""
    return f"{1000 + os.getpid() % 1000}.{abs(hash(request.node.nodeid)) % 10**6}"


def sleeping(seconds: str) -> list[int]:
    """Return the processes that run `sleep` for this time."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.append(int(folder.name))
    return found


def gone(seconds: str) -> bool:
    """Wait until no process sleeps for this time."""
    stop = time.monotonic() + WAIT
    while sleeping(seconds) and time.monotonic() < stop:
        time.sleep(0.05)
    return not sleeping(seconds)


def daemon(seconds: str) -> None:
    """Start a daemon as services do: forked twice, in a session of its own."""
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", seconds])
        os._exit(0)
    os.waitpid(child, 0)


def shell(seconds: str) -> None:
    subprocess.Popen(f"sleep {seconds} & sleep {seconds}", shell=True)
    while len(sleeping(seconds)) < 2:
        time.sleep(0.01)


def deaf(seconds: str) -> None:
    """Start a process that ignores every signal that can be ignored, and stop it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    process = subprocess.Popen(["sleep", seconds], start_new_session=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    process.send_signal(signal.SIGSTOP)


def kills_its_parent(seconds: str) -> None:
    daemon(seconds)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


LEAVES = {
    "daemon": (daemon, PASS, "ended 1 process that hostile left: sleep {0}"),
    "shell": (shell, PASS, "ended 3 processes that hostile left: /bin/sh -c sleep {0} & sleep {0}, sleep {0} (2)"),
    "deaf": (deaf, PASS, "ended 1 process that hostile left: sleep {0}"),
    "crashes": (lambda s: (daemon(s), os.abort()), FAIL, "ended {n} processes that hostile left: sleep {0} ({n})"),
    "kills_its_parent": (kills_its_parent, UNKNOWN, "ended 1 process that hostile left: sleep {0}"),
}


@pytest.mark.parametrize("name", LEAVES)
def test_what_it_leaves_is_ended_and_named(name, seconds, tmp_path):
    act, verdict, words = LEAVES[name]
    called = []

    def once():
        if not called:
            called.append(act(seconds))

    impl = hostile(once)
    with isolated(tmp_path, impl, good.IMPL, case=LONG) as judging:
        result, neighbour = judging.law(LAW, impl), judging.law(LAW, good.IMPL)
    assert not sleeping(seconds)
    assert (result.verdict, neighbour.verdict) == (verdict, PASS), result.reason
    n = sum(judging.left["hostile"].values())
    assert sentences(judging.left) == [words.format(seconds, n=n)]


def test_processes_of_multiprocessing_are_ended(tmp_path):
    started: list = []
    fork = multiprocessing.get_context("fork")

    def start():
        started.extend(fork.Process(target=time.sleep, args=(1000,)) for _ in range(2))
        for process in started:
            process.start()

    impl = hostile(lambda: started or start())
    with isolated(tmp_path, impl, case=LONG) as judging:
        assert judging.law(LAW, impl).verdict == PASS
    assert judging.left == {"hostile": {FORK: 2}}


def test_a_right_implementation_leaves_nothing(tmp_path):
    with isolated(tmp_path, good.IMPL) as judging:
        assert judging.law(LAW, good.IMPL).verdict == PASS
    assert judging.left == {}


def test_helpers_that_end_with_their_parent_are_not_named(seconds, tmp_path):
    """Such a helper waits for the end of its pipe, like the servers of multiprocessing."""
    code = "import sys; sys.stdin.read()"
    started = []
    impl = hostile(
        lambda: started or started.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE))
    )
    with isolated(tmp_path, impl, case=LONG) as judging:
        assert judging.law(LAW, impl).verdict == PASS
    assert judging.left == {}


def test_too_many_processes_end_the_call(monkeypatch, tmp_path):
    monkeypatch.setattr(parent, "MOST_PROCESSES", 30)

    def bomb():
        for _ in range(60):
            if os.fork() == 0:
                time.sleep(1000)
                os._exit(0)
        time.sleep(1000)

    impl = hostile(bomb)
    with isolated(tmp_path, impl, good.IMPL, case=LONG) as judging:
        result, neighbour = judging.law(LAW, impl), judging.law(LAW, good.IMPL)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.WORKER_DIED)
    assert re.match(r"the process was ended in forward: it had started \d+ processes, more than 30;", result.reason)
    assert neighbour.verdict == PASS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda n: n.name)
def test_the_end_of_the_process_above_ends_everything(number, seconds, tmp_path):
    """The process above stands for pytest or a worker, which may be killed at any moment."""

    def hang():
        daemon(seconds)
        subprocess.Popen(["sleep", seconds])
        time.sleep(1000)

    impl = hostile(hang)
    above = os.fork()
    if above == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            with isolated(tmp_path, impl, case=LONG) as judging:
                judging.law(LAW, impl)
        finally:
            os._exit(0)
    stop = time.monotonic() + WAIT
    while len(sleeping(seconds)) < 2 and time.monotonic() < stop:
        time.sleep(0.05)
    assert len(sleeping(seconds)) == 2
    os.kill(above, number)
    os.waitpid(above, 0)
    assert gone(seconds)


def test_a_process_of_the_run_itself_is_left_alone(seconds, tmp_path):
    """Only descendants of judging processes are ended."""
    mine = subprocess.Popen(["sleep", seconds])
    impl = hostile(lambda: daemon("1000.5"))
    with isolated(tmp_path, impl, case=LONG) as judging:
        judging.law(LAW, impl)
    assert mine.poll() is None
    mine.kill()
    mine.wait()


def test_servers_that_compilers_share_are_left_alone(monkeypatch, seconds, tmp_path):
    monkeypatch.setattr(leftovers, "SHARED", {"sleep"})
    impl = hostile(lambda: sleeping(seconds) or daemon(seconds))
    with isolated(tmp_path, impl, case=LONG) as judging:
        judging.law(LAW, impl)
    (server,) = sleeping(seconds)
    os.kill(server, signal.SIGKILL)
    assert judging.left == {}


def test_an_import_that_is_tried_leaves_nothing(seconds):
    told = []
    assert answer_of(lambda: daemon(seconds) or {"ok": True}, 60.0, told.extend) == {"ok": True}
    assert not sleeping(seconds) and told == [f"sleep {seconds}"]


def test_what_an_import_starts_is_ended_with_the_run(monkeypatch, seconds):
    """It is imported in the pytest process, whose other children are left alone."""
    kill, delays = os.kill, iter((0.1, 0.2, 0.3, 0.4, 0.0))

    def slow(pid: int, number: int) -> None:  # processes need a while to end on a busy machine
        if number == signal.SIGKILL:
            threading.Timer(next(delays), kill, (pid, number)).start()
        else:
            kill(pid, number)

    monkeypatch.setattr(os, "kill", slow)
    with leftovers.imports("mine.py"):
        daemon(seconds)
        shell(seconds)
    other = subprocess.Popen(["sleep", "1000.7"])
    left = leftovers.end_those_of_imports()
    assert not sleeping(seconds) and other.poll() is None
    assert sum(left["mine.py"].values()) == 4 and left["mine.py"][f"sleep {seconds}"] == 3
    assert leftovers.end_those_of_imports() == {}
    other.kill()
    other.wait()


def test_what_is_printed_without_end_stays_small(tmp_path):
    """The last lines are kept, and those of an earlier law are forgotten."""
    sizes = []

    def flood():
        for _ in range(40):
            os.write(1, b"x" * 999_999 + b"\n")
        print("the last line", flush=True)
        os.abort()

    impl = hostile(flood)
    with isolated(tmp_path, impl, case=LONG, try_contract=False) as judging:
        watching = threading.Thread(target=lambda: sizes.extend(_largest_open_files(judging, 1.0)))
        watching.start()
        result = judging.law(LAW, impl)
        watching.join()
    assert "it printed: the last line" in result.message and re.search(
        r"it printed: .*xxx \[\.\.\. 65,\d+ char", result.message
    )
    assert max(sizes) <= 1 << 17


def _largest_open_files(judging, seconds):
    """Yield the size of the file for what is printed, while a law is judged."""
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        process = judging._process
        if process is not None:
            yield os.fstat(process._printed.fileno()).st_size
        time.sleep(0.01)
    yield 0


@pytest.mark.parametrize("receiver", ["main", "other"])
def test_an_interrupt_right_after_the_fork_lets_no_second_pytest_run(receiver, monkeypatch, tmp_path):
    """Ctrl-C reaches the fork, too, before it has a session of its own."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    mine, fork, survivors, forks = os.getpid(), os.fork, tmp_path / "survivors", []

    def receive() -> None:  # as a thread does that was there before
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        signal.raise_signal(signal.SIGINT)

    def interrupted_fork() -> int:
        pid = fork()
        if os.getpid() == mine:
            os.kill(pid, signal.SIGINT)
            time.sleep(1.0)  # until it has had its effect there
            forks.append(pid)
            if receiver == "main":
                os.kill(mine, signal.SIGINT)
            else:
                thread = threading.Thread(target=receive)
                thread.start()
                thread.join()
        return pid

    monkeypatch.setattr(os, "fork", interrupted_fork)
    process = parent.JudgingProcess(dict, dict, 60.0)
    try:
        process.begin()
    except KeyboardInterrupt:
        with open(survivors, "a") as file:
            file.write(f"{os.getpid()}\n")
    finally:
        if os.getpid() != mine:
            os._exit(0)
        signal.signal(signal.SIGINT, handler)
    assert survivors.read_text().split() == [str(mine)] and not Path(f"/proc/{forks[0]}").exists()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
