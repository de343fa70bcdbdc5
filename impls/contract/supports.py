"""The calls that an implementation declares to get right, and the keywords that it then takes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BIAS_KINDS = ("vector", "matrix", "boolean_vector", "boolean_matrix")
WINDOW_KINDS = ("left", "right", "both")  # the sides on which a window is bounded
HIDDEN_KINDS = ("blocks", "indices")  # the notations of hidden keys: the keywords block_mask and kv_indices
FORMS = ("dense", "varlen", "padded", "cache", "paged", "parts")  # of a call
LARGEST_HEADDIM = 1024


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
