"""The page of the benchmark: what bench.json has, readable, without matplotlib."""

from __future__ import annotations

import copy
import re
import sys

import pytest

from flash_attest.bench.page import overview, page, times
from tests.bench.measured import NAMES, cell, measured


@pytest.fixture
def found():
    return measured()


def strip(text):
    """Return tone and headline."""
    return re.search(r'<header class="strip (\w+)">.*?</span> (.*?)</h1>', text, re.S).groups()


def test_everything_is_on_the_page(found):
    text = page(found)
    assert strip(text) == ("good", "6 of 7 cells timed")
    for words in ("a machine", "flash-attest bench", "threads 1", "8 x 8", "it has no backward", "1x2x256x64", "12 s",
                  "triton_fa2: it does not run on cpu", "2026-01-01 00:00 UTC", "1 refused"):  # fmt: skip
        assert words in text, words
    assert text.count('<tr data-item="uncounted"') == len(found["results"])


def test_the_table_has_ratio_time_rate_and_share(found):
    found["results"][0] |= {"ratio": 1.53, "ms": 0.284, "tflops": 0.0185, "share": 0.08, "ms_p20": 0.1, "ms_p80": 0.3}
    assert "var(--heat-1) 8%,var(--raised) 8%" in page(found)
    assert "<strong>1.53x</strong>" in page(found) and "~0.284 ms, 18.5, 8%" in page(found)


@pytest.mark.parametrize("verdict", ("wrong", "error", "above peak", "not run"))
def test_an_untrusted_cell_is_told_first(found, verdict):
    found["results"].append(cell("python_tiled", 512, verdict=verdict, reason="out of batch 0 is off"))
    text = page(found)
    assert strip(text) == ("bad", f"6 of 8 cells timed, 1 {verdict}")
    assert text.index("out of batch 0 is off") < text.index('id="ratios"')
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(re.findall(r' id="([^"]+)"', text))


def test_what_could_not_be_loaded_is_told(found):
    found["environment"]["not_loaded"] = ["mine.py: <b>no</b> IMPL"]
    text = page(found)
    assert strip(text) == ("bad", "6 of 7 cells timed, 1 implementation not loaded")
    assert "mine.py: &lt;b&gt;no&lt;/b&gt; IMPL" in text


@pytest.mark.parametrize("state, tone", [("interrupted", "open"), ("running", "busy")])
def test_a_run_that_is_not_whole_says_so(found, state, tone):
    found["state"] = state
    assert strip(page(found)) == (tone, f"{state}: 6 of 7 cells timed")


def test_the_overview_is_the_median(found):
    for each, ratio in zip([r for r in found["results"] if r["impl"] == "torch_math"], (0.2, 0.4), strict=True):
        each["ratio"] = ratio
    table = overview(found["results"], ["float32"])
    assert [column[:2] for column in table["columns"]] == [("float32", "forward")]
    shown = dict(table["rows"])["torch_math"][0]
    assert (shown.ratio, shown.share) == ("0.30x", 30) and "0.20x to 0.40x in 2 cases" in shown.says


def test_a_line_for_each_implementation(found):
    text = page(found)
    (picture,) = re.findall(r"<svg.*?</svg>", text, re.S)
    assert picture.count('fill="none"') == len(NAMES) and "python_tiled, seqlen 256: 50.0" in picture
    assert "a matrix product reaches 100." in picture


def test_pictures_are_in_order(found):
    backward = [cell("torch_math", n, "backward", causal=causal) for causal in (True, False) for n in (128, 256)]
    found["results"] = backward + found["results"]
    titles = re.findall(r"Rate over seqlen: ([^<]+)", page(found))
    words = ("forward, full", "backward, full", "backward, causal")
    assert titles == [f"float32 {each}, headdim 64" for each in words]


def test_sizes_of_one_length_or_of_other_heads_are_no_curve(found):
    alone = copy.deepcopy(found)
    alone["results"] = [each for each in found["results"] if each["seqlen"] == 128]
    assert "<svg" not in page(alone)
    for each in found["results"]:
        each["nheads"] = 3
    assert "<svg" not in page(found)


def test_nothing_measured_is_a_page_too(found):
    assert "No cell has been measured yet." in page(found | {"results": [], "peak": {}, "state": "running"})


def test_the_page_needs_no_matplotlib(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert page(found)


def test_ratios_have_two_digits_behind_the_point():
    assert [times(r) for r in (12.345, 1.0, 0.1, 0.0136, 0.00594)] == ["12.35x", "1.00x", "0.10x", "0.01x", "0.006x"]
