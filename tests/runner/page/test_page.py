"""The page of a run as text: what it says, what it escapes, and that older files still open."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from flash_attest.command import docs
from flash_attest.runner.page import cards, matrix, records
from flash_attest.runner.page.run import run_page
from flash_attest.runner.plugin.saved import NEW
from tests.runner.page import data

EVIL = "</script></pre></title></textarea><img src=x onerror=alert(1)>\"'><b>{{ 7 * 7 }}&amp;<!--"


class Elements(HTMLParser):
    """The elements of a page, how often each is there, and the text of scripts."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: Counter = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.ids: Counter = Counter()
        self._in_script = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.attributes += attributes
        self.ids.update(value for name, value in attributes if name == "id")
        if tag == "script":
            self.scripts.append("")
            self._in_script = True

    def handle_endtag(self, tag):
        self._in_script &= tag != "script"

    def handle_data(self, text):
        if self._in_script:
            self.scripts[-1] += text


def written(text: str) -> str:
    """Return the page of a run with this text wherever an implementation may put one."""
    wrong = data.WRONG | {"tensor": text}
    fields = {"message": text, "replay": text, "smallest": text, "declared_at": text, "found_at": text, "before": text}
    results = [
        data.failed("mine", 1, text, clue=text, wrong=wrong) | fields | {"worst_z": {text: 3.0}},
        data.failed(text, 2, text, known=text) | fields,
        data.result("mine", 3, "unknown", reason=text, why="suite", message=text),
        data.result(text, 4, "unknown", reason=text, why="other device"),
        data.result("mine", 5, observed={"calls": 1, "operators": {f"{text}::attention": 1}, "processes": 0}),
    ]
    facts = dict.fromkeys(("command", "device_name", "profile", "started", "platform", "verdict"), text)
    return run_page(results, data.environment(results, versions={text: text}, elsewhere={text: text}, **facts))


def test_hostile_text_adds_no_element_and_ends_no_script():
    plain, hostile = Elements(written("harmless")), Elements(written(EVIL))
    assert hostile.tags == plain.tags
    assert len(hostile.attributes) == len(plain.attributes) and not [a for a, _ in hostile.attributes if a[:2] == "on"]
    assert EVIL in json.loads(hostile.scripts[0])["words"]
    assert hostile.scripts[1] == plain.scripts[1]


def test_the_policy_allows_the_script_of_the_page_and_nothing_else():
    page = written(EVIL)
    policy = re.search(r'Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    digest = base64.b64encode(hashlib.sha256(Elements(page).scripts[1].encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


@pytest.mark.parametrize("name", data.RUNS)
def test_ids_are_unique_and_links_lead_somewhere(name):
    page = Elements(run_page(*data.RUNS[name]()))
    assert [id for id, times in page.ids.items() if times > 1] == []
    in_rows = re.compile(r"#laws\..*\.\w+")  # made when the fold is opened
    links = {value[1:] for name, value in page.attributes if name == "href" and not in_rows.fullmatch(value)}
    assert links - set(page.ids) == set() and links


def test_names_that_differ_in_odd_characters_only_have_their_own_ids():
    results = [data.failed(name, 1, "wrong") for name in ("a b", "a-b", "a<b", "a.b")]
    page = Elements(run_page(results, data.environment(results)))
    assert len([id for id in page.ids if id.startswith("laws.a")]) == 4 and max(page.ids.values()) == 1
    assert not [id for id in page.ids if set(id) & set(" <>\"'&")]


def test_the_address_of_a_cause_is_the_same_in_another_run():
    results, facts = data.failing()

    def anchors(some: list[dict]) -> set[str]:
        return {card.anchor for card in cards.failures(records.complete(some, facts), cards.Anchors())}

    fewer = [result for result in results if result["impl"] == "mine"]
    assert anchors(fewer) < anchors(results) == anchors(results[::-1])


def test_a_file_of_format_1_opens():
    results, facts = data.failing()
    old = [{name: value for name, value in result.items() if name not in NEW} for result in results]
    page = run_page(old, {name: facts[name] for name in ("versions", "device", "started", "command")})
    assert "query 64 sees 64 keys, should see 65: key 64 is missing" in page and "Where out is wrong" not in page


def test_the_strip_says_how_far_an_unfinished_run_came():
    results, facts = data.running()
    page = run_page(results, facts)
    assert "running: 40 of 69 decided" in page and 'class="strip busy"' in page
    stopped = run_page(results, facts | {"state": "interrupted", "options": {}})
    assert "interrupted: 40 of 69 decided" in stopped and 'class="strip open"' in stopped and "--resume" in stopped
    of_decorated_tests = {name: value for name, value in facts.items() if name != "options"}
    assert "--resume" not in run_page(results, of_decorated_tests | {"state": "interrupted"})
    assert 'class="strip bad"' in run_page([*results, data.failed("mine", 1, "wrong")], facts)


def test_the_strip_of_a_whole_run_has_its_verdict():
    results, facts = data.green()
    n = Counter(result["verdict"] for result in results)
    page = run_page(results, facts)
    line = f"green: {n['pass']} laws hold; {n['refused']} do not apply; {n['unknown']} need a GPU"
    assert line in page and 'class="strip good"' in page
    asked = run_page(results, facts | {"options": {"impl": "all"}})
    assert f"not green: {n['unknown']} laws undecided; {n['pass']} hold" in asked and 'class="strip open"' in asked


def test_a_file_that_cannot_be_loaded_is_no_law_that_fails():
    results, facts = data.green()
    unloaded = data.result(
        "hers", data.CONTRACT, "fail", why="not loaded", reason="hers.py:3: importing it raises NameError"
    )
    held = sum(result["verdict"] == "pass" for result in results)
    page = run_page([*results, unloaded], facts)
    assert f"not green: 1 file cannot be loaded; {held} laws hold" in page and 'class="strip bad"' in page
    assert f"1 file cannot be loaded, 0 fail, {held} pass</title>" in page
    assert "hers, contract: 1 not loaded of 1 law" in page


def test_implementations_of_another_device_are_named():
    results, facts = data.running()
    reason = "runs on cuda only; this run judges on cpu"
    page = run_page(results, facts | {"elsewhere": {"triton_x": reason}})
    assert "Not judged here: triton_x" in page and reason in page


# --- the matrix -----------------------------------------------------------------------------------


def rows(*results: dict) -> list[matrix.Row]:
    complete = records.complete(results, {})
    return matrix.rows_of(complete, matrix.chapters_of(complete))


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        (("pass", "fail"), "fail"), (("pass", "unknown"), "unknown"), (("pass", "refused"), "pass"),
        (("known", "pass"), "known"), (("known", "fail"), "fail"), (("elsewhere", "pass"), "pass"),
        (("elsewhere", "refused"), "elsewhere"), (("refused",), "refused"), (("unknown", "fail"), "fail"),
    ],
)  # fmt: skip
def test_a_cell_shows_the_worst_verdict(verdicts, worst):
    made = {
        "known": {"verdict": "fail", "known": "#1"},
        "elsewhere": {"verdict": "unknown", "why": "law of other device"},
    }
    laws = [
        data.result("mine", n) | made.get(v, {"verdict": v}) | {"chapter": "test_x"} for n, v in enumerate(verdicts)
    ]
    (row,) = rows(*laws)
    assert row.cells[0].verdict == worst


