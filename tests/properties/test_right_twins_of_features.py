"""Right kernels of unusual build: windows, softcaps, sinks, gradients of lse, narrow values."""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import Supports, torch_math
from flash_attest.mutants.mutant import build
from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.lse_gradients import DELTA
from flash_attest.mutants.tiled.sinks import OUT, P_SINK, WITHOUT_SINK
from flash_attest.mutants.tiled.softcap import CAPPED, DR, TANH
from flash_attest.mutants.tiled.values import DV
from flash_attest.mutants.tiled.windows import BOTH, FIRST_TILE, HIDES_LEFT, LAST_QUERY, LEFT
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws

DEFINITION = ("test_out_matches_the_definition", "test_gradients_match_the_definition")
WINDOWS = ("test_query_sees_exactly_its_window", "test_keys_beyond_the_window_change_no_bit", DEFINITION[1])
CAPS = ("test_capped_scores_are_the_cap", *DEFINITION)
SINKS = ("test_sink_takes_its_share", "test_high_sink_takes_all", *DEFINITION)
HIDES_RIGHT = "    if right < INF:"
RIGHT = "s.masked_fill(j > i + seqlen_k - seqlen_q + right, -INF)"
LAST_KEY = "last_key = i0 + BLOCK_M + seqlen_k - seqlen_q + right"
FIRST_QUERY = "first_query = j0 - (seqlen_k - seqlen_q) - right"
ACC = "acc = qi.new_zeros(batch, nheads, BLOCK_M, v.shape[3])"
# Every tile is visited, so that the mask alone hides keys.
ALL_TILES = (
    (FIRST_TILE, "range(0,"),
    (LAST_KEY, "last_key = seqlen_k"),
    (FIRST_QUERY, "first_query = 0"),
    (LAST_QUERY, "last_query = seqlen_q"),
)
TWINS = {
    "a window is a mask, and no tile is skipped": (WINDOWS, ALL_TILES),
    "a window is a bias of -inf": (
        WINDOWS,
        (
            *ALL_TILES,
            (LEFT, "s + torch.where(j < i + seqlen_k - seqlen_q - left, -INF, 0.0)"),
            (RIGHT, "s + torch.where(j > i + seqlen_k - seqlen_q + right, -INF, 0.0)"),
        ),
    ),
    "a window is skipped tiles of one key, and there is no mask": (
        WINDOWS[:1],
        (
            ("BLOCK_M, BLOCK_N = 16, 16", "BLOCK_M, BLOCK_N = 1, 1"),
            (HIDES_LEFT, "    if False:"),
            (HIDES_RIGHT, "    if False:"),
        ),
    ),
    "a window that hides no key is dropped": (
        WINDOWS,
        (
            (
                BOTH,
                "return INF if left >= seqlen_k else left, 0 if causal else INF if right >= seqlen_q else right",
            ),
            ("def window_of(window, causal):", "def window_of(window, causal, seqlen_q, seqlen_k):"),
            ("window_of(window, causal)\n", "window_of(window, causal, seqlen_q, seqlen_k)\n"),
            ("window_of(window, causal)  #", "window_of(window, causal, seqlen_q, seqlen_k)  #"),
        ),
    ),
    "tanh is computed by exp": (CAPS, ((TANH, "t = 1 - 2 / (1 + torch.exp(2 * (s / softcap)))"),)),
    "the derivative of the cap is taken from S": (
        CAPS,
        ((CAPPED, "s = softcap * t\n        slope = 1 - (s / softcap) ** 2"),),
    ),
    "P is multiplied by the derivative of the cap first": (
        CAPS,
        ((DR, "dr = ds if softcap is None else (p * slope) * (dp - delta_i)"),),
    ),
    "a sink joins at the end, below a maximum of both": (
        SINKS,
        (
            *WITHOUT_SINK,
            (
                OUT,
                "        m_keys, m = m, torch.maximum(m, sink[:, None, None])\n"
                "        m_safe = m.masked_fill(m == -INF, 0.0)\n"
                "        alpha = torch.exp(m_keys - m_safe)\n"
                "        acc, l = alpha * acc, alpha * l + torch.exp(sink[:, None, None] - m_safe)\n" + OUT,
            ),
        ),
    ),
    "a sink takes its share of out by a sigmoid of lse": (
        SINKS,
        (
            *WITHOUT_SINK,
            (
                "        store_tile(out.transpose(1, 2), i0, oi)\n",
                "        lse_keys = lse_i.clamp(min=torch.finfo(torch.float32).min)\n"
                "        oi = oi * torch.sigmoid(lse_keys - sink[:, None, None])\n"
                "        lse_i = torch.logaddexp(lse_i, sink[:, None, None])\n"
                "        store_tile(out.transpose(1, 2), i0, oi)\n",
            ),
        ),
    ),
    "the gradient of lse is added to dP": (
        ("test_loss_on_out_and_lse", DEFINITION[1]),
        (
            (DELTA, "dlse = dlse.unsqueeze(-1)"),
            ("dp = doi @ vj.mT", "dp = doi @ vj.mT + (0 if dlse is None else load_tile(dlse, i0, BLOCK_M))"),
            (
                "dsink = -(p_sink * delta.transpose(1, 2)).sum((0, 2, 3))",
                "dsink = (p_sink * ((0 if dlse is None else dlse) - delta.transpose(1, 2))).sum((0, 2, 3))",
            ),
        ),
    ),
    "dsink is 1 where lse is the sink, though both are -inf": (
        ("test_rows_without_keys_leave_the_others_alone", "test_bias_and_sink_conserve", "test_no_keys_give_zero"),
        ((P_SINK, P_SINK + "\n        p_sink = p_sink.masked_fill(dead.unsqueeze(-1), 1.0)"),),
    ),
    "narrow values are padded to headdim": (
        ("test_columns_of_v_are_their_own", *DEFINITION),
        (
            (ACC, ACC.replace("v.shape[3]", "max(headdim, v.shape[3])")),
            (
                "            s, _ = scores(",
                "            vj = torch.nn.functional.pad(vj, (0, acc.shape[3] - vj.shape[3]))\n            s, _ = scores(",
            ),
            (OUT, OUT.replace("acc / l", "acc[..., : v.shape[3]] / l")),
            (
                "            dp = doi @ vj.mT",
                "            pad = (0, max(0, headdim - v.shape[3]))\n"
                "            dp = torch.nn.functional.pad(doi, pad) @ torch.nn.functional.pad(vj, pad).mT",
            ),
            (DV, "        dvj = dvj[..., : v.shape[3]]\n" + DV),
        ),
    ),
}


