"""Where Python keeps what it compiles of a module, if it may not do so beside the source. Imports nothing that takes long."""

from __future__ import annotations

import os
import sys
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from flash_attest.emulator.build_cache import cache_folder
from flash_attest.emulator.errors import EmulatorError


def keep_modules_compiled() -> None:
    """Call early: what this process imports later, and those that it starts, is kept compiled in our cache.

    Only where PYTHONDONTWRITEBYTECODE is set, as in many containers, and torch was installed uncompiled. Each process would
    compile 2,200 files anew, for 4 s, and a run on a GPU starts 70: workers and those under compute-sanitizer.
    """
    if not sys.dont_write_bytecode:
        return
    if os.environ.get("PYTHONPYCACHEPREFIX"):  # a folder to which nothing is to be written
        return
    if Path(cache_from_source(find_spec("torch").origin)).exists():  # finding does not import it, which takes seconds
        return
    try:
        folder = str(cache_folder() / "modules")
    except EmulatorError:  # each process compiles them anew, then; what is built there says why
        return
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
