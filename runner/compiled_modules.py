"""Keeps compiled modules (.pyc) in our cache if they may not be written beside the source.

This module imports nothing that takes long.
"""

from __future__ import annotations

import os
import sys
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from flash_attest.emulator.build_cache import cache_folder
from flash_attest.emulator.errors import EmulatorError


def keep_modules_compiled() -> None:
    """Keep the compiled form of everything that this process and its children import from now on in
    our cache.

    Call it early. It acts only if PYTHONDONTWRITEBYTECODE is set, as in many containers, and torch
    was installed uncompiled. Each process would otherwise compile 2,200 files, which takes 4 s, and
    a run on a GPU starts 70 processes: workers and those under compute-sanitizer.
    """
    if not sys.dont_write_bytecode:
        return
    if os.environ.get("PYTHONPYCACHEPREFIX"):  # the user's folder, which must not be written to
        return
    if Path(
        cache_from_source(find_spec("torch").origin)
    ).exists():  # find_spec does not import torch, which takes seconds
        return
    try:
        folder = str(cache_folder() / "modules")
    except EmulatorError:  # no writable cache: compile each time; the first build reports it
        return
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
