"""Global state that a call must leave unchanged: settings, random numbers, the process itself.

It is read before and after each call. Anything that changed is restored, so it cannot affect the
oracle or other implementations, and the contract check reports it.

thing.py: one piece of such state; torch_things.py, number_things.py, process_things.py: all pieces;
patched.py: functions that a call replaces, place.py: one of them and how it is restored; watch.py:
the comparison around a call. import_things.py and import_system.py have what only an import is
watched for, imports.py the comparison around an import; neutral.py has the state in which laws are
judged.
"""
