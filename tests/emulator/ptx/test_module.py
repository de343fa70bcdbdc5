"""PTX is loaded and launched with CPU tensors: arguments, memory, errors, lines, the cache."""

import struct

import pytest
import torch

from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.observation import Kind
from flash_attest.emulator.ptx import PtxError, decoded, load
from flash_attest.emulator.ptx.program import readable
from flash_attest.emulator.runtime.watch import watching
from tests.emulator.ptx.texts import HEAD, NVCC, TRITON, kernel


def run(statements: str, *arguments, grid=1, block=32, shared=0, **text):
    load(kernel(statements, **text))["k"].launch(grid, block, shared)(*arguments)


def ran(statements: str, **text) -> list[int]:
    """Return the values that 32 threads stored."""
    out = torch.zeros(32, dtype=torch.int32)
    run(f"{statements} st.global.u32 [%rd3], %r2; ret;", out, **text)
    return out.tolist()


def observed(module, name: str, *arguments, block=32, shared=0) -> list:
    observations = []
    with watching(observations.extend, 0, 0.0, 60):
        module[name].launch(1, block, shared)(*arguments)
    return observations


# ---- kernels -------------------------------------------------------------------------------------


def test_a_kernel_of_triton():
    x = torch.arange(32, dtype=torch.int32)
    module = load(TRITON, "copy.ptx")
    module["copy"].launch(1, 32, 128)(x, 0, None)
    assert x.tolist() == [(i ^ 1) + 8 for i in range(32)]


def test_a_kernel_of_nvcc():
    out = torch.zeros(32)
    load(NVCC)["_Z4gemm7ProblemPf"].launch(1, 32)(struct.pack("<6i", 0, 0, 3, 42, 0, 0), out)
    assert out.tolist() == [42.0] * 32


def test_immediates_of_all_kinds():
    assert set(ran("mov.b32 %r2, 0f3F800000;")) == {0x3F800000}
    assert set(ran("mov.f32 %f1, 0d3FF0000000000000; mov.b32 %r2, %f1;")) == {0x3F800000}
    assert set(ran("mov.f32 %f1, 1.5; cvt.rni.s32.f32 %r2, %f1;")) == {2}
    assert set(ran("mov.u32 %r2, -1;")) == {-1}
    assert set(ran("mov.b64 %rd4, -2; cvt.u32.u64 %r2, %rd4;")) == {-2}
    assert set(ran("mov.pred %p1, -1; selp.b32 %r2, 5, 6, %p1;")) == {5}
    assert set(ran("mov.b16 %rs1, 0xFF80; cvt.s32.s16 %r2, %rs1;")) == {-128}


def test_compare_and_combine():
    def pair(expression: str) -> list[int]:
        return ran(
            f"setp.gt.s32 %p3, %r1, 7; {expression} selp.b32 %r3, 1, 0, %p1; selp.b32 %r4, 2, 0, %p2; or.b32 %r2, %r3, %r4;"
        )

    want = [(i < 16 and not i > 7) + 2 * (not i < 16 and not i > 7) for i in range(32)]
    assert pair("setp.lt.and.s32 %p1|%p2, %r1, 16, !%p3;") == want
    assert pair("mov.pred %p2, 0; setp.lt.xor.s32 %p1, %r1, 16, %p3;") == [int((i < 16) != (i > 7)) for i in range(32)]
    # The destination is also the guard, or the predicate to combine the result with.
    assert pair("mov.pred %p1, %p3; setp.lt.or.s32 %p1|%p2, %r1, 16, %p1;") == [
        (i < 16 or i > 7) + 2 * (not i < 16 or i > 7) for i in range(32)
    ]
    assert pair("mov.pred %p1, %p3; mov.pred %p2, 0; @%p1 setp.lt.and.s32 %p1|%p2, %r1, 16, %p1;") == [
        ((i < 16) + 2 * (not i < 16)) * (i > 7) for i in range(32)
    ]


def test_packs_and_unpacks():
    assert set(ran("mov.b16 %rs1, 1; mov.b16 %rs2, 2; mov.b32 %r2, {%rs1, %rs2};")) == {0x20001}
    assert set(ran("mov.b32 %r3, 0x30004; mov.b32 {_, %rs2}, %r3; cvt.u32.u16 %r2, %rs2;")) == {3}
    assert set(ran("mov.b64 %rd4, {%r1, 5}; mov.b64 {%r3, %r2}, %rd4;")) == {5}


