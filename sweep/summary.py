"""Makes the summary of a file of runs: what was tried, what was found, and what that bounds.

If a layer finds nothing in n tries, the probability of a finding in one try is below 3/n at 95 %
(the rule of three). Repeats of one case are not independent tries of drawn cases, so there are two
bounds: 3 / runs for a drawn case, and 3 / repeats for a single repeat, which holds if every case is
as likely to show a race as any other. Heads of one launch share its moment and its load, so
comparisons of heads have no such bound.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from flash_attest.runner.green import EXCUSED
from flash_attest.sweep.records import DIED, DONE, Finding
from flash_attest.sweep.store import Store, now

COUNTS = f"""
SELECT impl, version, layer, device,
    count(*) FILTER (WHERE verdict IN ('{PASS}', '{FAIL}')) AS runs,
    total(repeats) FILTER (WHERE verdict = '{PASS}') AS repeats,
    count(*) FILTER (WHERE verdict = '{FAIL}') AS failed,
    count(*) FILTER (WHERE verdict = '{UNKNOWN}') AS undecided,
    count(*) FILTER (WHERE verdict = '{REFUSED}') AS refused,
    count(*) FILTER (WHERE state <> '{DONE}') AS open,
    total(seconds) AS seconds,
    min(started) AS first, max(started) AS last
FROM runs GROUP BY impl, version, layer, device ORDER BY impl, layer, device
"""
SWEPT = "SELECT impl, version, session, max(started) AS last FROM runs GROUP BY impl, version, session ORDER BY last"
OF_THESE = "version IN (SELECT value FROM json_each(:versions))"
CLEAN_SINCE = f"""
SELECT min(started) FROM runs WHERE impl = :impl AND {OF_THESE} AND verdict = '{PASS}' AND started > coalesce(
    (SELECT max(started) FROM runs WHERE impl = :impl AND {OF_THESE} AND verdict = '{FAIL}'), '')
"""
UNDECIDED = f"""
SELECT impl, layer, why, reason, count(*) AS times, min(case_) AS example,
    count(*) FILTER (WHERE session IN (SELECT value FROM json_each(:sessions))) AS recent
