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

import torch

INVARIANCES = ("batch", "chunks")
GRADIENTS = ("dq", "dk", "dv", "dbias", "dsink")
OUTPUTS = ("out", "lse", *GRADIENTS)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
DEVICES = ("cuda", "cpu")
BIAS_KINDS = ("vector", "matrix", "boolean_vector", "boolean_matrix")
WINDOW_KINDS = ("left", "right", "both")  # the sides on which a window is bounded
HIDDEN_KINDS = ("blocks", "indices")  # the notations of hidden keys: the keywords block_mask and kv_indices
FORMS = ("dense", "varlen", "padded", "cache", "paged", "parts")  # of a call
LARGEST_HEADDIM = 1024
# The largest `exp` and `tanh` of Precision. With a larger error, the budget's first-order terms no
# longer describe the result.
MOST_OF_EXP = 0.01


class ContractError(ValueError):
    """An implementation breaks the contract. The message has one problem per line."""

    def __init__(self, problems: str | list[str]):
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class NotInstalled(ImportError):
    """A file with implementations raises it when it is imported, if the package that it adapts is
    not installed. It is then Absent, with the message as the reason.
    """


@dataclass(frozen=True)
class Precision:
    """The rounding of an implementation, from which oracle/budget.py derives the error budget.

    It is not about range: a sum in float16 that is infinite where the result is not is wrong.

    multiply: "operand" if the products of q k and P v are exact in the dtype of the operands.
        "tf32" if float32 operands are rounded to tf32. "tf32_cut" if they are truncated to it, as a
        matrix unit does with float32 that was not rounded: tl.dot in Triton, unless it gets
        input_precision="ieee". "tf32x3" if a product is three products of parts in tf32.
    accumulate: "float32" if sums are kept in float32, "operand" if they go from tile to tile in the
        dtype of the inputs.
    accumulate_in_backward: the same for dq, dk, dv and dbias, if it differs, as where dq is added
        up in the memory of a half dtype. None if it is `accumulate`.
    probabilities: "operand" if P and dS are cast to the dtype of the inputs before the second
        product, "float32" if not.
    scores: "float32" if S and dP are kept in float32. "operand" if they are rounded to the dtype of
        the inputs, as a matrix product of PyTorch does: q k, its product with the scale, the sum
        with the bias, and dout v.
    merge: "accumulator" if parts of the keys are merged by their running maximum and sum. "lse" if
        they are merged by weights exp(lse_part - lse) computed from float32 lse, as split-KV and
        flash-decoding kernels do.
    parts: the dtype of the partial outs of a merge="lse": "float32", or "operand" for the dtype of
        the inputs.
    scaled: what softmax_scale multiplies: the float32 "scores"; or "q" or "k", which are then
        rounded to their dtype before the product; or "both", each by the root of the scale.
    scaled_in_backward: the same for the backward, if it differs: "k" if the forward multiplies the
        scores and the backward multiplies k by the scale and rounds it. None if it is `scaled`.
    tile_sum: a number of keys, such as 64, if P v is summed in the dtype of the inputs over tiles
        of that many keys, and the tiles are added in float32. None if all of it is summed in
        float32.
    statistics: "float32" if m, l and lse are kept in float32. "operand" if they are kept in the
        dtype of the inputs from tile to tile, of 16 keys or more, and m may be rounded before or
        after P is computed from it; lse is returned as float32 in both cases.
    row_sum: "float32" if l is the sum of P before its cast. "operand" if l is the sum of P after
        its cast to the dtype of the inputs, so that lse has the roundings of P.
    quantize: "int8" or "fp8" (e4m3) if q and k are cast to it for the scores; gradients multiply q
        and k as they are.
    quantize_by: what has a scale of its own: each "tensor", each "head" of a batch, or each "block"
        of rows of a head.
    exp: the largest relative error of P = exp(...) if it exceeds the error of float32, such as
        8.8e-5 for the cubic polynomial of FlashAttention-4.
    tanh: the largest relative error of the tanh of a softcap if it exceeds the error of float32,
        such as 2**-11 for the instruction tanh.approx.
    """

    multiply: Literal["operand", "tf32", "tf32_cut", "tf32x3"] = "operand"
    accumulate: Literal["float32", "operand"] = "float32"
    accumulate_in_backward: Literal["float32", "operand"] | None = None
    probabilities: Literal["operand", "float32"] = "operand"
    scores: Literal["float32", "operand"] = "float32"
    merge: Literal["accumulator", "lse"] = "accumulator"
    parts: Literal["float32", "operand"] = "float32"
    scaled: Literal["scores", "q", "k", "both"] = "scores"
    scaled_in_backward: Literal["scores", "q", "k", "both"] | None = None
    tile_sum: int | None = None
    statistics: Literal["float32", "operand"] = "float32"
    row_sum: Literal["float32", "operand"] = "float32"
    quantize: Literal["none", "int8", "fp8"] = "none"
    quantize_by: Literal["tensor", "head", "block"] = "tensor"
    exp: float = 0.0
    tanh: float = 0.0


