"""The patterns with which the table spells opcodes (instructions.py), as regular expressions and as
lists of meanings.

{a,b}: one of them. [a]: a or nothing. (a): the same, but not part of the handler's name; (a)*: any
number of those. <t=a>: a, called t.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

CLOSES = {"{": "}", "[": "]", "(": ")", "<": ">"}


def pattern(spelling: str) -> re.Pattern:
    """Return the regular expression of a spelling.

    Text that is not part of the handler's name is in groups called ignored0, ...
    """
    parts, open, ignored, position = [], [], 0, 0
    while position < len(spelling):
        letter = spelling[position]
        if letter == "<":
            name = re.match(r"<(\w+)=", spelling[position:])[1]
            parts.append(f"(?P<{name}>")
            open.append(letter)
            position += len(name) + 1
        elif letter in "{[":
            parts.append("(?:")
            open.append(letter)
        elif letter == "(":
            parts.append(f"(?P<ignored{ignored}>(?:")
            open.append(letter)
            ignored += 1
        elif letter in "}])>":
            many = letter == ")" and spelling[position + 1 : position + 2] == "*"
            parts.append({"{": ")", "[": ")?", "(": ")*)" if many else ")?)", "<": ")"}[open.pop()])
            position += many
        else:
            parts.append("|" if letter == "," and "{" in open else re.escape(letter))
        position += 1
    return re.compile("".join(parts))


def without_ignored(expression: re.Pattern, match: re.Match) -> str:
    """Return the matched text, without the parts that do not belong to the handler's name."""
    spans = [match.span(name) for name in expression.groupindex if name.startswith("ignored")]
    skip = {i for start, end in spans for i in range(start, end)}
    return "".join(letter for i, letter in enumerate(match[0]) if i not in skip)


def meanings(spelling: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each (name without ignored parts, words by their <names>) that a spelling can
    produce.
    """
    parts = _parts(spelling)
    for chosen in product(*parts):
        words: dict[str, str] = {}
        for _, more in chosen:
            words.update(more)
        yield "".join(text for text, _ in chosen), words


def _parts(spelling: str) -> list[list[tuple[str, dict[str, str]]]]:
    """Return the choices at each position of a sequence."""
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
    """Return the position where the bracket at `opening` closes."""
    depth = 0
    for i in range(opening, len(spelling)):
        depth += (spelling[i] in CLOSES) - (spelling[i] in "}])>")
        if not depth:
            return i
    raise ValueError(spelling)


def _choices(inside: str) -> list[str]:
    """Split the text at commas outside brackets."""
    choices, depth = [""], 0
    for letter in inside:
        depth += (letter in CLOSES) - (letter in "}])>")
        if letter == "," and not depth:
            choices.append("")
        else:
            choices[-1] += letter
    return choices


def plain(spelling: str) -> str:
    """Return the spelling with the <names> removed."""
    return re.sub(r"<\w+=|>", "", spelling)
