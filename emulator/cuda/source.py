"""Rewrites an author's .cu file to C++ that g++ compiles: it is preprocessed with the shim, then a
few tokens are replaced.

Launches (<<<>>>), shared memory and kernels are replaced, because C++ does not have them. include/
provides everything else. Only tokens of the author's lines change, no line moves, and the line
markers stay, so messages and debug information refer to the author's file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from flash_attest.emulator.errors import Refused

TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<text>(?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\((?s:.*?)\)(?P=mark)"
               | (?:u8|[uUL])?"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])+')
      | (?P<name>[A-Za-z_$][\w$]*)
      | (?P<number>\.?\d(?:'?[\w.]|[eEpP][+-])*)
      | (?P<mark3><<<|>>>)
      | (?P<other>::|->|.)""",
    re.VERBOSE | re.DOTALL,
)
MARKER = re.compile(r'#(?:line)? (\d+) "((?:\\.|[^"\\])*)"([ \d]*)$')

# Features that a CPU cannot emulate, by name, each with the reason.
REFUSED = {
    "asm": "inline PTX",
    "__asm__": "inline PTX",
    "__asm": "inline PTX",
    "__activemask": "__activemask(): which lanes run together is the hardware's choice; pass an explicit mask",
    "__cluster_dims__": "clusters of blocks (distributed shared memory)",
    "__nvvm_get_smem_pointer": "a numeric address in shared memory, which only inline PTX uses",
    "__cvta_generic_to_shared": "a numeric address in shared memory, which only inline PTX uses",
}

BARRIERS = ("__syncthreads", "__syncthreads_and", "__syncthreads_or", "__syncthreads_count", "__barrier_sync")


@dataclass
class Token:
    """A token with its file and line; its text may be replaced."""

    text: str
    kind: str
    file: str
    line: int


def rewrite(preprocessed: str, shim: str) -> tuple[str, list[str]]:
    """Rewrite the output of g++ -E: the author's kernels, launches and shared memory become C++.

    Returns the text and the names of the kernels. `shim` is the folder of the shim's headers.
    Raises Refused, with file and line, for anything that is not covered.
    """
    tokens = list(_tokens(preprocessed, shim))
    own = [token for token in tokens if token.kind != "foreign" and token.kind != "space"]
    kernels, templates = _kernels(own)
    _refuse(own)
    _mark_returns(own)
    _number_barriers(own)
    _share(own)
    _launch(own, templates)
    return "".join(token.text for token in tokens), kernels


def _tokens(preprocessed: str, shim: str) -> Iterator[Token]:
    """Yield the tokens of the author's lines; text from system headers and the shim stays in one
    piece.
    """
    for foreign, file, line, text in _stretches(preprocessed, shim):
        if foreign:
            yield Token(text, "foreign", file, line)
            continue
        for match in TOKEN.finditer(text):
            yield Token(match.group(), match.lastgroup if match.lastgroup != "mark" else "text", file, line)
            line += match.group().count("\n")


def _stretches(preprocessed: str, shim: str) -> Iterator[tuple[bool, str, int, str]]:
    """Yield each part between two line markers: (whether it is from a system header or the shim,
    file, first line, text).
    """
    foreign, file, line, lines = True, "", 1, []
    for text in preprocessed.splitlines(keepends=True):
        marker = MARKER.match(text) if text.startswith("#") else None
        if marker is None:
            lines.append(text)
            continue
        if lines:
            yield foreign, file, line, "".join(lines)
        yield True, "", 0, text
        line, file, flags = int(marker[1]), marker[2].replace("\\\\", "\\").replace('\\"', '"'), marker[3].split()
        foreign, lines = "3" in flags or file.startswith(("<", shim)), []
    if lines:
        yield foreign, file, line, "".join(lines)


def _refuse(own: list[Token]) -> None:
    for token in own:
        if token.kind == "name" and token.text in REFUSED:
            raise Refused(REFUSED[token.text], token.file, token.line, by_nvcc=True)


def _kernels(own: list[Token]) -> tuple[list[str], set[str]]:
    """Return the names of all kernels, and the names of the templates among them.

    If a template is launched without <...>, its arguments are deduced.
    """
    names, templates = set(), set()
    for i, token in enumerate(own):
        if token.text != "__global__" or (name := _declared_name(own, i)) is None:
            continue
        names.add(own[name].text)
        before = i - 1
        while before >= 0 and own[before].text in ("static", "inline", "extern", "void"):
            before -= 1
        if before >= 0 and own[before].text == ">":
            templates.add(own[name].text)
    return sorted(names), templates


def _declared_name(own: list[Token], at: int) -> int | None:
    """Return the position of the kernel's name after __global__, which is the name before the
    parameter list.
    """
    i = at + 1
    while i < len(own) and own[i].text not in ";{":
        if own[i].text == "(" and own[i - 1].kind == "name" and own[i - 1].text not in ("__attribute__", "alignas"):
            return i - 1
        i = _close(own, i) if own[i].text == "(" else i + 1
    return None


def _close(own: list[Token], at: int) -> int:
    """Return the position after the bracket that closes the one at `at`."""
    opening, depth = own[at].text, 0
    closing = {"(": ")", "{": "}", "[": "]"}[opening]
    for i in range(at, len(own)):
        depth += (own[i].text == opening) - (own[i].text == closing)
        if depth == 0:
            return i + 1
    return len(own)


