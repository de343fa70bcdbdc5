"""flash-attest wild: packages from an index of our own are installed, judged, and judged once."""

import zipfile

import pytest

from flash_attest.command import wild
from flash_attest.wild.install import installed, newest
from flash_attest.wild.judge import RESULTS, Run
from flash_attest.wild.packages import PACKAGES, SOURCES, Package

TINY = Package("tiny-attention", ">=0.1,<1", "0.1")
CODE = """\
from torch.nn.functional import scaled_dot_product_attention as sdpa

from flash_attest import Implementation, Supports

IMPLS = [
    Implementation(name="tiny_attention", layout="bhsd", forward=lambda q, k, v: {factor} * sdpa(q, k, v),
                   supports=Supports(headdims={{8}}), outside="undefined", share=0.1),
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


def test_a_package_is_judged_once_and_a_new_release_again(index, tmp_path, capsys):
    publish(index, "0.1")
    run = Run(tmp_path / "wild")
    assert run.judge([TINY])
    row = run.results()["tiny_attention"]
    assert (row.version, row.status, row.counts["fail"]) == ("0.1", 0, 0) and row.counts["pass"] > 5 and row.cases > 5
    assert "tiny-attention 0.1: as expected: " in capsys.readouterr().out
    assert run.judge([TINY]) and capsys.readouterr().out.endswith(" s (judged before)\n")
    publish(index, "0.2", factor=2)
    publish(index, "1.5")
    assert not run.judge([TINY])
    said = capsys.readouterr().out
    assert "tiny-attention 0.2: NOT as expected: " in said and run.results()["tiny_attention"].counts["fail"]
    assert said.endswith("; 0.2 is new: the findings are of 0.1; 1.5 is out: the adapter is for >=0.1,<1\n")


def test_a_package_that_pip_cannot_install_is_named_and_the_others_are_judged(index, tmp_path, capsys):
    assert not Run(tmp_path / "wild").judge([TINY, Package("gpu-only", "", "1", runs="cuda")])
    said = capsys.readouterr().out
    assert "tiny-attention: not judged: pip install tiny-attention>=0.1,<1: No matching distribution" in said
    assert said.endswith("gpu-only: needs a GPU\n")


def test_an_interrupted_installation_is_made_again(index, tmp_path):
    publish(index, "0.1")
    (tmp_path / "tiny_attention-0.1.unfinished" / "half").mkdir(parents=True)
    site = installed(TINY, newest(TINY), tmp_path)
    assert (site / "tiny_attention.py").exists() and not (tmp_path / "tiny_attention-0.1.unfinished").exists()


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
