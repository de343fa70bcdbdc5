"""flash-attention-softmax-n 0.3.2: softmax with n in the denominator, in Triton and in PyTorch.

The Triton function is documented for float16, and for head dims 16, 32, 64 and 128. It checks no
lengths: with those that its tiles do not divide it reads keys past the end of k (finding #37), and
the emulator sees it write rows past the end of out. The adapter calls it with multiples of 128. The
module asks for a GPU when it is imported, also by those who want its functions in PyTorch.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

package = module_of("flash_attention_softmax_n", "flash_attention_softmax_n")


def for_each_head(function, q, k, v, sinks, **keywords):
    """Call a function for each head alone, with n = exp(sink): n is one number for a whole call."""
    if sinks is None:
        return function(q, k, v, **keywords)
    ns = sinks.double().exp().tolist()
    heads = [[x[:, h : h + 1].contiguous() for x in (q, k, v)] for h in range(q.shape[1])]
    outs = [function(*head, softmax_n_param=n, **keywords) for head, n in zip(heads, ns, strict=True)]
    return torch.cat(outs, 1)


def plain(q, k, v, *, causal=False, softmax_scale=None, sinks=None):
    """Call the Triton function with (batch, nheads, seqlen, headdim) x 3 -> out like q."""
    keywords = {"is_causal": causal, "scale": softmax_scale}
    return for_each_head(package.flash_attention_n_triton, q, k, v, sinks, **keywords)


def of_views(q, k, v):
    """Call it with views of (batch, seqlen, nheads, headdim) x 3 -> out like q."""
    return package.flash_attention_n_triton(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


def sdpa(q, k, v, *, causal=False, bias=None, softmax_scale=None, sinks=None):
    """Call the function that pads n keys and calls PyTorch's scaled_dot_product_attention."""
    mask = {} if bias is None else {"attn_mask" if bias.dtype == torch.bool else "attn_bias": bias}

    def with_whole_n(q, k, v, softmax_n_param=0):
        n = round(softmax_n_param)
        return package.flash_attention_n(q, k, v, n, is_causal=causal, scale=softmax_scale, **mask)

    return for_each_head(with_whole_n, q, k, v, sinks)


def slow(q, k, v, *, causal=False, bias=None, softmax_scale=None, sinks=None):
    """Call the function that is made of matrix products."""
    keywords = {"is_causal": causal, "scale": softmax_scale, "train": False}
    return for_each_head(package.slow_attention_n, q, k, v, sinks, attn_mask=bias, **keywords)


def no_empty_row(case):
    """Refuse calls in which a query sees no key, of which nothing is documented."""
    empty = not case.seqlen_q * case.seqlen_k or (case.causal and case.seqlen_k < case.seqlen_q)
    return "a query would see no key" if empty else None


def whole_tiles(case):
    """Refuse lengths that the kernels do not check."""
    if case.seqlen_q % 128 or case.seqlen_k % 128:
        return "lengths should be multiples of 128"
    return no_empty_row(case)


def near_scores(case):
    """Refuse scores that make out NaN, and n, which is not what it should be."""
    if case.regime in ("shifted_down", "uneven", "rising") or (case.regime == "exact" and case.scale > 0.5):
        return "scores far below 0 are finding #33"
    return "n is findings #34 and #35" if case.sinks else whole_tiles(case)


def one_batch(case):
    """Refuse several batches: their rows are written over those of the first."""
    return "views of batches are finding #36" if case.batch > 1 else near_scores(case)


def whole_n(case):
    """Refuse an n that is no whole number, and a bias with causal or n: attn_mask excludes both."""
    if case.sinks not in (None, "count"):
        return "n should be a whole number"
    return "takes a bias alone" if case.bias and (case.causal or case.sinks) else no_empty_row(case)


def unmasked(case):
    """Refuse what is wrong in the slow function: boolean masks, and low scores."""
    if case.bias or case.regime in ("shifted_down", "uneven", "rising", "large"):
        return "findings #39 and #40"
    return whole_n(case)


