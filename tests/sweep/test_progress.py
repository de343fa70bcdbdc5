"""The output of a running sweep."""

from contextlib import closing

from rich.console import Console

from flash_attest.sweep.progress import Progress
from tests.sweep.sweeps import finding, passed, store


def test_news_are_printed_once_and_runs_are_counted_from_time_to_time(tmp_path):
    console = Console(record=True, width=200)
    with closing(store(tmp_path / "sweep.db")) as database, Progress(console, "s", 60.0, 0) as progress:
        progress.show(database)
        read = []
        database._db.set_trace_callback(read.append)
        database.done(passed(0), [finding(0)])
        database.note("s", "given_up", ["mine", "trace", "no case"])
        database.note("s", "remarks", "kernels are called by the workers")
        progress.show(database)
        progress.show(database)
        assert not [sql for sql in read if "count(" in sql]
        progress.show(database, last=True)
        assert len([sql for sql in read if "count(" in sql]) == 1 and progress._counts == (1, 10.0)
    assert console.export_text().splitlines() == [
        "mine, repeat: out: 3 of 10 repeats differ",
        "mine, trace: drawn no more: no case",
        "kernels are called by the workers",
    ]
