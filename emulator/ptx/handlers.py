"""The handlers of the machine that Python asks for by a name of its own. The tables in machine/*.cpp spell them the same way.

All others get their names from the table of opcodes (instructions.py), out of PTX's own spelling. What instructions.py lists
is compared with what the machine has by tests/emulator/ptx/test_encode.py.
"""

from __future__ import annotations

from typing import NewType

Handler = NewType("Handler", str)

BRANCH, RETURN = Handler("bra"), Handler("ret")
ENDS = (RETURN, Handler("exit"), Handler("trap"), Handler("trap.assert"))  # no lane goes on with the next instruction

# The steps of which one setp is made, and the moves of which one mov is.
MOVE_PREDICATE, NOT = Handler("mov.pred"), Handler("not.pred")
COMBINE = {op: Handler(f"{op}.pred") for op in ("and", "or", "xor")}
PREDICATES = (MOVE_PREDICATE, NOT, *COMBINE.values())
SPLITS = ("b8x2", "b8x4", "b16x2", "b16x4", "b32x2")
PACK = {split: Handler(f"pack.{split}") for split in SPLITS}
UNPACK = {split: Handler(f"unpack.{split}") for split in SPLITS}
CLOCK = Handler("clock")
LOW_HALF = Handler("cvt.u16.u32")  # of a special register, all of which have 32 bits
MOVES = (*PACK.values(), *UNPACK.values(), CLOCK, LOW_HALF)
