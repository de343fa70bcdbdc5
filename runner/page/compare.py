"""The page of a comparison of two reports."""

from __future__ import annotations

from flash_attest.runner.compare import ABSENT, MOVED, Comparison
from flash_attest.runner.page.template import BAD, GOOD, HERE, render

TEMPLATE = HERE / "compare.html.j2"
SHOWN = ("command", "started", "device", "device_name", "profile", "seed")


def compare_page(found: Comparison, names: list[str], records: list[dict]) -> str:
    """Return the page. names, records: the two reports, as given and as read."""
    return render(
        TEMPLATE,
        tone=BAD if found.worse else GOOD,
        found=found,
        sections=[
            ("worse", "Got worse", found.worse),
            ("better", "Got better", found.better),
            ("changed", "Changed otherwise", found.changed),
            ("gone", "No verdict in B", found.gone),
            ("new", "No verdict in A", found.new),
        ],
        impls=[(name, name) for name in sorted({entry.impl for entry in _entries(found)})],
        reports=[
            (letter, name, len(record["results"]), {fact: record["environment"].get(fact) for fact in SHOWN})
            for letter, name, record in zip("AB", names, records, strict=True)
        ],
        absent=ABSENT,
        rule=MOVED,
    )


def _entries(found: Comparison) -> list:
    return [*found.worse, *found.better, *found.changed, *found.gone, *found.new, *found.moved]
