"""The command `flash-attest power`. Is every planted bug caught by its law?

With --matrix: by which laws, and by which other suites? With --races: which layers of race
detection find the planted races?
"""

from __future__ import annotations

import argparse
import multiprocessing

import torch
from rich.console import Console

from flash_attest.arguments import Parser
from flash_attest.did_you_mean import did_you_mean
from flash_attest.emulator.errors import EmulatorError
from flash_attest.mutants import ALL, CONTRACT, Mutant, MutantError, beyond_smallest, build, edited_source, elsewhere
from flash_attest.mutants.judging import EXAMPLES, one_of_all
from flash_attest.mutants.power import command as matrix
from flash_attest.mutants.power.records import RecordError
from flash_attest.mutants.races import command as races
from flash_attest.properties.judging.verdict import FAIL
from flash_attest.properties.law import laws


def power(parser: Parser, options: argparse.Namespace) -> int:
    """Print the table or judge the matrix. Returns 0 if every mutant was caught as required, 1 if
    not, 2 if none was judged.
    """
    console = Console(soft_wrap=True)
    try:
        if options.races and (alone := [o for o in ("rows", "page") if getattr(options, o)]):
            raise matrix.OptionError(f"--{alone[0]}: tells what --matrix found, should be without --races")
        if options.races:
            return races.run(options, console)
        if matrix.outputs_of(options) and not options.matrix:
            return matrix.write(options, console)
        chosen = named(options.names)
        if options.list:
            print(*(f"{mutant.name:62} {mutant.law}" for mutant in chosen), sep="\n")
            return 0
        for mutant in chosen:
            edited_source(mutant)
            if mutant.law not in (CONTRACT, *laws()):
                parser.error(f"mutant {mutant.name} names {mutant.law}, which is not a law")
        return matrix.judge(chosen, options, console) if options.matrix else _judge(chosen, options)
    except (MutantError, EmulatorError, RecordError, matrix.OptionError) as error:
        parser.error(str(error))


def named(names: list[str]) -> list[Mutant]:
    """Return the mutants whose names contain one of these words, or all mutants if there are no
    words.

    Raises OptionError.
    """
    known = [mutant.name for mutant in ALL]
    if unknown := [name for name in names if not any(name in mutant for mutant in known)]:
        raise matrix.OptionError(
            f"no planted bug is called {' or '.join(unknown)}{did_you_mean(unknown, known)} (--list lists them)"
        )
    return [mutant for mutant in ALL if not names or any(name in mutant.name for name in names)]


def _judge(chosen: list[Mutant], options: argparse.Namespace) -> int:
    """Judge each mutant by its law on its device, and return the exit status.

    Raises OptionError.
    """
    matrix.device_of(options)
    for mutant in [m for m in chosen if elsewhere(m)]:
        print(f"- {mutant.name}: {elsewhere(mutant)}")
        chosen.remove(mutant)
    if not chosen:
        print("nothing was judged: none of these mutants can be judged here, for the reasons above")
        return 2
    for mutant in chosen:
        build(mutant)
    work = [(ALL.index(m), options.seed, options.cases or EXAMPLES) for m in chosen]
    with multiprocessing.get_context("spawn").Pool(options.workers or 1, torch.set_num_threads, (1,)) as pool:
        return _table(chosen, pool.imap(one_of_all, work), options.messages)


def _table(chosen: list[Mutant], results, messages: bool) -> int:
    """Print one line per mutant: its law, the verdict, seconds, the smallest case.

    "!" marks a mutant that is not caught as required.
    """
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
    print(f"{caught} of {len(chosen)} mutants caught, {small} of them by a case as small as required, in {spent:.0f} s")
    return 0 if small == len(chosen) else 1
