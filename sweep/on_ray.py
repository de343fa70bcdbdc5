"""A sweep on many machines: each shard is a task of Ray (https://docs.ray.io), whose file comes back and is merged.

    flash-attest sweep --ray --address auto --shards 16 --gpus 8 --db all.db --seed 7 --hours 8

Ray copies this checkout to its machines, which need Python and requirements.txt. Options that are not named here go to
`flash-attest sweep` of each shard.
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

import flash_attest.required  # noqa: F401  (first, as what follows needs the packages that it looks for)

# isort: split
from flash_attest.impls.contract import registry
from flash_attest.places import IMPORTED_FROM
from flash_attest.sweep import merge
from flash_attest.sweep.options import parsed, parser_of_options
from flash_attest.sweep.store import Store, StoreError

NOT_COPIED = [".git", ".tox", ".venv", "attest-report", "attest-sweep", "__pycache__"]
CTRL_C = 130  # exit status
SHARDS = "shards"  # the folder of their files, beside the joined one


def sweep_shard(part: int, of: int, arguments: list[str]) -> tuple[int, str, bytes]:
    """Sweep one shard in a process of its own: its exit status, the end of what it said, its file. Runs on any machine."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.db")
        command = [sys.executable, "-m", "flash_attest.sweep", *arguments, "--shard", f"{part}/{of}", "--db", str(file)]
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


def main(arguments: list[str]) -> int:
    """Returns 0 if nothing was found; 1 if something was, or a shard was lost; 2 if the command is wrong."""
    parser = argparse.ArgumentParser(
        prog="flash-attest sweep --ray", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--address", help="of the cluster, such as auto (without it: one on this machine)")
    parser.add_argument("--shards", type=int, required=True, metavar="N", help="how many tasks")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="of each task (0: the emulator)")
    parser.add_argument("--cpus", type=int, default=1, metavar="N", help="of each task (1)")
    parser.add_argument(
        "--db", type=Path, required=True, metavar="FILE", help="the joined file, which must not be there"
    )
    parser.add_argument("--seed", required=True, metavar="N", help="which runs are drawn, by all shards together")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="of all shards (cuda if --gpus says so)")
    parser.add_argument("--workers", metavar="N", help="of each shard (on GPUs several for each; otherwise --cpus)")
    parser.add_argument(
        "--impl-from", metavar="FILE.py[:NAME]", action="append", default=[], help="in this checkout, which Ray copies"
    )
    options, rest = parser.parse_known_args(arguments)
    for name, least in ("shards", 1), ("gpus", 0), ("cpus", 1):
        if getattr(options, name) < least:
            parser.error(f"--{name} {getattr(options, name)}: should be at least {least}")
    if options.db.exists():
        parser.error(f"--db {options.db}: is there already: name another file")
    device = options.device or ("cuda" if options.gpus else "cpu")
    workers = options.workers or (None if options.gpus else str(options.cpus))
    rest += ["--seed", options.seed, "--device", device, *(["--workers", workers] if workers else [])]
    for argument in options.impl_from:
        rest += ["--impl-from", _in_checkout(parser, argument)]
    check = parsed if device == "cpu" else parser_of_options().parse_args  # without a GPU, parsed refuses --device cuda
    check([*rest, "--shard", f"1/{options.shards}"])  # an early error
    try:
        ray = importlib.import_module("ray")  # takes seconds, and few machines have it
    except ImportError:
        parser.error("Ray is not installed: pip install ray")
    return _merged(_shards(ray, options, rest), options)


def _in_checkout(parser: argparse.ArgumentParser, argument: str) -> str:
    """--impl-from, from the root of the checkout, where every shard starts."""
    file, name = registry.file_of(argument)
    if not file.resolve().is_relative_to(IMPORTED_FROM):
        parser.error(
            f"--impl-from {argument}: lies outside of {IMPORTED_FROM}, which is what Ray copies to its machines"
        )
    return ":".join([str(file.resolve().relative_to(IMPORTED_FROM)), *([name] if name else [])])


def _shards(ray: ModuleType, options: argparse.Namespace, arguments: list[str]) -> dict[int, tuple[int, str, bytes]]:
    """What each shard gave; one whose machine was lost gives its error and no file, nor does one that Ctrl-C ended."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address=options.address, runtime_env={"working_dir": str(IMPORTED_FROM), "excludes": NOT_COPIED})
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
        given = dict.fromkeys(shards, (CTRL_C, "interrupted", b"")) | given
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
    return merge.main([*map(str, files), "--into", str(options.db)]) or worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
