"""An implementation that was found, or why it could not be loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from flash_attest.impls.contract.record import Absent, Implementation
from flash_attest.places import ROOMS

HERE = ROOMS / "impls"


class RegistryError(ValueError):
    """An invalid selection: no such file, an unknown name, or two entries with one name."""


class NotLoaded(RegistryError):
    """A file was chosen that cannot be loaded. The command line is right, the file is not."""


@dataclass(frozen=True)
class Unloadable:
    """A plug-in that could not be loaded: its name (for test ids) and what to change."""

    name: str
    problem: str

    def lacking(self, names: str) -> Unloadable:
        """Return it with a line about names that --impl gives and that no loaded file has."""
        return replace(self, problem=f"{self.problem}\n--impl {names}: nothing that could be loaded has this name")


@dataclass(frozen=True)
class Entry:
    """An implementation (or Unloadable), its file, and the option that loads it."""

    impl: Implementation | Absent | Unloadable
    file: str
    option: str = ""  # "--impl-from=my_file.py" for the replay command, quoted for the shell; "" for our own
    # What else importing the file did (runner/isolation/importing.py).
    threads: tuple[str, ...] = ()  # the names of the threads that it started
    broken: tuple[str, ...] = ()  # changes of global state that break the contract, in words
    remarks: tuple[str, ...] = ()  # others that are worth a word
    settings: tuple[Callable[[], AbstractContextManager], ...] = ()  # what it chose for its own implementations

    @property
    def name(self) -> str:
        return self.impl.name

    @contextmanager
    def at_home(self) -> Iterator[None]:
        """Use in this block the settings that the file chose when it was imported."""
        with ExitStack() as stack:
            for setting in self.settings:
                stack.enter_context(setting())
            yield

    @property
    def plug_in(self) -> bool:
        """True if it comes from outside impls/."""
        return bool(self.option) or (bool(self.file) and HERE not in Path(self.file).resolve().parents)
