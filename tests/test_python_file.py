"""A path that should be a Python file: each thing that is none is named, and so is text that no
locale can decode.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flash_attest import python_file
from flash_attest.arguments import no_text
from flash_attest.python_file import problem_of
from tests.places import ROOT
from tests.runs import environment

NOT_UTF8 = os.fsdecode(b"caf\xe9.py")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a Python file, and with much that is none."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("")
    Path("grüße.py").write_text("")
    Path("noext").write_text("")
    Path("folder.py").mkdir()
    Path("loop.py").symlink_to("loop.py")
    Path("dangling.py").symlink_to("nowhere.py")
    Path("linked.py").symlink_to("mine.py")
    os.mkfifo("fifo.py")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.py")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine.py", ""),
        ("grüße.py", ""),
        ("linked.py", ""),
        ("mne.py", "there is no file mne.py; did you mean mine.py?"),
        ("nowhere/mine.py", "there is no file nowhere/mine.py"),
        ("mine.py/mine.py", "there is no file mine.py/mine.py"),
        ("noext", "should be a Python file (.py)"),
        ("folder.py", "is a folder: name a Python file in it"),
        ("loop.py", "is a symbolic link that leads back to itself"),
        ("dangling.py", "is a symbolic link to nowhere.py, which does not exist"),
        ("fifo.py", "is a named pipe: should be a regular file"),
        ("socket.py", "is a socket: should be a regular file"),
        ("/dev/null", "is a device: should be a regular file"),
        ("mine\0.py", "is no path"),
        (f"{'long' * 100}.py", "cannot be read (file name too long)"),
    ],
)
def test_what_is_no_file_is_named(folder, name, words):
    assert problem_of(Path(name)) == words


def test_a_file_without_permission_is_named(folder, monkeypatch):
    monkeypatch.setattr(python_file.os, "access", lambda path, mode: False)  # root may read everything
    assert problem_of(Path("mine.py")) == "cannot be read (permission denied)"


def test_a_name_that_is_not_utf8_is_named():
    assert no_text("grüße.py") == "" and no_text(NOT_UTF8) == "caf\\xe9.py: is not UTF-8: rename it"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"LC_ALL": "C"}, "there is no file grüße.py"),
        (
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            "cannot be decoded in this locale (ascii): set PYTHONUTF8=1, or LC_ALL=C.UTF-8",
        ),
    ],
)
def test_a_locale_that_cannot_read_a_name_is_told(variables, words, tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "flash_attest", "check", "grüße.py"],
        cwd=tmp_path, env=environment() | {"PYTHONPATH": str(ROOT)} | variables, capture_output=True, timeout=60,
    )  # fmt: skip
    printed = run.stderr.decode("ascii", "backslashreplace")
    assert run.returncode == 2 and words.encode().decode("ascii", "backslashreplace") in printed, printed


def test_a_folder_that_is_gone_is_told(tmp_path):
    (tmp_path / "gone").mkdir()
    run = subprocess.run(
        ["sh", "-c", f'rmdir ../gone; exec "{sys.executable}" -P -m flash_attest laws'],
        cwd=tmp_path / "gone", env=environment() | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert run.returncode == 2 and "the current folder is no longer there: change to another one" in run.stderr
