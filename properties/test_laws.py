"""Laws between calls (linearity, permutations, shifts, merging), and conservation laws.

The conservation laws need no oracle, so they are checked at lengths for which no oracle fits in
memory.
"""

import torch

from flash_attest import oracle
from flash_attest.properties.cases.case import ADDED
from flash_attest.properties.cases.limits import LONG
from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import (
    NEGLIGIBLE,
    check_agree,
    check_near,
    check_same,
    combined,
    storing,
)
from flash_attest.properties.law import law
from flash_attest.properties.machine.clock import Work
from flash_attest.properties.trial import Trial


# The regime exact is left out. There, P times a small integer is halfway between two numbers one
# time in four. Its rounding then depends on a partial sum as small as 2^-149, which may be flushed
# to 0.
@law(shared_kv=False, needs=("own v",), bug="softmax-and-lse", regime=("spread", "peaked", "flat", "mean"))
def test_out_scales_with_v(trial):
    """v times 2^-40, 2^20 or 2^60 (float16: 2^4) gives out times the same factor, bit for bit.

    out is linear in v, and powers of two are exact. Elements that may be subnormal numbers, or sums
    of them, are left out, because subnormal numbers round in other steps. out is compared within
    the budget if it is not declared repeatable, or if sums are declared to be kept in float16,
    where partial sums may be subnormal. v is below 500 in every regime, so only this law notices a
    v that is clamped or goes through float16.
    """
    x, dtype = trial.x, trial.case.dtype
    factor = 2.0**4 if dtype == torch.float16 else (2.0**20, 2.0**-40, 2.0**60)[trial.case.seed % 3]
    trial.needs(bits.sums_stay_finite(trial, factor * x.v))
    plain, scaled = trial.run().out.double(), trial.run(x.with_(v=factor * x.v)).out.double()
    rounded = plain.abs() < max(2 * torch.finfo(dtype).tiny, NEGLIGIBLE) / min(1.0, factor)
    scaled = torch.where(rounded, factor * plain, scaled)
    if "out" in trial.impl.repeatable and bits.keeps_when_scaled(trial):
        check_same(trial, "out", scaled, factor * plain, f"with v times {factor:g} it should be")
    else:
        right, sigma = trial.expected()
        what = f"with v times {factor:g}, divided by that, it should be"
        check_agree(trial, "out", scaled / factor, plain, sigma.out, what, right=right.out)


@law(shared_kv=False, needs=("own v",), bug="softmax-and-lse", regime=("exact",))
def test_out_is_additive_in_v(trial):
    """out(v + w) = out(v) + out(w), as the weights P do not depend on v.

    v and w are small integers. The bound combines the budgets of the three results.
    """
    x = trial.x
    w = trial.random("w").integers(x.v.shape, -3, 3).to(x.v.dtype)
    sigmas, parts = [], []
    for v in (x.v, w, x.v + w):
        x_v = x.with_(v=v)
        parts.append(trial.run(x_v).out.double())
        right, sigma = trial.expected(x_v)
        sigmas.append(sigma.out)
    stored = [storing(trial, part) for part in parts[:2]]  # check_near itself allows for storing the third
    whole, sigma = parts[2].to(trial.case.dtype), combined(trial, *sigmas, *stored)
    check_near(trial, "out", whole, parts[0] + parts[1], sigma, right.out)


@law(causal=False, window=False, hidden=False, needs=("not causal",), bug="softmax-and-lse")
def test_order_of_keys_does_not_matter(trial):
    """Permuting the keys (k, v and the columns of the bias) permutes dk, dv and dbias, and no more.

    Attention sums over keys, so their order does not matter.
    """
    x, order = trial.x, trial.random("order").order(trial.case.seqlen_k)
    bias = None if x.bias is None else x.bias[..., order].contiguous()
    shuffled = trial.tied(x.with_(k=x.k[:, order].contiguous(), v=x.v[:, order].contiguous(), bias=bias))
    back = {"dk": (1, order), "dv": (1, order), "dbias": (3, order)}
    _agrees_after(trial, shuffled, back, "with its keys in another order it is")


