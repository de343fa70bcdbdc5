"""python -m mutants: is every planted bug caught by its law, and, with --matrix, which laws catch which bug?"""

from __future__ import annotations

import argparse
import multiprocessing
import sys

import torch

from emulator.errors import EmulatorError
from mutants import ALL, CONTRACT, Mutant, MutantError, beyond_smallest, build, elsewhere
from mutants.judging import EXAMPLES, one_of_all
from properties.judging.verdict import FAIL
from properties.law import laws


def main(arguments: list[str] | None = None) -> int:
    """Print the table or the matrix; return 0 if every mutant was caught as required, 1 if not, 2 if none could be judged."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="these mutants only (a part of the name is enough)")
    parser.add_argument(
        "--matrix", action="store_true", help="judge each mutant by all laws (slow; Triton and CUDA only if named)"
    )
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="cases per law (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which cases are drawn (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--messages", action="store_true", help="show each law's whole message")
    options = parser.parse_args(arguments)
    chosen = [m for m in ALL if not options.names or any(name in m.name for name in options.names)]
    if unknown := [name for name in options.names if not any(name in m.name for m in ALL)]:
        print(f"no mutant is called {' or '.join(unknown)}; there are:", *(m.name for m in ALL), sep="\n  ")
        return 2
    if options.matrix and not options.names:
        chosen = [m for m in chosen if not m.family.slow]
    for mutant in [m for m in chosen if elsewhere(m)]:
        print(f"- {mutant.name}: {elsewhere(mutant)}")
        chosen.remove(mutant)
    if not chosen:
        print("nothing was judged: none of these mutants can be judged here, for the reasons above")
        return 2
    for mutant in chosen:
        try:
            build(mutant)
        except (MutantError, EmulatorError) as error:
            parser.error(str(error))
        if mutant.law not in (CONTRACT, *laws()):
            parser.error(f"mutant {mutant.name} names {mutant.law}, which is not a law")
    work = [(ALL.index(m), options.seed, options.examples, options.matrix) for m in chosen]
    with multiprocessing.get_context("spawn").Pool(options.jobs, torch.set_num_threads, (1,)) as pool:
        results = pool.imap(one_of_all, work)
        return _matrix(chosen, results) if options.matrix else _table(chosen, results, options.messages)


def _table(chosen: list[Mutant], results, messages: bool) -> int:
    """One line per mutant: its law, the verdict, seconds, the smallest case; "!" marks a mutant not caught as required."""
    caught, small, spent = 0, 0, 0.0
    print(f"  {'mutant':62} {'law that must catch it':50} verdict  seconds  smallest case")
    for mutant, (result, seconds) in zip(chosen, results, strict=True):
        killed, spent = result.verdict == FAIL, spent + seconds
        beyond = beyond_smallest(mutant, result.smallest) if killed and result.smallest else []
        caught, small = caught + killed, small + (killed and not beyond)
        mark = " " if killed and not beyond else "!"
        print(f"{mark} {mutant.name:62} {mutant.law:50} {result.verdict:7} {seconds:8.1f}  {result.smallest}")
        for line in beyond:
            print(f"{'':4}{line}")
        print(*(f"{'':4}{line}".rstrip() for line in (result.message if messages else result.reason).splitlines()),
              sep="\n", flush=True)  # fmt: skip
    print(f"{caught} of {len(chosen)} mutants caught, {small} of them by a case as small as promised, in {spent:.0f} s")
    return 0 if small == len(chosen) else 1


def _matrix(chosen: list[Mutant], results) -> int:
    """For each mutant the laws that catch it; at the end, for each law, how many it catches, and which only it catches."""
    caught_by: dict[str, list[str]] = {}
    own_law = 0
    for number, (mutant, (verdicts, seconds)) in enumerate(zip(chosen, results, strict=True), 1):
        caught_by[mutant.name] = [name for name, verdict in verdicts.items() if verdict == FAIL]
        own_law += mutant.law in caught_by[mutant.name]
        print(
            f"[{number} of {len(chosen)}, {seconds:.0f} s] {mutant.name}: caught by {len(caught_by[mutant.name])} laws"
        )
        print(f"    {', '.join(caught_by[mutant.name]) or 'none'}", flush=True)
    print(f"\n{'law':50} mutants  caught by this law only")
    for name in [CONTRACT, *laws()]:
        alone = [mutant for mutant, names in caught_by.items() if names == [name]]
        print(f"{name:50} {sum(name in names for names in caught_by.values()):7}  {', '.join(alone)}")
    return 0 if own_law == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
