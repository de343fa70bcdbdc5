"""A plug-in module, for `pytest -p`, whose hook raises."""


def pytest_attention_impls(config):
    raise RuntimeError("what went wrong")
