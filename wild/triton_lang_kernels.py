"""flash_attention.py of triton-lang/kernels: the tutorial's kernel, with sequence parallelism.

Head dims are asserted. Lengths are not: a length that 128 does not divide is read and written
outside of its tensors (finding #120), so only its multiples are declared here.
"""

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import file_of
from flash_attest.wild.known import Because, known

package = file_of("triton_lang_kernels")


def attention(q, k, v, *, causal=False, softmax_scale=None, sequence_parallel=False):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    return package.attention(q, k, v, causal, scale, sequence_parallel)


def parallel(q, k, v, **keywords):
    return attention(q, k, v, sequence_parallel=True, **keywords)


def accepts(case):
    """Return why a case is refused; None if it is not."""
    if case.seqlen_q % 128 or not case.seqlen_q:
        return "the length should be a multiple of 128"
    if case.causal and case.softmax_scale is not None and case.softmax_scale <= 0:
        return "causal takes positive scales (finding #119)"
    return None


KNOWN = known(
    Because("finding #120: shapes are not checked").fail(
        "calls_outside_the_promise_raise_or_are_right seqlen_q=128 seqlen_k=128 headdim=32 dtype=float16"
    ),
    Because("finding #131: offsets have 32 bits").fail("tensors_beyond_2_31_elements"),
)


def implementation(name, function):
    same = dict(causal="optional", softmax_scale=True, accepts=accepts)
    forward, backward = adapted(function)
    return Implementation(
        name=f"triton_lang_kernels{name}", forward=forward, backward=backward, layout="bhsd",
        supports={"cpu": Supports(headdims={32}, **same), "cuda": Supports(headdims={16, 32, 64, 128}, **same)},
        precision=Precision(scaled="q", scaled_in_backward="scores"),
        tile=(128, 64), traced=True, share={"cpu": 0.05}, known_failures=KNOWN,
    )  # fmt: skip


IMPLS = [implementation("", attention), implementation("_parallel", parallel)]
