"""The definition of attention, its error budget, and the score of a kernel's result.

    want = attention(q, k, v, variant)                      float64; gradients with dout=, dlse=
    sigma = budget(q, k, v, variant, want, precision=...)   standard deviation of a correct error
    score(got.out, want.out, sigma.out, dtype)              the error in units of sigma

A result is right if z <= Z_LIMIT and rms_ratio <= RMS_LIMIT. `variant` has everything else that
defines the call: Variant(Mask(causal=True, window=(3, 0)), bias, softmax_scale, softcap, sinks).
Nothing here imports an implementation or the suite.
"""

from .attention import Attention, attention, row_maximum
from .budget import FORM_OF_REGIME, INDEPENDENT, LINEAR, Budget, budget, form_of
from .conservation import conservation
from .declared import LARGEST_EXPONENT
from .limits import RMS_LIMIT, Z_LIMIT, Z_WORST
from .masks import ALIGNMENTS, Mask
from .rounding import roundoff, smallest_subnormal
from .score import Score, pair_score, read_scores, score
from .variant import Variant

__all__ = [
    "ALIGNMENTS",
    "FORM_OF_REGIME",
    "INDEPENDENT",
    "LARGEST_EXPONENT",
    "LINEAR",
    "RMS_LIMIT",
    "Z_LIMIT",
    "Z_WORST",
    "Attention",
    "Budget",
    "Mask",
    "Score",
    "Variant",
    "attention",
    "budget",
    "conservation",
    "form_of",
    "pair_score",
    "read_scores",
    "roundoff",
    "row_maximum",
    "score",
    "smallest_subnormal",
]
