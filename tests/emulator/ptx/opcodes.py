"""Runs single PTX instructions on arrays of values: one thread for each value, many instructions in
one kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from flash_attest.emulator.ptx.machine import handlers
from flash_attest.emulator.ptx.module import load

BLOCK = 128
LETTERS = "abcxyzfghijklmnopsuv"  # registers of sources; results are %d and %e
UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}
HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry test(.param .u64 from, .param .u64 to)\n{\n"


@dataclass(frozen=True)
class Op:
    """An instruction.

    `text` computes %d of `to` bits, and a second result %e if `also`, from %a, %b, ... of `of`
    bits. A predicate has 1 bit.
    """

    name: str
    to: int
    text: str = ""
    also: int = 0

    def line(self, count: int) -> str:
        return self.text or f"{self.name} %d, {', '.join('%' + letter for letter in LETTERS[:count])};"


def names(*starts: str) -> list[str]:
    """Return handlers of the machine whose first word is one of these."""
    return sorted(name for name in handlers() if name.split(".")[0] in starts)


def run(ops: Sequence[Op], sources: Sequence[np.ndarray], widths: Sequence[int] | None = None) -> dict[str, list[int]]:
    """Return the results of each op as unsigned integers, for each value of the sources, which are
    given as bits.

    widths: the widths of the sources' registers, in bits; by default those of the arrays. With
    `also`, a result is a pair.
    """
    widths = widths or [8 * source.itemsize for source in sources]
    count = len(sources[0])
    padded = -(-count // BLOCK) * BLOCK
    inputs = torch.zeros(len(sources), padded, dtype=torch.int64)
    for row, source in enumerate(sources):
        inputs[row, :count] = torch.from_numpy(source.astype(np.uint64).view(np.int64).copy())
    outputs = torch.full((sum(1 + bool(op.also) for op in ops), padded), -1, dtype=torch.int64)
    load(kernel(ops, widths, padded))["test"].launch(padded // BLOCK, BLOCK)(inputs, outputs)
    rows = iter(outputs[:, :count].numpy().view(np.uint64).tolist())
    return {op.name: list(zip(next(rows), next(rows), strict=True)) if op.also else next(rows) for op in ops}


def kernel(ops: Sequence[Op], widths: Sequence[int], padded: int) -> str:
    """Return the PTX. Sources and results lie in memory as 64 bits each, in rows of `padded`."""
    body = [
        ".reg .b32 %t<4>; .reg .b64 %address, %out, %w; .reg .pred %q<2>;",
        "mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mad.lo.s32 %t2, %t1, " + f"{BLOCK}, %t0;",
        "ld.param.u64 %address, [from]; ld.param.u64 %out, [to];",
        "mul.wide.u32 %w, %t2, 8; add.s64 %address, %address, %w; add.s64 %out, %out, %w;",
    ]
    # Load the sources.
    for row, (letter, width) in enumerate(zip(LETTERS, widths, strict=False)):
        at = f"[%address+{row * padded * 8}]"
        if width == 1:
            body.append(f".reg .pred %{letter}; ld.global.b32 %t3, {at}; setp.ne.u32 %{letter}, %t3, 0;")
        else:
            body.append(f".reg .b{width} %{letter}; ld.global.b{width} %{letter}, {at};")
    # Run each instruction in a separate scope, and store its results as 64 bits.
    row = 0
    for op in ops:
        body.append("{")
        for letter, width in (("d", op.to), ("e", op.also)):
            if width:
                body.append(f".reg .{'pred' if width == 1 else f'b{width}'} %r{letter};")
        body.append(re.sub(r"%([de])\b", r"%r\1", op.line(len(widths))))
        for letter, width in (("d", op.to), ("e", op.also)):
            if not width:
                continue
            at = f"[%out+{row * padded * 8}]"
            row += 1
            if width == 1:
                body.append(f"selp.b32 %t3, 1, 0, %r{letter}; cvt.u64.u32 %w, %t3;")
            else:
                body.append(f"cvt.u64.u{width} %w, %r{letter};" if width < 64 else f"mov.b64 %w, %r{letter};")
            body.append(f"st.global.b64 {at}, %w;")
        body.append("}")
    return HEAD + "\n".join(body) + "\nret;\n}\n"


def edges(bits: int, random: int = 40, seed: int = 0) -> np.ndarray:
    """Return integers at the borders of signed and unsigned ranges, and random ones."""
    top = 1 << bits
    wanted = [0, 1, 2, 3, 31, 32, 33, top - 1, top - 2, top // 2, top // 2 - 1, top // 2 + 1, 0x5A5A5A5A5A5A5A5A % top]
    drawn = np.random.default_rng(seed).integers(0, 1 << 63, random, dtype=np.uint64) * np.uint64(2) + np.uint64(
        seed & 1
    )
    return np.concatenate([np.array(wanted, np.uint64), drawn % np.uint64(top) if bits < 64 else drawn]).astype(
        UNSIGNED[bits]
    )


def crossed(*arrays: np.ndarray, most: int = 600) -> list[np.ndarray]:
    """Return every combination of the first values of each array, and the remaining values side by
    side.
    """
    grids = np.meshgrid(*arrays, indexing="ij")
    flat = [grid.ravel() for grid in grids]
    if len(flat[0]) > most:
        chosen = np.random.default_rng(1).choice(len(flat[0]), most, replace=False)
        flat = [values[chosen] for values in flat]
    return flat


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def check(results: dict[str, list], expected: dict[str, list], sources: Sequence[np.ndarray]) -> None:
    """Fail with the first wrong values of each instruction."""
    wrong = []
    for name, got in results.items():
        bad = [i for i, (g, e) in enumerate(zip(got, expected[name], strict=True)) if e is not None and g != e]
        for i in bad[:2]:
            given = ", ".join(hex(int(source[i])) for source in sources)
            e = expected[name][i]
            wrong.append(f"{name} of {given}: {got[i]} ({_hex(got[i])}), should be {e} ({_hex(e)}); {len(bad)} wrong")
    assert not wrong, "\n".join(wrong)


def _hex(value) -> str:
    return str([hex(v) for v in value] if isinstance(value, tuple) else hex(value))