FROM runs
WHERE verdict = '{UNKNOWN}' AND impl = :impl AND {OF_THESE} GROUP BY impl, layer, why, reason ORDER BY times DESC
"""
DECIDED = f"""
SELECT DISTINCT impl FROM runs
WHERE verdict IN ('{PASS}', '{FAIL}') AND session IN (SELECT value FROM json_each(?))
"""

PLACE = ("impl", "layer", "reason")  # the fields of a pair that is not drawn


def summary(store: Store) -> dict:
    """Return the whole summary, JSON-ready."""
    sessions, counts, findings = _sessions(store), store.rows(COUNTS), store.findings()
    last = _last_sweep(sessions)
    versions = _versions(store, last)
    impls = {name: _implementation(store, name, versions[name], counts, findings) for name in versions}
    ids, left_out = json.dumps([session["id"] for session in last]), _of_all(last, "left_out")
    report = {
        "written": now(),
        "seeds": [row[0] for row in store.rows("SELECT DISTINCT seed FROM runs")],
        "shard": str(store.shard) if store.shard.of > 1 and not store.merged else "",
        "sessions": sessions,
        "implementations": impls,
        "left_out": [dict(zip(PLACE, each, strict=True)) for each in left_out],
        "given_up": [dict(zip(PLACE, each, strict=True)) for each in _of_all(last, "given_up")],
        "remarks": _of_all(last, "remarks"),
        "not_decided": _not_decided(store, last, ids),
        "findings": [asdict(f) | {"current": f.version in versions.get(f.impl, [])} for f in findings],
        "undecided": [
            dict(row)
            for name in impls
            for row in store.rows(UNDECIDED, sessions=ids, impl=name, versions=json.dumps(versions[name]))
        ],
    }
    return report | {"not_green": not_green(report)}


def not_green(report: dict) -> list[str]:
    """Return why the exit status is 1, in lines; [] if it is 0."""
    lines = [
        f"{f['impl']}, {f['layer']}: {f['headline']}" for f in report["findings"] if f["current"] and not f["known"]
    ]
    for row in report["undecided"]:
        if row["why"] in EXCUSED or not row["recent"]:
            continue
        what = "did not come back" if row["why"] == DIED else f"could not be decided: {row['reason']}"
        lines.append(f"{row['impl']}, {row['layer']}: {row['recent']} run{'s' * (row['recent'] > 1)} {what}")
    lines += [f"the last sweep decided no run of {name}" for name in report["not_decided"]]
    decided = any(row["runs"] for one in report["implementations"].values() for row in one["layers"])
    return lines or ([] if decided else ["no run has a verdict"])


def _last_sweep(sessions: list[dict]) -> list[dict]:
    """Return the last session. In a joined file: the last one of each shard that has its seed."""
    latest = {session["environment"].get("shard"): session for session in sessions}.values()
    seeds = [session["environment"].get("seed") for session in sessions[-1:]]
    return [session for session in latest if session["environment"].get("seed") in seeds]


def _of_all(sessions: list[dict], name: str) -> list:
    """Return what their environments list under a name, each value once."""
    listed = [each for session in sessions for each in session["environment"].get(name, [])]
    return [each for n, each in enumerate(listed) if each not in listed[:n]]


def _not_decided(store: Store, sessions: list[dict], ids: str) -> list[str]:
    """Return the implementations that these sessions swept without a verdict of pass or fail."""
    decided = {row["impl"] for row in store.rows(DECIDED, ids)}
    return [name for name in _of_all(sessions, "implementations") if name not in decided]


def _sessions(store: Store) -> list[dict]:
    sessions = []
    for row in store.rows("SELECT * FROM sessions ORDER BY started, id"):
        count = "SELECT count(*), coalesce(max(unixepoch(started)) - min(unixepoch(started)), 0) FROM runs WHERE session = ?"
        (runs, seconds) = store.rows(count, row["id"])[0]
        rate = {"runs": runs, "runs_per_minute": round(60 * runs / seconds, 1) if seconds else 0.0}
        sessions.append(dict(row) | rate | {"environment": json.loads(row["environment"])})
    return sessions


def _versions(store: Store, last: list[dict]) -> dict[str, list[str]]:
    """Return the versions of each implementation that count.

    Each session of the last sweep has the version that it ended with. These are several where the
    hosts of shards have other GPUs or packages. An implementation that the last sweep did not run
    has its latest version.
    """
    swept: dict[str, list] = {}
    for row in store.rows(SWEPT):
        swept.setdefault(row["impl"], []).append(row)
    ids, versions = {session["id"] for session in last}, {}
    for name in sorted(swept):
        ended_with = {row["session"]: row["version"] for row in swept[name] if row["session"] in ids}
        versions[name] = sorted({*ended_with.values()}) or [swept[name][-1]["version"]]
    return versions


def _implementation(store: Store, name: str, versions: list[str], counts: list, findings: list[Finding]) -> dict:
    mine = [row for row in counts if row["impl"] == name]
    own = [f for f in findings if f.impl == name and f.version in versions]
    since = None if own else store.rows(CLEAN_SINCE, impl=name, versions=json.dumps(versions))[0][0]
    layers: dict[tuple, list] = {}
    for row in mine:
        if row["version"] in versions:
            layers.setdefault((row["layer"], row["device"]), []).append(row)
    return {
        "versions": versions,
        "clean_since": since,
        "findings": len(own),
        "earlier_versions": {"runs": sum(row["runs"] for row in mine if row["version"] not in versions)},
        "layers": [_layer(*of, rows) for of, rows in layers.items()],
    }


def _layer(layer: str, device: str, rows: list) -> dict:
    """Return the totals of a layer. rows: one for each version."""
    names = ("runs", "failed", "undecided", "refused", "open", "repeats", "seconds")
    total = {name: sum(row[name] for row in rows) for name in names}
    clean = not total["failed"]
    return total | {
        "layer": layer,
        "device": device,
        "first": min(row["first"] for row in rows),
        "last": max(row["last"] for row in rows),
        "repeats": int(total["repeats"]),
        "seconds": round(total["seconds"], 1),
        "bound_of_a_case": _bound(total["runs"]) if clean else None,
        "bound_of_a_repeat": _bound(total["repeats"]) if clean and layer != "copies" else None,
    }


def _bound(n: float) -> float | None:
    """Apply the rule of three. At most three tries bound nothing."""
    return 3 / n if n > 3 else None
