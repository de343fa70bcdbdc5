"""docs/use/public.md names exactly what is public."""

import re

import flash_attest
from flash_attest import command
from flash_attest.command.targets import GROUP
from flash_attest.runner.plugin import hookspecs, table
from flash_attest.runner.profiles import PROFILES
from tests.places import ROOT

TEXT = (ROOT / "docs" / "use" / "public.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the table whose first column has this heading."""
    _, below = re.split(rf"^\| {heading} \|.*\n\|[-|]+\n", TEXT, maxsplit=1, flags=re.M)
    lines = re.match(r"(?:\|.*\n)*", below)[0].splitlines()
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_names_are_those_that_one_imports():
    assert sorted(name for name, _ in rows("name")) == sorted(flash_attest.__all__)
    assert all(hasattr(flash_attest, name) for name in flash_attest.__all__)


def test_options_and_settings_are_those_of_the_plug_in():
    want = [
        (f"--{table.OWN_PREFIX}{option.name}", f"attest_{option.name.replace('-', '_')}" if option.ini else "")
        for option in table.OWN
    ]
    assert [tuple(row[:2]) for row in rows("option")] == [*want, ("", "attest_emulate")]
    assert ", ".join(f"{name} {profile.cases}" for name, profile in PROFILES.items()) in TEXT


def test_commands_hook_and_group_are_named():
    (listed,) = re.findall(r"`flash-attest COMMAND`: (.*?)\.\s", TEXT, flags=re.S)
    assert re.findall(r"`(\w+)`", listed) == list(command.COMMANDS)
    assert f"`{hookspecs.pytest_attention_impls.__name__}(config)`" in TEXT and f"`{GROUP}`" in TEXT
