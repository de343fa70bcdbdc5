"""Not an implementation but a plug-in for `pytest -p`.

It makes the suite raise in one law, and before another law is called.
"""

from flash_attest.properties.judging import judge


def pytest_configure():
    judge.Search = broken(judge.Search)


def pytest_runtest_setup(item):
    if item.originalname == "test_winning_key_is_copied":
        raise LookupError("no fixture")


def broken(search):
    def raises_in_one_law(judgement, *more):
        if judgement.law.name == "test_out_matches_the_definition":
            return {}[judgement.law.name]
        return search(judgement, *more)

    return raises_in_one_law
