"""Calls an implementation in this process, or in a kernel process, whose answers are copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.calling.caller import Caller
from flash_attest.runner.untrusted import reading
from flash_attest.runner.untrusted.remote import remote_of


class RemoteCaller(Caller):
    """Calls an implementation in a kernel process."""

    same_process = False

    @classmethod
    def sees_memory(cls, device: str) -> bool:
        """Return whether both processes map the inputs, and outputs can be read where they lie."""
        return device == "cpu" and reading.permitted()

    @contextmanager
    def looking_again(self) -> Iterator[Callable[[], None]]:
        """Yield a function that reads again the outputs that were returned, as Caller's does.

        Here it updates the copies.
        """
        remote = remote_of(self.impl)
        if remote is None:  # a law has wrapped its functions
            yield lambda: None
            return
        with remote.watched():
            yield remote.look_again


def caller_of(impl: Implementation) -> type[Caller]:
    """Return the class that calls this implementation, RemoteCaller or Caller."""
    return RemoteCaller if remote_of(impl) else Caller
