"""What is the same after a call of an implementation as it was before: settings, random numbers, the process itself.

Read before and after each call. What is not the same is put back, so that nobody else is judged under it, and named.

thing.py: what such a thing has; torch_things.py, number_things.py, process_things.py: those that there are; watch.py: the
comparison around a call.
"""
