"""Options whose text has to be read: --shard, --hypothesis-seed, --perturb."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable

import pytest

from flash_attest.races.perturb import chosen
from flash_attest.runner import parts
from flash_attest.runner.plugin import saved


def shard_option(config: pytest.Config) -> parts.Shard | None:
    """The part that --shard names; None without it."""
    text = config.getoption("--shard")
    try:
        return None if text is None else parts.parse(text)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def seed_option(config: pytest.Config) -> int:
    """The seed; a random one is drawn once for a run and those that --resume it."""
    text = config.getoption("hypothesis_seed", None)
    if text in (None, ""):
        return 0
    if text == "random":
        if config.getoption("--resume"):
            with contextlib.suppress(saved.NoReport):
                return saved.read(config.getoption("--report"))["environment"]["seed"]
        return secrets.randbelow(2**32)
    if not text.isdecimal():
        raise pytest.UsageError(f"--hypothesis-seed {text}: should be a whole number, or random")
    return int(text)


def perturb_option(config: pytest.Config, device: Callable[[], str]) -> str:
    """The perturbations that --perturb names; "" without it."""
    text = config.getoption("--perturb")
    if text is None:
        return ""
    if not text.strip(", "):
        raise pytest.UsageError(f"--perturb {text!r}: names nothing; none is called none")
    try:
        chosen(text, device())
    except ValueError as error:
        raise pytest.UsageError(f"--perturb {error}") from None
    return text