@dataclass(frozen=True)
class Supports:
    """The calls that an implementation must get right. The defaults support the fewest calls.

    dtypes: the dtypes of q, k, v, out and the gradients, of float32, float16 and bfloat16.
    headdims: any container of integers from 1 to 1024, such as range(1, 129), {32, 64} or
        range(8, 257, 8).
    causal: "never"; "optional" if functions take the keyword causal; "always" if they are causal
        and take no keyword.
    bias: "none", or a subset of {"vector", "matrix", "boolean_vector", "boolean_matrix"}: numbers
        that are added to the scores, or a torch.bool mask that is True where a query sees a key. A
        vector has one row for all queries.
    bias_grad: whether backward also returns dbias. A boolean mask has no gradient.
    cross: whether seqlen_q and seqlen_k may differ, 0 keys and 0 queries included.
    gqa: whether nheads_k may be less than nheads. `gqa_order` says which key head a query head
        reads.
    softmax_scale: whether functions take scales other than 1 / sqrt(headdim), 0 and negative ones
        included. "positive" if only those above 0.
    window: "none", or a subset of {"left", "right", "both"}: functions take the keyword window, a
        pair (left, right). Query i sees the keys from i' - left to i' + right, where i' is the key
        on the diagonal that `causal_alignment` declares. A side may be None, which leaves it open:
        "left" is (n, None), "right" (None, n). With causal, a key must be visible under both.
    softcap: whether functions take the keyword softcap: scores become
        softcap * tanh(scores / softcap) before the bias is added. None turns it off.
    sinks: whether functions take the keyword sinks, float32 (nheads): a score for each query head
        that takes its share of the softmax and has no value. None turns it off, -inf for one head.
    sink_grad: whether backward also returns dsink, float32 (nheads).
    lse_grad: whether a gradient of lse is taken: backward gets the keyword dlse, shaped like lse,
        or None. It is the gradient with respect to the lse that forward returned, in its base.
    headdims_v: pairs (headdim, headdim_v) that are taken although v, out, dout and dv have another
        head dim than q and k, as in {(192, 128)}.
    hidden: "none", or a subset of {"blocks", "indices"}: functions take a keyword that says which
        keys are not hidden, beside causal, window and bias. "blocks": block_mask, torch.bool
        (batch, nheads, ceil(seqlen_q / n), ceil(seqlen_k / m)) with (n, m) = `hidden_block`, True
        where the queries of a block see its keys. "indices": kv_indices, int32
        (batch, seqlen_q, nheads_k, topk): the keys of each query, in any order and each at most
        once, padded with -1 at the end. None: no key is hidden.
    hidden_block: (queries, keys) of a block of block_mask.
    shared_kv: "never"; "optional" if v may be the first headdim_v columns of k, in the same memory,
        as in the absorbed attention of MLA; "always" if it always is, so that v may be left unread.
    form: how functions are called (docs/use/implementation-reference.md#forms). "dense" as above.
        "varlen": sequences one behind the other, q (total_q, nheads, headdim), with cu_seqlens_q,
        cu_seqlens_k, max_seqlen_q and max_seqlen_k. "padded": each up to its length, seqused_q and
        seqused_k. "cache": keys in the slots of a cache, cache_batch_idx, up to cache_seqlens.
        "paged": queries as in varlen, keys in pages, block_table and seqused_k. "parts": a merge,
        which is called with the outputs and the lse of parts of the keys.
    page_sizes: a container of the numbers of keys in a page that form="paged" takes.
    append: whether forms "cache" and "paged" take k_new and v_new, keys that the call writes behind
        those in the cache before it attends to all.
    splits: a container of the numbers that the keyword num_splits takes; it is passed unless this
        is (1,). With form="parts", how many parts there may be.
    strides: True if q, k, v, dout and bias may be non-contiguous, each with its own strides.
        "last_contiguous" if the last dimension of each must have stride 1. "aligned" if, in
        addition, each must begin at a multiple of 16 bytes, and its rows too if they are multiples
        of 16 bytes long, as TMA and 16-byte loads need. With False they are made contiguous in your
        layout, at such an address. A stride or an offset of 2^31 or more may raise an error
        instead.
    accepts: a function of a case that returns None, or the reason for a refusal as text: for what
        the other fields cannot express. Any other result is an error, True and False included.
    """

    dtypes: Collection[torch.dtype] = frozenset({torch.float16, torch.bfloat16})
    headdims: Collection[int] = (64, 128)
    causal: Literal["never", "optional", "always"] = "never"
    bias: Literal["none"] | Collection[str] = "none"
    bias_grad: bool = False
    cross: bool = False
    gqa: bool = False
    softmax_scale: bool | Literal["positive"] = False
    window: Literal["none"] | Collection[str] = "none"
    softcap: bool = False
    sinks: bool = False
    sink_grad: bool = False
    lse_grad: bool = False
    headdims_v: Collection[tuple[int, int]] = ()
    hidden: Literal["none"] | Collection[str] = "none"
    hidden_block: tuple[int, int] = (128, 128)
    shared_kv: Literal["never", "optional", "always"] = "never"
    form: Literal["dense", "varlen", "padded", "cache", "paged", "parts"] = "dense"
    page_sizes: Collection[int] = ()
    append: bool = False
    splits: Collection[int] = (1,)
    strides: bool | Literal["last_contiguous", "aligned"] = False
    accepts: Callable[[Any], str | None] | None = None

    @property
    def bias_kinds(self) -> tuple[str, ...]:
        """The supported kinds of bias, in a fixed order; () for "none"."""
        return tuple(kind for kind in BIAS_KINDS if self.bias != "none" and kind in self.bias)

    @property
    def window_kinds(self) -> tuple[str, ...]:
        """The supported kinds of window, in a fixed order; () for "none"."""
        return tuple(kind for kind in WINDOW_KINDS if self.window != "none" and kind in self.window)

    @property
    def hidden_kinds(self) -> tuple[str, ...]:
        """The supported notations of hidden keys, in a fixed order; () for "none"."""
        return tuple(kind for kind in HIDDEN_KINDS if self.hidden != "none" and kind in self.hidden)

    @property
    def takes_splits(self) -> bool:
        """Whether functions take the keyword num_splits."""
        return self.form != "parts" and set(self.splits) != {1}

    @property
    def headdim_list(self) -> list[int]:
        """The supported head dims up to LARGEST_HEADDIM, in order."""
        return [d for d in range(1, LARGEST_HEADDIM + 1) if d in self.headdims]


