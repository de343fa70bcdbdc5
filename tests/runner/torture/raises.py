"""Exceptions of every kind, including those that have a meaning for pytest or the suite."""

import asyncio
import sys

import hypothesis
import pytest
import torch

from flash_attest import ContractError
from flash_attest.properties.failures import AnotherCase, LawBroken, Reason, Undecided
from tests.runner.torture.table import FAIL, UNKNOWN, Table

TABLE = Table()


@TABLE.gives(FAIL, "forward raises ValueError: no")
def raises_value_error(q, k, v):
    raise ValueError("no")


@TABLE.gives(FAIL, "forward raises Odd: odd")
def raises_base_exception(q, k, v):
    raise type("Odd", (BaseException,), {})("odd")


@TABLE.gives(FAIL, "forward raises SystemExit: 0")
def raises_system_exit(q, k, v):
    sys.exit(0)


@TABLE.gives(FAIL, "forward raises KeyboardInterrupt")
def raises_keyboard_interrupt(q, k, v):
    raise KeyboardInterrupt


@TABLE.gives(FAIL, "forward raises GeneratorExit")
def raises_generator_exit(q, k, v):
    raise GeneratorExit


@TABLE.gives(FAIL, "forward raises StopIteration")
def raises_stop_iteration(q, k, v):
    next(iter(()))


@TABLE.gives(FAIL, "forward raises CancelledError")
def raises_cancelled(q, k, v):
    raise asyncio.CancelledError


@TABLE.gives(FAIL, "forward raises RecursionError")
def raises_recursion_error(q, k, v):
    return raises_recursion_error(q, k, v)


@TABLE.gives(UNKNOWN, "out of memory on")
def raises_memory_error(q, k, v):
    raise MemoryError


@TABLE.gives(FAIL, "forward raises AssertionError: assert q.shape[1] % 2 == 0")
def raises_bare_assertion(q, k, v):
    assert q.shape[1] % 2 == 0


@TABLE.gives(FAIL, "forward raises RuntimeError: CUDA error: an illegal memory access")
def raises_like_cuda(q, k, v):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


class Unprintable(Exception):
    def __init__(self, how):
        self.how = how

    def __str__(self):
        return self.how()


