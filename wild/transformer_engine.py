"""transformer-engine 2.20: DotProductAttention, which chooses among cuDNN, flash-attn and PyTorch.

Its part for PyTorch, transformer-engine-torch, is compiled at the installation. Nothing documents
rows without keys, so none are drawn.
"""

from flash_attest import Implementation, Supports
from flash_attest.wild import module_of

package = module_of("transformer_engine", "transformer_engine.pytorch")


def called(q, k, v, mask, form, window, softmax_scale, **lengths):
    """Return out with nheads and headdim apart, which DotProductAttention joins."""
    attention = package.DotProductAttention(
        q.shape[-2], (q.shape[-1], v.shape[-1]), num_gqa_groups=k.shape[-2], qkv_format=form, attn_mask_type=mask,
        softmax_scale=softmax_scale,
    )  # fmt: skip
    sides = None if window is None else tuple(-1 if side is None else side for side in window)
    out = attention(q, k, v, window_size=sides, **lengths)
    return out.unflatten(-1, (q.shape[-2], v.shape[-1]))


def dense(q, k, v, *, causal=False, window=None, softmax_scale=None):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q."""
    return called(q, k, v, "causal_bottom_right" if causal else "no_mask", "bshd", window, softmax_scale)


def varlen(q, k, v, *, cu_seqlens_k, max_seqlen_k, causal=False, window=None, softmax_scale=None, **queries):
    """(total, nheads, headdim) x 3 -> out like q."""
    mask, keys = "padding_causal_bottom_right" if causal else "padding", dict(max_seqlen_kv=max_seqlen_k)
    return called(q, k, v, mask, "thd", window, softmax_scale, cu_seqlens_kv=cu_seqlens_k, **keys, **queries)


def accepts(case):
    """Return why a case is refused; None if it is not."""
    if case.causal and case.window and case.window[1] is not None:
        return "causal is itself a window with right side 0"
    return None


def implementation(name, forward, form):
    same = dict(
        headdims={64, 128}, causal="optional", window={"left", "both"}, softmax_scale="positive", cross=True, gqa=True
    )
    return Implementation(
        name=f"transformer_engine{name}", forward=forward, backward="autograd", devices={"cuda"},
        empty_rows="undefined", repeatable={"out"}, supports=Supports(form=form, accepts=accepts, **same),
    )  # fmt: skip


IMPLS = [implementation("", dense, "dense"), implementation("_varlen", varlen, "varlen")]
