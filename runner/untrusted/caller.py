"""Who calls an implementation: this process, or a kernel process, whose answers are copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.calling.caller import Caller
from flash_attest.runner.untrusted.remote import remote_of


class RemoteCaller(Caller):
    """Calls an implementation of a kernel process."""

    same_process = False

    @contextmanager
    def looking_again(self) -> Iterator[Callable[[], None]]:
        """As Caller's. What was returned are copies, which look_again() brings up to date."""
        remote = remote_of(self.impl)
        if remote is None:  # a law has wrapped its functions
            yield lambda: None
            return
        with remote.watched():
            yield remote.look_again


def caller_of(impl: Implementation) -> type[Caller]:
    """Who calls this implementation."""
    return RemoteCaller if remote_of(impl) else Caller
