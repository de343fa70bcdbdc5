"""A plug-in module, for `pytest -p`."""

from dataclasses import replace


def pytest_attention_impls(config):
    from tests.plugins.good import IMPL

    return [replace(IMPL, name="hooked")]
