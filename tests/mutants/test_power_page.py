"""The page of the matrix has every bug, who catches it, and what survives."""

import re
from dataclasses import replace

import pytest

from flash_attest.mutants.power import page as pages
from flash_attest.mutants.power.page import page
from flash_attest.mutants.power.report import BY_NAME
from flash_attest.mutants.power.rules import PEERS
from flash_attest.mutants.power.tables import Row, Table, table_of, tables_of
from tests.mutants.power_records import NAMES, TWO_LAWS, record_lacking
from tests.mutants.test_power_command import two_found
from tests.places import ROOT


@pytest.fixture(scope="module")
def committed():
    """The page of the committed rows, and the rows."""
    tables = tables_of([ROOT / "docs" / "measured" / "power.json"])
    return page(tables), tables


def rows_of(text):
    """Return name -> its part of the list of bugs."""
    return dict(re.findall(r'<tbody id="bug\.(\w+)"(.*?)</tbody>', text, re.S))


def test_every_bug_has_a_row_in_each_environment(committed):
    text, tables = committed
    rows = rows_of(text)
    assert rows.keys() == {name for table in tables for name in table.rows}
    for name, row in rows.items():
        assert row.count("<tr>") == sum(name in table.rows for table in tables), name


def test_the_headline_counts_and_a_survivor_is_linked(committed):
    text, _ = committed
    on_cpus = "345 of 345 planted bugs are caught on a CPU (Python 3.11.7), 298 of 299 on a CPU (Python 3.12.3)"
    assert f"{on_cpus}, 311 of 314 on a GPU" in text
    assert '<header class="strip bad">' in text
    assert '<a href="#bug.numba_fa2_row_sums_go_through_memory">' in text
    targets = set(re.findall(r' id="([^"]+)"', text))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= targets


def test_marks_are_the_verdicts():
    table = table_of(two_found())
    caught, survives = (rows_of(page([table]))[name] for name in NAMES)
    titles = [peer.title for peer in PEERS]
    marks = re.findall(r'title="(.*?): (.*?)">', caught)
    assert marks == [(title, "caught" if title == "allclose 1e-2" else "missed") for title in titles]
    assert "no_dout_gives_no_gradient" in caught and ": pass in up to 300 cases" in survives
    assert 'data-missed="flash_attention pytorch kernel_bench_1e_2 kernel_bench_1e_4"' in caught
    assert 'data-missed="flash_attention pytorch allclose kernel_bench_1e_2 kernel_bench_1e_4 laws others"' in survives


def test_a_bar_is_as_long_as_the_share():
    table = table_of(two_found())
    (_, every), breaks, planted = pages.matrix_of(table).items()
    assert every["all"]["laws"].percent == 50 and every["all"]["pytorch"].percent == 0
    assert list(breaks[1]) == ["backward"] and list(planted[1]) == ["tiled"]
    assert "var(--heat-1) 50%,var(--raised) 50%" in page([table])


@pytest.mark.parametrize(
    "change, tone, words",
    [
        ({"searched": "pass"}, "bad", "1 of 2 planted bugs"),
        ({"searched": "fail"}, "good", "2 of 2 planted bugs"),
        ({"finished": False}, "open", "1 planted bug has not been judged to the end"),
    ],
)
def test_the_strip_says_whether_all_are_caught(change, tone, words):
    table = table_of(two_found())
    rows = dict(table.rows) | {NAMES[1]: replace(table.rows[NAMES[1]], **change)}
    text = page([replace(table, rows=rows)])
    assert f'<header class="strip {tone}">' in text and words in text


def test_laws_that_the_rows_do_not_name_are_counted():
    row = Row(kills=5, laws=TWO_LAWS, peers={}, detail="")
    assert pages._verdicts(NAMES[0], row).words.endswith("gradients_match_the_definition, and 3 more")


def test_text_is_text(monkeypatch):
    """Details come from the kernels that were judged."""
    record = record_lacking(names=NAMES[:1])
    record.entries[NAMES[0]].verdicts[TWO_LAWS[0]] = "fail"
    record.entries[NAMES[0]].details[TWO_LAWS[0]] = "</td><script>alert(1)</script>"
    text = page([table_of(record)])
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text


def test_nothing_judged_is_a_page_too():
    text = page([Table(dict(table_of(two_found()).environment), {}, {}, {}, {})])
    assert '<header class="strip open">' in text and "0 of 0 planted bugs" in text


def test_the_picture_has_a_column_for_each_bug():
    names = sorted(BY_NAME)[:6]
    rows = {
        name: Row(kills=1, laws=TWO_LAWS[:1], peers={"pytorch": "fail"} if n < 2 else {})
        for n, name in enumerate(names)
    }
    table = replace(table_of(two_found()), rows=rows)
    assert "The laws catch 6 of 6; FlashAttention 0, PyTorch 2, allclose 1e-2 0" in page([table])
