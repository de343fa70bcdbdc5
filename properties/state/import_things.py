"""State that is watched around imports only.

A call that changes it ends with its judging process. An import takes place in the processes of
pytest, which judge the other implementations, too.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from typing import Any

import numpy
import torch

from flash_attest.properties.state.process_things import SIGNALS
from flash_attest.properties.state.thing import Import, Thing, attribute, same_object

LIMITS = {n: v for n, v in vars(resource).items() if n.startswith("RLIMIT_")}
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
# Options of prctl(2): name -> (how to read, how to set). no_new_privs can only be set.
PRCTL = {
    "the signal at the parent's death": (2, 1),
    "core dumps": (3, 4),
    "no_new_privs": (39, 38),
    "subreaper": (37, 36),
}
BY_ADDRESS = {2, 37}  # these options write to an address
FOLDER_OF_DESCRIPTORS = "/proc/self/fd"

_prctl = getattr(ctypes.CDLL(None), "prctl", None)
_setrlimit, _getrlimit = resource.setrlimit, resource.getrlimit


# --- what can end the process, or keep the watch from its work ----------------------------------


def _traces() -> tuple:
    return threading.gettrace(), threading.getprofile()


def _set_traces(before: tuple) -> None:
    threading.settrace(before[0])
    threading.setprofile(before[1])


def _timers() -> list[bool]:
    return [signal.getitimer(timer)[0] > 0 for timer in TIMERS]


def _stop_timers(before: list[bool]) -> None:
    for timer, was_on in zip(TIMERS, before, strict=True):
        if not was_on:
            signal.setitimer(timer, 0)


def _name_of_signal(number: int) -> str:
    return signal.Signals(number).name if number in SIGNALS else str(int(number))


def _limits() -> dict[str, tuple[int, int]]:
    return {name: _getrlimit(number) for name, number in LIMITS.items()}


def _set_limits(before: dict[str, tuple[int, int]]) -> None:
    for name, limit in before.items():
        with suppress(OSError, ValueError):  # only root raises a hard limit; the soft one goes as far as it
            if _getrlimit(LIMITS[name]) != limit:
                _, hard = _getrlimit(LIMITS[name])
                _setrlimit(LIMITS[name], (limit[0] if hard == resource.RLIM_INFINITY else min(limit[0], hard), hard))
                _setrlimit(LIMITS[name], limit)


def _limits_words(before: dict, after: dict) -> str:
    name = next(name for name in before if before[name] != after[name])
    return f"sets the resource limit {name} to {after[name]} and does not restore it (it was {before[name]})"


# --- the process --------------------------------------------------------------------------------


def _prctls() -> dict[str, int]:
    value, read = ctypes.c_int(), {}
    for name, (option, _) in PRCTL.items() if sys.platform == "linux" else ():
        if option in BY_ADDRESS:
            _prctl(option, ctypes.byref(value), 0, 0, 0)
            read[name] = value.value
        else:
            read[name] = _prctl(option, 0, 0, 0, 0)
    return read


def _set_prctls(before: dict[str, int]) -> None:
    for name, value in before.items():
        _prctl(PRCTL[name][1], value, 0, 0, 0)


def _prctls_words(before: dict, after: dict) -> str:
    changed = [f"{name} to {after[name]}" for name in before if before[name] != after[name]]
    return f"sets {', '.join(changed)} (prctl) and does not restore it"


def _affinity() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _set_priority(before: int) -> None:
    with suppress(OSError):  # only root raises it
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _descriptors() -> dict[int, tuple[int, int]]:
    """Return the open file descriptors above the standard streams, and their files."""
    files = {}
    for number in map(int, os.listdir(FOLDER_OF_DESCRIPTORS)):
        with suppress(OSError):  # the descriptor of the folder itself is closed again
            status = os.fstat(number)
            files[number] = status.st_dev, status.st_ino
    return {number: file for number, file in files.items() if number > 2}


def _descriptors_words(before: dict, after: dict) -> str:
    gone = [number for number, file in before.items() if after.get(number) != file]
    return f"closes files that it has not opened (descriptors {', '.join(map(str, gone[:5]))})" if gone else ""


# --- Python, numpy, torch -----------------------------------------------------------------------


def _root() -> tuple:
    root = logging.getLogger()
    return root.level, root.handlers[:], root.filters[:], root.disabled


def _set_root(before: tuple) -> None:
    root = logging.getLogger()
    root.setLevel(before[0])
    root.handlers[:], root.filters[:], root.disabled = before[1], before[2], before[3]


def _set_start_method(before: str | None) -> None:
    multiprocessing.set_start_method(before, force=True)


def _set_faulthandler(before: bool) -> None:
    if before:
        faulthandler.enable(sys.__stderr__)
    else:
        faulthandler.disable()


def _collector() -> tuple:
    return gc.get_threshold(), gc.get_debug(), gc.callbacks[:]


def _set_collector(before: tuple) -> None:
    gc.set_threshold(*before[0])
    gc.set_debug(before[1])
    gc.callbacks[:] = before[2]


def _profile() -> str | None:
    hypothesis = sys.modules.get("hypothesis")  # the kernel process of --untrusted has not loaded it
    return hypothesis.settings.get_current_profile_name() if hypothesis else None


def _set_profile(before: str) -> None:
    sys.modules["hypothesis"].settings.load_profile(before)


def _print_options() -> dict[str, Any]:
    return vars(torch._tensor_str.PRINT_OPTS).copy()


def _set_print_options(before: dict[str, Any]) -> None:
    torch.set_printoptions(**before)


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


ANOMALY = Thing(
    "torch's anomaly mode (on, check_nan)",
    _anomaly,
    lambda before: torch.autograd.set_detect_anomaly(*before) and None,
)

# These are restored first, as they could end the process or keep the watch from its work.
FIRST = (
    Thing(
        "threads' trace functions", _traces, _set_traces, lambda b, a: "leaves a trace function (threading.settrace) on"
    ),
    Thing("the timers", _timers, _stop_timers, lambda b, a: "leaves a timer on (signal.setitimer)"),
    Thing("the resource limits", _limits, _set_limits, _limits_words),
    Thing(
        "the signal mask",
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda before: signal.pthread_sigmask(signal.SIG_SETMASK, before) and None,
        lambda b, a: f"blocks signals ({', '.join(map(_name_of_signal, sorted(b ^ a)[:5]))}) and leaves them so",
    ),
)
# Nothing can restore these.
FOR_GOOD = (Thing("open files", _descriptors, lambda before: None, _descriptors_words),)
OTHERS = (
    Thing("the attributes of the process", _prctls, _set_prctls, _prctls_words),
    Thing("the processors that the process may use", _affinity, lambda before: os.sched_setaffinity(0, before)),
    Thing("the process's priority (nice)", lambda: os.getpriority(os.PRIO_PROCESS, 0), _set_priority),
    Thing("the time zone", lambda: time.tzname, lambda before: time.tzset(), imported=Import.ALLOWED),
    Thing("sys.argv", lambda: sys.argv[:], lambda before: sys.argv.__setitem__(slice(None), before)),
    same_object("sys.stdin", sys, "stdin"),
    same_object("sys.displayhook", sys, "displayhook"),
    same_object("sys.breakpointhook", sys, "breakpointhook", imported=Import.REMARK),
    Thing("sys.dont_write_bytecode", *attribute(sys, "dont_write_bytecode"), imported=Import.ALLOWED),
    Thing("Python's switch interval", sys.getswitchinterval, sys.setswitchinterval),
    Thing(
        "Python's garbage collection (thresholds, debug, callbacks)", _collector, _set_collector, imported=Import.REMARK
    ),
    Thing("Python's crash handler (faulthandler)", faulthandler.is_enabled, _set_faulthandler, imported=Import.ALLOWED),
    Thing("the root logger", _root, _set_root, imported=Import.ALLOWED),
    Thing(
        "the level below which logging is disabled", *attribute(logging.root.manager, "disable"), imported=Import.REMARK
    ),
    Thing(
        "the start method of multiprocessing",
        lambda: multiprocessing.get_start_method(allow_none=True),
        _set_start_method,
        imported=Import.REMARK,
    ),
    Thing("Hypothesis's profile", _profile, _set_profile, optional=True),
    Thing(
        "numpy's error state",
        numpy.geterr,
        lambda before: numpy.seterr(**before) and None,
        lambda b, a: "changes numpy's error state (numpy.seterr) and does not restore it",
        imported=Import.REMARK,
    ),
    same_object("warnings.showwarning", warnings, "showwarning", imported=Import.ALLOWED),
    same_object("warnings.formatwarning", warnings, "formatwarning", imported=Import.ALLOWED),
    Thing(
        "numpy's print options",
        numpy.get_printoptions,
        lambda before: numpy.set_printoptions(**before),
        imported=Import.ALLOWED,
    ),
    Thing("torch's print options", _print_options, _set_print_options, imported=Import.ALLOWED),
    ANOMALY,
    same_object("torch.default_generator", torch, "default_generator"),
    same_object("torch.random.default_generator", torch.random, "default_generator"),
)
