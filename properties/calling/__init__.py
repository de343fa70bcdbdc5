"""Calls of an implementation by laws: caller.py calls, raised.py reads errors, meter.py counts."""