def test_addresses_below_zero():
    assert set(ran("mov.u32 %r2, tile-4;", before=".shared .u32 tile;\n")) == {-4}
    with pytest.raises(PtxError, match="outside: reads 4 bytes at address 0xfffffffffffffffc, where no tensor is"):
        run("ld.global.u32 %r2, [-4]; ret;", None)


def test_special_registers():
    assert ran("mov.u32 %r2, %laneid;") == list(range(32))
    assert ran("mov.u32 %r2, %lanemask_lt;") == [(1 << i) - 1 for i in range(32)]
    assert set(ran("mad.lo.s32 %r2, %ntid.x, %nctaid.y, %smid;")) == {32}
    assert ran("mov.u16 %rs1, %tid.x; cvt.u32.u16 %r2, %rs1;") == list(range(32))
    assert ran("cvt.u64.u32 %rd4, %tid.x; cvt.u32.u64 %r2, %rd4;") == list(range(32))


def test_the_size_of_dynamic_shared_memory():
    """The kernel's own shared memory is not included.

    Numba reads the size in every kernel with a dynamic array.
    """
    out = torch.zeros(32, dtype=torch.int32)
    for shared in (0, 96, 4096):
        before = ".shared .align 8 .b8 own[40];\n.extern .shared .align 16 .b8 dynamic[];\n"
        use = "mov.u32 %r3, own; mov.u32 %r4, dynamic;"
        statements = f"mov.u32 %r2, %dynamic_smem_size; {use} st.global.u32 [%rd3], %r2; ret;"
        run(statements, out, shared=shared, before=before)
        assert set(out.tolist()) == {shared}


def test_carries():
    add = "mov.u32 %r3, -1; add.cc.u32 %r4, %r3, %r1; addc.u32 %r2, 0, 0;"
    assert ran(add) == [0] + [1] * 31


def test_variables():
    before = ".const .align 4 .u32 table[4] = {1, 2, 3, 4};\n.global .u32 counter = 5;\n.global .u64 where = table;\n"
    read = (
        "and.b32 %r3, %r1, 3; mul.wide.u32 %rd4, %r3, 4; mov.u64 %rd5, table; add.s64 %rd4, %rd4, %rd5;"
        "ld.const.u32 %r2, [%rd4];"
    )
    assert ran(read, before=before)[:5] == [1, 2, 3, 4, 1]
    assert set(ran("ld.const.u32 %r2, [table+8];", before=before)) == {3}
    assert set(ran("ld.global.u64 %rd4, [where]; ld.u32 %r2, [%rd4+4];", before=before)) == {2}
    module = load(kernel("atom.global.add.u32 %r2, [counter], 1; st.global.u32 [%rd3], %r2; ret;", before))
    out = torch.zeros(32, dtype=torch.int32)
    module["k"].launch(1, 32)(out)
    module["k"].launch(1, 32)(out)
    assert sorted(out.tolist()) == list(range(37, 69))
    address, size = module.variables["counter"]
    assert size == 4
    assert address % 256 == 0


def test_local_memory():
    before = ".local .align 8 .b8 depot[64];\n"
    assert ran("st.local.u32 [depot+4], %r1; ld.local.u32 %r2, [depot+4];", before=before) == list(range(32))
    through = "mov.u64 %rd4, depot; cvta.local.u64 %rd5, %rd4; st.u32 [%rd5+8], %r1; ld.local.u32 %r2, [%rd4+8];"
    assert ran(through, before=before) == list(range(32))


# ---- mistakes ------------------------------------------------------------------------------------


def test_a_race_has_the_lines_of_the_source():
    x = torch.arange(32, dtype=torch.int32)
    observations = observed(load(TRITON.replace("bar.sync 	0;", ""), "copy.ptx"), "copy", x, 0, None, shared=128)
    assert [o.kind for o in observations] == [Kind.RACE]
    assert [str(site) for site in observations[0].sites] == ["tiles.py:58", "tiles.py:58"]
    assert observations[0].sites[0].file == "/author/tiles.py"
    assert observations[0].sites[0].function == "copy"
    assert observations[0].place == "dynamic shared memory[1]"


def test_lines_of_libraries_lead_to_the_author():
    module = load(NVCC.replace("add.s64 	%rd6, %rd5, %rd3;", "add.s64 	%rd6, %rd5, 256;"))
    observations = observed(module, "_Z4gemm7ProblemPf", bytes(24), torch.zeros(32))
    assert observations[0].kind is Kind.OUTSIDE
    assert observations[0].tensor == "tile"
    assert "128 bytes past the end of tile" in observations[0].detail
    assert str(observations[0].sites[0]) == "gemm.cu:25"


