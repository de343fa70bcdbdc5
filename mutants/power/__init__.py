"""How much the suite catches, and how much other suites would: every planted bug before every law and before their rules.

    rules.py        what FlashAttention's, PyTorch's and KernelBench's tests do, and allclose
    references.py   what they compare with
    peers.py        a peer before one implementation
    child.py        one planted bug in a process of its own
    matrix.py       all of them, several at a time, results on disk
    records.py      the JSON file
    report.py       docs/measured/power.md
    command.py      flash-attest power --matrix, and --write

Nothing is imported here, because child.py is imported by every process.
"""
