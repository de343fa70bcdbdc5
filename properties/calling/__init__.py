"""How laws call an implementation: caller.py calls, raised.py interprets exceptions, meter.py
counts."""
