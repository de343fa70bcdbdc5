"""Helpers: what bench.json has of three implementations, in two sizes and with a refusal."""

from __future__ import annotations

NAMES = ("torch_math", "torch_sdpa_flash_cpu", "python_tiled")
PAPERS = dict(dtype="float32", causal=False, headdim=64, batch=1, nheads=2)  # of the papers' sizes on a CPU
FIGURES = dict(ms=2.0, ms_p20=1.9, ms_p80=2.1, repeats=9, tflops=0.05, share=0.5, ratio=0.5, baseline=NAMES[1])


def cell(impl: str, seqlen: int, which: str = "forward", verdict: str = "timed", **more: object) -> dict:
    """Make a cell. Only a timed one has figures."""
    about = {"impl": impl, "pass": which, "seqlen": seqlen, "verdict": verdict}
    return about | PAPERS | (FIGURES if verdict == "timed" else {}) | more


def measured() -> dict:
    """Make what bench.json has."""
    about = dict(
        device="cpu", device_name="a machine", versions={"torch": "2.13", "triton": None}, threads=1, seconds=12.0,
        started="2026-01-01T00:00:00+00:00", command=["flash-attest", "bench"], not_loaded=[],
        left_out=["triton_fa2: it does not run on cpu"],
    )  # fmt: skip
    results = [cell(impl, n) for n in (128, 256) for impl in NAMES]
    results.append(cell("python_tiled", 256, "backward", "refused", reason="it has no backward"))
    peak = {"float32": {"tflops": 0.1, "product": "8 x 8"}}
    return {"state": "complete", "environment": about, "peak": peak, "results": results}
