"""The patterns by which the table spells opcodes (instructions.py): as regular expressions, and all that they can mean.

{a,b}: one of them. [a]: with it or without. (a): with it or without, not part of the handler's name; (a)*: any number of
those. <t=a>: a, called t.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

CLOSES = {"{": "}", "[": "]", "(": ")", "<": ">"}


def pattern(spelling: str) -> re.Pattern:
    """The regular expression of a spelling. What is not part of the handler's name is in groups called ignored0, ..."""
    made, open, ignored, position = [], [], 0, 0
    while position < len(spelling):
        letter = spelling[position]
        if letter == "<":
            name = re.match(r"<(\w+)=", spelling[position:])[1]
            made.append(f"(?P<{name}>")
            open.append(letter)
            position += len(name) + 1
        elif letter in "{[":
            made.append("(?:")
            open.append(letter)
        elif letter == "(":
            made.append(f"(?P<ignored{ignored}>(?:")
            open.append(letter)
            ignored += 1
        elif letter in "}])>":
            many = letter == ")" and spelling[position + 1 : position + 2] == "*"
            made.append({"{": ")", "[": ")?", "(": ")*)" if many else ")?)", "<": ")"}[open.pop()])
            position += many
        else:
            made.append("|" if letter == "," and "{" in open else re.escape(letter))
        position += 1
    return re.compile("".join(made))


def without_ignored(expression: re.Pattern, found: re.Match) -> str:
    """What was matched, without what is not part of the handler's name."""
    spans = [found.span(name) for name in expression.groupindex if name.startswith("ignored")]
    skip = {i for start, end in spans for i in range(start, end)}
    return "".join(letter for i, letter in enumerate(found[0]) if i not in skip)


def meanings(spelling: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each (name without what is ignored, words by their <names>) that a spelling can give."""
    parts = _parts(spelling)
    for chosen in product(*parts):
        words: dict[str, str] = {}
        for _, more in chosen:
            words.update(more)
        yield "".join(text for text, _ in chosen), words


def _parts(spelling: str) -> list[list[tuple[str, dict[str, str]]]]:
    """The choices at each place of a sequence."""
    parts, position = [], 0
    while position < len(spelling):
        letter = spelling[position]
        if letter not in CLOSES:
            parts.append([(letter, {})])
            position += 1
            continue
        end = _end(spelling, position)
        inside = spelling[position + 1 : end]
        if letter == "{":
            parts.append([one for choice in _choices(inside) for one in meanings(choice)])
        elif letter == "[":
            parts.append([("", {}), *meanings(inside)])
        elif letter == "<":
            name, _, inside = inside.partition("=")
            parts.append([(text, {**words, name: text}) for text, words in meanings(inside)])
        else:
            named = meanings(inside) if "<" in inside else ()
            parts.append([("", {}), *(("", words) for _, words in named)])
        position = end + 1
        position += letter == "(" and spelling[position : position + 1] == "*"
    return parts


def _end(spelling: str, opening: int) -> int:
    """Where the bracket at `opening` closes."""
    depth = 0
    for i in range(opening, len(spelling)):
        depth += (spelling[i] in CLOSES) - (spelling[i] in "}])>")
        if not depth:
            return i
    raise ValueError(spelling)


def _choices(inside: str) -> list[str]:
    """At the commas that are in no bracket."""
    found, depth = [""], 0
    for letter in inside:
        depth += (letter in CLOSES) - (letter in "}])>")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def plain(spelling: str) -> str:
    """Without the <names>."""
    return re.sub(r"<\w+=|>", "", spelling)
