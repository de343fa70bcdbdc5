"""Races planted in impls/triton: scratch in global memory, programs that share it, a second
stream.
"""

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.mutant import STREAMS, TRACED
from flash_attest.mutants.triton.build import planted, supporting

STORE_LSE = "tl.store(lse_ptr + i, lse, mask=i < seqlen_q)"
SIGNATURE = "headdim, headdim_v, tuning_key,\n    BLOCK_M: tl.constexpr, BLOCK_N"
NEGATIVE = "    q = tl.where(scale < 0, -q, q)"
SECOND_WALK = "\n    acc, l, m = attend(\n"
KERNEL = 'compute_forward = Kernel("forward", forward_kernel)'
SLOTS = '''
class WithSlots(Kernel):
    """A kernel with scratch for one tile of queries on each multiprocessor; the emulator has four."""

    def launch(self, programs, like, *rest, **arguments):
        slots = torch.cuda.get_device_properties(like.device).multi_processor_count if like.is_cuda else 4
        scratch = like.new_empty(slots * 128 * arguments["BLOCK_D"])
        super().launch(programs, like, *rest, slots_ptr=scratch, slots=slots, **arguments)


compute_forward = WithSlots("forward", forward_kernel)'''
SLOT = """    slot = slots_ptr + tl.program_id(0) % slots * (BLOCK_M * BLOCK_D)
    slot += tl.arange(0, BLOCK_M)[:, None] * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
    tl.store(slot, q)
"""
ON_A_GPU = dict(supports=Supports(dtypes={torch.float16}, headdims=range(1, 65)))
MADE_DELTA = "delta, dsink = self._delta(p, out, dout, lse, dlse, sinks)"
DQ = "            self._dq(p, x, dq)\n"
OTHER = (
    "{0}other = torch.cuda.Stream()\n"
    "{0}other.wait_stream(torch.cuda.current_stream())\n"
    "{0}with torch.cuda.stream(other):\n    "
)

MUTANTS = [
    planted(
        name="triton_compiled_lse_behind_the_last_row_is_stored",
        law=TRACED,
        source="forward.py",
        declares=supporting(backward=False),
        edits=((STORE_LSE, "tl.store(lse_ptr + i, lse)"),),
        smallest=dict(batch=1, nheads=1),
        story="the last tile of a head writes the next one's lse, which that head overwrites if its program comes later",
    ),
    planted(
        name="triton_compiled_delta_goes_through_memory",
        law=TRACED,
        source="backward.py",
        declares=supporting(),
        edits=(
            (
                "    tl.store(delta_ptr + statistics + i, delta, mask=i < seqlen_q)",
                "    delta_ptr += statistics\n"
                "    tl.store(delta_ptr + i, delta, mask=i < seqlen_q)\n"
                "    turned = i0 + BLOCK_M - 1 - tl.arange(0, BLOCK_M)\n"
                "    again = tl.load(delta_ptr + turned, mask=turned < seqlen_q)\n"
                "    tl.store(delta_ptr + turned, again, mask=turned < seqlen_q)",
            ),
        ),
        smallest=dict(batch=1, nheads=1),
        story="threads load what others have stored, without a barrier",
    ),
    planted(
        name="triton_compiled_scratch_has_a_slot_for_each_multiprocessor",
        law=TRACED,
        source="forward.py",
        declares=supporting(backward=False),
        edits=(
            ("import triton\n", "import torch\nimport triton\n"),
            (SIGNATURE, SIGNATURE.replace("tuning_key,", "tuning_key, slots_ptr, slots,")),
            (NEGATIVE, f"{SLOT}{NEGATIVE}"),
            (SECOND_WALK, f"\n    q = tl.where(scale < 0, -tl.load(slot), tl.load(slot)){SECOND_WALK}"),
            (KERNEL, SLOTS),
        ),
        smallest=dict(nheads=5),
        story="as many slots as multiprocessors, but more programs: two of them are in one slot once a second wave runs",
    ),
    planted(
        name="triton_delta_is_not_waited_for",
        law=STREAMS,
        source="attention.py",
        device="cuda",
        declares=ON_A_GPU,
        edits=((f"        {MADE_DELTA}", OTHER.format(" " * 8) + f"        {MADE_DELTA}"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="delta is computed on a second stream, for which the first does not wait",
    ),
    planted(
        name="triton_dq_is_not_waited_for",
        law=STREAMS,
        source="attention.py",
        device="cuda",
        declares=ON_A_GPU,
        edits=((DQ, OTHER.format(" " * 12) + DQ),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="dq is computed on a second stream beside dk and dv, and the caller's stream does not wait for it",
    ),
]
