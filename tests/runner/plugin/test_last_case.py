"""The last launched case is in its file, no matter how the process ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from flash_attest.runner.plugin import last_case
from flash_attest.runner.plugin.last_case import SIZE, LastCase, last_case_in
from tests.places import ROOT


def test_the_text_written_last_is_in_the_file(tmp_path):
    path = tmp_path / "report" / "last-case-main.txt"
    last = LastCase(path)
    assert last_case_in(path) == ""
    for text in ("test_a[mine] seqlen_q=65 seqlen_k=65", "test_b[mine] seqlen_q=1", "µ", "x" * 2 * SIZE, "short"):
        last.write(text)
        assert last_case_in(path) == text[:SIZE]
    assert path.read_bytes().startswith(b"short\n ")


def test_it_is_there_when_the_process_has_been_killed(tmp_path):
    code = f"""
import os, signal
from pathlib import Path
from flash_attest.runner.plugin.last_case import LastCase
last = LastCase(Path({str(tmp_path)!r}) / "last.txt")
for n in range(100):
    last.write(f"case {{n}}")
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT)
    assert ended.returncode == -signal.SIGKILL and last_case_in(tmp_path / "last.txt") == "case 99"


def test_it_is_gone_when_the_process_ends_normally(tmp_path):
    path = tmp_path / "last.txt"
    last = LastCase(path)
    last.remove()
    for text in ("a", "b"):  # a process may judge again
        last.write(text)
        assert last_case_in(path) == text
        last.remove()
        assert not path.exists()


def test_a_fork_writes_to_a_file_that_its_parent_removes(tmp_path):
    path = tmp_path / "last.txt"
    last = LastCase(path)
    if (child := os.fork()) == 0:
        status = 1
        try:
            last.write("of the child")
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0 and last_case_in(path) == "of the child"
    last.remove()
    assert not path.exists()


def test_two_processes_of_a_worker_leave_nothing_of_each_other(tmp_path):
    """One process judges. A process that starts later judges a case alone."""
    path = tmp_path / "last.txt"
    judging, alone = LastCase(path), LastCase(path)
    for writer, text in ((judging, "a long text, which ends here"), (alone, "a text of the other"), (judging, "short")):
        writer.write(text)
        assert last_case_in(path) == text


def test_a_file_system_that_maps_no_files(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(19, "No such device")

    monkeypatch.setattr(last_case.mmap, "mmap", refuse)
    last = LastCase(tmp_path / "last.txt")
    for text in ("a longer text", "short"):
        last.write(text)
        assert last_case_in(last.path) == text


def test_a_disk_without_room_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "no folder").touch()
    for path in (tmp_path / "no folder" / "last.txt", Path("/dev/full")):
        LastCase(path).write("a")
    monkeypatch.setattr(last_case.os, "pwrite", lambda *_: 100)  # as many bytes as there was room for
    last = LastCase(tmp_path / "last.txt")
    last.write("a")
    assert last_case_in(last.path) == "" and last._memory is None
