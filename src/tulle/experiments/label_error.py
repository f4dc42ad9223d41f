"""Label-LDP-IHT (Wang and Xu, ICML 2019), figure 1: error against the number of users whose labels alone are private.

Settings of the TOML file:

    users    numbers of users n, across
    usual    p features, s* non-zero weights and ε where another of them varies
    varied   the values of each in its own panel
    noise    labels are <x, w*> plus noise that is uniform on [-noise, noise]
    steps    η of the paper's algorithm, which takes T = ⌈log(n/p)⌉ steps, at least one, and projects onto the unit ball
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tulle.datasets.simulated import LinearProblem
from tulle.estimators.bounds import Bounds
from tulle.experiments.averages import averaged, by_place
from tulle.experiments.cells import Cell, Finished, data_seed, noise_seed
from tulle.experiments.examples import record_warnings
from tulle.experiments.varied import Setting, Varied, named
from tulle.local.estimators.label_private import LabelPrivateSparseRegressor
from tulle.reports.series import Panel, Series

if TYPE_CHECKING:
    from tulle.experiments.catalogue import Published

CHOSEN, GAUSSIAN = "chosen randomiser", "Gaussian, the same fit after"
# The fit is as printed. The noise is the least that proves ε: the constant that the paper prints was not at hand.
PRINTED, FROM_ZERO = "Gaussian, label-LDP-IHT as printed", "Gaussian, label-LDP-IHT from 0"
STARTS = {PRINTED: "normal", FROM_ZERO: "zero"}


@dataclass(frozen=True)
class Study:
    """So many users with p features each, of which s* have a weight."""

    n: int
    p: int
    s: int

    @classmethod
    def of(cls, setting: Setting, n: int) -> Study:
        return cls(int(n), int(setting["p"]), int(setting["s*"]))

    @property
    def name(self) -> str:
        return named({"p": self.p, "s*": self.s, "n": self.n})


# Cells of one trial follow each other.
@lru_cache(maxsize=1)
def label_problem(study: Study, noise: float, seed: int | tuple[int, ...]) -> LinearProblem:
    """Features uniform on {-1, 1}; s* weights uniform on [0, 1]; labels with noise uniform on [-noise, noise]."""
    rng = np.random.default_rng(seed)
    X = 2.0 * rng.integers(0, 2, (study.n, study.p), dtype=np.int8).astype(np.float64) - 1.0
    weights = np.zeros(study.p)
    weights[rng.choice(study.p, study.s, replace=False)] = rng.uniform(0, 1, study.s)
    return LinearProblem(X, X @ weights + rng.uniform(-noise, noise, study.n), weights)


@dataclass(frozen=True, eq=False)
class Labels:
    """The relative error of every method in every setting, number of users and trial: a task of the runner."""

    of: Published

    # --- as a task of the runner ---

    def cells(self) -> list[Cell]:
        """Data set by data set and trial by trial, since drawing one takes as long as a fit."""
        return [
            Cell(study.name, method, epsilon, trial)
            for study, epsilons in self._studies().items()
            for trial in range(self.of.trials)
            for epsilon in epsilons
            for method in self._methods()
        ]

    def fingerprint(self) -> dict[str, Any]:
        return {"name": self.of.name}

    def depends(self, cell: Cell) -> dict[str, Any]:
        return {"delta": self.of.delta, "noise": self.of.settings["noise"], **self._methods()[cell.method]}

    def files_digest(self, cell: Cell) -> str:
        return ""

    def sources(self, cell: Cell) -> tuple[str, ...]:
        return (__name__,)

    def run(self, cell: Cell) -> dict[str, Any]:
        study = next(study for study in self._studies() if study.name == cell.data)
        X, y, weights = label_problem(study, self.of.settings["noise"], data_seed(0, cell))
        how = self._methods()[cell.method]
        if "step" in how:
            how = {**how, "refit": False, "n_iter": max(1, math.ceil(math.log(study.n / study.p)))}
        model = LabelPrivateSparseRegressor(
            cell.epsilon,
            self.of.delta,
            n_nonzero=study.s,
            bounds=Bounds(label=math.sqrt(study.s) + 1),
            fit_intercept=False,
            random_state=noise_seed(0, cell),
            **how,
        )
        with record_warnings() as warned:
            model.fit(X, y)
        return {
            "score": float(np.linalg.norm(model.coef_ - weights) / np.linalg.norm(weights)),
            "proved": model.privacy_.epsilon,
            "warnings": warned,
        }

    @property
    def _varied(self) -> Varied:
        return Varied(self.of.settings["usual"], self.of.settings["varied"])

    def _methods(self) -> dict[str, dict[str, Any]]:
        """What differs between the methods."""
        steps: Sequence[float] = self.of.settings["steps"]
        printed = {
            f"{name}, η = {step:g}": {"randomiser": "gaussian", "step": step, "ball": 1.0, "start": start}
            for name, start in STARTS.items()
            for step in steps
        }
        return {CHOSEN: {"randomiser": "auto"}, GAUSSIAN: {"randomiser": "gaussian"}, **printed}

    def _studies(self) -> dict[Study, list[float]]:
        """All of them, and the ε of each."""
        found: dict[Study, list[float]] = {}
        for n in self.of.settings["users"]:
            for setting in self._varied.settings():
                found.setdefault(Study.of(setting, n), []).append(setting["ε"])
        return found

    # --- the answer ---

    def panels(self, finished: Sequence[Finished]) -> tuple[Panel, ...]:
        """Users across, one panel for each quantity that varies; all noise is sound."""
        done = by_place(finished)
        found = []
        for title, settings in self._varied.panels():
            series = []
            for words, setting in settings.items():
                for method in self._methods():
                    points = []
                    for n in self.of.settings["users"]:
                        if here := done.get((Study.of(setting, n).name, method, setting["ε"])):
                            points.append(averaged(n, [float(one.values["score"]) for one in here], "honest", here))
                    if points:
                        series.append(Series(f"{method}, {words}", "honest", tuple(points)))
            found.append(Panel(title, "users n", "relative error", tuple(series), log_x=True, log_y=True))
        return tuple(found)
