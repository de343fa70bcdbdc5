"""The hook that plug-ins implement (through `pytest -p my_plugin`, or a pytest11 entry point)."""

import pytest


@pytest.hookspec
def pytest_attention_impls(config: pytest.Config) -> list:
    """Return a list of impls.Implementation to judge beside our own.

    from flash_attest import Implementation

    def pytest_attention_impls(config):
        return [Implementation(name="my_attention", forward=my_forward)]
    """
