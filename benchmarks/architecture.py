"""How a fit goes through the source: which files of tulle it enters, how often it goes from one to another, how often
its plan is made, and how much source is loaded for it.

    python benchmarks/architecture.py [--list]

Each fit runs once to import and compile what it needs, and once more with `sys.setprofile`. The counts:

- pairs of files: distinct (caller, callee) pairs of two different files of tulle. A call is that of a Python function
  that is defined in a file of tulle; its caller is the next frame up the stack that is in a file of tulle. Frames in
  between (scikit-learn, functools, methods that dataclasses generate) are passed over. Module and class bodies are not
  counted.
- calls between files: how many calls those pairs stand for.
- calls in all: of functions in files of tulle, those within one file included.
- files: files of tulle of which at least one function is called.
- plans: calls of `releases` of a method (a class with `releases` and `run`). "Made" leaves out a call from inside
  another one: a method that asks the method that it chose makes one plan.

Counted is the process that was asked to fit, in all its threads: on Dask without its workers; a simulated federated
study has its server and all its clients in this process.

Loaded source: modules of tulle in `sys.modules` of a fresh interpreter, and the lines of their files, docstrings and
comments included.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import scipy.sparse as sp

import tulle
from tulle import Bounds, SparseClassifier

ROOT = Path(tulle.__file__).resolve().parent
N, D = 400, 40
_BODIES = ("<module>",)


class Trace:
    """Calls of functions of tulle, counted by a profile function."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.entered: Counter[str] = Counter()
        self.plans_asked = 0
        self.plans_made = 0
        self._names: dict[str, str | None] = {}

    def _file(self, frame: FrameType) -> str | None:
        """The file of a frame, relative to tulle; None where it is in no file of it."""
        path = frame.f_code.co_filename
        if path not in self._names:
            place = Path(path)
            inside = place.is_absolute() and place.is_relative_to(ROOT)
            self._names[path] = place.relative_to(ROOT).as_posix() if inside else None
        return self._names[path]

    def _callers(self, frame: FrameType) -> Iterator[FrameType]:
        above = frame.f_back
        while above is not None:
            yield above
            above = above.f_back

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code.co_name in _BODIES or "__module__" in frame.f_code.co_names[:2]:
            return
        here = self._file(frame)
        if here is None:
            return
        self.entered[here] += 1
        caller = next((name for name in map(self._file, self._callers(frame)) if name is not None), None)
        if caller is not None and caller != here:
            self.calls[caller, here] += 1
        if _makes_plan(frame):
            self.plans_asked += 1
            self.plans_made += not any(_makes_plan(above) for above in self._callers(frame))

    @contextmanager
    def running(self) -> Iterator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def _makes_plan(frame: FrameType) -> bool:
    """Whether a frame is that of a method's `releases`."""
    if frame.f_code.co_name != "releases":
        return False
    owner = type(frame.f_locals.get("self"))
    return callable(getattr(owner, "releases", None)) and callable(getattr(owner, "run", None))


def trace(work: Callable[[], Any]) -> Trace:
    """The calls of `work` when it runs for the second time."""
    found = Trace()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work()
        with found.running():
            work()
    return found


# --- the fits --------------------------------------------------------------------------------------------------------


def _rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, D)) * (rng.random((N, D)) < 0.3)
    return sp.csr_array(X), (X[:, 0] - X[:, 1] > 0).astype(int)


def _model() -> SparseClassifier:
    return SparseClassifier(1.0, 1e-5, n_nonzero=5, bounds=Bounds(row_l2=2.0), random_state=0)


def fit_in_memory() -> None:
    _model().fit(*_rows())


def fit_by_command() -> None:
    from tulle.cli import main

    X, y = _rows()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        head = ",".join([*(f"c{k}" for k in range(D)), "target"])
        np.savetxt(path, np.column_stack([X.toarray(), y]), delimiter=",", header=head, comments="")
        words = ["fit", str(path), "--target", "target", "--epsilon", "1", "--row-l2", "2", "--seed", "0", "--quiet"]
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            code = main([*words, "-o", str(Path(folder, "model"))])
        if code:
            raise RuntimeError(out.getvalue())


def fit_on_dask() -> None:
    import dask
    import dask.array as da
    import dask.bag as db

    X, y = _rows()
    parts = db.from_delayed([dask.delayed([X[k : k + 100]]) for k in range(0, N, 100)])
    _model().fit(parts, da.from_array(y, chunks=100))


def study_federated() -> None:
    from tulle.federated import Terms, linear_terms, simulate

    X, y = _rows()
    linear = linear_terms(D, step=2.0, classes=(0, 1), row_l2=2.0)
    terms = Terms("a study", linear, 3, 1, n_nonzero=5, step=2.0, clip=0.5, batch=40, epsilon=1.0, delta=1e-5)
    simulate(terms, {"a": (X[:200], y[:200]), "b": (X[200:], y[200:])}, seed=0).model()


# --- loaded source ---------------------------------------------------------------------------------------------------

# Where the function that runs a fit stands: the first of them that there is.
_ENTRIES = ("tulle.trusted.fit", "tulle.trusted.fit")
_FIT = (
    "import warnings; warnings.simplefilter('ignore')\n"
    "import numpy as np, scipy.sparse as sp\n"
    "from tulle import Bounds, SparseClassifier\n"
    "SparseClassifier(bounds=Bounds(row_l2=1.0)).fit(sp.csr_array(np.eye(20)), np.arange(20) % 2)"
)


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def loaded_by(statement: str) -> list[str]:
    """The files of tulle that a fresh interpreter has loaded after `statement`."""
    listed = (
        "import json, sys\nprint(json.dumps(sorted("
        "m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] == 'tulle' and getattr(m, '__file__', None)"
        ")))"
    )
    code = f"{statement}\n{listed}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    files: list[str] = json.loads(run.stdout)
    return files


def print_loaded() -> None:
    entry = next(name for name in _ENTRIES if _exists(name))
    for what, statement in {
        f"import {entry}": f"import {entry}",
        "from tulle import Bounds, SparseClassifier": "from tulle import Bounds, SparseClassifier",
        "the same, after a default fit": _FIT,
    }.items():
        files = loaded_by(statement)
        lines = sum(len(Path(file).read_text(encoding="utf-8").splitlines()) for file in files)
        print(f"{what:<44}{len(files):>8} modules{lines:>8,} lines")


def print_trace(what: str, found: Trace, listed: bool) -> None:
    print(
        f"{what:<32}{len(found.calls):>8}{found.calls.total():>10,}{found.entered.total():>10,}"
        f"{len(found.entered):>8}{found.plans_made:>8}{found.plans_asked:>8}"
    )
    if listed:
        for (caller, here), count in sorted(found.calls.items()):
            print(f"    {caller} -> {here}: {count}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="also list the pairs of files")
    listed = parser.parse_args().list
    heads = ("pairs", "between", "calls", "files", "plans", "asked")
    print(" " * 32 + "".join(f"{head:>{width}}" for head, width in zip(heads, (8, 10, 10, 8, 8, 8))))
    print_trace("default fit in memory", trace(fit_in_memory), listed)
    print_trace("tulle fit", trace(fit_by_command), listed)
    if find_spec("distributed") is None:
        print("fit on Dask: skipped, since distributed is not installed")
    else:
        from distributed import Client, LocalCluster

        with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
            print_trace("fit on Dask", trace(fit_on_dask), listed)
    print_trace("federated study, simulated", trace(study_federated), listed)
    print()
    print_loaded()


if __name__ == "__main__":
    main()
