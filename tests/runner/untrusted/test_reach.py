"""A kernel process reaches nothing outside, whichever way it is held."""

import os
import time
from pathlib import Path

import pytest
import torch

from flash_attest.impls.contract.record import ContractError
from flash_attest.properties.failures import LawBroken
from flash_attest.runner.untrusted import limits, sandbox
from flash_attest.runner.untrusted.entries import from_file
from flash_attest.runner.untrusted.remote import remote_of
from tests.runner.untrusted.runs import HERE, LIMIT
from tests.runner.untrusted.tricks import MARK, right

REPORT, VICTIM = HERE / "report_of_tricks", HERE / "mistakes.py"
LAST = ("leaves_a_daemon", "prints_without_end", "starts_many_processes", "leaves_a_sitecustomize")  # tested alone
NAMES = [
    line.removeprefix("def ").partition("(")[0]
    for line in (HERE / "reach.py").read_text().splitlines()
    if line.startswith("def ") and line.endswith("(q, k, v):") and not line.startswith("def reaches(")
]


@pytest.fixture(scope="module", params=(sandbox.BUBBLEWRAP, sandbox.LANDLOCK))
def held(request):
    """The implementations of reach.py by name, in a kernel process that is held in this way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(sandbox.VARIABLE, request.param)
        patch.setenv("SECRET_OF_THE_USER", "1")
        try:
            sandbox.chosen()
        except sandbox.NotHeld as error:
            pytest.skip(str(error))
        REPORT.mkdir(exist_ok=True)
        (REPORT / "results.json").write_text('{"results": []}')
        try:
            impls = {entry.name: entry.impl for entry in from_file(str(HERE / "reach.py"), LIMIT)}
            yield impls
            remote_of(impls["reads_the_report"]).process.end()
        finally:
            (REPORT / "results.json").unlink()
            REPORT.rmdir()


def called(impl):
    """Call an implementation once. Returns whether it was right, that is, has reached something."""
    x = [torch.randn(1, 4, 2, 16, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    with torch.no_grad():
        return torch.allclose(impl.forward(*x), right(*x), atol=1e-4)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LAST])
def test_a_kernel_process_reaches_nothing(held, name):
    before = VICTIM.stat()
    assert not called(held[name])
    after = VICTIM.stat()
    assert [getattr(after, field) for field in ("st_mode", "st_mtime_ns", "st_uid", "st_size", "st_nlink")] == [
        getattr(before, field) for field in ("st_mode", "st_mtime_ns", "st_uid", "st_size", "st_nlink")
    ]
    assert not os.listxattr(VICTIM) and not MARK.exists() and not Path("/dev/shm/left_by_a_trick").exists()


def test_every_trick_is_tried(held):
    assert {*held} == {*NAMES} and len(NAMES) > 25


def test_what_a_process_leaves_behind_is_not_loaded_by_the_next_one(held):
    impl = held["leaves_a_sitecustomize"]
    assert not called(impl)
    remote_of(impl).process.end()
    assert not called(impl)


def test_a_process_that_is_left_behind_ends_with_the_kernel_process(held):
    process = remote_of(held["leaves_a_daemon"]).process
    assert not called(held["leaves_a_daemon"])
    alive = process.folder / "alive"
    until = time.monotonic() + 60
    while not alive.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert alive.exists()
    process.end()
    time.sleep(0.1)
    alive.unlink(missing_ok=True)
    time.sleep(0.2)
    assert not alive.exists()
    assert (REPORT / "results.json").read_text() == '{"results": []}'


def test_what_is_printed_takes_no_space(held, monkeypatch):
    monkeypatch.setattr(limits, "INTERVAL", 0.1)
    process = remote_of(held["prints_without_end"]).process
    assert not called(held["prints_without_end"])
    time.sleep(0.1)
    assert not called(held["reads_the_report"])
    assert os.fstat(process._printed_to.fileno()).st_size <= limits.PRINTED


def test_what_takes_too_much_of_the_machine_is_ended_and_named(monkeypatch):
    """The judging process looks, whichever way the kernel process is held."""
    impls = {entry.name: entry.impl for entry in from_file(str(HERE / "reach.py"), LIMIT)}
    process = remote_of(impls["starts_many_processes"]).process
    monkeypatch.setattr(limits, "INTERVAL", 0.1)
    for limit, most, name, words in (
        ("PROCESSES", 20, "starts_many_processes", "processes, should be at most 20"),
        ("WRITTEN", -1, "prints_without_end", "GiB to its folders, should be at most"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(limits, limit, most)
            with pytest.raises((ContractError, LawBroken), match=words):
                called(impls[name])
        assert process._process is None
