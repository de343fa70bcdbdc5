"""What attention is, how far from it rounding may take a correct kernel, and how far a given one is.

want = attention(q, k, v, variant)                        forward, and with dout backward, in float64
sigma = budget(q, k, v, variant, want, precision=...)     the standard deviation of a correct kernel's error, per element
score(got.out, want.out, sigma.out, dtype)              the error in those units; z <= Z_LIMIT and rms_ratio <= RMS_LIMIT

`variant` is everything beside q, k and v: Variant(mask=Mask(causal=True), bias=..., softmax_scale=...). Nothing here imports
an implementation or the suite.
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
