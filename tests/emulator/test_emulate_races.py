"""trace and assert_race_free return the findings of their own call, even if others trace the
process.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

triton = pytest.importorskip("triton")

from flash_attest import assert_race_free, trace  # noqa: E402
from flash_attest.races import recording  # noqa: E402
from tests.emulator.gpu_style.racy import normalize  # noqa: E402
from tests.emulator.triton.kernels import row_sum  # noqa: E402

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the kernels")


def racy():
    x, scratch, out = torch.rand(64, 32), torch.zeros(64), torch.empty(32, 64)
    normalize[(1,)](x, scratch, out, 64, 32)


def right():
    row_sum[(1,)](torch.ones(32), torch.empty(1), N=32)


def test_a_race_is_named_with_both_lines():
    (finding,) = trace(racy)
    assert [site.text for site in finding.sites] == [
        "sums = tl.load(scratch + i)[None, :]",
        "tl.store(scratch + i, tl.sum(rows, 1))",
    ]
    with pytest.raises(AssertionError) as raised:
        assert_race_free(racy)
    message = str(raised.value)
    assert message.startswith("1 finding in the kernels that were launched:\nrace: scratch[12], write after read")
    assert len(re.findall(r"racy\.py:\d+ +thread \d+ of block 0 (?:reads|writes)", message)) == 2


def test_a_right_kernel_has_none():
    assert trace(right) == [] and assert_race_free(right, seed=3, switch=0.5) is None


def test_where_no_kernel_ran_nothing_is_proven():
    for function in (trace, assert_race_free):
        with pytest.raises(RuntimeError, match="no traced kernel was launched"):
            function(lambda: None)


def test_a_process_that_is_recorded_can_trace_for_itself(tmp_path):
    recorder = recording.Recorder(tmp_path)
    recorder.resume()
    try:
        recording._recorder = recorder
        right()
        assert len(trace(racy)) == 1
        with ThreadPoolExecutor() as pool, pytest.raises(RuntimeError, match="traced from another thread"):
            pool.submit(trace, racy).result()
        right()
    finally:
        recorder.pause()
        recording._recorder = None
    recorded = recording.read(tmp_path)
    assert recorded.launches == 2 and not recorded.findings


def test_what_a_killed_process_wrote_last_is_left_out(tmp_path):
    recorder = recording.Recorder(tmp_path)
    recorder.resume()
    try:
        racy()
        racy()
    finally:
        recorder.pause()
    (path,) = tmp_path.glob("*.findings")
    path.write_bytes(path.read_bytes()[:-5])
    recorded = recording.read(tmp_path)
    (finding,) = recorded.findings
    assert recorded.launches == 2 and "test_what_a_killed_process" in recorded.tests[finding.key][0]
