"""Parses PTX text into its parts (syntax.py).

One regular expression matches a statement; names are resolved in scopes.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from flash_attest.emulator.errors import CompileError
from flash_attest.emulator.ptx.declarations import parameters, variables
from flash_attest.emulator.ptx.operands import NAME, Operands, Scope
from flash_attest.emulator.ptx.syntax import (
    Function,
    Instruction,
    Label,
    Place,
    Register,
    Text,
)

COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
LINKAGE = r"(?:\.(?:visible|extern|weak|common)\s+)*"
STATEMENT = re.compile(
    rf"""\s*(?:
      \.loc[ \t]+(?P<file>\d+)[ \t]+(?P<row>\d+)(?P<loc>[^\n;]*)
    | (?P<label>{NAME})\s*:(?!:)
    | (?:@\s*(?P<negated>!?)\s*(?P<guard>{NAME})\s+)?(?P<opcode>[a-z]\w*(?:(?:\.|::)\w+)*)
      (?P<operands>[^;{{}}]*(?:\{{[^;{{}}]*\}}[^;{{}}]*)*);
    | (?P<open>\{{)
    | (?P<close>\}})
    | \.reg\b\s*(?P<reg>[^;]*);
    | \.file\s+(?P<number>\d+)\s+"(?P<path>(?:[^"\\\n]|\\.)*)"[^\n]*
    | (?P<skip>\.section[^{{]*\{{[^}}]*\}} | \.pragma(?:"[^"\n]*"|[^;"])*; | @@[^\n]* | \.alias[^;]*;)
    | \.branchtargets\s+(?P<targets>[^;]*);
    | \.(?P<head>version|target|address_size)(?P<what>[^\n;]*)
    | (?P<linkage>{LINKAGE})\.(?P<kind>entry|func)\b(?P<header>[^;{{]*)(?P<begin>[;{{])
    | (?P<linked>{LINKAGE})\.(?P<space>shared|global|const|local|param)\b(?P<declared>[^;]*);
    | (?P<wrong>\S[^\n]*)
    )""",
    re.VERBOSE,
)
HEADER = re.compile(
    rf"\s*(?P<results>\([^)]*\))?\s*(?P<name>{NAME})\s*(?:\((?P<parameters>[^)]*)\))?(?P<rest>[^;{{]*)$"
)
OPERANDS = re.compile(r"(?:\{[^{}]*\}|\[[^\[\]]*\]|[^,{}\[\]])+")
RANGE = re.compile(rf"({NAME})\s*(?:<\s*(\d+)\s*>)?$")
BRACE = re.compile(r'"[^"\n]*"|[{}]')


INLINED = re.compile(r"//\s*\S+:\d+(?::\d+)? @\[[^\n]*")  # LLVM's comment after .loc
AROUND = re.compile(r"([^\s\[\]@]+?):(\d+)(?::\d+)?(?=[\s\]])")
WITHIN = re.compile(r"inlined_at\s+(\d+)\s+(\d+)\s+(\d+)")


def parse(text: str, source: str = "<ptx>") -> Text:
    """Return a module with all its functions.

    Raises CompileError with the line of anything that is not PTX.
    """
    parser = Parser(text, source)
    for name in parser.bodies:
        parser.read(name)
    return parser.module


class Parser(Operands):
    """Parses everything outside of functions first, then each function on demand, because a text
    may have hundreds of functions.
    """

    def __init__(self, text: str, source: str):
        self.module = Text(source)
        self.text = COMMENT.sub(_without_comment, text)
        self.newlines = [m.start() for m in re.finditer("\n", self.text)]
        self.at = 0
        self.skip = 0  # where to continue, if not after the statement
        self.function: Function | None = None
        self.scope = Scope()
        self.place = -1
        self.last_label = ""
        self.branch_targets: dict[str, list[str]] = {}  # the labels of each list of .branchtargets
        self.known_places: dict[tuple[str, str, str], int] = {}
        # These are the targets that nvcc's inlined_at may name.
        self.columns: dict[tuple[int, int, int], Place] = {}
        self.handlers = {
            "opcode": self._instruction, "loc": self._loc, "label": self._label, "targets": self._targets,
            "open": self._open, "close": self._close,
            "reg": self._registers, "path": self._file, "what": self._head, "begin": self._function,
            "declared": self._variable, "wrong": self._wrong, "skip": lambda match: None,
        }  # fmt: skip
        # The beginning and end of the statements of each function.
        self.bodies: dict[str, tuple[int, int]] = {}
        self._scan(0, len(self.text))
        if not self.module.target and not self.module.functions:
            raise self.error("this is not PTX: it has neither a .target nor a function", 1)

    def read(self, name: str) -> Function:
        """Return the function of this name, with its instructions."""
        function = self.module.functions[name]
        if name in self.bodies and not function.instructions:
            start, end = self.bodies[name]
            self.function, self.scope, self.place = function, Scope(Scope()), -1
            self._scan(start, end)
            if self.function is not None:
                raise self.error(f"{name} has no closing brace", function.line)
        return function

    def _scan(self, start: int, end: int) -> None:
        handlers = self.handlers
        while start < end:
            for match in STATEMENT.finditer(self.text, start, end):
                start = self.at = match.end() - 1
                handlers[KINDS[match.lastgroup]](match)
                if self.skip:
                    start, self.skip = self.skip, 0
                    break
            else:
                return

    def _body(self, start: int) -> int:
        """Return the end of the body that starts there, which is the position after its closing
        brace.
        """
        depth = 1
        for brace in BRACE.finditer(self.text, start):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)  # 0 for text in a string
            if not depth:
                return brace.end()
        raise self.error(f"{list(self.module.functions)[-1]} has no closing brace")

    def line_of(self, position: int) -> int:
        return bisect_right(self.newlines, position - 1) + 1

    def error(self, what: str, line: int = 0) -> CompileError:
        return CompileError(f"{self.module.source}:{line or self.line_of(self.at)}: {what}")

    # ---- instructions
    # --------------------------------------------------------------------------------

    def _instruction(self, match: re.Match) -> None:
        negated, guard, opcode, operands = match.group("negated", "guard", "opcode", "operands")
        position = match.start("opcode")
        if self.function is None:
            self.at = position
            raise self.error(f"{opcode!r} is outside of a function")
        self.at = match.start("guard") if guard else position
        line = bisect_right(self.newlines, self.at - 1) + 1
        predicate = self._operand(guard) if guard else None
        if guard and not (isinstance(predicate, Register) and predicate.type == "pred"):
            raise self.error(f"{guard} is not a predicate")
        if opcode in ("bra", "bra.uni"):
            label = Label(operands.strip())
            self.scope.pending.append((label, line))
            read = (label,)
        elif (
            opcode.startswith("brx.idx")
            and predicate is None
            and operands.split(",")[-1].strip() in self.branch_targets
        ):
            self._branch_by_index(operands, line)
            return
        elif opcode.startswith(("call", "brx")):
            read = (operands.strip(),)
        else:
            memo = self.scope.operands
            read = []
            for part in OPERANDS.findall(operands) if "{" in operands else operands.split(","):
                part = part.strip()
                operand = memo.get(part)
                read.append(self._operand(part) if operand is None else operand)
            read = () if len(read) == 1 and read[0] == "" else tuple(read)
        self.function.instructions.append(
            Instruction(opcode, read, predicate, bool(negated), line, self.place)
        )  # fmt: skip

    # ---- names
    # ---------------------------------------------------------------------------------------

    def _registers(self, match: re.Match) -> None:
        if self.function is None:
            raise self.error("a register is declared outside of a function")
        type, _, names = match["reg"].strip().removeprefix(".").partition(" ")
        type, _, more = type.partition("\t")
        if not re.fullmatch(r"pred|[bsuf](8|16|32|64|128)|(bf16|f16|tf32)(x2)?", type):
            raise self.error(f"registers of type .{type} are not known")
        self.scope.operands = {}  # a name may have had another meaning before
        for name in (more + names).split(","):
            one = RANGE.match(name.strip())
            if not one:
                raise self.error(f"{name.strip()!r} is not the name of a register")
            if one[2]:
                self.scope.ranges[one[1]] = (int(one[2]), type)
            else:
                self._declare(self.scope, one[1], type)

    def _label(self, match: re.Match) -> None:
        if self.function is not None:
            self.scope.labels[match["label"]] = len(self.function.instructions)
            self.last_label = match["label"]

    def _targets(self, match: re.Match) -> None:
        """Keep the list of a label: `list: .branchtargets a, b;`."""
        self.branch_targets[self.last_label] = [name.strip() for name in match["targets"].split(",")]

    def _branch_by_index(self, operands: str, line: int) -> None:
        """Add comparisons and branches for brx.idx, to the targets of the list that it names.

        An index beyond the list is undefined, so the last target needs no comparison.
        """
        index, _, name = (part.strip() for part in operands.partition(","))
        *others, last = self.branch_targets[name]
        for number, target in enumerate(others):
            taken = f"%brx.{len(self.function.instructions)}"
            self._declare(self.scope, taken, "pred")
            predicate = self._operand(taken)
            compared = (predicate, self._operand(index), self._operand(str(number)))
            self.function.instructions.append(Instruction("setp.eq.u32", compared, None, False, line, self.place))
            self._branch(target, line, predicate)
        self._branch(last, line)

    def _branch(self, target: str, line: int, predicate: Register | None = None) -> None:
        label = Label(target)
        self.scope.pending.append((label, line))
        self.function.instructions.append(Instruction("bra", (label,), predicate, False, line, self.place))

    def _open(self, match: re.Match) -> None:
        if self.function is None:
            raise self.error("a block is outside of a function")
        self.scope = Scope(self.scope)

    def _close(self, match: re.Match) -> None:
        if self.function is None:
            raise self.error("an unmatched closing brace")
        closed, self.scope = self.scope, self.scope.outer
        for label, line in closed.pending:
            if label.name in closed.labels:
                label.index = closed.labels[label.name]
            elif self.scope.outer is None:
                raise self.error(f"there is no label {label.name!r} in {self.function.name}", line)
            else:
                self.scope.pending.append((label, line))
        if self.scope.outer is None:
            self.function = None

    # ---- directives
    # ----------------------------------------------------------------------------------

    def _loc(self, match: re.Match) -> None:
        key = match["file"], match["row"], match["loc"]
        known = self.known_places.get(key)
        if known is None:
            place = Place(int(match["file"]), int(match["row"]), self._within(match["loc"]))
            column = re.match(r"\s*(\d+)", match["loc"])
            self.columns[place.file, place.line, int(column[1]) if column else 0] = place
            known = self.known_places[key] = len(self.module.places)
            self.module.places.append(place)
        self.place = known

    def _within(self, rest: str) -> tuple[tuple[int | str, int], ...]:
        if match := WITHIN.search(rest):
            file, line, column = map(int, match.groups())
            outer = self.columns.get((file, line, column))
            return ((file, line), *(outer.within if outer else ()))
        if "@[" in rest:
            return tuple((file, int(line)) for file, line in AROUND.findall(rest.partition("@[")[2]))
        return ()

    def _file(self, match: re.Match) -> None:
        self.module.files[int(match["number"])] = re.sub(r"\\(.)", r"\1", match["path"])

    def _head(self, match: re.Match) -> None:
        what = match["what"].strip()
        if match["head"] == "version" and (number := re.match(r"(\d+)\.(\d+)", what)):
            self.module.version = int(number[1]), int(number[2])
        if match["head"] == "target":
            self.module.target = what.split(",")[0].strip()
        if match["head"] == "address_size" and what != "64":
            raise self.error(f".address_size is {what}, should be 64")

    def _function(self, match: re.Match) -> None:
        self.at = match.start("kind")
        header = HEADER.match(match["header"])
        if self.function is not None or not header:
            raise self.error(f".{match['kind']}{match['header'].rstrip()} cannot be read")
        function = Function(header["name"], match["kind"] == "entry", self.line_of(match.start("kind")))
        function.has_body = match["begin"] == "{"
        function.parameters = parameters(header["parameters"] or "", self.error)
        function.results = parameters((header["results"] or "").strip("()"), self.error)
        for name, sizes in re.findall(r"\.(\w+)((?:[ \t]+\d+(?:\s*,\s*\d+)*)?)", header["rest"]):
            function.directives[name] = tuple(map(int, re.findall(r"\d+", sizes)))
        if function.has_body or function.name not in self.module.functions:
            self.module.functions[function.name] = function
        if function.has_body:
            self.skip = self._body(match.end())
            self.bodies[function.name] = match.end(), self.skip

    def _variable(self, match: re.Match) -> None:
        self.at = match.start("space")
        extern = "extern" in match["linked"]
        holder = self.module if self.function is None else self.function
        for variable in variables(match["space"], match["declared"], extern, self.line_of(self.at), self.error):
            known = holder.variables.get(variable.name)
            if variable.space == "param" and known and known.size > variable.size:
                continue  # calls use the same names one after another: the largest serves all
            holder.variables[variable.name] = variable

    def _wrong(self, match: re.Match) -> None:
        self.at = match.start("wrong")
        raise self.error(f"{match['wrong'].strip()[:80]!r} cannot be read as PTX")


# Maps the last group of a match of STATEMENT to the kind of statement.
KINDS = {name: name for name in STATEMENT.groupindex} | {"operands": "opcode"}


def _without_comment(match: re.Match) -> str:
    text = match[0]
    if text[0] == '"':
        return text
    if text[1] == "/":
        return text if INLINED.match(text) else ""
    return " " + "\n" * text.count("\n")
