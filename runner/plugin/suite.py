"""A run of the suite itself: options, the plug-in hook, one parameter for each implementation, one GPU for each worker.

Loaded by conftest.py in a checkout, and by `flash-attest check` elsewhere.
"""

# Imports of torch, and of what imports it, are inside functions: it takes seconds, for which --help should not wait.

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest
from hypothesis import settings

from flash_attest.emulator import numba as emulated_numba
from flash_attest.emulator import triton as emulated_triton
from flash_attest.places import ROOMS
from flash_attest.properties.machine.gpus import cores, emulate_if_no_gpu, visible_gpus
from flash_attest.runner.compiled_modules import keep_modules_compiled
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
# torch then counts GPUs without CUDA: a process that has used CUDA cannot fork another one that uses it.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
WORKERS_PER_GPU = 12
GIB_PER_WORKER = 10  # torch's own memory, the largest case, and the oracle's chunks

for _name, _profile in PROFILES.items():
    settings.register_profile(_name, max_examples=_profile.cases, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup(
        "flash-attest",
        "flash-attest: judging implementations of attention; --hypothesis-profile "
        f"says how many cases a law gets ({', '.join(f'{name} {profile.cases}' for name, profile in PROFILES.items())}), "
        "--hypothesis-seed which (0, or random)",
    )
    group.addoption("--impl", metavar="A,B", help="judge these implementations only (an unknown name lists the known)")
    group.addoption(
        "--impl-from", metavar="FILE.py[:NAME]", action="append", default=[],
        help="judge the Implementation in this file (NAME, else IMPL or IMPLS); may be given again; "
        "with = for a file outside this folder (--impl-from=/elsewhere/mine.py)",
    )  # fmt: skip
    group.addoption(
        "--untrusted", action="store_true",
        help="import the files of --impl-from, and call what is in them, in a kernel process only, which holds neither the "
        "oracle nor an expected value (docs/for-generated-kernels.md)",
    )  # fmt: skip
    group.addoption(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to judge; auto: cuda if there is one"
    )
    group.addoption(
        "--case", metavar='"FIELD=VALUE ..."', help='replay one case, as in --case "seqlen_q=65 headdim=64"'
    )
    group.addoption(
        "--shard",
        metavar="I/N",
        help="judge the I-th of N parts of the laws (flash-attest merge joins them)",
    )
    group.addoption(
        "--repeats", type=int, metavar="N",
        help=f"how often test_races repeats a call ({PROFILES[DEFAULT].repeats}, on a CPU "
        f"{PROFILES[DEFAULT].repeats_on_cpu}; smoke: {PROFILES['smoke'].repeats}), times an implementation's share",
    )  # fmt: skip
    group.addoption(
        "--perturb", metavar="NAMES",
        help="under which perturbations test_races repeats calls, as in stress,cold; none for none (all that the device has; "
        "an unknown name lists the known; docs/races.md)",
    )  # fmt: skip
    group.addoption(
        "--case-timeout", type=float, default=120.0, metavar="SECONDS",
        help="the limit for a call of an implementation, ten times as long while something compiles (120; 0: no limit)",
    )  # fmt: skip
    group.addoption(
        "--no-isolation", action="store_true",
        help="judge in the pytest process, for a debugger: a kernel that crashes ends the run",
    )  # fmt: skip
    group.addoption(
        "--report", default="attest-report", metavar="DIR",
        help="where results.json and index.html go (attest-report); with = for a folder outside this one",
    )  # fmt: skip
    group.addoption(
        "--resume", action="store_true",
        help="go on where the run stopped whose report is in the folder of --report: what it decided is not judged again",
    )  # fmt: skip


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from flash_attest.runner.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
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
    emulate_if_no_gpu(config.getoption("--device"))
    repeats = config.getoption("--repeats")
    if repeats is not None and repeats < 1:
        raise pytest.UsageError(f"--repeats {repeats}: should be at least 1")
    limit = config.getoption("--case-timeout")
    if not 0 <= limit < float("inf"):
        raise pytest.UsageError(f"--case-timeout {limit:g}: should be a number of seconds, or 0 for no limit")
    from flash_attest.runner.plugin.reporter import Reporter

    config.attest = Reporter(config)
    config.pluginmanager.register(config.attest, "attest-reporter")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "impl" not in metafunc.fixturenames:
        return
    from flash_attest.impls import Implementation

    entries = metafunc.config.attest.entries
    if hasattr(metafunc.function, "law"):  # what could not be loaded says so once, in test_contract
        entries = [entry for entry in entries if isinstance(entry.impl, Implementation)]
    metafunc.parametrize("impl", [entry.impl for entry in entries], ids=[entry.name for entry in entries])


@pytest.fixture
def judge(request: pytest.FixtureRequest):
    """judge(law, impl) gives the verdict to pytest and to the report; judge.contract(impl) does so for the contract."""
    return request.config.attest.judge_for(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    from flash_attest.runner.plugin.conclude import LawFails

    if call.excinfo is not None and isinstance(call.excinfo.value, LawFails):
        message = str(call.excinfo.value)
        report.longrepr.reprtraceback.reprentries = []
        report.longrepr.reprtraceback.extraline = message
        report.longrepr.reprcrash.message = message.splitlines()[0]  # the short summary shows this line
        report.sections = []
    return report


# --- chapters have one name each: flash_attest.properties.test_causal --------------------------------------------------


class Chapter(pytest.Module):
    """A file of laws. pytest would import it under another name, beside the one under which everything else knows it."""

    def _getobj(self):
        return importlib.import_module(f"flash_attest.properties.{self.path.stem}")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return Chapter.from_parent(parent, path=module_path) if module_path.parent.resolve() == CHAPTERS else None


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return pytest.Dir.from_parent(parent, path=path) if path.resolve() == CHAPTERS else None  # not a Package to import


# --- pytest-xdist: workers that fit, one GPU each in turn ---------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    gpus = visible_gpus() if config.getoption("--device") != "cpu" else []  # before pytest_configure
    if not gpus:
        return cores()
    import torch

    from flash_attest.runner.isolation.parent import answer_of, possible

    def free_memory() -> dict:
        return {"bytes": [torch.cuda.mem_get_info(n)[0] for n in range(len(gpus))]}

    answer: object = None
    if torch.cuda.is_available():  # asked for elsewhere: what has used CUDA cannot fork what uses it
        answer = answer_of(free_memory, limit=300.0) if possible() else free_memory()
    free = answer["bytes"] if isinstance(answer, dict) else [0]
    fit = sum(min(WORKERS_PER_GPU, int(bytes_ / 2**30 / GIB_PER_WORKER)) for bytes_ in free)
    return max(1, min(cores(), fit))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    gpus = visible_gpus()
    number = int(node.gateway.id.removeprefix("gw"))
    node.workerinput["attest_gpu"] = gpus[number % len(gpus)] if gpus else None
    node.workerinput["attest_seed"] = node.config.attest.seed
    node.workerinput["attest_unloadable"] = node.config.attest.unloadable
