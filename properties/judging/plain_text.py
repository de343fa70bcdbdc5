"""Any text, as JSON, HTML, xdist and terminals take it: what would break one of them is shown as an escape."""

from __future__ import annotations

import math

_ESCAPED = {c: f"\\x{c:02x}" for c in (*range(0x20), *range(0x7F, 0xA0)) if chr(c) not in "\n\t"}


def plain(text: str) -> str:
    r""" "\x1b[31m" -> r"\x1b[31m": control characters, NUL and lone surrogates become escapes; \n and \t stay."""
    text = text.replace("\r\n", "\n").translate(_ESCAPED)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def all_plain(value):
    """The same for everything in a value of dicts and lists; NaN and infinities, which JSON lacks, become words."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(str(key)): all_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [all_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
