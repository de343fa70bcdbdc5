"""Findings have their form, name real laws, and are on the page. Known failures name findings."""

import re
import shlex

import pytest

from flash_attest.places import ROOMS
from flash_attest.properties.law import laws
from flash_attest.wild import page
from flash_attest.wild.findings import FIELDS, FindingError, findings, lines_of, read
from flash_attest.wild.packages import PACKAGES, SOURCES

PROOF = '''"""Out is twice what it should be.

number: 7
package: twice 1.0
law: out_matches_the_definition
case: seqlen_q=1
consequence: Models are wrong.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: out is off by 1.00
"""

import twice

assert twice.attention() == 1, "out is off by 1.00"
'''


@pytest.fixture
def proof(tmp_path):
    """proof(old, new) -> a file with the proof above, in which a text is replaced."""

    def written(old="", new="", name="twice_out.py"):
        path = tmp_path / name
        path.write_text(PROOF.replace(old, new) if old else PROOF)
        return path

    return written


def test_a_proof_is_read(proof):
    finding = read(proof())
    assert (finding.number, finding.package, finding.version) == (7, "twice", "1.0")
    assert finding.sentence == "Out is twice what it should be." and finding.laws == ["out_matches_the_definition"]
    assert finding.code.startswith("import twice") and finding.code.endswith('"out is off by 1.00"')


@pytest.mark.parametrize(("output", "shown"), [
    ("Traceback\nAssertionError: out is off by 0.97\n", True),
    ("AssertionError: out is off by nan\n\n", True),
    ("AssertionError: out is off by 1.00\nterminate called without an active exception\n", True),
    ("AssertionError: out is off by 0.97, as before\n", True),
    ("AssertionError: dq is off by 1.00\n", False),
    ("AssertionError: out is off\n", False),
    ("AssertionError: out is off by 1.00\nsomething else\n", False),
    ("", False),
])  # fmt: skip
def test_a_proof_shows_the_words_of_its_finding_with_any_numbers(proof, output, shown):
    assert read(proof()).is_shown_by(output) is shown


@pytest.mark.parametrize(("gpu", "needed"), [
    ("needed", True), ("needed for 4 GiB; this proof was not run yet", True), ("not tried", False),
])  # fmt: skip
def test_a_proof_that_needs_a_gpu_may_say_for_what(proof, gpu, needed):
    assert read(proof("gpu: not tried", f"gpu: {gpu}")).needs_gpu is needed


@pytest.mark.parametrize(("old", "new", "words"), [
    ("law: out_matches_the_definition\n", "", f"its fields should be {', '.join(FIELDS)}"),
    ("not reported", "unknown", "status is 'unknown': should begin with not reported, reported"),
    ("gpu: not tried", "gpu: no", "gpu is 'no': should begin with not tried"),
    ("2026-11-26", "yesterday", "found is yesterday: should be a date"),
    ("number: 7", "number: seven", "number is seven: should be a number"),
    ("twice 1.0", "twice", "package should be a name and a version"),
    ("seqlen_q=1", "", "case is empty"),
    ("import twice\n", "import twice\n" * 10, "has 11 lines of code, 10 allowed"),
])  # fmt: skip
def test_a_file_that_is_no_finding_is_named(proof, old, new, words):
    with pytest.raises(FindingError, match=re.escape(f"twice_out.py: {words}")):
        read(proof(old, new))


def test_the_lines_of_a_kernel_do_not_count(proof):
    kernel = "@jit\ndef kernel():\n" + "    pass\n" * 20
    assert lines_of(read(proof("import twice\n", f"import twice\n\n\n{kernel}")).code) < 10


def test_two_findings_have_two_numbers(proof, tmp_path):
    proof(), proof(name="twice_again.py")
    with pytest.raises(FindingError, match=r"twice_\w+.py and twice_\w+.py: both are number 7"):
        findings(tmp_path)


def test_findings_are_numbered_from_1_and_name_packages_and_laws():
    known = {law.removeprefix("test_") for law in laws()} | {"contract_is_kept"}
    found = findings()
    assert [finding.number for finding in found] == list(range(1, len(found) + 1))
    assert {law for finding in found for law in finding.laws} <= known
    assert all(finding.sentence.endswith(".") and finding.consequence.endswith(".") for finding in found)


def test_known_failures_name_findings_of_their_package():
    numbers = {}
    for finding in findings():
        numbers.setdefault(finding.package, set()).add(finding.number)
    wrong = {
        (key, number)
        for key, package in (*PACKAGES.items(), *SOURCES.items())
        for number in re.findall(r"finding #(\d+)", (ROOMS / "wild" / f"{key}.py").read_text())
        if int(number) not in numbers.get(package.title, ())
    }
    assert wrong == set()


def test_the_page_of_findings_is_current():
    text = page.PAGE.read_text()
    assert text == page.page(text), "python -m flash_attest.wild.page"


def test_a_shell_reads_the_versions_of_the_command_that_installs_a_package():
    line = next(line for line in page.page("").splitlines() if "pip install --no-deps flash-attn-4" in line)
    words = shlex.shlex(line.split("`")[1], posix=True, punctuation_chars=True)
    words.whitespace_split = True
    assert set(PACKAGES["flash_attn_4"].also) <= set(words)