def of_triton(name, function=plain, *, layout="bhsd", backward=True, known_failures=(), **supports):
    """Return the record of a call of the Triton function."""
    forward, gradient = adapted(function)
    fields = {"dtypes": {torch.float16}, "headdims": {16, 32, 64, 128}, "accepts": near_scores, **supports}
    return Implementation(
        name=f"flash_attention_softmax_n{name}",
        forward=forward,
        backward=gradient if backward else None,
        layout=layout,
        supports={"cuda": Supports(**fields), "cpu": Supports(**fields | {"headdims": {64}})},
        empty_rows="undefined",
        outside="undefined",
        precision=Precision(scaled="q", scaled_in_backward="scores"),
        tile=(128, 64),
        traced=True,
        share={"cpu": 0.03},
        known_failures=known(*known_failures),
    )


def of_pytorch(name, function, *, known_failures=(), **supports):
    """Return the record of a function that is written in PyTorch."""
    fields = {"dtypes": {torch.float32}, "headdims": range(1, 129), "cross": True, "softmax_scale": True}
    fields |= {"causal": "optional", "sinks": True, "strides": "last_contiguous", **supports}
    return Implementation(
        name=f"flash_attention_softmax_n{name}",
        forward=function,
        backward="autograd",
        layout="bhsd",
        devices={"cpu"},
        supports=Supports(**fields),
        empty_rows="undefined",
        outside="undefined",
        precision=Precision(scaled="q"),
        share={"cpu": 0.2},
        known_failures=known(*known_failures),
    )


OF_BIG_TENSORS = Because("finding #135: offsets have 32 bits").fail("tensors_beyond_2_31_elements")
TILE, ONE = "seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16", "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32"
VIEWS = "finding #36: the stride of the heads is taken for the stride of the batch"

IMPLS = [
    of_triton(
        "",
        cross=True,
        softmax_scale=True,
        sinks=True,
        known_failures=[
            Because("finding #33: NaN where the largest score of a row is below -61", TILE).fail(
                "huge_scores_match_the_definition regime=shifted_down"
            ),
            Because("finding #34: n is added to a sum in another base", TILE).fail(
                "out_matches_the_definition sinks=count regime=one_sign"
            ),
            Because("finding #35: the gradient ignores n", TILE).fail(
                "gradients_match_the_definition sinks=count regime=flat"
            ),
            OF_BIG_TENSORS,
        ],
    ),
    # finding #38: the causal gradient does not compile
    of_triton("_causal", causal="optional", backward=False, known_failures=[OF_BIG_TENSORS]),
    of_triton(
        "_views",
        of_views,
        layout="bshd",
        backward=False,
        accepts=one_batch,
        known_failures=[
            Because(VIEWS, TILE).fail("batch_changes_no_bit out_matches_the_definition batch=2"),
            # Blocks race there, and what memory held differs; some laws are for a GPU alone.
            Because(VIEWS, on="cuda", every_run=False).fail("""
                first_call_decides_nothing one_tensor_may_be_q_k_and_v shifting_all_scores_changes_only_lse
                tensors_beyond_2_31_elements work_waits_on_the_current_stream
            """),
        ],
    ),
    of_pytorch("_sdpa", sdpa, bias={"matrix", "boolean_matrix"}, accepts=whole_n),
    of_pytorch(
        "_slow",
        slow,
        bias={"boolean_matrix"},
        accepts=unmasked,
        known_failures=[
            Because("finding #40: NaN where the largest score of a row is below -88", ONE).fail(
                "huge_scores_match_the_definition regime=shifted_down"
            ),
            Because("finding #39: a boolean mask is ignored").fail("""
                keys_hidden_by_bias_change_no_bit
                    seqlen_q=1 seqlen_k=2 headdim=2 dtype=float32 bias=boolean_matrix bias_mask=right
            """),
        ],
    ),
]
