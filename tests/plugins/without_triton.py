"""Simulates a machine without Triton. `pytest -p tests.plugins.without_triton`."""

from tests.plugins.hidden import hide

hide("triton")
