"""Each module has one name and is loaded once, although rooms are links in flash_attest."""

from flash_attest.places import ROOMS
from tests.places import ROOT
from tests.runs import python

# Imports every module that needs neither a GPU nor an argument, and the chapters through pytest.
# Adapters need their packages, and emulator/cutedsl/patches.py CuTe DSL.
PROGRAM = """
import importlib, pkgutil, sys
import flash_attest
names = [m.name for m in pkgutil.walk_packages(flash_attest.__path__, "flash_attest.") if not m.name.endswith("__main__")]
for name in names:
    try:
        importlib.import_module(name)
    except flash_attest.NotInstalled:
        pass
    except ModuleNotFoundError as error:
        if error.name not in ("cutlass", "tvm_ffi"):
            raise
import pytest
pytest.main(["properties", "--collect-only", "-q", "--impl", "torch_math", "-p", "no:terminal"])
print(*sorted(name for name in sys.modules if name.partition(".")[0] in {rooms!r}))
"""


def test_no_module_has_two_names():
    rooms = {path.name for path in (ROOT / "flash_attest").iterdir() if path.is_symlink()}
    assert len(rooms) >= 9 and all((ROOMS / room).is_dir() for room in rooms)
    program = PROGRAM.replace("{rooms!r}", repr(rooms))
    run = python("-c", program)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1:] == [""], run.stdout
