"""Whether Triton is installed, and whether its kernels run compiled on a GPU or interpreted on the CPU.

Triton reads TRITON_INTERPRET when it is imported, so this module is imported first.
"""

import importlib.util
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from impls.interpretation import interpreted


def installed() -> bool:
    """Whether Triton can be imported at all."""
    return importlib.util.find_spec("triton") is not None


def _interpreted() -> bool:
    """Raises ImportError if Triton was imported before, because it then cannot interpret its own library."""
    wanted = interpreted(gpu=torch.cuda.is_available())
    if wanted and "triton" in sys.modules:
        from triton.language import cdiv
        from triton.runtime import JITFunction

        if isinstance(cdiv, JITFunction):
            raise ImportError("triton was imported before TRITON_INTERPRET=1 was set: set it before Python starts")
    return wanted


INTERPRETED = _interpreted()
_thread = ThreadPoolExecutor(max_workers=1)


def _after_fork() -> None:
    """A child process inherits the executor, but not its thread."""
    global _thread
    _thread = ThreadPoolExecutor(max_workers=1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def on_a_short_stack(launch: Callable[[], None]) -> None:
    """Run an interpreted launch in a separate thread and wait for it.

    CPython (3.11 to 3.13) stores frames in chunks of 16 KiB. If a frequent call crosses the end of a chunk, each call maps
    and unmaps one. Deep inside a test that doubles the interpreter's time; a new thread's stack is short.
    """
    _thread.submit(launch).result()


def make_quick() -> None:
    """Remove two parts of Triton's interpreter that double its time and are not needed here.

    Every call of a jitted helper patches all of triton.language again; once per launch and module is enough. And each sum
    or product of integers is checked for 32-bit overflow, by five more operations. Both are private: if a version of
    Triton lacks them, nothing is changed, and tests/impls/triton/test_interpreter.py fails.
    """
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_patch_lang") or not hasattr(interpreter.InterpretedFunction, "rewrite"):
        return
    patch, call = interpreter._patch_lang, interpreter.GridExecutor.__call__
    if call.__name__ == "quick_launch":  # another copy of this package did it
        return
    done: set[int] = set()  # ids of the modules of helpers that this launch has patched

    def quick_launch(self, *args, **kwargs):
        done.clear()
        done.add(id(self.fn.__globals__))
        return call(self, *args, **kwargs)

    def helper(self, *args, **kwargs):
        if id(self.fn.__globals__) not in done:
            done.add(id(self.fn.__globals__))
            patch(self.fn)
        try:
            return self.rewrite()(*args, **kwargs)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    interpreter.GridExecutor.__call__, interpreter.InterpretedFunction.__call__ = quick_launch, helper
    options = interpreter.interpreter_builder.options
    if hasattr(options, "sanitize_overflow"):
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
