"""Checks the prose of the repository: python tests/prose.py [FILE OR FOLDER ...]

A function's docstring begins with a verb ("Return", "Returns"), begins with notation
("q (b, h, s, d) -> ..."), or is a sentence with a subject and a verb. Docstrings of modules,
classes, properties, context managers, fixtures and tests may be noun phrases, but no docstring
is a clause without its sentence ("Where the kernel is compiled.", "What a call returns."), but for
properties' "Whether ..." and "How many ...".

RETIRED has the words that no text contains. If a docstring begins with a verb that the check does
not know, add it to VERBS. ruff checks the width of prose and the form of docstrings (W505, D4).
"""

import ast
import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = {".py", ".md", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".sql", ".j2", ".toml", ".ini", ".yml"}

# A regular expression, in which a space also matches a line break; and what to write instead.
RETIRED = {
    r"otherwise than": "name the difference: changed, other than, differs from",
    r"for want of": "because there is no ..., without",
    r"so many": "the number, this many, n",
    r"whoever": "the caller, anyone who",
    r"hangs? on": "depends on",
    r"(is|are) no multiples? of": "is not a multiple of",
    r"what (is|are|was|were) not[\w ]*, (is|are|was|were)": "anything that ... is",
    r"such as with": "for example with",
    r"(tries|times|steps) or fewer": "at most n tries",
    r"(?<!so )that of": "repeat the noun",
    r"begun again": "restarted",
    r"(?<!are )(?<!is )(?<!be )all the same(?=[.,;:)])": "nevertheless, still",
    r"(is|are|was|were|be) put back": "restored",
    r"in (its|their|his|her) turn": "then, one after another",
    r"as well(?= [^.;]{0,60}as well)": "and, both ... and",
    r"where it is not": "elsewhere, or say the condition",
    r"of one's own": "own",
    r"looked at together": "compared, checked together",
    r"the ones? to look at": "look at ...",
    r"thereby": "so",
    r"hence": "so",
    r"wherefore": "so, which is why",
    r"(whence|thereof|therein|wherein|whereof|wherewith|herein)": "use a plain clause",
    r"anew": "again",
    r"lest": "so that ... not",
    r"whilst": "while",
}


def words(text: str) -> set[str]:
    """Return the words of a text."""
    return set(text.split())


# Verbs that begin a docstring, in the imperative; the third person follows by rule.
VERBS = words(
    """
    abbreviate abort accept access accumulate activate add adjust adopt advance aggregate align
    allocate allow amend annotate announce answer append apply approximate archive arm arrange ask
    assemble assert assign attach attest average avoid await balance batch be begin bind bisect
    blend block boot bound break bring broadcast build bump bundle bypass cache calculate calibrate
    call cancel cap capture carry cast catch center change check choose claim clamp classify clean
    clear clip clone close coalesce coerce collect color combine come commit compare compensate
    compile complain complete compose compress compute concatenate condense configure confirm
    connect consider construct consume contain continue convert convolve copy correct corrupt count
    cover create cut deactivate deal debug decide declare decode decompose decorate decrease deduce
    deduplicate defer define delay delete deliver demand deny deploy dereference derive descend
    describe deselect deserialise detach detect determine detour diagnose die differ differentiate
    disable disassemble discard disconnect discount discover dismiss dispatch display dispose
    distribute divide do double drain draw drive drop dump edit eliminate embed emit empty emulate
    enable encode encounter encrypt end endure enforce enlarge enqueue enrich ensure enter enumerate
    equip erase escape establish estimate evaluate evict examine exceed exchange exclude execute
    exempt exercise exhaust exit expand expect expire explain explore export expose express extend
    extract extrapolate fail fake fall favour feed fetch fill filter find finish fit fix flag
    flatten flip flood flush fold follow force forget fork form format forward free freeze fuse
    gather generate get give glue go group grow guarantee guard guess halt halve hand handle hash
    have help hide hold honour hunt identify ignore implement import impose include increase indent
    index infer inform inherit initialise initialize inject inline insert inspect install intercept
    interfere interleave interpolate interpret interrupt introduce invalidate invent invert invoke
    isolate issue iterate join judge justify keep kill know label launch lay leak leave lend let lie
    lift limit link list listen load locate lock log look loop lose lower make manage manipulate map
    mark mask match materialise mean measure meet merge migrate mimic minimise minimize mirror miss
    mix mock model modify monitor mount move multiply mutate mute name narrow need nest normalise
    normalize note notice nudge obey observe obtain occupy offer omit open operate order outline
    overlap override overwrite own pack pad paint parallelise parametrize parse partition pass patch
    pause pay peek perform permit permute persist perturb pick pickle pin ping place plan plant play
    plot point poison poll pop populate possess precede precompile predict prefer prefix preload
    prepare present preserve pretend prevent print probe process produce profile promise propagate
    prove provide prune publish pull purge push put quantise quantize quarantine query quit quote
    raise rank reach read reap rebase rebind rebuild recall receive reckon recognise recompile
    reconstruct record recover recreate recycle redefine redirect redo reduce reexport refer reflect
    refresh refuse register reject relate relaunch relax release reload relocate remain remember
    remove rename render reopen repack repair repartition repeat rephrase replace replay reply
    report represent request requeue require reraise rerun rescale resend reserve reset reshape
    reside resize resolve respect restart restore restrict resume rethrow retrieve retry return
    reuse reveal reverse revert review revise revoke rewind rewrap rewrite rise roll rotate round
    route ruin run sample sanitise satisfy save say scale scan scatter schedule score seal search
    see seek select send separate serialise serialize serve set settle share shed shield shift
    shorten show showcase shrink shuffle shut sign signal silence simulate sink sit size skew skip
    sleep slice smooth smuggle snap snapshot solve sort spare spawn specialise specify spell spend
    spill spin split spoil spread squeeze stack stall stamp stand start state stay step stitch stop
    store stream stretch strip stub substitute subtract succeed suffix suggest suit sum summarise
    summarize supply support suppress surround survive suspend swallow swamp swap sweep switch
    synchronise synchronize tabulate tag take tally tamper teach tell tempt terminate test think
    throw tie tighten tile time toggle toss touch trace track transcribe transfer transform
    translate transmit transpose travel traverse treat trigger trim trip truncate trust try tune
    turn type unblock underline understand undo unfold unify uninstall unload unlock unmap unpack
    unpatch unpickle unregister unroll unset untangle untie unwrap upcast update upload use validate
    vanish vary vectorise verify vet view visit vote wait wake walk wander warm warn watch weaken
    weave weigh widen win wipe withdraw wonder work worry wrap wreck write yield zero zip
    """
)
# Nouns more often than verbs.
NOT_THIRD_PERSON = words(
    "forms heads indices links means others places ranks shares sizes steps sums tiles times types views"
)
ADVERBS = words("also always first lazily never only then")

