"""--untrusted: a plug-in's file is imported, and its functions are called, in a kernel process and nowhere else.

kernel.py       the kernel process: imports the plug-in, answers questions   sandbox.py   what it may write
process.py      it as the judging process has it: started, asked, replaced   wire.py      messages: JSON and bytes
remote.py       Implementation whose functions ask the kernel process        records.py   declarations, cases as JSON
entries.py      what --impl-from names, as entries                           observed.py  which operators were called
tensors.py      tensors as headers and bytes

The kernel process imports torch, impls, emulator and races; neither the oracle nor the laws. Nothing that it sends is
unpickled or executed. So what it does to itself changes no verdict: comparisons happen elsewhere, on bytes.
"""
