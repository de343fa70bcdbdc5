"""Pictures: what is drawn where, and that colours can be told from their ground."""

from __future__ import annotations

import re
from itertools import product

import pytest

from flash_attest.runner.page import plane, svg, tried, worst
from flash_attest.runner.page.template import HERE
from tests.runner.page import data


def numbers(tag: str, text: str) -> list[dict[str, float]]:
    """Return the attributes that are numbers, of each element with this tag."""
    return [
        {name: float(value) for name, value in re.findall(r'([\w-]+)="(-?[\d.]+)"', found)}
        for found in re.findall(rf"<{tag}\b([^>]*)>", text)
    ]


# --- where elements are wrong ---------------------------------------------------------------------


def drawn(**fields) -> str:
    return str(plane.drawn("here", data.WRONG | fields))


def test_the_missing_key_lies_at_its_query_and_key():
    (mark,) = [r for r in numbers("rect", drawn()) if r.get("stroke-width") == 1.4]
    step = plane.SIDE / 65
    assert mark["x"] + mark["width"] / 2 == pytest.approx(plane.LEFT + 64.5 * step, abs=0.2)
    assert mark["y"] + mark["height"] / 2 == pytest.approx(plane.TOP + 64.5 * step, abs=0.2)


def test_tile_lines_lie_between_tiles():
    dashed = [line for line in re.findall(r"<line[^>]*>", drawn()) if "dasharray" in line]
    assert len(dashed) == 2  # 64 of 65 queries, 64 of 65 keys
    assert len([1 for line in re.findall(r"<line[^>]*>", drawn(tile=[16, 32])) if "dasharray" in line]) == 4 + 2
    assert "dasharray" not in drawn(tile=None) and "dasharray" not in drawn(seqlen_q=9000, seqlen_k=9000, tile=[1, 1])


@pytest.mark.parametrize(("diagonal", "seen"), [(0, 1), (64, 65), (-1, 0), (200, 65)])
def test_the_mask_edge_lies_at_the_diagonal(diagonal, seen):
    """The first query sees keys up to `diagonal`."""
    edge = re.search(r'<path d="M50\.0,30\.0L([\d.]+),30\.0', drawn(diagonal=diagonal))
    assert float(edge[1]) == pytest.approx(plane.LEFT + seen * plane.SIDE / 65, abs=0.1)


@pytest.mark.parametrize("n", [65, 1000])
def test_a_window_has_an_edge_on_either_side(n):
    path = re.search(r'<path d="([^"]*)"', drawn(seqlen_q=n, seqlen_k=n, start=-3, diagonal=2))[1]
    last_row = [float(x) for x, y in re.findall(r"([\d.]+),([\d.]+)", path) if float(y) == plane.TOP + plane.SIDE]
    seen = [(x - plane.LEFT) * n / plane.SIDE for x in last_row]
    assert (min(seen), max(seen)) == (pytest.approx(n - 4, abs=0.5), pytest.approx(n, abs=0.5))


def test_the_mask_edge_of_many_queries_is_a_line_through_its_corners():
    path = re.search(r'<path d="([^"]*)"', drawn(seqlen_q=1000, seqlen_k=500, diagonal=-500))[1]
    ends = [float(x) for x in re.findall(r"L([\d.]+),", path)]
    width = plane.SIDE / 2
    assert min(ends) == plane.LEFT and max(ends) == pytest.approx(plane.LEFT + width, abs=0.3)


def test_one_wrong_query_of_many_is_still_seen():
    heights = [r["height"] for r in numbers("rect", drawn(seqlen_q=4096, seqlen_k=4096)) if r.get("opacity") == 0.3]
    assert heights == [plane.LEAST]


def test_without_a_mask_everything_is_seen_and_none_is_called_masked():
    assert ">masked<" in drawn() and ">masked<" not in drawn(diagonal=None)


# --- the cases that were tried --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seqlen", "words"),
    [(0, "1"), (1, "1"), (2, "2"), (3, "3..4"), (4, "3..4"), (5, "5..8"), (64, "33..64"), (65, "65..128")],
)
def test_a_length_is_in_its_range(seqlen, words):
    assert tried._range(tried._bin(seqlen)) == words


def test_a_range_has_the_worst_z_of_its_cases_and_who_had_it():
    results = [
        data.result("a", 1, tried=[[40, 64, 128, 2.5], [1, 1, 1, None]]),
        data.result("b", 1, tried=[[64, 33, 65, "inf"], [50, 50, 128, 3.0]]),
    ]
    bins = tried.binned(results)
    assert {place: (cell.cases, cell.z, cell.impl) for place, cell in bins.items()} == {
        (6, 7): (3, "inf", "b"), (0, 0): (1, None, ""),
    }  # fmt: skip
    assert "seqlen 33..64, headdim 65..128: 3 cases, worst z ∞ (b)" in tried.drawn(results)
    assert tried.drawn([data.result("a", 1)]) is None