def _mark_returns(own: list[Token]) -> None:
    """Make each `return;` of device code call the runtime, so that a thread that returns does not
    count as missing at a barrier, and remove the qualifiers.

    All calls in a kernel are inlined, because nvcc inlines them too, and because g++ does not
    instrument the read of an argument that is a struct in memory.
    """
    for i, token in enumerate(own):
        if token.text not in ("__global__", "__device__"):
            continue
        name = _declared_name(own, i)
        token.text = "__attribute__((flatten)) " if token.text == "__global__" else ""
        if name is None or own[name - 1].text in ("", ")", "explicit", "inline", "constexpr"):
            continue  # a variable or a constructor
        body = _close(own, name + 1)
        if body >= len(own) or own[body].text != "{":
            continue  # a declaration
        for j in range(body, _close(own, body) - 1):
            if own[j].text == "return" and own[j + 1].text == ";":
                own[j].text = "return ::emulator::returned()"


def _number_barriers(own: list[Token]) -> None:
    """Pass each barrier its number in the file, which tells those of two branches on one line
    apart, also if a macro expands to them. g++ may merge two calls with equal arguments.
    """
    for number, i in enumerate(i for i, token in enumerate(own) if token.text in BARRIERS):
        if i + 1 < len(own) and own[i + 1].text == "(":
            close = _close(own, i + 1) - 1
            comma = "" if close == i + 2 else ", "
            own[close].text = f"{comma}__builtin_FILE(), __builtin_LINE(), {number + 1})"


def _share(own: list[Token]) -> None:
    """Put __shared__ variables into the TLS block of the library; `extern` ones refer to the
    dynamic shared memory.
    """
    for i, token in enumerate(own):
        if token.text != "__shared__":
            continue
        start, end = i, i
        while start > 0 and own[start - 1].text not in (";", "{", "}", ")", ":"):
            start -= 1
        while end < len(own) and own[end].text not in (";", "{", "="):
            end += 1
        words = [own[j].text for j in range(start, end)]
        if "extern" in words:
            _share_dynamic(own[start:end])
        else:
            # This keeps variables that no code writes, because reading one is a mistake to observe.
            used = "__attribute__((used)) "
            token.text = used + ("thread_local" if "static" in words else "static thread_local")
            if own[i + 1].text == "alignas":  # C++ requires alignas first
                close = _close(own, i + 2)
                own[start].text = f"{_joined(own[i + 1 : close])} {own[start].text}"
                for cut in own[i + 1 : close]:
                    cut.text = ""


def _share_dynamic(declaration: list[Token]) -> None:
    """Rewrite `extern __shared__ T name[]` to `T (&name)[] = <the dynamic shared memory>`."""
    declarator: list[Token] = []
    i = 0
    while i < len(declaration):
        token = declaration[i]
        if token.text in ("__attribute__", "alignas"):
            i = _close(declaration, i + 1)
            continue
        if token.text not in ("extern", "__shared__"):
            declarator.append(token)
        i += 1
    if len(declarator) < 4 or [token.text for token in declarator[-2:]] != ["[", "]"]:
        where = declaration[0]
        raise Refused(
            "extern __shared__ should be an array without a size: extern __shared__ float tile[];",
            where.file,
            where.line,
        )
    base, name = _joined(declarator[:-3]), declarator[-3].text
    for token in declaration:
        token.text = ""
    declaration[0].text = f"{base} (&{name})[] = reinterpret_cast<{base} (&)[]>(*::emulator_dynamic_shared)"


def _launch(own: list[Token], templates: set[str]) -> None:
    """Rewrite `kernel<<<grid, block>>>(x)` to `bind(Config(grid, block), "kernel", kernel)(x)`."""
    for i, token in enumerate(own):
        if token.text != "<<<":
            continue
        start = _kernel_start(own, i)
        end = next((j for j in range(i, len(own)) if own[j].text == ">>>"), None)
        if end is None or start == i:
            raise Refused("a launch should read kernel<<<grid, block>>>(arguments)", token.file, token.line)
        kernel = _joined(own[start:i])
        quoted = kernel.replace("\\", "\\\\").replace('"', '\\"')
        deduced = own[i - 1].text in templates
        bind = "bind_template" if deduced else "bind"
        call = f"[&](auto... arguments) -> decltype({kernel}(arguments...)) {{ return {kernel}(arguments...); }}"
        function = call if deduced else f"{kernel}, {call}"
        for t in own[start:i]:
            t.text = ""
        token.text = f"::emulator::{bind}(::emulator::Config("
        own[end].text = f'), "{quoted}", {function})'


def _kernel_start(own: list[Token], at: int) -> int:
    """Return the start of the expression before <<<: name, ns::name, name<...>."""
    i = at
    if i > 0 and own[i - 1].text == ")":
        return _open(own, i - 1)  # (kernel)<<<...>>>
    if i > 0 and own[i - 1].text in (">", ">>>"):
        depth, i = 0, i - 1
        while i >= 0:
            depth += {">": 1, ">>>": 3, "<": -1, "<<<": -3}.get(own[i].text, 0)
            if own[i].text == ")":
                i = _open(own, i)
            if depth == 0:
                break
            i -= 1
    if i > 0 and own[i - 1].kind == "name":
        i -= 1
    while i > 1 and own[i - 1].text == "::":
        i -= 2 if own[i - 2].kind == "name" else 1
    return i


def _joined(tokens: list[Token]) -> str:
    """Join the text of tokens, with a space only between two words."""
    text = ""
    for token in tokens:
        text += (" " if text[-1:].isalnum() and token.text[:1].isalnum() else "") + token.text
    return text


def _open(own: list[Token], at: int) -> int:
    """Return the position of the bracket that the one at `at` closes."""
    depth = 0
    for i in range(at, -1, -1):
        depth += (own[i].text == ")") - (own[i].text == "(")
        if depth == 0:
            return i
    return 0
