"""docs/use/tracing-ptx.md is correct: its example prints the quoted text, and its table is equal to
the table of instructions.py.
"""

import re

import torch

from flash_attest.emulator.ptx import load
from flash_attest.emulator.ptx.page import PAGE, page
from flash_attest.races.tracing import trace
from tests.runs import python

TEXT = PAGE.read_text()
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", TEXT, flags=re.M | re.S)
PTX, SCRIPT, PRINTED = BLOCKS[:3]


def test_the_table_is_current():
    assert page(TEXT) == TEXT, "python -m flash_attest.emulator.ptx.page writes it"


def test_the_example_prints_what_the_text_says(tmp_path):
    (tmp_path / "differences.ptx").write_text(PTX)
    (tmp_path / "differences.py").write_text(SCRIPT)
    done = python("differences.py", folder=tmp_path)
    assert (done.stdout, done.stderr) == (PRINTED, "")


def test_the_fixed_example_has_no_race():
    store = "st.shared.f32 [%r3], %f1;"
    assert store in PTX
    launch = load(PTX.replace(store, f"{store} bar.sync 0;"))["differences"].launch(1, 64)
    x, out = torch.arange(64.0) ** 2, torch.empty(64)
    assert trace(lambda: launch(x, out)) == []
    assert torch.equal(out, torch.diff(x, prepend=torch.zeros(1)))
