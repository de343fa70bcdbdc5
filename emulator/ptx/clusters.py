"""Clusters of blocks: their opcodes, and the clusters of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from flash_attest.emulator.ptx.families import as_tuple, take
from flash_attest.emulator.ptx.rows import Plan, Row
from flash_attest.emulator.ptx.syntax import Instruction, type_bytes

REDUCTIONS = ("", "add", "min", "max", "inc", "dec", "and", "or", "xor")  # enum Reduction of bulk.h
RED = "red.async(.relaxed)(.cluster)(.shared)(::cluster)(.mbarrier::complete_tx::bytes)"
MOST = 8  # blocks, as in block.h
WINDOWS = {"shared::cluster": 0, "shared::cta": 1, "shared": 1, "local": 2, "global": 3}  # enum Window of clusters.cpp


def mapa(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode mapa.shared::cluster.u32 d, a, rank, and mapa.u64 d, a, rank of generic addresses."""
    to, address, rank = take(encoder, instruction, 3)
    pointer, type = _pointer(encoder, instruction, plan, address)
    encoder.emit(plan.handler, [encoder.destination(to, type), *pointer, encoder.source(rank, "u32")])


def getctarank(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode getctarank.shared::cluster.u32 d, a; d has 32 bits."""
    to, address = take(encoder, instruction, 2)
    pointer, _ = _pointer(encoder, instruction, plan, address)
    encoder.emit(plan.handler, [encoder.destination(to, "u32"), *pointer])


def _pointer(encoder, instruction: Instruction, plan: Plan, address) -> tuple[list[int], str]:
    """Return (the address, its bytes and whether it is generic; its type)."""
    type = f"b{plan.words['t']}"
    return [encoder.source(address, type), type_bytes(type), int(".shared" not in instruction.opcode)], type


def isspacep(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode isspacep.shared::cluster p, a."""
    to, address = take(encoder, instruction, 2)
    source = encoder.source(address, "b64")
    encoder.emit(plan.handler, [encoder.destination(to, "pred"), source, WINDOWS[plan.words["space"]]])


def st_async(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [a], {b, c}, [mbar]."""
    address, values, mbarrier = take(encoder, instruction, 3)
    values, count = as_tuple(values), int((plan.words["vec"] or "v1")[1:])
    if len(values) != count:
        raise encoder.error(f"takes {count} registers, has {len(values)}")
    where = [*encoder.address(address, "shared"), *encoder.address(mbarrier, "shared")]
    sources = [encoder.source(one, plan.words["t"]) for one in values]
    encoder.emit(plan.handler, [*where, type_bytes(plan.words["t"]), count, 0, 0, *sources])


def red_async(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [a], b,
    [mbar].
    """
    address, value, mbarrier = take(encoder, instruction, 3)
    type, op = plan.words["t"], REDUCTIONS.index(plan.words["op"])
    where = [*encoder.address(address, "shared"), *encoder.address(mbarrier, "shared")]
    encoder.emit(plan.handler, [*where, type_bytes(type), 1, op, int(type[0] == "s"), encoder.source(value, type)])


ROWS = (
    Row("barrier.cluster.arrive(.release)(.aligned)", name="cluster.arrive"),
    Row("barrier.cluster.arrive.relaxed(.aligned)", name="cluster.arrive.relaxed"),
    Row("barrier.cluster.wait(.acquire)(.aligned)", name="cluster.wait"),
    Row("mapa(.shared)(::cluster).u<t={32,64}>", by=mapa, name="mapa"),
    Row("getctarank(.shared)(::cluster).u<t={32,64}>", by=getctarank, name="getctarank"),
    Row("isspacep.<space={shared(::{cta,cluster}),local,global}>", by=isspacep, name="isspacep"),
    Row(
        "st.async(.weak)(.shared)(::cluster)(.mbarrier::complete_tx::bytes)[.<vec=v{2,4}>].<t={{b,s,u,f}{32,64}}>",
        by=st_async, name="st.async",
    ),
    *(
        Row(f"{RED}.<op={ops}>.<t={types}>", by=red_async, name="red.async")
        for ops, types in (("{inc,dec}", "u32"), ("{min,max}", "{s,u}32"), ("add", "{{s,u}32,u64}"), ("{and,or,xor}", "b32"))
    ),
    Row("fence.mbarrier_init(.release)(.cluster)", name="fence.mbarrier_init"),
    Row(
        "fence(.{sc,acq_rel,release}).{cluster,gpu,sys}", name="fence.cluster",
        note="orders what comes before it with barrier.cluster.arrive.relaxed",
    ),
    Row("membar.{gl,sys}", name="fence.cluster"),
)  # fmt: skip


def cluster_of(
    directives: Mapping[str, Sequence[int]], given: Sequence[int] | None, grid: Sequence[int]
) -> tuple[tuple[int, int, int], str]:
    """Return (blocks in each dimension of a cluster, why it cannot be launched or "").

    0, 0, 0 stands for no clusters. directives: of the kernel. given: what the launch asks for.
    """
    none = (0, 0, 0)
    required = directives.get("reqnctapercluster")
    required = (*required, 1, 1)[:3] if required and all(required) else None
    given = (*given, 1, 1)[:3] if given and any(given) else None
    if given and required and given != required:
        return none, f"cluster={given}: the kernel was compiled for {required} (.reqnctapercluster)"
    cluster = given or required
    if cluster is None:
        missing = "explicitcluster" in directives
        return none, "the kernel needs clusters (.explicitcluster): give their size" if missing else ""
    blocks, most = prod(cluster), directives.get("maxclusterrank")
    if blocks > MOST:
        return none, f"cluster={cluster}: {blocks} blocks, should be at most {MOST}: more are not portable"
    if blocks < 1 or (most and blocks > most[0]):
        return none, f"cluster={cluster}: should be 1 to {most[0] if most else MOST} blocks (.maxclusterrank)"
    if any(size % of for size, of in zip(grid, cluster, strict=True)):
        return none, f"a grid of {tuple(grid)} blocks: should be a multiple of the cluster, {cluster}"
    return cluster, ""
