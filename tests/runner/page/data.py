"""Reports for tests of pages: results and environment, made up, as results.json has them."""

from __future__ import annotations

import random

from flash_attest.properties.judging.plain_text import plain
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from flash_attest.properties.law import laws
from tests.plugins import odd_words

ODD = plain(odd_words.ODD)  # as a report has it: Report.add makes all text plain
IMPLS = (
    "python_tiled", "torch_math", "torch_flash", "torch_efficient", "torch_flex", "torch_cudnn", "triton_fa1",
    "triton_fa2", "triton_fa2_tma", "triton_decode", "numba_fa1", "numba_fa2", "cuda_fa1", "cuda_fa2", "cuda_decode",
    "cuda_varlen", "cuda_fa2_cute", "flash_attn_2", "flash_attn_3", "flashinfer_prefill", "flashinfer_decode",
    "xformers_cutlass",
)  # fmt: skip
ON_GPU = 17  # the implementations from this one on
LAWS = 69
CONTRACT = 10**6  # as the n-th law: there are fewer
LENGTHS = (1, 2, 16, 31, 33, 64, 65, 127, 129, 255, 258, 513, 1040)
MESSAGE = """\
{reason}
  {impl}   seqlen_q=65 seqlen_k=65 headdim=1 dtype=float32 causal=True

Rule
  query i sees key j  iff  j <= i + seqlen_k - seqlen_q

Replay
  {replay}
"""
REPLAY = "flash-attest check {impl}.py --law {law} --case 'seqlen_q=65 seqlen_k=65 headdim=1'"


def environment(results: list[dict], **more: object) -> dict:
    """Return the environment of a whole run."""
    facts = {
        "versions": {"python": "3.11.7", "torch": "2.13.0", "cuda": None}, "device": "cpu", "device_name": "AMD EPYC",
        "platform": "Linux", "started": "2026-11-25T19:02:11+00:00", "seed": 0, "profile": "default", "repeats": 100,
        "cases_per_law": 60, "command": "pytest -n auto", "options": {"impl": None, "impl_from": []},
        "complete": True, "state": "complete", "decided": len(results), "planned": len(results),
        "seconds": 733.1, "workers": 2,
    }  # fmt: skip
    return facts | more


def result(impl: str, n: int, verdict: str = PASS, **fields: object) -> dict:
    """Return a result of the n-th law, as format 2 has it."""
    law = list(laws().values())[n] if n < len(laws()) else None
    chapter, name = (law.chapter, law.name) if law else ("test_contract", "test_contract_is_kept")
    made = Result(impl, chapter, name, verdict).as_dict()
    return made | fields


def passing(impl: str, n: int, draw: random.Random) -> dict:
    """Return a law that held, with z of its outputs and some of its cases."""
    zs = {tensor: round(draw.lognormvariate(0, 0.5), 3) for tensor in ("out", "lse", "dq", "dk", "dv")[: 1 + n % 5]}
    worst = max(zs.values()) if n % 4 else None
    tried = [
        [draw.choice(LENGTHS), draw.choice(LENGTHS), draw.choice((1, 8, 16, 40, 64, 128)), worst] for _ in range(8)
    ]
    seconds = {"running": 0.3, "oracle": 0.1}
    return result(impl, n, cases=60, seconds=0.5, seconds_of=seconds, worst_z=zs if n % 4 else {}, tried=tried)


