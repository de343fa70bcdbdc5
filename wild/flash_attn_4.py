"""flash-attn-4 4.0.0b36: FlashAttention-4, in CuTe DSL, for Hopper and Blackwell.

The head dims are those of Hopper; (192, 128) of Blackwell, too. On Blackwell a part of the
exponentials is a polynomial, whose error is declared. With a scale of 0 or below out is NaN on
Hopper (finding #127), so of those 0 and -0.5 alone are declared. Head dims whose dq is wrong there
(finding #138) are not declared for a backward, nor those whose pages are copied over each other
(finding #139) for pages. A sink far above all scores (finding #129) is not declared. Splits are for
Blackwell, but their merge runs anywhere. Keys cannot be appended.

On a CPU its kernels for Hopper run in the emulator (`--emulated 90`). There are compiled variants
for each dtype, mask and head dim, three seconds each, so few of them are declared there.
"""

import os

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.emulation import emulated
from flash_attest.emulator import cutedsl
from flash_attest.emulator.build_cache import cache_folder
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

if not torch.cuda.is_available():  # calls are processes of their own, and would all compile
    os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")
    os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_DIR", str(cache_folder() / "flash_attn_4"))
package = module_of("flash_attn_4", "flash_attn.cute")
EMULATED = cutedsl.is_prepared()
BLACKWELL = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 10


def its(keywords):
    """Return the keywords as this package names them."""
    window, softcap, sinks = (keywords.pop(name, None) for name in ("window", "softcap", "sinks"))
    return dict(
        keywords, window_size=window or (None, None), softcap=softcap or 0.0, learnable_sink=sinks, return_lse=True
    )


def dense(q, k, v, **keywords):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q, lse (batch, nheads, seqlen_q)."""
    return package.flash_attn_func(q, k, v, **its(keywords))


def repeatable(q, k, v, **keywords):
    return dense(q, k, v, deterministic=True, **keywords)


def packed(q, k, v, **keywords):
    """varlen, padded and paged: the same function, by its keywords."""
    return package.flash_attn_varlen_func(q, k, v, **its(keywords))


def paged(q, k, v, *, block_table, **keywords):
    """k, v (pages, page_size, nheads_k, headdim)."""
    return packed(q, k, v, page_table=block_table, **keywords)


def merge(out_parts, lse_parts, *, out_dtype):
    """(n, batch, seqlen_q, nheads, headdim), (n, batch, nheads, seqlen_q) -> out, lse without n."""
    with emulated():
        out, lse = package.interface.flash_attn_combine(out_parts, lse_parts.mT, out_dtype=out_dtype)
    return out, lse.mT


def near(case):
    """Return why a case is refused; None if it is not."""
    far = case.sinks == "high" or (case.sinks and case.regime in ("shifted_down", "large", "peaked"))
    return "a sink should not be far above all scores" if far else None


def positive(case):
    wrong = case.softmax_scale is not None and case.softmax_scale <= 0
    return near(case) or ("the scale should be positive" if wrong else None)


def few_negative(case):
    return near(case) if case.softmax_scale in (0, -0.5) else positive(case)


def hopper(trained, pages):
    """Return the head dims of Hopper. trained: without those whose dq is wrong (finding #138).
    pages: multiples of 16 without those whose pages are copied over each other (finding #139).
    """
    if pages:
        return {*range(16, 257, 16)} - {80, 96, 144, 160, 176, 208, 224, 240}
    return {d for d in range(8, 257, 8) if not trained or d > 128 or d % 32 not in (8, 16)}


# In every backward of several tiles.
RACE = Because("finding #137: rows of the next tile are written, with the value that they have").fail(
    "no_race_is_traced seqlen_q=129 seqlen_k=1 headdim=64 dtype=float16"
)


def implementation(
    name, function, repeatable=("out", "lse"), trained=False, accepts=positive, known_failures=(), traced=EMULATED,
    **features,
):  # fmt: skip
    """repeatable: dq is summed by atomics, and so are dk and dv of grouped heads."""
    forward, backward = adapted(function, sink_grad="sink_grad" in features) if EMULATED else (function, "autograd")
    masks = dict(causal="optional", window={"left", "right", "both"}, softcap=True, sinks=True)

    def supports(headdims, **more):
        return Supports(
            headdims=headdims, softmax_scale=True, cross=True, gqa=True, accepts=accepts, **masks, **features, **more
        )

    on = {
        "cuda": supports(
            {64, 128} if BLACKWELL else hopper(trained, "page_sizes" in features),
            headdims_v={(192, 128)} if trained else set(),
        )
    }
    return Implementation(
        name=f"flash_attn_4{name}", forward=forward, backward=backward if trained else None, lse="natural",
        devices={"cuda", "cpu"} if EMULATED else {"cuda"}, repeatable=repeatable,
        precision=Precision(exp=8.8e-5 if BLACKWELL else 0.0, tanh=2**-11), compiles=True,
        known_failures=known(*known_failures, RACE if trained else {}),
        supports=on | {"cpu": supports({64})} if EMULATED else on, traced=traced, share={"cpu": 0.05},
    )  # fmt: skip


TRAINED = dict(trained=True, sink_grad=True, lse_grad=True)
SIZES = "seqlen_q=64 seqlen_k=64 headdim=64 dtype=bfloat16"
SCALES = (
    Because("finding #127: a scale of 0 gives NaN", SIZES).fail("scale_zero_is_q_zero softmax_scale=0.0"),
    Because("finding #127: a negative scale gives NaN", SIZES).fail("negative_scale_is_negated_q softmax_scale=0.5"),
)
SINK = Because("finding #129: lse is inf with a sink far above all scores").fail(
    "high_sink_takes_all seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16 sinks=high"
)
# Not traced: the last tile also has rows past the end of the tensor, whose lse it reads from shared
# memory without having written it. flash_fwd_combine.py says that this is intended. It is harmless,
# because the results of these rows are never stored.
MERGE = Implementation(
    name="flash_attn_4_merge", forward=merge, lse="natural", devices={"cuda", "cpu"} if EMULATED else {"cuda"},
    precision=Precision(merge="lse"), compiles=True, share={"cpu": 0.05},
    supports=Supports(form="parts", headdims={64, 128}, splits=(1, 2, 3, 8, 64)),
)  # fmt: skip
IMPLS = [
    implementation(
        "", dense, accepts=few_negative, known_failures=[*SCALES, SINK], strides="last_contiguous", **TRAINED
    ),
    implementation("_repeatable", repeatable, ("out", "lse", "dq", "dk", "dv"), **TRAINED),
    implementation("_varlen", packed, form="varlen", **TRAINED),
    implementation("_padded", packed, form="padded", **TRAINED),
    # Pages as long as a tile of keys are loaded by TMA.
    implementation("_paged", paged, form="paged", page_sizes=(128,)),
    # Other pages are copied by cp.async. Not traced: no fence.proxy.async lies between these copies
    # and the wgmma that reads them. PTX asks for one, but CUTLASS's own main loop for cp.async and
    # wgmma (sm90_mma_multistage_gmma_ss_warpspecialized.hpp) has none either.
    implementation("_paged_copied", paged, traced=False, form="paged", page_sizes=(16, 64)),
    MERGE,
]
