"""Tensor maps that a kernel makes: their opcodes.

tensor_map.py has the bytes of a map.
"""

from __future__ import annotations

from flash_attest.emulator.ptx.access import SPACES
from flash_attest.emulator.ptx.families import take
from flash_attest.emulator.ptx.rows import Plan, Row
from flash_attest.emulator.ptx.syntax import Immediate, Instruction, type_bytes
from flash_attest.emulator.ptx.tensor_map import BYTES

# In the order of enum Field of machine/tensor_maps.cpp: the type of the value, and the number of
# dimensions that have one each, 0 if the map has one.
FIELDS = {
    "global_address": ("b64", 0), "rank": ("b32", 0), "box_dim": ("b32", 5), "global_dim": ("b32", 5),
    "global_stride": ("b64", 4), "element_stride": ("b32", 5), "elemtype": ("b32", 0), "interleave_layout": ("b32", 0),
    "swizzle_mode": ("b32", 0), "fill_mode": ("b32", 0),
}  # fmt: skip
STRIDES_IN_BYTES = (8, 6)  # assemblers of this version and later take the stride in bytes, earlier ones in 16 bytes


def replace(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [map], dimension, value; a field
    that the map has once has no dimension.
    """
    name, type = plan.words["field"], plan.words["t"]
    wanted, dimensions = FIELDS[name]
    if type != wanted:
        raise encoder.error(f"{name} has the type .{wanted}")
    address, *dimension, value = take(encoder, instruction, 3 if dimensions else 2)
    number = dimension[0].value if dimension and dimension[0].__class__ is Immediate else None if dimension else 0
    if number not in range(max(1, dimensions)):
        raise encoder.error(f"the dimension should be a number from 0 to {dimensions - 1}")
    if name == "global_stride" and encoder.text.version < STRIDES_IN_BYTES:
        version, least = (".".join(map(str, each)) for each in (encoder.text.version, STRIDES_IN_BYTES))
        raise encoder.refused(
            f"{instruction.opcode} in PTX {version}, whose unit differs: from {least} on it is a byte"
        )
    space = plan.words["space"] or ""
    where = [SPACES[space], *encoder.address(address, space)]
    encoder.emit(plan.handler, [*where, [*FIELDS].index(name), number, type_bytes(type), encoder.source(value, type)])


def cp_fenceproxy(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [to], [from], 128.
    """
    to, source, size = take(encoder, instruction, 3)
    _check_size(encoder, size)
    encoder.emit(plan.handler, [*encoder.address(to, "global"), *encoder.address(source, "shared"), _is_narrow(plan)])


def release(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode fence.proxy.tensormap::generic.release.gpu."""
    take(encoder, instruction, 0)
    encoder.emit(plan.handler, [_is_narrow(plan)])


def acquire(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode fence.proxy.tensormap::generic.acquire.gpu [map], 128."""
    address, size = take(encoder, instruction, 2)
    _check_size(encoder, size)
    encoder.emit(plan.handler, [*encoder.address(address, ""), _is_narrow(plan)])


def _is_narrow(plan: Plan) -> int:
    """Return whether the fence says nothing to other blocks of a cluster."""
    return int(plan.words["scope"] == "cta")


def _check_size(encoder, size) -> None:
    if size.__class__ is not Immediate or size.value != BYTES:
        raise encoder.error(f"the size should be {BYTES}")


SCOPE = "(.<scope={cta,cluster,gpu,sys}>)"
ROWS = (
    Row(
        f"tensormap.replace.tile.<field={{{','.join(FIELDS)}}}>[.<space={{global,shared}}>](::cta)(.b1024).<t=b{{32,64}}>",
        by=replace, name="tensormap.replace", note="element_stride 1, interleave_layout 0 and fill_mode 0 only",
    ),
    Row(
        f"tensormap.cp_fenceproxy(.global)(.shared)(::cta)(.tensormap::generic)(.release){SCOPE}(.sync)(.aligned)",
        by=cp_fenceproxy, name="tensormap.cp_fenceproxy",
    ),
    Row(f"fence.proxy.tensormap::generic.release{SCOPE}", by=release, name="fence.proxy.tensormap.release"),
    Row(f"fence.proxy.tensormap::generic.acquire{SCOPE}", by=acquire, name="fence.proxy.tensormap.acquire"),
)  # fmt: skip
