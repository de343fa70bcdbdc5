"""aule-attention 0.5.0: the Triton kernels, with a causal mask that is aligned top left.

Documented are head dims up to 128. dq, and with GQA dk and dv, are summed by atomics in the dtype
of the inputs. The kernel has no path for a call without keys.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

flash = module_of("aule_attention", "aule.triton_flash")


def attention(q, k, v, *, causal=False, softmax_scale=None, window=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q. A window has one size."""
    size = -1 if window is None else window[0]
    return flash.flash_attention_triton(q, k, v, causal=causal, scale=softmax_scale, window_size=size)


def causal(q, k, v, **keywords):
    """Return what attention returns with causal."""
    return attention(q, k, v, causal=True, **keywords)


def past_the_keys(case, tile):
    """Return None, or why a case is refused: no tile of queries should start past the last key."""
    more = case.causal and (case.seqlen_q - 1) // tile > (case.seqlen_k - 1) // tile
    return "a tile of queries starts past the last key, finding #4" if more else None


def whole_windows(case):
    """Return None, or why a case is refused: a window should begin with a tile of keys, if it
    leaves one out.
    """
    tile, (left, right) = tile_of(case), case.window or (0, None)
    if case.window and (left == 0 or right is not None):
        return "window_size is one number above 0"
    if left % tile and left < (case.seqlen_q - 1) // tile * tile:
        return "a tile of keys is hidden from some rows, finding #1"
    return past_the_keys(case, tile)


def no_window(case):
    """Return None, or why a case is refused: a window should be so wide that it hides no key."""
    tile = tile_of(case)
    if case.window is not None:
        left, right = case.window
        if not left or right != (None if case.causal else left):
            return "window_size is one number above 0"
        if left < 2 * tile * (max(case.seqlen_q, case.seqlen_k) // tile + 1):
            return "the backward ignores windows, and without causal other keys are hidden, findings #2 and #3"
    return past_the_keys(case, tile)


def tile_of(case):
    """Return the rows and keys of a tile."""
    return 64 if case.headdim <= 64 else 32


def aule(name, function, known_failures, backward=True, **supports):
    """Return an Implementation of the package, with the laws that are known to fail."""
    forward, gradient = adapted(function)
    common = dict(cross=True, gqa=True, softmax_scale=True, strides=True) | supports
    return Implementation(
        name=f"aule_attention{name}",
        forward=forward,
        backward=gradient if backward else None,
        layout="bhsd",
        supports={"cpu": Supports(headdims={64}, **common), "cuda": Supports(headdims=range(16, 129), **common)},
        causal_alignment="top_left",
        empty_rows="undefined",
        repeatable={"out"},
        precision=Precision(multiply="tf32_cut"),
        tile=(64, 64),
        traced=True,
        share={"cpu": 0.02},
        known_failures=known(OFFSETS, *known_failures),
    )


OFFSETS = Because("finding #133: offsets have 32 bits").fail("tensors_beyond_2_31_elements")
ONE, FOUR = (f"{batch}seqlen_q={n} seqlen_k={n} headdim=64 dtype=float32" for batch, n in (("", 1), ("batch=2 ", 4)))
BATCHES = Because("finding #6: k and v of fewer batches are accepted", FOUR)

IMPLS = [
    aule(
        "",
        attention,
        [
            Because("finding #4: rows past the last tile of keys are NaN").fail("""
                winning_key_is_copied
                    seqlen_q=65 seqlen_k=1 headdim=64 dtype=float32 causal=True regime=selecting
            """),
            Because("finding #3: the backward ignores the window").fail("""
                gradients_match_the_definition
                    seqlen_q=3 seqlen_k=2 headdim=64 dtype=float32 causal=True window=1: regime=shifted_down
            """),
            Because("finding #2: a window ends by the middle of the query tile", ONE).fail(
                "query_sees_exactly_its_window window=1:1"
            ),
            Because("finding #5: the stride of the one head is taken for the stride of the batch", FOUR).fail(
                "any_layout_equals_the_contiguous_one layout=size_one"
            ),
            BATCHES.fail("calls_outside_the_promise_raise_or_are_right"),
        ],
        dtypes={torch.float32},
        causal="optional",
        window={"left", "both"},
        accepts=no_window,
    ),
    aule(
        "_window",
        causal,
        [
            Because("finding #1: rows that see no key of their first tile are NaN").fail("""
                query_sees_exactly_its_window
                    seqlen_q=128 seqlen_k=128 headdim=64 dtype=float32 causal=True window=16:
            """),
            BATCHES.fail("calls_outside_the_promise_raise_or_are_right causal=True"),
        ],
        backward=False,
        dtypes={torch.float32},
        causal="always",
        window={"left"},
        accepts=whole_windows,
    ),
]
