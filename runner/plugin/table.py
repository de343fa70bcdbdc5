"""Defines the options of a run, each in one place.

The pytest of a checkout has them without a prefix, any other pytest with the prefix --attest-.
"""

# Every run of pytest and --help read this, so it must not import torch, which takes seconds.

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from flash_attest.arguments import EMULATED, EMULATED_HELP, Joined
from flash_attest.runner.profiles import DEFAULT, PROFILES

CASES = ", ".join(f"{name} {profile.cases}" for name, profile in PROFILES.items())
OWN_PREFIX = "attest-"  # before each name, for the plug-in in another repository


@dataclass(frozen=True)
class Option:
    """One option: its name without dashes, and the arguments for argparse.

    ini: whether a repository may also set it in its settings. help: {0} stands for the prefix.
    """

    name: str
    help: str
    metavar: str | None = None
    default: Any = None
    choices: tuple[str, ...] | None = None
    type: type | None = None
    flag: bool = False
    again: bool = False  # each use adds to a list
    joined: bool = False  # each use adds names to a text A,B
    ini: bool = False

    def add(self, group: pytest.OptionGroup, prefix: str = "") -> None:
        """Add the option to pytest's options."""
        arguments: dict[str, Any] = {"help": self.help.format(prefix), "default": self.default}
        if self.flag:
            arguments |= {"action": "store_true", "default": False}
        else:
            arguments |= {
                name: value for name in ("metavar", "choices", "type") if (value := getattr(self, name)) is not None
            }
        if self.again:
            arguments |= {"action": "append", "default": []}
        if self.joined:
            arguments |= {"action": Joined}
        group.addoption(f"--{prefix}{self.name}", **arguments)


DEVICE = Option("device", "where to judge; auto: cuda if there is one", choices=("auto", "cpu", "cuda"), default="auto")
EMULATED_GPU = Option("emulated", EMULATED_HELP, choices=EMULATED)
CASE = Option("case", 'replay one case, as in --{0}case "seqlen_q=65 headdim=64"', metavar='"FIELD=VALUE ..."')
REPEATS = Option(
    "repeats",
    f"how often test_races repeats a call ({PROFILES[DEFAULT].repeats}, on a CPU {PROFILES[DEFAULT].repeats_on_cpu}; "
    f"smoke: {PROFILES['smoke'].repeats}), times an implementation's share",
    metavar="N",
    type=int,
)
PERTURB = Option(
    "perturb",
    "the perturbations under which test_races repeats calls, for example stress,cold, or none (all that the device "
    "has; an unknown name lists them; docs/why/races.md)",
    metavar="NAMES",
    joined=True,
)
CASE_TIMEOUT = Option(
    "case-timeout",
    "the limit for a call of an implementation, ten times as long while something compiles (120; 0: no limit)",
    metavar="SECONDS",
    type=float,
    default=120.0,
    ini=True,
)
LAW_TIME_LIMIT = Option(
    "law-time-limit",
    "the limit for a law on one implementation, which is unknown if it is not decided by then (0: no limit)",
    metavar="SECONDS",
    type=float,
    default=0.0,
    ini=True,
)
TIME_LIMIT = Option(
    "time-limit",
    "the limit for the whole run; laws that are not decided by then are unknown (0: no limit)",
    metavar="SECONDS",
    type=float,
    default=0.0,
    ini=True,
)
NO_ISOLATION = Option(
    "no-isolation", "judge in the pytest process, for a debugger: a kernel that crashes ends the run", flag=True
)

SUITE = (
    Option(
        "impl", "judge only these implementations (an unknown name lists the known ones)", metavar="A,B", joined=True
    ),
    Option(
        "impl-from",
        "judge the Implementation in this file (NAME, else IMPL or IMPLS); may be given again; with = for a file outside "
        "this folder (--impl-from=/elsewhere/mine.py)",
        metavar="FILE.py[:NAME]",
        again=True,
    ),
    Option(
        "untrusted",
        "import the files of --impl-from, and call what is in them, in a kernel process only, which holds neither the "
        "oracle nor an expected value (docs/use/for-generated-kernels.md)",
        flag=True,
    ),
    DEVICE,
    Option("here", "leave out the implementations that need another device, and say which", flag=True),
    EMULATED_GPU,
    CASE,
    Option("shard", "judge the I-th of N parts of the laws (flash-attest merge joins them)", metavar="I/N"),
    REPEATS,
    PERTURB,
    CASE_TIMEOUT,
    LAW_TIME_LIMIT,
    TIME_LIMIT,
    NO_ISOLATION,
    Option(
        "report",
        "where results.json and index.html go (attest-report); with = for a folder outside this one",
        metavar="DIR",
        default="attest-report",
    ),
    Option(
        "resume",
        "continue the run whose report is in the folder of --report: its decided laws are not judged again",
        flag=True,
    ),
)
OWN = (
    Option(
        "profile",
        f"how many cases each law of @attention_laws gets ({CASES})",
        choices=tuple(PROFILES),
        metavar="NAME",
        ini=True,
    ),
    Option("seed", "which cases are drawn: a whole number (0)", metavar="N", type=int, ini=True),
    DEVICE,
    EMULATED_GPU,
    CASE,
    REPEATS,
    PERTURB,
    replace(CASE_TIMEOUT, default=None),  # None means not given: the settings may have it
    replace(LAW_TIME_LIMIT, default=None),
    replace(TIME_LIMIT, default=None),
    NO_ISOLATION,
    Option("report", "write results.json and index.html to this folder (no report)", metavar="DIR", ini=True),
)
