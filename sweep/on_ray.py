"""A sweep on many machines: each shard is a task of Ray (https://docs.ray.io).

Each task returns its file, and the files are merged.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from types import ModuleType

from flash_attest.arguments import INTERRUPTED, Parser
from flash_attest.impls.contract import loading
from flash_attest.packages import install
from flash_attest.places import IMPORTED_FROM, IN_CHECKOUT
from flash_attest.sweep import merge
from flash_attest.sweep.store import Store, StoreError

NOT_COPIED = [".git", ".tox", ".venv", "attest-report", "attest-sweep", "__pycache__"]
SHARDS = "shards"  # the folder of their files, beside the joined one


def sweep_shard(part: int, of: int, arguments: list[str]) -> tuple[int, str, bytes]:
    """Sweep one shard in its own process. Returns the exit status, the end of the output, and the
    contents of its file.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.db")
        own = ["--shard", f"{part}/{of}", "--db", str(file)]
        command = [sys.executable, "-m", "flash_attest", "sweep", *arguments, *own]
        ran = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
        )
        output = ran.stdout[-2000:]
        if not file.exists():
            return ran.returncode, output, b""
        try:
            with closing(Store(file)) as store:  # if the sweep was killed, its log has more runs
                store.settle()
        except StoreError as error:
            return ran.returncode or 1, f"{output}\n{error}", b""
        return ran.returncode, output, file.read_bytes()


def sweep(parser: Parser, options: argparse.Namespace, rest: list[str]) -> int:
    """Sweep all shards and join their files. rest: the options that each shard gets.

    Returns 0 if nothing was found, 1 if something was found or a shard failed.
    """
    folder = copied()
    for argument in options.impl_from:
        rest = [*rest, "--impl-from", _in(folder, parser, argument)]
    try:
        ray = importlib.import_module("ray")  # takes seconds, and few machines have it
    except ImportError:
        parser.error(f"Ray is not installed: {install('ray')}")
    return _merged(_shards(ray, options, rest, folder), options)


def copied() -> Path:
    """Return the folder that Ray copies to its machines.

    It is the checkout, or the current folder if flash-attest is installed.
    """
    return IMPORTED_FROM if IN_CHECKOUT else Path.cwd()


def _in(folder: Path, parser: Parser, argument: str) -> str:
    """Return --impl-from relative to the folder in which all shards start."""
    file, name = loading.file_of(argument)
    if not file.resolve().is_relative_to(folder):
        parser.error(f"--impl-from {argument}: lies outside of {folder}, the folder that Ray copies to its machines")
    return ":".join([str(file.resolve().relative_to(folder)), *([name] if name else [])])


def _shards(ray: ModuleType, options: argparse.Namespace, arguments: list[str], folder: Path) -> dict[int, tuple]:
    """Return {shard: (exit status, output, file)}.

    The file is empty if the machine of a shard failed, or if Ctrl-C ended it.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address=options.address, runtime_env={"working_dir": str(folder), "excludes": NOT_COPIED})
    shards, results = range(1, options.shards + 1), {}
    try:
        task = ray.remote(num_gpus=options.gpus, num_cpus=options.cpus, max_retries=0)(sweep_shard)
        waiting = {task.remote(part, options.shards, arguments): part for part in shards}
        while waiting:
            (ready, *_), _ = ray.wait(list(waiting))
            part = waiting.pop(ready)
            try:
                results[part] = ray.get(ready)
            except ray.exceptions.RayError as error:
                results[part] = (1, f"{type(error).__name__}: {error}", b"")
            print(f"shard {part}/{options.shards} ended: exit status {results[part][0]}", flush=True)
    except KeyboardInterrupt:
        results = dict.fromkeys(shards, (INTERRUPTED, "interrupted", b"")) | results
    finally:
        ray.shutdown()
    return results


def _merged(results: dict[int, tuple[int, str, bytes]], options: argparse.Namespace) -> int:
    """Write the files of the shards, and join them. Returns the exit status."""
    folder = options.db.parent / f"{options.db.stem}-{SHARDS}"
    folder.mkdir(parents=True, exist_ok=True)
    files, worst = [], 0
    for part, (status, output, data) in sorted(results.items()):
        if data:
            files.append(folder / f"{part}.db")
            files[-1].write_bytes(data)
        if status not in (0, 1) or not data:
            worst = 1
            print(f"shard {part}/{options.shards} ended with exit status {status}:\n{output}", file=sys.stderr)
    if not files:
        print("no shard gave a file", file=sys.stderr)
        return 1
    return merge.join(files, options.db) or worst
