"""Implementations that are right but change some global state, with one for each kind of state."""

import ctypes
import gc
import locale
import os
import random
import signal
import sys
import threading
import warnings

import numpy
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from flash_attest import Implementation
from tests.plugins import good


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def replace_environ():
    os.environ["TORTURE"] = str(len(os.environ))
    os.environ.pop("HOME", None)


KEPT = []
UPWARD = 0x800  # FE_UPWARD of x86


def autocast():
    torch.set_autocast_enabled("cpu", True)


def add_filter():
    warnings.simplefilter("error")


# name -> (the change, words of the problem)
LEAVES = {
    "default_dtype": (lambda: torch.set_default_dtype(torch.float64), "sets torch's default dtype to torch.float64"),
    "default_device": (lambda: torch.set_default_device("meta"), "sets torch's default device to meta"),
    "threads": (lambda: torch.set_num_threads(3), "sets torch's number of threads to 3"),
    "grad_mode": (lambda: torch.set_grad_enabled(True), "sets torch's grad mode to True"),
    "deterministic": (lambda: torch.use_deterministic_algorithms(True), "sets torch's deterministic algorithms"),
    "warn_only": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        "deterministic algorithms (enabled, warn_only) to (True, True)",
    ),
    "matmul_precision": (lambda: torch.set_float32_matmul_precision("medium"), "float32 matmul precision to medium"),
    "tf32": (lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True), "float32 matmul precision to high"),
    "cudnn_tf32": (lambda: setattr(torch.backends.cudnn, "allow_tf32", False), "cudnn.allow_tf32 to False"),
    "cudnn_benchmark": (lambda: setattr(torch.backends.cudnn, "benchmark", True), "cudnn.benchmark to True"),
    "cudnn_deterministic": (
        lambda: setattr(torch.backends.cudnn, "deterministic", True),
        "cudnn.deterministic to True",
    ),
    "fp16_sums": (
        lambda: setattr(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
        "allow_fp16_reduced_precision_reduction to False",
    ),
    "bf16_sums": (
        lambda: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
        "allow_bf16_reduced_precision_reduction to False",
    ),
    "efficient_sdp": (lambda: torch.backends.cuda.enable_mem_efficient_sdp(False), "memory-efficient SDPA switch"),
    "math_sdp": (lambda: torch.backends.cuda.enable_math_sdp(False), "math SDPA switch to False"),
    "cudnn_sdp": (lambda: torch.backends.cuda.enable_cudnn_sdp(False), "cuDNN SDPA switch to False"),
    "inference": (lambda: KEPT.append(torch._C._InferenceMode(True)), "enters torch's inference mode"),
    "rounding": (lambda: ctypes.CDLL("libm.so.6").fesetround(UPWARD), "rounding mode to 2048"),
    "flash_sdp": (lambda: torch.backends.cuda.enable_flash_sdp(False), "flash SDPA switch to False"),
    "autocast": (autocast, "enters autocast and stays in it"),
    "seed": (
        lambda: torch.manual_seed(7),
        "seeds torch's random numbers, so those that the program draws later repeat",
    ),
    "numpy_seed": (lambda: numpy.random.seed(7), "seeds numpy's random numbers, so those that the program draws later"),
    "python_seed": (lambda: random.seed(7), "seeds Python's random numbers, so those that the program draws later"),
    "function_mode": (lambda: FunctionMode().__enter__(), "enters a torch function mode and stays in it"),
    "dispatch_mode": (lambda: DispatchMode().__enter__(), "enters a torch dispatch mode and stays in it"),
    "denormals": (lambda: torch.set_flush_denormal(True), "denormal numbers (True: flushed to 0) to True"),
    "directory": (lambda: os.chdir("/"), "sets the working directory to /"),
    "environment": (replace_environ, "changes the environment (HOME, TORTURE)"),
    "filters": (add_filter, "changes the warnings filters (error)"),
    "path": (lambda: sys.path.insert(0, "/nowhere"), "changes sys.path"),
    "locale": (lambda: locale.setlocale(locale.LC_ALL, "C"), "sets the locale to C"),
    "umask": (lambda: os.umask(0o077), "sets the umask to 0o77"),
    "stdout_object": (lambda: setattr(sys, "stdout", open(os.devnull, "w")), "replaces sys.stdout"),  # noqa: SIM115
    "stdout_closed": (lambda: sys.stdout.close(), "closes sys.stdout"),
    "stderr_none": (lambda: setattr(sys, "stderr", None), "replaces sys.stderr"),
    "descriptor_closed": (lambda: os.close(2), "closes standard error"),
    "descriptor_redirected": (lambda: os.dup2(os.open(os.devnull, os.O_RDWR), 1), "redirects standard output"),
    "sigint": (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), "installs a signal handler (SIGINT)"),
    "sigterm": (lambda: signal.signal(signal.SIGTERM, print), "installs a signal handler (SIGTERM)"),
    "alarm": (lambda: signal.alarm(1), "leaves an alarm on (signal.alarm)"),
    "recursion": (lambda: sys.setrecursionlimit(150), "sets Python's recursion limit to 150"),
    "recursion_huge": (lambda: sys.setrecursionlimit(10**8), "sets Python's recursion limit to 100000000"),
    "collection": (gc.disable, "sets Python's garbage collection (enabled) to False"),
    "trace": (lambda: sys.settrace(lambda *event: None), "installs another function with sys.settrace"),
    "profile": (lambda: sys.setprofile(lambda *event: None), "installs another function with sys.setprofile"),
    "excepthook": (lambda: setattr(sys, "excepthook", print), "replaces sys.excepthook"),
    "unraisablehook": (lambda: setattr(sys, "unraisablehook", print), "replaces sys.unraisablehook"),
    "threads_hook": (lambda: setattr(threading, "excepthook", print), "replaces threading.excepthook"),
}


# name -> (how a call draws random numbers, which its result does not depend on; whose numbers)
DRAWS = {
    "draw": (lambda: torch.rand(3), "torch's"),
    "numpy_draw": (lambda: numpy.random.random(2000), "numpy's"),
    "python_draw": (lambda: random.random(), "Python's"),
}


def leaving(how):
    def forward(q, k, v):
        out = good.forward(q, k, v)
        how()
        return out

    return forward


IMPLS = [
    Implementation(name=f"leaves_{n}", forward=leaving(h), supports=good.IMPL.supports) for n, (h, _) in LEAVES.items()
]
DRAWING = [
    Implementation(name=f"leaves_{n}", forward=leaving(h), supports=good.IMPL.supports) for n, (h, _) in DRAWS.items()
]
