"""Implements --untrusted: only a kernel process imports a plug-in's file and calls its functions.

kernel.py: the kernel process, which imports the plug-in and answers questions. process.py: the
judging side's handle on it. remote.py: an Implementation whose functions ask the kernel process.
entries.py: the entries of --impl-from. sandbox.py: what the kernel process may write. wire.py:
messages of JSON and bytes. records.py: declarations and cases as JSON. tensors.py: tensors as
headers and bytes. observed.py: which operators were called.

The kernel process imports torch, impls, emulator and races, but neither the oracle nor the laws.
Nothing that it sends is unpickled or executed. Outputs are compared as bytes in another process, so
nothing that the kernel process does to itself changes a verdict.
"""
