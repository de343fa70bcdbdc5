"""A kernel process sees its folder, and no report, oracle or law, wherever they lie."""

import pytest

from flash_attest.places import ROOMS
from flash_attest.runner.untrusted import sandbox, surroundings
from flash_attest.runner.untrusted.needs import view_of
from flash_attest.runner.untrusted.view import View
from tests.places import PLUGINS


def test_the_deepest_path_decides():
    view = View(("/a", "/a/b/c", "/a/d", "/e"), ("/a/b", "/x", "/e/f"), (), "/")
    assert view.ordered() == [("/a", True), ("/e", True), ("/a/b", False), ("/e/f", False), ("/a/b/c", True)]


def test_what_is_allowed_leaves_out_what_is_hidden(tmp_path):
    for name in ("code/a.py", "code/b.py", "report/results.json", "report/kept/x", "deep/er/c.py", "deep/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    hidden = tuple(f"{tmp_path}/{name}" for name in ("report", "deep/er", "code/b.py"))
    view = View((str(tmp_path), f"{tmp_path}/report/kept"), hidden, (), "/")
    allowed = sorted(path.removeprefix(f"{tmp_path}/") for path in view.allowed())
    assert allowed == ["code/a.py", "deep/d.py", "report/kept"]


def shown(view, path):
    """Return whether the deepest path that contains a file is readable."""
    marked = dict(view.ordered())
    return next((marked[str(each)] for each in (path, *path.parents) if str(each) in marked), False)


def test_a_file_at_the_root_of_the_checkout_does_not_show_what_is_expected():
    view = view_of(str(ROOMS / "mine.py"), [], [ROOMS / "flash_attest"], [])
    assert shown(view, ROOMS / "mine.py") and shown(view, ROOMS / "impls" / "torch_math.py")
    for name in ("oracle/masks.py", "properties/test_memory.py", "tests/trials.py", "runner/judge.py", ".git/config"):
        assert not shown(view, ROOMS / name), name


def test_reports_beside_a_file_are_hidden_and_so_is_the_one_to_be_written(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "results.json").touch()
    (tmp_path / "new").mkdir()
    (tmp_path / "mine.py").touch()
    view = view_of(str(tmp_path / "mine.py"), [], [str(tmp_path / "new")], [])
    assert shown(view, tmp_path / "mine.py")
    assert not shown(view, tmp_path / "old" / "results.json") and not shown(view, tmp_path / "new" / "results.json")


def test_the_environment_passes_on_what_is_needed_only(tmp_path):
    given = {"PATH": "/bin", "CUDA_HOME": "/cuda", "API_KEY": "x", "PYTEST_CURRENT_TEST": "y", "PYTHONPATH": "/p",
             "FLASH_ATTEST_COMMAND": "z", "LD_PRELOAD": "/l", "LC_ALL": "C"}  # fmt: skip
    variables = surroundings.variables(tmp_path / "cache", tmp_path, given)
    assert {"PATH", "CUDA_HOME", "LC_ALL"} <= {*variables}
    assert not {"API_KEY", "PYTEST_CURRENT_TEST", "PYTHONPATH", "FLASH_ATTEST_COMMAND", "LD_PRELOAD"} & {*variables}
    assert variables["HOME"] == variables["TMPDIR"] == str(tmp_path)


def test_another_file_has_another_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(surroundings, "MOST_CACHES", 2)
    files, folders = [tmp_path / f"{n}.py" for n in range(3)], []
    for n, file in enumerate(files):
        file.write_text("text" * n)
        folders.append(surroundings.own_cache(str(file), tmp_path))
    assert len({*folders}) == 3 and folders[2].exists()
    assert len([folder for folder in folders if folder.exists()]) == 2
    assert surroundings.own_cache(str(files[2]), tmp_path) == folders[2]
    files[2].write_text("changed")
    assert surroundings.own_cache(str(files[2]), tmp_path) != folders[2]


def test_without_anything_to_hold_a_kernel_untrusted_is_refused(monkeypatch):
    from flash_attest.runner.untrusted import bubblewrap, landlock
    from flash_attest.runner.untrusted.entries import check_options, header

    monkeypatch.delenv(sandbox.VARIABLE, raising=False)
    monkeypatch.setattr(bubblewrap, "problem", lambda: "bubblewrap is not installed")
    assert sandbox.chosen() == sandbox.LANDLOCK
    monkeypatch.setattr(landlock, "version", lambda: 0)
    with pytest.raises(Exception, match=r"--untrusted: nothing here can hold what it calls \(bubblewrap is not"):
        check_options([str(PLUGINS / "good.py")], None)
    monkeypatch.setenv(sandbox.VARIABLE, "none")
    check_options([str(PLUGINS / "good.py")], None)
    assert header().endswith("held by nothing: it can do whatever you can do")
    for value, words in (
        ("bubblewrap", "bubblewrap is not installed"),
        ("docker", "should be bubblewrap, landlock or"),
    ):
        monkeypatch.setenv(sandbox.VARIABLE, value)
        with pytest.raises(sandbox.NotHeld, match=words):
            sandbox.chosen()
