"""The sweep: cases and perturbations drawn at random and judged by every layer of race detection, for hours, on all GPUs.

    flash-attest sweep --hours 8                    goes on with attest-sweep/sweep.db, or begins it

options.py      the command line                       command.py      one session, from the options to the report
plan.py         what is swept, by which layers         worker.py       a process that has runs judged
machine.py      what this machine has for it           findings.py     repeats and reduces a failure
drawing.py      draws a run by its number              summary.py      what the runs say
store.py        the SQLite file of runs and findings   report.py       tells that: JSON, HTML, terminal
crew.py         the workers of a host                  merge.py        joins the files of several hosts
version.py      the version of an implementation       judging.py      judges one run
progress.py     what is said meanwhile                 on_ray.py       starts shards on many machines
"""
