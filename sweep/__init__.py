"""The sweep: a search for races that runs for hours, on all GPUs.

Cases and perturbations are drawn at random, and every layer of race detection judges them.

    flash-attest sweep --hours 8           continues attest-sweep/sweep.db, or creates it

    options.py    the command line                command.py    a session, from options to report
    plan.py       implementations and layers      worker.py     a process that judges runs
    machine.py    GPUs, memory, perturbations     findings.py   repeats and reduces a failure
    drawing.py    draws a run by its number       summary.py    counts runs and findings
    store.py      the SQLite file; tables.py      report.py     JSON, HTML and terminal
    crew.py       the workers of a host           merge.py      joins the files of several hosts
    version.py    versions of implementations     judging.py    judges one run
    progress.py   output while it runs            on_ray.py     starts shards on many machines
"""
