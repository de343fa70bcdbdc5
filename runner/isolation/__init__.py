"""Calls implementations in a separate process, which may die.

child.py is the loop of that process. endings.py describes how it ended. parent.py watches and
restarts it. keeping.py is the process between the two; leftovers.py ends what is left. crashes.py
finds the smallest case that ends it. verdicts.py has the other verdicts for laws whose process
ended. tracing.py traces a failure in a process that sees no GPU. importing.py imports a plug-in,
and still_right.py sees whether that harms others.
"""
