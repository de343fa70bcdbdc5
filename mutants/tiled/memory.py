"""Memory bugs: reads or writes out of bounds, wrong strides, fresh memory assumed to be zero:
docs/why/bugs.md#memory.
"""

from dataclasses import replace

from flash_attest.impls.python_tiled import IMPL
from flash_attest.mutants.tiled.build import planted

READ = '''    """Rows start .. start + block of x (b, h, seqlen, d), as float32; rows beyond seqlen are `padding`."""
'''
PAD = "    missing = block - tile.shape[2]\n"
# The number of elements in x's memory after its last one.
SPARE = (
    "x.untyped_storage().nbytes() // x.element_size() - x.storage_offset() - 1"
    " - sum((n - 1) * stride for n, stride in zip(x.shape, x.stride()))"
)
OUT = "    out = q.new_zeros(batch, seqlen_q, nheads, v.shape[3])\n"
KEY_TILES = "        for j0 in range(max(0, first_key)"
DQ = "dq = q.new_zeros(q.shape, dtype=torch.float32)"
DELTA = "    delta = (dout.float() * out.float())"

MUTANTS = [
    planted(
        name="padding_is_masked_after_the_load",
        law="test_memory_around_inputs_is_not_read",
        edits=(
            (
                PAD,
                PAD
                + f"    spare = {SPARE} if x.numel() else 0\n"
                + "    rows = min(missing, spare // x.stride(2)) if x.stride(2) else 0\n"
                "    if rows > 0:\n"
                "        shape, start_at = (*x.shape[:2], rows, x.shape[3]), x.storage_offset() + x.shape[2] * x.stride(2)\n"
                "        tile = torch.cat((tile, 0.0 * x.as_strided(shape, x.stride(), start_at).float()), 2)\n"
                "        missing -= rows\n",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="rows beyond the last are read and multiplied by 0: 0 * NaN is NaN",
    ),
    planted(
        name="columns_behind_the_row_are_read",
        law="test_memory_around_inputs_is_not_read",
        edits=(
            (
                "        m = sink[",
                "        x = q\n"
                f"        if headdim % 8 and {SPARE} >= q.stride(3):\n"
                "            past = q.as_strided(q.shape[:3], q.stride()[:3], q.storage_offset() + headdim * q.stride(3))\n"
                "            qi = qi + 0.0 * load_tile(past.transpose(1, 2).unsqueeze(-1), i0, BLOCK_M)\n"
                "        m = sink[",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="rows are loaded in vectors of 8 columns, and the gap after each row is multiplied by 0",
    ),
    planted(
        name="output_buffer_is_used_again",
        law="test_outputs_stay_as_they_were_returned",
        edits=(
            ('INF = float("inf")\n', 'INF = float("inf")\nKEPT = {}\n'),
            (
                OUT,
                "    shape = (batch, seqlen_q, nheads, v.shape[3])\n"
                "    out = KEPT.setdefault((shape, q.dtype), q.new_zeros(shape))\n",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the output is allocated once for each shape, so the next call overwrites what the last one returned",
    ),
    planted(
        name="last_row_is_written_by_a_late_thread",
        law="test_outputs_stay_as_they_were_returned",
        edits=(
            ("import torch\n", "import threading\n\nimport torch\n"),
            (
                "    return out, lse\n",
                "    late = out.clone()\n"
                "    out[:, -1:] = 0\n"
                "    threading.Timer(0.01, lambda: out.copy_(late)).start()\n"
                "    return out, lse\n",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the call returns before a thread that it started has written its part",
    ),
    planted(
        name="tail_is_cleared_behind_the_keys",
        law="test_inputs_come_back_unchanged",
        edits=(
            (
                OUT,
                OUT + "    x = k\n"
                f"    if seqlen_k % BLOCK_N and {SPARE} > 0:\n"
                "        k.as_strided((1,), (1,), k.storage_offset() + (k[-1:, -1:, -1:, -1:].storage_offset()"
                " - k.storage_offset()) + 1).zero_()\n",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the kernel clears the rest of its last tile in the caller's memory",
    ),
    planted(
        name="dout_of_dead_rows_is_cleared_in_place",
        law="test_inputs_come_back_unchanged",
        edits=((DELTA, "    dout.masked_fill_((lse == -INF).transpose(1, 2).unsqueeze(-1), 0.0)\n" + DELTA),),
        smallest=dict(batch=1, nheads=1, seqlen_q=3, seqlen_k=3, headdim=1),
        story="an input is changed in place: a second backward starts from another dout",
    ),
    planted(
        name="dout_is_read_with_the_strides_of_out",
        law="test_any_layout_equals_the_contiguous_one",
        edits=((DELTA, "    dout = dout.as_strided(dout.shape, out.stride())\n" + DELTA),),
        smallest=dict(batch=1, nheads=2, seqlen_q=2, seqlen_k=2, headdim=2),
        story="out is contiguous, but dout, which comes from the model, is not",
    ),
    planted(
        name="expanded_dout_is_taken_for_its_first_row",
        law="test_expanded_dout_equals_its_copy",
        edits=(
            (
                DELTA,
                "    dout = dout * (torch.arange(seqlen_q)[:, None, None] < 1) if 0 in dout.stride() else dout\n"
                + DELTA,
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, headdim=1),
        story="out.sum().backward() passes dout with stride 0; rows after the first are read out of bounds",
    ),
    planted(
        name="heads_of_an_expanded_k_share_a_gradient",
        law="test_expanded_inputs_equal_their_copy",
        edits=(
            (
                "    dq = (dq * scale).to(q.dtype)\n",
                "    dk = dk.sum(2, keepdim=True).expand_as(dk) if k.stride(2) == 0 else dk\n"
                "    dq = (dq * scale).to(q.dtype)\n",
            ),
        ),
        smallest=dict(batch=1, seqlen_q=2, seqlen_k=2, headdim=2),
        story="dk is stored with the strides of k: with k.expand(...) all heads add to one place",
    ),
    planted(
        name="values_are_taken_for_contiguous",
        law="test_any_layout_equals_the_contiguous_one",
        edits=((OUT, "    v = v.as_strided(v.shape, v.new_empty(v.shape).stride())\n" + OUT),),
        smallest=dict(batch=1, nheads=3, seqlen_q=2, seqlen_k=2, headdim=2),
        story="strides are computed from the shape",
    ),
    planted(
        name="rows_are_taken_for_packed_if_their_elements_are",
        law="test_any_layout_equals_the_contiguous_one",
        edits=(
            (OUT, "    k = k.as_strided(k.shape, k.new_empty(k.shape).stride()) if k.stride(3) == 1 else k\n" + OUT),
        ),
        smallest=dict(batch=1, nheads=3, seqlen_q=2, seqlen_k=2, headdim=2),
        story='only the last stride is checked and in the contract (strides="last_contiguous"), the others are assumed',
        declares=dict(supports=replace(IMPL.supports, strides="last_contiguous")),
    ),
    planted(
        name="keys_are_read_with_the_strides_of_queries",
        law="test_any_layout_equals_the_contiguous_one",
        edits=((OUT, "    k = k.as_strided(k.shape, q.stride()) if k.shape == q.shape else k\n" + OUT),),
        smallest=dict(batch=3, nheads=3, seqlen_q=2, seqlen_k=2, headdim=2, layout="mixed"),
        story="one set of strides is passed for q, k and v, which usually have the same",
    ),
    planted(
        name="tile_that_sees_nothing_is_not_written",
        law="test_what_memory_held_before_does_not_matter",
        edits=(
            (OUT, OUT.replace("new_zeros", "new_empty")),
            (
                KEY_TILES,
                "        if causal and last_key <= 0:\n            continue\n" + KEY_TILES,
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=17, seqlen_k=1, headdim=1, causal=True),
        story="the early exit of a block without keys leaves its rows of out as torch.empty made them",
    ),
    planted(
        name="dq_accumulates_into_fresh_memory",
        law="test_what_memory_held_before_does_not_matter",
        edits=((DQ, DQ.replace("new_zeros", "new_empty")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="scratch from torch.empty is assumed to be zero: passes alone, fails after another test",
    ),
    planted(
        name="keys_of_a_batch_are_taken_for_all_of_its_buffer",
        law="test_any_layout_equals_the_contiguous_one",
        edits=(
            (
                OUT,
                "    if k.stride(1) >= k.stride(2):\n"
                "        k = k.as_strided(k.shape, (seqlen_k * k.stride(1), *k.stride()[1:]))\n" + OUT,
            ),
        ),
        smallest=dict(batch=2, nheads=1, seqlen_q=1, headdim=1, layout="sliced"),
        story="the batch stride is seqlen_k times the row's: wrong for k[:, :n] of a longer cache",
    ),
    planted(
        name="batches_of_an_expanded_q_share_a_gradient",
        law="test_expanded_inputs_equal_their_copy",
        edits=(
            (
                "    dq = (dq * scale).to(q.dtype)\n",
                "    dq = dq.sum(0, keepdim=True).expand_as(dq) if q.stride(0) == 0 else dq\n"
                "    dq = (dq * scale).to(q.dtype)\n",
            ),
        ),
        smallest=dict(batch=2, seqlen_q=1, seqlen_k=2, headdim=1),
        story="dq is stored with the strides of q: with q.expand(...) all batches add to one place",
    ),
    planted(
        name="one_key_is_returned_itself",
        law="test_outputs_may_be_written_to",
        edits=(
            (
                "    return out, lse\n",
                "    return (v if seqlen_k == 1 and q.shape == v.shape and bias is None else out), lse\n",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="out of one key is v: no copy is made, and who writes to out writes to v",
    ),
]
