"""What the judge makes of a machine that cannot hold a case: unknown, whoever asked for the memory, and however often."""

from dataclasses import replace
from itertools import count

import pytest
import torch

from impls import torch_math
from mutants.judging import laws
from properties import contract
from properties.judge import judge
from properties.plan import Plan
from properties.verdict import FAIL, UNKNOWN

LAW = laws()["test_out_matches_the_definition"]


def judged(function):
    """The verdict of a law that does what `function` does with the number of the call."""
    calls = count()
    return judge(replace(LAW, function=lambda trial: function(trial, next(calls))), torch_math.IMPL, Plan(examples=20))


def out_of_memory():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")


@pytest.mark.parametrize("when", [lambda n: True, lambda n: n >= 5, lambda n: n % 2, lambda n: n % 3 == 1])
def test_memory_that_the_oracle_lacks_is_unknown(when):
    result = judged(lambda trial, n: out_of_memory() if when(n) else None)
    assert result.verdict == UNKNOWN and "out of memory on seqlen_q=" in result.reason


def test_what_a_compiler_says_at_the_first_call_is_shown():
    def raising(q, k, v, **options):
        raise RuntimeError("fa2.cu does not compile for the CPU:\nfa2.cu:7:1: error: expected ';'")

    problems = contract.problems(replace(torch_math.IMPL, forward=raising), "cpu")
    assert any("fa2.cu:7:1: error: expected ';'" in problem for problem in problems)


def test_memory_that_comes_and_goes_hides_no_failure():
    def broken(trial, n):
        if n % 2:
            out_of_memory()
        LAW.function(replace(trial, impl=replace(trial.impl, forward=lambda *x, **options: trial.x.q + 1)))

    assert judged(broken).verdict in (FAIL, UNKNOWN)
