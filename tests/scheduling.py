"""Spreads these tests over workers: a file stays with one worker, and long files come first.

Fixtures of a file run pytest or compile. `--dist worksteal`, which suits the laws, would give half
of a file to a second worker, which would repeat the fixtures' work.
"""

from pathlib import Path

import pytest

from flash_attest.properties.machine.gpus import cores

TESTS = Path(__file__).resolve().parent
# Folders that stay with one worker as a whole: one browser is started, and installed if need be.
TOGETHER = ("tests/page/",)
# Files whose tests take seconds each, and share little.
SPLIT = ("tests/mutants/test_mutants.py", "tests/impls/triton/test_compile.py", "tests/wild/test_proofs.py")
# These files come first, so that none of them is the last one to run.
FIRST = (
    "tests/runner/torture/", "tests/page/", "tests/runner/untrusted/", "tests/runner/isolation/", "tests/mutants/",
    "tests/impls/triton/", "tests/runner/plugin/", "tests/door/", "tests/impls/", "tests/emulator/", "tests/sweep/",
    "tests/properties/judging/", "tests/properties/machine/", "tests/command/", "tests/properties/",
)  # fmt: skip


def scope(nodeid: str) -> str:
    """Return the name of what stays with one worker: a file, or a part or a folder of files."""
    if nodeid.startswith(SPLIT):
        return nodeid
    return next(filter(nodeid.startswith, TOGETHER), nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Return our scheduler. Return None if the user has chosen another --dist than tox.ini, or if
    laws are judged: pytest reads tests/conftest.py also in a run without paths.
    """
    if config.getoption("dist") != "worksteal" or not _only_tests(config):
        return None
    from xdist.scheduler import LoadFileScheduling  # every run in the checkout imports this module

    class ByFile(LoadFileScheduling):
        """Keeps the order of the collection. --dist loadfile would start with the longest file."""

        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return one worker more than there are cores, as tests wait for processes that hang or sleep.

    Return None if laws are judged.
    """
    return cores() + 1 if _only_tests(config) else None


def _only_tests(config: pytest.Config) -> bool:
    """Return whether the run has none of the laws."""
    return all(Path(argument.partition("::")[0]).resolve().is_relative_to(TESTS) for argument in config.args)


def in_order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests in a worker. Without workers the tests stay in the order of their names."""
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: next((n for n, start in enumerate(FIRST) if item.nodeid.startswith(start)), len(FIRST))
        )
