"""How laws call an implementation: caller.py makes the calls, raised.py says what an exception means, meter.py counts."""
