"""A failure is repeated and reduced, and gets a line that replays it."""

import math
from contextlib import closing
from dataclasses import replace

import pytest

from flash_attest.impls import Implementation, Supports, torch_math
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, Result
from flash_attest.sweep import findings
from flash_attest.sweep.findings import Examiner, findings_of
from flash_attest.sweep.plan import LAYERS, Job
from tests.sweep.sweeps import finding, run, store

IMPL: Implementation = replace(
    torch_math.IMPL, supports=Supports(headdims={8, 16}, dtypes=set(torch_math.IMPL.supports.dtypes))
)
BIG = "seqlen_q=40 seqlen_k=40 headdim=16 dtype=float32 batch=2 nheads=3"


def job(tmp_path, **fields) -> Job:
    about = dict(db=tmp_path / "sweep.db", session="s", seed=7, device="cpu", names=None, files=(), repeats=10)
    about |= dict(
        limit=60.0,
        stop=math.inf,
        most=0,
        perturbations={"cpu": ("other_case", "poison", "order")},
        device_name="a machine",
    )
    return Job(**about | fields)


class Kernel:
    """A judging process that fails if `breaks(case, perturbations)` holds, every `often`-th
    time.
    """

    def __init__(self, breaks, often=1):
        self.breaks, self.often, self.calls, self.failing = breaks, often, [], 0

    def __call__(self, law, impl, case, perturbations, repeats):
        self.calls.append((case, perturbations, repeats))
        result = Result(impl.name, law.chapter, law.name, PASS)
        headline = self.breaks(parse_case(case), perturbations)
        self.failing += bool(headline)
        if headline and self.failing % self.often == 0:
            result.verdict, result.reason, result.findings, result.smallest = FAIL, headline, [headline], case
            result.replay, result.message = (
                f"pytest x --case '{case}'",
                f"{headline}\nReplay\n  pytest x --case '{case}'\n",
            )
        return result


def examined(tmp_path, kernel, **fields):
    """Return a finding that has been examined."""
    about = dict(case_=BIG, key="out: # of # repeat differ", replay="") | fields
    result = finding(**about)
    Examiner(result, IMPL, job(tmp_path), kernel).examine()
    return result


def long_enough(case, perturbations):
    return "out: 5 of 10 repeats differ" if case.seqlen_q >= 30 else ""


def test_it_is_repeated_a_thousand_times_and_reduced_to_the_smallest_case(tmp_path):
    kernel = Kernel(long_enough)
    result = examined(tmp_path, kernel)
    assert result.repeated == "found again in 100 of 100 runs of 10 repeats"
    assert [call for call in kernel.calls[:100] if call != (BIG, "", 10)] == []
    case = parse_case(result.case_)
    assert str(case) == "seqlen_q=30 seqlen_k=30 headdim=8 dtype=float32"
    assert result.reduced == f"from {BIG}" and result.headline == "out: 5 of 10 repeats differ"
    assert result.replay == f"pytest x --case '{case}' --repeats 10" and f"  {result.replay}\n" in result.message


@pytest.mark.parametrize(
    "needs, drawn, reduced",
    [
        ({"poison"}, "", "poison"),
        (set(), "", "none"),
        ({"poison"}, "poison,order", "poison"),
        ({"poison", "order"}, "poison,order", "poison,order"),
        (set(), "none", "none"),
    ],
)
def test_it_is_reduced_to_one_perturbation_or_none(tmp_path, needs, drawn, reduced):
    def breaks(case, perturbations):
        names = {"other_case", "poison", "order"} if not perturbations else set(perturbations.split(","))
        return "out: 5 of 10 repeats differ" if needs <= names else ""

    assert examined(tmp_path, Kernel(breaks), perturbations=drawn).perturbations == reduced


def test_another_failure_on_the_way_is_not_followed(tmp_path):
    """Shorter cases fail in another way, which would be another finding."""

    def breaks(case, perturbations):
        return "out: 5 of 10 repeats differ" if case.seqlen_q >= 30 else "forward raises ValueError"

    assert parse_case(examined(tmp_path, Kernel(breaks)).case_).seqlen_q == 30


def test_an_intermittent_failure_gets_several_tries(tmp_path):
    result = examined(tmp_path, Kernel(long_enough, often=4))
    assert result.repeated == "found again in 25 of 100 runs of 10 repeats"
    assert parse_case(result.case_).seqlen_q == 30


def test_a_failure_that_does_not_show_again_is_reported_as_it_was_found(tmp_path):
    result = examined(tmp_path, Kernel(lambda case, perturbations: ""), replay=f"pytest x --case '{BIG}'")
    assert result.repeated == "found again in 0 of 100 runs of 10 repeats"
    assert (result.reduced, result.case_) == ("no: it did not show again", BIG)
    assert result.replay == f"pytest x --case '{BIG}' --repeats 10"


def test_it_says_if_time_ran_out(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "SECONDS", 0.0)
    result = examined(tmp_path, Kernel(long_enough))
    assert result.repeated == "found again in 1 of 1 runs of 10 repeats (of 100, as time ran out)"
    assert result.reduced == "from " + BIG and result.perturbations == "none"  # one step is always made


def test_a_trace_is_repeated_in_other_orders(tmp_path):
    kernel = Kernel(lambda case, perturbations: "race: tile[3], a.cu:1 and a.cu:2")
    result = examined(
        tmp_path, kernel, layer="trace", law="test_no_race_is_traced", key="race: tile[#], a.cu:1 and a.cu:2"
    )
    assert result.repeated == "found again in 20 of 20 orders of threads"
    assert len({parse_case(case).seed for case, _, _ in kernel.calls[:20]}) == 20
    assert "--repeats" not in result.replay and result.perturbations == ""


def test_every_finding_of_a_run_is_kept():
    result = Result("mine", "test_races", "test_no_race_is_traced", FAIL, "race: a[1]")
    result.findings = ["race: a[1]", "race: b[2]", "race: b[9]"]
    results = findings_of(run(0), result, IMPL)
    assert [(each.key, each.state) for each in results] == [("race: a[#]", "found"), ("race: b[#]", "found")]
    known = replace(IMPL, known_failures={"test_repeats_agree": "atomics, #3"})
    assert {(each.known, each.state) for each in findings_of(run(0), result, known)} == {("atomics, #3", "reported")}
    apart = replace(result, why=Reason.NOT_AS_KNOWN)  # `accepts` leaves out what is known
    assert {(each.known, each.state) for each in findings_of(run(0), apart, known)} == {("", "found")}


def test_words_that_no_file_takes_are_escaped_and_kept(tmp_path):
    """An implementation may produce such text, for example in an exception."""
    result = Result("mine", "test_races", "test_repeats_agree", FAIL, "raises: \x1b[31m \udcff")
    result.findings = [result.reason]
    result.made_plain()
    with closing(store(tmp_path / "sweep.db")) as database:
        database.launch(run(0))
        database.done(run(0), findings_of(run(0), result, IMPL))
        assert [each.headline for each in database.findings()] == [r"raises: \x1b[31m \udcff"]


def test_a_crash_is_a_finding_by_how_it_ended():
    result = Result(
        "mine", "test_races", "test_repeats_agree", FAIL, "forward ends the process: signal 11 (segmentation fault)"
    )
    (only,) = findings_of(run(0, case_=BIG), result, IMPL)
    assert only.key == "forward ends the process: signal # (segmentation fault)" and only.case_ == BIG


def test_every_layer_is_a_law_of_test_races():
    assert {layer.law.chapter for layer in LAYERS.values()} == {"test_races"}
    assert set(LAYERS) == {"repeat", "copies", "trace", "sanitizer"}