@law(bug="boundaries")
def test_order_of_batches_and_heads_does_not_matter(trial):
    """Permuting batches and heads permutes the results, as batches and heads are independent.

    Results agree within the budget of both. A kernel that uses another head's offset, mask or
    statistics is off by far more.
    """
    x, case, random = trial.x, trial.case, trial.random("order")
    batches, groups = random.order(case.batch), random.order(case.nheads_k)
    group = case.nheads // case.nheads_k
    heads = (groups[:, None] * group + torch.arange(group, device=trial.device)).flatten()
    shuffled = {
        "q": x.q[batches][:, :, heads],
        "dout": x.dout[batches][:, :, heads],
        "k": x.k[batches][:, :, groups],
        "v": x.v[batches][:, :, groups],
    }
    if x.sinks is not None:
        shuffled["sinks"] = x.sinks[heads]
    if x.dlse is not None:
        shuffled["dlse"] = x.dlse[batches][:, heads]
    if x.bias is not None:
        bias = x.bias[batches] if case.bias_batch > 1 else x.bias
        shuffled["bias"] = bias[:, heads] if case.bias_nheads > 1 else bias
    if x.block_mask is not None:
        shuffled["block_mask"] = x.block_mask[batches][:, heads]
    if x.kv_indices is not None:
        shuffled["kv_indices"] = x.kv_indices[batches][:, :, groups]
    shuffled = trial.tied(x.with_(**{name: tensor.contiguous() for name, tensor in shuffled.items()}))
    back = {name: (0, batches, 2, groups if name in ("dk", "dv") else heads) for name in ("out", "dq", "dk", "dv")}
    back |= {"lse": (0, batches, 1, heads), "dsink": (0, heads)}
    back |= {"dbias": (*((0, batches) if case.bias_batch > 1 else ()), *((1, heads) if case.bias_nheads > 1 else ()))}
    _agrees_after(trial, shuffled, back, "with batches and heads in another order it is")


@law(regime=("exact",), softcap=False, sinks=False, shared_kv=False, needs=("own v",), bug="softmax-and-lse")
def test_shifting_all_scores_changes_only_lse(trial):
    """Adding a vector c to every key leaves out unchanged and adds softmax_scale <q_i, c> to lse_i.

    This adds the same number to all scores of a row, which softmax ignores. q, k and c are small
    integers, so k + c is exact.
    """
    x = trial.x
    c = trial.random("c").integers((trial.case.headdim,), -4, 4)
    moved = x.with_(k=x.k + c.to(x.k.dtype))
    before, after = trial.run(x), trial.run(moved)
    right, of_moved = trial.expected(moved)
    plain = trial.budget(trial.want())
    sigma = torch.maximum(of_moved.out, plain.out)
    check_agree(trial, "out", after.out, before.out, sigma, "before all scores were shifted it was", right=right.out)
    if after.lse is not None:
        shift = trial.case.scale * (x.q.double() @ c.double()).transpose(1, 2)
        sigma, what = torch.maximum(of_moved.lse, plain.lse), "with all scores shifted it should be"
        check_agree(trial, "lse", after.lse, before.lse.double() + shift, sigma, what, right=right.lse)


@law(causal=False, window=False, hidden=False, sinks=False, needs=("not causal", "lse", "cross"), seqlen_k=(2, None),
     bug="softmax-and-lse", bias_mask=("none", "finite", "alibi"))  # fmt: skip
def test_split_keys_merge_by_lse(trial):
    """Attention over two parts of the keys, merged by their lse, is attention over all keys.

    lse = log(exp(lse_1) + exp(lse_2)),  out = out_1 exp(lse_1 - lse) + out_2 exp(lse_2 - lse)
    (split-K, FlashDecoding)
    """
    x, case = trial.x, trial.case
    n = trial.cut("split", case.seqlen_k, lambda n: [case.but(seqlen_k=n), case.but(seqlen_k=case.seqlen_k - n)])
    # The two parts.
    parts = []  # (out, lse, sigma of out, sigma of lse) in float64; out and lse are rounded as they were stored
    for keys in (slice(None, n), slice(n, None)):
        bias = None if x.bias is None else x.bias[..., keys].contiguous()
        part = x.with_(k=x.k[:, keys].contiguous(), v=x.v[:, keys].contiguous(), bias=bias)
        got, budget = trial.run(part), trial.budget(trial.want(part), part)
        out, lse = got.out.double(), got.lse.double()
        parts.append(
            (out, lse, combined(trial, budget.out, storing(trial, out)), budget.lse + 2.0**-24 * _finite(lse).abs())
        )
    # The parts merged, and their errors.
    lse = torch.logaddexp(parts[0][1], parts[1][1])
    weights = [_finite((part_lse - lse).exp()) for _, part_lse, _, _ in parts]  # (b, h, sq)
    (out_1, _, sigma_1, sigma_lse_1), (out_2, _, sigma_2, sigma_lse_2) = parts
    w_1, w_2 = (_per_row(w) for w in weights)
    whole, (right, budget) = trial.run(), trial.expected()
    # An error in lse makes the weight exp(lse) wrong by exp(error) - 1, relatively. If lse is kept
    # in a half dtype, that is more than the error.
    off = (
        torch.expm1((oracle.Z_LIMIT * (sigma_lse_1 + sigma_lse_2)).clamp(max=oracle.LARGEST_EXPONENT)) / oracle.Z_LIMIT
    )
    of_lse = ((out_1 - out_2) * w_1 * w_2).abs() * _per_row(off)
    sigma = combined(trial, budget.out, w_1 * sigma_1, w_2 * sigma_2, of_lse)
    check_near(trial, "out", whole.out, w_1 * out_1 + w_2 * out_2, sigma, right.out)
    sigma = combined(trial, budget.lse, weights[0] * sigma_lse_1, weights[1] * sigma_lse_2)
    check_near(trial, "lse", whole.lse, lse, sigma, right.lse)


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.nan_to_num(0.0, 0.0, 0.0)


