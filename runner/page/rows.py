"""Packs all laws of a run as JSON, of which laws.js makes rows when a fold is opened."""

from __future__ import annotations

from flash_attest.runner.page.words import VERDICTS, chapter_name, slug, z


def packed(results: list[dict], chapters: list[str], anchors: dict[tuple[str, str], str]) -> dict:
    """Return what laws.js reads. anchors: (implementation, law) -> the card that shows its message.

    Text that many rows share stands once in `words`, and rows have its number there. A row is
    [implementation, chapter, law, verdict, cases, reason, anchor, tensor, z, tensor, z, ...].
    """
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    impls = list(dict.fromkeys(result["impl"] for result in results))
    verdicts = list(VERDICTS)
    rows = []
    for result in results:
        reason = result["reason"]
        if result["known"]:
            reason += f" (known: {result['known']})"
        if result["before"]:
            reason += f" (judged before: {result['before']})"
        zs = [part for tensor, value in result["worst_z"].items() for part in (word(tensor), z(value))]
        rows.append([
            impls.index(result["impl"]), chapters.index(result["chapter"]), word(result["law"]),
            verdicts.index(result["kind"]), result["cases"], word(reason),
            word(anchors.get((result["impl"], result["law"]), "")), *zs,
        ])  # fmt: skip
    return {
        "impls": [[impl, slug("laws", impl)] for impl in impls],
        "chapters": [[name, slug(name)] for name in map(chapter_name, chapters)],
        "verdicts": [[verdict.name, verdict.sign, verdict.word] for verdict in VERDICTS.values()],
        "words": list(words),
        "rows": rows,
    }
