"""Judges a kernel with --untrusted, or without it in a fork, which the kernel may spoil."""

from __future__ import annotations

import gc
import multiprocessing
import os
from pathlib import Path

from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import Result
from flash_attest.properties.law import laws
from flash_attest.runner.untrusted.caller import caller_of
from flash_attest.runner.untrusted.entries import from_file

HERE = Path(__file__).parent
LIMIT = 60


def untrusted(file: str) -> dict[str, object]:
    """Return the implementations of a file in this folder, by name. They run in a kernel
    process.
    """
    return {entry.name: entry.impl for entry in from_file(str(HERE / file), LIMIT)}


def judged(impl: object, law: str, examples: int = 8) -> Result:
    """Return the verdict of one law, without the contract check."""
    how = Plan(examples=examples, repeats=4, try_contract=False, goes_on=False, caller_of=caller_of)
    return judge(laws()[law], impl, how)


def trusted_verdict(name: str, law: str) -> str:
    """Return a law's verdict on a trick without --untrusted, judged in a fork.

    It is "ended" if the fork did not return.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def judge_there() -> None:
        gc.unfreeze()  # an earlier test may have hidden the oracle from gc.get_objects()
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nothing, stream)
        from tests.runner.untrusted.tricks import IMPLS

        impl = next(impl for impl in IMPLS if impl.name == name)
        theirs.send(judged(impl, law).verdict)

    fork = context.Process(target=judge_there)
    fork.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(LIMIT) else "no answer"
    except (EOFError, OSError, ValueError):  # OSError: the trick wrote to the pipe
        return "ended"
    finally:
        fork.kill()
        fork.join()
