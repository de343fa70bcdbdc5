"""What attention is, how far from it rounding may take a correct kernel, and how far a given one is.

want = attention(...)                      forward and backward in float64
sigma = budget(..., want, precision=...)   the standard deviation of a correct kernel's error, per element
sigma.score("out", got.out, want.out)      the error in those units; z <= Z_LIMIT and rms_ratio <= RMS_LIMIT

Nothing here knows of any implementation.
"""

from .attention import Attention, attention
from .budget import FORM_OF_REGIME, INDEPENDENT, LINEAR, Budget, budget, form_of
from .conservation import conservation
from .masks import visible
from .noise import roundoff, smallest_subnormal
from .score import RMS_LIMIT, Z_LIMIT, Score, pair_score, score
from .tiled import tiled_attention

__all__ = [
    "FORM_OF_REGIME",
    "INDEPENDENT",
    "LINEAR",
    "RMS_LIMIT",
    "Z_LIMIT",
    "Attention",
    "Budget",
    "Score",
    "attention",
    "budget",
    "conservation",
    "form_of",
    "pair_score",
    "roundoff",
    "score",
    "smallest_subnormal",
    "tiled_attention",
    "visible",
]
