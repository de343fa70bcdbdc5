"""Bugs that need a size: beyond 16 bits, a split of long rows, sums over many tiles, half a tile:
docs/why/bugs.md#boundaries.
"""

import torch

from flash_attest.impls import Supports
from flash_attest.impls.python_tiled import IMPL
from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.boundaries import FORWARD
from flash_attest.mutants.tiled.build import planted

ROWS_OF_KEYS = "min(seqlen_k, last_key), BLOCK_N)"
KEYS = "            kj = load_tile(k.transpose(1, 2), j0, BLOCK_N)"
VALUES = "            vj = load_tile(v.transpose(1, 2), j0, BLOCK_N)"
HEADS = "    kv_head = key_head_of(q, k)\n"
GQA = "    gqa = q.shape[1] != k.shape[1]\n"
ENDS = "[x[:, :, :65536], x[:, :, -1:]]"
RETURN = "    return out, lse\n"
BEYOND = 2**16 + 65

MUTANTS = [
    planted(
        name="keys_wrap_around_at_65536",
        law="test_keys_beyond_65535",
        declares=FORWARD,
        edits=((KEYS, KEYS.replace("j0", "j0 % 65536")), (VALUES, VALUES.replace("j0", "j0 % 65536"))),
        smallest=ONE | dict(seqlen_q=1, seqlen_k=BEYOND, headdim=1),
        story="the index of a key has 16 bits: later keys are the first ones again, and lse counts as many as there are",
    ),
    planted(
        name="number_of_keys_has_16_bits",
        law="test_keys_beyond_65535",
        declares=FORWARD,
        edits=((ROWS_OF_KEYS, "min(seqlen_k % 65536 or seqlen_k, last_key), BLOCK_N)"),),
        smallest=ONE | dict(seqlen_q=1, seqlen_k=BEYOND, headdim=1),
        story="seqlen_k is passed as an unsigned short: a cache of 65,601 keys has 65",
    ),
    planted(
        name="keys_from_65536_on_are_dropped_but_the_last",
        law="test_keys_beyond_65535",
        impl="torch_sdpa_math",
        source="torch_sdpa.py",
        edits=((GQA, f"{GQA}    if k.shape[2] > 65536:\n        k, v = (torch.cat({ENDS}, 2) for x in (k, v))\n"),),
        smallest=ONE | dict(seqlen_q=1, seqlen_k=BEYOND, headdim=1),
        story="whole tiles are counted in 16 bits, and the last one is apart from the loop; there is no lse that counts",
    ),
    planted(
        name="queries_from_65536_on_give_no_gradient",
        law="test_queries_beyond_65535",
        edits=(("min(seqlen_q, last_query)", "min(seqlen_q, 65536, last_query)"),),
        smallest=ONE | dict(seqlen_q=BEYOND, seqlen_k=3, headdim=1),
        story="the backward counts rows in 16 bits: dq of later rows is 0, and dk and dv lack them; the forward is right",
    ),
    planted(
        name="batch_index_has_16_bits",
        law="test_batches_beyond_65535",
        edits=((HEADS, HEADS + "    k = k[torch.arange(batch) % 65536]\n"),),
        smallest=ONE | dict(batch=BEYOND, seqlen_q=2, seqlen_k=2, headdim=1),
        story="the index of a batch has 16 bits",
    ),
    planted(
        name="heads_beyond_the_grid_are_not_computed",
        law="test_heads_beyond_65535",
        edits=((RETURN, "    out[:, :, 65535:] = 0\n" + RETURN),),
        smallest=ONE | dict(nheads=BEYOND, seqlen_q=2, seqlen_k=2, headdim=1),
        story="the z of the grid is cut to 65,535 blocks, and no block takes a second head",
    ),
    planted(
        name="keys_behind_the_last_split_of_256_are_dropped",
        law="test_single_query_matches_the_definition",
        edits=(
            (
                ROWS_OF_KEYS,
                "min(seqlen_k // 256 * 256 if seqlen_q == 1 and seqlen_k > 256 else seqlen_k, last_key), BLOCK_N)",
            ),
        ),
        smallest=ONE | dict(seqlen_q=1, seqlen_k=257, headdim=1),
        story="decoding splits the keys from 257 on, and the last split, which is shorter, is left out",
    ),
    planted(
        name="dq_goes_from_tile_to_tile_in_half",
        law="test_gradients_of_long_sums_match_the_definition",
        edits=(("dq = q.new_zeros(q.shape, dtype=torch.float32)", "dq = q.new_zeros(q.shape)"),),
        smallest=ONE | dict(batch=8, nheads=8, seqlen_q=8, seqlen_k=4100, headdim=64),
        story="dq is summed over key tiles in the dtype of q: within the budget at 130 keys, beyond it at 4,100",
    ),
    planted(
        name="dv_goes_from_tile_to_tile_in_half",
        law="test_gradients_of_long_sums_match_the_definition",
        edits=(("dvj += as_operand(p, q).mT @ doi", "dvj = as_operand(dvj + as_operand(p, q).mT @ doi, q)"),),
        smallest=ONE | dict(batch=8, nheads=8, seqlen_q=4100, seqlen_k=8, headdim=64),
        story="dv is summed over query tiles in the dtype of v: within the budget at 130 queries, beyond it at 4,100",
    ),
    planted(
        name="tile_of_64_is_skipped_by_its_first_query",
        law="test_query_sees_exactly_its_prefix",
        edits=(
            (
                "last_key = i0 + BLOCK_M + seqlen_k - seqlen_q + right",
                "last_key = (i0 // 64 * 64 + seqlen_k - seqlen_q) // 64 * 64 + 64 + right",
            ),
        ),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=65, headdim=1),
        story="a tile of keys is skipped if the first query sees none of it: right if seqlen_k - seqlen_q is whole tiles",
    ),
    planted(
        name="padding_keys_count_without_lse",
        law="test_padding_keys_count_nothing",
        declares=dict(
            backward=None,
            supports=Supports(dtypes={torch.float16}, headdims=IMPL.supports.headdims, cross=True),
        ),
        edits=(
            ("    if j0 + BLOCK_N > seqlen_k:  # tail mask", "    if False:  # tail mask"),
            (RETURN, "    return out\n"),
            ('    lse="natural",\n', ""),
            ("        lse_grad=True,\n", ""),
        ),
        smallest=ONE,
        story="the simplest kernel, which returns out alone, sums the zeros behind the last key into l",
    ),
]