def green() -> tuple[list[dict], dict]:
    """Return a large green run: 1,518 verdicts."""
    draw, results = random.Random(0), []
    for number, impl in enumerate(IMPLS):
        for n in [CONTRACT, *(n * len(laws()) // (LAWS - 1) for n in range(LAWS - 1))]:  # of every chapter
            if number >= ON_GPU:
                reason = "runs on cuda only; this run judges on cpu"
                results.append(result(impl, n, UNKNOWN, reason=reason, why="other device"))
            elif n % 11 == number % 11:
                results.append(result(impl, n, REFUSED, reason="takes no bias", why="not declared"))
            else:
                results.append(passing(impl, n, draw))
    return results, environment(results)


def failed(impl: str, n: int, reason: str, **fields: object) -> dict:
    """Return a law that did not hold, with its message."""
    law = result(impl, n)["law"]
    replay = REPLAY.format(impl=impl, law=law.removeprefix("test_"))
    message = MESSAGE.format(reason=reason, impl=impl, replay=replay)
    more = {"reason": reason, "message": message, "replay": replay, "smallest": "seqlen_q=65 seqlen_k=65 headdim=1"}
    return result(impl, n, FAIL, **more, cases=12, worst_z={"out": 3120.5}, tried=[[65, 65, 1, "inf"]], **fields)


WRONG = {
    "tensor": "out", "seqlen_q": 65, "seqlen_k": 65, "diagonal": 0, "tile": [64, 64], "queries": [[64, 64]], "keys": [],
    "missing": [[64, 64]], "extra": [],
}  # fmt: skip
FAR = {
    "tensor": "dk", "seqlen_q": 3, "seqlen_k": 4099, "diagonal": None, "tile": [16, 128], "queries": [[0, 2]],
    "keys": [[4096, 4098]], "missing": [], "extra": [[1, 4097]],
}  # fmt: skip


def failing() -> tuple[list[dict], dict]:
    """Return a run with failures of several causes, undecided laws and hostile text."""
    draw = random.Random(1)
    results = [passing(impl, n, draw) for impl in ("mine", "odd_words", "theirs") for n in range(12, 40)]
    short = "query 64 sees 64 keys, should see 65: key 64 is missing"
    results += [failed("mine", n, short, clue="lengths", wrong=WRONG, declared_at="mine.py:12") for n in (1, 2, 3)]
    results += [failed("mine", 4, "dk is 0.2, should be 0.3", clue="keys", wrong=FAR)]
    results += [failed("mine", 5, "row is NaN, should be zero", known="gives NaN, #17")]
    results += [result("theirs", n, UNKNOWN, reason="forward does not return within 120 s", why="timed out",
                       message="forward does not return within 120 s\n  theirs   seqlen_q=64\n") for n in (6, 7)]  # fmt: skip
    results += [
        result("theirs", 8, UNKNOWN, reason="law not applicable on cpu, only on cuda", why="law of other device")
    ]
    odd = failed("odd_words", 9, ODD, clue="odd", declared_at=ODD)
    results += [odd | {"message": ODD, "replay": ODD, "worst_z": {ODD: "nan"}, "smallest": ODD}]
    results += [result(f"{ODD} & <b>\"'", 10, FAIL, reason=ODD, message=ODD)]
    return results, environment(results, command=f"flash-attest check '{ODD}'", seconds=42.0)


def running() -> tuple[list[dict], dict]:
    """Return a run that goes on."""
    results, _ = green()
    first = results[:40]
    facts = environment(first, complete=False, state="running", planned=69)
    return first, {name: value for name, value in facts.items() if name not in ("seconds", "workers")}


def empty() -> tuple[list[dict], dict]:
    """Return a run that has just begun."""
    facts = {"complete": False, "state": "running", "decided": 0, "planned": 69}
    return [], {"versions": {}, "command": "pytest", "device": "cpu", "started": "2026-11-25"} | facts


RUNS = {made.__name__: made for made in (green, failing, running, empty)}


def compared() -> tuple[dict, dict]:
    """Return two reports. In the second, laws fail, others hold again, and some z have moved."""
    results, facts = failing()
    later = []
    for n, before in enumerate(results):
        if n % 17 == 0 and before["verdict"] == PASS:
            later.append(before | {"verdict": FAIL, "reason": ODD, "worst_z": {"out": "inf"}})
        elif before["reason"].startswith("query 64"):
            later.append(before | {"verdict": PASS, "reason": ""})
        elif n != 5:
            later.append(before | {"worst_z": dict.fromkeys(before["worst_z"], 3.0)})
    first = {"environment": facts, "results": results}
    return first, {"environment": facts | {"seed": 7, "profile": ODD}, "results": later}
