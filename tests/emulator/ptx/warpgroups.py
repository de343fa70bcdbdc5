"""Kernels of one wgmma: the operands lie in shared memory as the PTX manual's canonical layouts
say, and the accumulators are returned as a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flash_attest.emulator.ptx.module import load

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}
SWIZZLES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}  # in a matrix descriptor
WIDTH = {"128B": 128, "64B": 64, "32B": 32}  # bytes of a line
AT_A, AT_B, MEMORY = 0, 16 * 1024, 48 * 1024  # in shared memory
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry test(.param .u64 memory, .param .u64 registers, .param .u64 sums)
.reqntid 128
{"""


@dataclass(frozen=True)
class Operand:
    """A layout of A, or of B as N x K, in shared memory.

    transposed: contiguous in m or n instead of k.
    """

    swizzle: str = "128B"
    transposed: bool = False

    def place(self, row: int, k: int, size: int, rows: int) -> int:
        """Return the byte of an element, from the start of the matrix."""
        line, across = (k, row) if self.transposed else (row, k)  # lines are contiguous across
        byte = across * size
        if self.swizzle == "none":  # 8 lines of 16 bytes follow each other
            return line % 8 * 16 + byte % 16 + self.step_line * (line // 8) + self.step_across(rows) * (byte // 16)
        width = WIDTH[self.swizzle]
        piece, rest = byte % width // 16, byte % 16
        # Of 8 lines, each group of 128 bytes permutes its pieces of 16 bytes in another way.
        piece ^= line % 8 * width // 128 % (width // 16)
        return (
            line % 8 * width
            + piece * 16
            + rest
            + self.step_line * (line // 8)
            + self.step_across(rows) * (byte // width)
        )

    @property
    def step_line(self) -> int:
        """Return the bytes from 8 lines to the next 8."""
        return 8 * WIDTH[self.swizzle] if self.swizzle != "none" else 128

    def step_across(self, rows: int) -> int:
        """Return the bytes to the next piece across: of the swizzle's width, or of 16 bytes."""
        lines = 16 if self.transposed else rows  # elements of two bytes have 16 steps of k
        return self.step_line * (lines // 8)

    def descriptor(self, start: int, rows: int) -> int:
        leading, stride = self.step_across(rows), self.step_line
        if self.transposed and self.swizzle == "none":
            leading, stride = stride, leading
        return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | SWIZZLES[self.swizzle] << 62


@dataclass(frozen=True)
class Product:
    """A wgmma of 64 x n. a is None if A is in registers."""

    type: str = "f16"
    n: int = 32
    a: Operand | None = Operand()
    b: Operand = Operand()
    d: str = "f32"
    signs: tuple[int, int] = (1, 1)
    adds: bool = True

    @property
    def k(self) -> int:
        return 8 if self.type == "tf32" else 16

    @property
    def count(self) -> int:
        """Return the number of registers of the accumulators."""
        return self.n // (2 if self.d == "f32" else 4)

    def text(self, a_bits: int = 0, b_bits: int = 0) -> str:
        """Return the PTX. a_bits, b_bits: more bits of the descriptors."""
        sums = ", ".join(f"%sum{i}" for i in range(self.count))
        left = f"{{{', '.join(f'%a{i}' for i in range(4))}}}" if self.a is None else "%left"
        turned = [int(how.transposed) for how in (self.a, self.b) if how and self.type != "tf32"]
        flags = ", ".join(map(str, [*self.signs, *turned]))
        shape = f"m64n{self.n}k{self.k}.{self.d}.{self.type}.{self.type}"
        loads = [f"ld.global.b32 %sum{i}, [%to+{4 * i}];" for i in range(self.count)]
        stores = [f"st.global.b32 [%to+{4 * i}], %sum{i};" for i in range(self.count)]
        return "\n".join([
            HEAD,
            f".reg .b32 %r<8>, %x<4>, %a<4>, %sum<{self.count}>;",
            ".reg .b64 %w<4>, %to, %left, %right; .reg .pred %p, %adds;",
            "ld.param.u64 %w0, [memory]; ld.param.u64 %w1, [registers]; ld.param.u64 %to, [sums];",
            f"mov.u32 %r0, %tid.x; mul.wide.u32 %w2, %r0, {4 * self.count}; add.s64 %to, %to, %w2;",
            "mul.wide.u32 %w2, %r0, 16; add.s64 %w1, %w1, %w2; ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%w1];",
            # Copy to shared memory.
            "mov.u32 %r1, tile; shl.b32 %r2, %r0, 4; add.s32 %r1, %r1, %r2; add.s64 %w0, %w0, %w2; mov.u32 %r3, 0;",
            "copy: ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%w0]; st.shared.v4.b32 [%r1], {%x0, %x1, %x2, %x3};",
            "add.s64 %w0, %w0, 2048; add.s32 %r1, %r1, 2048; add.s32 %r3, %r3, 2048;",
            f"setp.lt.u32 %p, %r3, {MEMORY}; @%p bra copy;",
            *loads,
            "fence.proxy.async.shared::cta; bar.sync 0;",
            # A GPU keeps the first KiB of shared memory for itself, so the tile begins behind it.
            "mov.u32 %r1, tile; shr.u32 %r1, %r1, 4; cvt.u64.u32 %w3, %r1;",
            f"add.s64 %left, %w3, {self.a.descriptor(AT_A, 64) | a_bits if self.a else 0};",
            f"add.s64 %right, %w3, {self.b.descriptor(AT_B, self.n) | b_bits};",
            f"setp.eq.u32 %adds, {int(self.adds)}, 1;",
            "wgmma.fence.sync.aligned;",
            f"wgmma.mma_async.sync.aligned.{shape} {{{sums}}}, {left}, %right, %adds, {flags};",
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
            *stores,
            "ret; }",
        ])  # fmt: skip

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        """Return a (64, k) @ b (k, n) + c (64, n), in the type of the accumulators."""
        memory = torch.full((MEMORY,), 255, dtype=torch.uint8)  # NaN between the elements
        if self.a is not None:
            put(memory[AT_A:], a, self.a)
        put(memory[AT_B:], b.T, self.b)
        registers, sums = fragments(a), accumulators(c, self.d)
        run(self.text(), memory, registers, sums)
        return matrix(sums, self.d, self.n)


def run(text: str, memory: torch.Tensor, registers: torch.Tensor, sums: torch.Tensor) -> None:
    load(text)["test"].launch(1, 128, MEMORY)(memory, registers, sums)


def put(memory: torch.Tensor, values: torch.Tensor, how: Operand) -> None:
    size = values.element_size()
    bits = values.contiguous().view(torch.uint8).view(*values.shape, size)
    for row in range(values.shape[0]):
        for k in range(values.shape[1]):
            at = how.place(row, k, size, values.shape[0])
            memory[at : at + size] = bits[row, k]


def fragments(a: torch.Tensor) -> torch.Tensor:
    """Return A as four registers of each of 128 threads, as the manual's figures show."""
    each = 4 // a.element_size()  # elements in a register
    thread = torch.arange(128)
    rows, columns = thread // 32 * 16 + thread % 32 // 4, thread % 4 * each
    parts = [a[rows + r % 2 * 8, columns + r // 2 * 4 * each + i] for r in range(4) for i in range(each)]
    return torch.stack(parts, dim=1).contiguous().view(torch.int32)


def places(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (row, column) of each element of each thread's accumulators."""
    thread, i = torch.arange(128)[:, None], torch.arange(n // 2)[None, :]
    return thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8, i // 4 * 8 + thread % 4 * 2 + i % 2


def accumulators(c: torch.Tensor, d: str) -> torch.Tensor:
    held = c[places(c.shape[1])].to(torch.float32 if d == "f32" else torch.float16)
    return held.contiguous().view(torch.int32)


def matrix(sums: torch.Tensor, d: str, n: int) -> torch.Tensor:
    held = sums.view(torch.float32 if d == "f32" else torch.float16)
    result = torch.empty(64, n, dtype=held.dtype)
    result[places(n)] = held
    return result
