"""How close do correct kernels come to the limits?

    flash-attest calibrate --impl torch_math --cases 5000

The command compares every output and gradient of the drawn cases with its budget, for each input
regime. A correct implementation stays within the budget in every regime. docs/measured/index.md
has the figures of the kernels that the thresholds were checked on.
"""

from __future__ import annotations

import argparse
import time

import torch

from flash_attest.arguments import Parser
from flash_attest.bench.options import device_of
from flash_attest.bench.plan import from_files
from flash_attest.did_you_mean import did_you_mean
from flash_attest.impls.contract import registry
from flash_attest.impls.contract.entry import RegistryError, Unloadable
from flash_attest.impls.contract.record import Absent, Implementation
from flash_attest.oracle import score
from flash_attest.properties.cases.case import REGIMES
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.properties.cases.support import not_here
from flash_attest.properties.checks.comparisons import stored_dtype
from flash_attest.properties.trial import Trial


def calibrate(impl: Implementation, regime: str, cases: int, device: str, number: int) -> dict:
    """Draw cases. Returns the worst z and rms ratio of each output, and the cases beyond a
    limit.
    """
    worst: dict[str, list[float]] = {}
    beyond: list[str] = []
    started = time.perf_counter()
    drawn = Drawing(attention_cases(impl, device, Draws.of(regime=regime)), number, cases).cases
    for case in drawn:
        trial = Trial(impl, case, device, judges_state=False)  # torch.compile sets the recursion limit
        backward = impl.backward is not None
        got, want = trial.run(backward=backward), trial.want(backward=backward)
        budget = trial.budget(want, backward=backward)
        for name, tensor in got.items():
            result = score(
                tensor, getattr(want, name), getattr(budget, name), stored_dtype(trial, name, tensor), trial.form
            )
            z, rms = worst.setdefault(name, [0.0, 0.0])
            worst[name] = [max(z, result.worst_z), max(rms, result.rms_ratio)]
            if not result.within:
                beyond.append(f"{name} z {result.worst_z:.3g} rms {result.rms_ratio:.3g}   {case}")
    seconds = time.perf_counter() - started
    return {"regime": regime, "cases": len(drawn), "worst": worst, "beyond": beyond, "seconds": seconds}


def judge(parser: Parser, options: argparse.Namespace) -> int:
    """Print a line for each implementation and regime. Returns 1 if a limit was exceeded."""
    if unknown := [regime for regime in options.regimes or () if regime not in REGIMES]:
        parser.error(
            f"--regimes: unknown {', '.join(unknown)}{did_you_mean(unknown, REGIMES)} (known: {', '.join(REGIMES)})"
        )
    options.device = device_of(parser, options)
    torch.set_num_threads(1)
    try:
        loaded = from_files(options.impl_from)
        entries = registry.choose(loaded, options.impl, alone=bool(loaded))
    except RegistryError as error:
        parser.error(str(error))
    broken, calibrated = False, False
    for impl in (entry.impl for entry in registry.on_device(entries, options.device)):
        reason = not_here(impl, options.device) if isinstance(impl, Implementation) else reason_of(impl)
        if reason:
            print(f"{impl.name}: {reason}")
            broken = broken or isinstance(impl, Unloadable)
            continue
        calibrated = True
        for regime in options.regimes or REGIMES:
            figures = calibrate(impl, regime, options.cases, options.device, options.seed)
            largest = "  ".join(f"{name} {z:.2f}/{rms:.2f}" for name, (z, rms) in figures["worst"].items())
            print(f"{impl.name:28} {regime:13} {figures['cases']:6} cases {figures['seconds']:6.0f} s   "
                  f"{len(figures['beyond'])} beyond   z/rms  {largest}", flush=True)  # fmt: skip
            for line in figures["beyond"][:5]:
                print(f"    {line}")
            broken = broken or bool(figures["beyond"])
    return int(broken or not calibrated)


def reason_of(entry: Absent | Unloadable) -> str:
    """Return why there is no implementation to calibrate."""
    return entry.reason if isinstance(entry, Absent) else entry.problem
