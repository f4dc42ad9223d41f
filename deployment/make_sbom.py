"""The software bill of materials: requirements/sbom.cdx.json, in CycloneDX 1.5, from the lock file alone.

    make sbom

It names tulle and each locked release, and which of them needs which. The same lock file gives the same bytes: there is
no time in it, and its serial number follows from the lock file. Hashes of single files are in the lock file, whose own
hash is in the bill.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "core.lock"
SBOM = ROOT / "requirements" / "sbom.cdx.json"

_RELEASE = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+?))? \\$")
_NEEDED_BY = re.compile(r"^    #(?: via(?: (?P<one>[A-Za-z0-9._-]+))?|   (?P<other>[A-Za-z0-9._-]+))\s*$")


@dataclass(frozen=True)
class Locked:
    """A release of a lock file: what it is, where it is used, its hashes and what needs it."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def read_lock(path: Path) -> tuple[Locked, ...]:
    """The releases of a lock file, in its order. Raises for a line that is no part of one."""
    found: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := _RELEASE.match(line):
            marker = match["marker"] or ""
            found.append({"name": match["name"], "version": match["version"], "marker": marker, "h": [], "by": []})
        elif match := re.fullmatch(r"    --hash=sha256:([0-9a-f]{64})(?: \\)?", line):
            found[-1]["h"].append(match[1])
        elif match := _NEEDED_BY.match(line):
            found[-1]["by"] += [name for name in match.groups() if name]
        elif not line.startswith("# ") or found:
            raise ValueError(f"{path.name}, line {number}, is no part of a lock file: {line[:80]!r}")
    return tuple(Locked(one["name"], one["version"], one["marker"], tuple(one["h"]), tuple(one["by"])) for one in found)


def bill(lock: Path = LOCK) -> dict[str, Any]:
    """The bill of materials of a lock file."""
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/tulle/__init__.py").read_text("utf-8"), re.M)
    assert version is not None
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    tulle = {"type": "application", "name": "tulle", "version": version[1], "bom-ref": f"pkg:pypi/tulle@{version[1]}"}
    tulle["purl"] = tulle["bom-ref"]
    releases = read_lock(lock)
    needs: dict[str, list[str]] = {tulle["purl"]: [], **{one.purl: [] for one in releases}}
    refs: dict[str, list[str]] = {"tulle": [tulle["purl"]]}
    for one in releases:
        refs.setdefault(one.name, []).append(one.purl)
    for one in releases:
        for parent in one.needed_by:
            for ref in refs[parent]:
                needs[ref].append(one.purl)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {
            "component": tulle,
            "properties": [{"name": "tulle:lock-file:sha256", "value": digest}],
        },
        "components": [_component(one) for one in releases],
        "dependencies": [{"ref": ref, "dependsOn": sorted(set(of))} for ref, of in sorted(needs.items())],
    }


def _component(one: Locked) -> dict[str, Any]:
    where = {"properties": [{"name": "tulle:marker", "value": one.marker}]} if one.marker else {}
    plain = {"type": "library", "name": one.name, "version": one.version, "bom-ref": one.purl, "purl": one.purl}
    return {**plain, **where}


def text_of(lock: Path = LOCK) -> str:
    return json.dumps(bill(lock), indent=2) + "\n"


if __name__ == "__main__":
    SBOM.write_text(text_of(), encoding="utf-8")
    print(SBOM.relative_to(ROOT), file=sys.stderr)