class Keyword(NamedTuple):
    """A keyword of forward and backward: its default, and whether an implementation takes it."""

    default: Any
    declared: Callable[[Supports], bool]


KEYWORDS = {
    "causal": Keyword(False, lambda supports: supports.causal == "optional"),
    "window": Keyword(None, lambda supports: bool(supports.window_kinds)),
    "bias": Keyword(None, lambda supports: bool(supports.bias_kinds)),
    "softmax_scale": Keyword(None, lambda supports: bool(supports.softmax_scale)),
    "softcap": Keyword(None, lambda supports: supports.softcap),
    "sinks": Keyword(None, lambda supports: supports.sinks),
    "block_mask": Keyword(None, lambda supports: "blocks" in supports.hidden_kinds),
    "kv_indices": Keyword(None, lambda supports: "indices" in supports.hidden_kinds),
    "num_splits": Keyword(1, lambda supports: supports.takes_splits),
}
# Further keywords of the forms: int32 tensors, and ints (max_seqlen_q, max_seqlen_k).
FORM_KEYWORDS = {
    "dense": (),
    "varlen": ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
    "padded": ("seqused_q", "seqused_k"),
    "cache": ("cache_seqlens", "cache_batch_idx"),
    "paged": ("cu_seqlens_q", "max_seqlen_q", "block_table", "seqused_k", "max_seqlen_k"),
    "parts": ("out_dtype",),
}
APPENDED = ("k_new", "v_new")  # keywords of the forms cache and paged, if `append` is declared


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
    known_failures: laws that are known to fail, as in {"repeats_agree": "why, #123"}, or with a
        case that fails, which is judged first: {"repeats_agree": ("why, #123", "seqlen_q=65")}
        (docs/use/reading-a-failure.md#known-failures).
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
    known_failures: Mapping[str, str | tuple[str, str]] = field(default_factory=dict)
    _on: dict[str, Implementation] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        from flash_attest.impls.contract.declaration import declaration_problems  # it imports this module

        problems = declaration_problems(self)
        if problems:
            raise ContractError(problems)
        known = {f"test_{law.removeprefix('test_')}": why for law, why in self.known_failures.items()}
        object.__setattr__(self, "known_failures", known)  # as laws are named in results.json
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

    def known_failure(self, law: str) -> tuple[str, str]:
        """Return why a law is known to fail, and a case that fails; "" for what is not said."""
        known = self.known_failures.get(law, "")
        return (known, "") if isinstance(known, str) else known

    def share_on(self, device: str) -> float:
        """Return `share` on "cpu" or "cuda". It is 1 if `share` is a mapping without the device."""
        return self.share.get(device, 1.0) if isinstance(self.share, Mapping) else self.share


@dataclass(frozen=True)
class Absent:
    """An implementation whose language is not installed. Its laws are refused, with this reason."""

    name: str
    reason: str
