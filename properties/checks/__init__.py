"""Comparisons, and the words and pictures for what they find."""
