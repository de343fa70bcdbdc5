"""The laws of attention, and everything that judges implementations by them.

test_*.py   the laws, one file for each chapter       law.py       what a law is
cases/      the cases and their tensors               trial.py     one implementation on one case
calling/    the calls of an implementation            failures.py  what stops a law
checks/     the comparisons that laws end with        progress.py  what the process is doing
judging/    one law on one implementation             state/       what a call must leave unchanged
machine/    GPUs, memory, time
"""
