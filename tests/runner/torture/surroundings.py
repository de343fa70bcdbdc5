"""Implementations that damage the process, files and machine around them."""

import os
import resource
import shutil
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import numpy

from tests.runner.torture.table import FAIL, PASS, UNKNOWN, Table

TABLE = Table()
KEPT = []
MUCH = 200 << 30


def report():
    return next(Path(word.removeprefix("--report=")) for word in sys.argv if word.startswith("--report="))


@TABLE.gives(PASS)
def prints_a_megabyte(q, k, v):
    print("printed\n" * 2**17)
    os.write(2, b"printed\n" * 2**17)


@TABLE.gives(FAIL, "forward raises ValueError: after a megabyte")
def prints_a_megabyte_and_raises(q, k, v):
    print("printed\n" * 2**17)
    raise ValueError("after a megabyte")


@TABLE.gives("fail unknown")
def closes_all_files(q, k, v):
    os.closerange(0, 1000)


@TABLE.gives("pass fail unknown")
def closes_what_the_suite_has_open(q, k, v):
    os.closerange(3, 1000)


@TABLE.gives(FAIL, "forward closes sys.stdout and does not restore it")
def closes_stdout(q, k, v):
    sys.stdout.close()


@TABLE.gives("pass fail unknown")
def writes_to_all_files(q, k, v):
    for descriptor in range(3, 64):
        try:
            if not os.get_blocking(descriptor):
                continue
            os.set_blocking(descriptor, False)
            os.write(descriptor, b"written by an implementation\n")
            os.set_blocking(descriptor, True)
        except OSError:
            continue


@TABLE.gives("pass fail unknown")
def runs_out_of_descriptors(q, k, v):
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    try:
        while True:
            KEPT.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return


@TABLE.gives("pass fail unknown")
def overwrites_the_report(q, k, v):
    for file in report().glob("*"):
        file.write_text("rubbish")


@TABLE.gives("pass fail unknown")
def removes_the_report(q, k, v):
    shutil.rmtree(report(), ignore_errors=True)


@TABLE.gives(FAIL, "forward sets the working directory to a folder that is gone")
def removes_its_folder(q, k, v):
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


@TABLE.gives(UNKNOWN, "out of memory on")
def asks_numpy_for_200_gib(q, k, v):
    numpy.zeros(MUCH, dtype=numpy.uint8)[:: 1 << 30] = 1


@TABLE.gives(UNKNOWN, "out of memory on")
def asks_python_for_200_gib(q, k, v):
    bytearray(MUCH)


@TABLE.gives(UNKNOWN, "out of memory on")
def grows_without_end(q, k, v):
    arrays = []
    while True:
        arrays.append(numpy.zeros(1 << 30, dtype=numpy.uint8))  # never touched, so that the machine stays usable


@TABLE.gives(FAIL, "forward sets Python's recursion limit to 150")
def sets_the_recursion_limit(q, k, v):
    sys.setrecursionlimit(150)


@TABLE.gives(FAIL, "forward changes the warnings filters (error)")
def turns_warnings_into_errors(q, k, v):
    warnings.simplefilter("error")


@TABLE.gives("pass fail unknown")
def raises_in_a_trace(q, k, v):
    def trace(frame, event, argument):
        raise KeyError("traced")

    sys.settrace(trace)
    threading.settrace(trace)


@TABLE.gives("pass fail unknown")
def allocates_no_more(q, k, v):
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 20, 1 << 20))


@TABLE.gives("pass fail unknown")
def may_write_no_files(q, k, v):
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@TABLE.gives(FAIL, "forward raises EOFError")
def asks_a_question(q, k, v):
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    input()


IMPLS, EVERY = TABLE.implementations(
    "prints_a_megabyte_and_raises",
    "closes_stdout",
    "asks_python_for_200_gib",
    "removes_its_folder",
    "sets_the_recursion_limit",
    "turns_warnings_into_errors",
)
