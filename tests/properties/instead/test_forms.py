"""Kernels that take other rows, lengths, pages, splits or parts than they should are told so."""

import itertools
import math

import pytest
import torch

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.oracle import form_of
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.instead.answer import UNKNOWN, Answer
from flash_attest.properties.instead.forms import RAGGED
from flash_attest.properties.instead.matches import statements
from flash_attest.properties.instead.splits import PARTS, SPLITS
from flash_attest.properties.instead.table import OF_FORMS, TABLE, table_of
from flash_attest.properties.trial import Trial
from tests.impls.published import attend
from tests.properties.instead.stand_ins import answer_of_case, said

PLAIN = {"dtypes": {torch.float32}, "headdims": range(1, 129), "causal": "optional", "cross": True}
CASE = "seqlen_q=9 seqlen_k=13 headdim=5 dtype=float32"
AMONG = f"{CASE} neighbours=longer slack=1"


class Ragged:
    """The call of a varlen kernel, and what it takes for the keys of sequence n."""

    def __init__(self, q, k, v, starts_q, starts_k, most_q, most_k):
        self.q, self.k, self.v, self.starts_q, self.starts_k = q, k, v, starts_q.tolist(), starts_k.tolist()
        self.most_q, self.most_k = most_q, most_k

    def rows(self, n):
        return range(self.starts_k[n], self.starts_k[n + 1])

    def offset(self, n):
        return None


