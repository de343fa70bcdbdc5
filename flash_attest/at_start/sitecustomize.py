"""Emulates a GPU in the processes started under `flash-attest emulate`.

Python imports this module when it starts, because PYTHONPATH names its folder. It also runs another
sitecustomize that it hides.
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
    if importlib.util.find_spec("flash_attest") is None:  # `flash-attest emulate` runs from a checkout
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import flash_attest.emulated  # noqa: F401


_run_hidden()
_emulate()
