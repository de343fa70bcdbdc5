"""flash-attest bench: the speed of implementations, manual attention and PyTorch's kernels."""

from __future__ import annotations

import argparse
import time

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from flash_attest.arguments import Parser
from flash_attest.bench.cells import GPU_KERNELS, SECONDS, TIMED, UNTRUSTED
from flash_attest.bench.options import device_of
from flash_attest.bench.plan import Part, plan
from flash_attest.bench.report import Measurements, print_tables
from flash_attest.bench.run import Bench
from flash_attest.impls.contract.entry import NotLoaded, RegistryError, Unloadable
from flash_attest.packages import lacking
from flash_attest.properties.cases.case import Case
from flash_attest.runner.plugin.environment import environment


def bench(parser: Parser, options: argparse.Namespace, command: list[str], console: Console | None = None) -> int:
    """Measure, write bench.json, and print the tables. Returns the exit status (options.EPILOG).

    command: the command line that bench.json records.
    """
    options.device = device_of(parser, options)
    try:
        parts = plan(options)
    except NotLoaded as error:
        parser.fail(str(error))
    except RegistryError as error:
        parser.error(str(error))
    measurements = Measurements(options.report, environment(options.device, command=command))
    measurements.environment |= details(options.device)
    try:
        options.report.mkdir(parents=True, exist_ok=True)
        measurements.write()
        measurements.write_page()
    except OSError as error:
        parser.error(f"--report {options.report}: {error}")
    threads, tf32 = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False  # some containers turn it on, also for manual attention
    try:
        return measure(options, parts, measurements, console or _console())
    finally:
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = tf32


def measure(options: argparse.Namespace, parts: list[Part], measurements: Measurements, console: Console) -> int:
    """Run the benchmark. An interrupt ends it early, but the table, JSON and plot are still
    written.
    """
    started, device = time.perf_counter(), options.device
    broken = {entry.name: entry.impl for part in parts for entry in part.entries if isinstance(entry.impl, Unloadable)}
    for part in parts:
        part.entries = [entry for entry in part.entries if entry.name not in broken]
    bench = Bench(measurements, device, options.seconds or SECONDS[device], options.seed)
    _introduce(device, measurements, console)
    status = 0
    try:
        for part in parts:
            bench.measure_peaks(part.entries, part.cases)
        with _progress(console) as progress:
            tell = _progress_printer(parts, options.passes, measurements, progress, console)
            for part in parts:
                bench.run(part.entries, part.cases, options.passes, tell)
        measurements.state = "complete"
    except KeyboardInterrupt:
        measurements.state, status = "interrupted", 130
    left_out = [text for part in parts for text in part.left_out]
    measurements.environment |= {
        "seconds": round(time.perf_counter() - started, 1),
        "left_out": left_out,
        "not_loaded": [impl.problem for impl in broken.values()],
    }
    measurements.write()
    measurements.write_page()
    print_tables(measurements, console)
    for text in left_out:
        console.print(f"left out      {escape(text)}", highlight=False, soft_wrap=True)
    for impl in broken.values():
        console.print(f"[bold red]not loaded[/]    {escape(impl.problem)}", highlight=False, soft_wrap=True)
    drawn = _drawn(measurements, console)
    files = f"{measurements.page_file}, {measurements.json_file.name}" + ", bench.png" * drawn
    timed = sum(cell["verdict"] == TIMED for cell in measurements.cells)
    seconds = f"{time.perf_counter() - started:.0f} s"
    if bench.first_calls >= 1:
        seconds += f" ({bench.first_calls:.0f} s of it first calls, which compile and are not timed)"
    console.print(f"{measurements.state}: {timed} of {len(measurements.cells)} cells timed in {seconds}; see {files}",
                  highlight=False, soft_wrap=True)  # fmt: skip
    bad = broken or not timed or any(cell["verdict"] in UNTRUSTED for cell in measurements.cells)
    return status or int(bool(bad))


def _drawn(measurements: Measurements, console: Console) -> bool:
    """Write bench.png. Returns False if there is nothing to draw, or if Matplotlib is missing.

    In both cases the figure of an earlier run is removed.
    """
    file = measurements.directory / "bench.png"
    if problem := lacking("matplotlib"):
        console.print(f"no bench.png: {escape(problem)}", highlight=False, soft_wrap=True)
        drawn = False
    else:
        from flash_attest.bench import plot  # imports matplotlib, which is in the extra `bench`

        drawn = plot.draw(measurements, file)
    if not drawn:
        file.unlink(missing_ok=True)
    return drawn


def _progress_printer(
    parts: list[Part], passes: tuple[str, ...], measurements: Measurements, progress: Progress, console: Console
):
    """Return show(case, pass, implementation), which updates the progress bar.

    A log has no bar, so there it prints a line for each case and for each first call, which
    compiles.
    """
    work = [case for part in parts for case in part.cases]
    cells = sum(len(part.cases) * len(part.entries) for part in parts) * len(passes)
    bar = progress.add_task("", total=cells)
    compiled = {entry.name for part in parts for entry in part.entries if entry.file in GPU_KERNELS}
    cases_shown, called = set(), set()

    def show(case: Case, which: str, name: str) -> None:
        compiles = measurements.environment["device"] == "cuda" and name in compiled and name not in called
        first = f"first call of {name}, which may compile: " if compiles else ""
        progress.update(bar, completed=len(measurements.cells), description=f"{first}{name} {which} {case}")
        if not console.is_terminal and case not in cases_shown:
            console.print(f"{work.index(case) + 1:3} of {len(work)}  {case}", highlight=False, soft_wrap=True)
        if not console.is_terminal and first:
            console.print(f"            first call of {name}, which may compile", highlight=False, soft_wrap=True)
        cases_shown.add(case)
        called.add(name)

    return show


def details(device: str) -> dict:
    """Return the other properties of the device that the figures depend on."""
    if device == "cpu":
        return {"threads": 1}
    about = torch.cuda.get_device_properties(0)
    return {"capability": f"{about.major}.{about.minor}", "multiprocessors": about.multi_processor_count,
            "memory_gib": round(about.total_memory / 2**30, 1), "cudnn": torch.backends.cudnn.version()}  # fmt: skip


def _introduce(device: str, measurements: Measurements, console: Console) -> None:
    about = measurements.environment
    console.print(f"{about['device_name']}, torch {about['versions']['torch']}", highlight=False)
    if device == "cpu":
        console.print("This is the CPU (one thread): small sizes, wall clock, GFLOP/s. It shows that the "
                      "benchmark works, but nothing about kernels for GPUs.", highlight=False, soft_wrap=True)  # fmt: skip


def _console() -> Console:
    """Make a console as wide as the terminal, or so wide in a log that no table wraps."""
    console = Console()
    return console if console.is_terminal else Console(width=400)


def _progress(console: Console) -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                    TimeRemainingColumn(), console=console, transient=True)  # fmt: skip
