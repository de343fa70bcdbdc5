from __future__ import annotations

from dataclasses import dataclass

from flash_attest.runner.green import not_green
from flash_attest.runner.page.records import counted


@dataclass(frozen=True)
class Cause:
    impl: str
    heading: str
    first: dict
    others: tuple[dict, ...]

    @property
    def anchor(self) -> str:
        return f"{self.impl}-{self.first['law'].removeprefix('test_')}"


def causes_of(results):
    groups = {}
    for r in results:
        if r["verdict"] == "fail":
            groups.setdefault((r["impl"], r.get("clue") or r["reason"]), []).append(r)
    out = [Cause(i, g[0]["reason"], g[0], tuple(g[1:])) for (i, _), g in groups.items()]
    return sorted(out, key=lambda c: c.first["chapter"] != "test_contract")


def verdict_line(results, environment):
    n = counted(results)
    e = environment.get("options", {})
    if n.get("fail"):
        return f"not green: {n['fail']} laws fail"
    why = not_green(results, asked_for=bool(e.get("impl") or e.get("impl_from")), replayed=bool(e.get("case")))
    if why:
        return f"not green: {why}"
    parts = [f"{n.get('pass', 0)} laws hold"]
    if n.get("refused"):
        parts.append(f"{n['refused']} do not apply")
    if n.get("elsewhere"):
        parts.append(f"{n['elsewhere']} need a GPU")
    return "green: " + "; ".join(parts)
