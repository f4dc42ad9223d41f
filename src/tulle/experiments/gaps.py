"""DP-IHT (Wang and Xu, ICML 2019), figure 2: the optimality gap F(w) - F(w*) on Covertype against the number of rows.

F is the logistic loss of the first n rows (in a fixed random order; of norm 1, class 2 against the rest, no intercept)
plus penalty/2 |w|², and p is the first p columns. The first line of panels has no ball, as Algorithm 3 is printed.
"auto" minimises no penalty and is judged by F all the same, so the second line shows the first in logistic loss alone;
there it can be below w*. In the third, which is not the paper's, all weights lie in the unit ball: DP-IHT and hard
thresholding project each step, the weights that "auto" released are scaled down. w* is the best of all weights with k
non-zeros in the same set that were found by any cell: no gap is negative, but a better w* may exist. Trials differ in
noise alone.

Settings of the TOML file:

    rows       numbers of rows n, across
    usual      k non-zero weights, p columns and ε where another of them varies
    varied     the values of each in its own panel
    penalty    λ
    steps      T of DP-IHT, whose step is 1 / (1/4 + λ)
    clip       the largest slope of a row that DP-IHT keeps
    searched   in how many of the first rows good supports are looked for without privacy
    swapped    in how many rows at most columns of the best of them are swapped for others
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from tulle.datasets.readers import load_covertype
from tulle.estimators.bounds import Bounds
from tulle.estimators.sparse import SparseClassifier
from tulle.experiments.averages import averaged, by_place
from tulle.experiments.cells import Cell, Finished, noise_seed
from tulle.experiments.data_files import source_digest
from tulle.experiments.examples import Examples, record_warnings
from tulle.experiments.optimality import Objective, Support, longest_step, promising_supports, support_of, swapped
from tulle.experiments.varied import Setting, Varied, named
from tulle.methods.auto import Auto
from tulle.methods.hard_thresholding import HardThresholding
from tulle.reports.series import Panel, Role, Series
from tulle.trusted.events import FloatArray

if TYPE_CHECKING:
    from tulle.experiments.catalogue import Published

BEST = "best found"
DP_IHT, PRINTED, DEFAULT, AUTO = "DP-IHT", "DP-IHT, printed noise", "HardThresholding()", "auto"
ROLES: dict[str, Role] = {DP_IHT: "honest", PRINTED: "unsound", DEFAULT: "honest", AUTO: "honest"}
BALL, NO_BALL = "unit ball", "no ball"
# The lines of panels: whose weights, which of their values, what the difference to that of w* is called, and a title.
_LINES = (
    (NO_BALL, "objective", "optimality gap", "no ball, as printed"),
    (NO_BALL, "logistic", "excess logistic loss", "no ball, as printed"),
    (BALL, "objective", "optimality gap", "unit ball, not in the paper"),
)


@lru_cache(maxsize=1)
def covertype() -> Examples:
    """All rows of Covertype, read once in a process."""
    data = load_covertype()
    X = sp.csr_array(np.vstack([data.X_train, data.X_test]))
    return Examples(X, np.concatenate([data.y_train, data.y_test]))


@lru_cache(maxsize=1)
def covertype_digest() -> str:
    """A checksum of the files that `covertype` reads."""
    return source_digest(load_covertype.__name__)


@dataclass(frozen=True)
class Place:
    """Weights of which set, of how many non-zeros, for which columns and rows."""

    ball: str
    k: int
    p: int
    n: int

    @classmethod
    def of(cls, ball: str, setting: Setting, n: int) -> Place:
        return cls(ball, int(setting["k"]), int(setting["p"]), int(n))

    @property
    def name(self) -> str:
        return f"{self.ball}, {named({'k': self.k, 'p': self.p, 'n': self.n})}"

    @property
    def in_ball(self) -> bool:
        return self.ball == BALL

    def rows(self, n: int | None = None) -> Examples:
        """Its rows, or another number of them."""
        everything, n = covertype(), self.n if n is None else n
        if n > len(everything):
            raise ValueError(f"Covertype has {len(everything):,} rows, but {n:,} are requested; use fewer")
        return Examples(sp.csr_array(everything.X[:n, : self.p]), everything.y[:n])


# Cells of one place follow each other.
@lru_cache(maxsize=1)
def _objective(place: Place, penalty: float) -> Objective:
    return Objective.on(place.rows(), penalty, place.in_ball)


@dataclass(frozen=True, eq=False)
class Gaps:
    """F of every method in every place, budget and trial, and of the best weights found: a task of the runner."""

    of: Published

    # --- as a task of the runner ---

    def cells(self) -> list[Cell]:
        """The search without privacy of each place, and the private fits there."""
        found = []
        for place, epsilons in self._places().items():
            found.append(Cell(place.name, BEST, None, 0))
            found += [
                Cell(place.name, method, epsilon, trial)
                for trial in range(self.of.trials)
                for epsilon in epsilons
                for method in ROLES
            ]
        return found

    def fingerprint(self) -> dict[str, Any]:
        return {"name": self.of.name}

    def depends(self, cell: Cell) -> dict[str, Any]:
        used = {BEST: ("penalty", "steps", "searched", "swapped"), DP_IHT: ("penalty", "steps", "clip")}
        used[PRINTED] = used[DP_IHT]
        chosen = {name: self.of.settings[name] for name in used.get(cell.method, ("penalty",))}
        return {**chosen, "delta": self.of.delta}

    def files_digest(self, cell: Cell) -> str:
        return covertype_digest()

    def sources(self, cell: Cell) -> tuple[str, ...]:
        return (__name__,)

    def run(self, cell: Cell) -> dict[str, Any]:
        place = next(place for place in self._places() if place.name == cell.data)
        objective = _objective(place, self._penalty)
        if cell.method == BEST:
            return _values(objective, objective.best(self._candidates(place)))
        model = SparseClassifier(
            cell.epsilon,
            self.of.delta,
            n_nonzero=place.k,
            method=self._method(cell.method, place),
            bounds=Bounds(normalise=True),
            calibration="published" if cell.method == PRINTED else "rigorous",
            fit_intercept=False,
            random_state=noise_seed(0, cell),
        )
        rows = place.rows()
        with record_warnings() as warned:
            model.fit(rows.X, rows.y)
        w = objective.scaled_in(model.coef_.ravel())
        refitted = _values(objective, objective.minimiser(support_of(w)))
        return {
            **_values(objective, w),
            **{f"refit {name}": value for name, value in refitted.items()},
            "proved": model.privacy_.epsilon,
            "warnings": warned,
        }

    def _method(self, name: str, place: Place) -> HardThresholding | Auto:
        if name == AUTO:
            return Auto()
        common: dict[str, Any] = {"penalty": self._penalty, "ball": 1.0 if place.in_ball else None}
        if name == DEFAULT:
            return HardThresholding(**common)
        return HardThresholding(
            self.of.settings["steps"],
            longest_step(self._penalty),
            clip=self.of.settings["clip"],
            noise="gaussian",
            published_rule="ldp",
            **common,
        )

    def _candidates(self, place: Place) -> set[Support]:
        """Supports that are good without privacy."""
        found: set[Support] = set()
        for n in self.of.settings["searched"]:
            found |= promising_supports(place.rows(n), place.k, self._penalty, self.of.settings["steps"], place.in_ball)
        few = place.rows(min(place.n, self.of.settings["swapped"]))
        objective = Objective.on(few, self._penalty, place.in_ball)
        return found | {support_of(swapped(objective, objective.best(found)))}

    @property
    def _penalty(self) -> float:
        return float(self.of.settings["penalty"])

    @property
    def _varied(self) -> Varied:
        return Varied(self.of.settings["usual"], self.of.settings["varied"])

    def _places(self) -> dict[Place, list[float]]:
        """All of them, and the ε of each."""
        found: dict[Place, list[float]] = {}
        for n in self.of.settings["rows"]:
            for ball in (BALL, NO_BALL):
                for setting in self._varied.settings():
                    found.setdefault(Place.of(ball, setting, n), []).append(setting["ε"])
        return found

    # --- the answer ---

    def panels(self, finished: Sequence[Finished]) -> tuple[Panel, ...]:
        """Rows across, one panel for each line and each quantity that varies."""
        done, least = by_place(finished), _least(finished)
        found = []
        for ball, value, words, line in _LINES:
            for title, settings in self._varied.panels():
                series = []
                for special, setting in settings.items():
                    for method, role in ROLES.items():
                        points = []
                        for n in self.of.settings["rows"]:
                            data = Place.of(ball, setting, n).name
                            here = done.get((data, method, setting["ε"]))
                            if here and data in least:
                                above = [float(one.values[value]) - least[data][value] for one in here]
                                points.append(averaged(n, above, role, here))
                        if points:
                            series.append(Series(f"{method}, {special}", role, tuple(points)))
                name = f"{line}; {title}"
                # A logistic loss can be below that of w*, which has the least F.
                found.append(Panel(name, "rows n", words, tuple(series), log_x=True, log_y=value == "objective"))
        return tuple(found)


def _values(objective: Objective, w: FloatArray) -> dict[str, float]:
    return {"objective": objective.value(w), "logistic": objective.logistic(w), "nonzero": len(support_of(w))}


def _least(finished: Sequence[Finished]) -> dict[str, Mapping[str, float]]:
    """The values of the best weights that any cell found, by data; none where the search itself failed."""
    found: dict[str, list[dict[str, float]]] = {}
    searched = {one.cell.data for one in finished if one.cell.method == BEST and not one.failed}
    for one in finished:
        if one.cell.data in searched and not one.failed:
            for prefix in ("", "refit "):
                if f"{prefix}objective" in one.values:
                    values = {name: float(one.values[f"{prefix}{name}"]) for name in ("objective", "logistic")}
                    found.setdefault(one.cell.data, []).append(values)
    return {data: min(values, key=lambda one: one["objective"]) for data, values in found.items()}
