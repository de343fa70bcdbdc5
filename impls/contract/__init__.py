"""The plug-in contract: what an implementation states about itself, how it is found and called.

record.py      Implementation, Supports, Precision, Absent
registry.py    finds implementations
call.py        calls an implementation
arguments.py   checks the tensors of a call
shares.py      shares of the cases that some implementations get
one_device.py  languages that run on one device per process
"""
