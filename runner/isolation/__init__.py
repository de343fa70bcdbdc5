"""Implementations are called in a process of their own, which may die.

status.py is what that process does at this moment, child.py its loop, endings.py how it ended, parent.py who watches it and
starts it again, crashes.py the smallest case that ends it, verdicts.py the other verdicts of laws that it took down, tracing.py the trace of a failure in one that sees no GPU,
importing.py a first import of a plug-in in such a process.
"""
