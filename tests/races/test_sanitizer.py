"""compute-sanitizer without a GPU: its logs, its command line, its processes.

The logs are excerpts: published logs in the formats of the versions from 2021 to 2026, and some of
our own (2025).
"""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.autograd import DeviceType

from flash_attest.emulator.observation import Kind, Space
from flash_attest.races.finding import Layer
from flash_attest.races.sanitizer import LOGS, Tool, find, parse, tools, watch
from flash_attest.races.sanitizer.kernels import identifier, of_pytorch, own_of
from tests.races.fake_sanitizer import CLEAN, fake

FOLDER = Path(__file__).parent / "sanitizer_logs"


def report(name: str):
    return parse((FOLDER / f"{name}.log").read_text(), Tool(name.partition("_")[0]))


# --- what the tools write ------------------------------------------------------------------------


def test_a_warning_of_racecheck_is_a_finding_as_an_error_is():
    result = report("racecheck").findings
    assert {(finding.kind, finding.space, finding.layer) for finding in result} == {
        (Kind.RACE, Space.SHARED, Layer.SANITIZER)
    }
    assert [(finding.headline.partition(", no barrier between, ")[2], finding.count) for finding in result] == [
        ("fa2_forward.cuh:76 and tiles.cuh:55", 193834),
        ("fa2_forward.cuh:76 and tiles.cuh:89", 64),
        ("my_attention.py:237", 6136),
        ("fa2_forward+0x50 and fa2_forward+0x90", 4),
    ]
    assert "reported by racecheck (warning)" in str(result[0]) and "reported by racecheck (error)" in str(result[2])


def test_a_message_says_which_accesses_without_an_order_and_threads_that_are_not_known():
    first, *_ = report("racecheck").findings
    assert str(first).splitlines() == [
        "race: shared memory, read and write, no barrier between, fa2_forward.cuh:76 and tiles.cuh:55",
        "  fa2_forward.cuh:76  a thread reads",
        "  tiles.cuh:55        a thread writes",
        "  reported by racecheck (warning)",
        "  193834 accesses",
    ]


def test_kernels_of_pytorch_are_left_out_and_counted():
    result = report("racecheck")
    assert (result.reported, result.left_out, result.unread) == (4, 1, [])


def test_older_versions_put_the_line_before_the_function():
    result = report("racecheck_older").findings
    assert [str(site) for finding in result for site in finding.sites] == [
        "convolution.cu:123",
        "convolution.cu:63",
        "convolution+0x4c60",
        "convolution+0x4f70",
    ]


def test_memcheck_reports_accesses_and_calls_of_the_host_are_left_out():
    result = report("memcheck")
    assert (result.reported, result.left_out, result.unread) == (7, 2, [])
    outside, misaligned, trap = result.findings
    assert outside.headline == (
        "outside: write of 4 bytes in global memory, which is out of bounds and is 33 bytes after the nearest allocation "
        "of size 448 bytes, oob_demo.cu:9"
    )
    assert (outside.count, outside.first.thread, outside.first.block) == (2, (3, 0, 0), (0, 2, 0))
    assert "in outer(int *)+0x40 in oob_demo.cu:20" in str(outside)
    assert (misaligned.kind, misaligned.space, str(misaligned.sites[0])) == (
        Kind.MISALIGNED,
        Space.SHARED,
        "task1.cu:120",
    )
    assert trap.headline == "trap: Warp Illegal Instruction, jump.cu:3"


def test_synccheck_reports_barriers_once_for_all_threads():
    result = report("synccheck")
    (barrier,) = result.findings
    assert barrier.headline == "barrier: Divergent thread(s) in warp, 09_debug_and_sanitizer.cu:61"
    assert (barrier.count, result.reported, result.unprinted) == (2, 11360, 11260)
    assert "reported by synccheck, which did not print 11260 more" in str(barrier)


@pytest.mark.parametrize(
    "name, headlines",
    [
        ("memcheck", ["outside: write of 4 bytes in global memory, which is out of bounds and is inside the nearest "
                      "allocation of size 5,120 bytes, planted.py:34"]),
        ("racecheck", ["race: shared memory, write and read, no barrier between, tiles.cuh:89 and tiles.cuh:220",
                       "race: shared memory, write and read, no barrier between, tiles.cuh:89 and tiles.cuh:55"]),
        ("synccheck", ["barrier: Divergent thread(s) in warp, planted.py:40"]),
    ],
)  # fmt: skip
def test_what_it_wrote_about_planted_kernels_is_read(name, headlines):
    """Version 2025.3.1 wrote these logs on an H200, about kernels of Numba and CUDA C++."""
    result = report(f"{name}_2025")
    assert [finding.headline for finding in result.findings] == headlines
    assert result.unread == [] and result.left_out == 0


