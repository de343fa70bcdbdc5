"""Each tile that tuning may choose is judged alone: all of them on a GPU, some of them here
(every_tile.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flash_attest.impls.contract.loading import from_file
from flash_attest.impls.contract.registry import select
from flash_attest.impls.triton.device import lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.triton import attention, every_tile
from flash_attest.impls.triton.device import EMULATED
from flash_attest.impls.triton.tuning import CANDIDATES, Kernel
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws

FILE = Path(every_tile.__file__)
DEVICE = "cpu" if EMULATED else "cuda"


def forced(impl):
    """Return (kernel, tile) that an Implementation forces."""
    ((kernel, tile),) = impl.forward.__self__.tiles.items()
    return kernel, tile


def test_every_choice_of_every_kernel_has_an_implementation():
    """Every choice has one for each head dim and operand. Lists with one tile are the default."""
    got = {
        (*forced(impl), headdim, dtype.itemsize)
        for impl in every_tile.IMPLS
        for headdim in impl.supports.headdims
        for dtype in impl.supports.dtypes
    }
    want = {
        (kernel, tile, headdim, bytes_)
        for kernel, by_bytes in CANDIDATES.items()
        for bytes_, by_headdim in by_bytes.items()
        for block_d, tiles in by_headdim.items()
        for tile in (tiles if len(tiles) > 1 else ())
        for headdim in range(1, 257)
        if max(32, 1 << (headdim - 1).bit_length()) == block_d
    }
    assert want and got == want


def test_implementations_are_named_after_their_tile():
    for impl in every_tile.IMPLS:
        kernel, tile = forced(impl)
        assert impl.name.removesuffix("_float32") == f"triton_fa2_{kernel}_{tile}"
        assert impl.forward.__self__ is impl.backward.__self__ and impl.forward.__self__.atomic == (
            kernel == "dk_dv_dq"
        )


def test_the_file_loads_as_a_plugin():
    """The file is loaded by its path, as --impl-from does; names are unique."""
    entries = from_file(str(FILE))
    assert [entry.name for entry in entries] == [impl.name for impl in every_tile.IMPLS]
    assert len(select(entries, None)) == len(entries) >= 10


CASES = {  # several tiles in each dimension, of which the last is partial; the head dim is padded
    "test_out_matches_the_definition": "seqlen_q=150 seqlen_k=190 nheads=1 nheads_k=1 batch=1",
    "test_query_sees_exactly_its_prefix": "seqlen_q=150 seqlen_k=190 nheads=1 nheads_k=1 batch=1 causal=true",
    "test_gradients_match_the_definition": "seqlen_q=190 seqlen_k=150 nheads=1 nheads_k=1 batch=1 bias=matrix",
    "test_hidden_keys_change_no_bit": "seqlen_q=150 seqlen_k=150 nheads=1 nheads_k=1 batch=1 causal=true",
}
LEAST = {  # kernel -> the implementation with its smallest head dims and tile: others compile for seconds in the emulator
    kernel: min(
        (i for i in every_tile.IMPLS if forced(i)[0] == kernel), key=lambda i: (min(i.supports.headdims), forced(i)[1])
    ).name
    for kernel in dict.fromkeys(forced(impl)[0] for impl in every_tile.IMPLS)
}
JUDGED = [  # laws without gradients judge the forward only
    pytest.param(
        impl,
        law,
        id=f"{impl.name}-{law}",
        marks=pytest.mark.thorough if EMULATED and (impl.name != LEAST["forward"] or n > 0) else (),
    )
    for impl in every_tile.IMPLS
    for n, law in enumerate(CASES if forced(impl)[0] == "forward" else list(CASES)[2:])
]


@pytest.mark.parametrize("tested, law", JUDGED)
def test_laws_hold_with_each_tile(tested, law, monkeypatch):
    """The test also checks that the forced tile was the one that ran."""
    kernel, tile = forced(tested)
    launched, launch = set(), Kernel.launch

    def recording(self, *args, **arguments):
        launched.add((self.name, args[3] if len(args) > 3 else None))
        return launch(self, *args, **arguments)

    monkeypatch.setattr(Kernel, "launch", recording)
    headdim = next(d for d in tested.supports.headdims if d % 8 == 0)  # wide loads, which compile faster
    dtype = str(min(tested.supports.dtypes, key=str)).removeprefix("torch.")
    case = parse_case(f"{CASES[law]} headdim={headdim} dtype={dtype}")
    # The contract does not depend on the tile, and its check takes the longest.
    result = judge(laws()[law], tested, Plan(device=DEVICE, case=case, try_contract=False))
    assert (result.verdict, result.cases) == (PASS, 1), result.message or result.reason
    assert (kernel, tile) in launched


def test_a_wrong_tile_fails(monkeypatch):
    """A kernel that omits its last tile fails each of the cases above."""
    impl = next(impl for impl in every_tile.IMPLS if forced(impl)[0] == "forward")
    cdiv = attention.cdiv
    monkeypatch.setattr(attention, "cdiv", lambda n, block: cdiv(n, block) - (n > block))
    case = parse_case(f"{CASES['test_out_matches_the_definition']} headdim={min(impl.supports.headdims)} dtype=float16")
    plan = Plan(device=DEVICE, case=case, try_contract=False)
    assert judge(laws()["test_out_matches_the_definition"], replace(impl, name="short"), plan).verdict == FAIL
