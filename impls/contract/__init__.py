"""The plug-in contract: what an implementation says about itself, how it is found, and how it is called.

record.py    Implementation, Supports, Precision, Absent     arguments.py   what a call is given, as tensors
registry.py  finds implementations                           shares.py      how large a share of the cases some get
call.py      calls one                                       one_device.py  languages that run on one device a process
"""