def varlen(call=Ragged, **declared):
    def forward(q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=False):
        this = call(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
        outs, lses = [], []
        for n, (first, end) in enumerate(itertools.pairwise(this.starts_q)):
            rows = [row % len(k) for row in this.rows(n)]
            out, lse = attend(q[first:end], k[rows], v[rows], causal=causal, offset=this.offset(n))
            outs.append(out)
            lses.append(lse)
        slack = len(q) - this.starts_q[-1]
        return torch.cat([*outs, q.new_zeros(slack, *q.shape[1:])]), torch.cat(
            [*lses, q.new_zeros(q.shape[1], slack)], 1
        )

    return Implementation(
        name="packed", forward=forward, lse="natural", devices={"cpu"},
        supports=Supports(form="varlen", **PLAIN), precision=Precision(probabilities="float32"), **declared,
    )  # fmt: skip


class AlignedByBoth(Ragged):
    def offset(self, n):
        return self.most_k - self.most_q


class AlignedByKeys(Ragged):
    def offset(self, n):
        return self.most_k - (self.starts_q[n + 1] - self.starts_q[n])


class Next(Ragged):
    def rows(self, n):
        after = min(n + 1, len(self.starts_k) - 2)
        return range(self.starts_k[after], self.starts_k[after] + len(super().rows(n)))


class Longest(Ragged):
    def rows(self, n):
        return range(self.starts_k[n], self.starts_k[n] + self.most_k)


BOTH = "with the mask aligned by max_seqlen_q and max_seqlen_k"
VARLEN = [
    (AlignedByBoth, f"{AMONG} causal=True", f"out and lse are the ones {BOTH}"),
    (AlignedByKeys, f"{AMONG} causal=True", "out and lse are the ones with the mask aligned by max_seqlen_k"),
    (Next, AMONG, "out and lse are the ones with k and v of the next sequence"),
    (Longest, f"{CASE} slack=17", "out and lse are the ones with max_seqlen_k keys in each sequence"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "case", "line"), VARLEN)
def test_a_packed_kernel(call, case, line):
    assert said(varlen(call), case) == [line]


def test_gradients_of_own_keys_are_predicted_too():
    impl = varlen(AlignedByBoth, backward="autograd")
    (line,) = said(impl, f"{AMONG} causal=True")
    assert line == f"out, lse, dq, dk and dv are the ones {BOTH}"


def test_a_right_kernel_is_not_told_anything():
    assert said(varlen(), f"{AMONG} causal=True") == []
    assert answer_of_case(varlen(), f"{AMONG} causal=True").wrong == {}


# --- pages ----------------------------------------------------------------------------------------


def paged(rows, *, append=False, **options):
    """rows(table, n, keys, page_size, lengths) -> the rows of the keys of sequence n."""

    def forward(q, k, v, *, cu_seqlens_q, max_seqlen_q, block_table, seqused_k, max_seqlen_k, causal=False,
                k_new=None, v_new=None):  # fmt: skip
        size, starts, lengths = k.shape[1], cu_seqlens_q.tolist(), seqused_k.tolist()
        old = [x.clone() for x in (k, v)] if options.get("before") else None
        if k_new is not None:
            for n, length in enumerate(lengths):
                for at in range(k_new.shape[1]):
                    page, place = int(block_table[n, (length + at) // size]), (length + at) % size
                    k[page, place], v[page, place] = k_new[n, at], v_new[n, at]
        after = [length + (0 if k_new is None or options.get("left_out") else k_new.shape[1]) for length in lengths]
        flat = [x.flatten(0, 1) for x in (old or (k, v))]
        outs, lses = [], []
        for n, (first, end) in enumerate(itertools.pairwise(starts)):
            at = rows(block_table, n, torch.arange(after[n]), size, after).long() % len(flat[0])
            offset = lengths[n] - (end - first) if options.get("aligned_before") else None
            out, lse = attend(q[first:end], *(x[at] for x in flat), causal=causal, offset=offset)
            outs.append(out)
            lses.append(lse)
        slack = len(q) - starts[-1]
        return torch.cat([*outs, q.new_zeros(slack, *q.shape[1:])]), torch.cat(
            [*lses, q.new_zeros(q.shape[1], slack)], 1
        )

    return Implementation(
        name="in_pages", forward=forward, lse="natural", devices={"cpu"},
        supports=Supports(form="paged", page_sizes=(4, 16), append=append, **PLAIN),
        precision=Precision(probabilities="float32"),
    )  # fmt: skip


def right_rows(table, n, keys, size, lengths):
    return table[n, keys // size] * size + keys % size


PAGED = "seqlen_q=3 seqlen_k=13 headdim=5 dtype=float32 batch=3 page_size=4 page_order=shuffled neighbours=one"
# The first page has enough others behind it, in larger cases, too: what lies outside is not known.
FEW_PAGES = "seqlen_q=3 seqlen_k=13 headdim=5 dtype=float32 page_size=4 page_order=shuffled neighbours=longer seed=2"
ROWS = [
    (lambda table, n, keys, size, lengths: table[n, 0] * size + keys,
     "with pages one behind the other from the first one of block_table on", FEW_PAGES),
    (lambda table, n, keys, size, lengths: sum(-(-m // size) for m in lengths[:n]) * size + keys,
     "with pages in order, as if block_table counted them", PAGED),
    (lambda table, n, keys, size, lengths: table[0, keys // size] * size + keys % size,
     "with the pages in row 0 of block_table", PAGED),
    (lambda table, n, keys, size, lengths: table[n, keys // size] + keys % size,
     "with the numbers in block_table as rows, not as pages", PAGED),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "words", "case"), ROWS)
def test_a_kernel_with_pages(rows, words, case):
    assert said(paged(rows), case) == [f"out and lse are the ones {words}"]


@pytest.mark.parametrize(
    ("options", "case", "words"),
    [
        ({"left_out": True}, "append=5", "without the new keys"),
        ({"before": True}, "append=5", "with what the cache held before the new keys were written"),
        ({"aligned_before": True}, "append=5 causal=True",
         "without the new keys, or with the mask aligned by the keys without the new ones"),
    ],
)  # fmt: skip
def test_a_kernel_that_appends(options, case, words):
    impl = paged(right_rows, append=True, **options)
    assert said(impl, f"{PAGED} {case}") == [f"out and lse are the ones {words}"]


def test_a_right_kernel_with_pages_is_not_told_anything():
    for case in (PAGED, f"{PAGED} append=5 causal=True"):
        assert answer_of_case(paged(right_rows, append=True), case).wrong == {}


# --- splits and parts -----------------------------------------------------------------------------


def split(merged):
    """merged(outs (n, b, s, h, d), lses (n, b, h, s), sinks) -> out, lse."""

    def forward(q, k, v, *, num_splits, causal=False, sinks=None):
        s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
        if causal:
            s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1 + s.shape[-1] - s.shape[-2]), -math.inf)
        size = -(-k.shape[1] // num_splits)
        outs, lses = [], []
        for first in range(0, size * num_splits, size):
            part = s[..., first : first + size]
            lse = part.logsumexp(-1) if part.shape[-1] else s.new_full(s.shape[:3], -math.inf)
            p = (part - lse.masked_fill(lse == -math.inf, 0.0)[..., None]).exp()
            outs.append(torch.einsum("bhij,bjhd->bihd", p, v[:, first : first + size]))
            lses.append(lse)
        return merged(torch.stack(outs), torch.stack(lses), sinks)

    return Implementation(
        name="in_splits", forward=forward, lse="natural", devices={"cpu"},
        supports=Supports(splits=(1, 2, 3), sinks=True, **PLAIN),
        precision=Precision(probabilities="float32", merge="lse"),
    )  # fmt: skip


def by_weights(outs, lses, sinks=None):
    extra = [] if sinks is None else [sinks[:, None].expand(*lses.shape[1:])[None]]
    lse = torch.cat([lses, *extra]).logsumexp(0)
    weight = (lses - lse.masked_fill(lse == -math.inf, 0.0)).exp()
    return (weight.transpose(-1, -2)[..., None] * outs).sum(0), lse


@pytest.mark.parametrize(
    ("merged", "more", "words"),
    [
        (lambda outs, lses, sinks: by_weights(outs[:-1], lses[:-1]), "", "without the keys of the last split"),
        (lambda outs, lses, sinks: by_weights(outs[:1], lses[:1]), "", "with the keys of the first split alone"),
        (lambda outs, lses, sinks: by_weights(outs, lses, sinks + math.log(len(outs))), "sinks=count",
         "with the sink counted in each of the splits, or with the sink counted in each split that has keys"),
    ],
)  # fmt: skip
def test_a_kernel_with_splits(merged, more, words):
    assert said(split(merged), f"{CASE} num_splits=3 {more}") == [f"out and lse are the ones {words}"]


def test_right_splits_are_not_told_anything():
    assert answer_of_case(split(by_weights), f"{CASE} num_splits=3 sinks=count causal=True").wrong == {}


def merge(merged):
    def forward(out_parts, lse_parts, *, out_dtype):
        out, lse = merged(out_parts, lse_parts)
        return out.to(out_dtype), lse.float()

    return Implementation(
        name="merge", forward=forward, lse="natural", devices={"cpu"}, precision=Precision(merge="lse"),
        supports=Supports(form="parts", splits=(1, 2, 3), **PLAIN | {"causal": "never"}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("merged", "line"),
    [
        (lambda outs, lses: (outs.mean(0), by_weights(outs, lses)[1]),
         "out is the one with the mean of the parts, without weights"),
        (lambda outs, lses: (outs[0], lses[0]), "out and lse are the ones of the first part alone"),
        (lambda outs, lses: by_weights(outs[1:], lses[1:]), "out and lse are the ones without the first part"),
        (lambda outs, lses: (by_weights(outs, lses * math.log(2))[0], by_weights(outs, lses)[1]),
         "out is the one with weights exp2(lse) of an lse in base e"),
        (lambda outs, lses: (by_weights(outs, lses)[0], lses.amax(0)),
         "lse is the one of the part with the largest lse: the sum is left out"),
    ],
)  # fmt: skip
def test_a_merge(merged, line):
    assert said(merge(merged), f"{CASE} num_splits=3 seed=1") == [line]


def test_a_right_merge_is_not_told_anything():
    assert answer_of_case(merge(by_weights), f"{CASE} num_splits=3 seed=1").wrong == {}


def test_dense_kernels_are_compared_with_no_form():
    assert table_of(Supports()) == TABLE
    assert table_of(Supports(form="padded")) == table_of(Supports(splits=(1, 2))) == (*OF_FORMS, *TABLE)
    names = [mistake.name for mistake in table_of(Supports(form="padded"))]
    assert len(names) == len({*names})


# --- every mistake, in every form -----------------------------------------------------------------

AROUND = (
    "neighbours=longer slack=1 seed=1",
    "neighbours=longer",
    "neighbours=mixed seed=3",
    "neighbours=one slack=17 batch=2 seed=1",
)
CASES = {
    "varlen": AROUND,
    "padded": AROUND,
    "cache": [f"{around} append={new}" for around, new in zip(AROUND, (5, 0, 0, 5), strict=True)],
    "paged": [
        f"{around} page_size=4 page_order=shuffled append={new}"
        for around, new in zip(AROUND, (5, 0, 0, 5), strict=True)
    ],
    "dense": ["num_splits=3", "num_splits=3 sinks=count"],
    "parts": ["num_splits=3 seed=1", "num_splits=3 seed=2"],
}
SHOWN_BY_OTHER_CASES = {"aligned by max_seqlen_q", "no first part"}  # here rows see no key, or parts are empty


def with_outputs(impl, case, outputs=None) -> Answer:
    """Return the answer of a kernel that returns these outputs, and right ones otherwise."""
    x = Trial(impl, case, "cpu").x

    def form(precision):
        return form_of(case.regime, case.dtype, precision)

    right = Answer(impl, case, x, {"out": x.dout}, form).right.want
    got = {name: (outputs or {}).get(name, right[name]).float() for name in ("out", "lse")}
    return Answer(impl, case, x, got, form)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("form", CASES)
def test_each_mistake_is_named_and_no_other(form, every):
    """Every third case is enough to show all mistakes, with and without a mask."""
    more = {"cache": dict(append=True), "paged": dict(append=True, page_sizes=(4, 16))}.get(form, {})
    supports = Supports(form=form, sinks=True, splits=range(1, 65), **PLAIN, **more)
    impl = Implementation(name="tested", forward=print, lse="natural", devices={"cpu"}, supports=supports)
    named = set()
    sizes = (CASE, "seqlen_q=6 seqlen_k=20 headdim=5 dtype=float32")
    for words in map(" ".join, list(itertools.product(sizes, CASES[form], ("", "causal=True")))[::every]):
        case = parse_case(words)
        right = with_outputs(impl, case)
        for mistake in OF_FORMS:
            predicted = [each for each in mistake.predict(right) if each is not UNKNOWN]
            if predicted and (answer := with_outputs(impl, case, predicted[0].want)).wrong:
                lines = statements([answer], table=OF_FORMS)
                assert all(mistake.said(answer) in line for line in lines), (words, mistake.name)
                named |= {mistake.name} if lines else set()
    apply = {name for name, forms in APPLY.items() if form in forms}
    assert named >= apply - SHOWN_BY_OTHER_CASES


KEYS = ("varlen", "padded", "cache", "paged")
APPLY = {mistake.name: KEYS for mistake in RAGGED}
APPLY |= dict.fromkeys(("whole pages", "pages in order", "no table", "page as a row"), ("paged",))
APPLY |= dict.fromkeys(("no new keys", "before new keys", "aligned before new keys"), ("cache", "paged"))
APPLY |= {
    "slot of the batch": ("cache",),
    "keys from the queries' start": ("varlen",),
    "aligned by max_seqlen_q": KEYS[::3],
}
APPLY |= {mistake.name: ("dense",) for mistake in SPLITS} | {mistake.name: ("parts",) for mistake in PARTS}
