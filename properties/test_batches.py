"""Batches, heads and queries are independent of each other."""

import torch

from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.chunks import chunks_of
from flash_attest.properties.cases.form_features import RAGGED
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.cases.limits import LONG, is_slow
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import check_unchanged
from flash_attest.properties.checks.invariant import check_invariant
from flash_attest.properties.checks.pictures import plural
from flash_attest.properties.forms.refitted import replace_neighbours
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial

OTHERS = (1, 7, 200)  # sequences beside one: a GPU has fewer blocks than 200 sequences, and more than 1
MOST_PRODUCTS, MOST_OF_SLOW_KERNELS = 2**24, 2**18  # of a call among several others on a CPU, which takes 0.1 to 1 s
MOST_SCORES = 2**28  # of a call on a GPU: some implementations keep all of them several times, in 1 GiB each
MORE_THAN_A_TILE = 130  # keys
MOST_ELEMENTS = 2**27  # of k on a GPU, for all heads: some implementations repeat it for each query head


def has_neighbours(case: Case) -> bool:
    """Return whether the call has another batch, key head or sequence."""
    return case.batch * case.nheads_k > 1 or case.neighbours in ("one", "longer", "mixed")


def with_neighbours(case: Case) -> Case:
    """Return the case, with a second batch if it has no neighbours."""
    return case if has_neighbours(case) else case.but(batch=2)


@law(where=has_neighbours, toward=with_neighbours, share=0.2, bug="batches")
def test_neighbours_change_no_bit(trial):
    """The inputs of other batches and heads, even NaN, do not influence the results of a head.

    q, k, v, dout and dlse are replaced in all batches and heads but one key head with its query
    heads: by other numbers, or by NaN. The results of these heads keep their bits, or stay within
    the budget if they are not declared repeatable, or if one quantization step serves many heads
    (then only numbers replace the others). Gradients that are sums over several heads or batches
    are left out. In a call of sequences of other lengths these are replaced, too. There NaN needs
    slack="anything" or "unseen", as a tile may reach into the next sequence.
    """
    x, case, random = trial.x, trial.case, trial.random("others")
    exact = bits.keeps_when_others_change(trial)
    own = _own_head(trial, random.number(0, case.batch - 1), random.number(0, case.nheads_k - 1))
    form = trial.impl.supports.form
    with_nan = exact and case.seed % 2 == 0 and (form not in RAGGED or trial.impl.slack != "finite")
    changed = {}
    for name in ("q", "k", "v", "dout", *(("dlse",) if x.dlse is not None else ())):
        tensor = getattr(x, name)
        other = torch.full_like(tensor, torch.nan) if with_nan else random.uniform(tensor.shape, -10, 10)
        changed[name] = torch.where(own[name], tensor, other.to(tensor.dtype))
    changed = trial.tied(x.with_(**changed))
    before = trial.run(backward=trial.backward)
    handed = trial.caller.laid_out(changed)
    if form in RAGGED:
        replace_neighbours(trial.impl, handed, random, torch.nan if with_nan else None)
        own.pop("dsink", None)
    after = trial.caller.call(handed, backward=trial.backward)
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


