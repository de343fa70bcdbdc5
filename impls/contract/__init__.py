"""The plug-in contract: what an implementation declares, and how it is found and called.

record.py      Implementation, with supports.py (Supports) and precision.py (Precision); Absent
declaration.py what is wrong with a record
loading.py     finds implementations in files, modules and hooks
registry.py    chooses implementations by name
call.py        calls an implementation
arguments.py   checks the tensors of a call
shares.py      shares of the cases that some implementations get
one_device.py the device of languages that use only one in a process
"""
