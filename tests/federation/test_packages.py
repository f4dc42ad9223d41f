"""How many packages a client of a study has to install and to trust, by the metadata of the installed ones."""

from __future__ import annotations

import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MOST = 6


def installed_for(requirements: list[str]) -> set[str]:
    """The names of all packages that some requirements lead to, on this machine."""
    found: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        one, extra = waiting.pop()
        name = canonicalize_name(one.name)
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue
        needed = [Requirement(text) for text in requires(name) or ()] if name not in found or one.extras else []
        found.add(name)
        waiting += [(each, wanted) for each in needed for wanted in ("", *one.extras)]
    return found


def beyond_the_core(extra: str) -> set[str]:
    core = PROJECT["dependencies"]
    return installed_for([*core, *PROJECT["optional-dependencies"][extra]]) - installed_for(core)


def test_a_client_needs_few_packages() -> None:
    """gRPC, cryptography, and what these need: no framework, and no protobuf."""
    added = beyond_the_core("federated")
    assert {"grpcio", "cryptography"} <= added
    assert len(added) <= MOST, sorted(added)
    assert {"flwr", "protobuf"}.isdisjoint(added)


def test_the_count_sees_a_framework() -> None:
    pytest.importorskip("flwr")
    assert len(beyond_the_core("flower")) > MOST
