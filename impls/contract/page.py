"""Writes the tables of fields: python -m flash_attest.impls.contract.page. A test compares them.

They are in docs/use/implementation-reference.md. The docstring of a class has each field's meaning.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from dataclasses import MISSING, Field, fields
from pathlib import Path

from flash_attest.impls.contract.declaration import listed_values
from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.record import OUTPUTS, Implementation
from flash_attest.impls.contract.supports import DTYPES, Supports

PAGE = Path(__file__).resolve().parents[2] / "docs" / "use" / "implementation-reference.md"
RECORDS = (Implementation, Supports, Precision)
MEANING = re.compile(r"^([a-z_]+): (.*\n(?: +.*\n)*)", re.M)
# What becomes code in Markdown, unless it is: mappings and sets, words in quotes, constants, laws.
CODE = re.compile(r"`[^`]+`|(\{[^}]*\}|\"[^\" ]+\"|\b(?:None|True|False|test_\w+_\w+)\b)")
DOCUMENT = re.compile(r"docs/(use|why)/(([\w-]+)\.md[#\w-]*)")


def page(text: str) -> str:
    """Return the page with the tables that are current."""
    for record in RECORDS:
        start = f"<!-- {record.__name__}: python -m flash_attest.impls.contract.page -->\n"
        end = f"<!-- /{record.__name__} -->\n"
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        text = before + start + table(record) + end + after
    return text


def table(record: type) -> str:
    """Return a row for each field of a dataclass, in Markdown."""
    meanings = meanings_of(record)
    lines = ["| field | values, the default first | meaning |", "|---|---|---|"]
    for one in fields(record):
        if one.init:
            values = dict.fromkeys(filter(None, (_default(one), *_listed(record, one.name))))
            lines.append(f"| `{one.name}` | {', '.join(values)} | {_marked(meanings[one.name])} |")
    return "\n".join([*lines, ""])


def meanings_of(record: type) -> dict[str, str]:
    """Return field -> meaning, from the docstring of a dataclass."""
    return {name: " ".join(text.split()) for name, text in MEANING.findall(f"{inspect.getdoc(record)}\n")}


def _default(one: Field) -> str:
    """Return the default of a field as code, or nothing for a field without one."""
    if one.default_factory is not MISSING:
        return "`{}`" if one.default_factory is dict else f"`{one.default_factory.__name__}()`"
    return "" if one.default is MISSING else f"`{_shown(one.default)}`"


def _listed(record: type, name: str) -> list[str]:
    """Return the values that the annotation of a field lists, as code."""
    return [f"`{_shown(value)}`" for value in listed_values(record).get(name, ())]


def _shown(value: object) -> str:
    """Return a value as one writes it: sets in the order of the suite."""
    if isinstance(value, Collection) and not isinstance(value, (str, tuple)):
        order = [*OUTPUTS, *DTYPES]
        ordered = sorted(value, key=lambda item: (order.index(item), "") if item in order else (len(order), item))
        return f"{{{', '.join(map(_shown, ordered))}}}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _marked(meaning: str) -> str:
    """Return a meaning in Markdown, with code and links."""
    text = CODE.sub(lambda found: f"`{found[1]}`" if found[1] else found[0], meaning)
    return DOCUMENT.sub(lambda found: f"[{found[3]}](../{found[1]}/{found[2]})".replace("](../use/", "]("), text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
