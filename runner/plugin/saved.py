"""Reads the results.json of a report, and the journal beside it if the run was killed.

Entries that are not as a run writes them, for example because the disk was damaged, are left out
and named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import WORST_FIRST, Result

RESULTS = "results.json"
FORMAT = 2  # the version of results.json; version 1 had none of the fields below
# Fields that earlier reports lack.
NEW = {
    "clue": "", "tried": [], "wrong": None, "declared_at": "", "found_at": "", "same_as": "", "beside_case": "",
    "matches": [],
}  # fmt: skip
JOURNAL = "since-results.jsonl"  # verdicts that are not yet in results.json, one on each line
EMPTY = Result("", "", "", "").as_dict()
NAMES = {str: "a text", int: "a whole number", float: "a number", dict: "an object", list: "a list"}
WORDS = ("inf", "nan")  # for numbers that JSON lacks


class NoReport(ValueError):
    """There is no results.json, or it was written by something else or by an incompatible
    version, or it is damaged.
    """


def read(report: str | Path) -> dict:
    """Read a report, given by its folder or its results.json. Raises NoReport, also for a damaged
    entry. A line that was being written when the run was killed is left out.
    """
    record, damaged = sound(report)
    if whole := [words for words, is_cut in damaged if not is_cut]:
        raise NoReport(whole[0])
    return record


def sound(report: str | Path) -> tuple[dict, list[tuple[str, bool]]]:
    """Read the sound entries of a report.

    Returns the record, and for each other entry what is wrong with it, and whether it is the last
    line of the journal and cut. Raises NoReport if nothing can be read.
    """
    given = Path(report)
    file = given if given.is_file() else given / RESULTS
    if not file.exists():
        raise NoReport(f"{given} has no {RESULTS}")
    record = _loaded(file)
    if problem := _problem_with(record):
        raise NoReport(f"{file} should be the results.json of a run: {problem}")
    if (newer := record.get("format", 1)) > FORMAT:
        raise NoReport(f"{file} has format {newer}, which a newer flash-attest wrote: this one reads up to {FORMAT}")
    results = record["results"]
    entries, damaged = _entries((f"{file}: result {n}", result) for n, result in enumerate(results))
    in_journal, more = _journal(file.with_name(JOURNAL))
    record["results"] = [NEW | result for result in (in_journal | entries).values()]
    record["results"].sort(key=lambda result: _key(result) not in entries)
    if "decided" in record["environment"]:
        record["environment"]["decided"] = len(record["results"])
    return record, damaged + more


def _loaded(file: Path) -> object:
    """Return what a file has as JSON. Raises NoReport."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise NoReport(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NoReport(f"{file} should be the results.json of a run: it is no text in UTF-8") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        problem = "it is no JSON" if text.strip() else "it is empty"
        raise NoReport(f"{file} should be the results.json of a run: {problem}") from None


def _problem_with(record: object) -> str:
    """Return what a results.json lacks that every run writes; "" if nothing."""
    if not isinstance(record, dict):
        return f"it should hold an object, not {json.dumps(record)[:40]}"
    environment = record.get("environment")
    if not isinstance(environment, dict) or not isinstance(environment.get("versions"), dict):
        return "it should have an environment with versions"
    if not isinstance(record.get("results"), list):
        return "it should have a list of results"
    return "" if isinstance(record.get("format", 1), int) else "its format should be a whole number"


def _entries(results: Iterable[tuple[str, object]]) -> tuple[dict[tuple[str, str], dict], list[tuple[str, bool]]]:
    """Return the sound results by law, and what is wrong with the others. results: where each
    stands, and what was read there.
    """
    entries: dict[tuple[str, str], dict] = {}
    damaged, twice = [], set()
    for where, result in results:
        if mistake := mistake_in(result):
            damaged.append((f"{where} is damaged: {mistake}", False))
        elif entries.setdefault(_key(result), result) != result:
            twice.add(_key(result))
            damaged.append((f"{where} has another verdict on {_key(result)[0]}[{_key(result)[1]}]", False))
    return {key: result for key, result in entries.items() if key not in twice}, damaged


def _key(result: dict) -> tuple[str, str]:
    return result["law"], result["impl"]


def _journal(file: Path) -> tuple[dict[tuple[str, str], dict], list[tuple[str, bool]]]:
    """Return the results of a journal, and for each line that is none what is wrong with it.

    The last line may be cut: it was being written when the run was killed or the disk was full.
    """
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError:
        return {}, []
    results: list[tuple[str, object]] = []
    unread: list[tuple[str, bool]] = []
    for number, line in enumerate(lines, 1):
        where = f"{file}, line {number}"
        try:
            results += [(where, json.loads(line))] if line else []
        except (ValueError, RecursionError):
            is_cut = number == len(lines) and b"\0" not in line
            unread.append((f"{where} is {'cut' if is_cut else 'no JSON'}", is_cut))
    entries, damaged = _entries(results)
    return entries, unread + damaged


def mistake_in(result: object) -> str:
    """Say what is wrong with an entry of results.json; "" if nothing is.

    Fields may be missing, because earlier versions did not have all of them.
    """
    if not isinstance(result, dict):
        return f"it should be an object, is {json.dumps(result)[:40]}"
    for name in ("impl", "chapter", "law", "verdict"):
        if not isinstance(result.get(name), str):
            return f"{name} should be a text, is {json.dumps(result.get(name))[:40]}"
    for name, value in result.items():
        if name in EMPTY and not _fits(value, EMPTY[name]) and not (name == "wrong" and isinstance(value, dict)):
            return f"{name} should be {NAMES.get(type(EMPTY[name]), 'an object')}, is {json.dumps(value)[:40]}"
    if result["verdict"] not in WORST_FIRST:
        return f"verdict should be one of {', '.join(WORST_FIRST)}, is {result['verdict']!r}"
    if result.get("why") and result["why"] not in {why.value for why in Reason}:
        return f"why should be a kind of reason, is {result['why']!r}"
    if wrong := [each for each in result.get("tried", []) if not isinstance(each, list) or len(each) != 4]:
        return f"an entry of tried should have four numbers, is {json.dumps(wrong[0])[:40]}"
    numbers = [*result.get("worst_z", {}).values(), *(z for *_, z in result.get("tried", []) if z is not None)]
    if wrong := [n for n in numbers if not isinstance(n, (int, float)) and n not in WORDS]:
        return f"a z should be a number, is {json.dumps(wrong[0])[:40]}"
    return ""


def _fits(value: object, example: object) -> bool:
    """Return whether a value has the type of the example."""
    if isinstance(example, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is type(example)
