"""Beside a GPU, a kernel process may do what CUDA needs. No GPU is needed here."""

import subprocess
import sys

import pytest

from flash_attest.runner.untrusted import landlock, sandbox, seccomp, view
from tests.places import ROOT

SOCKETS = """
import ctypes, errno, os, socket
from flash_attest.runner.untrusted import seccomp
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
seccomp.enter(seccomp.program(False, True, True, os.getpid(), {gpu}))

def tried(call):
    try:
        return call() and None
    except OSError as error:
        return errno.errorcode[error.errno]

families = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 16
kinds = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET
print([(int(family), int(kind)) for family in families for kind in kinds if not tried(lambda: socket.socket(family, kind))])
if {gpu}:
    packets = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    packets.bind("\\0attest-" + str(os.getpid()))
    packets.listen(1)
    print(tried(lambda: packets.connect("/nowhere")))
"""
NAMES = """
import os, threading
from flash_attest.runner.untrusted import sandbox
from flash_attest.runner.untrusted.view import View
sandbox.gpu_nodes = lambda: {nodes}
sandbox.enter("landlock", View((), (), (), "/"))
try:
    with open(f"/proc/self/task/{{threading.get_native_id()}}/comm", "w") as file:
        file.write("named")
    print("named")
except PermissionError:
    print("refused")
try:
    print(open("/proc/self/oom_score_adj", "w").write("0"))
except PermissionError:
    print("refused")
"""


def ran(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(not seccomp.works(), reason="there is no filter of system calls for this system")
def test_sockets_of_packets_within_this_machine_are_made_and_not_connected():
    assert ran(SOCKETS.format(gpu=False)) == ["[]"]
    assert ran(SOCKETS.format(gpu=True)) == ["[(1, 5)]", "ENOENT"]


@pytest.mark.skipif(not landlock.version(), reason="there is no Landlock")
@pytest.mark.parametrize(("nodes", "threads"), [([], "refused"), (["/dev/null"], "named")])
def test_threads_are_named(nodes, threads):
    assert ran(NAMES.format(nodes=nodes)) == [threads, "refused"]


def test_bubblewrap_leaves_proc_to_landlock(monkeypatch):
    """Without a GPU or Landlock, /proc is read-only."""
    from flash_attest.runner.untrusted import bubblewrap

    monkeypatch.setattr(bubblewrap, "_bwrap", lambda: ("bwrap",))

    def is_read_only(nodes: list[str], version: int) -> bool:
        monkeypatch.setattr(bubblewrap, "gpu_nodes", lambda: nodes)
        monkeypatch.setattr(landlock, "version", lambda: version)
        line = " ".join(bubblewrap.command(view.View((), (), (), "/"), ["true"], None))
        return "--remount-ro /proc" in line

    assert is_read_only([], 7) and is_read_only(["/dev/null"], 0) and not is_read_only(["/dev/null"], 7)
    entered = []
    monkeypatch.setattr(sandbox.ctypes, "CDLL", lambda name: type("Libc", (), {"prctl": lambda self, *numbers: 0})())
    monkeypatch.setattr(landlock, "enter", lambda *paths: entered.append(paths))
    for nodes, version in ([], 7), (["/dev/null"], 0), (["/dev/null"], 7):
        monkeypatch.setattr(sandbox, "gpu_nodes", lambda nodes=nodes: nodes)
        monkeypatch.setattr(landlock, "version", lambda version=version: version)
        sandbox.enter(sandbox.BUBBLEWRAP, view.View((), (), (), "/"))
    assert len(entered) == 1 and "/proc/self/task" in entered[0][3]
