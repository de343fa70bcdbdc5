"""NVIDIA's assembler takes the PTX of our tests of asynchronous instructions, so a GPU would run
it.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.emulator.ptx import test_bulk, test_mbarriers, test_opcodes_wgmma

triton = pytest.importorskip("triton")
PTXAS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"


def texts() -> list[str]:
    pipelines = [*test_mbarriers.RIGHT.values(), *(edits for edits, *_ in test_mbarriers.WRONG.values())]
    boxes = [test_bulk.text(body, rank) for body in (test_bulk.LOAD, test_bulk.STORE) for rank in (1, 2, 3, 4, 5)]
    added = [test_bulk.text(test_bulk.STORE, rank, "add") for rank in (1, 5)]
    return [
        *(product.text() for product in test_opcodes_wgmma.PRODUCTS),
        *(test_mbarriers.edited(*edits) for edits in pipelines),
        *(test_bulk.PLAIN.format(opcode=opcode, bytes=512) for opcode in test_bulk.BACK),
        *boxes, *added,
    ]  # fmt: skip


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.thorough)])
def test_ptxas_takes_the_text(every, tmp_path):
    def errors(numbered: tuple[int, str]) -> str:
        number, text = numbered
        path = tmp_path / f"{number}.ptx"
        path.write_text(text)
        command = [PTXAS, "--gpu-name", "sm_90a", path, "-o", path.with_suffix(".cubin")]
        return subprocess.run(command, capture_output=True, text=True).stderr

    chosen = texts()[::every]
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(errors, enumerate(chosen)))
    assert len(chosen) >= 10
    wrong = [(error, text) for error, text in zip(said, chosen, strict=True) if "error" in error or "fatal" in error]
    assert wrong == []
