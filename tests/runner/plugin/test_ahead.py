"""Kernels are compiled beside the workers, before laws need them: the calls, and the processes."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.impls.contract.registry import ours
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.kinds import has_kind
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.trial import Trial
from flash_attest.races.sanitizer.watch import end
from flash_attest.runner.plugin import ahead
from flash_attest.runner.plugin.reporter import Reporter
from flash_attest.runner.profiles import PROFILES

CONSTANTS = ("BLOCK_D", "ALIGN", "BIAS", "UNMASKED", "PRECISION", "ATOMIC")


def test_every_kind_of_every_implementation_is_called_and_the_most_common_ones_first():
    small = replace(torch_math.IMPL, name="small", supports=replace(torch_math.IMPL.supports, headdims=(64,)))
    impls = [torch_math.IMPL, small]
    every = ahead.calls(impls)
    called = [(impl.name, str(case)) for pairs in every for impl, case in pairs]
    each = [(impl, case) for impl in impls for cases in ahead.kinds(impl) for case in cases]
    assert {unsupported(*pair) for pair in each if "hidden=" not in str(pair[1]) and "kv=" not in str(pair[1])} == {
        None
    }
    assert len(set(called)) == len(called) == sum(unsupported(*pair) is None for pair in each)
    assert {(impl.name, case.headdim) for pairs in every[:6] for impl, case in pairs} == {
        ("torch_math", 64),
        ("small", 64),
    }


def test_a_run_of_few_kinds_compiles_those_alone():
    impl = replace(torch_math.IMPL, compiles=True, supports=replace(torch_math.IMPL.supports, headdims=range(1, 257)))
    some = [case for pairs in ahead.calls([impl], seed=3) for _, case in pairs]
    every = [case for pairs in ahead.calls([impl]) for _, case in pairs]
    assert some == [case for case in every if has_kind(impl, 3, case)] and 0 < len(some) < len(every) / 2
    assert ahead.calls([replace(impl, compiles=False)], seed=3) == ahead.calls([replace(impl, compiles=False)])


def test_each_number_goes_to_one_of_those_that_share_the_file():
    with tempfile.TemporaryFile() as shared:
        inherited = [os.dup(shared.fileno()) for _ in range(4)]  # as child processes inherit it
    with ThreadPoolExecutor(len(inherited)) as threads:
        drawn = list(threads.map(lambda descriptor: list(islice(ahead.numbers(descriptor), 5000)), inherited))
    for descriptor in inherited:
        os.close(descriptor)
    assert sorted(number for each in drawn for number in each) == list(range(20_000))


@pytest.fixture
def machine(monkeypatch):
    """A machine with 16 cores and two GPUs. A process is represented by its command and its GPU."""

    def popen(command, env, stdin, **how):
        return *command[3:], env["CUDA_VISIBLE_DEVICES"], stdin

    monkeypatch.setattr(ahead.subprocess, "Popen", popen)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16), raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    return monkeypatch


MANY = ["triton_a", "numba_b"] * ahead.FEWEST_LAWS


def test_there_is_a_process_for_two_cores_and_no_more_than_workers(machine):
    assert [len(ahead.start(MANY, workers)) for workers in (1, 7, 8, 12, 20)] == [1, 7, 8, 8, 8]
    machine.setattr(os, "sched_getaffinity", lambda _: range(6), raising=False)
    assert [len(ahead.start(MANY, workers)) for workers in (1, 6)] == [1, 3]
    started = ahead.start(MANY, 2)
    assert [each[:-1] for each in started] == [(str(os.getpid()), "all", "triton_a", "numba_b", gpu) for gpu in "35"]
    assert started[0][-1] is started[1][-1]  # they share its offset


def test_a_run_that_is_soon_over_starts_none(machine):
    assert ahead.start(MANY[: ahead.FEWEST_LAWS - 1], 8) == ahead.start(["torch_math"] * 200, 8) == []


def test_a_machine_that_can_start_no_process_is_no_error(machine):
    machine.setattr(ahead.subprocess, "Popen", lambda *_, **__: (_ for _ in ()).throw(BlockingIOError))
    assert ahead.start(MANY, 8) == []


def test_a_run_on_a_gpu_starts_them(monkeypatch):
    monkeypatch.setattr(ahead, "start", lambda impls, workers, seed: [*impls, workers, seed])

    def started(device="cuda", untrusted=False, profile="default"):
        options = SimpleNamespace(device=device, workers=3, seed=5, profile=PROFILES[profile])
        chosen = SimpleNamespace(untrusted=untrusted)
        run = SimpleNamespace(options=options, chosen=chosen, _ahead=[])
        Reporter._compile_ahead(run, ["triton_a"])
        return run._ahead

    assert started() == ["triton_a", 3, 5] and started(profile="thorough") == ["triton_a", 3, None]
    assert started("cpu") == started(untrusted=True) == []


def test_each_process_calls_what_it_draws(monkeypatch):
    """The process calls only our implementations, even if a plug-in has a similar name."""
    done = []
    monkeypatch.setattr(ahead, "numbers", lambda descriptor: iter((1, 4, 10_000)))
    monkeypatch.setattr(ahead, "end_with", done.append)
    monkeypatch.setattr(ahead, "prepare", lambda device, is_worker: done.append(device))
    monkeypatch.setattr(ahead, "call_each", lambda pairs, device: done.append((list(pairs), device)))
    ahead.main(["17", "all", "triton_fa2", "triton_of_a_plug_in"])
    impl = next(entry.impl for entry in ours() if entry.name == "triton_fa2")
    every = ahead.calls([impl])
    assert done == [17, "cuda", (every[1] + every[4], "cuda")]


def test_they_end_with_what_they_started():
    script = "import subprocess, sys; print(subprocess.Popen(['sleep', '1000']).pid, flush=True); input()"
    how = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    process = subprocess.Popen([sys.executable, "-c", script], **how)
    child = int(process.stdout.readline())
    end(process)
    assert process.returncode == -signal.SIGKILL
    stop = time.monotonic() + 60
    with suppress(FileNotFoundError):
        while Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < stop
            time.sleep(0.05)


def test_an_error_does_not_end_it():
    called = []

    def forward(q, k, v, **options):
        called.append(q.dtype)
        if q.dtype == torch.float16:
            raise RuntimeError("no")
        return torch_math.forward(q, k, v, **options)

    broken = replace(torch_math.IMPL, name="broken", forward=forward)
    ahead.call_each([pairs[0] for pairs in ahead.calls([broken])[:30]], "cpu")
    assert {torch.float16, torch.float32} < set(called)


@pytest.mark.parametrize("count", (300, pytest.param(1000, marks=pytest.mark.thorough)))
def test_what_drawn_cases_compile_is_compiled_ahead(count, monkeypatch):
    """triton_fa2 compiles the most kernels and constants, as on a GPU."""
    pytest.importorskip("triton")
    from flash_attest.impls.triton import problem, tuning

    seen = set()

    def launch(self, programs, like, operations=0, tile=None, **arguments):
        types = tuple(x.dtype for x in arguments.values() if isinstance(x, torch.Tensor))
        seen.add((self.name, types, *(arguments.get(name) for name in CONSTANTS)))

    monkeypatch.setattr(tuning.Kernel, "launch", launch)
    monkeypatch.setattr(problem, "EMULATED", False)
    monkeypatch.setattr(problem, "check_device", lambda q: None)
    impl = next(entry.impl for entry in ours() if entry.name == "triton_fa2")
    way = replace(impl.forward.__self__, largest=256)
    supports = replace(impl.supports, headdims=range(1, 257))
    impl = replace(impl, forward=way.forward, backward=way.backward, supports=supports, traced=False)
    ahead.call_each([pair for pairs in ahead.calls([impl]) for pair in pairs], "cpu")
    compiled = set(seen)
    cases = Drawing(attention_cases(impl, "cuda", Draws.of()), 1, count).cases
    for case in cases:
        small = case.but(batch=1, seqlen_q=min(case.seqlen_q, 2), seqlen_k=min(case.seqlen_k, 2))
        Trial(impl, small, "cpu", judges_state=False).run(backward=True)
    assert len(cases) == count and seen == compiled and len(compiled) > 100
