"""Implementations are called in a process of their own, which may die.

child.py is the loop of that process, endings.py how it ended, parent.py who watches it and starts it again, crashes.py the
smallest case that ends it, verdicts.py the other verdicts of laws whose process ended, tracing.py the trace of a failure in a
process that sees no GPU, importing.py a first import of a plug-in in such a process.
"""
