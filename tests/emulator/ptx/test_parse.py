"""PTX text is read in the forms that LLVM and nvcc write; text that is not PTX is reported with its
line.
"""

import pytest

from flash_attest.emulator.errors import CompileError
from flash_attest.emulator.ptx.parse import parse
from flash_attest.emulator.ptx.syntax import SINK, Address, Immediate, Not, Pair, Place, Register, Special, Symbol
from tests.emulator.ptx.texts import HEAD, NVCC, TRITON, kernel


def statements(text: str, before: str = "") -> list:
    """Return the instructions that follow those that every kernel of texts.py begins with."""
    return parse(kernel(text, before)).functions["k"].instructions[4:]


def operands(text: str) -> tuple:
    return statements(text)[0].operands


def test_a_kernel_of_triton():
    read = parse(TRITON)
    function = read.kernels["copy"]
    assert [(p.name, p.offset, p.size, p.kind, p.pointer) for p in function.parameters] == [
        ("copy_param_0", 0, 8, "u64", True), ("copy_param_1", 8, 4, "u32", False), ("copy_param_2", 16, 8, "u64", True),
    ]  # fmt: skip
    assert function.directives == {"reqntid": (32,)}
    assert read.target == "sm_80"
    assert read.files == {
        1: "/author/kernel.py",
        2: "/site-packages/triton/language/standard.py",
        3: "/author/tiles.py",
    }
    assert [i.opcode for i in function.instructions[:3]] == ["ld.param.b64", "mov.u32", "and.b32"]
    load = next(i for i in function.instructions if i.opcode == "ld.global.b32")
    assert load.guard.name == "%p1"
    assert not load.negated
    assert load.operands[0][0].name == "%r3"
    assert load.line == TRITON.splitlines().index("	@%p1 ld.global.b32 { %r3 }, [ %rd2 + 0 ];") + 1
    assert read.places[load.place] == Place(3, 58, (("tiles.py", 64), ("kernel.py", 14)))


def test_a_scope_has_registers_of_its_own():
    function = parse(TRITON).kernels["copy"]
    inner = [i.operands[0] for i in function.instructions if i.opcode == "mov.b32"][-1]
    outer = [i.operands[1] for i in function.instructions if i.opcode == "add.s32"][-1]
    assert inner.name == outer.name == "%r9"
    assert inner is not outer


def test_a_branch_by_index_is_a_list_of_branches():
    """The last target is taken without a comparison: a larger index is undefined."""
    text = "a: add.u32 %r1, %r1, 1;\nlist: .branchtargets\n  a,\n  b,\n  a;\nbrx.idx %r1, list;\nb: ret;"
    read = statements(text)
    assert [i.opcode for i in read[1:6]] == ["setp.eq.u32", "bra", "setp.eq.u32", "bra", "bra"]
    places = [i.operands[0].index for i in read if i.opcode == "bra"]
    assert places[0] == places[2] == places[1] - 6
    assert [i.guard is None for i in read if i.opcode == "bra"] == [False, False, True]


def test_registers_may_follow_their_type_without_a_space():
    """CUDA's headers write registers in this way in inline PTX of float16."""
    (added,) = statements("{.reg.b32 f, C;\nadd.u32 f, %r1, %r2;}")
    assert added.operands[0].name == "f" and added.operands[0].bytes == 4


def test_a_kernel_of_nvcc():
    read = parse(NVCC)
    function = read.kernels["_Z4gemm7ProblemPf"]
    assert [(p.offset, p.size, p.kind) for p in function.parameters] == [(0, 24, "b8[]"), (24, 8, "u64")]
    assert function.directives == {"maxntid": (128, 1, 1)}
    assert function.variables["_ZZ4gemmPfE4tile"].size == 128
    wide = next(i for i in function.instructions if i.opcode == "mul.wide.u32")
    assert read.places[wide.place] == Place(2, 40, ((2, 38), (1, 25)))


def test_operands():
    d, a, b = operands("add.s32 %r2, %r3, -0x10;")
    assert (d.name, a.name, b) == ("%r2", "%r3", Immediate(-16))
    assert isinstance(d, Register)
    assert operands("mov.b32 %r2, 0f3F800000;")[1] == Immediate(0x3F800000, 32)
    assert operands("mov.b64 %rd2, 0d3FF0000000000000;")[1] == Immediate(0x3FF0000000000000, 64)
    assert operands("mov.b64 %rd2, 1.5;")[1] == Immediate(1.5)
    assert operands("mov.u32 %r2, 017;")[1] == Immediate(15)
    assert operands("mov.u32 %r2, 7U;")[1] == Immediate(7)
    assert operands("mov.u32 %r2, WARP_SZ;")[1] == Immediate(32)
    assert operands("mov.u32 %r2, %lanemask_lt;")[1] == Special("%lanemask_lt")
    assert operands("mov.u64 %rd2, a+4;")[1] == Symbol("a", 4)
    pair, _, _, negated = operands("setp.lt.and.s32 %p1|%p2, %r1, %r2, !%p3;")
    assert isinstance(pair, Pair)
    assert isinstance(negated, Not)
    assert operands("mov.b32 {%rs1, _}, %r2;")[0][1] is SINK


