"""Says before a run what is judged, on how many cases, and about how long that will take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flash_attest.impls.contract.entry import Unloadable
from flash_attest.properties.machine.gpus import note_on
from flash_attest.runner.green import not_loaded
from flash_attest.runner.page.words import plural
from flash_attest.runner.plugin.chosen import Chosen
from flash_attest.runner.plugin.options import Options
from flash_attest.runner.plugin.progress import Judged
from flash_attest.runner.plugin.terminal import elsewhere_in_words
from flash_attest.runner.untrusted.entries import header
from flash_attest.texts import duration, exact_duration

WORTH_SAYING = 30.0  # seconds of workers that an earlier run took


def facts(options: Options, chosen: Chosen, directory: Path) -> list[str]:
    """Return the lines of pytest's header. directory: of the report."""
    part = f" shard {options.shard} of the laws" if options.shard else ""
    where = f"{options.device}{note_on(options.device)}"
    lines = [f"flash-attest: judges{part} on {where}, {cases(options)}, report in {directory}/"]
    if limited := limits(options):
        lines.append(f"flash-attest: {limited}")
    if not options.isolated:
        why = " (the plug-ins use CUDA when they are imported)" if options.may_isolate else ""
        ends = "" if chosen.untrusted else ", which a crash ends"  # there it ends the kernel process
        lines.append(f"flash-attest: laws are judged in the pytest process{ends}{why}")
    return [*lines, header()] if chosen.untrusted else lines


def cases(options: Options) -> str:
    """Return on which cases a run judges: "profile quick (12 cases a law), seed 0"."""
    if options.case is not None:
        return "one given case"
    number = options.profile.cases
    return f"profile {options.profile_name} ({number} case{'s' * (number != 1)} a law), seed {options.seed}"


def limits(options: Options) -> str:
    """Return the time limits of a run in words, or ""."""
    given = (("for a law", options.law_time_limit), ("for the run", options.time_limit))
    return ", ".join(f"at most {exact_duration(seconds)} {what}" for what, seconds in given if seconds)


def announcement(left: Sequence[Judged], kept: int, before: float, options: Options, chosen: Chosen) -> list[str]:
    """Return what is said when all tests are known.

    left: what is to be judged; kept: how many verdicts an earlier run has given; before: the
    seconds that workers of an earlier run took for what is left, 0 if not known.
    """
    files = {entry.name for entry in chosen.entries if isinstance(entry.impl, Unloadable)}
    left = [(law, impl) for law, impl in left if impl not in files]
    what = plural(len({law for law, _ in left}), "law")
    if (names := len({impl for _, impl in left})) > 1:
        what += f" on {names} implementations"
    if files:
        what += f"; {not_loaded(len(files))}: {', '.join(sorted(files))}"
    if kept:
        what += f", and keeps {plural(kept, 'verdict')} of the earlier run"
    if before > WORTH_SAYING:
        what += f", about {duration(before / options.workers)} as before"
    lines = [f"judges {what}", elsewhere_in_words(chosen.elsewhere)]
    return [f"flash-attest: {line}" for line in lines if line]
