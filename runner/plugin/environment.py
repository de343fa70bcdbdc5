"""Describes where and how a run judges: versions, device, options, and what verdicts depend on."""

from __future__ import annotations

import functools
import platform
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import torch

from flash_attest.properties.machine.gpus import emulated_on, note_on

PACKAGES = ("torch", "triton", "numba", "numba-cuda", "numpy", "pytest", "pytest-xdist", "hypothesis")


def environment(device: str, **more: object) -> dict:
    """Return the environment of a run: versions, device, and what the caller adds (seed, profile,
    command, name of the GPU).
    """
    versions = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "versions": versions,
        "installed": installed(),
        "device": device,
        "emulated": emulated_on(device),
        "device_name": f"{cpu_name()}{note_on(device)}",
        "platform": platform.platform(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **more,
    }


@functools.cache
def installed() -> dict[str, str]:
    """Return the version of each installed package, by name.

    The versions come from the names of the folders NAME-VERSION.dist-info, because reading their
    files would take 0.1 s.
    """
    folders = (folder.stem.partition("-") for path in reversed(sys.path) for folder in Path(path).glob("*.dist-info"))
    return dict(sorted((name.lower().replace("_", "-"), version) for name, _, version in folders))


@functools.cache
def cpu_name() -> str:
    """Return the CPU's name from /proc/cpuinfo, such as "AMD EPYC ...", or else the
    architecture.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
