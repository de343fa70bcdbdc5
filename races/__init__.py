"""Detection of races: the rule, findings, tracing, repeated calls, memory filled with poison."""