def test_addresses():
    def address(text: str) -> Address:
        return operands(f"ld.global.u32 %r2, {text};")[1]

    assert address("[%rd1+16]").offset == 16
    assert address("[ %rd1 + 0 ]").base.name == "%rd1"
    assert address("[%rd1+-16]").offset == -16
    assert address("[%rd1-16]").offset == -16
    assert address("[a+4]") == Address(Symbol("a"), 4)
    assert address("[a]") == Address(Symbol("a"), 0)
    assert address("[4096]") == Address(None, 4096)


def test_several_statements_on_a_line_and_one_on_several():
    read = statements("mov.u32 %r2, 1; mov.u32 %r3, 2;\n add.u32\n %r4,\n %r2, %r3; /* a\n comment */ @!%p1 ret;")
    assert [(i.opcode, i.line) for i in read] == [("mov.u32", 7), ("mov.u32", 7), ("add.u32", 8), ("ret", 11)]
    assert read[-1].negated


def test_labels_of_scopes():
    read = statements("{ L: bra L; }\n{ L: bra M; { bra L; } M: }\n bra END; END:")
    targets = [i.operands[0].index - 4 for i in read]
    assert targets == [0, 3, 1, 4]


def test_variables_with_values():
    read = parse(
        HEAD + ".const .align 8 .b8 bytes[4] = {1, 2, 0xff};\n.global .f32 one = 0f3F800000, half = 0.5;\n"
        ".global .u64 where = generic(bytes)+2;\n.shared .align 16 .f32 tile[4][8];\n.global .v2 .u32 pair;\n"
        ".extern .shared .b8 dynamic[];\n.global .s16 small[] = {-1, 2};\n.global .align 1 .b8 text[3] = {97};\n"
    ).variables
    assert (read["bytes"].values, read["bytes"].size, read["bytes"].align) == (b"\1\2\xff", 4, 8)
    assert read["one"].values == b"\0\0\x80?"
    assert read["half"].values == b"\0\0\0?"
    assert read["where"].addresses == ((0, Symbol("bytes", 2)),)
    assert (read["tile"].size, read["tile"].align) == (128, 16)
    assert (read["pair"].size, read["pair"].align) == (8, 8)
    assert (read["dynamic"].size, read["dynamic"].extern) == (0, True)
    assert (read["small"].size, read["small"].values) == (4, b"\xff\xff\2\0")


def test_strings_are_no_comments():
    read = parse(HEAD + '.file 1 "/a//b/k.py"\n' + kernel('.pragma "nounroll // {"; ret;')[len(HEAD) :])
    assert read.files == {1: "/a//b/k.py"}
    assert read.functions["k"].instructions[-1].opcode == "ret"


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("", 1, "this is not PTX"),
        ("hello", 1, "'hello' cannot be read as PTX"),
        (HEAD + ".entry k(", 4, "cannot be read as PTX"),
        (HEAD + ".entry k() {\n ret;", 4, "k has no closing brace"),
        (HEAD + "\n}", 5, "an unmatched closing brace"),
        (HEAD + ".reg .b32 %r;", 4, "a register is declared outside of a function"),
        (HEAD + "add.s32 %r1, %r2, %r3;", 4, "'add.s32' is outside of a function"),
        (HEAD + ".address_size 32", 4, r"\.address_size is 32, should be 64"),
        (HEAD + ".global .b8 x[2] = {nonsense+};", 4, r"'nonsense\+' cannot be read as a value"),
        (HEAD + ".entry k(.param b64 x) { ret; }", 4, "'.param b64 x' cannot be read as a parameter"),
        (kernel("\nbra NOWHERE;"), 8, "there is no label 'NOWHERE' in k"),
        (kernel("\n@%r1 ret;"), 8, "%r1 is not a predicate"),
        (kernel("\n.reg .b33 %q;"), 8, r"registers of type \.b33 are not known"),
        (kernel("\nld.global.u32 %r1 %r2;"), 8, "'%r1 %r2' cannot be read as an operand"),
        (kernel("\nmov.u32 %r1, 0f3F;"), 8, "'0f3F' cannot be read as an operand"),
        (kernel("\n=;"), 8, "'=;' cannot be read as PTX"),
    ],
)
def test_what_is_not_ptx(text, line, message):
    with pytest.raises(CompileError, match=f"^name:{line}: .*{message}"):
        parse(text, "name")