@pytest.mark.parametrize(
    ("verdict", "zs", "shown"),
    [
        ("pass", [0.5, 3.14159], "3.1"), ("pass", [], ""), ("pass", [3.0, "nan"], "nan"), ("fail", ["inf", 2.0], "∞"),
        ("fail", [3120.5], "3.1e3"), ("fail", [0.7], ""),  # the law that fails compares exactly
    ],
)  # fmt: skip
def test_a_cell_shows_the_worst_z(verdict, zs, shown):
    (row,) = rows(*(data.result("mine", 1, verdict, law=f"test_{n}", worst_z={"out": z}) for n, z in enumerate(zs or [])),
                  *([] if zs else [data.result("mine", 1, verdict)]))  # fmt: skip
    assert row.cells[0].z == shown


def test_implementations_that_fail_come_first():
    results = [data.result("a", 1), data.result("b", 1, "fail"), data.result("c", 1, "unknown", why="suite")]
    assert [row.impl for row in rows(*results)] == ["b", "c", "a"]


# --- the packed rows ------------------------------------------------------------------------------


def test_the_packed_rows_have_every_verdict():
    results, facts = data.failing()
    packed = json.loads(Elements(run_page(results, facts)).scripts[0])
    words = packed["words"]
    read = {
        (packed["impls"][impl][0], words[law]): (packed["verdicts"][verdict][0], words[reason], {
            words[tensor]: z for tensor, z in zip(more[::2], more[1::2], strict=True)})
        for impl, _, law, verdict, _, reason, _, *more in packed["rows"]
    }  # fmt: skip
    assert len(read) == len(packed["rows"]) == len(results)
    assert read["theirs", results[-4]["law"]][0] == "unknown"
    (known,) = [law for (impl, _), law in read.items() if law[0] == "known"]
    assert known == ("known", "row is NaN, should be zero (known: gives NaN, #17)", {"out": "3.1e3"})


def test_1518_verdicts_are_less_than_500_kb():
    results, facts = data.green()
    assert len(results) == 1518 and len(run_page(results, facts).encode()) < 500_000


def test_documents_that_a_page_names_are_there(capsys):
    named = set(re.findall(r"flash-attest docs ([\w-]+(?:#[\w-]+)?)", run_page(*data.failing())))
    assert "bugs#backward" in named and len(named) >= 3
    for name in named:
        assert docs.run([name]) == 0, name
