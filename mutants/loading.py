"""Loads edited copies of a package: makes folders for the copies, and imports them under unique
names.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from flash_attest.emulator.build_cache import cache_folder, key_of
from flash_attest.mutants.mutant import Mutant


def import_copy(mutant: Mutant, file: Path) -> ModuleType:
    """Import a module (a package by its __init__.py) under a unique name. It stays in
    sys.modules.
    """
    return import_as(f"mutant_{mutant.name}_{id(mutant)}", file)


def import_as(name: str, file: Path) -> ModuleType:
    """Import a module (a package by its __init__.py) under this name. It stays in sys.modules."""
    within = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=within)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kept_folder(files: Mapping[str, str]) -> Path:
    """Return a permanent folder with these files (name: text), because CUDA files are read after
    the import.

    The folder is named by its contents. Compiled files are cached by path and contents, so the next
    process finds both and compiles nothing again.
    """
    folder = cache_folder() / f"mutant_{key_of(*(part for file in files.items() for part in file))}"
    if not folder.exists():
        with TemporaryDirectory(dir=cache_folder()) as directory:
            whole = Path(directory) / folder.name
            whole.mkdir()
            for name, text in files.items():
                (whole / name).write_text(text)
            try:
                os.rename(whole, folder)
            except OSError:
                if not folder.exists():  # if it exists, another process was faster
                    raise
    return folder
