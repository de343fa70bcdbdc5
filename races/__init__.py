"""Detection of races: the rule, findings, tracing, repeated calls, and memory filled with poison."""
