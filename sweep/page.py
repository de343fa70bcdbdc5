"""The page of a sweep: index.html, report of a summary."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from flash_attest.runner.page.template import BAD, GOOD, OPEN, render
from flash_attest.runner.page.words import plural, slug
from flash_attest.sweep.plan import LAYERS

TEMPLATE = Path(__file__).with_name("page.html.j2")
OPEN_CARDS = 3  # cards that are open at first: more would hide what stands below them
FOUND, KNOWN, EARLIER, UNDECIDED, CLEAN, REFUSED = "fail", "known", "elsewhere", "unknown", "pass", "refused"
# What the signs of verdicts mean on this page. A cell has the first of these that fits.
WORDS = {
    FOUND: "found", KNOWN: "known failure", UNDECIDED: "unknown", CLEAN: "nothing found", REFUSED: "refused",
    EARLIER: "not swept",
}  # fmt: skip
KINDS = {FOUND: "found", KNOWN: "known", EARLIER: "in an earlier version"}


@dataclass(frozen=True)
class Cell:
    """The verdict of one layer on an implementation. anchor: the id of what tells more."""

    kind: str
    runs: str
    says: str
    anchor: str


@dataclass(frozen=True)
class MatrixRow:
    """An implementation, with a cell for each layer, or None if nothing is known."""

    impl: str
    anchor: str
    cells: list[Cell | None]


def page(report: dict) -> str:
    """Return a summary as HTML."""
    cards = cards_of(report["findings"])
    current, reasons = _current(cards), _reasons(report, cards)
    columns = _columns(report)
    rows = rows_of(report, cards, columns)
    last = report["sessions"][-1]["environment"] if report["sessions"] else {}
    totals = {
        name: sum(row[name] for one in report["implementations"].values() for row in one["layers"])
        for name in ("runs", "repeats")
    }
    kinds = {card["kind"] for card in cards}
    return render(
        TEMPLATE,
        tone=BAD if current else OPEN if reasons else GOOD,
        **report,
        headline=verdict_of(report),
        cards=cards,
        current=current,
        reasons=reasons,
        columns=columns,
        rows=rows,
        shown=[kind for kind in WORDS if any(cell and cell.kind == kind for row in rows for cell in row.cells)],
        words=WORDS,
        last={name: last.get(name) for name in ("command", "device_name", "workers")},
        versions={name: version for name, version in last.get("versions", {}).items() if version},
        seconds=sum(session["seconds"] for session in report["sessions"]),
        totals=totals,
        names=[(name, name) for name in report["implementations"]],
        layers=[(name, name) for name in columns],
        kinds=[(kind, KINDS[kind]) for kind in KINDS if kind in kinds],
        anchors={name: slug("runs", name) for name in report["implementations"]},
        not_swept=_not_swept(report["left_out"]),
        thousands="{:,}".format,
        bound=bound,
        called=called,
    )


def verdict_of(report: dict) -> str:
    """Return the verdict of a sweep in a line, for the page and the terminal."""
    cards = cards_of(report["findings"])
    runs = sum(row["runs"] for one in report["implementations"].values() for row in one["layers"])
    return headline(cards, _reasons(report, cards), runs, len(report["implementations"]))


def _current(cards: list[dict]) -> list[dict]:
    return [card for card in cards if card["kind"] == FOUND]


def _reasons(report: dict, cards: list[dict]) -> list[str]:
    """Return why the sweep is not green, apart from its findings."""
    headlines = {f"{card['impl']}, {card['layer']}: {card['headline']}" for card in _current(cards)}
    return [line for line in report["not_green"] if line not in headlines]


def headline(cards: list[dict], reasons: list[str], runs: int, impls: int) -> str:
    """ "nothing found in 12,345 runs of 3 implementations", or why the sweep is not green."""
    counts = Counter(card["kind"] for card in cards)
    where = f"in {runs:,} {'run' if runs == 1 else 'runs'} of {plural(impls, 'implementation')}"
    if counts[FOUND]:
        return f"not green: {plural(counts[FOUND], 'finding')} {where}"
    if not runs:
        return "not green: no run has a verdict"
    nothing = f"nothing found {where}"
    if counts[KNOWN]:
        nothing += f", except {plural(counts[KNOWN], 'known failure')}"
    return f"not green: {nothing}, but {plural(len(reasons), 'reason')}" if reasons else nothing


def cards_of(findings: Iterable[dict]) -> list[dict]:
    """Return the findings with kind, anchor, and whether each is open; those that count first."""
    cards, order = [], list(KINDS)
    for finding in findings:
        kind = EARLIER if not finding["current"] else KNOWN if finding["known"] else FOUND
        place = finding["impl"], finding["version"], finding["law"], finding["device"], finding["key"]
        digest = hashlib.sha256("\0".join(place).encode()).hexdigest()[:8]
        cards.append(
            finding | {"kind": kind, "anchor": f"{slug('finding', finding['impl'], finding['layer'])}.{digest}"}
        )
    cards.sort(key=lambda card: order.index(card["kind"]))
    return [card | {"open": card["kind"] == FOUND and n < OPEN_CARDS} for n, card in enumerate(cards)]


def bound(p: float | None) -> str:
    """Return "p < 0.0031", or "" if nothing is bounded."""
    return "" if p is None else f"p < {p:.2g}"


def called(name: str, one: dict) -> str:
    """Return an implementation's name, with the number of its versions if hosts differ."""
    return f"{name} ({n} versions)" if (n := len(one["versions"])) > 1 else name


