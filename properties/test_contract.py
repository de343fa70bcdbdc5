"""An implementation takes and returns what it declares. All problems are reported at once."""


def test_contract_is_kept(impl, judge):
    """Calls succeed and return what is declared, and inputs stay unchanged.

    Results have the declared number, shape, dtype and meaning.
    """
    judge.contract(impl)
