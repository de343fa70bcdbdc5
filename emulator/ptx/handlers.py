"""Names the handlers of the machine that Python code uses.

The tables in machine/*.cpp spell them the same way. All other names come from the table of opcodes
(instructions.py), in PTX's own spelling. tests/emulator/ptx/test_encode.py compares the table with
the machine's handlers.
"""

from __future__ import annotations

from typing import NewType

Handler = NewType("Handler", str)

BRANCH, RETURN = Handler("bra"), Handler("ret")
# After these, no lane continues with the next instruction.
ENDS = (RETURN, Handler("exit"), Handler("trap"), Handler("trap.assert"))

TOUCH = Handler("wgmma.touch")  # another instruction uses registers of a wgmma
# The steps of one setp, and the moves of one mov.
MOVE_PREDICATE, NOT = Handler("mov.pred"), Handler("not.pred")
COMBINE = {op: Handler(f"{op}.pred") for op in ("and", "or", "xor")}
PREDICATES = (MOVE_PREDICATE, NOT, *COMBINE.values())
SPLITS = ("b8x2", "b8x4", "b16x2", "b16x4", "b32x2")
PACK = {split: Handler(f"pack.{split}") for split in SPLITS}
UNPACK = {split: Handler(f"unpack.{split}") for split in SPLITS}
CLOCK = Handler("clock")
LOW_HALF = Handler("cvt.u16.u32")  # of a special register; all of these have 32 bits
MOVES = (*PACK.values(), *UNPACK.values(), CLOCK, LOW_HALF)
