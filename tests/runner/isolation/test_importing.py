"""Plug-ins whose import ends the process, never ends, or changes the exit status of the run."""

from __future__ import annotations

import re
import sys
import threading
import weakref
from dataclasses import replace

import pytest

from flash_attest.properties.failures import Reason
from flash_attest.runner.isolation import importing
from flash_attest.runner.isolation.importing import tried
from tests.places import PLUGINS
from tests.runner.isolation.judging import LAW, LONG, descriptors, endless, hostile, isolated
from tests.runs import attest, results

SLEEPS = ["sleep", "1000"]
RESOURCE_TRACKER = [sys.executable, "-c", "import time; time.sleep(1000)  # multiprocessing.resource_tracker"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os; os._exit(0)", "importing it ends the process: exit status 0"),
        (
            "while True: pass",
            r"importing it does not end within 0\.5 s\n  at .*plugin\.py:1, in <module>\n  it is running",
        ),
        ("raise KeyboardInterrupt", "importing it raises KeyboardInterrupt"),
        ("import os; os.kill(os.getppid(), 0)", ""),
        ("raise ValueError", ""),  # importing it here gives the better message
        ("", ""),
    ],
)
def test_a_plugin_is_imported_in_another_process_first(source, words, tmp_path):
    plugin, before = tmp_path / "plugin.py", descriptors()
    plugin.write_text(source)
    problem = tried(str(plugin), limit=0.5 if "while" in source else 60.0).problem
    assert re.fullmatch(f"{re.escape(str(plugin))}(:1)?: {words}" if words else "", problem), problem
    assert descriptors() <= before  # one of an earlier test may be closed meanwhile


def test_threads_that_an_import_starts_are_named_where_a_call_does_not_return(tmp_path, monkeypatch):
    """The threads do not exist in the judging process, which is forked."""
    plugin, stop = tmp_path / "pooled.py", threading.Event()
    monkeypatch.setattr(threading, "stop_of_this_test", stop, raising=False)
    plugin.write_text(
        "import threading\nthreading.Thread(target=threading.stop_of_this_test.wait, name='pool_0').start()\n"
        "from tests.plugins.good import IMPL\n"
    )
    (entry,) = importing.imported(str(plugin))
    stop.set()
    hangs = replace(hostile(endless), name="hangs")
    with isolated(tmp_path, hangs, limit=0.5, case=LONG) as judging:
        judging.judge.threads["hangs"] = entry.threads
        result = judging.law(LAW, hangs)
    assert result.why is Reason.TIMED_OUT and f"\n  {importing.START_LATER}: pool_0\n" in result.message


@pytest.mark.parametrize("workers", ("0", pytest.param("1", marks=pytest.mark.thorough)))  # torture has 1
def test_what_cannot_be_imported_stops_no_other(workers, tmp_path):
    aborts, leaves = tmp_path / "aborts.py", tmp_path / "leaves.py"
    aborts.write_text("import os\nos.abort()\n")
    leaves.write_text(
        "import atexit, os\natexit.register(os._exit, 0)\natexit.register(lambda: os._exit(0))\nraise ValueError\n"
    )
    sources = [f"--impl-from={file}" for file in (aborts, leaves, PLUGINS / "good.py")]
    run = attest(*sources, "-n", workers, "properties/test_contract.py", report=tmp_path / "report")
    entries = results(tmp_path / "report")
    verdicts = {name: entry["verdict"] for name, entry in entries.items()}
    assert "importing it ends the process: signal 6 (abort)" in entries["test_contract_is_kept[aborts]"]["reason"]
    assert verdicts == {
        "test_contract_is_kept[aborts]": "fail",
        "test_contract_is_kept[leaves]": "fail",
        "test_contract_is_kept[good]": "pass",
    }
    assert run.returncode == 1


@pytest.mark.parametrize(
    ("commands", "remarks"),
    [
        ((SLEEPS,), ["importing it starts a process (sleep) and leaves it running"]),
        ((SLEEPS, SLEEPS), ["importing it starts processes (sleep, sleep) and leaves them running"]),
        ((RESOURCE_TRACKER,), []),
        ((RESOURCE_TRACKER, SLEEPS), ["importing it starts a process (sleep) and leaves it running"]),
    ],
)
def test_processes_that_an_import_leaves_are_told_without_helpers_of_libraries(commands, remarks, tmp_path):
    plugin = tmp_path / "plugin.py"
    plugin.write_text(f"import subprocess\nfor command in {commands!r}:\n    subprocess.Popen(command)\n")
    assert tried(str(plugin), limit=60.0).remarks == tuple(remarks)


@pytest.mark.parametrize(
    "source",
    [
        "atexit.register(os._exit, 0)",
        "atexit.register(functools.partial(functools.partial(os._exit), 0))",
        "atexit.register(lambda: os._exit(0))",
        "atexit.register(time.sleep, 1000)",
        "class C:\n    def end(self):\n        os._exit(0)\natexit.register(C().end)",
        "exec('atexit.register(print)')",
        "import helper_that_registers",
        "with contextlib.ExitStack() as stack:\n    stack.callback(atexit.register, os._exit, 0)",
        "with contextlib.ExitStack() as stack:\n    stack.callback(atexit.register, lambda: os._exit(0))",
    ],
)
def test_an_exit_handler_of_a_plugin_is_dropped(source, tmp_path, exit_handlers):
    head = "import atexit, contextlib, functools, os, time\n"
    (tmp_path / "helper_that_registers.py").write_text(f"{head}atexit.register(lambda: os._exit(0))\n")
    (tmp_path / "plugin.py").write_text(f"{head}{source}\n")
    importing.imported(str(tmp_path / "plugin.py"))
    assert exit_handlers == []


def test_exit_handlers_of_libraries_are_kept(tmp_path, exit_handlers, monkeypatch):
    library, plugin = tmp_path / "site-packages" / "library_with_handlers.py", tmp_path / "plugin.py"
    library.parent.mkdir()
    library.write_text(
        "import atexit, functools, posixpath\ndef end(): ...\nfor each in (end, functools.partial(end), posixpath.join):\n"
        "    atexit.register(each)\n"
    )
    monkeypatch.syspath_prepend(str(library.parent))
    monkeypatch.setattr(weakref.finalize, "_registered_with_atexit", False)
    plugin.write_text(
        "import library_with_handlers, weakref\nweakref.finalize(library_with_handlers, print).atexit = False\n"
    )
    importing.imported(str(plugin))
    names = [getattr(handler, "__qualname__", "partial") for handler in exit_handlers]
    assert names == ["end", "partial", "join", "finalize._exitfunc"]


@pytest.fixture
def exit_handlers(monkeypatch) -> list:
    """The exit handlers that are registered in a test, which do not run."""
    handlers = []
    monkeypatch.setattr("atexit.register", lambda function, *arguments, **options: handlers.append(function))
    return handlers
