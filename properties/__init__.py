"""The laws of attention, and everything that judges implementations by them.

test_*.py   the laws, one file for each chapter       law.py       the definition of a law
cases/      the cases and their tensors               trial.py     one implementation on one case
calling/    the calls of an implementation            failures.py  exceptions that stop a law
checks/     the comparisons that laws end with        progress.py  the state of the process
judging/    one law on one implementation             state/       state that calls must not change
machine/    GPUs, memory, time
"""
