"""The laws that are known to fail, as adapters list them: a reason, where it shows, and the laws.

    PADDING = "finding #13: keys of the padding are counted"
    ...
    known_failures=known(
        Because(PADDING, "seqlen_q=1 seqlen_k=1 headdim=64").fail('''
            out_matches_the_definition ragged_sizes_match_the_definition
            tiny_scores_match_the_definition regime=flat
        '''),
        Because(PADDING, on="cuda").fail("batches_beyond_65535 heads_beyond_65535"),
    )

The third law fails in the case of the first two with regime=flat.

Which laws meet a mistake changes with the cases that are drawn. So where it can be said which cases
are wrong, `accepts` refuses them: then one law with its case shows the finding, and all laws are
judged on the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flash_attest import KnownFailure

OfLaws = dict[str, dict[str, KnownFailure]]  # by law and by device, as an Implementation has them


@dataclass(frozen=True)
class Because:
    """A reason for which laws fail, and where they do.

    why: the finding, as in "finding #13: keys of the padding are counted".
    case: one in which they fail, or "".
    on: the only device on which they fail, or "".
    every_run: False if the failure need not show.
    """

    why: str
    case: str = ""
    on: str = ""
    every_run: bool = True

    def fail(self, laws: str) -> OfLaws:
        """Return these laws as known failures. Fields of a case that follow a law are its own: they
        replace those of `case`, or are added.
        """
        devices = [self.on] if self.on else ["cpu", "cuda"]
        failures = ((law, KnownFailure(self.why, case, self.every_run)) for law, case in self._cases(laws))
        return known(*({law: dict.fromkeys(devices, failure)} for law, failure in failures))

    def _cases(self, laws: str) -> Iterator[tuple[str, str]]:
        """Yield each law of the text with its case."""
        words = laws.split()
        begins = [i for i, word in enumerate(words) if "=" not in word]
        if begins[:1] != [0]:
            raise ValueError(f"fail({laws!r}): should begin with a law")
        for begin, end in zip(begins, [*begins[1:], len(words)], strict=True):
            fields = dict(word.split("=", 1) for word in (*self.case.split(), *words[begin + 1 : end]))
            yield words[begin], " ".join(f"{name}={value}" for name, value in fields.items())


def known(*parts: OfLaws) -> OfLaws:
    """Return the union of parts. Raises ValueError if two name a law for the same device."""
    together: OfLaws = {}
    for law, failures in (entry for part in parts for entry in part.items()):
        of_law = together.setdefault(law, {})
        if twice := [device for device in failures if device in of_law]:
            raise ValueError(f"known failures name {law} twice for {' and '.join(twice)}")
        of_law |= failures
    return together