def alone(case: Case) -> Case:
    """Return the case as one sequence of a few queries and key heads.

    Kernels split the keys, or take another tile, where few blocks would be busy.
    """
    few = case.seqlen_q if case.seqlen_q == case.seqlen_k else 1 + (case.seqlen_q - 1) % 3
    return case.but(batch=1, seqlen_q=few, nheads=case.nheads // case.nheads_k, nheads_k=1)


@law(
    where=lambda case: case.batch == 1,
    toward=alone,
    hidden=False,
    stretch=LONG,
    share=0.2,
    bug="batches",
)
def test_batch_changes_no_bit(trial):
    """The results of a sequence are the same alone, and among 1, 7 or 200 others of any lengths.

    Where a declared path of keys begins, one of them always has another number of queries.

    With "batch" in `invariant` they keep their bits. Without it, they agree within the budget, as
    the number of sequences may decide how many parts the keys are split into (Thinking Machines,
    "Defeating Nondeterminism in LLM Inference", 2025), and the verdict says how often they kept
    them. dbias and dsink are sums over the batch, and are left out.
    """
    trial.needs(not bits.shares_steps(trial, ("tensor",)))
    case, backward, others = trial.case, trial.backward, []
    before = _without_sums(trial.of(case.but(neighbours="none")).run(trial.x, backward=backward))
    for n in OTHERS:
        many = case.but(batch=n + 1)
        if unsupported(trial.impl, many) is None and (n == OTHERS[0] or is_small(many, trial.impl, trial.device)):
            at = trial.random(f"position among {n}").number(0, n)
            got = trial.of(many).run(trial.tied(_among(trial, many, at)), backward=backward)
            own = {name: tensor[at : at + 1] for name, tensor in _without_sums(got).items()}
            others.append((f"among {plural(n, 'other sequence')} (as batch {at}); alone it is", Outputs(**own)))
    longer = case.but(neighbours="longer")
    if _begins_a_path(trial) and unsupported(trial.impl, longer) is None:
        got = trial.of(longer).run(trial.x, backward=backward)
        others.append(("beside a sequence of another number of queries; alone it is", _without_sums(got)))
    trial.needs(bool(others))
    check_invariant(trial, "batch", before, others)


def _begins_a_path(trial: Trial) -> bool:
    """Return whether another path may begin at the case's number of keys.

    A kernel may take it only if no sequence of the call has several queries.
    """
    return any(abs(trial.case.seqlen_k - n) <= 1 for n in trial.impl.paths.get("seqlen_k", ()))


def is_small(many: Case, impl: Implementation, device: str) -> bool:
    """Return whether a call with many sequences takes a short time on a CPU, and fits on a GPU."""
    if device != "cpu":
        elements = many.batch * many.nheads * max(many.seqlen_q, many.seqlen_k) * max(many.headdim, many.headdim_v)
        return many.products <= MOST_SCORES * many.headdim and elements <= MOST_ELEMENTS
    return many.products <= (MOST_OF_SLOW_KERNELS if is_slow(impl, device) else MOST_PRODUCTS)


def _among(trial: Trial, many: Case, at: int) -> Inputs:
    """Return inputs of many sequences. That with the number `at` has the inputs of the trial."""
    others = build(many.but(batch=many.batch - 1, seed=many.seed + 1), trial.device)
    joined = {}
    for name, tensor in trial.x.items():
        if name in ("q", "k", "v", "dout", "dlse"):
            other = getattr(others, name)
            joined[name] = torch.cat([other[:at], tensor, other[at:]])
    return trial.x.with_(**joined)


def _without_sums(outputs: Outputs) -> Outputs:
    """Return the outputs without the gradients that are sums over the batch."""
    return Outputs(**{name: tensor for name, tensor in outputs.items() if name not in ("dbias", "dsink")})


def in_chunks(case: Case) -> Case:
    """Return the case with several queries and few heads, in two of three cases with more keys than
    a tile has: chunks then have other numbers of tiles.
    """
    group, least = case.nheads // case.nheads_k, MORE_THAN_A_TILE if case.seqlen_k % 3 else 2
    return case.but(
        batch=1, nheads=group, nheads_k=1, seqlen_q=max(case.seqlen_q, 2), seqlen_k=max(case.seqlen_k, least)
    )


@law(
    needs=("keys", "chunks"),
    where=lambda case: case.seqlen_q > 1,
    toward=in_chunks,
    hidden=False,
    stretch=LONG,
    share=0.2,
    bug="batches",
)
def test_chunks_change_no_bit(trial):
    """out and lse of a query are the same from all queries, from a chunk, and from it alone.

    A chunk is called with the keys up to its last query, as in a chunked prefill, and one query
    with the keys up to its own, as in a decode. With "chunks" in `invariant` results keep their
    bits, so that a server's logarithms of probabilities are those of the trainer. Without it, they
    agree within the budget, and the verdict says how often they kept them.
    """
    trial.needs(trial.impl.precision.quantize == "none")  # else a chunk has its own quantization step
    before, others = trial.run(), []
    for chunk in chunks_of(trial):
        got, after = trial.of(chunk.case).run(trial.tied(chunk.inputs(trial.x))), before.copy()
        after.out[:, chunk.rows] = got.out
        if after.lse is not None:
            after.lse[:, :, chunk.rows] = got.lse
        others.append((f"{chunk}; with all queries it is", after))
    trial.needs(bool(others))
    check_invariant(trial, "chunks", before, others)
