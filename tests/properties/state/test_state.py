"""A call must leave global state unchanged (properties/state)."""

import sys
import types
from functools import partial

import pytest
import torch

from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.properties.state.watch import THINGS, Watch
from flash_attest.runner.isolation.isolated import Isolated
from flash_attest.runner.isolation.parent import JudgingProcess
from flash_attest.runner.judge import Judge
from flash_attest.runner.plugin.process import prepare
from tests.plugins import good
from tests.runner.torture.leaves_state import DRAWING, DRAWS, IMPLS, LEAVES
from tests.trials import implementation

LAW = laws()["test_out_matches_the_definition"]
MOST_CALLED = 500  # by a watch of one call; 250, which take 50 microseconds


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Return name -> (the contract check's verdict, a law's verdict), from one process."""
    plan = Plan(examples=3, small=True)
    judge = Judge(plan, [], tmp_path_factory.mktemp("report"), "main")
    # Run on one thread, because a fork lacks the threads of OpenMP that other tests may have
    # started in this process.
    start = partial(prepare, is_worker=True)
    impls = [*IMPLS, *DRAWING]
    isolated = Isolated(judge, start, [LAW, *impls], 60.0, keeps_streams=False)
    answers = {impl.name: (isolated.contract(impl), isolated.law(LAW, impl)) for impl in impls}
    isolated.close()
    return answers


@pytest.mark.parametrize("thing", LEAVES)
def test_what_a_call_leaves_is_a_problem_of_the_contract_and_laws_are_judged(judged, thing):
    contract, law = judged[f"leaves_{thing}"]
    assert (contract.verdict, contract.reason.startswith("forward ")) == (FAIL, True)
    assert LEAVES[thing][1] in contract.reason
    assert "Its laws are judged." in contract.message
    assert (law.verdict, law.reason) == (PASS, "")


@pytest.mark.parametrize("thing", DRAWS)
def test_random_numbers_that_change_no_output_are_a_remark(judged, thing):
    """A kernel may draw a seed for a dropout of 0."""
    contract, law = judged[f"leaves_{thing}"]
    remark = f"forward draws from {DRAWS[thing][1]} random numbers, but its outputs do not depend on them"
    assert (contract.verdict, contract.reason) == (PASS, remark)
    assert (law.verdict, law.reason) == (PASS, "")


def test_random_numbers_that_change_an_output_are_a_problem(tmp_path):
    def forward(q, k, v):
        return good.forward(q, k, v) + torch.rand(())

    impl = implementation(forward, name="adds_noise")
    contract = Judge(Plan(examples=2), [], tmp_path, "main").contract(impl)
    assert contract.verdict == FAIL
    assert contract.reason == (
        "forward draws from torch's random numbers, and out depends on them: should depend on the inputs alone"
    )


def left_behind(request):
    """Return the state that a watched call has changed, and the state that the watch names.

    This runs in a judging process, because the call may do damage.
    """
    torch.use_deterministic_algorithms(False)  # imports much, the first time
    with torch.no_grad():
        before, watch = [each.read() for each in THINGS], Watch()
        with watch("forward"):
            (LEAVES | DRAWS)[request["thing"]][0]()
        after = [each.read() for each in THINGS]
    changed = [each.name for each, a, b in zip(THINGS, before, after, strict=True) if a != b]
    return {"changed": changed, "named": [change.name for change in watch.changes]}


@pytest.fixture(scope="module")
def process():
    process = JudgingProcess(dict, left_behind, 60.0)
    assert process.begin() is None
    yield process
    process.end()


@pytest.mark.parametrize("thing", [*LEAVES, *DRAWS])
def test_it_is_put_back(process, thing):
    answers = process.ask({"thing": thing})
    assert len(answers["named"]) == 1
    assert answers["changed"] == (["sys.stdout"] if thing == "stdout_closed" else [])  # an open one took its place


NOT_HERE = {"the GPU's device and stream", "the GPU's random numbers"}  # need one


def test_every_thing_has_an_implementation_that_leaves_it_otherwise(process):
    assert {process.ask({"thing": thing})["named"][0] for thing in LEAVES} == {each.name for each in THINGS} - NOT_HERE


def test_an_exception_does_not_keep_it_from_being_put_back():
    before = torch.get_default_dtype()

    def forward(q, k, v):
        torch.set_default_dtype(torch.float64)
        raise ValueError("no")

    result = judge(LAW, implementation(forward), Plan(examples=2, try_contract=False))
    assert (result.verdict, result.reason) == (FAIL, "forward raises ValueError: no")
    assert torch.get_default_dtype() is before


def test_what_the_contract_check_does_not_see_breaks_a_law():
    def forward(q, k, v):
        if 3 <= q.shape[1] < 16:
            torch.manual_seed(0)
        return good.forward(q, k, v)

    impl = implementation(forward, name="seeds_at_3")
    result = judge(LAW, impl, Plan(examples=60))
    assert result.verdict == FAIL and "seeds torch's random numbers" in result.reason
    assert "seqlen_q=3" in result.smallest and "3 of 3 repeats" in result.message


def test_backward_is_watched_too():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.save_for_backward(q, k, v)
            return good.forward(q, k, v)

        @staticmethod
        def backward(ctx, dout):
            torch.manual_seed(1)
            with torch.enable_grad():
                x = [t.detach().requires_grad_() for t in ctx.saved_tensors]
                return torch.autograd.grad(good.forward(*x), x, dout)

    impl = implementation(Twice.apply, name="seeds_in_backward", backward="autograd")
    result = judge(laws()["test_gradients_match_the_definition"], impl, Plan(examples=2, try_contract=False))
    assert result.reason.startswith("backward seeds torch's random numbers")


def test_a_library_may_set_variables_when_it_is_imported(monkeypatch):
    def forward(q, k, v):
        monkeypatch.setitem(sys.modules, "imported_late", types.ModuleType("imported_late"))
        monkeypatch.setenv("SET_BY_A_LIBRARY", "1")
        return good.forward(q, k, v)

    assert judge(LAW, implementation(forward, name="lazy"), Plan(examples=2)).verdict == PASS


def test_watching_is_cheap():
    """Called functions are counted, as a time would depend on what else the machine does."""
    watch, called = Watch(), 0

    def count(frame, event, argument):
        nonlocal called
        called += event in ("call", "c_call")

    with watch("forward"):  # what is looked up once
        pass
    sys.setprofile(count)
    try:
        with watch("forward"):
            pass
    finally:
        sys.setprofile(None)
    assert called < MOST_CALLED and not watch.changes