def _columns(report: dict) -> list[str]:
    """Return the layers that the summary mentions, in the order in which they are drawn."""
    layers = {row["layer"] for one in report["implementations"].values() for row in one["layers"]}
    layers |= {row["layer"] for row in report["left_out"]}
    return [name for name in LAYERS if name in layers] + sorted(layers - LAYERS.keys())


def rows_of(report: dict, cards: list[dict], columns: list[str]) -> list[MatrixRow]:
    """Return the rows of the matrix: implementations with findings first."""
    left_out = {(row["impl"], row["layer"]): row["reason"] for row in report["left_out"]}
    names = dict.fromkeys([*report["implementations"], *(impl for impl, _ in left_out)])
    rows = []
    for name in names:
        layers = report["implementations"].get(name, {"layers": []})["layers"]
        own = [card for card in cards if card["impl"] == name and card["kind"] != EARLIER]
        cells = [
            _cell(name, layer, [row for row in layers if row["layer"] == layer],
                  [card for card in own if card["layer"] == layer], left_out.get((name, layer)))
            for layer in columns
        ]  # fmt: skip
        anchor = slug("runs", name) if name in report["implementations"] else "runs"
        rows.append(MatrixRow(name, anchor, cells))
    order = list(WORDS)
    return sorted(rows, key=lambda row: (min((order.index(c.kind) for c in row.cells if c), default=9), row.impl))


def _cell(name: str, layer: str, rows: list[dict], cards: list[dict], left_out: str | None) -> Cell | None:
    """rows: of this layer, one for each device; cards: what it found."""
    if not rows:
        says = f"{name}, {layer}: not swept, {left_out}"
        return Cell(EARLIER, "", says, "runs") if left_out else None
    total = {key: sum(row[key] for row in rows) for key in ("runs", "failed", "undecided", "refused", "repeats")}
    kind = (
        cards[0]["kind"] if cards else FOUND if total["failed"] else UNDECIDED if total["undecided"]
        else CLEAN if total["runs"] else REFUSED
    )  # fmt: skip
    says = f"{name}, {layer}: {total['runs']:,} runs, {total['repeats']:,} repeats, {total['failed']} found, "
    says += f"{total['undecided']} unknown, {total['refused']} refused"
    anchor = cards[0]["anchor"] if cards else "undecided" if kind == UNDECIDED else slug("runs", name)
    return Cell(kind, f"{total['runs']:,}" if total["runs"] else "", says, anchor)


def _not_swept(left_out: list[dict]) -> list[tuple[str, str, list[str]]]:
    """(layer, why, implementations) of what was not drawn."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in left_out:
        groups.setdefault((row["layer"], row["reason"]), []).append(row["impl"])
    return [(layer, reason, impls) for (layer, reason), impls in groups.items()]
