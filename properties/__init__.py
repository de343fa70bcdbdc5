"""The laws of attention, and everything that judges an implementation by them.

test_*.py   the laws, one file for each chapter       law.py       what a law is
cases/      what is drawn, and its tensors            trial.py     one implementation on one case
calling/    the calls of an implementation
checks/     the comparisons that laws end with        failures.py  what stops a law
judging/    one law on one implementation: search, shrink, explain
"""
