"""From a tile of Q K^T to scores: scale, bias and mask; and in the backward to probabilities, from lse."""

from numba.cuda import libdevice

from .elements import to_float
from .tiles import GROUPS, INF, LANES, ZERO, column, device_function, row


@device_function
def keys_of(p, i):
    """How many keys query i sees: keys 0 .. keys_of - 1. 0 to seqlen_k, for any i."""
    return max(0, min(p.seqlen_k, i + p.diagonal + 1))


@device_function
def first_query_of(p, j):
    """The first query that sees key j; seqlen_q or more if none does."""
    return max(0, j - p.diagonal)


@device_function
def finish_scores(S, p, bias, softmax_scale, first_query, first_key):
    """S (TM, TN), Q K^T with queries as rows -> softmax_scale S + bias; -inf where query i does not see key j.

    bias: a global matrix (seqlen_q, stride). The scale may be negative, so it is applied before any maximum. The first query
    of a tile sees the fewest keys. A query beyond the last needs no mask, because its row is not stored.
    """
    for r in range(S.shape[0]):
        for c in range(S.shape[1]):
            S[r, c] *= softmax_scale
    if p.has_bias or first_key + LANES * S.shape[1] > keys_of(p, first_query):
        for r in range(S.shape[0]):
            for c in range(S.shape[1]):
                S[r, c] = masked(S[r, c], p, bias, first_query + row(r), first_key + column(c))


@device_function
def finish_scores_of_keys(S, p, bias, softmax_scale, first_query, first_key):
    """The same with keys as rows and queries as columns. A query beyond the last is masked too: it enters a sum, where its
    0 times an infinite key would be NaN."""
    for r in range(S.shape[0]):
        for c in range(S.shape[1]):
            S[r, c] *= softmax_scale
    whole = first_query + LANES * S.shape[1] <= p.seqlen_q
    if p.has_bias or not whole or first_key + GROUPS * S.shape[0] > keys_of(p, first_query):
        for r in range(S.shape[0]):
            for c in range(S.shape[1]):
                S[r, c] = masked(S[r, c], p, bias, first_query + column(c), first_key + row(r))


@device_function
def masked(s, p, bias, i, j):
    """A scaled score of query i and key j -> s + bias[i, j], or -inf if there is no such pair or i does not see j."""
    if i >= p.seqlen_q or j >= keys_of(p, i):
        return -INF
    return s + to_float(bias[i, j]) if p.has_bias else s


@device_function
def finite(maximum):
    """The value to subtract before exp: 0 for a maximum of -inf, because -inf - -inf is NaN; otherwise the maximum."""
    return ZERO if maximum == -INF else maximum


@device_function
def lse_at(lse, i, seqlen_q):
    """lse[i]; +inf, so that P = exp(S - lse) is 0, for a query that sees no key (lse = -inf) or is beyond the last."""
    x = lse[i] if i < seqlen_q else INF
    return INF if x == -INF else x


@device_function
def delta_at(delta, i, seqlen_q):
    """delta[i], or 0 for a query beyond the last."""
    return delta[i] if i < seqlen_q else ZERO


@device_function
def probability(s, lse):
    """P = exp(S - lse). At most 1, even if scores are so large that the rounding error of lse matters; NaN stays NaN."""
    x = s - lse
    return libdevice.fast_expf(ZERO if x > ZERO else x)
