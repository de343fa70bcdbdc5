"""Calls of device functions are replaced by their code."""

import pytest
import torch

from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.ptx import PtxError, load
from tests.emulator.ptx.texts import HEAD, kernel

# This is how nvcc writes it: returns in the middle, a call within a function, names that each call
# uses again.
FUNCTIONS = """
.func (.param .b32 ret) limited(.param .b32 x, .param .align 4 .b8 by[8])
{
    .reg .pred %p<2>; .reg .b32 %r<5>;
    ld.param.u32 %r1, [x];
    ld.param.u32 %r2, [by+4];
    setp.gt.u32 %p1, %r1, %r2;
    @%p1 bra LARGE;
    st.param.b32 [ret+0], %r1;
    ret;
LARGE:
    st.param.b32 [ret+0], %r2;
    ret;
}
.func (.param .b32 ret) sum(.param .b32 x)
{
    .reg .b32 %r<5>;
    ld.param.u32 %r1, [x];
    { .param .b32 param0; st.param.b32 [param0+0], %r1;
      .param .align 4 .b8 param1[8]; st.param.b32 [param1+4], 5;
      .param .b32 retval0;
      call.uni (retval0), limited, (param0, param1);
      ld.param.b32 %r2, [retval0+0]; }
    add.u32 %r3, %r1, %r2;
    st.param.b32 [ret+0], %r3;
    ret;
}
"""
CALL = (
    "{ .param .b32 param0; st.param.b32 [param0+0], %r1; .param .b32 retval0; call.uni (retval0), sum, (param0);"
    " ld.param.b32 %r2, [retval0+0]; }"
)


def ran(statements: str, functions: str = FUNCTIONS) -> list[int]:
    out = torch.full((32,), -1, dtype=torch.int32)
    load(kernel(statements, functions))["k"].launch(1, 32)(out)
    return out.tolist()


def test_a_call_within_a_call():
    assert ran(f"{CALL} st.global.u32 [%rd3], %r2; ret;") == [i + min(i, 5) for i in range(32)]


def test_two_calls_do_not_share_registers():
    twice = f"{CALL} mov.u32 %r5, %r2; {CALL.replace('], %r1;', '], %r5;', 1)} st.global.u32 [%rd3], %r2; ret;"
    once = [i + min(i, 5) for i in range(32)]
    assert ran(twice) == [n + min(n, 5) for n in once]


def test_a_guarded_call():
    guarded = CALL.replace("call.uni", "@%p1 call")
    want = [i + min(i, 5) if i < 7 else 100 for i in range(32)]
    before = "setp.lt.u32 %p1, %r1, 7; { .param .b32 retval0; st.param.b32 [retval0], 100; }"
    assert ran(f"{before} {guarded} st.global.u32 [%rd3], %r2; ret;") == want
    other = f"{before} {guarded}".replace("lt.u32", "ge.u32").replace("@%p1", "@!%p1")
    assert ran(f"{other} st.global.u32 [%rd3], %r2; ret;") == want


def test_threads_that_went_other_ways_meet_behind_a_call():
    shuffled = f"{CALL} shfl.sync.bfly.b32 %r3, %r2, 16, 31, -1; st.global.u32 [%rd3], %r3; ret;"
    assert ran(shuffled) == [i + min(i, 5) for i in (j ^ 16 for j in range(32))]


def test_an_assertion_that_fails():
    text = kernel(
        "setp.lt.u32 %p1, %r1, 9; @%p1 bra FINE; mov.u64 %rd1, said; cvta.global.u64 %rd1, %rd1;\n"
        "{ .param .b64 param0; st.param.b64 [param0+0], %rd1;\n"
        "call.uni __assertfail, (param0); }\nFINE: ret;",
        ".global .align 1 .b8 said[4] = {120, 60, 57, 0}; .extern .func __assertfail(.param .b64 message);\n",
    )
    with pytest.raises(PtxError, match=r"(?s)trap: assert\(x<9\), .*<ptx>:10  thread 9 of block 0 stops here"):
        load(text)["k"].launch(1, 32)(None)


@pytest.mark.parametrize(
    "statements, reason",
    [
        ("call.uni (retval0), malloc, (param0);", "a call of malloc"),
        ("call %rd1, (param0), prototype;", "a call of %rd1"),
        (".param .b32 retval0; .param .b32 param0; call (retval0), endless, (param0);", "endless, which calls itself"),
        ("call (%r1), sum, (%r2);", "a call of sum with parameters in registers"),
    ],
)
def test_calls_that_are_refused(statements, reason):
    endless = """.func (.param .b32 ret) endless(.param .b32 x)
    { .param .b32 retval0; call (retval0), endless, (x); ret; }
    """
    with pytest.raises(Refused, match=f"not covered on the CPU: {reason}"):
        load(kernel(statements, FUNCTIONS + endless))["k"].check()


def test_a_call_with_too_few_parameters():
    with pytest.raises(CompileError, match=r"<ptx>:.*: limited is called with 1 parameters, takes 2"):
        load(kernel(".param .b32 r; call (r), limited, (r);", FUNCTIONS))["k"].check()


FORMATTED = r"%d of %5.2f, %lld%% of %s: %*d|" + "\n"


def test_printf_prints(capfd):
    """The format is C's, and each argument lies at a multiple of its size."""
    text = f".global .align 1 .b8 said[{len(FORMATTED) + 1}] = {{{', '.join(str(ord(c)) for c in FORMATTED)}, 0}};"
    text += ".global .align 1 .b8 word[4] = {116, 119, 111, 0};"
    stored = """
    .local .align 8 .b8 frame[40]; .reg .b64 %a<3>;
    st.local.u32 [frame], %r1; st.local.f64 [frame+8], 0d3FF8000000000000; st.local.u64 [frame+16], 1099511627776;
    mov.u64 %a0, word; cvta.global.u64 %a0, %a0; st.local.u64 [frame+24], %a0;
    st.local.u32 [frame+32], 4; st.local.u32 [frame+36], 7;
    mov.u64 %a1, said; cvta.global.u64 %a1, %a1; mov.u64 %a2, frame; cvta.local.u64 %a2, %a2;
    .param .b64 param0; .param .b64 param1; .param .b32 retval0;
    st.param.b64 [param0], %a1; st.param.b64 [param1], %a2; call.uni (retval0), vprintf, (param0, param1);
    """
    ran(f"{stored} ret;", text)
    printed = capfd.readouterr().out.splitlines()
    assert sorted(printed) == sorted(f"{i} of  1.50, 1099511627776% of two:    7|" for i in range(32))


@pytest.mark.parametrize(
    "atomic", ["atom.add.relaxed.gpu.s32 %r2, ", "atom.global.add.acq_rel.sys.u32 %r2, ", "red.add.relaxed.cta.u32 "]
)
def test_order_and_scope_may_follow_the_operation(atomic):
    """libcu++ writes order and scope there."""
    assert ran(f"st.global.u32 [%rd3], 1; {atomic}[%rd3], 4; ret;", "") == [5] * 32


def test_functions_that_are_not_called_may_be_anything():
    other = ".func other() { nonsense.b32; ret; }\n"
    assert load(HEAD + other + kernel("ret;")[len(HEAD) :])["k"].check() is None
