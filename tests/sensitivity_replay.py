"""Sensitivity replay: fit some rows, give the same answers to the fit of neighbouring rows, compare exact answers.

A fit is a conversation: what is asked next depends on the answers so far. With the answers of the first fit the second
one asks the same questions, and each exact answer must be within the sensitivity that the mechanism was told, in the
norm that it uses. Rows are as hostile as floats allow, 5e-324 to 1.7e308. A fit that takes too long has failed too: one
row must not decide whether a fit ends.

`python tests/sensitivity_replay.py SECONDS SEED` draws pairs for that long and prints the worst ratios.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle import Bounds, PublicFrequencies, SparseClassifier, SparseRegressor
from tulle.audit.replay import Change, Recording
from tulle.audit.visible import ReplayError
from tulle.audit.visible import time_limit as interrupt_after
from tulle.backends.block_writer import write_blocks
from tulle.methods import (
    CoordinateDescent,
    FitAgain,
    FrankWolfe,
    HardThresholding,
    KnowledgeTransfer,
    ScreenRefine,
    StochasticHardThresholding,
    TwoStage,
)

# A pair takes a tenth of a second or so.
SECONDS_A_PAIR = 60.0

METHODS: dict[str, Callable[[], Any]] = {
    "auto": lambda: "auto",
    "fit again": FitAgain,
    "screen and refine": ScreenRefine,
    "screen and refine, gaussian": partial(ScreenRefine, noise="gaussian"),
    "screen and refine, selection": partial(ScreenRefine, noise="selection", rounds=2),
    "screen and refine, statistics": partial(ScreenRefine, refinement="statistics"),
    "two stage": TwoStage,
    "hard thresholding": partial(HardThresholding, n_iter=3),
    "hard thresholding, gaussian": partial(HardThresholding, n_iter=3, noise="gaussian"),
    "hard thresholding, selection": partial(HardThresholding, n_iter=3, noise="selection"),
    "hard thresholding, laplace": partial(HardThresholding, n_iter=3, noise="laplace"),
    "batches, poisson": partial(StochasticHardThresholding, sampling="poisson"),
    "batches, without replacement": partial(StochasticHardThresholding, sampling="without_replacement"),
    "batches, shuffled": partial(StochasticHardThresholding, sampling="shuffled"),
    "batches, svrg": partial(StochasticHardThresholding, variant="svrg"),
    "frank wolfe": partial(FrankWolfe, n_iter=4, noise="selection"),
    "frank wolfe, gaussian": partial(FrankWolfe, n_iter=4, noise="gaussian"),
    "frank wolfe, incremental": partial(FrankWolfe, n_iter=6, noise="selection", engine="incremental"),
    "coordinate descent": partial(CoordinateDescent, n_iter=4),
    "coordinate descent, selection": partial(CoordinateDescent, n_iter=4, noise="selection"),
    "coordinate descent, incremental": partial(CoordinateDescent, n_iter=6, noise="selection", engine="incremental"),
    "knowledge transfer": KnowledgeTransfer,
    "knowledge transfer, output": partial(KnowledgeTransfer, perturbation="output"),
    "knowledge transfer, dense": partial(KnowledgeTransfer, variant="dense"),
    "fit again, one round": partial(FitAgain, rounds=1),
    # These are given public rows, or frequencies of features.
    "auto, public": lambda: "auto",
    "fit again, public": FitAgain,
    "knowledge transfer, dense, public": partial(KnowledgeTransfer, variant="dense"),
}

# A name, what the estimator is told, and how many classes there are; 0 for a regression.
LOSSES = {
    "logistic": ("logistic", 2),
    "squared hinge": ("squared_hinge", 2),
    "softmax": ("logistic", 3),
    "hinge against the rest": ("squared_hinge", 3),
    "squared": ("squared", 0),
    "huber": ("huber", 0),
    "poisson": ("poisson", 0),
}

# Around every border that code draws: the smallest floats, squares that vanish or overflow, the range of row norms.
HOSTILE = np.array(
    [
        *(0.0, -0.0, 5e-324, 1e-300, 1e-162, 1e-155, 1e-150, 1e-141, 1e-139, 1e-100),
        *(1e-50, 0.3, 1.0, 3.0, 1e8, 1e50, 1e100, 1e139, 1e140, 1e141, 1e153, 1e155, 1e200, 1.7e308),
    ]
)


# --- recording and replaying -----------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What came of some pairs.

    Attributes
    ----------
    pairs, refused : int
        Those that were compared, and those whose settings the fit refuses.
    worst : dict
        By mechanism: the largest change of an exact answer in units of the sensitivity.
    violations : list of str
    """

    pairs: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def note(self, name: str, ratio: float, pair: Any) -> None:
        self.worst[name] = max(self.worst.get(name, 0.0), ratio)
        if not ratio <= 1:
            self.violations.append(f"{name} moved by {ratio:.3g} of its sensitivity: {pair}")

    def __str__(self) -> str:
        worst = ", ".join(f"{name} {ratio:.12g}" for name, ratio in sorted(self.worst.items()))
        refused = sum(self.refused.values())
        return f"{self.pairs} pairs, {refused} refused, {len(self.violations)} violations; worst ratios: {worst}"