def test_without_loc_the_lines_are_those_of_the_ptx():
    text = kernel("st.shared.u32 [tile], %r1;\nret;", ".shared .u32 tile;\n")
    observations = observed(load(text, "by_hand.ptx"), "k", torch.zeros(32))
    assert observations[0].kind is Kind.RACE
    assert str(observations[0].sites[0]) == "by_hand.ptx:8"
    assert observations[0].sites[0].text == "st.shared.u32 [tile], %r1;"
    assert observations[0].place == "tile[0] in shared memory"


def test_a_mistake_stops_a_plain_launch():
    with pytest.raises(PtxError, match=r"(?s)outside: .*st.global.u32 \[%rd1\+100000000\]"):
        run("st.global.u32 [%rd1+100000000], %r1;\nret;", torch.zeros(32))
    with pytest.raises(PtxError, match="k of <ptx> writes outside of its tensors: 0 to 4 bytes past the end of a"):
        run("st.global.u32 [%rd1+128], %r1; ret;", torch.zeros(32))
    with pytest.raises(PtxError, match="deadlock"):
        run("bar.sync 1, 96; ret;", torch.zeros(32), block=64)


def test_two_variables_have_their_names():
    before = ".shared .align 4 .b8 one[16];\n.shared .align 4 .b8 two[16];\n.global .b8 three[16];\n"
    observations = observed(
        load(kernel("setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [one+16], %r1;\n@%p1 ld.shared.u32 %r2, [two+4];\n"
                    "@%p1 st.global.u32 [three+16], %r1; ret;", before)),
        "k", torch.zeros(32),
    )  # fmt: skip
    assert [(o.kind, o.tensor) for o in observations if o.kind is Kind.UNINITIALISED] == [(Kind.UNINITIALISED, "two")]
    outside = [o for o in observations if o.kind is Kind.OUTSIDE]
    assert outside[0].tensor == "one"
    assert "right past the end of one" in outside[0].detail


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((), TypeError, r"k of <ptx> takes 3 arguments \(a, n, x\), got 0"),
        ((torch.zeros(32), 1, 1.0, 2), TypeError, "takes 3 arguments"),
        ((1.5, 1, 1.0), ValueError, r"a: should be an integer \(\.u64\), is 1.5"),
        (("x", 1, 1.0), TypeError, "a: should be a CPU tensor, a number or None, is str"),
        ((torch.zeros(3, device="meta"), 1, 1.0), ValueError, "a: should be a CPU tensor, is on meta"),
        ((None, torch.zeros(2), 1.0), TypeError, r"n: should be a number \(\.u32\), is a tensor"),
        ((None, None, 1.0), TypeError, r"n: should be a number \(\.u32\), is None"),
        ((None, 2**32, 1.0), ValueError, r"n: should have 32 bits \(\.u32\), is 4294967296"),
        ((None, 1.25, 1.0), ValueError, r"n: should be an integer \(\.u32\), is 1.25"),
        ((None, b"12", 1.0), ValueError, "n: should have 4 bytes, has 2"),
        ((None, 1, None), TypeError, r"x: should be a number \(\.f32\), is None"),
    ],
)
def test_arguments_that_do_not_fit(arguments, error, message):
    module = load(kernel("ret;", parameters=".param .u64 a, .param .u32 n, .param .f32 x"))
    with pytest.raises(error, match=message):
        module["k"].launch(1, 32)(*arguments)


def test_names_of_arguments():
    module = load(kernel("ret;"))
    with pytest.raises(TypeError, match="k of <ptx>, q: should be a CPU tensor"):
        module["k"].launch(1, 32)("x", names=["q"])
    with pytest.raises(ValueError, match="takes 1 arguments"):
        module["k"].launch(1, 32)(None, names=["q", "k"])
    with pytest.raises(PtxError, match="0 to 4 bytes past the end of q"):
        load(kernel("st.global.u32 [%rd1+128], %r1; ret;"))["k"].launch(1, 32)(torch.zeros(32), names=["q"])


def test_a_struct_is_given_as_bytes():
    with pytest.raises(ValueError, match="should have 24 bytes, has 3"):
        load(NVCC)["_Z4gemm7ProblemPf"].launch(1, 32)(b"abc", None)
    with pytest.raises(TypeError, match="should be the 24 bytes of a struct, is int"):
        load(NVCC)["_Z4gemm7ProblemPf"].launch(1, 32)(5, None)


