"""Simulates a machine without Numba. `pytest -p tests.plugins.without_numba`."""

from tests.plugins.hidden import hide

hide("numba")