class Conversation:
    """The answers of one fit. While it `listens` they are recorded; while it `repeats` they are given again, and what
    they would be about is compared."""

    def __init__(self, pair: Any, tally: Tally) -> None:
        self._pair, self._tally = pair, tally
        self._recording = Recording(self._count)

    def _count(self, change: Change) -> None:
        self._tally.note(change.name, change.ratio, self._pair)

    @contextlib.contextmanager
    def listens(self) -> Iterator[None]:
        with self._recording.record():
            yield

    @contextlib.contextmanager
    def repeats(self) -> Iterator[None]:
        try:
            with self._recording.play():
                yield
            self._recording.finish()
        except ReplayError as mismatch:
            raise AssertionError(f"{mismatch}: {self._pair}") from mismatch  # by its own name, for tests/mutants.py


@contextlib.contextmanager
def time_limit(seconds: float, what: object) -> Iterator[None]:
    """Fail what takes longer; end the process where compiled code does not let Python do so."""
    faulthandler.dump_traceback_later(2 * seconds, exit=True, file=sys.__stderr__)
    try:
        with interrupt_after(seconds, what):
            yield
    except ReplayError as late:
        raise AssertionError(str(late)) from late
    finally:
        faulthandler.cancel_dump_traceback_later()


# --- pairs of neighbours ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pair:
    """Two data sets that differ in the rows of one person, and what is fitted to both."""

    label: str
    method: str
    loss: str
    rows: tuple[Any, Any]
    targets: tuple[Any, Any]
    groups: Any
    settings: dict[str, Any]
    public: Any = None

    def __str__(self) -> str:
        return f"{self.method}, {self.loss}, {self.label}"

    def fit(self, which: int, place: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        loss, classes = LOSSES[self.loss]
        estimator = SparseClassifier if classes else SparseRegressor
        X, y = place(self.rows[which], self.targets[which])
        model = estimator(delta=1e-6, method=METHODS[self.method](), loss=loss, random_state=5, **self.settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of too few rows, and of what estimates are worth
            model.fit(X, y, groups=self.groups, public=self.public)


def hostile_row(rng: np.random.Generator, d: int) -> Any:
    signs = rng.choice([-1.0, 1.0], d)
    kind = rng.integers(6)
    if kind == 0:
        return np.full(d, rng.choice(HOSTILE)) * signs
    if kind == 1:
        return np.where(np.arange(d) == rng.integers(d), rng.choice(HOSTILE), 0.0) * signs
    if kind == 2:
        return rng.choice(HOSTILE, d) * signs
    if kind == 3:
        return rng.choice(HOSTILE[:10], d) * signs
    if kind == 4:
        return rng.choice(HOSTILE[-8:], d) * signs
    return rng.standard_normal(d)


def _rows(rng: np.random.Generator, n: int, d: int) -> Any:
    kind = rng.random()
    if kind < 0.3:
        return np.array([hostile_row(rng, d) for _ in range(n)])
    if kind < 0.5:
        return np.tile(hostile_row(rng, d), (n, 1))
    return rng.standard_normal((n, d))


def with_duplicates(X: Any, rng: np.random.Generator) -> Any:
    """CSR in which every entry is stored as two halves, in no order, with some zeros."""
    coo = sp.coo_array(X)
    row, column, data = (np.tile(array, 2) for array in (coo.row, coo.col, coo.data / 2))
    row, column = np.append(row, np.arange(X.shape[0])), np.append(column, rng.integers(X.shape[1], size=X.shape[0]))
    data = np.append(data, np.zeros(X.shape[0]))
    order = rng.permutation(len(data))
    order = order[np.argsort(row[order], kind="stable")]
    starts = np.append(0, np.cumsum(np.bincount(row, minlength=X.shape[0])))
    return sp.csr_array((data[order], column[order].astype(np.int32), starts.astype(np.int32)), shape=X.shape)


STORAGES: dict[str, Callable[[Any, np.random.Generator], Any]] = {
    "dense": lambda X, rng: X,
    "float32": lambda X, rng: np.clip(X, -3e38, 3e38).astype(np.float32),
    "fortran": lambda X, rng: np.asfortranarray(X),
    "csr": lambda X, rng: sp.csr_array(X),
    "csc": lambda X, rng: sp.csc_array(X),
    "duplicates": with_duplicates,
}


def _bounds(rng: np.random.Generator, regression: bool, rows_per_person: int) -> Bounds:
    declared: dict[str, Any] = {}
    size, kind = float(rng.choice([1e-50, 1e-20, 1e-3, 0.1, 1.0, 7.0, 1e10, 1e50])), rng.random()
    if kind < 0.3:
        declared["row_l2"] = size
    elif kind < 0.6:
        declared["row_linf"] = size
    elif kind < 0.8:
        declared |= {"row_l2": size, "row_linf": max(1e-50, size * float(rng.choice([0.1, 0.5, 1.0])))}
    elif kind < 0.95:
        declared["normalise"] = True
        if rng.random() < 0.5:
            declared["row_linf"] = float(rng.choice([0.1, 0.5, 2.0]))
        if rng.random() < 0.5:
            declared["row_l2"] = size
    if regression and rng.random() < 0.8:
        declared["label"] = float(rng.choice([1e-50, 1e-3, 1.0, 1e3, 1e50]))
    return Bounds(rows_per_person=rows_per_person, **declared)


def _public(rng: np.random.Generator, d: int) -> Any:
    """Public rows are not protected, but what is asked about private rows in their directions is."""
    kind, rows = rng.random(), np.clip(_rows(rng, int(rng.choice([20, 60])), d), -1e50, 1e50)  # more is refused
    if kind < 0.2:
        return PublicFrequencies(rng.random(d) * (rng.random(d) < 0.7) + (np.arange(d) == 0))
    if kind < 0.6:
        rows = rng.standard_normal(rows.shape) * float(rng.choice([1e-50, 1e-3, 1.0, 1e10]))
        rows[:, d // 2 :] *= rng.random() < 0.5
    return rows if rng.random() < 0.5 else sp.csr_array(rows)


def draw_pair(rng: np.random.Generator, method: str, number: Any = "") -> Pair:
    loss = "squared" if "statistics" in method else str(rng.choice(list(LOSSES)))
    classes = LOSSES[loss][1]
    n, d = int(rng.choice([12, 12, 40] if classes else [2, 3, 5, 12, 40])), int(rng.choice([1, 2, 7, 30]))
    X = _rows(rng, n, d)
    if classes:
        y = np.arange(n) % classes
    elif rng.random() < 0.3:
        y = rng.choice(HOSTILE, n) * rng.choice([-1.0, 1.0], n)
    else:
        y = rng.standard_normal(n) * rng.choice([1.0, 1e3, 1e49])
    rows_per_person, groups = int(rng.choice([1, 1, 3])), None
    if rng.random() < 0.4:  # persons with surplus rows, all of which the neighbour has others of
        groups = rng.integers(max(2, n // 3), size=n)
        changed = np.flatnonzero(groups == groups[rng.integers(n)])
    else:
        changed = rng.choice(n, min(rows_per_person, n - 1), replace=False)
    other, other_y = X.copy(), y.copy()
    for i in changed:
        other[i] = -X[i] if rng.random() < 0.3 else hostile_row(rng, d)
        if classes:
            other_y[i] = (y[i] + 1) % classes if rng.random() < 0.5 else y[i]
        else:
            other_y[i] = rng.choice(HOSTILE) * rng.choice([-1.0, 1.0])
    if classes and len(np.unique(other_y)) < classes:  # which classes there are is public
        other_y = y.copy()
    if loss == "poisson":
        y, other_y = np.abs(y), np.abs(other_y)
    storage = str(rng.choice(list(STORAGES)))
    shuffled = int(rng.integers(1 << 30))
    stored = tuple(STORAGES[storage](rows, np.random.default_rng(shuffled)) for rows in (X, other))
    settings = {
        "epsilon": float(rng.choice([0.1, 1.0, 8.0])),
        "bounds": _bounds(rng, not classes, rows_per_person),
        "n_nonzero": int(min(d, rng.choice([1, 2, d]))),
        "fit_intercept": bool(rng.random() < 0.6),
    }
    label = f"{n} x {d} {storage}, rows {changed.tolist()} of {'persons' if groups is not None else 'all'}, {settings}"
    public = _public(rng, d) if "public" in method else None
    rows = (stored[0], stored[1])
    return Pair(f"pair {number}, {label}", method, loss, rows, (y, other_y), groups, settings, public)


def in_memory(X: Any, y: Any) -> tuple[Any, Any]:
    return X, y


@contextlib.contextmanager
def in_folders() -> Iterator[Callable[[Any, Any], tuple[Any, Any]]]:
    """Rows go through a folder of blocks on disk, of five rows each."""
    with tempfile.TemporaryDirectory() as folder:
        made = iter(range(sys.maxsize))

        def place(X: Any, y: Any) -> tuple[Any, Any]:
            blocks = write_blocks(Path(folder) / f"{next(made)}.blocks", [(X, y)], rows_per_block=5)
            return blocks.X, blocks.y

        yield place


def replay(pair: Pair, tally: Tally, place: Callable[[Any, Any], tuple[Any, Any]] = in_memory) -> None:
    """Fit one data set, and then the other with the answers of the first. What is refused, on the way too, is refused
    by public figures, so that both are."""
    conversation = Conversation(pair, tally)
    with time_limit(SECONDS_A_PAIR, pair):
        with conversation.listens():
            refused = _refusal(partial(pair.fit, 0, place))
        with conversation.repeats():
            again = _refusal(partial(pair.fit, 1, place))
    assert refused == again, f"{refused!r}, but for the neighbour {again!r}: {pair}"
    if refused is None:
        tally.pairs += 1
    else:
        tally.refused[f"{pair.method}: {refused}"[:100]] += 1


def _refusal(fit: Callable[[], None]) -> str | None:
    try:
        fit()
    except (ValueError, TypeError) as refusal:
        return str(refusal)
    return None


def compile_kernels() -> None:
    """Outside of any time limit."""
    rng = np.random.default_rng(0)
    X, y = sp.csr_array(rng.standard_normal((12, 3))), np.arange(12) % 2
    method = FrankWolfe(n_iter=2, noise="selection", engine="incremental")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        SparseClassifier(1.0, 1e-6, method=method, bounds=Bounds(row_l2=1.0), random_state=0).fit(X, y)


def main() -> int:
    """Draw pairs for some seconds, of all methods in turn, one in eight of them from disk."""
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    methods = sys.argv[3].split(";") if len(sys.argv) > 3 else list(METHODS)
    compile_kernels()
    tally, number, end = Tally(), 0, time.monotonic() + seconds
    with in_folders() as on_disk:
        while time.monotonic() < end:
            pair = draw_pair(np.random.default_rng([seed, number]), methods[number % len(methods)], (seed, number))
            try:
                replay(pair, tally, on_disk if number % 8 == 7 else in_memory)
            except AssertionError as failure:
                tally.violations.append(str(failure))
            number += 1
    print(tally)
    for refusal, count in tally.refused.most_common(20):
        print(f"  refused {count}: {refusal}")
    for violation in tally.violations[:20]:
        print(f"  {violation}")
    return bool(tally.violations)


if __name__ == "__main__":
    sys.exit(main())