@TABLE.gives(FAIL, "forward raises Unprintable: (no message: its __str__ raises)")
def str_raises(q, k, v):
    raise Unprintable(lambda: 1 // 0)


@TABLE.gives(FAIL, "forward raises Unprintable: (no message: its __str__ raises)")
def str_exits(q, k, v):
    raise Unprintable(lambda: sys.exit(0))


@TABLE.gives(FAIL, "forward raises Unprintable: (no message: its __str__ raises)")
def str_gives_a_number(q, k, v):
    raise Unprintable(lambda: 3)


class Hooked(Exception):
    """Asked for anything, isinstance included, it ends the program."""

    __module__ = None

    def __getattribute__(self, name):
        sys.exit(0)


@TABLE.gives(FAIL, "forward raises Hooked: hooked")
def asks_of_an_exception_exit(q, k, v):
    raise Hooked("hooked")


@TABLE.gives(FAIL, "forward raises ValueError: of an odd file")
def raises_in_a_file_of_an_odd_name(q, k, v):
    exec(compile("raise ValueError('of an odd file')", "/\ud800.py", "exec"))


@TABLE.gives(FAIL, "forward raises ValueError")
def says_surrogates(q, k, v):
    raise ValueError("\ud800\udfff")


@TABLE.gives(FAIL, "forward raises ValueError")
def says_ansi_codes(q, k, v):
    raise ValueError("\x1b[2J\x1b[31mred\x07")


@TABLE.gives(FAIL, "forward raises ValueError")
def says_nul(q, k, v):
    raise ValueError("a\0b\r\x85c")


@TABLE.gives(FAIL, "forward raises ValueError: xxxxx")
def says_a_megabyte(q, k, v):
    raise ValueError("x" * 2**20)


MUCH = 50 * 2**20  # characters
MARK = " characters ...] xxx"


@TABLE.gives(FAIL, MARK)
def says_50_megabytes(q, k, v):
    raise ValueError("x" * MUCH)


@TABLE.gives(FAIL, MARK)
def has_a_very_long_name(q, k, v):
    raise type("x" * MUCH, (Exception,), {})("odd")


@TABLE.gives(FAIL, MARK)
def says_a_long_contract_error(q, k, v):
    raise ContractError(["x" * MUCH] * 3)


@TABLE.gives(UNKNOWN, MARK)
def says_long_undecided(q, k, v):
    raise Undecided("x" * MUCH)


@TABLE.gives(FAIL, "forward raises ValueError: see:")
def says_long_lines(q, k, v):
    raise ValueError("see:\n" + f"{'y' * 2**20}\n" * 20)


@TABLE.gives(FAIL, "forward returns list of 1000000 (int, int")
def returns_a_million(q, k, v):
    return list(range(10**6))


@TABLE.gives(FAIL, "forward raises ValueError: abc")
def says_right_to_left(q, k, v):
    raise ValueError("abc\u202e\u2066\u200f def \u0627\u2028\u2029")


@TABLE.gives(FAIL, "forward raises ValueError")
def says_many_lines(q, k, v):
    raise ValueError("see:\n" + "line\n" * 10**5)


@TABLE.gives(FAIL, "forward raises ValueError: </pre><script>")
def says_html(q, k, v):
    raise ValueError("</pre><script>document.body.remove()</script>")


@TABLE.gives(FAIL, "forward raises ValueError: [bold]")
def says_markup(q, k, v):
    raise ValueError("[bold]x[/nothing] {x} %s")


@TABLE.gives(FAIL, "forward raises ")
def has_an_odd_name(q, k, v):
    raise type("A\nB\x1b[0m", (Exception,), {})("odd")


@TABLE.gives(FAIL, "forward raises Skipped: no")
def skips(q, k, v):
    pytest.skip("no")


@TABLE.gives(FAIL, "forward raises Exit: bye")
def exits_pytest(q, k, v):
    pytest.exit("bye", returncode=0)


@TABLE.gives(FAIL, "forward raises XFailed: known")
def expects_to_fail(q, k, v):
    pytest.xfail("known")


@TABLE.gives(FAIL, "forward raises UnsatisfiedAssumption")
def assumes(q, k, v):
    hypothesis.assume(False)


@TABLE.gives(FAIL, "forward raises Unsatisfiable")
def is_unsatisfiable(q, k, v):
    raise hypothesis.errors.Unsatisfiable("no case")


@TABLE.gives(FAIL, "forward raises AnotherCase")
def wants_another_case(q, k, v):
    raise AnotherCase


@TABLE.gives(UNKNOWN, "nobody knows")
def says_undecided(q, k, v):
    raise Undecided("nobody knows", Reason.LAW_OF_OTHER_DEVICE)  # a reason that would leave the run green


@TABLE.gives(FAIL, "forward raises LawBroken: broken")
def says_law_broken(q, k, v):
    raise LawBroken("broken")


@TABLE.gives(FAIL, "odd contract")
def says_contract_error(q, k, v):
    raise ContractError("odd contract")


@TABLE.gives(FAIL, "forward raises ValueError: outer")
def raises_from_a_cycle(q, k, v):
    inner, outer = ValueError("inner"), ValueError("outer")
    inner.__cause__, outer.__cause__ = outer, inner
    raise outer


@TABLE.gives(UNKNOWN, "out of memory on")
def asks_torch_for_200_gib(q, k, v):
    return torch.empty(200 << 30, dtype=torch.uint8).fill_(1)


IMPLS, EVERY = TABLE.implementations(
    "raises_generator_exit",
    "raises_stop_iteration",
    "raises_cancelled",
    "raises_bare_assertion",
    "raises_like_cuda",
    "str_exits",
    "str_gives_a_number",
    "says_ansi_codes",
    "says_nul",
    "says_markup",
    "expects_to_fail",
    "is_unsatisfiable",
    "says_a_megabyte",
    "has_a_very_long_name",
    "says_long_undecided",
    "says_long_lines",
)
