"""The parent may read the state of a judging process at any moment."""

import time

from flash_attest.properties.progress import Status


def test_a_process_that_clears_its_record_is_not_silent_meanwhile():
    """Between two steps of `reset`, the sign of life was once missing, so a process that was not
    scheduled just then counted as silent since the machine had started.
    """

    class Read(Status):
        def _set(self, offset, number):
            super()._set(offset, number)
            seen.append(self.seen())

        def _write(self, offset, text, most):
            super()._write(offset, text, most)
            seen.append(self.seen())

    seen = []
    status = Read()
    status.reset()
    assert len(seen) > 5 and max(one.seconds for one in seen) < 60 < time.monotonic()
    assert not any(one.in_call for one in seen)
