"""Escapes any text so that it is safe for JSON, HTML, xdist and terminals."""

from __future__ import annotations

import math

MOST_CHARACTERS = 20_000  # of a text that an implementation may have written
LONGEST_MARK = 40  # characters of the mark in the middle
_ESCAPED = {c: f"\\x{c:02x}" for c in (*range(0x20), *range(0x7F, 0xA0)) if chr(c) not in "\n\t"}


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the head and the tail of a text that is too long, with the number of characters cut
    out between them, altogether at most `most` characters.

    All texts of implementations come through here: messages, names, reasons, printed lines.
    """
    if len(text) <= most:
        return text
    room = most - LONGEST_MARK
    head = room * 3 // 4
    return f"{text[:head]} [... {len(text) - room:,} characters ...] {text[len(text) - (room - head) :]}"


def plain(text: str) -> str:
    r"""Escape control characters and lone surrogates, but not \n and \t: "\x1b" -> r"\x1b"."""
    text = text.replace("\r\n", "\n").translate(_ESCAPED)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def all_plain(value):
    """Escape every text in dicts and lists in this way. NaN and infinities become words.

    JSON has no numbers for NaN and infinities.
    """
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(str(key)): all_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [all_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
