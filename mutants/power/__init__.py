"""Measures how much the suite catches, and how much other suites would.

Every planted bug is judged by every law, and by the rules of other suites.

    rules.py        what FlashAttention's, PyTorch's and KernelBench's tests do, and allclose
    references.py   what they compare with
    peers.py        a peer before one implementation
    child.py        one planted bug in a process of its own
    matrix.py       all of them, several at a time, results on disk
    records.py      the JSON file
    tables.py       its rows: what the document and the page show
    report.py       docs/measured/power.md
    page.py         the page
    command.py      flash-attest power --matrix, and --write, --rows, --page

Nothing is imported here, because child.py is imported by every process.
"""
