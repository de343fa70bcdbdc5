"""Race detection: the rule, findings, tracing, repeated calls, and memory filled with poison."""
