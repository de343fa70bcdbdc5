"""The table of opcodes: PTX's spelling, the machine's name for it, and the operands.

A row's spelling is a pattern (spelling.py). {a,b}: one of them. [a]: a or nothing. (a): the same,
but ignored, because it makes no difference to the machine; (a)*: any number of those. <t=a>: a, and
its name in the operands. The matched text that is not ignored is the name of the machine's handler,
unless the row has another name. An opcode that matches no row is refused.

Operands, in PTX's order: `=t` a destination, `t` a source, of the type that `t` stands for in the
spelling, or of a type by its own name; `t*2` of twice that width. `=cc` and `cc` are the carry
flag, which PTX does not write. If that does not describe the operands, the row names a function of
families.py or access.py that reads them and emits code (`by`).
"""

from __future__ import annotations

import functools
import re

from flash_attest.emulator.ptx.access import (
    atom,
    cp_async,
    cvta,
    integer_atom,
    ld,
    ldmatrix,
    policy,
    st,
    stmatrix,
    wait_group,
)
from flash_attest.emulator.ptx.asynchronous import (
    arrive,
    arrive_after_copies,
    bulk,
    bulk_tensor,
    expect,
    mbarrier,
    mbarrier_wait,
    setmaxnreg,
    wgmma,
    wgmma_wait,
)
from flash_attest.emulator.ptx.clusters import ROWS as CLUSTERS
from flash_attest.emulator.ptx.families import (
    bar_red,
    barrier,
    bra,
    cvt,
    elect,
    match_all,
    mma,
    mov,
    nothing,
    setp,
    setp_pair,
    shfl,
    vote,
)
from flash_attest.emulator.ptx.handlers import MOVES, PREDICATES, TOUCH, Handler
from flash_attest.emulator.ptx.maps import ROWS as MAPS
from flash_attest.emulator.ptx.rows import Plan, Row
from flash_attest.emulator.ptx.spelling import meanings, pattern, without_ignored

INTEGER = "{s,u}{16,32,64}"
ORDER = "{eq,ne,lt,le,gt,ge}"
FLOATS = "{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}"
WITH = "(.<op={and,or,xor}>)"  # combines the result of setp with a third predicate
ROUND = "{rn,rz,rm,rp}"
WHOLE = "{rni,rzi,rmi,rpi}"
SCOPES = "(.{weak,volatile,relaxed,acquire,release,acq_rel,mmio})(.{cta,cluster,gpu,sys})"
CACHE = "(.{ca,cg,cs,lu,cv,wb,wt,nc,unified})*"
HINTS = (
    "(.L1::{evict_normal,evict_unchanged,evict_first,evict_last,no_allocate})"
    "(.L2::{evict_first,evict_last,evict_normal})(.L2::cache_hint)(.L2::{64B,128B,256B})"
)
VALUE = "{{b,s,u}{8,16,32,64},f{32,64}}"
SPACE = "[.<space={global,shared,local,const,param}>](::{cta,cluster,entry,func})"
COLUMNS = f"n<n={{{','.join(str(n) for n in range(8, 257, 8))}}}>"
OBJECT, REMOTE = "(.shared)(::cta).b64", "(.shared)(::{cta,cluster}).b64"  # an mbarrier; perhaps another block's
SCOPE = "(.<scope={cta,cluster}>)"
INTO = "(.shared)(::{cta,cluster})(.global)"
LOADS, GROUPED = (
    f"{INTO}(.tile)(.mbarrier::complete_tx::bytes)(.<many=multicast::cluster>)",
    "(.global)(.shared)(::cta)(.tile)(.bulk_group)",
)
WGMMA, ALIGNED = f"wgmma.mma_async(.sync)(.aligned).m64{COLUMNS}", "(.sync)(.aligned)"
MMA, INTEGER_SHAPES, FLOAT8 = "mma(.sync)(.aligned)", "{m8n8k16,m16n8k16,m16n8k32}", "{e4m3,e5m2}"
POINTER_SPACE = "(.<space={global,shared}>)(::{cta,cluster})"
HINT = "(.L2::cache_hint)"
# These words follow the space, in either order, as Triton and flash-attn-4 write them, or follow
# the operation, as in libcu++.
AFTER = "(.{cta,cluster,gpu,sys,relaxed,acquire,release,acq_rel})*"
ATOM, RED = f"atom{SCOPES}{POINTER_SPACE}{AFTER}", f"red{SCOPES}{POINTER_SPACE}{AFTER}"


