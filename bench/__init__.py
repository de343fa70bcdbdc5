"""How fast are they?   tox -e bench   or   flash-attest bench

The benchmark times forward and backward of every implementation that is made for speed, beside
manual attention and PyTorch's kernels: in half dtypes at the sizes of the FlashAttention papers,
and in float32 at the sizes of two teaching systems. It judges nothing, but it does not time wrong
results: the outputs of each cell are compared with float32 attention, before and while it is timed.

    cells.py     the cells, and the FLOPs that each counts
    sanity.py    inputs, float32 attention, and the check of a result before it is timed
    timed_outputs.py   the check of results while they are timed
    timing.py    device events, wall clock, and the measured matrix peak
    options.py   the command line; sizes.py: how a size is written
    command.py   a run, from the options to the table
    plan.py      the implementations and cases that the options ask for
    run.py       fills the cells one by one, each with a verdict
    report.py    bench.json and the table
    page.py      bench.html; curves.py: its pictures
    plot.py      bench.png
    lines.py     runs the benchmarks that print a line for each result, which follow
    decode.py    decodes from pages and dense ones: python -m flash_attest.bench.decode
    windows.py   a window beside all keys: python -m flash_attest.bench.windows
    varlen.py    packed sequences and padded ones: python -m flash_attest.bench.varlen
"""