def test_a_kernel_without_lines_is_named_without_its_module_and_tags():
    at = "attest_plugin_mine_bc58::make_attend::_3clocals_3e::attend[abi:v1,cw51cXTL](Array<float, (int)1, C, aligned>)"
    log = (
        f"========= Error: Race reported between Read access at {at}+0x250\n"
        f"=========     and Write access at {at}+0x90 [4 hazards]\n"
        "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
    )
    assert [str(site) for site in parse(log, Tool.RACECHECK).findings[0].sites] == ["attend+0x250", "attend+0x90"]


@pytest.mark.parametrize("name", ["racecheck", "racecheck_older", "memcheck", "synccheck"])
def test_what_every_log_has_is_no_complaint(name):
    assert report(name).complaints == []


@pytest.mark.parametrize("tool", Tool)
def test_a_clean_log_is_a_summary_of_nothing(tool):
    result = parse(f"the program's own output\n{CLEAN[tool]}", tool)
    assert (result.findings, result.reported, result.unread) == ([], 0, [])


def test_what_cannot_be_read_is_not_taken_for_nothing():
    summary = "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"
    new = f"========= A new kind of report\n=========     at kernel()+0x10 in a.cu:1\n{summary}"
    assert parse(new, Tool.RACECHECK).findings[0].headline == "trap: A new kind of report, a.cu:1"
    assert parse(summary, Tool.RACECHECK).unread == ["2 reports"]
    odd = f"========= Race without a place\n{summary}"
    assert parse(odd, Tool.RACECHECK).unread == ["Race without a place"]
    assert parse("========= COMPUTE-SANITIZER\n", Tool.RACECHECK).reported is None


# --- which kernels --------------------------------------------------------------------------------


def event(name, *kernels, device=DeviceType.CPU, note=False):
    launched = [SimpleNamespace(name=kernel) for kernel in kernels]
    return SimpleNamespace(name=name, kernels=launched, device_type=device, is_user_annotation=note)


def on_gpu(*names, note=False):
    return [event(name, device=DeviceType.CUDA, note=note) for name in names]


def test_kernels_of_operators_of_pytorch_are_not_the_implementations():
    fill, library, mine = "void at::native::fill<float>(float*)", "sm90_gemm_kernel", "void my::forward<64>(Problem)"
    events = [
        event("flash_attest::forward", mine),
        event("aten::fill_", fill),
        event("aten::bmm", library),
        *on_gpu(fill, library, mine, "_triton_forward", "Memcpy DtoH (Device -> Pinned)", "Memset (Device)"),
        *on_gpu("my region", note=True),
    ]
    assert own_of(events) == ["_triton_forward", "forward"]


def test_an_implementation_of_pytorchs_operators_has_none():
    assert own_of([event("aten::bmm", "sm90_gemm"), *on_gpu("sm90_gemm")]) == []


def test_a_profiler_that_sees_nothing_is_an_error():
    with pytest.raises(LookupError, match=r"torch\.profiler sees no kernel"):
        own_of([event("aten::bmm")])


@pytest.mark.parametrize("name", ["void my::{lambda(int)#1}::operator()(int) const", "void my::operator<(int)", ""])
def test_a_kernel_that_no_filter_can_name_is_an_error(name):
    """The kernel would not be watched, and its races would look like "nothing reported"."""
    with pytest.raises(LookupError, match=r"^kernel '.*' cannot be named to compute-sanitizer$"):
        own_of(on_gpu("forward", name))


@pytest.mark.parametrize(
    "name, part",
    [
        ("void fa2::forward<float, (int)64>(fa2::Problem<float>)", "forward"),
        ("void (anonymous namespace)::scale_kernel(float*)", "scale_kernel"),
        ("_fwd_kernel", "_fwd_kernel"),
        ("cudapy::impls::numba::fa2::make::_3clocals_3e::forward[abi:v1](Array<float, 4, C>)", "forward"),
        ("_Z7forwardPf", "_Z7forwardPf"),
    ],
)
def test_the_filter_is_a_part_of_the_mangled_name(name, part):
    assert identifier(name) == part


