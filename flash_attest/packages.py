"""Which packages are needed, and which are not: each of the others belongs to an extra, as in flash-attest[bench]."""

from __future__ import annotations

import importlib.util

# Module: what to install. The ranges are in pyproject.toml, and a test compares the two.
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
    """Tell whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'flash-attest[{extra}]'"


def lacking(module: str) -> str:
    """Return one line that says that a module of an extra is not installed, and what to do; "" if it is there."""
    return "" if is_there(module) else f"{module} is not installed: {install(EXTRAS[module])}"
