"""An implementation loads, takes what it declares, and returns what it declares. All problems are reported at once."""


def test_contract_is_kept(impl, judge):
    """Whether calls go through and have the right number, shape, dtype and meaning of results; inputs stay as they were."""
    judge.contract(impl)
