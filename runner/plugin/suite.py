"""A run of the suite itself: options, the plug-in hook, one parameter for each implementation, one
GPU for each worker.

conftest.py loads it in a checkout, and `flash-attest check` loads it elsewhere.
"""

# Imports of torch, and of modules that import torch, are inside functions. They take seconds, and
# --help should be quick.

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest
from hypothesis import settings

from flash_attest.emulator import numba as emulated_numba
from flash_attest.emulator import triton as emulated_triton
from flash_attest.emulator.errors import EmulatorError
from flash_attest.places import ROOMS
from flash_attest.properties.machine.gpus import cores, emulate_if_no_gpu, free_memory, in_turn, visible_gpus
from flash_attest.runner.compiled_modules import keep_modules_compiled
from flash_attest.runner.plugin import hookspecs, table
from flash_attest.runner.plugin.interrupts import Interrupts
from flash_attest.runner.profiles import DEFAULT, PROFILES

keep_modules_compiled()
CHAPTERS = ROOMS / "properties"
INTERPRETED = (
    "TRITON_INTERPRET is set: kernels of plug-ins run in Triton's interpreter, which multiplies bfloat16 as integers and "
    "does not show what the compiler makes; without it they run compiled, in the emulator if there is no GPU"
)
SIMULATED = (
    "NUMBA_ENABLE_CUDASIM is set: kernels of plug-ins run in Numba's simulator, as Python, without a trace; without it they "
    "run compiled, in the emulator if there is no GPU"
)
WORKERS_PER_GPU = 12
GIB_PER_WORKER = 5  # most laws take 1 to 4, a few up to 12 for a moment, for which they can wait (gpu_memory.py)

for _name, _profile in PROFILES.items():
    settings.register_profile(_name, max_examples=_profile.cases, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup(
        "flash-attest",
        "flash-attest: judging implementations of attention; --hypothesis-profile "
        f"says how many cases a law gets ({table.CASES}), "
        "--hypothesis-seed which (0, or random)",
    )
    for option in table.SUITE:
        option.add(group)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    hookspecs.add_to(pluginmanager)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    interrupts = Interrupts(config)  # from here on, pytest itself handles KeyboardInterrupt
    interrupts.install()
    profile = config.getoption("hypothesis_profile")
    if profile and profile not in PROFILES:
        raise pytest.UsageError(f"--hypothesis-profile {profile}: should be one of {', '.join(PROFILES)}")
    if not profile:
        settings.load_profile(DEFAULT)
    worker = getattr(config, "workerinput", {})
    if worker.get("attest_gpu") is not None:  # before anything touches CUDA
        os.environ["CUDA_VISIBLE_DEVICES"] = worker["attest_gpu"]
    for said, warning in (emulated_triton.interpreted(), INTERPRETED), (emulated_numba.simulated(), SIMULATED):
        if said:
            config.issue_config_time_warning(pytest.PytestConfigWarning(warning), stacklevel=2)
    try:
        emulate_if_no_gpu(config.getoption("--device"), config.getoption("--emulated"))
    except EmulatorError as error:
        raise pytest.UsageError(str(error)) from None
    from flash_attest.runner.plugin.conclusion import LastLine
    from flash_attest.runner.plugin.replacing import Replacing
    from flash_attest.runner.plugin.reporter import Reporter

    config.attest = Reporter(config, interrupts)
    config.pluginmanager.register(config.attest, "attest-reporter")
    config.pluginmanager.register(Replacing(config, config.attest), "attest-replacing")
    config.pluginmanager.register(LastLine(config.attest), "attest-last-line")
    config.pluginmanager.register(interrupts, "attest-interrupts")  # last, so that it is around the others


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "impl" not in metafunc.fixturenames:
        return
    from flash_attest.impls import Implementation

    entries = metafunc.config.attest.chosen.entries
    if hasattr(metafunc.function, "law"):  # an entry that could not be loaded is reported once, in test_contract
        entries = [entry for entry in entries if isinstance(entry.impl, Implementation)]
    metafunc.parametrize("impl", [entry.impl for entry in entries], ids=[entry.name for entry in entries])


@pytest.fixture
def judge(request: pytest.FixtureRequest):
    """judge(law, impl) passes the verdict to pytest and to the report; judge.contract(impl) does so
    for the contract.
    """
    return request.config.attest.judging.judge_for(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    from flash_attest.runner.plugin.conclude import shows_message

    return shows_message(report, call)


# --- chapters have one name each: flash_attest.properties.test_causal ---------------------------


class Chapter(pytest.Module):
    """A file of laws. pytest would import it under another name, beside the name under which the
    suite imports it.
    """

    def _getobj(self):
        return importlib.import_module(f"flash_attest.properties.{self.path.stem}")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return Chapter.from_parent(parent, path=module_path) if module_path.parent.resolve() == CHAPTERS else None


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return pytest.Dir.from_parent(parent, path=path) if path.resolve() == CHAPTERS else None  # not a Package to import


# --- pytest-xdist: workers that fit, one GPU each in turn ---------------------------------------

TURNS = pytest.StashKey[list[str]]()  # the GPU of each worker, in turn; read once, before workers take memory


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    gpus = visible_gpus() if config.getoption("--device") != "cpu" else []  # before pytest_configure
    if not gpus:
        return cores()
    free = free_memory(gpus) or _free_by_cuda(len(gpus))
    config.stash[TURNS] = turns = _turns(gpus, free)
    return max(1, min(cores(), len(turns)))


def _turns(gpus: list[str], free: list[int]) -> list[str]:
    return in_turn(gpus, [min(WORKERS_PER_GPU, int(bytes_ / 2**30 / GIB_PER_WORKER)) for bytes_ in free])


def _free_by_cuda(gpus: int) -> list[int]:
    """Return the free bytes of each GPU, or zeros if they cannot be used."""
    import torch

    from flash_attest.runner.isolation.parent import answer_of, possible

    def answer() -> dict:
        return {"bytes": [torch.cuda.mem_get_info(n)[0] for n in range(gpus)]}

    if not torch.cuda.is_available():
        return [0] * gpus
    free = answer_of(answer, limit=300.0) if possible() else answer()  # a process that uses CUDA cannot fork
    return free["bytes"] if isinstance(free, dict) else [0] * gpus


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    gpus = visible_gpus()
    if gpus and TURNS not in node.config.stash:  # the number of workers was given
        free = free_memory(gpus)
        node.config.stash[TURNS] = _turns(gpus, free) if free else gpus
    turns = gpus and (node.config.stash[TURNS] or gpus)
    number = int(node.gateway.id.removeprefix("gw"))
    node.workerinput["attest_gpu"] = turns[number % len(turns)] if turns else None
    node.workerinput["attest_began"] = node.config.attest.options.began
    node.workerinput["attest_seed"] = node.config.attest.options.seed
    tried = node.config.attest.chosen.tried
    node.workerinput["attest_tried"] = {argument: vars(result) for argument, result in tried.items()}
