"""Fills the cells one by one.

For each cell it checks whether the case is supported, whether it fits into memory and whether the
result is right. Then it times the cell, compares outputs of the timed calls, and checks that the
time is possible.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from flash_attest.bench import timing
from flash_attest.bench.cells import (
    ABOVE_PEAK,
    ERROR,
    NO_FIT,
    NOT_RUN,
    REFUSED,
    TIMED,
    WRONG,
    fewest_flops,
    flops,
    product_of,
    refusal,
    too_large,
)
from flash_attest.bench.report import Measurements
from flash_attest.bench.sanity import NAMES, make_inputs, mistake, reference
from flash_attest.bench.timed_outputs import TimedOutputs
from flash_attest.impls.contract.call import run
from flash_attest.impls.contract.entry import Entry
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs, Outputs, to_layout
from flash_attest.properties.cases.case import Case, text_of
from flash_attest.texts import gib

BEYOND = 1.05  # factor on the measured peak: a faster call cannot have done the work


@dataclass
class Bench:
    """Fills and records cells on a device, and measures each for `seconds`.

    first_calls: seconds of the first calls, which compile, and whose results are compared with
    float32 attention.
    """

    measurements: Measurements
    device: str
    seconds: float
    seed: int = 0
    first_calls: float = 0.0
    dead: str | None = None  # the cell that broke the device, after which nothing runs

    def measure_peaks(self, entries: list[Entry], cases: list[Case]) -> None:
        """Measure the peak of each kind of product that is shown beside these cells or bounds one
        of them.
        """
        dtypes, impls = list(dict.fromkeys(case.dtype for case in cases)), [entry.impl for entry in entries]
        used = [product_of(i, d, self.device) for i in impls for d in dtypes if d in i.supports.dtypes]
        for product in dict.fromkeys([text_of(dtype) for dtype in dtypes] + used):
            if product not in self.measurements.peaks:
                self.measurements.raise_peak(product, timing.peak(product, self.device))

    def run(
        self, entries: list[Entry], cases: list[Case], passes: tuple[str, ...], tell: Callable[[Case, str, str], None]
    ) -> None:
        """Fill every cell in order, and call `tell(case, pass, implementation)` before each."""
        for case in cases:
            workload = Workload(case, self.device, self.seed, backward="backward" in passes)
            for which in passes:
                for entry in entries:
                    tell(case, which, entry.name)
                    cell = describe(case, which, entry.name)
                    cell |= (
                        {"verdict": NOT_RUN, "reason": self.dead} if self.dead else self.fill(entry, workload, which)
                    )
                    self.measurements.add(cell)
                    if cell["verdict"] == NO_FIT:
                        gc.collect()  # the exception may keep the tensors alive
                    if cell["verdict"] == ERROR and _is_dead(self.device):
                        self.dead = f"the device no longer works after {entry.name}, {which}, {case}"

    def fill(self, entry: Entry, workload: Workload, which: str) -> dict:
        """Return the verdict of one cell, with its reason or figures."""
        impl, case = entry.impl, workload.case
        if impl.supports.form != "dense":
            reason = f"cells are dense calls, form is {impl.supports.form!r}: see bench/varlen.py and bench/decode.py"
            return {"verdict": REFUSED, "reason": reason}
        if reason := refusal(impl, case, which):
            return {"verdict": REFUSED, "reason": reason}
        try:
            if self.device == "cuda":
                torch.cuda.empty_cache()  # for kernels that allocate without PyTorch
                torch.cuda.reset_peak_memory_stats()
            if reason := too_large(impl, case, which, self.device):
                return {"verdict": NO_FIT, "reason": reason}
            return self._check_and_time(entry, workload, which)
        except torch.OutOfMemoryError as error:
            return {"verdict": NO_FIT, "reason": _needed(error)}
        except Exception as error:
            text = (str(error).strip().splitlines() or ["no message"])[0]
            return {"verdict": ERROR, "reason": f"{type(error).__name__}: {text}"}

    def _check_and_time(self, entry: Entry, workload: Workload, which: str) -> dict:
        impl, case, backward = entry.impl, workload.case, which == "backward"
        try:
            want = workload.want
        except torch.OutOfMemoryError:
            return {"verdict": NO_FIT, "reason": "the float32 attention that the kernel is compared with does not fit"}
        x = workload.handed_to(impl)
        began = time.perf_counter()
        try:
            with entry.at_home():
                got = run(impl, x, causal=case.causal, backward=backward)
        finally:
            self.first_calls += time.perf_counter() - began
        if changed := workload.changed(impl, x):
            return {"verdict": WRONG, "reason": f"{', '.join(changed)} modified: inputs should come back as they were"}
        if reason := mistake(got, want, NAMES if backward else NAMES[:1]):
            closer = f"pytest {entry.option or f'--impl {impl.name}'} --case '{case}'"
            return {"verdict": WRONG, "reason": f"{reason}; for a closer look:  {closer}"}
        del got
        call = (timing.backward_call if backward else timing.forward_call)(impl, x, case.causal)
        outputs = TimedOutputs(impl, x, want, case.causal, backward)
        with entry.at_home():
            took = timing.measure(call, self.device, self.seconds, outputs.see)
        product = product_of(impl, case.dtype, self.device)
        if self._is_beyond(impl, case, which, took):
            # Something else may have disturbed the measurement of the peak or of the cell.
            self.measurements.raise_peak(product, timing.peak(product, self.device))
            with entry.at_home():
                took = timing.measure(call, self.device, self.seconds, outputs.see)
        with entry.at_home():
            outputs.compare_with_other_values()
        if outputs.mistake:
            return {"verdict": WRONG, "reason": outputs.mistake}
        tflops = flops(case, which) / took.ms / 1e9
        figures = {"ms": took.ms, "ms_p20": took.low, "ms_p80": took.high, "repeats": took.repeats, "tflops": tflops}
        if product != text_of(case.dtype):
            figures["product"] = product
        if self._is_beyond(impl, case, which, took):
            peak = self.measurements.peaks[product]
            reason = f"{tflops:.3g} TFLOP/s is more than a matrix product's {peak.tflops:.3g}: a mistake in measuring"
            if self.device == "cuda" and product == "float32":
                reason += ", or a tf32 that is not declared (Precision.multiply)"
            return {"verdict": ABOVE_PEAK, "reason": reason, **figures}
        if took.issue_ms >= took.ms:
            figures["note"] = f"launch-bound: the host needs {took.issue_ms:.3f} ms to issue it"
        return {"verdict": TIMED, **figures}

    def _is_beyond(self, impl: Implementation, case: Case, which: str, took: timing.Timing) -> bool:
        peak = self.measurements.peaks[product_of(impl, case.dtype, self.device)]
        return fewest_flops(impl, case, which) / took.ms / 1e9 > BEYOND * peak.tflops


@dataclass
class Workload:
    """The inputs of a case and its float32 attention. Both are computed when they are first
    needed.
    """

    case: Case
    device: str
    seed: int
    backward: bool

    @cached_property
    def inputs(self) -> Inputs:
        """q, k, v, dout (b, s, h, d)."""
        return make_inputs(self.case, self.device, self.seed)

    @cached_property
    def want(self) -> Outputs:
        """out, and with backward dq, dk, dv: (b, s, h, d) float32."""
        return reference(self.inputs, self.case.causal, self.backward)

    def handed_to(self, impl: Implementation) -> Inputs:
        """Return a copy of the inputs in the implementation's layout, to which it may write."""
        return Inputs(**{name: to_layout(impl, tensor).clone() for name, tensor in self.inputs.items()})

    def changed(self, impl: Implementation, handed: Inputs) -> list[str]:
        """Return the names of the inputs that a call has written to."""
        after = dict(handed.items())
        return [name for name, tensor in self.inputs.items() if not torch.equal(to_layout(impl, tensor), after[name])]


def describe(case: Case, which: str, name: str) -> dict:
    """Return the fields of bench.json that identify a cell."""
    return {"impl": name, "pass": which, "dtype": text_of(case.dtype), "causal": case.causal,
            "headdim": case.headdim, "seqlen": case.seqlen_q, "batch": case.batch, "nheads": case.nheads}  # fmt: skip


def _needed(error: torch.OutOfMemoryError) -> str:
    """Return "needs more than X GiB", given PyTorch's message and the memory that was allocated."""
    size = re.search(r"Tried to allocate ([\d.]+) (MiB|GiB)", str(error))
    more = float(size[1]) * (2**30 if size[2] == "GiB" else 2**20) if size else 0
    held = torch.cuda.max_memory_allocated()
    total = torch.cuda.mem_get_info()[1]
    return f"needs more than {gib(held + more)}, there are {total / 2**30:.0f}"


def _is_dead(device: str) -> bool:
    """Return whether the device no longer works, as after an illegal memory access."""
    if device != "cuda":
        return False
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device=device)
    except RuntimeError:
        return True
    return False
