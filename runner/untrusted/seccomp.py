"""Refuses system calls that reach beyond a process: its parent, metadata of files, the network.

Landlock holds files and, in newer versions, signals, but not these. The filter is a short program
for the kernel's BPF machine. libseccomp would assemble it, too, but no maintained package brings it
to Python, and there is little to assemble: a list of system calls with what each gets.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys
from collections.abc import Iterable

PR_SET_SECCOMP, PR_CAPBSET_DROP, FILTER = 22, 24, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_PTRACER = 1, 4, 0x59616D61
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD, JUMP_EQUAL, JUMP_FROM, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = (
    0,
    4,
    16,
    24,
)  # offsets in struct seccomp_data; both machines are little-endian
X32 = 0x40000000  # x86-64 has each call a second time, from this number on
NAMESPACES = 0x7E020080  # CLONE_NEWUSER, NEWPID, NEWNET, NEWIPC, NEWUTS, NEWCGROUP, NEWNS, NEWTIME

# Name -> its number on x86-64 and on 64-bit ARM, which lacks some old calls.
NUMBERS: dict[str, tuple[int, int | None]] = {
    # reaches other processes
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "process_mrelease": (448, 448), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "prctl": (157, 167), "setsid": (112, 157), "setpgid": (109, 154),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    # metadata of files
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "setxattrat": (463, 463),
    "removexattrat": (466, 466), "file_setattr": (469, 469), "truncate": (76, 45),
    # the network, and services of this machine
    "socket": (41, 198), "connect": (42, 203),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # memory, semaphores and queues of System V and POSIX, which outlive a process
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "mq_open": (240, 180), "mq_unlink": (241, 181),
    # namespaces and mounts
    "clone": (56, 220), "clone3": (435, 435), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "move_mount": (429, 429), "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "mount_setattr": (442, 442), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # the kernel
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162), "quotactl": (179, 60), "syslog": (103, 116), "iopl": (172, None), "ioperm": (173, None),
    "vhangup": (153, 58), "capset": (126, 91),
}  # fmt: skip
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, and the audit number

ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")  # libraries then use older calls
METADATA = (
    "chown", "fchown", "lchown", "fchownat", "utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr",
    "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "setxattrat", "removexattrat", "file_setattr",
)  # fmt: skip
# Linkers and copies set modes of their own files, and fail if they cannot. These calls change
# nothing and say that they succeeded. So does setsid, so that the process group holds all
# processes.
PRETENDED = ("chmod", "fchmod", "fchmodat", "fchmodat2", "setsid", "setpgid")
# CUDA makes such a socket of this machine and fails without it. It cannot be connected, and so
# reaches nothing.
UNIX, PACKETS, CLOSED_ON_EXEC = 1, 5, 0o2000000
SIGNALS = ("kill", "tgkill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
ITSELF = ("prlimit64", "sched_setaffinity")  # allowed for the calling process, which is number 0


def works() -> bool:
    """Return whether there is a filter for this machine."""
    return sys.platform == "linux" and platform.machine() in MACHINES


def program(mounts_hold: bool, signals_held: bool, truncation_held: bool, pid: int, gpu: bool) -> bytes:
    """Return the filter's program.

    mounts_hold: in namespaces of its own, a process has no metadata and no session to protect.
    signals_held, truncation_held: what Landlock or a namespace already keeps inside. pid: of the
    process that enters. gpu: whether it may use a GPU.
    """
    column, audit = MACHINES[platform.machine()]
    lines = [_line(LOAD, ARCHITECTURE), _line(JUMP_EQUAL, audit, 1, 0), _line(RETURN, ERRNO | errno.EPERM)]
    lines += [_line(LOAD, NUMBER)]
    if column == 0:
        lines += [_line(JUMP_FROM, X32, 0, 1), _line(RETURN, ERRNO | errno.ENOSYS)]
    for name, numbers in NUMBERS.items():
        if numbers[column] is None:
            continue
        body = _answer(name, mounts_hold, signals_held, truncation_held, pid, gpu)
        if body:
            lines += [_line(JUMP_EQUAL, numbers[column], 0, len(body)), *body]
    return b"".join([*lines, _line(RETURN, ALLOW)])


def _answer(
    name: str, mounts_hold: bool, signals_held: bool, truncation_held: bool, pid: int, gpu: bool
) -> list[bytes]:
    """Return the lines for one system call. The last one always returns."""
    refused = _line(RETURN, ERRNO | errno.EPERM)
    if name in PRETENDED:
        return [] if mounts_hold else [_line(RETURN, ERRNO)]
    if name in METADATA:
        return [] if mounts_hold else [refused]
    if name in ABSENT:
        return [_line(RETURN, ERRNO | errno.ENOSYS)]
    if name in ITSELF:
        return _if_first_argument(JUMP_EQUAL, [0, pid], ALLOW, ERRNO | errno.EPERM)
    if name == "connect":
        return [_line(RETURN, ERRNO | errno.ENOENT)]
    if name == "socket" and gpu:
        packets = [_line(LOAD, SECOND_ARGUMENT)]
        for kind in (PACKETS, PACKETS | CLOSED_ON_EXEC):
            packets += [_line(JUMP_EQUAL, kind, 0, 1), _line(RETURN, ALLOW)]
        return [_line(LOAD, FIRST_ARGUMENT), _line(JUMP_EQUAL, UNIX, 0, len(packets)), *packets, refused]
    if name == "clone":
        return _if_first_argument(JUMP_ANY_BIT, [NAMESPACES], ERRNO | errno.EPERM, ALLOW)
    if name == "prctl":
        options = [PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_PTRACER]
        return _if_first_argument(JUMP_EQUAL, options, ERRNO | errno.EPERM, ALLOW)
    if name in SIGNALS:
        if signals_held:
            return []
        return _if_first_argument(JUMP_EQUAL, [0, pid], ALLOW, ERRNO | errno.EPERM) if name != "tkill" else [refused]
    if name == "truncate":
        return [] if truncation_held else [refused]
    return [refused]


def _if_first_argument(test: int, values: Iterable[int], then: int, otherwise: int) -> list[bytes]:
    tests = [line for value in values for line in (_line(test, value, 0, 1), _line(RETURN, then))]
    return [_line(LOAD, FIRST_ARGUMENT), *tests, _line(RETURN, otherwise)]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one instruction, struct sock_filter: the jumps skip this many instructions."""
    return struct.pack("<HBBI", code, if_true, if_false, value)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_void_p)]


def enter(lines: bytes) -> None:
    """Filter the calls of this thread, and of threads and processes that it starts.

    prctl must have set no_new_privs.
    """
    memory = ctypes.create_string_buffer(lines, len(lines))
    given = _Program(len(lines) // 8, ctypes.cast(memory, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(given), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp refuses the filter")


def drop_capabilities() -> None:
    """Give up what root may do beyond other users. Does nothing for other users."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if works():
        number = NUMBERS["capset"][MACHINES[platform.machine()][0]]
        version, nothing = struct.pack("<Ii", 0x20080522, 0), bytes(24)
        libc.syscall(number, ctypes.create_string_buffer(version, 8), ctypes.create_string_buffer(nothing, 24))
