"""flash-attest wild: packages from an index of our own are installed, judged, and judged once."""

import io
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest
from filelock import FileLock

from flash_attest.command import wild
from flash_attest.properties.machine import gpus
from flash_attest.wild import install, judge
from flash_attest.wild.install import InstallError, installed, newest
from flash_attest.wild.judge import RESULTS, Run
from flash_attest.wild.packages import PACKAGES, SOURCES, Package, Source
from tests import runs

TINY = Package("tiny-attention", ">=0.1,<1", "0.1")
CODE = """\
from torch.nn.functional import scaled_dot_product_attention as sdpa

from flash_attest import Implementation, Supports

IMPLS = [
    Implementation(name="tiny_attention", layout="bhsd", forward=lambda q, k, v: {factor} * sdpa(q, k, v),
                   supports=Supports(headdims={{8}}), outside="undefined", share=0.1),
    Implementation(name="tiny_attention_on_a_gpu", layout="bhsd", forward=sdpa, devices={{"cuda"}},
                   supports=Supports(headdims={{8}})),
]
"""


def publish(folder, version, factor=1):
    """Write a wheel that registers its adapter."""
    info = f"tiny_attention-{version}.dist-info"
    with zipfile.ZipFile(folder / f"tiny_attention-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_attention.py", CODE.format(factor=factor))
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-attention\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/entry_points.txt", "[flash_attest.adapters]\ntiny_attention = tiny_attention:IMPLS\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Return the folder where pip looks for packages."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def in_a_fork(monkeypatch):
    """The command runs in a fork of a process that has torch, which its own processes would import
    three times.
    """

    def status_of(command, environment, output, folder):
        assert command[:3] == [sys.executable, "-m", "flash_attest"]
        run = runs.check(*command[3:], "-n", "0", folder=folder, PYTHONPATH=environment["PYTHONPATH"])
        output.write(run.stdout)
        return run.returncode

    monkeypatch.setattr(judge, "_status_of", status_of)


@pytest.mark.usefixtures("in_a_fork")
def test_a_package_is_judged_once_and_a_new_release_again(index, tmp_path, capsys):
    publish(index, "0.1")
    run = Run(tmp_path / "wild")
    assert run.judge([TINY])
    row = run.results()["tiny_attention"]
    assert (row.version, row.status, row.counts["fail"]) == ("0.1", 0, 0) and row.counts["pass"] > 5 and row.cases > 5
    assert row.verdict.endswith("; 1 implementation needs a GPU")
    assert "tiny-attention 0.1: as expected: " in capsys.readouterr().out
    assert run.judge([TINY]) and capsys.readouterr().out.endswith(" s (judged before)\n")
    publish(index, "0.2", factor=2)
    publish(index, "1.5")
    assert not run.judge([TINY])
    said = capsys.readouterr().out
    assert "tiny-attention 0.2: NOT as expected: " in said and run.results()["tiny_attention"].counts["fail"]
    assert "; 0.2 is new: the findings are of 0.1; 1.5 is out: the adapter is for >=0.1,<1\n  not green: " in said
    assert said.endswith(f"\n  what it printed: {tmp_path}/wild/tiny_attention/output.txt\n")


def test_a_package_that_pip_cannot_install_is_named_and_the_others_are_judged(index, tmp_path, capsys):
    assert not Run(tmp_path / "wild").judge([TINY, Package("gpu-only", "", "1", runs="cuda")])
    said = capsys.readouterr().out
    assert "tiny-attention: not judged: pip index tiny-attention: No matching distribution" in said
    assert said.endswith("gpu-only: needs a GPU\n")


@pytest.mark.parametrize(
    ("versions", "fits"), [((), None), (("1.0",), None), (("0.9", "0.10", "1.0", "0.11b1"), "0.10")]
)
def test_the_newest_version_is_asked_of_the_index_alone(index, versions, fits):
    """A package without wheels would be downloaded, and its source run, to learn its name."""
    for version in versions:
        source = io.BytesIO(b"raise SystemExit('the source runs')")
        with tarfile.open(index / f"tiny-attention-{version}.tar.gz", "w:gz") as archive:
            member = tarfile.TarInfo(f"tiny-attention-{version}/setup.py")
            member.size = len(source.getvalue())
            archive.addfile(member, source)
    if fits is None:
        with pytest.raises(InstallError):
            newest(TINY)
    else:
        assert (newest(TINY), newest(TINY, fitting=False)) == (fits, "1.0")


def test_an_interrupted_installation_is_made_again(index, tmp_path):
    publish(index, "0.1")
    (tmp_path / "tiny_attention-0.1.unfinished" / "half").mkdir(parents=True)
    site = installed(TINY, newest(TINY), tmp_path)
    assert (site / "tiny_attention.py").exists() and not (tmp_path / "tiny_attention-0.1.unfinished").exists()


def test_of_a_public_file_only_what_it_needs_is_installed(index, tmp_path):
    publish(index, "0.1")
    source = Source("tiny", "someone/tiny", "", "tiny", "2026-11-27", also=("tiny-attention",))
    assert (installed(source, source.judged, tmp_path) / "tiny_attention.py").exists()


@pytest.mark.parametrize("text", ["{", '{"tiny_attention": 3}', '{"tiny_attention": {"version": "1"}}', "[]"])
def test_damaged_results_are_named(tmp_path, text, capsys):
    (tmp_path / RESULTS).write_text(text)
    with pytest.raises(SystemExit) as ended:
        wild.run(["noflash-attention", "--folder", str(tmp_path), "--device", "cpu"])
    assert ended.value.code == 2 and f"{tmp_path / RESULTS}: is damaged" in capsys.readouterr().err


