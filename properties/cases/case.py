"""A case: the specification of one call of attention, written as one line."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch

from flash_attest.oracle.masks import is_window

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
REGIMES = (
    "spread", "peaked", "flat", "shifted_down", "shifted_up", "large", "exact", "selecting", "mean", "uneven",
    "one_sign", "rising",
)  # fmt: skip
LAYOUTS = (
    "contiguous", "transposed", "packed", "gapped", "sliced", "last_strided", "offset", "odd_rows", "size_one", "mixed",
)  # fmt: skip
ADDED, BOOLEAN = ("vector", "matrix"), ("boolean_vector", "boolean_matrix")
BIASES = (None, *ADDED, *BOOLEAN)
BIAS_MASKS = ("none", "right", "left", "window", "first_and_window", "dead_row", "finite", "alibi")
OF_NUMBERS = ("finite", "alibi")  # masks that a boolean bias cannot have
WINDOW_FORM = "should be left:right, such as 3:0, and an open side is left out, as in 3:"
SINKS = (None, "count", "spread", "some_off", "high")
BLOCKED, LISTED = ("documents", "blocks", "dead_rows"), ("documents", "tree", "topk", "dead_rows")
HIDDEN = (None, *dict.fromkeys((*BLOCKED[:2], *LISTED)))
NEIGHBOURS = ("none", "empty", "one", "longer", "mixed")
PAGE_ORDERS = ("in_order", "shuffled")

Window = tuple[int | None, int | None]  # how many keys a query sees to the left and the right; None is an open side


class CaseError(ValueError):
    """An impossible case. The message names the field and the value."""


@dataclass(frozen=True)
class Case:
    """The specification of one call of attention. docs/use/reading-a-failure.md lists the fields.

    bias is None, "vector" (1 row for all queries) or "matrix", or the same as a boolean mask.
    bias_batch and bias_nheads are 1 if the bias is broadcast. bias_mask says which entries are -inf
    or False ("finite": a number far below 0 instead), or that the bias is an ALiBi bias. With
    bias_keeps_key the mask never hides the last key that a query sees by position. sinks says how
    large the sinks are (inputs.py). headdim_v is headdim unless it is given. dlse: whether the loss
    depends on lse, too. hidden is the drawing of hidden keys (hidden_keys.py), in blocks of
    hidden_block = (queries, keys), or without one as lists of keys. shared_kv: whether v is the
    first columns of k, in the same memory.

    The fields from neighbours to append have a meaning in calls of another form than the dense one
    (properties/forms). page_size is the smallest declared one unless it is given.
    """

    batch: int = 1
    seqlen_q: int = 1
    seqlen_k: int = 1
    nheads: int = 1
    nheads_k: int = 1
    headdim: int = 64
    dtype: torch.dtype = torch.float32
    causal: bool = False
    bias: str | None = None
    bias_batch: int = 1
    bias_nheads: int = 1
    bias_dtype: torch.dtype = torch.float32
    bias_mask: str = "none"
    bias_keeps_key: bool = False
    softmax_scale: float | None = None
    window: Window | None = None
    softcap: float | None = None
    sinks: str | None = None
    headdim_v: int | None = None
    dlse: bool = False
    hidden: str | None = None
    hidden_block: tuple[int, int] | None = None
    shared_kv: bool = False
    regime: str = "spread"
    layout: str = "contiguous"
    num_splits: int = 1
    neighbours: str = "none"
    slack: int = 0
    page_size: int | None = None
    page_order: str = "in_order"
    append: int = 0
    seed: int = 0

    def __post_init__(self):
        if self.headdim_v is None:
            object.__setattr__(self, "headdim_v", self.headdim)
        given = self.__dict__
        problems = [f"{name}={given[name]}: should be at least {least}" for name, least in _LEAST.items()
                    if given[name] < least]  # fmt: skip
        if self.page_size is not None and self.page_size < 1:
            problems.append(f"page_size={self.page_size}: should be at least 1, or None")
        for name, allowed in _ALLOWED.items():
            if given[name] not in allowed:
                problems.append(f"{name}={text_of(given[name])}: should be one of {_listed(allowed)}")
        if not problems and self.nheads % self.nheads_k:
            problems.append(f"nheads_k={self.nheads_k}: should divide nheads={self.nheads}")
        if self.bias_batch not in (1, self.batch):
            problems.append(f"bias_batch={self.bias_batch}: should be 1 or batch={self.batch}")
        if self.bias_nheads not in (1, self.nheads):
            problems.append(f"bias_nheads={self.bias_nheads}: should be 1 or nheads={self.nheads}")
        if self.bias in BOOLEAN and self.bias_mask in OF_NUMBERS:
            problems.append(f"bias_mask={self.bias_mask}: should be another one if bias={self.bias}")
        if self.softmax_scale is not None and not math.isfinite(self.softmax_scale):
            problems.append(f"softmax_scale={self.softmax_scale}: should be finite")
        if self.softcap is not None and not (math.isfinite(self.softcap) and self.softcap > 0):
            problems.append(f"softcap={self.softcap}: should be a positive number, or None")
        if self.window is not None and (not is_window(self.window) or self.window == (None, None)):
            problems.append(f"window={text_of(self.window)}: {WINDOW_FORM}")
        if self.hidden_block is not None and not (_is_block(self.hidden_block) and self.hidden in BLOCKED):
            should = f"queries:keys, such as 64:128, with hidden={' or '.join(BLOCKED)}"
            problems.append(f"hidden_block={text_of(self.hidden_block)}: should be {should}")
        if self.hidden not in (None, *LISTED) and self.hidden_block is None:
            problems.append(f"hidden={self.hidden}: needs a hidden_block, such as 64:128")
        if self.shared_kv and self.headdim_v > self.headdim:
            problems.append(f"shared_kv=True: headdim_v={self.headdim_v} should be at most headdim={self.headdim}")
        if problems:
            raise CaseError("; ".join(problems))

    @property
    def scale(self) -> float:
        """softmax_scale, or its default, 1 / sqrt(headdim)."""
        return 1.0 / math.sqrt(self.headdim) if self.softmax_scale is None else self.softmax_scale

    @property
    def products(self) -> int:
        """The number of (query, key) products."""
        return self.batch * self.nheads * self.seqlen_q * self.seqlen_k * self.headdim

    @property
    def bias_has_rows(self) -> bool:
        """Whether the bias has a row for each query."""
        return self.bias in ("matrix", "boolean_matrix")

    @property
    def bias_shape(self) -> tuple[int, int, int, int]:
        """The shape of the bias: (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k)."""
        return (self.bias_batch, self.bias_nheads, self.seqlen_q if self.bias_has_rows else 1, self.seqlen_k)

    def but(self, **changed: Any) -> Case:
        """Return the case with some fields changed.

        Fields that depend on the changed ones are adapted: nheads_k, the broadcasting of the bias,
        bias_dtype, the mask of a boolean bias, and the block of hidden keys.
        """
        if not changed:
            return self
        if "nheads" in changed and "nheads_k" not in changed and changed["nheads"] % self.nheads_k:
            changed["nheads_k"] = changed["nheads"]
        for size, of in (("bias_batch", "batch"), ("bias_nheads", "nheads")):
            if of in changed and size not in changed and getattr(self, size) != 1:
                changed[size] = changed[of]
        if "headdim" in changed and "headdim_v" not in changed and self.headdim_v == self.headdim:
            changed["headdim_v"] = changed["headdim"]
        dtype = changed.get("dtype", self.dtype)
        if dtype != self.dtype and self.bias_dtype != torch.float32:  # a bias is either float32 or of q's dtype
            changed.setdefault("bias_dtype", dtype)
        if changed.get("bias") in BOOLEAN:
            changed.setdefault("bias_dtype", torch.float32)
            changed.setdefault("bias_mask", "none" if self.bias_mask in OF_NUMBERS else self.bias_mask)
        if changed.get("hidden", self.hidden) not in BLOCKED:
            changed["hidden_block"] = None
        if unknown := changed.keys() - self.__dict__.keys():
            raise TypeError(f"a case has no {', '.join(sorted(unknown))}")
        case = object.__new__(type(self))  # dataclasses.replace takes several times as long
        case.__dict__.update(self.__dict__, **changed)
        case.__post_init__()
        return case

    def __str__(self) -> str:
        always = ("seqlen_q", "seqlen_k", "headdim", "dtype")
        default = {f.name: f.default for f in fields(self)}
        default |= {"nheads_k": self.nheads, "headdim_v": self.headdim}  # parse_case does the same
        shown = [f for f in fields(self) if f.name in always or getattr(self, f.name) != default[f.name]]
        shown.sort(key=lambda f: always.index(f.name) if f.name in always else len(always))
        return " ".join(f"{f.name}={text_of(getattr(self, f.name))}" for f in shown)

    __repr__ = __str__

    def changed_in(self, other: Case) -> str:
        """Return the fields that another case changes, as text: "seqlen_q=1 dtype=float16"."""
        changed = {f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)}
        for follower, leader in (("nheads_k", "nheads"), ("headdim_v", "headdim")):  # as in __str__
            if leader in changed and getattr(other, follower) == getattr(other, leader):
                changed.discard(follower)
        return " ".join(f"{f.name}={text_of(getattr(other, f.name))}" for f in fields(self) if f.name in changed)


def _is_block(block: Any) -> bool:
    """Return whether this is a pair of numbers, each at least 1."""
    return isinstance(block, tuple) and len(block) == 2 and all(isinstance(n, int) and n >= 1 for n in block)


_LEAST = dict(batch=1, seqlen_q=0, seqlen_k=0, nheads=1, nheads_k=1, headdim=1, headdim_v=1, num_splits=1, slack=0,
              append=0, seed=0)  # fmt: skip
_ALLOWED = dict(
    dtype=tuple(DTYPES.values()),
    bias_dtype=tuple(DTYPES.values()),
    bias=BIASES,
    bias_mask=BIAS_MASKS,
    sinks=SINKS,
    hidden=HIDDEN,
    regime=REGIMES,
    layout=LAYOUTS,
    neighbours=NEIGHBOURS,
    page_order=PAGE_ORDERS,
)


def parse_case(text: str) -> Case:
    """Parse a case such as "seqlen_q=65 headdim=64 dtype=float16".

    Missing fields have their defaults, but seqlen_k follows seqlen_q, nheads_k follows nheads, and
    headdim_v follows headdim.
    Raises CaseError with the wrong word and the known fields.
    """
    known = {f.name: f for f in fields(Case)}
    values: dict[str, Any] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or name not in known:
            what = f"there is no field {name!r}" if equals else f"{word!r} is not of the form field=value"
            raise CaseError(f"--case: {what}; the fields are {', '.join(known)}")
        if "," in value:
            raise CaseError(f"--case: {word}: fields are separated by spaces, not by commas")
        if name in values:
            raise CaseError(f"--case: {name} is given twice")
        values[name] = _read(name, value)
    for follower, leader in (("seqlen_k", "seqlen_q"), ("seqlen_q", "seqlen_k"), ("nheads_k", "nheads")):
        if follower not in values and leader in values:
            values[follower] = values[leader]
    try:
        return Case(**values)
    except CaseError as error:
        raise CaseError(f"--case: {error}") from None


def _read(name: str, value: str) -> Any:
    default = getattr(Case, name)
    if value == "None" and default is None:
        return None
    if name == "window":
        return _read_window(value)
    if name == "hidden_block":
        queries, _, keys = value.partition(":")
        if not (queries.isdecimal() and keys.isdecimal()):
            raise CaseError(f"--case: hidden_block={value}: should be queries:keys, such as 64:128")
        return int(queries), int(keys)
    kind = Case.__dataclass_fields__[name].type.removesuffix(" | None")  # "int", "float", ...: annotations are text
    if kind == "torch.dtype":
        if value.removeprefix("torch.") not in DTYPES:
            raise CaseError(f"--case: {name}={value}: should be one of {', '.join(DTYPES)}")
        return DTYPES[value.removeprefix("torch.")]
    try:
        if kind == "bool":
            return {"true": True, "false": False, "1": True, "0": False}[value.lower()]
        return {"int": int, "float": float, "str": str}[kind](value)
    except (ValueError, KeyError):
        like = "be a number or None" if default is None else f"look like {name}={text_of(default)}"
        raise CaseError(f"--case: {name}={value}: should {like}") from None


def _read_window(value: str) -> Window:
    left, colon, right = value.partition(":")
    if not colon or not all(side.isdecimal() for side in (left, right) if side):
        raise CaseError(f"--case: window={value}: {WINDOW_FORM}")
    return tuple(int(side) if side else None for side in (left, right))


def text_of(value: Any) -> str:
    """Return a value of a case as text: torch.float16 becomes "float16", (3, None) becomes "3:"."""
    if isinstance(value, tuple):
        return ":".join("" if side is None else str(side) for side in value)
    return str(value).removeprefix("torch.")


def _listed(values: tuple) -> str:
    return ", ".join(text_of(value) for value in values)
