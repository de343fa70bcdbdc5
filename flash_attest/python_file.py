"""Says what is wrong with a path that should be a Python file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from flash_attest.did_you_mean import did_you_mean

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def problem_of(path: Path) -> str:
    """Return why a path cannot be read as a Python file, in one line, or "" if it can."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return _without_a_file(path, error)
    except ValueError:  # a null byte
        return "is no path"
    if stat.S_ISDIR(mode):
        return "is a folder: name a Python file in it"
    if not stat.S_ISREG(mode):
        return f"is {KINDS.get(stat.S_IFMT(mode), 'no regular file')}: should be a regular file"
    if path.suffix != ".py":
        return "should be a Python file (.py)"
    return "" if os.access(path, os.R_OK) else "cannot be read (permission denied)"


def _without_a_file(path: Path, error: OSError) -> str:
    """Say why there is nothing at a path."""
    if error.errno == errno.ELOOP:
        return "is a symbolic link that leads back to itself"
    if os.path.islink(path):
        return f"is a symbolic link to {os.readlink(path)}, which does not exist"
    if error.errno not in (errno.ENOENT, errno.ENOTDIR):  # for example a folder that may not be searched
        return f"cannot be read ({(error.strerror or type(error).__name__).lower()})"
    beside = [each.name for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
    return f"there is no file {path}{did_you_mean(path.name, beside)}"
