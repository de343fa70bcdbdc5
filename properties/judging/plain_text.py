"""Escapes any text so that it is safe for JSON, HTML, xdist and terminals."""

from __future__ import annotations

import math

from flash_attest.texts import cut

MOST_CHARACTERS = 200_000  # of a whole message
_ESCAPED = {c: f"\\x{c:02x}" for c in (*range(0x20), *range(0x7F, 0xA0)) if chr(c) not in "\n\t"}
# Marks and line ends that reorder or break the text around them, without a shape of their own.
_MARKS = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
_ESCAPED |= {c: f"\\u{c:04x}" for c in _MARKS}


def plain(text: str) -> str:
    r"""Escape control characters, marks of direction, and lone surrogates: "\x1b" -> r"\x1b".

    Line ends and tabs stay. A text that is too long is cut.
    """
    text = cut(text, MOST_CHARACTERS).replace("\r\n", "\n").translate(_ESCAPED)
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
