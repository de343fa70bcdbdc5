"""The tutorial and the reference of implementations are correct.

Their files load and are right inside of what they support. The tables are those of the dataclasses.
"""

import re
from dataclasses import fields, replace

import pytest

from flash_attest.impls.contract import page
from flash_attest.impls.contract.loading import from_file, from_hook
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS, REFUSED
from flash_attest.properties.law import laws
from tests.impls import published
from tests.places import ROOT
from tests.trials import fails

REFERENCE = page.PAGE.read_text()
TEXT = (ROOT / "docs" / "use" / "adding-an-implementation.md").read_text() + REFERENCE
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.M | re.S)
# The blocks that begin with a comment with a file name.
FILES = {match[1]: body for body in BLOCKS if (match := re.match(r"# (\w+\.py)\n", body))}
JUDGED = {  # file -> the names of its implementations
    "least.py": ["least"],
    "causal_only.py": ["causal_only"],
    "lse_forms.py": ["padded", "by_token", "apart"],
    "windowed.py": ["windowed"],
    "with_backward.py": ["with_backward"],
    "tiles_of_32.py": ["tiles_of_32"],
    "my_plugin.py": ["by_hook"],
    "flash_varlen.py": ["flash_varlen"],
    "flashinfer_paged.py": ["flashinfer_paged"],
    "flash_cache.py": ["flash_cache"],
    "flash_merge.py": ["flash_merge"],
}
LAWS = [
    laws()[name]
    for name in (
        "test_out_matches_the_definition",
        "test_lse_matches_the_definition",
        "test_padding_keys_count_nothing",
        "test_query_sees_exactly_its_prefix",
        "test_query_sees_exactly_its_window",
        "test_sink_takes_its_share",
        "test_gradients_match_the_definition",
    )
]


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    """Let the files import packages that need a GPU."""
    published.install(monkeypatch)


def implementations(text, folder):
    """Return the implementations in a file of the docs, loaded in the way of --impl-from or of the
    hook. Those for a GPU run on the CPU, as what they import is a stand-in.
    """
    path = folder / "file.py"
    path.write_text(text)
    if "def pytest_attention_impls" not in text:
        impls = [entry.impl for entry in from_file(str(path))]
        return [replace(impl, devices={"cpu"}) if impl.devices == {"cuda"} else impl for impl in impls]
    module = {}
    exec(text, module)
    return [entry.impl for entry in from_hook([module["pytest_attention_impls"](None)])]


def test_the_tables_are_current():
    assert page.page(REFERENCE) == REFERENCE, "python -m flash_attest.impls.contract.page writes them"


@pytest.mark.parametrize("record", page.RECORDS)
def test_every_field_has_a_meaning(record):
    assert [*page.meanings_of(record)] == [one.name for one in fields(record) if one.init]


def test_every_file_is_judged():
    assert sorted(FILES) == sorted(JUDGED)


@pytest.mark.parametrize("examples", [2, pytest.param(12, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", JUDGED)
def test_examples_are_right(name, examples, tmp_path):
    impls = implementations(FILES[name], tmp_path)
    assert [impl.name for impl in impls] == JUDGED[name]
    for impl in impls:
        plan = Plan(examples=examples)  # one for all laws, so that the contract is tried once
        assert conformance.tried(impl, plan).problems == []
        results = [judge(law, impl, plan) for law in LAWS]
        assert {result.verdict for result in results} <= {PASS, REFUSED}, [result.message for result in results]
        assert results[0].verdict == PASS
        if impl.lse:
            assert results[1].verdict == PASS


@pytest.mark.parametrize("wrong", ["lse[:, :, : q.shape[1]] + 0.1", "lse", "lse.view(q.shape[:3]).mT"])
def test_another_form_of_lse_is_noticed(wrong, tmp_path):
    """The test shows that the examples above are judged at all."""
    impl = implementations(FILES["lse_forms.py"].replace("lse[:, :, : q.shape[1]]", wrong), tmp_path)[0]
    plan = Plan(examples=12)
    assert conformance.tried(impl, plan).problems or fails(LAWS[1], impl, plan)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        pytest.param("flash_varlen.py", "-1 if side is None else side", "-1 if side is None else side + 1",
                     marks=pytest.mark.thorough),
        ("flash_varlen.py", "lse.masked_fill(lse == math.inf, -math.inf)", "lse"),
        pytest.param("flashinfer_paged.py", "page_lists(block_table, seqused_k, page_size)",
                     "page_lists(block_table.clamp(max=0), seqused_k, page_size)", marks=pytest.mark.thorough),
        ("flashinfer_paged.py", 'lse="log2"', 'lse="natural"'),
        ("flash_cache.py", "k_new, v_new, return", "v_new, k_new, return"),
        ("flash_merge.py", "out_parts, lse_parts.mT", "out_parts, lse_parts.roll(1, 0).mT"),
    ],
)  # fmt: skip
def test_an_adapter_of_a_form_that_is_wrong_is_noticed(name, right, wrong, tmp_path):
    assert right in FILES[name]
    impl = implementations(FILES[name].replace(right, wrong), tmp_path)[0]
    plan = Plan(examples=12)
    assert conformance.tried(impl, plan).problems or any(fails(law, impl, plan) for law in LAWS[:2])
