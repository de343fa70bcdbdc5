"""A page is used: filter, links, folds, addresses and copy buttons, by mouse and by keyboard."""

from __future__ import annotations

import re

import pytest

IN_VIEW = "(e) => { const at = e.getBoundingClientRect(); return at.top >= 0 && at.top < innerHeight; }"


def shown(page, selector: str) -> list[str]:
    """Return the text of the elements that are visible, after the page has done what is due."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    return page.locator(selector).filter(visible=True).all_inner_texts()  # asked one by one, 300 rows take 20 s


def said(page, selector: str, words: str) -> None:
    """Wait until an element has this text."""
    from playwright.sync_api import expect  # other runs have no playwright

    expect(page.locator(selector)).to_have_text(words)


# --- the filter ----------------------------------------------------------------------------------


def test_text_filters_causes_laws_and_matrix(visit):
    page = visit("failing")
    page.get_by_role("searchbox").fill("64 missing")
    assert len(shown(page, ".card")) == 1
    assert shown(page, ".matrix tbody th") == ["mine"]
    assert shown(page, ".matrix .cell") == ["✗\nfail\n3.1e3"]
    assert page.locator("#matches").inner_text() == "3 of 94 laws"
    page.locator(".fold[data-laws]:visible summary").click()
    assert len(shown(page, ".laws tbody td:first-child")) == 3
    page.get_by_role("button", name="Clear").click()
    said(page, "#matches", "")
    assert len(shown(page, ".matrix tbody th")) == 4 and len(shown(page, ".laws tbody td:first-child")) == 33


def test_a_choice_filters_and_nothing_is_shown_that_does_not_match(visit):
    page = visit("failing")
    for field, value, laws in (("verdict", "unknown", 2), ("verdict", "known", 1), ("impl", "theirs", 31)):
        page.locator(f"[name={field}]").select_option(value)
        assert page.locator("#matches").inner_text() == f"{laws} of 94 laws"
        assert f"{field}={value}" in page.url
        page.locator(f"[name={field}]").select_option("")
    page.get_by_role("searchbox").fill("no law has xyzzy")
    assert not shown(page, ".card, .fold[data-laws], .matrix tbody tr")
    assert page.locator("#matches").inner_text() == "0 of 94 laws"


def test_the_address_keeps_the_filter(visit):
    page = visit("failing")
    page.get_by_role("searchbox").fill("64 & key=#1 %")
    page.locator("[name=verdict]").select_option("fail")
    page.reload()
    assert page.get_by_role("searchbox").input_value() == "64 & key=#1 %"
    assert page.locator("[name=verdict]").input_value() == "fail"
    page.get_by_role("searchbox").fill("64 missing")
    page.reload()
    assert len(shown(page, ".card")) == 1


def test_the_filter_of_a_comparison_hides_rows(visit):
    page = visit("compare")
    rows = len(shown(page, "tr[data-item]"))
    page.locator("[name=impl]").select_option("theirs")
    assert 0 < len(shown(page, "tr[data-item]")) < rows


# --- links and addresses -------------------------------------------------------------------------


def test_a_cell_leads_to_its_laws(visit):
    page = visit("green")
    page.locator(".matrix tbody tr", has_text="numba_fa2").locator("a.cell").nth(5).click()
    section = page.locator(page.evaluate("'#' + CSS.escape(location.hash.slice(1))"))
    assert page.url.endswith("#laws.numba_fa2.causal") and section.evaluate(IN_VIEW)
    assert "exactly_its_prefix" in section.inner_text()
    page.go_back()
    assert "#" not in page.url


def test_an_address_opens_what_it_names(visit):
    page = visit("failing", "#cause.theirs")  # one that is not there does no harm
    anchor = page.locator(".card.known").get_attribute("id")
    page = visit("failing", f"#{anchor}")
    card = page.locator(".card.known")
    assert card.evaluate(IN_VIEW) and card.evaluate("(e) => e.open")


def test_a_law_leads_to_its_cause_and_the_filter_stays(visit):
    page = visit("failing", "#verdict=fail&impl=mine")
    page.locator(".fold[data-laws]:visible summary").click()
    page.locator(".laws a").last.click()
    assert re.search(r"#cause\.[^&]*&verdict=fail&impl=mine$", page.url)
    assert page.locator(".card.here-now").evaluate(IN_VIEW)
    page.reload()
    assert page.locator("[name=impl]").input_value() == "mine"
    assert page.locator(".card.here-now").evaluate(IN_VIEW)


def test_links_work_from_the_keyboard(visit):
    page = visit("failing")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.locator(".matrix a.cell").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('.fold') !== null")
    assert "#laws." in page.url


# --- copying -------------------------------------------------------------------------------------


def pasted(page) -> str:
    """Return what is on the clipboard, by pasting it."""
    page.evaluate("document.body.prepend(Object.assign(document.createElement('textarea'), {id: 'pasted'}))")
    page.locator("#pasted").focus()
    page.keyboard.press("Control+V")
    return page.locator("#pasted").input_value()


@pytest.mark.parametrize(("by", "what"), [("mouse", "replay"), ("keyboard", "message")])
def test_a_button_copies(visit, by, what):
    page = visit("failing")
    card = page.locator(".card", has_text="declared at mine.py:12").first
    button = card.locator(f"button[data-copy$={what}]").first
    if by == "mouse":
        button.click()
    else:
        button.focus()
        page.keyboard.press("Enter")
    said(page, "#said", "Copied")
    assert button.inner_text() == "Copied"
    wanted = card.locator(f"[id$={what}]").first.text_content()
    assert pasted(page) == wanted and "seqlen_q=65" in wanted


def test_a_browser_without_the_clipboard_api_copies_too(visit):
    page = visit("failing")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.locator("button[data-copy=command]").click()
    said(page, "#said", "Copied")
    assert pasted(page).startswith("flash-attest check")
