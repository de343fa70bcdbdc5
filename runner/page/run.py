"""The page of a run: index.html, made of what results.json has."""

from __future__ import annotations

from pathlib import Path

from flash_attest.oracle import Z_LIMIT
from flash_attest.runner.causes import causes_of, in_words
from flash_attest.runner.page import cards, matrix, records, rows, strip, tried, worst
from flash_attest.runner.page.template import HERE, render
from flash_attest.runner.page.words import VERDICTS, plural
from flash_attest.runner.plugin import times
from flash_attest.runner.untrusted.observed import sentences

TEMPLATE = HERE / "run.html.j2"
SCRIPTS: tuple[Path, ...] = (HERE / "laws.js",)


def run_page(results: list[dict], environment: dict) -> str:
    """Return the page of a run, whole or unfinished.

    results, environment: as in results.json, of any format.
    """
    results = records.complete(results, environment)
    chapters = matrix.chapters_of(results)
    table = matrix.rows_of(results, chapters)
    order = {row.impl: n for n, row in enumerate(table)}
    results.sort(key=lambda result: (order[result["impl"]], chapters.index(result["chapter"])))
    anchors = cards.Anchors()
    failures = cards.failures(results, anchors)
    undecided = cards.undecided(results, anchors)
    where = {
        (result["impl"], result["law"]): card.anchor for card in (*failures, *undecided) for result in card.results
    }
    counts = records.counted(results)
    left_out = environment.get("elsewhere") or {}
    return render(
        TEMPLATE,
        scripts=SCRIPTS,
        data=rows.packed(results, chapters, where),
        **strip.context(results, environment, counts),
        counts=counts,
        found=[(name, f"{VERDICTS[name].word} ({count})") for name, count in counts.items()],
        impls=[(row.impl, row.impl) for row in table],
        chapters=chapters,
        table=table,
        failures=failures,
        laws_for_causes=in_words(causes_of(results)),
        undecided=undecided,
        elsewhere=cards.elsewhere(results, left_out),
        rules=cards.rules_of((*failures, *undecided)),
        left_out=sorted(left_out),
        observed=sentences(results),
        worst=worst.drawn(results),
        tried=tried.drawn(results),
        times={heading: times.lines_by(results, field) for field, heading in times.TABLES.items()},
        whole=times.total(results, environment),
        kinds=times.COLUMNS,
        total=plural(len(results), "verdict"),
        z_limit=f"{Z_LIMIT:g}",
    )
