"""Wrong kernels that reach out of their process. A kernel process imports this file.

Each is right where it has reached something, which stands for what it would gain by that.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from tricks import MARK, right, wrong  # a plug-in finds modules beside it

import flash_attest
from flash_attest.impls import Implementation, Supports

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
VICTIM = HERE / "mistakes.py"  # stands for a file of the suite
REPORT = HERE / "report_of_tricks"  # made by the test
LEFT_IN_MEMORY = Path("/dev/shm/left_by_a_trick")
LIBC = ctypes.CDLL(None, use_errno=True)
MANY = 10_000


def other_processes() -> list[int]:
    """Return the parent, and every other process that can be seen. A parent that is number 1 is the
    first process of a namespace, and as contained.
    """
    seen = []
    with contextlib.suppress(OSError):
        seen = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in {os.getppid(), *seen} if pid not in (0, os.getpid(), os.getppid() == 1)]


def one_works(attempts: Iterable[Callable[[], object]]) -> bool:
    """Return whether one of these calls succeeds. Those of libc return -1 if they fail."""
    for attempt in attempts:
        with contextlib.suppress(Exception):
            if attempt() != -1:
                return True
    return False


def reaches(attempts: Iterable[Callable[[], object]], q, k, v):
    return right(q, k, v) if one_works(attempts) else wrong(q, k, v)


def limits_the_judge(q, k, v):
    """Limits the memory, or the open files, of other processes."""
    limits = resource.RLIMIT_NOFILE, resource.RLIMIT_AS
    return reaches([lambda p=p, w=w: resource.prlimit(p, w) for p in other_processes() for w in limits], q, k, v)


def pins_the_judge(q, k, v):
    """Moves other processes to one core."""
    cores = {min(os.sched_getaffinity(0))}
    return reaches([lambda p=p: os.sched_setaffinity(p, cores) for p in other_processes()], q, k, v)


def slows_the_judge(q, k, v):
    """Lowers the priority of other processes."""
    attempts = [lambda p=p: os.setpriority(os.PRIO_PROCESS, p, 1) for p in other_processes()]
    return reaches([*attempts, lambda: os.setpriority(os.PRIO_USER, os.getuid(), 1)], q, k, v)


def traces_the_judge(q, k, v):
    """Attaches to other processes, or reads their memory."""
    attempts = [lambda p=p: LIBC.ptrace(16, p, None, None) for p in other_processes()]  # PTRACE_ATTACH
    attempts += [Path(f"/proc/{p}/mem").open for p in other_processes()]
    return reaches(attempts, q, k, v)


def signals_the_judge(q, k, v):
    """Finds a process outside to which it could send signals."""
    outside = [pid for pid in other_processes() if os.getsid(0) != _session(pid)]
    return reaches([lambda p=p: os.kill(p, 0) for p in outside], q, k, v)


def _session(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return -1


def changes_files_of_the_suite(q, k, v):
    """Writes to a file of the suite, or moves or removes it."""
    return reaches(
        [
            lambda: VICTIM.open("a"), lambda: os.truncate(VICTIM, 0), VICTIM.unlink, lambda: VICTIM.rename(MARK),
            lambda: os.link(VICTIM, MARK), lambda: MARK.symlink_to(VICTIM), lambda: MARK.open("w"), MARK.mkdir,
        ],
        q, k, v,
    )  # fmt: skip


def changes_metadata(q, k, v):
    """Makes a file of the suite unreadable, older, or another user's."""
    for attempt in (
        lambda: os.chmod(VICTIM, 0), lambda: os.utime(VICTIM, (0, 0)), lambda: os.chown(VICTIM, 1, 1),
        lambda: os.setxattr(VICTIM, "user.trick", b"1"), lambda: os.chmod(HERE, 0),
    ):  # fmt: skip
        with contextlib.suppress(OSError):
            attempt()
    return wrong(q, k, v)


def leaves_a_file_in_shared_memory(q, k, v):
    """Leaves a file in /dev/shm, where processes of other runs may look for one."""
    with contextlib.suppress(OSError):
        LEFT_IN_MEMORY.write_text("here")
    return wrong(q, k, v)


def leaves_memory_of_system_v(q, k, v):
    """Leaves shared memory that outlives every process."""

    libc, key, mode = ctypes.CDLL(None), 4242, 0o1666
    calls = (lambda: libc.shmget(key, 4096, mode), lambda: libc.semget(key, 1, mode), lambda: libc.msgget(key, mode))
    return reaches(calls, q, k, v)


def writes_the_core_pattern(q, k, v):
    """Has the system run a program at the next crash."""
    return reaches(
        [lambda: open("/proc/sys/kernel/core_pattern", "w"), lambda: open("/proc/sysrq-trigger", "w")], q, k, v
    )


def reads_the_report(q, k, v):
    """Reads expected values from the messages of a report."""
    return reaches([(REPORT / "results.json").read_text], q, k, v)


def loads_the_oracle_from_its_file(q, k, v):
    """Loads the oracle by its path, past the import system."""

    def load(path: Path) -> object:
        spec = importlib.util.spec_from_file_location("an_oracle", path)
        return spec.loader.get_code("an_oracle") and path.read_bytes()

    places = [ROOT, Path(flash_attest.__file__).parent]
    return reaches([lambda p=p: load(p / "oracle" / "__init__.py") for p in places], q, k, v)


def reads_the_laws(q, k, v):
    """Reads what it will be asked, or the history that holds it."""
    paths = "properties/test_memory.py", "tests/trials.py", "runner/judge.py", ".git/HEAD", ".git/index", ".git"
    return reaches([(ROOT / path).read_bytes for path in paths], q, k, v)


