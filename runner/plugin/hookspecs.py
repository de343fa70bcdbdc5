"""The hook that plug-ins implement (through `pytest -p my_plugin`, or a pytest11 entry point)."""

import pytest


@pytest.hookspec
def pytest_attention_impls(config: pytest.Config) -> list:
    """Return a list of flash_attest.Implementation to judge beside our own.

    from flash_attest import Implementation

    def pytest_attention_impls(config):
        return [Implementation(name="my_attention", forward=my_forward)]
    """


def add_to(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the hook once: the installed plug-in may have done so before a run of the suite."""
    if not hasattr(pluginmanager.hook, "pytest_attention_impls") or not pluginmanager.hook.pytest_attention_impls.spec:
        import flash_attest.runner.plugin.hookspecs as specs

        pluginmanager.add_hookspecs(specs)
