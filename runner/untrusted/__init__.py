"""Implements --untrusted: only a kernel process imports a plug-in's file and calls its functions.

kernel.py       the kernel process, which imports the plug-in and answers questions
process.py      the judging side's handle on it
remote.py       an Implementation whose functions ask the kernel process
entries.py      the entries of --impl-from
shared.py       memory for inputs, which both processes map
reading.py      reads outputs from the kernel process's memory
wire.py         messages of JSON and bytes; tensors.py, records.py: what they hold
sandbox.py      chooses what holds the process: bubblewrap.py, or landlock.py and seccomp.py
needs.py        which files it sees (view.py); surroundings.py: its variables and caches
limits.py       what it may take of the machine
observed.py     which operators were called

The kernel process imports torch, impls, emulator and races, but neither the oracle nor the laws.
Nothing that it sends is unpickled, executed or believed, except where its outputs lie. So nothing
that it does to itself changes a verdict.
"""