@pytest.mark.parametrize(
    "shape, message",
    [
        (((1, 2, 3, 4), 32), "grid=.*: should be one to three sizes"),
        ((1, -1), "block=-1: should be one to three sizes"),
        ((1, 32, -1), "shared=-1: should be a number of bytes"),
    ],
)
def test_sizes_that_make_no_sense(shape, message):
    with pytest.raises(ValueError, match=message):
        load(kernel("ret;"))["k"].launch(*shape)


@pytest.mark.parametrize(
    "shape, message",
    [
        ((1, 2048), "2048 threads a block: at most 1024"),
        ((0, 32), "no size may be 0"),
        ((1, 32, 300_000), "300000 bytes of shared memory: at most 232448"),
    ],
)
def test_launches_that_no_gpu_accepts(shape, message):
    with pytest.raises(PtxError, match=f"k of <ptx> cannot be launched: .*{message}"):
        load(kernel("ret;"))["k"].launch(*shape)(None)


def test_the_threads_that_a_kernel_was_compiled_for():
    with pytest.raises(PtxError, match=r"block=\(64, 1, 1\): the kernel was compiled for \(32, 1, 1\) \(\.reqntid\)"):
        load(TRITON)["copy"].launch(1, 64, 128)(None, 0, None)
    with pytest.raises(PtxError, match=r"at most 128 threads \(\.maxntid\)"):
        load(NVCC)["_Z4gemm7ProblemPf"].launch(1, (64, 4))(bytes(24), None)


def test_names_that_are_not_there():
    with pytest.raises(KeyError, match=r"x\.ptx has no kernel 'scale'; its kernels: copy"):
        load(TRITON, "x.ptx")["scale"]
    with pytest.raises(KeyError, match="its kernels: none"):
        load(HEAD)["k"]
    with pytest.raises(TypeError, match="PTX should be text, is int"):
        load(5)


def test_only_the_kernel_that_is_used_must_be_covered():
    other = kernel("tcgen05.alloc %r1;", name="other")[len(HEAD) :]
    out = torch.zeros(32, dtype=torch.int32)
    module = load(kernel("st.global.u32 [%rd3], %r1; ret;") + other, "two.ptx")
    module["k"].launch(1, 32)(out)
    assert out.tolist() == list(range(32))
    with pytest.raises(Refused, match=r"two.ptx:12: not covered on the CPU: opcode tcgen05.alloc"):
        module["other"].launch(1, 32)
    with pytest.raises(Refused):
        load(module.text, "two.ptx", kernels=["other"])


def test_what_another_module_defines_is_refused():
    with pytest.raises(Refused, match="elsewhere, which another module defines"):
        load(kernel("ld.global.u32 %r1, [elsewhere];", ".extern .global .u32 elsewhere;\n"))["k"].check()


def test_names_of_variables():
    assert readable("_ZZ4gemmPfE4tile") == "tile"
    assert readable("_ZZN2ns4gemmIfEEvPT_E8the_tile_0") == "the_tile"
    assert readable("_ZN2ns5tableE") == "table"
    assert readable("global_smem") == "global_smem"


# ---- the cache -----------------------------------------------------------------------------------


def test_a_text_is_decoded_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path))
    monkeypatch.setattr(decoded, "_known", type(decoded._known)())
    text = kernel("st.global.u32 [%rd3], %r1; // only here\nret;")
    load(text)["k"].check()
    monkeypatch.setattr(decoded, "_known", type(decoded._known)())
    monkeypatch.setattr(decoded, "Parser", None)  # not needed again
    out = torch.zeros(32, dtype=torch.int32)
    load(text)["k"].launch(1, 32)(out)
    assert out.tolist() == list(range(32))
    assert len(list(tmp_path.glob("*.ptx"))) == 2


def test_a_refusal_is_kept_too(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path))
    text = kernel("nonsense.b32 %r1; // only here")
    for _ in range(2):
        monkeypatch.setattr(decoded, "_known", type(decoded._known)())
        with pytest.raises(Refused, match=r"<ptx>:7: .*opcode nonsense\.b32"):
            load(text)["k"].check()


def test_a_cache_file_cut_short_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path))
    text = kernel("ret; // cut short")
    load(text)["k"].check()
    for file in tmp_path.glob("*.ptx"):
        file.write_bytes(b"\x80")
    monkeypatch.setattr(decoded, "_known", type(decoded._known)())
    load(text)["k"].launch(1, 32)(None)


def test_a_text_that_is_wrong_is_reported_each_time():
    for _ in range(2):
        with pytest.raises(CompileError, match=r"<ptx>:7: add\.s32: takes 3 operands, has 2"):
            load(kernel("add.s32 %r1, %r2;"))["k"].check()