def _per_row(tensor: torch.Tensor) -> torch.Tensor:
    """Turn (b, h, sq) into (b, sq, h, 1)."""
    return tensor.transpose(1, 2)[..., None]


@law(needs=("backward",), stretch=LONG, softcap=False, sinks=False, bug="backward", share=0.5)
def test_gradients_of_keys_sum_to_zero(trial):
    """sum_j dk_j = 0, as softmax ignores a shift of all keys by the same vector.

    Such a shift adds the same number to all scores of a row, and to lse. So with a gradient of lse,
    sum_j dk_j is softmax_scale sum_i dlse_i q_i.
    """
    _conserved(trial, "sum_dk", "sum of dk")


@law(
    bias="matrix",
    bias_mask=("none", "right", "alibi"),
    needs=("dbias", "matrix bias"),
    stretch=LONG,
    sinks=False,
    bug="backward",
    share=0.5,
    where=lambda case: case.bias_batch == case.batch and case.bias_nheads == case.nheads,
    toward=lambda case: case.but(bias_batch=case.batch, bias_nheads=case.nheads),
)
def test_rows_of_dbias_sum_to_zero(trial):
    """sum_j dbias_ij = 0: a constant added to a row of the bias does not change out.

    It adds itself to lse. So with a gradient of lse, the sum is dlse_i.
    """
    _conserved(trial, "sum_dbias", "sum of dbias")


@law(
    bias=ADDED,
    bias_mask=("none", "right", "alibi"),
    sinks=True,
    needs=("dbias", "added bias", "sinks", "dsink"),
    stretch=LONG,
    bug="backward",
    share=0.5,
)
def test_bias_and_sink_conserve(trial):
    """sum_ij dbias_ij + dsink = sum_i dlse_i for each head, over all batches and queries.

    A constant added to all scores of a row, and to its sink, does not change out. It adds itself to
    lse, which has a gradient of 0 if there is no dlse. If heads share a bias, their sums are added.
    """
    _conserved(trial, "sum_dbias_dsink", "sum of dbias and dsink")


@law(needs=("backward",), stretch=LONG, bug="backward", share=0.5)
def test_q_dq_equals_k_dk(trial):
    """<q, dq> = <k, dk> for every head of k, as the scores R are linear in q and in k.

    Both are sum_ij dR_ij R_ij, where R are the scores before the bias and a softcap.
    """
    _conserved(trial, "q_dq", "<q,dq>-<k,dk>")


@law(needs=("backward",), stretch=LONG, bug="backward", share=0.5)
def test_v_dv_equals_out_dout(trial):
    """<v, dv> = <out, dout> for every head of v, as out is linear in v."""
    _conserved(trial, "v_dv", "<v,dv>-<out,dout>")


def _conserved(trial: Trial, name: str, what: str) -> None:
    x = trial.x
    got = trial.run(backward=True)
    with trial.meter.clock.counts(Work.BUDGET):
        sums = oracle.conservation(
            x.q, x.k, x.v, trial.variant(x), x.dout, got,
            dlse=x.dlse, precision=trial.impl.precision, form=trial.form, only=(name,),
        )  # fmt: skip
    residual, sigma = sums[name]
    # The residual is in float64, as sigma already includes the roundings of the stored gradients.
    check_near(trial, what, residual.double(), torch.zeros_like(residual), sigma)


def _agrees_after(trial: Trial, shuffled, back: dict, what: str) -> None:
    """Check that shuffled inputs give shuffled results.

    back: output -> (dim, order, ...), which undoes the shuffling.
    """
    backward = trial.backward
    got, plain = trial.run(shuffled, backward=backward), trial.run(backward=backward)
    expected = trial.expected(backward=backward)
    for name, tensor in plain.items():
        moved, moves = [tensor, *(getattr(each, name) for each in expected)], back.get(name, ())
        for dim, order in zip(moves[::2], moves[1::2], strict=True):
            moved = [each.index_select(dim, order) for each in moved]
        tensor, right, sigma = moved
        check_agree(trial, name, getattr(got, name), tensor, sigma, what, right=right)