# A docstring that begins with one of these is never a sentence.
NOMINAL = words("how otherwise what whatever whether which whichever who whoever whom whose why")
# One that begins with one of these is a sentence if a main clause follows after a comma.
ADVERBIAL = words("although as because if since so though unless until when whenever where wherever while")
# One that begins with one of these is a sentence if it has a main verb.
PREPOSITIONS = words(
    "after around at before below beside between by during except for from in inside instead like "
    "nor of on through to under with within without"
)
CLAUSES = NOMINAL | ADVERBIAL | {"that", "than", "before", "after"}
FINITE = words(
    "am are be becomes belongs can cannot comes contains costs could depends did differs do does "
    "exists gets gives goes had has have holds is keeps knows lies makes may might must needs "
    "raises reads remains returns says sees shall should stays takes tells wants was were will would"
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, *FUNCTIONS)
NO_PLURALS = words("as bias class does its is less minus plus process's this thus us was")
OBJECTS = words("a all an another each every it its no nothing one other that the their them what")


def third_person(word: str) -> str:
    """Return the verb of which `word` is the third person, or ""."""
    for ending, base in (("ies", "y"), ("es", ""), ("s", "")):
        if word.endswith(ending) and word.removesuffix(ending) + base in VERBS:
            return word.removesuffix(ending) + base
    return ""


def begins_with_verb(text: str) -> bool:
    """Return whether the text begins as "Return the ..." or "Returns the ..." do.

    Many verbs are nouns, too: "Copy of x" and "Names, separated by commas" begin with none.
    """
    tokens = [*re.findall(r"[\w'-]+|[^\w\s]", text.lower())[:3], "", ""]
    if tokens[0] in ADVERBS:
        tokens.pop(0)
    word, following = tokens[0].removesuffix("n't"), tokens[1]
    if following == "of" or word in NOT_THIRD_PERSON:
        return False
    follows_noun = following in {",", ":", ".", ";", "by", "that", "which", ""}
    return word in VERBS or (bool(third_person(word)) and not follows_noun)


def begins_with_notation(text: str) -> bool:
    """Return whether the text begins with a formula, a shape, a quotation or a name of the code."""
    if re.match(r"-> (an?|how|the|what|whether|why)\b", text):
        return False
    return bool(re.match(r"[^A-Z]|[B-Z](?![\w'])|A (?=[A-Z(=])|[A-Z]\w*[.(]\w", text))


def has_main_verb(text: str) -> bool:
    """Return whether a clause that is not subordinate has a finite verb."""
    for clause in text.split(", "):
        tokens = re.findall(r"[\w']+", clause.lower())
        if not tokens or tokens[0] in NOMINAL | ADVERBIAL:
            continue
        end = next((i for i, token in enumerate(tokens) if i > 0 and token in CLAUSES), len(tokens))
        if any(token.removesuffix("n't") in FINITE for token in tokens[:end]):
            return True
        for before, token, following in zip(tokens, tokens[1:end], [*tokens[2:], ""], strict=False):
            # "it ends the process", "processes end"
            is_plural = before.endswith("s") and before not in NO_PLURALS
            if (third_person(token) and following in OBJECTS) or (is_plural and token in VERBS):
                return True
    return False


