"""Runs the laws in properties/ for pytest in this checkout (runner/plugin/suite.py)."""

import flash_attest.required  # noqa: F401  (first: it checks for packages that the plug-in needs)
from flash_attest.runner.plugin.interrupts import exit_early

exit_early()  # the plug-in takes seconds to import
pytest_plugins = ["flash_attest.runner.plugin.suite"]
