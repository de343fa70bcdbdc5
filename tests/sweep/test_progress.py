"""What a sweep says while it runs."""

from contextlib import closing

from rich.console import Console

from flash_attest.sweep.progress import Progress
from tests.sweep.sweeps import finding, passed, store


def test_what_is_new_is_said_once_and_runs_are_counted_now_and_then(tmp_path):
    console = Console(record=True, width=200)
    with closing(store(tmp_path / "sweep.db")) as there, Progress(console, "s", 60.0, 0) as progress:
        progress.show(there)
        read = []
        there._db.set_trace_callback(read.append)
        there.done(passed(0), [finding(0)])
        there.note("s", "given_up", ["mine", "trace", "no case"])
        there.note("s", "remarks", "kernels are called by the workers")
        progress.show(there)
        progress.show(there)
        assert not [sql for sql in read if "count(" in sql]
        progress.show(there, last=True)
        assert len([sql for sql in read if "count(" in sql]) == 1 and progress._counts == (1, 10.0)
    assert console.export_text().splitlines() == [
        "mine, repeat: out: 3 of 10 repeats differ",
        "mine, trace: drawn no more: no case",
        "kernels are called by the workers",
    ]
