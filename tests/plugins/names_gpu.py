"""Writes the GPU of its worker to a file when it is imported."""

import os
from dataclasses import replace
from pathlib import Path

from tests.plugins.good import IMPL as GOOD

if "PYTEST_XDIST_WORKER" in os.environ:
    note = Path(os.environ["ATTEST_TEST_DIR"]) / f"gpu-{os.environ['PYTEST_XDIST_WORKER']}"
    note.write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))

IMPL = replace(GOOD, name="names_gpu")
