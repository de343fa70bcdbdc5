"""Runs a command in namespaces of its own, with bubblewrap (the Debian package; `bwrap`).

It then sees only its own processes, no network, and the files of its view. Nothing that it starts
outlives it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

from flash_attest.runner.untrusted import landlock, seccomp
from flash_attest.runner.untrusted.view import View, gpu_nodes

SCRATCH = 1 << 30  # bytes that /tmp and /dev/shm may hold
NAMESPACES = (
    "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
    "--hostname", "kernel", "--die-with-parent", "--new-session",
)  # fmt: skip


@functools.cache
def problem() -> str:
    """Return why bubblewrap cannot be used, or "".

    Finds out by trying, because a container may forbid namespaces.
    """
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    try:
        command = [*_bwrap(), "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap: {error}"
    lines = tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"]
    return f"bubblewrap: {lines[-1].removeprefix('bwrap: ')}" if tried.returncode else ""


@functools.cache
def _bwrap() -> tuple[str, ...]:
    """Return the command with the namespaces. Newer versions can forbid further ones."""
    found = shutil.which("bwrap")
    about = subprocess.run([found, "--help"], capture_output=True, text=True, timeout=20, check=False)
    return (found, *NAMESPACES, *(["--disable-userns"] if "--disable-userns" in about.stdout + about.stderr else []))


def filter_file() -> int | None:
    """Return a file with the filter of system calls, which bubblewrap reads. It holds its own first
    process, too.
    """
    if not seccomp.works():
        return None
    file = os.memfd_create("filter")
    os.write(file, seccomp.program(True, True, True, 0, bool(gpu_nodes())))
    os.lseek(file, 0, os.SEEK_SET)
    return file


def command(view: View, process: list[str], filter_file: int | None) -> list[str]:
    """Return the command that runs a process with this view and filter."""
    filtered = [] if filter_file is None else ["--seccomp", str(filter_file)]
    arguments = [
        *_bwrap(),
        *filtered,
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--size",
        str(SCRATCH),
        "--tmpfs",
        "/dev/shm",
    ]
    gpus = gpu_nodes()
    for device in gpus:
        arguments += ["--dev-bind", device, device]
    arguments += ["--size", str(SCRATCH), "--tmpfs", "/tmp"]
    hidden = []
    for path, readable in view.ordered():
        if readable:
            arguments += ["--ro-bind", path, path]
        elif not os.path.isdir(path):
            arguments += ["--ro-bind", "/dev/null", path]
        else:
            arguments += ["--tmpfs", path]
            hidden.append(path)
    for folder in view.writable:
        arguments += ["--bind", folder, folder]
    arguments += ["--dir", view.cwd]
    # CUDA writes names of threads to /proc. There, Landlock holds the rest (sandbox.py). Otherwise,
    # root could write to /proc/sys.
    proc = () if gpus and landlock.version() else ("/proc",)
    for path in (*hidden, "/dev", *proc, "/"):
        arguments += ["--remount-ro", path]
    return [*arguments, "--", *process]
