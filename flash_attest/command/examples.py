"""flash-attest examples: copies an example to the current folder, where it can be changed."""

from __future__ import annotations

import shutil
from pathlib import Path

from flash_attest.arguments import Parser
from flash_attest.did_you_mean import did_you_mean
from flash_attest.places import ROOMS

NAME = "examples"
SUMMARY = "copies an example here: a broken kernel, the repository of a kernel author"
EPILOG = """\
  flash-attest examples                  lists them
  flash-attest examples one_key_short    copies one_key_short.py to the current folder

Exit status: 0, or 2 if there is no such example, or it would overwrite something.
"""
EXAMPLES = {  # name: (description, files or folders)
    "one_key_short": ("a FlashAttention forward with a bug, for docs/use/first-verdict.md", ("one_key_short.py",)),
    "own_repository": ("a Triton kernel with its tests, which need no GPU", ("own_repository",)),
    "flash_forward": ("a CUDA C++ kernel and its plug-in", ("flash_forward.cu", "flash_forward.py")),
}


def run(arguments: list[str]) -> int:
    """List the examples, or copy some. Returns the exit status."""
    parser = Parser(f"flash-attest {NAME}", "Copies an example to the current folder.", EPILOG)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the examples to copy; without a name, all are listed")
    options = parser.parse_args(arguments)
    if not options.names:
        print(*(f"{name:15} {description}" for name, (description, _) in EXAMPLES.items()), sep="\n")
        return 0
    for name in options.names:
        if name not in EXAMPLES:
            parser.error(f"no example is called {name}{did_you_mean(name, EXAMPLES)} (examples: {', '.join(EXAMPLES)})")
    files = [file for name in dict.fromkeys(options.names) for file in EXAMPLES[name][1]]
    if existing := [file for file in files if Path(file).exists()]:
        parser.error(f"{existing[0]} is here already, and is not overwritten: go to another folder, or move it away")
    for file in files:
        _copy(ROOMS / "examples" / file, Path(file))
    return 0


def _copy(source: Path, target: Path) -> None:
    """Copy a file, or a folder without its compiled modules, and print the name."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)
    print(f"{target}{'/' * source.is_dir()}")
