"""Findings name the source of the kernel that ran; the emulator is active when a package imports
Triton.
"""

from __future__ import annotations

import importlib.util
import shutil

from flash_attest.emulator.triton.lines import relocated
from flash_attest.impls.triton import attention, tiles
from flash_attest.races.tracing import trace
from tests.emulator.triton.test_driver import draws
from tests.runs import python

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def shifted(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    return tl.load(x + i + {OFFSET})

@triton.jit
def copied(x, out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), shifted(x, BLOCK))
"""


def loaded(file):
    spec = importlib.util.spec_from_file_location(f"kernels_{abs(hash(str(file)))}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_lines_are_those_of_the_copy_that_runs(tmp_path):
    """Triton's cache holds the PTX of a copy that was compiled first and then deleted. The line of
    a helper in another file is also right.
    """
    number = abs(hash(str(tmp_path))) % 10**6  # so that this source has not been compiled before
    findings = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        file = folder / "kernels.py"
        file.write_text(SOURCE.replace("{OFFSET}", str(10**6 + number)))
        kernel = loaded(file).copied
        findings.append(trace(lambda kernel=kernel: kernel[(1,)](draws(64), draws(64), 64)))
        texts = [str(finding) for finding in findings[-1]]
        assert texts and all("tl.load(x + i + " in text for text in texts), texts
        compiled = next(iter(kernel.device_caches[0][0].values()))
        assert f'"{tmp_path / "first" / "kernels.py"}"' in compiled.asm["ptx"]
        assert {site.file for f in findings[-1] for site in f.sites} == {str(file)}
        shutil.rmtree(folder)


def test_our_kernels_name_the_files_of_this_checkout():
    """One of the files imports the other, and Triton's cache may be shared with another
    checkout.
    """
    for kernel in (attention.compute_forward.kernel, attention.compute_dq.kernel):
        elsewhere = '.file\t1 "/elsewhere/impls/triton/tiles.py"\n.file\t2 "/elsewhere/other.py"'
        here = elsewhere.replace("/elsewhere/impls/triton/tiles.py", tiles.__file__)
        assert relocated(elsewhere, kernel) == here


def test_the_emulator_is_active_as_soon_as_triton_is_imported():
    """The emulator is also active after a search for Triton without an import."""
    program = """if True:
        import importlib.util, sys
        from flash_attest.emulator.triton import activate_when_imported, is_active
        activate_when_imported(); activate_when_imported()
        assert importlib.util.find_spec("triton") and "triton" not in sys.modules
        before = is_active()
        import triton.language
        print(before, is_active())"""
    assert python("-c", program).stdout.split() == ["False", "True"]
