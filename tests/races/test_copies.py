"""The rule of races for asynchronous copies: executions with a known answer."""

import pytest

from flash_attest.races.events import Access, Barrier, Copy, Done, Thread
from flash_attest.races.launch import Launch
from flash_attest.races.rule import during, races

A, B = Thread(0, 0), Thread(0, 1)
AB, AGAIN = Barrier("first"), Barrier("second")
COPY = Copy("copy", Access("read", "global", 0, 4), Access("write", "tile", 0, 4))
READ, WRITE = Access("read", "tile", 0, 4), Access("write", "tile", 0, 4)
BESIDE = Access("read", "tile", 4, 4)


def judged(launch: Launch) -> tuple[bool, list[bool]]:
    """Return whether there is a race and, for each access during a copy, whether it always
    races.
    """
    return bool(races(launch)), [always for _, _, always in during(launch)]


@pytest.mark.parametrize(
    ("of_a", "of_b", "race", "met"),
    [
        ([COPY, Done(COPY), AB], [AB, READ], False, []),
        ([READ, COPY, Done(COPY), READ], [], False, []),
        ([COPY, READ, Done(COPY)], [], False, [True]),
        ([COPY, BESIDE, Done(COPY)], [], False, []),
        ([COPY, AB, Done(COPY)], [AB, READ], True, [False]),  # the barrier is before the wait
        ([COPY, AB, AGAIN, Done(COPY)], [AB, READ, AGAIN], False, [True]),
        ([COPY, Done(COPY)], [READ], True, [False]),
        ([AB, COPY, Done(COPY)], [WRITE, AB], False, []),
        ([COPY, AB, Done(COPY)], [AB, Access("write", "global", 0, 4)], True, []),  # the source may still be read
    ],
)
def test_a_copy_is_made_between_its_issue_and_the_wait(of_a, of_b, race, met):
    assert judged(Launch({A: of_a, B: of_b})) == (race, met)


def test_two_copies_to_one_address_by_one_thread():
    other = Copy("other", None, COPY.target)
    assert judged(Launch({A: [COPY, other, Done(COPY), Done(other)]})) == (False, [True, True])
    assert judged(Launch({A: [COPY, Done(COPY), other, Done(other)]})) == (False, [])


def test_a_copy_has_an_end():
    with pytest.raises(ValueError, match="has no end"):
        Launch({A: [COPY]})
