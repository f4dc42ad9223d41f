"""The wheel and the source archive, in environments of their own: with the newest dependencies and with the oldest.

Run by `make test-extras`; a minute or two. Needs the extra `build` and the package index.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from index_page import long_description
from packaging.requirements import Requirement
from pages import ROOT

import tulle
from tulle.files.install_hints import install_hint

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Fits, a ledger, a report, a saved model, and the message where an extra is missing.
USE = """
import importlib.util, json, sys, warnings
import numpy as np
from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor, load, save
from tulle.files.tables import TableError, read_table
from tulle.methods import METHODS
from tulle.reports.pages import fit_page
from tulle.reports.report import About

warnings.simplefilter("ignore")
X = np.random.default_rng(0).uniform(-1, 1, (2000, 8))
y = X[:, 0] - X[:, 3] > 0
epsilons = {}
with Ledger(Budget(100.0, 1e-3)) as ledger:
    for method in sorted(METHODS):
        model = SparseClassifier(2.0, 1e-5, method=method, n_nonzero=2, bounds=Bounds(row_linf=1.0), random_state=0)
        epsilons[method] = model.fit(X, y).privacy_.epsilon
    default = SparseClassifier(2.0, 1e-5, n_nonzero=2, bounds=Bounds(row_linf=1.0), random_state=0).fit(X, y)
epsilons["ledger"] = ledger.epsilon
save(default, "model.npz")
assert np.array_equal(load("model.npz").predict(X), default.predict(X))
open("rows.parquet", "wb").write(b"PAR1PAR1")
try:
    read_table("rows.parquet", target=0)
    said = ""
except TableError as error:
    said = str(error)
extras = ("dp_accounting", "pandas", "pyarrow", "matplotlib", "cryptography", "dask", "grpc", "torch", "attrs")
print(json.dumps({
    "epsilons": epsilons,
    "score": default.score(X, y),
    "report": len(fit_page(default, About("Test"))),
    "callbacks": hasattr(default, "set_callbacks"),
    "parquet": said,
    "installed": [name for name in extras if importlib.util.find_spec(name) is not None],
    "module": sys.modules["tulle"].__file__,
}))
"""


class Built(NamedTuple):
    wheel: Path
    archive: Path


def run(*words: str | Path, folder: Path | None = None) -> str:
    """What a command prints; it must succeed. Settings of the interpreter that runs the tests are not handed on."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run([str(word) for word in words], env=kept, cwd=folder, text=True, capture_output=True)
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The archive of the working tree, and the wheel that is made from the archive."""
    pytest.importorskip("build", reason=install_hint("build"))
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, archive)


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Path]:
    """The interpreter of an empty environment; deleted afterwards, since it grows to half a gigabyte."""
    run(sys.executable, "-m", "venv", tmp_path / "environment")
    yield tmp_path / "environment" / "bin" / "python"
    shutil.rmtree(tmp_path / "environment")


def used(python: Path) -> dict[str, Any]:
    """What a script in an environment tells of an installed tulle."""
    told: dict[str, Any] = json.loads(run(python, "-c", USE, folder=python.parents[2]))
    assert Path(told["module"]).is_relative_to(python.parents[1])
    assert told["score"] > 0.9
    assert told["report"] > 10_000
    assert all(0 < epsilon <= 2 for name, epsilon in told["epsilons"].items() if name != "ledger")
    assert f"reading Parquet needs pyarrow: {install_hint('parquet')}" in told["parquet"]
    assert run(python.parent / "tulle", "--version") == f"tulle {tulle.__version__}\n"
    cost = run(python.parent / "tulle", "account", "cost", "--delta", "1e-5", "gaussian:8x10")
    assert "Together: ε = 1.5347 at δ = 1e-05" in cost
    return told


def test_the_archive_and_the_wheel_have_the_package_alone(built: Built) -> None:
    """Every file of src/tulle, the licence and a few pages; no rows, pictures, tests or keys."""
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/tulle").rglob("*") if path.is_file()}
    sources = {path for path in sources if "__pycache__" not in path}
    assert {path.rpartition(".")[2] for path in sources} == {"py", "toml", "csv", "typed"}
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == sources
    with tarfile.open(built.archive) as archive:
        members = {member.name.partition("/")[2]: member.size for member in archive.getmembers() if member.isfile()}
    pages = {"README.md", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "LICENSE"}
    assert set(members) == {f"src/{name}" for name in sources} | pages | {"pyproject.toml", "PKG-INFO", ".gitignore"}
    assert sum(members.values()) < 10_000_000
    assert built.archive.stat().st_size < 3_000_000


def test_an_index_takes_them(built: Built) -> None:
    """twine, strictly; and the long description is the README without relative links, as another test reads it."""
    assert run(sys.executable, "-m", "twine", "check", "--strict", *built).count("PASSED") == 2
    with zipfile.ZipFile(built.wheel) as wheel:
        metadata = message_from_bytes(wheel.read(f"tulle-{tulle.__version__}.dist-info/METADATA"))
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload(decode=True).decode().strip() == long_description().strip()  # type: ignore[union-attr]


def test_it_runs_without_any_extra_next_to_a_new_cattrs(built: Built, python: Path) -> None:
    """With the newest dependencies. cattrs 25 needs an attrs that dp-accounting refuses."""
    run(python, "-m", "pip", "install", "--quiet", built.wheel, "cattrs==25.*")
    run(python, "-m", "pip", "check")
    assert used(python)["installed"] == ["attrs"]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the oldest numpy that is supported has no wheels for it")
def test_it_runs_with_the_oldest_dependencies_next_to_diffprivlib(built: Built, python: Path) -> None:
    """diffprivlib 0.6.6 can be installed with newer versions of scikit-learn than it can be imported with: 1.6 is one
    that both run on. Both fit in one process."""
    oldest = [
        f"{one.name}=={str(one.specifier).removeprefix('>=')}" for one in map(Requirement, PROJECT["dependencies"])
    ]
    assert len(oldest) == 5
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", one) for one in oldest)
    run(python, "-m", "pip", "install", "--quiet", built.wheel, *oldest, "diffprivlib==0.6.6")
    run(python, "-m", "pip", "check")
    told = used(python)
    assert told["installed"] == []
    assert told["callbacks"] is False
    other = "from diffprivlib.models import GaussianNB\nGaussianNB(epsilon=1.0, bounds=(-1, 1)).fit(X, y).score(X, y)"
    run(python, "-c", f"{USE}\n{other}", folder=python.parents[2])