_ = Row
TABLE = {
    "Integers": (
        _(f"{{add,sub}}.<t={INTEGER}>", "=t t t"),
        _("{add,sub}.sat.<t=s32>", "=t t t"),
        _("add.<t={s,u}16x2>", "=t t t"),
        _(f"{{min,max}}.<t={{{INTEGER},s16x2,u16x2}}>", "=t t t"),
        _("{min,max}.relu.<t={s32,s16x2}>", "=t t t"),
        _(f"mul.{{lo,hi}}.<t={INTEGER}>", "=t t t"),
        _("mul.wide.<t={s,u}{16,32}>", "=t*2 t t"),
        _("mul24.{lo,hi}.<t={s,u}32>", "=t t t"),
        _(f"mad.{{lo,hi}}.<t={INTEGER}>", "=t t t t"),
        _("mad.wide.<t={s,u}{16,32}>", "=t*2 t t t*2"),
        _("mad.hi.sat.<t=s32>", "=t t t t"),
        _("mad24.{lo,hi}.<t={s,u}32>", "=t t t t"),
        _(f"sad.<t={INTEGER}>", "=t t t t"),
        _(f"{{div,rem}}.<t={INTEGER}>", "=t t t"),
        _("{abs,neg}.<t=s{16,32,64}>", "=t t"),
        _("{add,sub}.cc.<t={s,u}{32,64}>", "=t t t =cc"),
        _("{addc,subc}.<t={s,u}{32,64}>", "=t t t cc"),
        _("{addc,subc}.cc.<t={s,u}{32,64}>", "=t t t cc =cc"),
        _("mad.{lo,hi}.cc.<t={s,u}{32,64}>", "=t t t t =cc"),
        _("madc.{lo,hi}.<t={s,u}{32,64}>", "=t t t t cc"),
        _("madc.{lo,hi}.cc.<t={s,u}{32,64}>", "=t t t t cc =cc"),
        _("dp4a.<t={s,u}32>.{s,u}32", "=b32 b32 b32 b32"),
        _("dp2a.{lo,hi}.<t={s,u}32>.{s,u}32", "=b32 b32 b32 b32"),
    ),
    "Bits": (
        _("{and,or,xor}.<t={b{16,32,64},pred}>", "=t t t"),
        _("not.<t={b{16,32,64},pred}>", "=t t"),
        _("cnot.<t=b{16,32,64}>", "=t t"),
        _("shl.<t=b{16,32,64}>", "=t t b32"),
        _("shr.<t={b,s,u}{16,32,64}>", "=t t b32"),
        _("shf.{l,r}.{wrap,clamp}.<t=b32>", "=t t t t"),
        _("{popc,clz}.<t=b{32,64}>", "=b32 t"),
        _("brev.<t=b{32,64}>", "=t t"),
        _("bfind[.shiftamt].<t={s,u}{32,64}>", "=b32 t"),
        _("bfe.<t={s,u}{32,64}>", "=t t b32 b32"),
        _("bfi.<t=b{32,64}>", "=t t t b32 b32"),
        _("fns.b32", "=b32 b32 b32 b32"),
        _("bmsk.{clamp,wrap}.b32", "=b32 b32 b32"),
        _("szext.{clamp,wrap}.{s,u}32", "=b32 b32 b32"),
        _("prmt.b32[.{f4e,b4e,rc8,ecl,ecr,rc16}]", "=b32 b32 b32 b32"),
        _("lop3.b32", "=b32 b32 b32 b32 b32"),
    ),
    "Comparison, selection, moves": (
        _(f"setp.{ORDER}{WITH}.<t={INTEGER}>", by=setp, also=PREDICATES),
        _(f"setp.{{lo,ls,hi,hs}}{WITH}.<t=u{{16,32,64}}>", by=setp, also=PREDICATES),
        _(f"setp.{{eq,ne}}{WITH}.<t=b{{16,32,64}}>", by=setp, also=PREDICATES),
        _(f"setp.{FLOATS}{WITH}[.ftz].<t={{f16,f32}}>", by=setp, also=PREDICATES),
        _(f"setp.{FLOATS}{WITH}.<t={{bf16,f64}}>", by=setp, also=PREDICATES),
        _(f"setp.{FLOATS}[.ftz].<t=f16x2>", by=setp_pair),
        _(f"setp.{FLOATS}.<t=bf16x2>", by=setp_pair),
        _(f"set.{ORDER}.<d={{u32,s32,f32}}>.<t={INTEGER}>", "=d t t"),
        _("set.{lo,ls,hi,hs}.<d={u32,s32,f32}>.<t=u{16,32,64}>", "=d t t"),
        _("set.{eq,ne}.<d={u32,s32,f32}>.<t=b{16,32,64}>", "=d t t"),
        _(f"set.{FLOATS}[.ftz].<d={{u32,s32,f32}}>.<t={{f16,f32}}>", "=d t t"),
        _(f"set.{FLOATS}.<d={{u32,s32,f32}}>.<t={{bf16,f64}}>", "=d t t"),
        _(f"set.{FLOATS}[.ftz].<d={{u16,s16,f16}}>.<t=f16>", "=d t t"),
        _(f"set.{FLOATS}.<d={{u16,s16,bf16}}>.<t=bf16>", "=d t t"),
        _(f"set.{FLOATS}[.ftz].<d={{u32,s32,f16x2}}>.<t=f16x2>", "=d t t"),
        _(f"set.{FLOATS}.<d={{u32,s32,bf16x2}}>.<t=bf16x2>", "=d t t"),
        _("selp.<t={b,s,u,f}{16,32,64}>", "=t t t pred"),
        _("slct.<t={{b,s,u}{16,32,64},f{32,64}}>.<c={s32,f32}>", "=t t t c"),
        _("slct.ftz.<t={{b,s,u}{16,32,64},f{32,64}}>.<c=f32>", "=t t t c"),
        _("mov.<t={{b,s,u,f}{16,32,64},bf16,pred}>", by=mov, also=MOVES),
    ),
    "float32, float64": (
        _(f"{{add,sub,mul}}[.{ROUND}][.ftz][.sat].<t=f32>", "=t t t"),
        _(f"{{fma,mad}}[.{ROUND}][.ftz][.sat].<t=f32>", "=t t t t"),
        _(f"{{add,sub,mul}}[.{ROUND}].<t=f64>", "=t t t"),
        _(f"{{fma,mad}}[.{ROUND}].<t=f64>", "=t t t t"),
        _(f"div.{{{ROUND},full,approx}}[.ftz].<t=f32>", "=t t t"),
        _(f"div.{ROUND}.<t=f64>", "=t t t"),
        _(f"{{rcp,sqrt}}.{{{ROUND},approx}}[.ftz].<t=f32>", "=t t"),
        _(f"{{rcp,sqrt}}.{ROUND}.<t=f64>", "=t t"),
        _("{rcp,rsqrt}.approx.ftz.<t=f64>", "=t t"),
        _("rsqrt.approx[.ftz].<t=f32>", "=t t"),
        _("rsqrt.approx.<t=f64>", "=t t"),
        _("{sin,cos,lg2,ex2}.approx[.ftz].<t=f32>", "=t t"),
        _("tanh.approx.<t={f32,f16,f16x2,bf16,bf16x2}>", "=t t"),
        _("ex2.approx.<t={f16,f16x2}>", "=t t"),
        _("ex2.approx.ftz.<t={f16,f16x2,bf16,bf16x2}>", "=t t"),
        _("{min,max}[.ftz][.NaN][.xorsign.abs].<t=f32>", "=t t t"),
        _("{min,max}.<t=f64>", "=t t t"),
        _("{abs,neg}[.ftz].<t=f32>", "=t t"),
        _("{abs,neg}.<t=f64>", "=t t"),
        _("copysign.<t={f32,f64}>", "=t t t"),
        _("testp.{finite,infinite,number,notanumber,normal,subnormal}.<t={f32,f64}>", "=pred t"),
    ),
    "float16, bfloat16": (
        _("{add,sub,mul}[.rn][.ftz][.sat].<t={f16,f16x2}>", "=t t t"),
        _("fma[.rn][.ftz][.{sat,relu}].<t={f16,f16x2}>", "=t t t t"),
        _("{add,sub,mul}[.rn].<t={bf16,bf16x2}>", "=t t t"),
        _("fma[.rn][.relu].<t={bf16,bf16x2}>", "=t t t t"),
        _("{min,max}[.ftz][.NaN][.xorsign.abs].<t={f16,f16x2}>", "=t t t"),
        _("{min,max}[.NaN][.xorsign.abs].<t={bf16,bf16x2}>", "=t t t"),
        _("{abs,neg}[.ftz].<t={f16,f16x2}>", "=t t"),
        _("{abs,neg}.<t={bf16,bf16x2}>", "=t t"),
    ),
    "Conversion": (
        _("cvt[.sat].<d={s,u}{8,16,32,64}>.<t={s,u}{8,16,32,64}>", by=cvt),
        _(f"cvt.{ROUND}[.ftz][.sat].<d=f32>.<t={{s,u}}{{8,16,32,64}}>", by=cvt),
        _(f"cvt.{ROUND}[.sat].<d={{f16,bf16,f64}}>.<t={{s,u}}{{8,16,32,64}}>", by=cvt),
        _(f"cvt.{WHOLE}[.ftz][.sat].<d={{s,u}}{{8,16,32,64}}>.<t=f32>", by=cvt),
        _(f"cvt.{WHOLE}[.sat].<d={{s,u}}{{8,16,32,64}}>.<t={{f16,bf16,f64}}>", by=cvt),
        _(f"cvt[.{WHOLE}][.ftz][.sat].<d=f32>.<t=f32>", by=cvt),
        _(f"cvt[.{WHOLE}][.sat].<d=f16>.<t=f16>", by=cvt),
        _(f"cvt[.{WHOLE}][.sat].<d=bf16>.<t=bf16>", by=cvt),
        _(f"cvt[.{WHOLE}][.sat].<d=f64>.<t=f64>", by=cvt),
        _("cvt[.rn][.ftz][.sat].<d=f32>.<t={f16,bf16}>", by=cvt),
        _("cvt[.rn][.ftz][.sat].<d=f64>.<t=f32>", by=cvt),
        _("cvt[.rn][.sat].<d=f64>.<t={f16,bf16}>", by=cvt),
        _(f"cvt.{ROUND}[.ftz][.sat].<d={{f16,bf16}}>.<t=f32>", by=cvt),
        _("cvt.{rn,rz}.relu.<d={f16,bf16}>.<t=f32>", by=cvt),
        _(f"cvt.{ROUND}[.ftz][.sat].<d=f32>.<t=f64>", by=cvt),
        _(f"cvt.{ROUND}[.sat].<d={{f16,bf16}}>.<t=f64>", by=cvt),
        _(f"cvt.{ROUND}[.sat].<d=f16>.<t=bf16>", by=cvt),
        _(f"cvt.{ROUND}[.sat].<d=bf16>.<t=f16>", by=cvt),
        _("cvt.rna[.satfinite].<d=tf32>.<t=f32>", by=cvt),
        _("cvt.{rn,rz}[.satfinite][.relu].<d=tf32>.<t=f32>", by=cvt),
        _("cvt.{rn,rz}[.relu][.satfinite].<d={f16x2,bf16x2}>.<t=f32>", by=cvt),
        _("cvt.rn.satfinite[.relu].<d={e4m3x2,e5m2x2}>.<t={f32,f16x2}>", by=cvt),
        _("cvt.rn[.relu].<d=f16x2>.<t={e4m3x2,e5m2x2}>", by=cvt),
        _("cvt.pack.sat.{s8,u8}.s32.b32", "=b32 b32 b32 b32"),
        _("cvt.pack.sat.{s16,u16}.s32", "=b32 b32 b32"),
    ),
    "Memory": (
        _(f"{{ld,ldu}}{SCOPES}{SPACE}{AFTER}{CACHE}{HINTS}[.<vec=v{{2,4}}>].<t={VALUE}>", by=ld, name="ld"),
        _(f"st{SCOPES}{SPACE}{AFTER}{CACHE}{HINTS}[.<vec=v{{2,4}}>].<t={VALUE}>", by=st, name="st"),
        _(f"{ATOM}.{{min,max}}{AFTER}{HINT}.<t={{u,s}}{{32,64}}>", by=atom),
        _(f"{ATOM}.add{AFTER}{HINT}.{{u,s}}<t={{32,64}}>", by=integer_atom, name="atom.add.u{t}"),
        _(f"{ATOM}.{{and,or,xor,exch,cas}}{AFTER}{HINT}.<t=b{{32,64}}>", by=atom),
        _(f"{ATOM}.{{inc,dec}}{AFTER}{HINT}.<t=u32>", by=atom),
        _(f"{ATOM}.cas{AFTER}{HINT}.<t=b16>", by=atom),
        _(f"{ATOM}.add(.noftz){AFTER}{HINT}.<t={{f16,f16x2,bf16,bf16x2,f32,f64}}>", by=atom),
        _(f"{RED}.<op={{min,max}}>{AFTER}{HINT}.<t={{u,s}}{{32,64}}>", by=atom, name="atom.{op}.{t}"),
        _(f"{RED}.add{AFTER}{HINT}.{{u,s}}<t={{32,64}}>", by=integer_atom, name="atom.add.u{t}"),
        _(f"{RED}.<op={{and,or,xor}}>{AFTER}{HINT}.<t=b{{32,64}}>", by=atom, name="atom.{op}.{t}"),
        _(f"{RED}.<op={{inc,dec}}>{AFTER}{HINT}.<t=u32>", by=atom, name="atom.{op}.{t}"),
        _(f"{RED}.add(.noftz){AFTER}{HINT}.<t={{f16,f16x2,bf16,bf16x2,f32,f64}}>", by=atom, name="atom.add.{t}"),
        _(
            "cp.async(.{ca,cg})(.shared)(::cta)(.global)(.L2::cache_hint)(.L2::{64B,128B,256B})", by=cp_async,
            name="cp.async",
        ),
        _("cp.async.commit_group"),
        _("cp.async.wait_group", by=wait_group),
        _("cp.async.wait_all"),
        _("cvta(.to)(.<space={global,const}>)(.u64)", by=cvta, name="mov.b64"),
        _("cvta[.to].{shared,local}(::{cta,cluster})(.u64)", by=cvta),
        _(
            "createpolicy.{fractional,range}(.L2::{evict_last,evict_normal,evict_first,evict_unchanged})*.b64", by=policy,
            name="mov.b64", note="a number that nothing reads",
        ),
    ),
    "Control": (
        _("bra(.uni)", by=bra),
        _("ret(.uni)"),
        _("exit"),
        _("trap"),
        _("trap.assert", "b64", note="stands for a call of __assertfail"),
        _("vprintf", "b64 b64", note="stands for a call of vprintf"),
    ),
    "Barriers and warps": (
        _("{bar,barrier}(.cta).sync(.aligned)", by=barrier, name="bar.sync"),
        _("{bar,barrier}(.cta).arrive(.aligned)", by=barrier, name="bar.arrive"),
        _("{bar,barrier}(.cta).red.popc(.aligned).u32", by=bar_red, name="bar.red.popc"),
        _("{bar,barrier}(.cta).red.<op={and,or}>(.aligned).pred", by=bar_red, name="bar.red.{op}"),
        _("bar.warp.sync", "b32"),
        _("shfl(.sync).{up,down,bfly,idx}(.b32)", by=shfl),
        _("vote(.sync).{all,any,uni}(.pred)", by=vote),
        _("vote(.sync).ballot(.b32)", by=vote),
        _("activemask(.b32)", "=b32"),
        _("match.any(.sync).<t=b{32,64}>", "=b32 t b32"),
        _("elect(.sync)", by=elect),
        _("match.all(.sync).<t=b{32,64}>", by=match_all),
        _("redux(.sync).{min,max}.<t={s,u}32>", "=t t b32"),
        _("redux(.sync).add.<t={s,u}32>", "=t t b32", name="redux.add.u32"),
        _("redux(.sync).{and,or,xor}.<t=b32>", "=t t b32"),
    ),
    "Matrices": (
        _(f"{MMA}.<shape=m16n8k{{8,16}}>(.row.col).<d=f32>.<a=f16>.<b=f16>.<c=f32>", by=mma),
        _(f"{MMA}.<shape=m16n8k{{8,16}}>(.row.col).<d=f16>.<a=f16>.<b=f16>.<c=f16>", by=mma),
        _(f"{MMA}.<shape=m16n8k{{8,16}}>(.row.col).<d=f32>.<a=bf16>.<b=bf16>.<c=f32>", by=mma),
        _(f"{MMA}.<shape=m16n8k{{4,8}}>(.row.col).<d=f32>.<a=tf32>.<b=tf32>.<c=f32>", by=mma),
        _(f"{MMA}.<shape={INTEGER_SHAPES}>(.row.col)[.satfinite].<d=s32>.<a={{s8,u8}}>.<b={{s8,u8}}>.<c=s32>", by=mma),
        _(f"{MMA}.<shape={{m8n8k4,m16n8k{{4,8,16}}}}>(.row.col).<d=f64>.<a=f64>.<b=f64>.<c=f64>", by=mma),
        _(f"{MMA}.<shape=m16n8k{{16,32}}>(.row.col).<d=f32>.<a={FLOAT8}>.<b={FLOAT8}>.<c=f32>", by=mma),
        _(f"{MMA}.<shape=m16n8k{{16,32}}>(.row.col).<d=f16>.<a={FLOAT8}>.<b={FLOAT8}>.<c=f16>", by=mma),
        _("ldmatrix(.sync)(.aligned)(.m8n8).<x=x{1,2,4}>[.trans](.shared)(::cta)(.b16)", by=ldmatrix),
        _("stmatrix(.sync)(.aligned)(.m8n8).<x=x{1,2,4}>[.trans](.shared)(::cta)(.b16)", by=stmatrix),
    ),
    "Asynchronous matrices": (
        _(f"{WGMMA}k16.<d={{f32,f16}}>.f16.f16", by=wgmma, name="wgmma.{d}.f16", also=(TOUCH,)),
        _(f"{WGMMA}k16.<d=f32>.bf16.bf16", by=wgmma, name="wgmma.f32.bf16"),
        _(f"{WGMMA}k8.<d=f32>.tf32.tf32", by=wgmma, name="wgmma.f32.tf32"),
        _(f"wgmma.fence{ALIGNED}", name="wgmma.fence"),
        _(f"wgmma.commit_group{ALIGNED}", name="wgmma.commit_group"),
        _(f"wgmma.wait_group{ALIGNED}", by=wgmma_wait, name="wgmma.wait_group"),
        _("fence.proxy.async[.{global,shared(::cta),shared::cluster}]"),
    ),
    "mbarriers": (
        _(f"mbarrier.init{OBJECT}", by=mbarrier, name="mbarrier.init"),
        _(f"mbarrier.inval{OBJECT}", by=mbarrier, name="mbarrier.inval"),
        _(f"mbarrier.arrive[.expect_tx](.release){SCOPE}{REMOTE}", by=arrive, name="mbarrier.arrive"),
        _(f"mbarrier.arrive[.expect_tx].relaxed{SCOPE}{REMOTE}", by=arrive, name="mbarrier.arrive.relaxed"),
        _(f"mbarrier.<op={{expect_tx,complete_tx}}>(.relaxed){SCOPE}{REMOTE}", by=expect, name="mbarrier.{op}"),
        _(
            f"mbarrier.<op={{try_wait,test_wait}}[.parity]>(.acquire){SCOPE}{OBJECT}", by=mbarrier_wait,
            name="mbarrier.{op}",
        ),
        _(
            f"mbarrier.<op={{try_wait,test_wait}}[.parity]>.relaxed{SCOPE}{OBJECT}", by=mbarrier_wait,
            name="mbarrier.{op}.relaxed",
        ),
        _(f"cp.async.mbarrier.arrive{OBJECT}", by=arrive_after_copies, name="mbarrier.copies.arrive"),
        _(f"cp.async.mbarrier.arrive.noinc{OBJECT}", by=arrive_after_copies, name="mbarrier.copies.arrive.noinc"),
    ),
    "Bulk copies": (
        _(f"cp.async.bulk.tensor.<rank={{1,2,3,4,5}}>d{LOADS}{HINT}", by=bulk_tensor, name="bulk.tensor.load"),
        _(f"cp.async.bulk.tensor.<rank={{1,2,3,4,5}}>d{GROUPED}{HINT}", by=bulk_tensor, name="bulk.tensor.store"),
        _(f"cp.async.bulk{LOADS}{HINT}", by=bulk, name="bulk.load"),
        _(f"cp.async.bulk{GROUPED}{HINT}", by=bulk, name="bulk.store"),
        _("cp.async.bulk(.shared)(::cluster).shared(::cta)(.mbarrier::complete_tx::bytes)", by=bulk, name="bulk.send"),
        _(f"cp.reduce.async.bulk(.global)(.shared)(::cta)(.bulk_group){HINT}.add.f32", by=bulk, name="bulk.add.f32"),
        _(
            f"cp.reduce.async.bulk.tensor.<rank={{1,2,3,4,5}}>d(.global)(.shared)(::cta).add(.tile)(.bulk_group){HINT}",
            by=bulk_tensor, name="bulk.tensor.add.f32",
        ),
        _("cp.async.bulk.commit_group", name="bulk.commit_group"),
        _("cp.async.bulk.wait_group", by=wait_group, name="bulk.wait_group"),
        _("cp.async.bulk.wait_group.read", by=wait_group, name="bulk.wait_group.read"),
        _("cvta.param(.u64)", "=u64 b64"),
        _("setmaxnreg.{inc,dec}(.sync)(.aligned)(.u32)", by=setmaxnreg, name="setmaxnreg", note="only the number is checked"),
    ),
    "Tensor maps made by a kernel": MAPS,
    "Clusters": CLUSTERS,
    "Without an effect here": (
        _(
            "{membar,fence}(.{proxy,alias,mbarrier_init,acq_rel,sc,acquire,release,cta,cluster,gpu,gl,sys})*", by=nothing,
            note="orders nothing in the race rule",
        ),
        _("nanosleep.u32", by=nothing),
        _(
            "{prefetch,prefetchu,discard,applypriority}(.{global,local,const,param,L1,L2,L2::evict_{normal,last},128,tensormap})*",
            by=nothing,
        ),
        _("griddepcontrol.{launch_dependents,wait}", by=nothing),
        _("pmevent(.mask)", by=nothing),
    ),
}  # fmt: skip


