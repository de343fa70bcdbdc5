"""Calls implementations for laws: caller.py calls, raised.py reads errors, meter.py counts."""
