"""The plan of a sweep: its implementations, its layers, and the job of each worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flash_attest.impls.contract import registry
from flash_attest.impls.contract.entry import Entry, NotLoaded, RegistryError, Unloadable
from flash_attest.impls.contract.record import Absent, Implementation
from flash_attest.properties.cases.support import missing, not_here
from flash_attest.properties.law import Law, laws
from flash_attest.properties.machine.gpus import emulate_if_no_gpu
from flash_attest.races import sanitizer
from flash_attest.runner.isolation import importing


@dataclass(frozen=True)
class Layer:
    """A layer of race detection: one law of properties/test_races.py.

    turns: the weight with which it is drawn, for each device of a sweep. Layers get similar time:
    a trace on a CPU or a process under the sanitizer takes as long as many repeats.
    again: how often a finding is repeated. perturbed: whether its launches run under perturbations.
    counted: whether `again` is a number of repeats rather than of runs; a run makes several
    repeats.
    ordered: whether the seed of a case also chooses an order of threads, so that a finding is
    repeated with other seeds.
    """

    name: str
    law_name: str
    turns: Mapping[str, float]
    again: int
    perturbed: bool = False
    counted: bool = False
    ordered: bool = False

    @property
    def law(self) -> Law:
        return laws()[self.law_name]

    def not_applicable(self, impl: Implementation, device: str) -> str | None:
        """Return why the layer is not drawn for an implementation, or None if it is drawn."""
        if self.law.device == "cuda" != device:
            return "it needs a GPU"
        if self.name == "sanitizer" and sanitizer.find() is None:
            return sanitizer.NOT_FOUND
        return missing(impl, self.law.needs) or not_here(impl, self.law.judged_on(device))


LAYERS = {
    layer.name: layer
    for layer in (
        Layer("repeat", "test_repeats_agree", {"cuda": 10, "cpu": 2}, again=1000, perturbed=True, counted=True),
        Layer("copies", "test_copies_agree", {"cuda": 10, "cpu": 2}, again=1000, perturbed=True),
        Layer("trace", "test_no_race_is_traced", {"cuda": 0.5, "cpu": 4}, again=20, ordered=True),
        Layer("sanitizer", "test_sanitizers_report_nothing", {"cuda": 0.2, "cpu": 0}, again=5),
    )
}


@dataclass(frozen=True)
class Job:
    """The job of a worker. This object is pickled."""

    db: Path
    session: str
    seed: int
    device: str
    names: str | None  # the value of --impl
    files: tuple[str, ...]  # the values of --impl-from
    repeats: int
    limit: float  # seconds for a call of an implementation; 0: no limit
    stop: float  # no run begins after this value of time.monotonic()
    most: int  # the number of runs of a worker; 0: no limit
    perturbations: Mapping[str, tuple[str, ...]]  # the perturbations of each device that are possible on this machine
    device_name: str


def entries(
    names: str | None, files: tuple[str, ...], device: str, limit: float, *, tried: bool = False
) -> list[Entry]:
    """Return the implementations to sweep.

    Without names, they are all that run on the device, or, on a CPU, all whose kernels run in the
    emulator. tried: another process has imported the files before.

    Raises RegistryError if there is nothing to sweep, and NotLoaded if a file cannot be loaded.
    """
    emulate_if_no_gpu(device)
    load = importing.imported if tried else partial(importing.entries_of, limit=limit)
    loaded = [entry for file in files for entry in load(file)]
    chosen = registry.choose(loaded, names, alone=bool(files))
    for entry in chosen:
        if isinstance(entry.impl, Unloadable) and (names is not None or entry.option):
            raise NotLoaded(entry.impl.problem)
    swept = [entry for entry in chosen if isinstance(entry.impl, Implementation)]
    if names is None and not files:
        swept = [entry for entry in swept if not not_here(entry.impl, device)]
        swept = [entry for entry in swept if entry.impl.traced or device == "cuda"]
    swept = registry.on_device(swept, device)
    if not any(layer.not_applicable(entry.impl, device) is None for entry in swept for layer in LAYERS.values()):
        reasons = [entry.impl.reason for entry in chosen if isinstance(entry.impl, Absent)]
        reasons += [f"{entry.name} {why}" for entry in swept if (why := not_here(entry.impl, device))]
        raise RegistryError(f"there is nothing to sweep: {next(iter(reasons), f'none runs on {device}')}")
    return swept


def left_out(entries: list[Entry], device: str) -> list[tuple[str, str, str]]:
    """Return (implementation, layer, why) for every layer that is not drawn."""
    pairs = ((entry, layer) for entry in entries for layer in LAYERS.values())
    return [(e.name, layer.name, why) for e, layer in pairs if (why := layer.not_applicable(e.impl, device))]
