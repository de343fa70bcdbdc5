"""Kernels are compiled before laws need them, on cores to spare: what is called for that, and by how many processes."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from impls import torch_math
from impls.registry import ours
from properties.cases.drawing import draw_each
from properties.cases.strategies import Draws, attention_cases
from properties.plugin import ahead
from properties.plugin.reporter import Reporter
from properties.trial import Trial

pytestmark = pytest.mark.usefixtures("one_thread")
CONSTANTS = ("BLOCK_D", "ALIGN", "BIAS", "UNMASKED", "PRECISION", "ATOMIC")


def test_ours_that_are_compiled_one_by_one():
    found = {entry.name for entry in ours() if ahead.compiled_one_by_one(entry.impl)}
    assert {name.partition("_")[0] for name in found} == {"triton", "numba"}


def test_processes_share_the_kinds_of_all_implementations():
    small = replace(torch_math.IMPL, name="small", supports=replace(torch_math.IMPL.supports, headdims=(64,)))
    impls = [torch_math.IMPL, small]
    parts = [list(ahead.part_of(impls, part, 3)) for part in range(3)]
    every = [(impl.name, str(case)) for part in parts for impl, case in part]
    assert len(set(every)) == len(every) == sum(len(group) for impl in impls for group in ahead.kinds(impl))
    assert {case.headdim for part in parts for _, case in part[:3]} == {64}  # the most common one first


def test_there_are_no_more_processes_than_cores_to_spare_or_workers(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path))
    monkeypatch.setattr(ahead.subprocess, "Popen", lambda command, **how: command[3:])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16), raising=False)
    assert [len(ahead.start(["a"], workers, "x")) for workers in (1, 8, 12, 16, 20)] == [1, 8, 4, 0, 0]
    assert ahead.start([], 8, "x") == []
    (owner, first, *part), (_, second, *_) = ahead.start(["a", "b"], 2, "x")
    assert (owner, part) == (str(os.getpid()), ["0", "2", "a", "b"])
    Path(first).touch()
    assert [command[1] for command in ahead.start(["a", "b"], 2, "x")] == [second]
    assert len(ahead.start(["a", "b"], 2, "y")) == 2
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path / "file"))
    assert ahead.start(["a", "b"], 2, "x") == []


def test_a_run_on_a_gpu_starts_them(monkeypatch):
    monkeypatch.setattr(ahead, "start", lambda names, workers, of: [*names, workers, of])

    def started(device="cuda", planned=200, untrusted=False):
        run = SimpleNamespace(device=lambda: device, untrusted=untrusted, entries=ours(), _workers=lambda: 3, _ahead=[])
        Reporter._compile_ahead(run, planned, "versions")
        return run._ahead

    assert {"triton_fa2", "numba_fa1", 3, "versions"} < set(started()) and "cuda_fa2" not in started()
    assert started("cpu") == started(planned=ahead.FEWEST_LAWS - 1) == started(untrusted=True) == []


def test_each_process_calls_its_part(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(ahead, "end_with", done.append)
    monkeypatch.setattr(ahead, "prepare", lambda device, is_worker: done.append(device))
    monkeypatch.setattr(ahead, "call_each", lambda calls, device: done.append((list(calls), device)))
    ahead.main(["17", str(tmp_path / "done"), "1", "2", "triton_fa2"])
    impl = next(entry.impl for entry in ours() if entry.name == "triton_fa2")
    assert done == [17, "cuda", (list(ahead.part_of([impl], 1, 2)), "cuda")]
    assert (tmp_path / "done").exists()


def test_an_error_does_not_end_it():
    called = []

    def forward(q, k, v, **options):
        called.append(q.dtype)
        if q.dtype == torch.float16:
            raise RuntimeError("no")
        return torch_math.forward(q, k, v, **options)

    broken = replace(torch_math.IMPL, name="broken", forward=forward)
    ahead.call_each(ahead.part_of([broken], 0, 20), "cpu")
    assert {torch.float16, torch.float32} < set(called)


def test_what_a_thousand_drawn_cases_compile_is_compiled_ahead(monkeypatch):
    """Kernels and their constants, as on a GPU, of the implementation that compiles the most."""
    pytest.importorskip("triton")
    from impls.triton import problem, tuning

    seen = set()

    def launch(self, programs, like, operations=0, tile=None, **arguments):
        types = tuple(x.dtype for x in arguments.values() if isinstance(x, torch.Tensor))
        seen.add((self.name, types, *(arguments.get(name) for name in CONSTANTS)))

    monkeypatch.setattr(tuning.Kernel, "launch", launch)
    monkeypatch.setattr(problem, "EMULATED", False)
    monkeypatch.setattr(problem, "_check_device", lambda q: None)
    impl = next(entry.impl for entry in ours() if entry.name == "triton_fa2")
    way = replace(impl.forward.__self__, largest=256)
    supports = replace(impl.supports, headdims=range(1, 257))
    impl = replace(impl, forward=way.forward, backward=way.backward, supports=supports, traced=False)
    ahead.call_each(ahead.part_of([impl], 0, 1), "cpu")
    compiled, number = set(seen), 0

    def call(case) -> None:
        nonlocal number
        number += 1
        small = case.but(batch=1, seqlen_q=min(case.seqlen_q, 2), seqlen_k=min(case.seqlen_k, 2))
        Trial(impl, small, "cpu", judges_state=False).run(backward=True)

    draw_each(attention_cases(impl, "cuda", Draws.of()), 1, 1000, call)
    assert number == 1000 and seen == compiled and len(compiled) > 100
