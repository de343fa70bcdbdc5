"""The pages of a sweep, the benchmark and the planted bugs: first screen, links, filters."""

from __future__ import annotations

import pytest

from flash_attest.mutants import ALL
from flash_attest.mutants.power.report import chapter_of
from flash_attest.mutants.power.tables import tables_of
from tests.page.test_using import IN_VIEW, pasted, said, shown
from tests.places import ROOT

*ON_A_CPU, GPU = tables_of([ROOT / "docs" / "measured" / "power.json"])
JUDGED = {name for table in (*ON_A_CPU, GPU) for name in table.rows}  # planted bugs
MISSED = {name for table in (*ON_A_CPU, GPU) for name, row in table.rows.items() if not row.caught}
CAUGHT = sum(row.caught for row in GPU.rows.values())
FIRST = {  # page -> the verdict, and a link below it
    "sweep_red": ("not green: 2 findings in 4 runs of 3 implementations", "write after read, no barrier between"),
    "bench": ("6 of 8 cells timed, 1 wrong", "out of batch 0 is off by 10%"),
    "power": (f"{CAUGHT} of {len(GPU.rows)} on a GPU", next(name for name, row in GPU.rows.items() if row.survives)),
}


@pytest.mark.parametrize(("name", "width"), list(zip(FIRST, (400, 1440, 400), strict=True)))
def test_the_first_screen_has_the_verdict_and_leads_to_the_first_problem(visit, name, width):
    page = visit(name, width=width)
    verdict, problem = FIRST[name]
    assert verdict in page.locator("h1").inner_text()
    link = page.locator(".why a", has_text=problem).first
    assert link.bounding_box()["y"] < 900
    link.click()
    target = page.locator(page.evaluate("'#' + CSS.escape(location.hash.slice(1))"))
    assert target.evaluate(IN_VIEW) and problem in target.inner_text()


def test_a_green_sweep_is_green_and_its_matrix_is_on_the_first_screen(visit):
    page = visit("sweep_green")
    assert "nothing found in 30 runs of 1 implementation" in page.locator("h1").inner_text()
    assert page.locator(".matrix .cell.pass").bounding_box()["y"] < 900


def test_the_filter_of_a_sweep(visit):
    page = visit("sweep_red")
    page.locator("[name=impl]").select_option("known")
    assert len(shown(page, ".card")) == 1 and shown(page, ".matrix tbody th") == ["known"]
    assert page.locator("#matches").inner_text() == "1 of 4"
    page.locator("[name=impl]").select_option("")
    page.locator("[name=kind]").select_option("elsewhere")
    assert len(shown(page, ".card")) == 1


def test_a_finding_is_copied(visit):
    page = visit("sweep_red")
    page.locator("button[data-copy$=message]").first.click()
    said(page, "#said", "Copied")
    assert pasted(page) == page.locator("pre").first.text_content()


def test_the_filter_of_the_benchmark(visit):
    page = visit("bench")
    rows = len(shown(page, "#ratios\\.float32 tbody tr"))
    page.locator("[name=pass]").select_option("backward")
    assert 0 < len(shown(page, "#ratios\\.float32 tbody tr")) < rows


def test_bugs_that_nobody_misses_are_hidden(visit):
    """Few matches open their folds; many leave them closed, with a count."""
    page = visit("power")
    page.locator("[name=missed]").select_option("laws")
    assert page.locator("#matches").inner_text().endswith(f" of {len(JUDGED)}")
    assert len(shown(page, "tbody[data-item]")) == len(MISSED)
    page.locator("[name=missed]").select_option("pytorch")
    assert not shown(page, "tbody[data-item]")
    counts = [int(text.split()[1]) for text in shown(page, ".hits") if text]
    assert sum(counts) == int(page.locator("#matches").inner_text().split()[0]) > 40


def test_a_row_of_the_matrix_of_bugs_leads_to_them(visit):
    page = visit("power")
    row = page.locator(".matrix tbody tr", has_text="causal").first
    row.locator("a").first.click()
    fold = page.locator("#bugs\\.causal")
    assert fold.evaluate("(e) => e.open") and fold.evaluate(IN_VIEW)
    causal = sum(chapter_of(bug) == "causal" for bug in ALL if bug.name in JUDGED)
    assert len(shown(page, "#bugs\\.causal tbody")) == causal > 20