@functools.cache
def plan(opcode: str) -> Plan | None:
    """Return the plan for an opcode; None if no row has it."""
    for row, expression in _rows().get(re.match(r"\w+", opcode)[0], ()):
        match = expression.fullmatch(opcode)
        if match:
            words = match.groupdict()
            name = row.name.format(**words) if row.name else without_ignored(expression, match)
            operands = tuple(_operand(token, words) for token in row.operands.split())
            return Plan(row, Handler(name), operands, words)
    return None


def handlers_of(row: Row) -> set[Handler]:
    """Return the handlers that a row can ask for."""
    if row.by is nothing:
        return set()
    names = {Handler(row.name.format(**words) if row.name else text) for text, words in meanings(row.spelling)}
    return names | set(row.also)


def _operand(token: str, words: dict) -> tuple[bool, str]:
    to = token.startswith("=")
    name, _, times = token.lstrip("=").partition("*")
    type = words.get(name) or name
    return to, f"{type[0]}{int(type[1:]) * 2}" if times else type


@functools.cache
def _rows() -> dict[str, list[tuple[Row, re.Pattern]]]:
    """Return the rows by the first word of their opcodes."""
    by_word: dict[str, list] = {}
    for row in (row for rows in TABLE.values() for row in rows):
        first = re.match(r"\{([\w,]+)\}|(\w+)", row.spelling)
        for word in (first[1] or first[2]).split(","):
            by_word.setdefault(word, []).append((row, pattern(row.spelling)))
    return by_word
