"""How fast are they?   tox -e bench   or   flash-attest bench

Forward and backward of every implementation that is made for speed, beside manual attention and PyTorch's kernels: in
half dtypes at the FlashAttention papers' sizes, and in float32 at those of two teaching systems. The benchmark judges
nothing, but it does not time wrong results: each cell is first compared with float32 attention.

    cells.py     which cells there are, and how many FLOPs each counts
    sanity.py    inputs, float32 attention, and whether a result may be timed
    timing.py    device events, wall clock, and the measured matrix peak
    options.py   the command line; sizes.py: what it calls a size
    command.py   a run: from the options to the table
    plan.py      what it asks for: which implementations, on which cases
    run.py       fills the cells one by one, each with a verdict
    report.py    bench.json and the table
    page.py      bench.html; curves.py: its pictures
    plot.py      bench.png
"""
