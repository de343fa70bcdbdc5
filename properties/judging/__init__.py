"""Judges one law on one implementation: finds a failing case, shrinks it and explains it."""