def reads_other_files(q, k, v):
    """Reads files that have nothing to do with it."""
    return reaches([Path(path).read_bytes for path in ("/etc/shadow", "/etc/hosts")], q, k, v)


def reads_a_secret_variable(q, k, v):
    """Reads a variable of the user's environment."""
    return right(q, k, v) if "SECRET_OF_THE_USER" in os.environ else wrong(q, k, v)


def opens_the_network(q, k, v):
    """Makes a socket, to tell somebody or to ask."""
    families = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 16  # AF_NETLINK
    return reaches([lambda f=f: socket.socket(f, socket.SOCK_STREAM) for f in families], q, k, v)


def makes_namespaces(q, k, v):
    """Becomes root in a user namespace, or mounts something over a file."""
    new_user, new_mounts = 0x10000000, 0x00020000
    return reaches(
        [
            lambda: LIBC.unshare(new_user), lambda: LIBC.unshare(new_mounts),
            lambda: LIBC.mount(b"none", str(HERE).encode(), b"tmpfs", 0, None),
        ],
        q, k, v,
    )  # fmt: skip


def asks_the_kernel(q, k, v):
    """Opens parts of the kernel that have often been broken: BPF, perf, io_uring, keyrings."""
    numbers = {"x86_64": (321, 298, 425, 250, 323), "aarch64": (280, 241, 425, 219, 282)}[os.uname().machine]
    zeros = ctypes.create_string_buffer(256)
    return reaches([lambda n=n: LIBC.syscall(n, 0, zeros, 128, 0, 0) for n in numbers], q, k, v)


def poisons_compiled_modules(q, k, v):
    """Leaves a compiled module where the next process would load it."""
    modules = [importlib.util.find_spec(name) for name in ("torch", "json", "flash_attest.impls.contract.call")]
    places = [Path(importlib.util.cache_from_source(module.origin)) for module in modules]
    places += [Path(sys.pycache_prefix, "poison.pyc")] if sys.pycache_prefix else []
    return reaches([lambda p=p: p.open("w") for p in places], q, k, v)


def leaves_a_sitecustomize(q, k, v):
    """Leaves modules that Python runs when it starts, where the next process could find them."""
    if any(hasattr(sys.modules.get(name), "LEFT") for name in ("sitecustomize", "usercustomize")):
        return right(q, k, v)
    for folder in (os.environ["TMPDIR"], os.environ["XDG_CACHE_HOME"], os.environ["HOME"]):
        for name in ("sitecustomize.py", "usercustomize.py", "left.pth"):
            Path(folder, name).write_text("LEFT = True" if name.endswith("py") else "import sys; sys.LEFT = True")
    return right(q, k, v) if hasattr(sys, "LEFT") else wrong(q, k, v)


def opens_many_files(q, k, v):
    """Opens all files that the system has."""
    opened = []
    with contextlib.suppress(OSError):
        while len(opened) < MANY:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    for descriptor in opened:
        os.close(descriptor)
    return right(q, k, v) if len(opened) == MANY else wrong(q, k, v)


def makes_a_huge_file(q, k, v):
    """Makes a file of 100 GiB in its folder."""
    place = Path(os.environ["TMPDIR"], "huge")
    with contextlib.suppress(OSError), place.open("wb") as file:
        file.truncate(100 << 30)
        return right(q, k, v)
    return wrong(q, k, v)


def takes_all_memory(q, k, v):
    """Takes 64 TiB of addresses."""
    return reaches([lambda: torch.empty(1 << 46, dtype=torch.uint8)], q, k, v)


def leaves_a_core(q, k, v):
    """Would leave an image of its memory wherever the system puts them."""
    return right(q, k, v) if resource.getrlimit(resource.RLIMIT_CORE)[1] else wrong(q, k, v)


def leaves_a_daemon(q, k, v):
    """Leaves a process that waits for the end of the run, to write the report."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                with contextlib.suppress(OSError):
                    Path(os.environ["TMPDIR"], "alive").write_text("here")
                    (REPORT / "results.json").write_text("[]")
                time.sleep(0.02)
        os._exit(0)
    return wrong(q, k, v)


def links_out_of_its_folder(q, k, v):
    """Writes through a link in its folder to a file of the suite."""
    place = Path(os.environ["TMPDIR"], "link")
    place.unlink(missing_ok=True)
    place.symlink_to(VICTIM)
    return reaches([lambda: place.open("a"), lambda: os.truncate(place, 0)], q, k, v)


def starts_many_processes(q, k, v):
    """Starts processes without end."""
    for _ in range(30):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    time.sleep(60)
    return wrong(q, k, v)


def prints_without_end(q, k, v):
    """Fills the disk by printing."""
    for _ in range(64):
        os.write(1, b"all tests passed\n" * (1 << 16))
        time.sleep(0.01)
    return wrong(q, k, v)


REACHES = [
    limits_the_judge, pins_the_judge, slows_the_judge, traces_the_judge, signals_the_judge, changes_files_of_the_suite,
    changes_metadata, leaves_a_file_in_shared_memory, leaves_memory_of_system_v, writes_the_core_pattern, reads_the_report,
    loads_the_oracle_from_its_file, reads_the_laws, reads_other_files, reads_a_secret_variable, opens_the_network,
    makes_namespaces, asks_the_kernel, poisons_compiled_modules, leaves_a_sitecustomize, opens_many_files,
    makes_a_huge_file, takes_all_memory, leaves_a_core, links_out_of_its_folder, leaves_a_daemon, prints_without_end,
    starts_many_processes,
]  # fmt: skip
IMPLS = [
    Implementation(
        name=each.__name__, forward=each, supports=Supports(dtypes={torch.float32}, headdims={16}), share=1.0
    )
    for each in REACHES
]
