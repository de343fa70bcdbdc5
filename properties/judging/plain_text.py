"""Escapes any text so that it is safe for JSON, HTML, xdist and terminals."""

from __future__ import annotations

import math

from flash_attest.texts import cut

MOST_CHARACTERS = 200_000  # of a whole message
_ESCAPED = {c: f"\\x{c:02x}" for c in (*range(0x20), *range(0x7F, 0xA0)) if chr(c) not in "\n\t"}


def plain(text: str) -> str:
    r"""Escape control characters and lone surrogates, but not \n and \t: "\x1b" -> r"\x1b".

    A text that is too long is cut.
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