def test_functions_of_pytorch_are_known_by_their_namespace():
    assert of_pytorch("void at::native::(anonymous namespace)::softmax<float>(float*)")
    assert not of_pytorch("void flash::at_end<at::Half>(at::Half*)") and not of_pytorch("(anonymous namespace)::k(int)")


# --- the command ----------------------------------------------------------------------------------


def test_it_is_found_in_the_toolkit(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "TOOLKITS", tmp_path)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert find() is None
    older, newer = (fake(tmp_path / f"cuda-{n}.0" / "bin") for n in (12, 13))
    assert find() == newer
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda-12.0"))
    assert find() == older


def test_every_kernel_is_a_filter_and_api_errors_are_not_asked_for(tmp_path):
    line = tools.command("cs", Tool.MEMCHECK, ["forward", "backward"], tmp_path / "log", 60.0, ["python", "x.py"])
    assert line[:7] == [
        "cs", "--tool", "memcheck", "--kernel-name", "kernel_substring=forward", "--kernel-name",
        "kernel_substring=backward",
    ]  # fmt: skip
    assert line[line.index("--report-api-errors") + 1] == "no" and line[-2:] == ["python", "x.py"]
    assert Tool.MEMCHECK.environment == {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


# --- its processes --------------------------------------------------------------------------------


def test_each_tool_runs_the_program_once_and_reports(tmp_path, monkeypatch):
    program = fake(tmp_path, racecheck=(FOLDER / "racecheck.log").read_text())
    ran, signs = tmp_path / "ran", []
    monkeypatch.setenv(LOGS, str(tmp_path / "logs"))
    target = [sys.executable, "-c", f"open({str(ran)!r}, 'a').write('once '); print('hello')"]
    race, memory, sync = watch(program, target, ["forward"], alive=lambda: signs.append(1))
    assert ran.read_text().split() == ["once"] * 3 and signs
    assert len(race.report.findings) == 4 and [each.undecided for each in (race, memory, sync)] == ["", "", ""]
    assert {path.name for path in (tmp_path / "logs").rglob("*.log")} == {f"{tool.value}.log" for tool in Tool}


def test_what_did_not_come_to_its_end_says_why(tmp_path):
    fails = [sys.executable, "-c", "import sys; print('first'); print('no GPU'); sys.exit(3)"]
    (result,) = watch(fake(tmp_path), fails, [], [Tool.SYNCCHECK])
    assert result.undecided == "under synccheck the process ended with exit status 3: first; no GPU"
    (result,) = watch(fake(tmp_path, synccheck=""), [sys.executable, "-c", "print('old')"], [], [Tool.SYNCCHECK])
    assert result.undecided == "synccheck ended without a summary, with exit status 0: old"


def test_a_gpu_that_it_refuses_is_named(tmp_path):
    """The tool refuses the GPU in some virtual machines, in which the program has no GPU either."""
    says = "========= COMPUTE-SANITIZER\n========= Error: Device not supported. Please refer to the documentation\n"
    (result,) = watch(
        fake(tmp_path, memcheck=f"{says}========= ERROR SUMMARY: 0 errors"), ["false"], [], [Tool.MEMCHECK]
    )
    assert result.refuses_device and result.undecided.startswith(
        "memcheck does not run on this GPU: Error: Device not supported"
    )


def test_a_complaint_beside_a_summary_of_nothing_is_undecided(tmp_path):
    """After an error of its own, the tool may have watched nothing. A finding still counts."""
    error = "========= Internal Sanitizer Error: The Sanitizer encountered an error when attempting to access memory\n"

    def undecided(log):
        (result,) = watch(fake(tmp_path, runs=False, racecheck=log + error), ["true"], [], [Tool.RACECHECK])
        return result.undecided

    assert undecided(CLEAN[Tool.RACECHECK]).startswith("racecheck may not have watched all: Internal Sanitizer Error")
    assert undecided((FOLDER / "racecheck.log").read_text()) == ""


def test_a_limit_ends_the_program_too(tmp_path):
    pid = tmp_path / "pid"
    sleeps = ["sh", "-c", 'echo $$ > "$0"; exec sleep 1000', str(pid)]
    (result,) = watch(fake(tmp_path), sleeps, [], [Tool.RACECHECK], limit=5.0)
    assert result.status is None and result.undecided.startswith("racecheck did not end within ")
    stop = time.monotonic() + 60
    while _lives(int(pid.read_text())) and time.monotonic() < stop:
        time.sleep(0.05)
    assert not _lives(int(pid.read_text()))


def _lives(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
