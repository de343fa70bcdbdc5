"""Batches and heads are independent of each other."""

import torch

from flash_attest.impls.contract.call import Outputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import check_unchanged
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial


def with_neighbours(case: Case) -> Case:
    """Return the case, with a second batch if it has only one batch and key head."""
    return case.but(batch=2) if case.batch * case.nheads_k == 1 else case


@law(where=lambda case: case.batch * case.nheads_k > 1, toward=with_neighbours, share=0.2, bug="boundaries")
def test_neighbours_change_no_bit(trial):
    """The inputs of other batches and heads, even NaN, do not influence the results of a head.

    q, k, v, dout and dlse are replaced in all batches and heads but one key head with its query
    heads: by other numbers, or by NaN. The results of these heads keep their bits, or stay within
    the budget if they are not declared repeatable, or if one quantization step serves many heads
    (then only numbers replace the others). Gradients that are sums over several heads or batches
    are left out.
    """
    x, case, random = trial.x, trial.case, trial.random("others")
    exact = bits.keeps_when_others_change(trial)
    own = _own_head(trial, random.number(0, case.batch - 1), random.number(0, case.nheads_k - 1))
    with_nan = exact and case.seed % 2 == 0
    changed = {}
    for name in ("q", "k", "v", "dout", *(("dlse",) if x.dlse is not None else ())):
        tensor = getattr(x, name)
        other = torch.full_like(tensor, torch.nan) if with_nan else random.uniform(tensor.shape, -10, 10)
        changed[name] = torch.where(own[name], tensor, other.to(tensor.dtype))
    changed = trial.tied(x.with_(**changed))
    before, after = trial.run(backward=trial.backward), trial.run(changed, backward=trial.backward)
    results = {name: torch.where(own[name], now, getattr(before, name)) for name, now in after.items() if name in own}
    should = f"as only other batches and heads changed{' to NaN' * with_nan} it should still be"
    check_unchanged(trial, before, Outputs(**results), should, keeps_bits=exact, other=changed)


def _own_head(trial: Trial, batch: int, head: int) -> dict[str, torch.Tensor]:
    """Return what belongs to one key head and its query heads: a mask for each input and output.

    Results that are sums with other heads or batches have no mask.
    """
    case = trial.case
    batches = torch.arange(case.batch, device=trial.device) == batch
    of_k = torch.arange(case.nheads_k, device=trial.device) == head
    of_q = of_k.repeat_interleave(case.nheads // case.nheads_k)
    q, k = (batches[:, None, None, None] & heads[:, None] for heads in (of_q, of_k))  # (b, 1, h | hk, 1)
    rows = batches[:, None, None] & of_q[:, None]  # (b, h, 1)
    own = dict.fromkeys(("q", "dout", "out", "dq"), q) | dict.fromkeys(("k", "v", "dk", "dv"), k)
    own |= {"lse": rows, "dlse": rows}
    if case.bias_batch == case.batch and case.bias_nheads == case.nheads:
        own["dbias"] = rows[..., None]
    if case.batch == 1:
        own["dsink"] = of_q
    return own
