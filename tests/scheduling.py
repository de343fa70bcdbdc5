"""How pytest-xdist spreads these tests: a file stays with one worker, as its fixtures run pytest or compile; long ones first.

`--dist worksteal`, which suits the laws, hands half of a file to a second worker, which makes the file's runs again.
"""

import pytest
from xdist.scheduler import LoadFileScheduling

# Each of their tests takes seconds and shares little with its neighbours.
SPLIT = ("tests/mutants/test_mutants.py", "tests/impls/triton/test_compile.py")
# So that no worker is left with one of them when the others are done.
FIRST = (
    "tests/runner/torture/", "tests/impls/triton/", "tests/mutants/", "tests/runner/untrusted/",
    "tests/runner/plugin/test_run.py", "tests/runner/plugin/test_surroundings.py", "tests/impls/", "tests/emulator/",
)  # fmt: skip


class ByFile(LoadFileScheduling):
    """In the order of the collection, where --dist loadfile begins with the file that has most tests."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(SPLIT) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile | None:
    """None, and so what --dist says, if it says something else than tox.ini."""
    return ByFile(config, log) if config.getoption("dist") == "worksteal" else None


def in_order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort them in a worker. Without workers they stay in the order of their names."""
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: next((n for n, start in enumerate(FIRST) if item.nodeid.startswith(start)), len(FIRST))
        )
