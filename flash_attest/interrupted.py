"""Raises KeyboardInterrupt in a way that leaves Python its exit status."""

from __future__ import annotations

from typing import NoReturn


class Interrupted(KeyboardInterrupt):
    """A KeyboardInterrupt, also by name.

    If `python -m` is interrupted in `exec` of a text, as when a dataclass is made, it ends with
    SIGINT instead of its exit status, even if the exception was caught. It does not do so for a
    subclass.
    """


Interrupted.__name__ = Interrupted.__qualname__ = KeyboardInterrupt.__name__
Interrupted.__module__ = KeyboardInterrupt.__module__


def interrupt(number: int, frame: object) -> NoReturn:
    """Handle a signal."""
    raise Interrupted
