"""The plug-in contract: what an implementation of attention declares about itself.

An `Implementation` is a contract. A call inside `supports` must give right results; a call outside
it must raise a clear error.

Nothing here runs a kernel: call.py does, and properties/judging/conformance.py checks the contract
once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.supports import Supports

INVARIANCES = ("batch", "chunks")
GRADIENTS = ("dq", "dk", "dv", "dbias", "dsink")
OUTPUTS = ("out", "lse", *GRADIENTS)
DEVICES = ("cuda", "cpu")


class ContractError(ValueError):
    """An implementation breaks the contract. The message has one problem per line."""

    def __init__(self, problems: str | list[str]):
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class NotInstalled(ImportError):
    """A file with implementations raises it when it is imported, if the package that it adapts is
    not installed. It is then Absent, with the message as the reason.
    """


class KnownFailure(NamedTuple):
    """A law's failure that is known.

    why: the reason, with its issue; "" if nothing is known.
    case: one that fails, or "". It is judged first. If `accepts` refuses it, the law fails in it
        alone, and holds in all others.
    every_run: False if the failure need not show, as with a race, or with memory that others lay
        out: then a pass is no failure, either.
    """

    why: str
    case: str = ""
    every_run: bool = True


NOTHING_KNOWN = KnownFailure("")


@dataclass(frozen=True)
class Implementation:
    """One implementation of attention and its contract. See docs/use/adding-an-implementation.md.

    forward(q, k, v, *, causal, window, bias, softmax_scale, softcap, sinks, block_mask, kv_indices)
        -> out, or (out, lse)
    backward(dout, q, k, v, out, lse, *, the same, dlse) -> (dq, dk, dv[, dbias][, dsink])
    with q, dout, out (batch, seqlen_q, nheads, headdim), k, v (batch, seqlen_k, nheads_k, headdim)
    in layout "bshd". v, out and dout have headdim_v columns if `supports.headdims_v` says so.
    A keyword is passed only if `supports` declares it.

    name: a unique name of the form [a-z0-9_]+; it becomes part of test ids.
    forward: a function of (q, k, v, ...) that returns out, or (out, lse).
    backward: a function, "autograd" if forward can be differentiated, or None.
    layout: the order of dimensions of q, k, v, dout, out, dq, dk and dv: "bshd" is
        (batch, seqlen, nheads, headdim).
    devices: where it runs; on another device its verdict is unknown, with that reason.
    unavailable: the devices that are left out only because this machine lacks something, and what
        it lacks, as in {"cuda": "no nvcc found"}.
    supports: a Supports, or one for each of `devices` if they differ, as in
        {"cpu": Supports(...), "cuda": Supports(...)}.
    causal_alignment: the corner with which the mask is aligned if seqlen_q and seqlen_k differ
        (docs/why/conventions.md#causal).
    gqa_order: which key head query head h reads: "blocks" if h // (nheads // nheads_k), so that
        query heads of one key head lie side by side, as torch.repeat_interleave of k does. "modulo"
        if h % nheads_k.
    lse: the base of lse, "natural" or "log2", if forward returns (out, lse). lse is float32,
        (batch, nheads, seqlen_q) in both layouts.
    sink_in_lse: whether lse contains the sink. If not, it is the lse of the keys alone.
    slack: what rows that belong to no sequence may hold: those behind the last sequence, the ends
        of pages and free pages. "finite" if they may be multiplied by 0 and must not be NaN.
        "anything" if they are never read; then the entries of block_table behind the pages of a
        sequence are -1, else the number of a free page. "unseen" if keys are not read either that
        lie before the window of every query, as a server frees their pages.
    slack_rows: what out and gradients hold in rows of no sequence: "zero", or "undefined".
    invariant: which outputs keep their bits: "batch" if a sequence gives the same ones alone and
        among any others, "chunks" if a query does in the whole, in any chunk, and alone.
    empty_rows: "zero" if a row that sees no key has out 0 and lse -inf, or its sink. With
        "undefined" no such case is drawn: where the mask of a bias could leave a row empty, it
        keeps a key in each row.
    outside: "error" if a call outside of `supports` raises an error or gives the right answer.
        "undefined" if it may do anything; then test_calls_outside_the_promise_raise_or_are_right is
        refused.
    repeatable: the outputs that have the same bits on every run. Leave out what atomics sum.
    equal_heads: the outputs that have the same bits for all batches and heads with the same inputs
        in one call. Leave out an output if its bits depend on where a head is computed: for example
        with stream-K, uneven key splits, or wider loads for aligned rows. None if there is no such
        guarantee: then equal heads agree within the budget, and those of `repeatable` outputs
        differ in the same way in each call.
    precision: how it rounds; the error budget follows from it.
    tile: (BLOCK_M, BLOCK_N). Messages name tiles by it ("query tile 1, partial"). Laws about keys
        that a bias hides draw lengths up to 2 BLOCK_N + 2, so that a whole tile can be hidden.
        Half of the lengths that are drawn near a tile are near this one; two tiles and a bit are
        drawn now and then if other lengths are shorter.
    paths: the lengths from which another path is taken, as in {"seqlen_k": (256, 16384)} if
        decoding begins at 256 keys and splitting at 16384. Cases with t - 1, t and t + 1 are drawn
        for each t; the other length is short if t is large. {} if there are none, or if unknown.
    traced: whether its kernels run in the emulator on a CPU, where test_races checks every access.
    compiles: whether each dtype, padded head dim and set of features has a kernel that is compiled
        at its first call, as in Triton. A run of up to 30 cases for each law then combines a set of
        features with six of these dtypes and head dims, which the seed of the run chooses.
    share: the part of a profile's cases and repeats, and of the size of a case, that is judged:
        less than 1, and at least 0.01, for kernels that are emulated, which are a thousand times
        slower. {"cpu": 0.2} is for that device alone.
    known_failures: laws that are known to fail, as in {"repeats_agree": "why, #123"}. A
        KnownFailure in place of the text also has a case that fails, or need not show:
        `KnownFailure("why, #123", "seqlen_q=65")`. `{"repeats_agree": {"cuda": "why, #123"}}` is
        for that device alone (docs/use/reading-a-failure.md#known-failures).
    """

    name: str
    forward: Callable[..., Any]
    backward: Callable[..., Any] | Literal["autograd"] | None = None
    layout: Literal["bshd", "bhsd"] = "bshd"
    devices: Collection[str] = frozenset({"cuda", "cpu"})
    unavailable: Mapping[str, str] = field(default_factory=dict)
    supports: Supports | Mapping[str, Supports] = field(default_factory=Supports)
    causal_alignment: Literal["bottom_right", "top_left"] = "bottom_right"
    gqa_order: Literal["blocks", "modulo"] = "blocks"
    lse: Literal["natural", "log2"] | None = None
    sink_in_lse: bool = True
    slack: Literal["finite", "anything", "unseen"] = "finite"
    slack_rows: Literal["undefined", "zero"] = "undefined"
    invariant: Collection[str] = ()
    empty_rows: Literal["zero", "undefined"] = "zero"
    outside: Literal["error", "undefined"] = "error"
    repeatable: Collection[str] = frozenset(OUTPUTS)
    equal_heads: Collection[str] | None = None
    precision: Precision = field(default_factory=Precision)
    tile: tuple[int, int] | None = None
    paths: Mapping[str, Collection[int]] = field(default_factory=dict)
    traced: bool = False
    compiles: bool = False
    share: float | Mapping[str, float] = 1.0
    known_failures: Mapping[str, str | KnownFailure | Mapping[str, str | KnownFailure]] = field(default_factory=dict)
    _on: dict[str, Implementation] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        from flash_attest.impls.contract.declaration import declaration_problems  # it imports this module

        problems = declaration_problems(self)
        if problems:
            raise ContractError(problems)
        object.__setattr__(self, "known_failures", _by_law_and_device(self.known_failures))
        if isinstance(self.supports, Mapping):
            for device, supports in self.supports.items():
                self._on[device] = replace(self, supports=supports)
            for one in self._on.values():  # link the records, as a run on a GPU judges some laws on the CPU
                one._on.update(self._on)

    def on(self, device: str) -> Implementation:
        """Return the Implementation for "cpu" or "cuda", the same object in each call.

        This is self if `supports` is not a mapping.
        """
        return self._on.get(device, self)

    @property
    def gives_dbias(self) -> bool:
        """True if backward also returns dbias."""
        return bool(self.backward) and self.supports.bias_grad

    @property
    def gives_dsink(self) -> bool:
        """True if backward also returns dsink."""
        return bool(self.backward) and self.supports.sink_grad

    def known_failure(self, law: str, device: str) -> KnownFailure:
        """Return what is known of a law's failure on "cpu" or "cuda"."""
        return self.known_failures.get(law, {}).get(device, NOTHING_KNOWN)

    def share_on(self, device: str) -> float:
        """Return `share` on "cpu" or "cuda". It is 1 if `share` is a mapping without the device."""
        return self.share.get(device, 1.0) if isinstance(self.share, Mapping) else self.share


def _by_law_and_device(known_failures: Mapping[str, Any]) -> dict[str, dict[str, KnownFailure]]:
    """Return known failures in their one form, whatever the file has written: by law, as laws are
    named in results.json, and by device.
    """
    return {
        f"test_{law.removeprefix('test_')}": {
            device: KnownFailure(one) if isinstance(one, str) else one
            for device, one in (given if isinstance(given, Mapping) else dict.fromkeys(DEVICES, given)).items()
        }
        for law, given in known_failures.items()
    }


@dataclass(frozen=True)
class Absent:
    """An implementation whose language is not installed. Its laws are refused, with this reason."""

    name: str
    reason: str
