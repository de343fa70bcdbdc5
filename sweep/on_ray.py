"""A sweep on many machines: each shard is a task of Ray (https://docs.ray.io), whose file comes back and is merged."""

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
from flash_attest.impls.contract import registry
from flash_attest.packages import install
from flash_attest.places import IMPORTED_FROM, IN_CHECKOUT
from flash_attest.sweep import merge
from flash_attest.sweep.store import Store, StoreError

NOT_COPIED = [".git", ".tox", ".venv", "attest-report", "attest-sweep", "__pycache__"]
SHARDS = "shards"  # the folder of their files, beside the joined one


def sweep_shard(part: int, of: int, arguments: list[str]) -> tuple[int, str, bytes]:
    """Sweep one shard in a process of its own: its exit status, the end of what it said, its file. Runs on any machine."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.db")
        own = ["--shard", f"{part}/{of}", "--db", str(file)]
        command = [sys.executable, "-m", "flash_attest", "sweep", *arguments, *own]
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        said = ran.stdout[-2000:]
        if not file.exists():
            return ran.returncode, said, b""
        try:
            with closing(Store(file)) as store:  # one that was killed has runs in its log
                store.settle()
        except StoreError as error:
            return ran.returncode or 1, f"{said}\n{error}", b""
        return ran.returncode, said, file.read_bytes()


def sweep(parser: Parser, options: argparse.Namespace, rest: list[str]) -> int:
    """Sweep all shards and join their files. rest: the options of each shard.

    Returns 0 if nothing was found, 1 if something was, or a shard was lost.
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
    """Return the folder that Ray copies to its machines: the checkout, or the current one if flash-attest is installed."""
    return IMPORTED_FROM if IN_CHECKOUT else Path.cwd()


def _in(folder: Path, parser: Parser, argument: str) -> str:
    """--impl-from, from the folder in which every shard starts."""
    file, name = registry.file_of(argument)
    if not file.resolve().is_relative_to(folder):
        parser.error(f"--impl-from {argument}: lies outside of {folder}, which is what Ray copies to its machines")
    return ":".join([str(file.resolve().relative_to(folder)), *([name] if name else [])])


def _shards(ray: ModuleType, options: argparse.Namespace, arguments: list[str], folder: Path) -> dict[int, tuple]:
    """What each shard gave; one whose machine was lost gives its error and no file, nor does one that Ctrl-C ended."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address=options.address, runtime_env={"working_dir": str(folder), "excludes": NOT_COPIED})
    shards, given = range(1, options.shards + 1), {}
    try:
        task = ray.remote(num_gpus=options.gpus, num_cpus=options.cpus, max_retries=0)(sweep_shard)
        waiting = {task.remote(part, options.shards, arguments): part for part in shards}
        while waiting:
            (ready, *_), _ = ray.wait(list(waiting))
            part = waiting.pop(ready)
            try:
                given[part] = ray.get(ready)
            except ray.exceptions.RayError as error:
                given[part] = (1, f"{type(error).__name__}: {error}", b"")
            print(f"shard {part}/{options.shards} ended: exit status {given[part][0]}", flush=True)
    except KeyboardInterrupt:
        given = dict.fromkeys(shards, (INTERRUPTED, "interrupted", b"")) | given
    finally:
        ray.shutdown()
    return given


def _merged(given: dict[int, tuple[int, str, bytes]], options: argparse.Namespace) -> int:
    """Keep the files of the shards, and join them."""
    folder = options.db.parent / f"{options.db.stem}-{SHARDS}"
    folder.mkdir(parents=True, exist_ok=True)
    files, worst = [], 0
    for part, (status, said, data) in sorted(given.items()):
        if data:
            files.append(folder / f"{part}.db")
            files[-1].write_bytes(data)
        if status not in (0, 1) or not data:
            worst = 1
            print(f"shard {part}/{options.shards} ended with exit status {status}:\n{said}", file=sys.stderr)
    if not files:
        print("no shard gave a file", file=sys.stderr)
        return 1
    return merge.join(files, options.db) or worst
