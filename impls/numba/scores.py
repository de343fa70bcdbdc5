"""Scores from a tile of Q K^T: scale, cap, bias, mask. Probabilities from lse, for the backward."""

from numba.cuda import libdevice

from .elements import to_float
from .tiles import GROUPS, INF, LANES, ONE, ZERO, column, device_function, row


@device_function
def first_key_of(p, i):
    """Return the first key that query i sees; seqlen_k or more if it sees no key."""
    return max(0, i + p.first_diagonal)


@device_function
def keys_of(p, i):
    """Return the end of the keys that query i sees: first_key_of .. n - 1 for the result n."""
    return max(0, min(p.seqlen_k, i + p.last_diagonal + 1))


@device_function
def first_query_of(p, j):
    """Return the first query that sees key j; seqlen_q or more if no query sees it."""
    return max(0, j - p.last_diagonal)


@device_function
def queries_of_tile(p, j0, n):
    """Return the end of the queries that see one of the keys j0 .. j0 + n - 1."""
    return max(0, min(p.seqlen_q, min(p.seqlen_k, j0 + n) - p.first_diagonal))


@device_function
def finish_scores(S, p, bias, softmax_scale, softcap, capped, first_query, first_key):
    """Turn S = Q K^T into softmax_scale S, capped, + bias; -inf where query i does not see key j.

    S (TM, TN) has queries as rows. bias: a global matrix (seqlen_q, stride). The scale may be
    negative, so it is applied before any maximum. The first query of a tile has the first last key,
    and the last query the last first key. A query beyond the last needs no mask, because its row is
    not stored.
    """
    for r in range(S.shape[0]):
        for c in range(S.shape[1]):
            S[r, c] *= softmax_scale
    if capped:
        for r in range(S.shape[0]):
            for c in range(S.shape[1]):
                S[r, c] = softcap * libdevice.tanhf(S[r, c] / softcap)
    whole = first_key >= first_key_of(p, first_query + GROUPS * S.shape[0] - 1)
    if p.has_bias or not whole or first_key + LANES * S.shape[1] > keys_of(p, first_query):
        for r in range(S.shape[0]):
            for c in range(S.shape[1]):
                S[r, c] = masked(S[r, c], p, bias, first_query + row(r), first_key + column(c))


@device_function
def finish_scores_of_keys(S, p, bias, softmax_scale, softcap, capped, slopes, first_query, first_key):
    """Do the same as finish_scores, with keys as rows and queries as columns.

    If capped, `slopes` (queries, keys) in shared memory becomes 1 - tanh^2, by which the gradient
    of S is multiplied; each thread writes and reads those of its own scores. A query beyond the
    last is masked, too: it enters a sum, where 0 times an infinite key is NaN.
    """
    for r in range(S.shape[0]):
        for c in range(S.shape[1]):
            S[r, c] *= softmax_scale
    if capped:
        for r in range(S.shape[0]):
            for c in range(S.shape[1]):
                t = libdevice.tanhf(S[r, c] / softcap)
                S[r, c] = softcap * t
                slopes[column(c), row(r)] = ONE - t * t
    whole = first_query + LANES * S.shape[1] <= p.seqlen_q
    whole = whole and first_key >= first_key_of(p, first_query + LANES * S.shape[1] - 1)
    if p.has_bias or not whole or first_key + GROUPS * S.shape[0] > keys_of(p, first_query):
        for r in range(S.shape[0]):
            for c in range(S.shape[1]):
                S[r, c] = masked(S[r, c], p, bias, first_query + column(c), first_key + row(r))


@device_function
def masked(s, p, bias, i, j):
    """Return s + bias[i, j] for a scaled score s, or -inf.

    It is -inf if the pair does not exist or query i does not see key j.
    """
    if i >= p.seqlen_q or j < first_key_of(p, i) or j >= keys_of(p, i):
        return -INF
    return s + to_float(bias[i, j]) if p.has_bias else s


@device_function
def finite(maximum):
    """Return the maximum, to subtract before exp; 0 instead of -inf, as -inf - -inf is NaN."""
    return ZERO if maximum == -INF else maximum


@device_function
def lse_at(lse, i, seqlen_q):
    """Return lse[i]; +inf for a query that sees no key (lse = -inf) or is beyond the last.

    P = exp(S - lse) is then 0.
    """
    x = lse[i] if i < seqlen_q else INF
    return INF if x == -INF else x


@device_function
def delta_at(delta, i, seqlen_q):
    """Return delta[i], or 0 for a query beyond the last."""
    return delta[i] if i < seqlen_q else ZERO


@device_function
def probability(s, lse):
    """Return P = exp(S - lse), at most 1 even if lse is so large that its rounding matters.

    NaN stays NaN.
    """
    x = s - lse
    return libdevice.fast_expf(ZERO if x > ZERO else x)