def test_list_and_an_unknown_name(capsys):
    assert wild.run(["--list"]) == 0
    assert capsys.readouterr().out.count("\n") == len(PACKAGES | SOURCES)
    with pytest.raises(SystemExit) as ended:
        wild.run(["flashn"])
    assert ended.value.code == 2 and "flashn: no such package; did you mean flashnn?" in capsys.readouterr().err


def test_every_spelling_of_a_name_and_a_repository_are_found(capsys):
    assert wild.run(["--list", "Fla.Core", "flash__attention-x", "pytorch/executorch", "triton_lang_kernels"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [
        "fla-core>=0.6,<0.7",
        "flash_attention_x>=0.0.1,<0.1",
        "pytorch/executorch",
        "triton-lang/kernels",
    ]


def error_of(capsys, *arguments):
    """Run the command, which is wrong. Returns its error."""
    with pytest.raises(SystemExit) as ended:
        wild.run(["noflash-attention", *map(str, arguments)])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_folder_that_cannot_be_used_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert f"--folder {tmp_path}/file/x: cannot be written to" in error_of(capsys, "--folder", tmp_path / "file" / "x")
    assert f"--write {tmp_path}: is a folder" in error_of(capsys, "--write", tmp_path)
    with FileLock(tmp_path / "in-use.lock"):
        assert f"--folder {tmp_path}: in use by another run" in error_of(capsys, "--folder", tmp_path)


def test_cuda_without_a_gpu_is_an_error_before_anything_is_installed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpus, "visible_gpus", list)
    assert "--device cuda: PyTorch sees no CUDA device" in error_of(capsys, "--folder", tmp_path, "--device", "cuda")


def test_a_run_that_judges_nothing_is_not_as_expected(tmp_path):
    assert not Run(tmp_path).judge([Package("gpu-only", "", "1", runs="cuda")])


@pytest.mark.parametrize(("status", "runs"), [(0, 1), (1, 1), (2, 2), (3, 2), (130, 2), (-9, 2)])
def test_a_run_that_did_not_come_to_its_end_is_made_again(tmp_path, monkeypatch, status, runs):
    calls = []
    monkeypatch.setattr(judge, "newest", lambda package, fitting=True: "0.1")
    monkeypatch.setattr(judge, "installed", lambda package, version, folder: folder)
    monkeypatch.setattr(judge, "_status_of", lambda *arguments: calls.append(arguments) or status)
    assert Run(tmp_path).judge([TINY]) is Run(tmp_path).judge([TINY]) is (status == 0)
    assert len(calls) == runs


def test_a_package_that_runs_as_sm_90_is_judged_so(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(judge, "newest", lambda package, fitting=True: "0.1")
    monkeypatch.setattr(judge, "installed", lambda package, version, folder: folder)
    monkeypatch.setattr(judge, "_status_of", lambda command, *others: commands.append(command) or 0)
    assert Run(tmp_path).judge([TINY, Package("tiny-hopper", "", "0.1", runs="sm_90")])
    assert [command[-2:] == ["--emulated", "90"] for command in commands] == [False, True]
    assert {key: row.device for key, row in Run(tmp_path).results().items()} == {
        "tiny_attention": "cpu", "tiny_hopper": "cpu, as sm_90",
    }  # fmt: skip


def test_a_package_whose_modules_a_pth_file_names_can_be_imported(tmp_path):
    (tmp_path / "within").mkdir()
    (tmp_path / "within" / "of_a_pth_file.py").touch()
    (tmp_path / "some.pth").write_text("within\n")
    done = subprocess.run([sys.executable, "-c", "import of_a_pth_file"], env=judge.with_paths(tmp_path), check=False)
    assert done.returncode == 0


RUN = """
import signal, sys, time
def end(*_):
    time.sleep(1)
    print("its files are whole", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("runs", flush=True)
time.sleep(600)
"""
JUDGE = """
import os, sys
from pathlib import Path
from flash_attest.wild.judge import _status_of
_status_of([sys.executable, "-c", sys.argv[1]], dict(os.environ), sys.stdout, Path.cwd())
"""


def test_an_interruption_waits_until_the_run_has_ended():
    command = [sys.executable, "-c", JUDGE, RUN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGINT)
        said, error = process.communicate(timeout=60)
    assert said == "its files are whole\n" and error.endswith("KeyboardInterrupt\n")


def test_two_installations_of_a_package_wait_for_each_other(tmp_path, monkeypatch):
    begun, calls = threading.Event(), []

    def pip(*arguments):
        calls.append(arguments)
        (tmp_path / "tiny_attention-0.1.unfinished").mkdir()
        begun.set()
        second.join(0.5)  # it waits for the lock
        return ""

    monkeypatch.setattr(install, "_pip", pip)
    second = threading.Thread(target=lambda: begun.wait() and installed(TINY, "0.1", tmp_path))
    second.start()
    assert installed(TINY, "0.1", tmp_path).is_dir()
    second.join()
    assert len(calls) == 1


def test_an_index_that_cannot_be_reached_is_named(monkeypatch):
    says = "import sys; sys.exit('WARNING: Retrying (total=0)\\nERROR: No matching distribution found for tiny')"
    monkeypatch.setattr(install, "PIP", (sys.executable, "-c", says))
    with pytest.raises(InstallError, match=r"No matching distribution found for tiny; pip could not reach the index$"):
        newest(TINY)
