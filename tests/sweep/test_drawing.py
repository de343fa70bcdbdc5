"""Runs drawn by their number are repeatable and supported, and they cover all implementations and
layers.
"""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from flash_attest.impls import Supports, torch_math
from flash_attest.impls.contract.entry import Entry
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.cases.support import unsupported
from flash_attest.races import sanitizer
from flash_attest.races.perturb import chosen
from flash_attest.sweep.drawing import NoCase, drawn
from flash_attest.sweep.machine import places
from flash_attest.sweep.plan import LAYERS
from tests.sweep.test_findings import job


def entry(name, **declared) -> Entry:
    return Entry(replace(torch_math.IMPL, name=name, **declared), torch_math.__file__)


ENTRIES = [entry("one"), entry("other", supports=Supports(dtypes={torch.float32}, headdims={8}), traced=True)]
VERSIONS = {"one": "1", "other": "2"}
PAIRS = [(e, layer) for e in ENTRIES for layer in LAYERS.values() if not layer.not_applicable(e.impl, "cpu")]


def test_equal_numbers_give_equal_runs_and_others_do_not(tmp_path):
    runs = [drawn(job(tmp_path), number, PAIRS, VERSIONS, PAIRS) for number in range(20)]
    assert [drawn(job(tmp_path), number, PAIRS, VERSIONS, PAIRS) for number in range(20)] == runs
    assert len({run.case_ for run in runs}) > 15
    assert drawn(job(tmp_path, seed=8), 3, PAIRS, VERSIONS, PAIRS).case_ != runs[3].case_


def test_a_pair_that_was_given_up_changes_no_other_draw(tmp_path):
    runs = [drawn(job(tmp_path), number, PAIRS, VERSIONS, PAIRS) for number in range(30)]
    left = [pair for pair in PAIRS if pair[1].name != "copies"]
    fewer = [drawn(job(tmp_path), number, PAIRS, VERSIONS, left) for number in range(30)]
    assert fewer == [None if run.layer == "copies" else run for run in runs] and None in fewer


def test_everything_is_drawn_and_supported(tmp_path):
    runs = [drawn(job(tmp_path), number, PAIRS, VERSIONS, PAIRS) for number in range(150)]
    for run in runs:
        impl = next(e.impl for e in ENTRIES if e.name == run.impl)
        case = parse_case(run.case_)
        assert unsupported(impl, case) is None and LAYERS[run.layer].law.draws.excludes(case) is None
        chosen(run.perturbations, run.device)  # raises for a name that pytest --perturb would not take
        assert run.perturbations == "" or LAYERS[run.layer].perturbed
    pairs = Counter((run.impl, run.layer) for run in runs)
    assert set(pairs) == {
        ("one", "repeat"),
        ("one", "copies"),
        ("other", "repeat"),
        ("other", "copies"),
        ("other", "trace"),
    }
    under = Counter(run.perturbations for run in runs if LAYERS[run.layer].perturbed)
    assert under[""] > 20 and under["none"] and {"poison", "order", "poison,order"} <= set(under)


def test_a_pair_without_a_case_is_named(tmp_path):
    none = entry("none", supports=Supports(dtypes={torch.float32}, headdims={8}, accepts=lambda case: "nothing"))
    pairs = [(none, LAYERS["repeat"])]
    with pytest.raises(NoCase, match="none: no case that test_repeats_agree wants lies in what it supports"):
        drawn(job(tmp_path), 0, pairs, {"none": "1"}, pairs)


def test_why_a_layer_is_not_drawn():
    assert "traced=True" in LAYERS["trace"].not_applicable(ENTRIES[0].impl, "cpu")
    assert LAYERS["trace"].not_applicable(ENTRIES[1].impl, "cuda") is None  # a machine with a GPU has a CPU, too
    on_gpu = replace(torch_math.IMPL, devices={"cuda"})
    assert "runs on cuda only" in LAYERS["repeat"].not_applicable(on_gpu, "cpu")


@pytest.mark.parametrize(
    "visible, workers, free, gpus",
    [
        ("", 3, [], [None, None, None]),
        ("0", 2, [100], ["0", "0"]),
        ("0,1", None, [100, 100], ["0", "1"] * 4),
        ("4,5", 3, [100, 100], ["4", "5", "4"]),
        ("0,1", None, [15, 100], ["0", "1", "1", "1", "1"]),  # GiB
    ],
)
def test_workers_are_spread_over_all_gpus(monkeypatch, visible, workers, free, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    assigned = places("cuda" if visible else "cpu", workers, [n << 30 for n in free])
    assert [gpu for _, gpu in assigned] == gpus and len({name for name, _ in assigned}) == len(assigned)


def test_without_the_sanitizer_its_layer_is_left_out(monkeypatch):
    on_gpu = replace(torch_math.IMPL, devices={"cuda"})
    monkeypatch.setattr(sanitizer, "find", lambda: None)
    assert LAYERS["sanitizer"].not_applicable(on_gpu, "cuda") == sanitizer.NOT_FOUND
    monkeypatch.setattr(sanitizer, "find", lambda: "/usr/bin/compute-sanitizer")
    assert LAYERS["sanitizer"].not_applicable(on_gpu, "cuda") != sanitizer.NOT_FOUND


def test_some_traces_have_a_case_that_the_law_chooses(tmp_path):
    runs = [drawn(job(tmp_path), number, PAIRS, VERSIONS, PAIRS) for number in range(150)]
    traces = [parse_case(run.case_) for run in runs if run.layer == "trace"]
    known = {str(case.but(seed=0)) for case in LAYERS["trace"].law.chosen(ENTRIES[1].impl)}
    of_the_law = [case for case in traces if str(case.but(seed=0)) in known]
    assert len(traces) / 8 < len(of_the_law) < len(traces) / 2
    assert len({case.seed for case in of_the_law}) > 3
