"""How fast are they?   tox -e bench   or   python -m bench

Forward and backward of every implementation that is made for speed, beside manual attention and PyTorch's kernels: in
half dtypes at the FlashAttention papers' sizes, and in float32 at those of two teaching systems. Here nothing is judged,
but nothing wrong is timed either: each cell is compared with float32 first.

    cells.py     which cells there are, and how many FLOPs each counts
    sanity.py    inputs, float32 attention, and whether a result is fit to be timed
    timing.py    device events, the wall clock, and the measured matrix peak
    options.py   the command line
    plan.py      what it asks for: which implementations, on which cases
    run.py       one cell after the other, each with a verdict
    report.py    bench.json and the table
    plot.py      bench.png
"""
