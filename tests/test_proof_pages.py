"""Every mechanism, query and method has a proof page that names it, and the pages name nothing that is not there."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tulle.batch_queries
import tulle.local.ball
import tulle.local.billing
import tulle.local.labels
import tulle.mechanisms
import tulle.queries
from tulle.local.channel import Channel
from tulle.methods import METHODS

PAGES = sorted((Path(__file__).parent.parent / "docs" / "proofs").glob("*.md"))
SECTIONS = ("## Precondition", "## Pseudo-code", "## Postcondition", "## Proof", "## What is not proven")

# A fit without privacy alone asks it: no mechanism but the exact answer accepts it, so that there is nothing to prove.
WITHOUT_PROOF = {"tulle.queries.CurvatureAlongGradient"}


def concrete(module: ModuleType, base: type) -> list[str]:
    return [
        f"{module.__name__}.{name}"
        for name, thing in vars(module).items()
        if inspect.isclass(thing)
        and thing.__module__ == module.__name__
        and issubclass(thing, base)
        and not inspect.isabstract(thing)
    ]


MUST_BE_NAMED = sorted(
    {
        *concrete(tulle.mechanisms, tulle.mechanisms.Mechanism),
        *concrete(tulle.local.billing, tulle.mechanisms.Mechanism),
        *concrete(tulle.local.ball, Channel),
        *concrete(tulle.local.labels, Channel),
        "tulle.local.user.User",
        "tulle.local.server.Server",
        "tulle.local.protocols.LdpIht",
        "tulle.local.protocols.LabelCollection",
        "tulle.federated.client.Client",
        "tulle.federated.server.Server",
        "tulle.federated.aggregator.RowsAtClients",
        "tulle.mechanisms.ThresholdByLayer",
        "tulle.mechanisms.HardThreshold",
        *concrete(tulle.queries, tulle.queries.Query),
        *concrete(tulle.batch_queries, tulle.queries.Query),
        *(f"{method.__module__}.{method.__qualname__}" for method in METHODS.values()),
    }
    - WITHOUT_PROOF
)


def dotted_paths(text: str) -> set[str]:
    return set(re.findall(r"\btulle(?:\.[A-Za-z_]\w*)+", text))


def resolve(path: str) -> Any:
    """The object behind a dotted path: the longest module, then attributes."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            thing = getattr(thing, name)
        return thing
    raise AttributeError(path)


def test_there_are_pages_and_things_to_prove() -> None:
    assert PAGES
    assert {"tulle.mechanisms.Gaussian", "tulle.queries.ClippedGradient"} <= set(MUST_BE_NAMED)


@pytest.mark.parametrize("path", MUST_BE_NAMED)
def test_is_named_in_a_proof_page(path: str) -> None:
    assert any(path in dotted_paths(page.read_text(encoding="utf-8")) for page in PAGES), f"no page names {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
class TestPage:
    def test_names_only_what_exists(self, page: Path) -> None:
        for path in sorted(dotted_paths(page.read_text(encoding="utf-8"))):
            assert resolve(path) is not None, path

    @pytest.mark.parametrize("section", SECTIONS)
    def test_has_the_section(self, page: Path, section: str) -> None:
        assert section in page.read_text(encoding="utf-8").splitlines()


def test_a_path_that_is_not_there_is_noticed() -> None:
    for path in ("tulle.mechanisms.Gausian", "tulle.no_such_room", "tulle.queries.Step.jump"):
        with pytest.raises(AttributeError):
            resolve(path)
