"""The browser for these tests is found, or what to install is said."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.page import browsers

NONE = SimpleNamespace(chromium=SimpleNamespace(executable_path="/nowhere/chrome"))


@pytest.fixture
def bare(monkeypatch):
    """A machine without a browser. Returns the installations that are tried."""
    tried = []
    monkeypatch.delenv(browsers.VARIABLE, raising=False)
    monkeypatch.setattr(browsers.shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    monkeypatch.setattr(browsers.os, "geteuid", lambda: 0)
    monkeypatch.setattr(browsers, "_run", lambda *command: tried.append(command))
    return tried


def test_the_variable_comes_first(tmp_path, monkeypatch):
    (tmp_path / "chrome").write_text("")
    monkeypatch.setenv(browsers.VARIABLE, str(tmp_path / "chrome"))
    assert browsers.executable(NONE) == str(tmp_path / "chrome")
    monkeypatch.setenv(browsers.VARIABLE, "/nowhere")
    with pytest.raises(browsers.NoBrowser, match="is /nowhere: should be the path of a Chromium or Chrome"):
        browsers.executable(NONE)


def test_where_nothing_can_be_installed_the_error_says_what_to_do(bare):
    with pytest.raises(browsers.NoBrowser, match="python -m playwright install chromium"):
        browsers.executable(NONE)
    assert [command[-1] for command in bare] == ["chromium", "-qq", "chromium"]


def test_nothing_is_installed_where_there_is_a_browser(bare, monkeypatch):
    monkeypatch.setattr(browsers.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "google-chrome" else None)
    assert browsers.executable(NONE) == "/usr/bin/google-chrome" and not bare
