"""Lists the packages that every installation needs, and the packages of each extra, as in
flash-attest[bench].
"""

from __future__ import annotations

import importlib.util

# Module: package. pyproject.toml has the version ranges; a test compares the two lists.
NEEDED = {
    "torch": "torch",
    "numpy": "numpy",
    "mpmath": "mpmath",
    "pytest": "pytest",
    "xdist": "pytest-xdist",
    "hypothesis": "hypothesis",
    "rich": "rich",
    "jinja2": "jinja2",
    "filelock": "filelock",
    "packaging": "packaging",
}
EXTRAS = {
    "triton": "triton",
    "numba": "numba",
    "numba_cuda": "numba",
    "cuda.bindings": "cuda",
    "ninja": "cuda",
    "matplotlib": "bench",
    "ray": "ray",
}  # module: extra


def is_there(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'flash-attest[{extra}]'"


def lacking(module: str) -> str:
    """Return a line about a missing module of an extra, with the command that installs it; "" if it
    is there.
    """
    return "" if is_there(module) else f"{module} is not installed: {install(EXTRAS[module])}"
