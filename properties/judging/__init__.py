"""Judges one law on one implementation: searches for a failing case, shrinks it and explains it."""
