"""pytest in this checkout judges implementations by the laws in properties/. Options and hooks: runner/plugin/suite.py."""

import flash_attest.required  # noqa: F401  (first, as what follows needs the packages that it looks for)

pytest_plugins = ["flash_attest.runner.plugin.suite"]
