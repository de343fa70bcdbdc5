"""The plug-in contract: what an implementation declares, and how it is found and called.

record.py      Implementation, Supports, Precision, Absent
registry.py    finds implementations
call.py        calls an implementation
arguments.py   checks the tensors of a call
shares.py      shares of the cases that some implementations get
one_device.py the device of languages that use only one in a process
"""