def each_law_of_each_twin() -> list:
    """Return a parameter for each, of which the law of the feature itself is not thorough.

    Tiles of one key are slow.
    """
    slow = "a window is skipped tiles of one key, and there is no mask"
    return [
        pytest.param(
            law,
            words,
            marks=pytest.mark.thorough if words == slow or law != names[0] else (),
            id=f"{law}-{words}",
        )
        for words, (names, _) in TWINS.items()
        for law in names
    ]


@pytest.mark.parametrize("law, words", each_law_of_each_twin())
def test_a_right_twin_of_a_feature_passes(law, words):
    twin = planted(name="twin", law=law, edits=TWINS[words][1], smallest={}, story=words)
    result = judge(laws()[law], build(twin), Plan(examples=6, try_contract=False, small=True))
    assert result.verdict == PASS, result.message or result.reason


def by_a_sigmoid(q, k, v, *, sinks=None):
    """Compute the weight of all keys beside a sink as a sigmoid, which rounds next to 1."""
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    out, lse = torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v), s.logsumexp(-1)
    if sinks is None:
        return out, lse
    weight = torch.sigmoid(lse - sinks[:, None])
    return out * weight.transpose(1, 2)[..., None], torch.logaddexp(lse, sinks[:, None].expand_as(lse))


@pytest.mark.parametrize(
    "law", [pytest.param(law, marks=() if law in SINKS[1::2] else pytest.mark.thorough) for law in SINKS]
)
def test_a_sink_by_a_sigmoid_passes(law):
    """dsink is 0 where the weight of the sink is below 2^-24. FlexAttention is often used so."""
    supports = Supports(dtypes={torch.float32}, headdims=range(1, 65), sinks=True, sink_grad=True)
    twin = replace(torch_math.IMPL, name="sigmoid", forward=by_a_sigmoid, supports=supports)
    result = judge(laws()[law], twin, Plan(examples=16, try_contract=False, small=True))
    assert result.verdict == PASS, result.message or result.reason
