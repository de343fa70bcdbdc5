"""Bugs of state that is kept between calls: a cache whose key is too small, or a workspace that
does not fit: docs/why/bugs.md#calling.

Each has a twin that is right, because its key is whole or its workspace grows: `right_twin`.
"""

from __future__ import annotations

from dataclasses import replace

from flash_attest.mutants.mutant import ONE, Mutant
from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.calling import KEY_HEAD, OUT, RETURN, START

LAW = "test_other_calls_do_not_matter"
FIRST = "test_first_call_decides_nothing"
KEPT = ('INF = float("inf")\n', 'INF = float("inf")\nKEPT = {}\n')
FULL_BIAS = "expand(batch, nheads, seqlen_q, seqlen_k)  # as in forward\n"  # of the backward
DQ = "    dq = q.new_zeros(q.shape, dtype=torch.float32)"
WINDOW = "    left, right = window_of(window, causal)\n    sink"
SCALE = "    scale = headdim**-0.5 if softmax_scale is None else softmax_scale\n    kv_head"
DQ_SCALED = "    dq = (dq * scale).to(q.dtype)\n"
WORKSPACE = '''

def workspace(q):
    """Return a float32 buffer like q, of zeros, in memory that calls share."""
    kept = KEPT.setdefault("dq", q.new_zeros(q.numel(), dtype=torch.float32))
    {if_small}
    {clear}
    return kept[: q.numel()].view(q.shape)


def check('''
IF_LONG = "if q.shape[1] > 32:\n        kept.zero_()"
IF_SHORT = 'if seqlen_q <= 32:\n        KEPT["dq"].zero_()'
GROWS = 'if kept.numel() < q.numel():\n        kept = KEPT["dq"] = q.new_zeros(q.numel(), dtype=torch.float32)'


def keyed(old: str, new: str, key: str) -> tuple:
    """Return the edits that replace old by new, in which KEY stands for the key of a cache."""
    return (KEPT, (old, new.replace("KEY", f"({key})")))


def shared(after: str) -> tuple:
    """Return the edits for a workspace of dq, which long calls clear before its use, and the short
    ones, or all, after it.
    """
    workspace = WORKSPACE.format(if_small=GROWS, clear=IF_LONG).lstrip("\n")
    used = (DQ_SCALED, f"{DQ_SCALED}    {after}\n")
    return (KEPT, (DQ, "    dq = workspace(q)"), used, ("def check(", workspace))


# name -> ((old, new), the key, what it lacks, sizes that the case needs, story)
OF_KEYS = {
    "keys_past_those_of_the_first_call_are_not_read": (
        (OUT, f"    seqlen_k = min(seqlen_k, KEPT.setdefault(KEY, seqlen_k))\n{OUT}"), "headdim, q.dtype", "seqlen_k", {},
        "the loop over keys has the trip count that the first call compiled in",
    ),
    "batches_past_those_of_the_first_call_stay_empty": (
        (RETURN, f"    out[KEPT.setdefault(KEY, batch) :] = 0\n{RETURN}"), "q.shape[1:], k.shape[1:], q.dtype", "batch", {},
        "the grid is planned for the first batch size, and the key has the shape of one sequence",
    ),
    "causal_is_that_of_the_first_call": (
        (START, f"{START}    causal = KEPT.setdefault(KEY, causal)\n"), "q.shape, k.shape, q.dtype", "causal",
        dict(seqlen_q=2, seqlen_k=2), "the mask is compiled in, and the key has sizes alone",
    ),
    "window_is_that_of_the_first_call": (
        (WINDOW, f"    window = KEPT.setdefault(KEY, window)\n{WINDOW}"), "q.shape, k.shape, q.dtype, causal", "window",
        dict(seqlen_q=4, seqlen_k=4), "the bounds of the loop over keys are compiled in",
    ),
    "default_scale_is_that_of_the_first_headdim": (
        (SCALE, SCALE.replace("headdim**-0.5", "KEPT.setdefault(KEY, headdim**-0.5)")), "q.shape[:3], k.shape[:3]", "headdim",
        dict(headdim=2), "1 / sqrt(headdim) is computed once for each plan of sizes",
    ),
    "strides_are_those_of_the_first_call": (
        (START, f"{START}    q = q.as_strided(q.shape, KEPT.setdefault(KEY, q.stride()))\n"),
        "q.shape, q.dtype", "q.stride()", dict(seqlen_q=2, seqlen_k=2, headdim=2),
        "descriptors of tensors are kept by shape and dtype",
    ),
    "key_heads_are_those_of_the_first_group": (
        (KEY_HEAD, f"return KEPT.setdefault(KEY, {KEY_HEAD.removeprefix('return ')})"), "q.shape[2]", "k.shape[2]",
        dict(nheads=2), "a map of heads is kept by the number of query heads",
    ),
    "a_backward_of_one_query_is_kept": (
        (FULL_BIAS, f"{FULL_BIAS}    seqlen_q = 1 if KEPT.setdefault(KEY, seqlen_q == 1) else seqlen_q\n"),
        "headdim, q.dtype", "seqlen_q == 1", {},
        "Triton compiles a 1 in as a constant, and the kernel is kept for every length (finding #124)",
    ),
}  # fmt: skip
# name -> (edits, edits of the right twin, sizes that the case needs, story)
OF_WORKSPACES = {
    "long_calls_clear_the_workspace_before_and_short_ones_after": (
        shared(IF_SHORT), shared('KEPT["dq"].zero_()'), {},
        "each of two paths leaves the workspace as it expects it, and not as the other one does",
    ),
}  # fmt: skip

# The same for what the first call of a process decides, so that calls before the law hide it.
OF_FIRST_CALLS = {
    "every_backward_is_compiled_like_the_first_one": (
        (FULL_BIAS, f"{FULL_BIAS}    seqlen_q = 1 if KEPT.setdefault(KEY, seqlen_q == 1) else seqlen_q\n"),
        '"backward"', "seqlen_q == 1", dict(batch=2, nheads=2, seqlen_q=40, seqlen_k=40),
        "finding #124, where the key has nothing of a call: a process that began with longer ones is right",
    ),
}  # fmt: skip

MUTANTS = [
    *(
        planted(name=name, law=LAW, edits=keyed(*snippets, key), smallest=ONE | sizes, story=story)
        for name, (snippets, key, _, sizes, story) in OF_KEYS.items()
    ),
    *(
        planted(name=name, law=FIRST, edits=keyed(*snippets, key), smallest=ONE | sizes, story=story)
        for name, (snippets, key, _, sizes, story) in OF_FIRST_CALLS.items()
    ),
    *(
        planted(name=name, law=LAW, edits=edits, smallest=ONE | sizes, story=story)
        for name, (edits, _, sizes, story) in OF_WORKSPACES.items()
    ),
]


def right_twin(mutant: Mutant) -> Mutant:
    """Return the mutant with a key that is whole, or with a workspace that fits every call."""
    of_keys = OF_KEYS | OF_FIRST_CALLS
    if mutant.name in of_keys:
        snippets, key, lacks, *_ = of_keys[mutant.name]
        return replace(mutant, edits=keyed(*snippets, f"{key}, {lacks}"))
    return replace(mutant, edits=OF_WORKSPACES[mutant.name][1])
