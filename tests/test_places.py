"""Tests how messages name documents, in a checkout and in an installation."""

from __future__ import annotations

import pytest

from flash_attest import places
from tests.places import ROOT


def test_a_checkout_has_the_files():
    assert places.document("why/bugs.md#masks") == "docs/why/bugs.md#masks"
    assert (ROOT / places.document("why/bugs.md")).is_file()


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("why/bugs.md#masks", "flash-attest docs bugs#masks"),
        ("use/tracing-cuda.md", "flash-attest docs tracing-cuda"),
    ],
)
def test_an_installation_has_a_command(monkeypatch, path, command):
    monkeypatch.setattr(places, "IN_CHECKOUT", False)
    assert places.document(path) == command
