"""Mutants of impls/cuda: every barrier has one, and building a copy adds no other fault."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from flash_attest.emulator.observation import Kind, Space
from flash_attest.mutants import ALL, CONTRACT, Mutant, elsewhere
from flash_attest.mutants.cuda import barriers
from flash_attest.mutants.cuda.build import KERNELS, supporting
from flash_attest.mutants.judging import judge_mutant, of_mutant, plan
from flash_attest.mutants.mutant import build
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.verdict import PASS, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from flash_attest.races.tracing import tracing

FOLDER = KERNELS.folder
CUDA = [mutant for mutant in ALL if mutant.family is KERNELS and mutant.device == "cpu"]
ONE_FOR_EACH_LAW = {mutant.law: mutant for mutant in CUDA if mutant.law != CONTRACT}
# test_mutants.py judges each mutant's copy by the other laws without its edit, on one case.
EACH_LAW = [
    pytest.param(mutant, marks=() if law == "test_out_matches_the_definition" else pytest.mark.thorough, id=law)
    for law, mutant in ONE_FOR_EACH_LAW.items()
]
FEW = 12  # cases: a fault of the copy would show in most
BARRIERS = barriers.barriers()

pytestmark = [
    pytest.mark.skipif(bool(elsewhere(CUDA[0])), reason=elsewhere(CUDA[0])),
]


def folder_of(mutant: Mutant) -> Path:
    """Return the copy of impls/cuda that the mutant runs."""
    package = build(mutant).forward.__module__.partition(".")[0]
    return Path(sys.modules[package].__file__).parent


def unedited(mutant: Mutant) -> Mutant:
    """Return the mutant without its edit."""
    return replace(mutant, edits=())


# ---- barriers ------------------------------------------------------------------------------------


def test_every_barrier_is_found_and_gives_its_reason():
    calls = [call for path in FOLDER.glob("*.cu*") for call in re.findall(r"__sync\w+\([^)]*\);", path.read_text())]
    assert len(BARRIERS) == len(calls) >= 15
    assert [f"{path.name}: {line[0]}" for path, _, line in BARRIERS if not line["story"]] == []


def one_of_each_kernel() -> list:
    """Return the missing barriers; all but the first of each kernel are thorough."""
    seen, params = set(), []
    for mutant in barriers.MUTANTS:
        kernel = mutant.name.rpartition("_barrier_")[0]
        params.append(pytest.param(mutant, marks=pytest.mark.thorough if kernel in seen else (), id=mutant.name))
        seen.add(kernel)
    return params


@pytest.mark.parametrize("mutant", one_of_each_kernel())
def test_report_of_a_missing_barrier_is_a_race_in_shared_memory(mutant):
    """The message names two lines.

    The only other finding is a consequence: memory read before the other thread has written it.
    """
    supports = mutant.declares["supports"]
    sizes = f"seqlen_q=33 seqlen_k=40 nheads=2 headdim={32 if 32 in supports.headdims else 70}"
    case = parse_case(f"{sizes} bias=vector" if supports.bias_kinds else sizes)
    trial = Trial(build(mutant), case, "cpu")
    with tracing() as watch:
        trial.run(backward=trial.backward)
    assert {finding.space for finding in watch.findings} == {Space.SHARED}
    assert {finding.kind for finding in watch.findings} <= {Kind.RACE, Kind.UNINITIALISED}
    races = [finding for finding in watch.findings if finding.kind is Kind.RACE]
    assert races and all(str(x.site) in race.headline for race in races for x in (race.first, race.second))


# ---- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", EACH_LAW)
def test_law_holds_for_an_unedited_copy(mutant):
    """Each law that catches a mutant of the kernels passes on a copy without an edit."""
    without = unedited(mutant)
    result = judge(laws()[mutant.law], build(without), of_mutant(without, plan(examples=FEW)))
    assert result.verdict == PASS and result.cases >= FEW // 2, result.message or result.reason


def test_copy_differs_by_the_edit_alone_and_has_one_instance():
    mutant = replace(next(m for m in CUDA if m.name == "cuda_fa2_out_is_not_rescaled"), declares={})
    ((old, new),) = mutant.edits
    copy, without = folder_of(mutant), folder_of(unedited(mutant))
    assert old not in (copy / "fa2_forward.cuh").read_text() and new in (copy / "fa2_forward.cuh").read_text()
    assert (without / "fa2_forward.cuh").read_text() == (FOLDER / "fa2_forward.cuh").read_text()
    for file in ("fa1.cu", "fa2.cu"):
        text = (without / file).read_text()
        assert text.removeprefix("#define ONE_INSTANCE ") == (FOLDER / file).read_text() != text


def test_equal_copies_are_one_folder_but_not_one_module():
    """Compiled files are cached by path, so a new folder in each process would compile everything
    again.
    """
    mutant = CUDA[0]
    others = [unedited(mutant), unedited(mutant)]
    assert folder_of(mutant) != folder_of(others[0]) == folder_of(others[1])
    assert len({build(m).forward.__module__ for m in (mutant, *others)}) == 3


def test_copy_has_what_its_mutant_promises():
    """The parts that the copy leaves out take most of the compile time.

    If the sources are rewritten, all mutants could become slow without a failing test.
    """
    everything = replace(CUDA[0], declares={})
    least = replace(everything, declares=supporting(backward=False))
    words = {"problem.cuh": "case FLOAT16:", "fa1.cu": "host_backward.cuh", "fa2.cu": "host_backward.cuh"}
    counts = [
        [(folder_of(mutant) / file).read_text().count(word) for file, word in words.items()]
        for mutant in (everything, least)
    ]
    assert counts == [[2, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("no_code", "words"),
    [
        ("no_such_word(m[r]);", "raises CompileError"),
        ('asm("tcgen05.fence::before_thread_sync;");', "not covered on the CPU"),
    ],
)
def test_an_edit_that_does_not_compile_is_not_caught(no_code, words):
    """Such a mutant was not judged, and neither was one with code that a CPU cannot emulate."""
    mutant = next(mutant for mutant in CUDA if mutant.law == CONTRACT)
    ((old, _),) = mutant.edits
    result = judge_mutant(replace(mutant, edits=((old, f"{old} {no_code}"),)), plan())
    assert result.verdict == UNKNOWN and words in result.reason


def test_operators_of_a_copy_for_a_gpu_have_names_of_their_own():
    """PyTorch accepts each name once, and one process loads many copies."""
    copies = [folder_of(replace(CUDA[0], device="cuda")), folder_of(unedited(replace(CUDA[0], device="cuda")))]
    names = {re.search(r"STABLE_TORCH_LIBRARY\((\w+),", (copy / "fa2_binding.cpp").read_text())[1] for copy in copies}
    assert len(names) == 2 and "flash_attest_cuda_fa2" not in names
    assert all(
        "flash_attest_cuda" not in path.read_text() for copy in copies for path in copy.iterdir() if path.is_file()
    )


def test_mutant_says_what_it_lacks(monkeypatch):
    monkeypatch.setattr("flash_attest.mutants.cuda.build.no_compiler", lambda: "no g++ found")
    assert "no g++" in elsewhere(CUDA[0])
    monkeypatch.setattr("flash_attest.mutants.cuda.build.nvcc", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "no nvcc" in elsewhere(replace(CUDA[0], device="cuda"))