def mistake_in(docstring: str, node: ast.AST) -> str:
    """Return what is wrong with the first sentence of the node's docstring, or ""."""
    text = " ".join(docstring.split("\n\n")[0].split())
    sentence, end, *_ = [*re.split(r"([.?!:;])(?: |$)", text), ""]
    if not text or end == "?" or begins_with_notation(text):
        return ""
    first = re.search(r"[\w']+", text.lower())[0]
    if first in NOMINAL:
        natural = first in {"whether", "how"} and is_property(node)
        return "" if natural else "a clause without its sentence"
    if first in ADVERBIAL | PREPOSITIONS:
        # "If x, return y" has its verb after a comma.
        is_sentence = has_main_verb(sentence) or any(map(begins_with_verb, sentence.split(", ")[1:]))
        return "" if is_sentence else "a clause without its sentence"
    if may_be_noun_phrase(node) or begins_with_verb(text) or has_main_verb(sentence):
        return ""
    return "a function's docstring without a verb"


def decorators(node: ast.AST) -> str:
    """Return the source of a function's decorators."""
    return " ".join(ast.unparse(decorator) for decorator in node.decorator_list)


def is_property(node: ast.AST) -> bool:
    """Return whether the node is a property, cached or not."""
    return isinstance(node, FUNCTIONS) and "property" in decorators(node)


def may_be_noun_phrase(node: ast.AST) -> bool:
    """Return whether the docstring of this node describes a thing."""
    if not isinstance(node, FUNCTIONS):
        return True
    return node.name.startswith("test_") or bool(re.search(r"property|fixture|contextmanager", decorators(node)))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node and all statements in it, without their expressions, which are most nodes."""
    yield node
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, field, None)
        for statement in inner if isinstance(inner, list) else ():
            yield from statements(statement)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, mistake) for each docstring of a Python file."""
    for node in statements(ast.parse(source)):
        docstring = isinstance(node, WITH_DOCSTRINGS) and ast.get_docstring(node)
        mistake = docstring and mistake_in(docstring, node)
        if mistake:
            yield node.body[0].lineno, f"{mistake}: {docstring.splitlines()[0]}"


# Between two words: spaces, or the end of a line of prose, of a comment, or of a string that
# continues on the next line.
GAP = r"""(?:[ ]+|[ ]*["']?\s*\n\s*(?:\#|//|\*|>|rf?["']|f?["'])?[ ]*)"""


def phrase(pattern: str) -> str:
    """Return a pattern of RETIRED with GAP for each space outside lookbehinds and []."""
    parts = re.split(r"(\(\?<[^)]*\)|\[[^]]*\])", pattern)
    return "".join(p if p.startswith(("(?<", "[")) else p.replace(" ", GAP) for p in parts)


PHRASES = [(re.compile(phrase(pattern), re.IGNORECASE), instead) for pattern, instead in RETIRED.items()]
ANY_PHRASE = re.compile(rf"\b(?:{'|'.join(map(phrase, RETIRED))})\b", re.IGNORECASE)


def blank(found: re.Match) -> str:
    """Return the lines of a match without their text, so that later lines keep their numbers."""
    return "\n" * found[0].count("\n") + " "


def retired(text: str, markdown: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line, mistake) for each retired phrase. Code in Markdown is not prose."""
    if markdown:
        text = re.sub(r"^( *)(```|~~~).*?^\1\2 *$|`[^`\n]+`", blank, text, flags=re.MULTILINE | re.DOTALL)
    for found in ANY_PHRASE.finditer(text):
        tokens = re.findall(r"[\w']+", found[0])
        instead = next(value for pattern, value in PHRASES if pattern.match(text, found.start()))
        line = text.count("\n", 0, found.start()) + 1
        yield line, f'"{" ".join(tokens)}" is retired, write: {instead}'


def check(path: Path) -> list[str]:
    """Return the mistakes of a file, one a line."""
    text = path.read_text(encoding="utf-8")
    mistakes = list(retired(text, path.suffix == ".md"))
    if path.suffix == ".py":
        with contextlib.suppress(SyntaxError):  # a broken file is an example of the tests
            mistakes += docstrings(text)
    return [f"{path}:{line}: {mistake}" for line, mistake in sorted(mistakes)]


def main(arguments: list[str]) -> int:
    """Print the mistakes of the files, by default of all that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *arguments]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    paths = [
        path
        for path in map(Path, listed.splitlines())
        if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink()
    ]
    this = Path(__file__).resolve()  # which has the retired words
    mistakes = [line for path in paths if path.resolve() != this for line in check(path)]
    print(*mistakes, f"prose of {len(paths)} files: {len(mistakes)} mistakes", sep="\n")
    return int(bool(mistakes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
