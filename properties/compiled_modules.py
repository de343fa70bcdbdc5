"""Where Python keeps what it compiles of a module, if it may not do so beside the source. Imports nothing that takes long."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from emulator.build_cache import cache_folder
from emulator.errors import EmulatorError


def keep_modules_compiled() -> None:
    """Call early: what this process imports later, and those that it starts, is kept compiled in our cache.

    Only where PYTHONDONTWRITEBYTECODE is set, as in many containers, and torch was installed uncompiled. Each process would
    compile 2,200 files anew, for 4 s, and a run on a GPU starts 70: workers and those under compute-sanitizer.
    """
    torch = find_spec("torch")
    if not sys.dont_write_bytecode or torch is None or Path(cache_from_source(torch.origin)).exists():
        return
    if os.environ.get("PYTHONPYCACHEPREFIX"):  # they have chosen a folder, and that nothing is written to it
        return
    with contextlib.suppress(EmulatorError):  # there is no folder for it
        folder = str(cache_folder() / "modules")
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
