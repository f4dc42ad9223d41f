"""What a package index and a stranger's pip get: versions that agree, one way to install, a page without dead links."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from index_page import find_relative_links, long_description
from pages import BLOCK, PAGES, ROOT
from test_lock_files import PYTHONS

import tulle
from tulle.experiments.compared import ComparisonResult
from tulle.files.install_hints import INSTALL, WHERE, import_pandas, install_command, install_hint, packages_hint
from tulle.reports.plots import plot_comparison

SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
SOURCES = sorted((ROOT / "src").rglob("*.py"))


# --- versions --------------------------------------------------------------------------------------------------------


def test_versions_agree() -> None:
    """Of the code, of the citation and of the topmost section of the changelog; a date only where it is released."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    version, when = re.findall(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[0]
    assert re.findall(r"^version: (.+)$", citation, re.M) == [version] == [tulle.__version__]
    released = re.findall(r"^date-released: (.+)$", citation, re.M)
    assert released == ([] if when == "unreleased" else [when])


def test_the_classifiers_name_the_pythons_that_are_locked() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert tuple(named) == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


# --- how to install --------------------------------------------------------------------------------------------------


def test_hints_name_a_clone_and_an_extra() -> None:
    assert INSTALL == "pip install ."
    assert install_hint("parquet") == f'pip install ".[parquet]" {WHERE}'
    assert packages_hint("fsspec", "s3fs") == "pip install fsspec s3fs"


def test_one_module_says_how_to_install() -> None:
    """All others call it, with an extra that exists."""
    hinted = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if path.name == "install_hints.py":
            continue
        assert not re.search(r"pip3? install|tulle\[", text), path
        for node in ast.walk(ast.parse(text if "install_hint" in text else "")):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "install_hint":
                hinted.append(ast.literal_eval(node.args[0]))
    assert len(hinted) >= 7
    assert set(hinted) <= EXTRAS


def installs(text: str) -> Iterator[str]:
    """The commands of a page that install something."""
    for line in re.findall(r"pip install ([^`\n]*)", text):
        yield line.strip()


def is_known(words: str) -> bool:
    """Whether a command installs tulle as `install_hints` says, locked packages, or packages of other projects."""
    extra = re.fullmatch(r'"\.\[(\w+)\]"', words)
    if extra:
        return extra[1] in EXTRAS and f"pip install {words}" == install_command(extra[1])
    plain = re.fullmatch(r"(--quiet |--no-deps )?\.", words)
    locked = re.fullmatch(r"--require-hashes -r requirements/\w+\.lock", words)
    return bool(plain or locked) or not re.search(r"\btulle\b|\.\[", words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_install_it_in_the_same_way(page: Path) -> None:
    assert [words for words in installs(page.read_text(encoding="utf-8")) if not is_known(words)] == []


@pytest.mark.parametrize("words", ["tulle", '"tulle[dask]"', '".[no_such_extra]"', "--upgrade tulle"])
def test_another_way_is_noticed(words: str) -> None:
    assert not is_known(words)


# --- without extras --------------------------------------------------------------------------------------------------

# Epsilons of fits with every method, of a ledger and of the command line.
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
from tulle import Bounds, Budget, Ledger, SparseClassifier
from tulle.cli import main
from tulle.methods import METHODS
from tulle.reports.pages import fit_page
from tulle.reports.report import About

X = np.random.default_rng(0).uniform(-1, 1, (200, 6))
y = X[:, 0] > 0
with Ledger(Budget(1e3, 0.5)) as ledger:
    for method in sorted(METHODS):
        model = SparseClassifier(2.0, 1e-5, method=method, n_nonzero=2, bounds=Bounds(row_linf=1.0), random_state=0)
        model.fit(X, y)
        print(method, repr(model.privacy_.epsilon), repr(model.privacy_.delta), model.privacy_.accountant)
print(repr(ledger.epsilon), len(fit_page(model, About("Test"))) > 1000)
assert main(["account", "cost", "--delta", "1e-5", "gaussian:8x10", "laplace:9x3"]) == 0
"""


def printed(*missing: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT, *missing], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_epsilon_is_the_same_without_any_extra() -> None:
    """To the last bit, with every method: no fit, ledger, report or command asks another library for a proof."""
    pytest.importorskip("dp_accounting")
    missing = ("dp_accounting", "cryptography", "pandas", "pyarrow", "matplotlib", "dask", "grpc", "torch", "flwr")
    assert printed(*missing) == printed()


def test_the_cross_check_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from tulle.accounting.crosscheck import library_epsilon
    from tulle.experiments.federated_rounds import paper_epsilon

    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    needed = re.escape(f"the cross-check needs the package dp-accounting: {install_hint('crosscheck')}")
    for asked in (lambda: library_epsilon((), 1e-5, "pld"), lambda: paper_epsilon(1.0, 1e-5, 100, 10, 5)):
        with pytest.raises(ImportError, match=needed):
            asked()


@pytest.mark.parametrize(
    ("ask", "package", "said"),
    [
        (import_pandas, "pandas", f"a DataFrame needs pandas: {packages_hint('pandas')}"),
        (lambda: ComparisonResult([], {}, {}).to_frame(), "pandas", "a DataFrame needs pandas"),
        (lambda: plot_comparison({"rows": []}), "matplotlib", f"plots need matplotlib: {install_hint('plot')}"),
    ],
    ids=("pandas", "to_frame", "plot"),
)
def test_an_optional_package_that_is_missing_is_named(
    ask: Callable[[], Any], package: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one == package or one.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=re.escape(said)):
        ask()


def test_the_cross_check_is_an_extra() -> None:
    assert not any("dp-accounting" in one for one in PROJECT["dependencies"])
    assert "tulle[crosscheck]" in PROJECT["optional-dependencies"]["test"]


# --- the page of an index --------------------------------------------------------------------------------------------


def test_the_long_description_has_no_relative_link_or_picture() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = long_description()
    assert find_relative_links(readme) != []
    assert find_relative_links(text) == []
    assert "](" not in re.sub(r"\]\(https?://", "", BLOCK.sub("", text))
    assert BLOCK.findall(text) == BLOCK.findall(readme)  # code is left as it is
    words = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", readme).split()
    assert len(text.split()) > 0.9 * len(words)


@pytest.mark.parametrize(
    "text",
    ["[a](docs/b.md)", "![a](b.png)", "[a](#b)", '<img src="b.png">', "<a href='docs/b.md'>", "[a]: docs/b.md"],
)
def test_a_relative_link_is_noticed(text: str) -> None:
    assert find_relative_links(text) != []
    assert find_relative_links(re.sub(r"(?<=[(\"'])[#\w./]+|(?<=: ).+", "https://host/b", text)) == []
