"""Right Triton kernels of packed sequences that look like planted bugs: unusual, but no row of a
neighbour gets into a result.
"""

import pytest

from flash_attest.impls.triton.device import EMULATED, lacking

if lacking() or not EMULATED:
    pytest.skip(lacking() or "they are judged on a CPU", allow_module_level=True)

from flash_attest.mutants.judging import of_mutant, plan
from flash_attest.mutants.mutant import TRACED, build
from flash_attest.mutants.triton.build import planted
from flash_attest.mutants.triton.varlen import EXIT, EXIT_OF_KEYS, varlen
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws

Q = "q = load_tile(q_ptr, i0, q_strides.row, seqlen_q,"
OWN = ("test_neighbours_change_no_bit", "test_memory_around_inputs_is_not_read", TRACED)
FEATURES = dict(causal="optional", cross=True)
TWINS = {
    "a program without rows stores nothing": (
        ("test_out_matches_the_definition", "test_no_queries_give_no_gradient", *OWN),
        "forward.py",
        ((EXIT, "    if False:"),),
    ),
    "queries behind the last are read up to the end of the buffer, and not stored": (
        ("test_out_matches_the_definition", *OWN),
        "forward.py",
        ((Q, Q.replace("seqlen_q", "total_q - b_q")),),
    ),
    "a diagonal is moved to the corner before it is cut": (
        ("test_query_sees_exactly_its_prefix", "test_rows_without_keys_give_zero"),
        "tiles.py",
        (
            (
                "diagonal = seqlen_k - seqlen_q + tl.minimum(diagonal, seqlen_q)",
                "diagonal = tl.minimum(seqlen_k - seqlen_q + tl.minimum(diagonal, 2**29), seqlen_k)",
            ),
        ),
    ),
    "dk and dv of a sequence without keys are computed, and not stored": (
        ("test_gradients_match_the_definition", "test_no_keys_give_zero", TRACED),
        "backward.py",
        ((EXIT_OF_KEYS, "    if False:"),),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("law, words", [(law, words) for words, (judging, *_) in TWINS.items() for law in judging])
def test_a_right_twin_passes(law, words):
    _, source, edits = TWINS[words]
    fields = dict(source=source, impl="triton_fa2_varlen", declares=varlen(backward=True, **FEATURES))
    twin = planted(name="twin", law=law, edits=edits, smallest={}, story=words, **fields)
    result = judge(laws()[law], build(twin), of_mutant(twin, plan(examples=12)))
    assert result.verdict == PASS and result.cases, result.message or result.reason
