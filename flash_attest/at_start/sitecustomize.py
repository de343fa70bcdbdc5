"""Python imports this when it starts, in the processes that `flash-attest emulate` starts: its folder is in their PYTHONPATH.

Another sitecustomize that this one hides is run, too.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _run_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    others = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _emulate() -> None:
    if importlib.util.find_spec("flash_attest") is None:  # run from a checkout
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import flash_attest.emulated  # noqa: F401


_run_hidden()
_emulate()
