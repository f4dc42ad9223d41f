"""Every mechanism, query and method has a proof page that names it, and the pages name nothing that is not there."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT
from symbols import INDEX, SymbolError, SymbolIndex, module_paths, written_symbols

from tulle.methods import METHODS

PAGES = sorted((ROOT / "docs" / "proofs").glob("*.md"))
SECTIONS = ("## Precondition", "## Pseudo-code", "## Postcondition", "## Proof")
LIMITS = ("## Not proven",)

# A page must name every class that derives from one of these and can be made.
BASES = ("Mechanism", "Query", "Channel")
# A fit without privacy alone asks it: no mechanism but the exact answer accepts it, so that there is nothing to prove.
WITHOUT_PROOF = {"ExactFollowUp"}

MUST_BE_NAMED = sorted(
    {
        *(INDEX.shortest(symbol) for base in BASES for symbol in INDEX.concrete_subclasses(base)),
        *(method.__qualname__ for method in METHODS.values()),
        "User",
        "local.Server",
        "LdpIht",
        "LabelCollection",
        "Client",
        "federated.Server",
        "RowsAtClients",
        "ThresholdByLayer",
        "HardThreshold",
        "IntervalFit",
        "PrivatePipeline",
        "PrivateWeights",
        "PrivateScaler",
        "PrivateImputer",
        "PrivateColumns",
        "PrivateCategories",
        "PrivateVocabulary",
        "SparseHazard",
        "Concordance",
    }
    - WITHOUT_PROOF
)


def symbols_of(page: Path) -> set[str]:
    return written_symbols(page.read_text(encoding="utf-8"))


def loaded_subclasses(base: type[Any]) -> Iterator[type[Any]]:
    subclasses: list[type[Any]] = base.__subclasses__()
    for subclass in subclasses:
        yield subclass
        yield from loaded_subclasses(subclass)


def test_there_are_pages_and_things_to_prove() -> None:
    assert PAGES
    assert {"Gaussian", "ClippedGradient", "PrivUnit", "HardThresholding"} <= set(MUST_BE_NAMED)
    assert len(MUST_BE_NAMED) >= 54


@pytest.mark.parametrize("base", BASES)
def test_the_index_and_python_agree_on_subclasses(base: str) -> None:
    root = getattr(importlib.import_module(INDEX.resolve(base).module), base)
    found = {(symbol.module, symbol.name) for symbol in INDEX.concrete_subclasses(base)}
    absent = set()
    for module in {module for module, _ in found}:
        try:
            importlib.import_module(module)
        except ImportError:  # an extra is not installed
            absent.add(module)
    assert {(module, name) for module, name in found if module not in absent} == {
        (subclass.__module__, subclass.__qualname__)
        for subclass in loaded_subclasses(root)
        if subclass.__module__.startswith("tulle.") and not inspect.isabstract(subclass)
    }


def test_all_that_must_be_proved_is_named_in_a_proof_page() -> None:
    named = set().union(*map(symbols_of, PAGES))
    for symbol in MUST_BE_NAMED:
        INDEX.resolve(symbol)
    assert [symbol for symbol in MUST_BE_NAMED if symbol not in named] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
class TestPage:
    def test_names_only_what_exists(self, page: Path) -> None:
        symbols = symbols_of(page)
        assert symbols
        for symbol in sorted(symbols):
            INDEX.resolve(symbol)

    def test_names_no_module(self, page: Path) -> None:
        assert not module_paths(page.read_text(encoding="utf-8"))

    def test_has_the_sections(self, page: Path) -> None:
        lines = page.read_text(encoding="utf-8").splitlines()
        assert [section for section in SECTIONS if section not in lines] == []
        assert sum(line in LIMITS for line in lines) == 1


@pytest.mark.parametrize(
    "symbol",
    [
        *("Gausian", "Step.jump", "calibrat()", "NO_SUCH_CONSTANT", "_NoSuchClass", "Gaussian.release.twice"),
        *("federated.User", "queries.Step", "no_such_package.Step"),
        *("Server", "local.federated.Server"),
    ],
)
def test_a_wrong_symbol_is_noticed(symbol: str) -> None:
    """Misspelt, of another package, named by its module, or defined more than once."""
    (written,) = written_symbols(f"The proof of `{symbol}` is short.")
    assert written == symbol
    with pytest.raises(SymbolError):
        INDEX.resolve(symbol)


def test_what_is_a_symbol_on_a_page() -> None:
    page = """
`ClippedGradient`, `Minimiser.evaluate`, `calibrate()`, `local.Server`, `GRID`, `_AlongPath` and `local.Server.x`, but
not `rows_per_unit`, `C`, `M_j`, `sqrt(T)/z`, `scipy.special.ndtri`, `renyi(α)`, `seed=3`, DP-SGD, MedMNIST or
`make test`.

    g = ClippedGradient(w) + N(0, σ² I)      # or local.WireError; Minimiser.size, RandomisedResponse:
"""
    assert written_symbols(page) == {
        *("ClippedGradient", "Minimiser.evaluate", "calibrate()", "local.Server", "GRID", "_AlongPath"),
        *("local.Server.x", "local.WireError", "Minimiser.size", "RandomisedResponse"),
    }


def test_a_page_that_names_a_module_is_noticed() -> None:
    page = (
        "`tulle.methods.gradient_queries.Step`, `tulle.methods.feasible_sets`, backends/dask.py and mechanisms.py, "
        "but tests/tuning/test_best_of_trials.py may be named."
    )
    assert module_paths(page) == {
        "tulle.methods.gradient_queries.Step",
        "tulle.methods.feasible_sets",
        "backends/dask.py",
        "mechanisms.py",
    }


def test_symbols_are_found_wherever_their_module_stands(tmp_path: Path) -> None:
    root = tmp_path / "tulle"
    (root / "trusted").mkdir(parents=True)
    (root / "other").mkdir()
    (root / "trusted" / "queries.py").write_text(
        """
class Query(ABC):
    @abstractmethod
    def evaluate(self): ...
    def size(self): return 1
class Clipped(Query):
    level: float
    if True:
        def evaluate(self): return 0
try:
    LIMIT = 1
except ImportError:
    LOWER, UPPER = 0, 2
"""
    )
    (root / "other" / "more.py").write_text("class Clipped: ...\nfrom x import imported\nLIMIT.field = 3\nOTHER[0] = 1")
    (root / "other" / "__init__.py").write_text("def compute(): ...")
    index = SymbolIndex(root)
    assert index.resolve("other.compute()").module == "tulle.other"
    assert index.resolve("UPPER").module == index.resolve("LIMIT").module == "tulle.trusted.queries"
    assert {index.resolve(name).module for name in ("Clipped.level", "Clipped.size", "trusted.Clipped")} == {
        "tulle.trusted.queries"
    }
    assert [index.shortest(symbol) for symbol in index.concrete_subclasses("Query")] == ["trusted.Clipped"]
    for name in ("Clipped", "imported", "field", "OTHER", "evaluate()"):
        with pytest.raises(SymbolError):
            index.resolve(name)
