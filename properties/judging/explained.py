"""Failures of an implementation that have their whole message, so that later laws need not explain
the same cause again (repeats.py).

Also says which failure describes a cause best, for that and for reports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flash_attest.impls.contract.record import GRADIENTS
from flash_attest.properties.judging.verdict import FAIL

# The chapter whose law describes a mistake best comes first: "which key is missing" says more than
# "which number is off".
BEST_FIRST = (
    "test_contract", "test_causal", "test_windows", "test_bias", "test_seqlens", "test_softcap_and_sinks",
    "test_forward", "test_calling",
    "test_backward", "test_extremes", "test_memory", "test_laws", "test_races",
)  # fmt: skip
# A clue about lengths names the smallest length that fails, which differs from law to law.
SIZES = ("seqlen_q", "seqlen_k", "headdim", "dtype", "seed", "batch", "nheads", "nheads_k")
LENGTH = re.compile(r"(a length|lengths) of \d+")


@dataclass(frozen=True)
class Explained:
    """A failure whose message is whole.

    case: its smallest case, as text. beside: the case of the other failure that its message names,
    or "". reason: its headline. clue: as in Result. chapter, tensor: see `kind_of`. rank: see
    `rank_of`.
    """

    law: str
    case: str
    beside: str
    reason: str
    clue: str
    chapter: str
    tensor: str
    rank: tuple

    @classmethod
    def of_dict(cls, record: dict) -> Explained:
        """Make it of its fields, as JSON has them. Raises TypeError for other ones."""
        return cls(**record | {"rank": tuple(record["rank"])})

    @classmethod
    def of(cls, result: dict) -> Explained | None:
        """Make it of a result as results.json has it; None if the result explains no cause.

        A failure that comes and goes has no clue, nor has one that ends the process.
        """
        if result["verdict"] != FAIL or result["known"] or result["same_as"] or not result["clue"]:
            return None
        tensor = (result["wrong"] or {}).get("tensor", "")
        cases = result["smallest"], result["beside_case"]
        return cls(result["law"], *cases, result["reason"], result["clue"], result["chapter"], tensor, rank_of(result))


def kind_of(chapter: str, tensor: str, *, alone: bool) -> str:
    """Return which kind of result is wrong. A wrong mask and a wrong gradient are different
    mistakes. alone: whether the cases share nothing else; the tensor must then be the same.
    """
    if chapter in ("test_races", "test_contract"):
        return chapter
    if alone and tensor:
        return tensor.partition("*")[0]
    return "gradients" if tensor in GRADIENTS or chapter == "test_backward" else "forward"


def special_in(case: str) -> str:
    """Return the fields of a case that are neither sizes nor its dtype. A law that wants them, as
    one about causal masks does, has no clue in them.
    """
    return " ".join(field for field in case.split() if field.partition("=")[0] not in SIZES)


def rank_of(result: dict) -> tuple:
    """Return a sort key for the best description of a cause: the contract first, then failures that
    name the missing key, then those whose expected value needs no budget, in the order of the
    chapters.
    """
    chapter, wrong = result["chapter"], result["wrong"] or {}
    names_keys = bool(wrong.get("missing") or wrong.get("extra"))
    return chapter != "test_contract", not names_keys, bool(result["worst_z"]), place_of(chapter)


def place_of(chapter: str) -> int:
    """Return how well the laws of a chapter describe a cause: 0 is best."""
    return BEST_FIRST.index(chapter) if chapter in BEST_FIRST else len(BEST_FIRST)


def without_lengths(clue: str) -> str:
    """Return a clue without its number, if it is one about lengths."""
    return LENGTH.sub("lengths", clue)
