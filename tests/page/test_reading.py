"""A page is read: at two widths, in both colour schemes, by a screen reader, without JavaScript."""

from __future__ import annotations

import pytest

PAGES = ("green", "failing", "running", "empty", "compare", "sweep_green", "sweep_red", "bench", "power")
WIDE, NARROW = ({"width": width, "height": 900} for width in (1440, 400))
COLOURS = ["color-contrast", "link-in-text-block"]  # rules of axe whose result depends on the scheme
SIZES = ["scrollable-region-focusable"]  # and on the width
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FILLED = "[...document.querySelectorAll('[data-laws][open]')].every((fold) => fold.querySelector('.frame'))"
OPEN_ALL = "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
# axe takes seconds for a thousand rows, so it gets one of each shape: the same elements, with the
# same classes.
THIN = """() => {
  for (const kind of ['tbody tr', 'tbody', '.fold']) {
    const seen = new Set();
    for (const part of document.querySelectorAll(kind)) {
      const all = [part, ...part.querySelectorAll('*')];
      const shape = all.map((e) => e.tagName + '.' + e.getAttribute('class')).join(' ');
      if (seen.has(shape)) part.remove();
      seen.add(shape);
    }
  }
}"""


def opened(page, script: str) -> None:
    """Open folds, and wait until they have their rows."""
    page.evaluate(script)
    page.wait_for_function(FILLED)


def fits_in_both_widths(page) -> None:
    """Check that nothing has to be scrolled sideways. The page is narrow afterwards."""
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        assert page.evaluate(SIDEWAYS) == 0


def wrong_in(page, **options: object) -> list[tuple[str, str, str]]:
    """Return what axe finds: the rule, the element and the reason."""
    from axe_playwright_python.sync_playwright import Axe  # other runs have no axe

    found = Axe().run(page, options={"resultTypes": ["violations"], **options}).response["violations"]
    return [(rule["id"], str(node["target"]), node["failureSummary"]) for rule in found for node in rule["nodes"][:3]]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_window_and_axe_finds_nothing(visit, name):
    """The wide and the narrow page have the same colours, and the narrow one shows nothing else, so
    that other rules have one result.
    """
    page = visit(name)
    fits_in_both_widths(page)
    opened(page, OPEN_ALL)
    fits_in_both_widths(page)
    page.evaluate(THIN)
    assert wrong_in(page, runOnly=SIZES) == []
    page.set_viewport_size(WIDE)
    assert wrong_in(page) == []
    page.emulate_media(color_scheme="dark")
    assert wrong_in(page, runOnly=COLOURS) == []


def test_the_first_screen_says_what_fails_and_leads_there(visit):
    page = visit("failing")
    first = page.locator(".why li").first
    assert "not green" in page.locator("h1").inner_text()
    link = page.get_by_role("link", name="query 64 sees 64 keys, should see 65: key 64 is missing").first
    assert first.is_visible() and link.bounding_box()["y"] < 900
    link.click()
    card = page.locator(page.evaluate("'#' + CSS.escape(location.hash.slice(1))"))
    assert 0 <= card.bounding_box()["y"] < 300 and "mine.py:12" in card.inner_text()


def test_text_of_an_implementation_stays_text_and_pictures_say_what_they_show(visit):
    page = visit("failing")
    opened(page, OPEN_ALL)
    assert page.locator("main script, main b").count() == 0
    for holder in (".why", ".matrix", ".card pre", ".laws", "svg title", "option"):
        assert "<script>alert(1)</script>" in " ".join(page.locator(holder).all_text_contents()), holder
    images = page.get_by_role("img").all()
    says = {image.locator("title").first.text_content(): image.locator("desc").text_content() for image in images}
    out = says["Where out is wrong: 65 queries, 65 keys"]
    assert out == "out is wrong, in query 64, missing: key 64 of query 64, tiles of 64 queries and 64 keys."
    assert "in queries 0 to 2, at keys 4096 to 4098, extra: key 4097" in says["Where dk is wrong: 3 queries, 4099 keys"]
    assert "2 of 3 implementations exceed 8" in says["Worst z of each output, by implementation"]
    assert len(says) == 4 and "cases in" in says["All cases tried: seqlen by headdim, coloured by the worst z"]


def test_a_page_without_javascript_has_the_verdict_the_matrix_and_the_messages(visit):
    page = visit("failing", java_script_enabled=False)
    assert page.locator(".matrix a").count() > 10
    assert "query i sees key j" in " ".join(page.locator("pre").all_text_contents())
    page.locator(".why a").first.click()
    assert page.url.partition("#")[2].startswith("cause.")


def test_1518_verdicts_are_small_and_soon_there_and_their_matrix_fits_a_screen(visit, files, request):
    """The size is asserted. The time depends on what else the machine does, so it is printed."""
    from tests.page.conftest import SPEED

    page = visit("green")
    page.screenshot()  # waits until it is painted
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    load = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    size = files["green"].stat().st_size
    line = f"1,518 verdicts: {size / 1000:.0f} kB (500 allowed); first paint after {paint:.0f} ms, loaded after "
    line += f"{load:.0f} ms (300 wanted)"
    request.config.stash.setdefault(SPEED, []).append(line)
    assert len(page.evaluate("attest.data.rows")) == 1518 and size < 500_000
    frame = page.locator(".matrix").bounding_box()
    assert page.locator(".matrix tbody tr").count() == 22 and frame["width"] <= 1440
    assert page.locator(".matrix thead th").count() == 16 and frame["height"] <= 900
