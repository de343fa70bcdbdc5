"""Decides which changes in a plug-in's folder concern the plug-in, as other things lie there, too.

Its modules do, and files that the text of one of them names. Others do only if its modules look for
files: then any file may be meant.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from flash_attest.runner.plugin import sources
from flash_attest.runner.plugin.inputs import IN_SOURCES, QUOTED

# Words of sources that list folders, or import modules whose names a program puts together.
LISTS = re.compile(
    rb"\b(glob|rglob|iglob|iterdir|listdir|scandir|walk|importlib|import_module|__import__|runpy|pkgutil|exec|eval|"
    rb"execfile|spec_from_file_location|opendir|readdir|directory_iterator|sys\.path)\b"
)
# Words of sources that read files whose names a program may put together.
READS = re.compile(
    rb"(?<!\btl\.)\b(load|load_\w+|open\w*|fopen|ifstream|read\w*|fromfile|from_file|memmap|mmap|[Pp]ath\w*|os|io|shutil|"
    rb"subprocess|Popen|system|popen|ctypes|CDLL|cdll|dlopen|cffi|__file__|resources|inspect|pickle|safetensors|h5py|"
    rb"cpp_extension|nvrtc|RawModule|include_dirs|extra_include_paths)\b"
)
WORD = re.compile(rb"\w+")
ALWAYS = {"", "sitecustomize", "usercustomize"}  # stems of files that Python itself looks for


def stem_of(name: str) -> str:
    """Return what a source writes to name a file: "sizes", and for a package its folder."""
    path = Path(name)
    return path.parent.name if path.name.startswith("__init__.") else path.name.partition(".")[0]


def concerned(names: Collection[str], plug_in: str, files: Mapping[str, set[Path]]) -> tuple[set[str], set[str]]:
    """Return which of the files of a folder concern a plug-in, and the words that these quote.

    Such a word may be the name of an environment variable.

    names: files, as inputs.by_folder names them. files: plug-in's file -> its modules, as
    sources.files_of_plugin returns them.
    """
    folder, modules = Path(plug_in).resolve().parent, files[plug_in]
    of_others = set().union(*(own for file, own in files.items() if file != plug_in))
    known = modules | (sources.loaded(plug_ins=False) - of_others)
    found = {name for name in names if os.path.isabs(name) or folder / name in known or stem_of(name) in ALWAYS}
    waiting, quoted = {*modules, *(folder / name for name in found)}, set()
    seen = {*waiting}
    while waiting:
        file = waiting.pop()
        text = _text(file) if file.suffix in IN_SOURCES else b""
        quoted |= {word.decode() for word in QUOTED.findall(text)}
        words, lists, reads = {*WORD.findall(text)}, LISTS.search(text), READS.search(text)
        for name in {*names} - found:
            if lists or (reads and not name.endswith(".py")) or {*WORD.findall(stem_of(name).encode())} <= words:
                found.add(name)
                waiting |= {folder / name} - seen
                seen.add(folder / name)
    return found, quoted


def _text(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
