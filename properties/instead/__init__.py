"""Names the definition, or the rounding, that a kernel computed instead of attention.

matches.py compares what a kernel returned with the table of mistakes (table.py) and of roundings
(roundings.py). A new feature adds its own mistakes to the table, as `Feature.mistaken`.
"""