@pytest.mark.parametrize(
    ("z", "colour", "words"),
    [
        (None, "heat-none", "·"), (0.0, "heat-0", "0.0"), (1.0, "heat-0", "1.0"), (1.01, "heat-1", "1.0"),
        (7.99, "heat-3", "8.0"), (8.0, "heat-3", "8.0"), (8.01, "heat-4", "8.0"), (12.4, "heat-4", "12"),
        (999.6, "heat-4", "1e3"), (31205.0, "heat-4", "3e4"), ("inf", "heat-4", "∞"), ("nan", "heat-4", "nan"),
    ],
)  # fmt: skip
def test_a_z_has_its_colour_and_three_letters(z, colour, words):
    assert (tried.shade(z), tried.short(z)) == (colour, words)


# --- worst z --------------------------------------------------------------------------------------


def test_the_worst_z_of_an_output_is_that_of_all_laws():
    results = [data.result("a", 1, worst_z={"out": 1.0, "lse": 0.2}), data.result("a", 2, worst_z={"out": "nan"}),
               data.result("b", 1, worst_z={}), data.result("a", 3, worst_z={"out": "inf", "lse": 0.1})]  # fmt: skip
    assert worst.worst_of(results) == {"a": {"out": "nan", "lse": 0.2}}
    assert worst.drawn(results[2:3]) is None


def test_the_limit_lies_left_of_what_exceeds_it():
    results = [data.result("a", 1, worst_z={"out": 7.9, "lse": 8.1})]
    picture = str(worst.drawn(results))
    limit = re.search(r'<line x1="([\d.]+)"[^>]*stroke="var\(--limit\)"', picture)
    marks = sorted(float(x) for x in re.findall(r"translate\(([\d.]+),53", picture))
    assert len(marks) == 2 and marks[0] < float(limit[1]) < marks[1]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e12])
def test_what_lies_outside_a_scale_is_drawn_at_its_end(value):
    scale = svg.Logarithmic(0.1, 1e6, 100, 400)
    assert (scale(value), scale(0.0), scale(1e6)) == (400, 100, 400)
    assert [words for _, words in scale.powers()] == ["0.1", "10", "1000", "1e5"]


def test_svg_escapes_text_and_attributes():
    made = svg.element("text", "<b>&", title="\"'<", x=1.25, hidden=None, class_="a", stroke_width=2)
    assert made == '<text title="&#34;&#39;&lt;" x="1.2" class="a" stroke-width="2">&lt;b&gt;&amp;</text>'


# --- colours --------------------------------------------------------------------------------------


def palettes() -> dict[str, dict[str, str]]:
    """Return the colours of style.css, of both schemes."""
    light, dark = re.findall(r":root \{(.*?)\}", (HERE / "style.css").read_text(), flags=re.S)[:2]
    read = [dict(re.findall(r"--([\w-]+): (#\w+)", text)) for text in (light, dark)]
    return {"light": read[0], "dark": read[0] | read[1]}


def luminance(colour: str) -> float:
    """Return the relative luminance of #rgb or #rrggbb (WCAG 2.2)."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


TEXT = [
    *product(("text", "quiet", "link"), ("ground", "raised")), *product(("text",), ("visible-plane", "refused-plane")),
    *((name, f"{name}-ground") for name in ("pass", "fail", "unknown", "known", "elsewhere", "busy")),
    *product(("pass", "fail", "unknown", "known", "elsewhere", "refused", "busy"), ("ground",)),
    *product(("on-heat",), ("heat-0", "heat-1", "heat-2", "heat-3", "heat-none")), ("on-heat-4", "heat-4"),
]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), TEXT)
def test_text_has_a_contrast_of_4_5(scheme, ink, ground):
    colours = palettes()[scheme]
    assert contrast(colours[ink], colours[ground]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["limit", *(f"series-{n}" for n in range(7))])
def test_marks_have_a_contrast_of_3(scheme, name):
    colours = palettes()[scheme]
    assert contrast(colours[name], colours["ground"]) >= 3


def test_contrast_is_that_of_the_standard():
    assert contrast("#fff", "#000000") == pytest.approx(21) and contrast("#777", "#fff") == pytest.approx(
        4.48, abs=0.01
    )
