"""flashinfer-python 0.7.2: prefill of packed and paged keys, and the merge of parts. Forward only.

Kernels are compiled by nvcc at the first call, for each dtype, head dim, window and softcap, and
take minutes. Two head dims in bfloat16 are judged. lse is in base 2.
"""

import functools

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.notation import page_lists
from flash_attest.wild import module_of

package = module_of("flashinfer_python", "flashinfer")


@functools.cache
def workspace(device):
    return torch.zeros(2**27, dtype=torch.uint8, device=device)


def options(q, causal, window, softmax_scale, softcap):
    """Return the keywords of plan."""
    left = -1 if window is None else window[0]
    return dict(causal=causal, window_left=left, sm_scale=softmax_scale, logits_soft_cap=softcap, q_data_type=q.dtype)


def varlen(q, k, v, *, cu_seqlens_q, cu_seqlens_k, causal, window, softmax_scale, softcap, **longest):
    """(total, nheads, headdim) x 3 -> out like q, lse (nheads, total_q)."""
    kernel = package.BatchPrefillWithRaggedKVCacheWrapper(workspace(q.device), "NHD")
    kernel.plan(cu_seqlens_q, cu_seqlens_k, q.shape[1], k.shape[1], q.shape[2], v.shape[2],
                **options(q, causal, window, softmax_scale, softcap))  # fmt: skip
    out, lse = kernel.run(q, k, v, return_lse=True)
    return out, lse.mT


def paged(q, k, v, *, cu_seqlens_q, block_table, seqused_k, causal, window, softmax_scale, softcap, **longest):
    """k, v (pages, page_size, nheads_k, headdim); q, out and lse as in varlen."""
    page_size, nheads_k, headdim = k.shape[1:]
    kernel = package.BatchPrefillWithPagedKVCacheWrapper(workspace(q.device), "NHD")
    kernel.plan(cu_seqlens_q, *page_lists(block_table, seqused_k, page_size), q.shape[1], nheads_k, headdim, page_size,
                **options(q, causal, window, softmax_scale, softcap))  # fmt: skip
    out, lse = kernel.run(q, (k, v), return_lse=True)
    return out, lse.mT


def merge(out_parts, lse_parts, *, out_dtype):
    """(n, batch, seqlen_q, nheads, headdim), (n, batch, nheads, seqlen_q) -> out, lse without n."""
    batch, seqlen_q = out_parts.shape[1:3]
    parts, lses = out_parts.flatten(1, 2).transpose(0, 1), lse_parts.mT.flatten(1, 2).transpose(0, 1)
    out, lse = package.merge_states(parts.contiguous(), lses.contiguous())
    return out.unflatten(0, (batch, seqlen_q)).to(out_dtype), lse.unflatten(0, (batch, seqlen_q)).mT


def implementation(name, forward, merge="accumulator", **features):
    return Implementation(
        name=f"flashinfer_python{name}", forward=forward, lse="log2", devices={"cuda"},
        precision=Precision(merge=merge, tanh=2**-11), compiles=True,
        supports=Supports(dtypes={torch.bfloat16}, headdims={64, 128}, cross=True, **features),
    )  # fmt: skip


SAME = dict(causal="optional", window={"left"}, softmax_scale=True, softcap=True, gqa=True)
IMPLS = [
    implementation("_varlen", varlen, form="varlen", **SAME),
    implementation("_paged", paged, form="paged", page_sizes=(1, 16), **SAME),
    implementation("_merge", merge, "lse", form="parts", splits=(1, 2, 3, 8, 64)),
]
