"""python -m bench: how fast implementations are, forward and backward, beside manual attention and PyTorch's kernels."""

from __future__ import annotations

import argparse
import platform
import signal
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench import plot, timing
from bench.cells import GRIDS, cases, column, implementations
from bench.options import parser_of_options
from bench.report import Report, print_tables
from bench.run import ABOVE_PEAK, ERROR, NOT_RUN, WRONG, Bench
from impls import Absent, registry
from impls.registry import Broken, Entry
from properties.case import Case
from properties.report import environment


def main(arguments: list[str], console: Console | None = None) -> int:
    """Measure, write, print; 0, or 1 if a cell cannot be trusted, or 130 if interrupted."""
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        entries = chosen(options.impl, options.impl_from, options.device)
    except registry.RegistryError as error:
        parser.error(str(error))
    report = Report(options.report, environment(options.device, command=["python", "-m", "bench", *arguments]))
    report.environment |= details(options.device)
    try:
        options.report.mkdir(parents=True, exist_ok=True)
        report.write()
    except OSError as error:
        parser.error(f"--report {options.report}: {error}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return measure(options, entries, report, console or _console())
    finally:
        torch.set_num_threads(threads)


def chosen(names: str | None, files: list[str], device: str) -> list[Entry]:
    """What --impl and --impl-from ask for, in the order of the table. Raises RegistryError, naming what cannot be."""
    mine = [entry for argument in files for entry in registry.from_file(argument)]
    known = registry.select(registry.ours() + mine, None)
    if names is not None:
        asked = registry.select(known, names)
    else:
        asked = implementations([entry for entry in known if entry not in mine], device) + mine
    for entry in asked if names is not None else mine:
        if isinstance(entry.impl, Broken):
            raise registry.RegistryError(f"{entry.name}: {entry.impl.problem}")
        if isinstance(entry.impl, Absent):
            raise registry.RegistryError(f"{entry.name}: {entry.impl.reason}")
        if device not in entry.impl.devices:
            runs = " and ".join(sorted(entry.impl.devices))
            raise registry.RegistryError(f"{entry.name} runs on {runs} only: should run on {device} (--device)")
    return sorted(asked, key=lambda entry: column(entry.name))


def measure(options: argparse.Namespace, entries: list[Entry], report: Report, console: Console) -> int:
    """The run itself. An interrupt ends it early, and leaves the same things."""
    grid, started = GRIDS[options.device], time.perf_counter()
    masks = (False, True) if options.causal == options.full else (options.causal,)
    work = cases(options.device, options.dtype or grid.dtypes, options.headdim or grid.headdims, masks,
                 options.seqlen or grid.seqlens)  # fmt: skip
    broken = [entry for entry in entries if isinstance(entry.impl, Broken)]
    entries = [entry for entry in entries if entry not in broken]
    bench = Bench(report, options.device, options.seconds or grid.seconds, options.seed)
    _introduce(options.device, report, console)
    status = 0
    try:
        for dtype in dict.fromkeys(case.dtype for case in work):
            report.raise_peak(dtype, timing.peak(dtype, options.device))
        with _progress(console) as progress:
            bar = progress.add_task("", total=len(work) * len(options.passes) * len(entries))

            def tell(case: Case, which: str, name: str) -> None:
                progress.update(bar, completed=len(report.cells), description=f"{name} {which} {case}")
                if not console.is_terminal and (which, name) == (options.passes[0], entries[0].name):  # a log: no bar
                    console.print(f"{work.index(case) + 1:3} of {len(work)}  {case}", highlight=False, soft_wrap=True)

            bench.run(entries, work, options.passes, tell)
        report.state = "complete"
    except KeyboardInterrupt:
        report.state, status = "interrupted", 130
    report.write()
    print_tables(report, console)
    for entry in broken:
        console.print(f"[bold red]not loaded[/]    {escape(entry.impl.problem)}", highlight=False, soft_wrap=True)
    drawn = plot.draw(report, report.directory / "bench.png")
    files = f"{report.json_file}" + f" and {report.directory / 'bench.png'}" * drawn
    timed = sum(cell["verdict"] == "timed" for cell in report.cells)
    console.print(f"{report.state}: {timed} of {len(report.cells)} cells timed in {time.perf_counter() - started:.0f} s; "
                  f"see {files}", highlight=False, soft_wrap=True)  # fmt: skip
    bad = broken or any(cell["verdict"] in (WRONG, ERROR, ABOVE_PEAK, NOT_RUN) for cell in report.cells)
    return status or int(bool(bad))


def details(device: str) -> dict:
    """What else the figures hang on."""
    if device == "cpu":
        return {"device_name": _cpu_name(), "threads": 1}
    about = torch.cuda.get_device_properties(0)
    return {"capability": f"{about.major}.{about.minor}", "multiprocessors": about.multi_processor_count,
            "memory_gib": round(about.total_memory / 2**30, 1), "cudnn": torch.backends.cudnn.version()}  # fmt: skip


def _cpu_name() -> str:
    """ "AMD EPYC ..." where Linux tells it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _introduce(device: str, report: Report, console: Console) -> None:
    about = report.environment
    console.print(f"{about['device_name']}, torch {about['versions']['torch']}", highlight=False)
    if device == "cpu":
        console.print("This is the CPU (one thread): small sizes, wall clock, GFLOP/s. It says how the "
                      "bench works, and nothing of kernels for GPUs.", highlight=False, soft_wrap=True)  # fmt: skip


def _console() -> Console:
    """A terminal's width; where there is no terminal (a log, a file), wide enough for eight implementations."""
    console = Console()
    return console if console.is_terminal else Console(width=200)


def _progress(console: Console) -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                    TimeRemainingColumn(), console=console, transient=True)  # fmt: skip


if __name__ == "__main__":
    # A time limit ends it as Ctrl-C does: with table and plot.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
