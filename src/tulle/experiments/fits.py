"""Models fitted to data: every line of a table on every panel, budget and trial.

Lines with `tune` have their settings chosen as the papers chose them: by cross-validation on the private rows, which no
budget pays for. Tables call them oracle-tuned. Settings are chosen once for a panel, line and ε, on the training rows
of the first trial, and kept for all trials; to save time only some of the five folds are judged by.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from tulle import datasets
from tulle.datasets.packaged import load_packaged, packaged_version
from tulle.experiments.averages import Places, averaged, by_place
from tulle.experiments.cells import Cell, Finished, data_seed, noise_seed, seed_from
from tulle.experiments.data_files import source_digest
from tulle.experiments.problems import FOLDS, Problem, problem_of
from tulle.experiments.trial import NULL, SCIKIT_LEARN, run_trial
from tulle.methods import METHODS
from tulle.reports.series import Panel, Point, Role, Series

if TYPE_CHECKING:
    from tulle.experiments.catalogue import Data, Line, Published

_SEED = 0
# Scores on other data count from here on: an error of 0 on few rows is not infinitely better than one.
_SMALLEST_SCORE = 1e-4
Choice = tuple[str, str, float]
"""Panel, line and ε."""


@dataclass(frozen=True, eq=False)
class Fits:
    """A table or figure of fits: a task of the runner.

    Attributes
    ----------
    of : Published
    chosen : mapping
        Settings of tuned lines, by panel, line and ε.
    """

    of: Published
    chosen: Mapping[Choice, Mapping[str, Any]] = field(default_factory=dict)

    # --- as a task of the runner ---

    def cells(self) -> list[Cell]:
        """Panel by panel, so that a data set is read once, and trial by trial within."""
        return [
            Cell(panel.name, line.name, epsilon, trial)
            for panel in self.of.data
            for trial in range(self.of.trials)
            for line in self._lines(panel)
            if line.trials is None or trial < line.trials
            if trial == 0 or not (line.method == SCIKIT_LEARN and panel.is_fixed)  # nothing random about it: once
            for epsilon in self._budgets(panel, line)
        ]

    def fingerprint(self) -> dict[str, Any]:
        return {"name": self.of.name}

    def depends(self, cell: Cell) -> dict[str, Any]:
        panel, line = self._place(cell)
        return {
            "metric": self._metric(panel),
            "delta": panel.delta or self.of.delta,
            "seed": _SEED,
            "panel": panel.measured(),
            "line": line.measured(),
            "tuned": self._tuned(cell),
            **({"measures": self._measures(panel)} if self._measures(panel) else {}),
        }

    def files_digest(self, cell: Cell) -> str:
        panel, _ = self._place(cell)
        if panel.source == load_packaged.__name__:
            return packaged_version()
        if not panel.source.startswith("load_"):
            return ""
        if panel.source not in self._digests:
            self._digests[panel.source] = source_digest(panel.source)
        return self._digests[panel.source]

    def sources(self, cell: Cell) -> tuple[str, ...]:
        panel, line = self._place(cell)
        return (
            data_seed.__module__,
            run_trial.__module__,
            getattr(datasets, panel.source).__module__,
            *((METHODS[line.method].__module__,) if line.method in METHODS else ()),
        )

    def run(self, cell: Cell) -> dict[str, Any]:
        panel, line = self._place(cell)
        problem = self.problem(panel, cell)
        if line.public_rows:
            # In each trial other rows, and the same for every budget.
            problem = problem.with_public(line.public_rows, seed_from(_SEED, "public", cell.data, cell.trial))
        return self._trial(
            panel, line, self._tuned(cell), problem, cell, self._metric(panel), measures=self._measures(panel)
        )

    def _trial(
        self,
        panel: Data,
        line: Line,
        tuned: Mapping[str, Any],
        problem: Problem,
        cell: Cell,
        metric: str,
        *,
        measures: Sequence[str] = (),
    ) -> dict[str, Any]:
        return run_trial(
            panel,
            line,
            tuned,
            problem,
            epsilon=cell.epsilon,
            delta=panel.delta or self.of.delta,
            metric=metric,
            seed=noise_seed(_SEED, cell),
            measures=measures,
        )

    def problem(self, panel: Data, cell: Cell) -> Problem:
        problem = problem_of(panel, cell.trial, data_seed(_SEED, cell))
        narrow(problem.train.X)
        return problem

    def _metric(self, panel: Data) -> str:
        return panel.metric or self.of.metric

    def _measures(self, panel: Data) -> Sequence[str]:
        return self.of.measures if panel.task == "classification" else ()

    def _place(self, cell: Cell) -> tuple[Data, Line]:
        panel = next(panel for panel in self.of.data if panel.name == cell.data)
        return panel, next(line for line in self.of.lines if line.name == cell.method)

    def _lines(self, panel: Data) -> list[Line]:
        return [
            line
            for line in self.of.lines
            if (not line.only or panel.task == line.only) and (not line.data or panel.name in line.data)
            if not panel.lines or line.name in panel.lines
        ]

    def _budgets(self, panel: Data, line: Line) -> Sequence[float | None]:
        if not line.private:
            return (None,)
        return [epsilon for epsilon in panel.epsilons if not line.epsilons or epsilon in line.epsilons]

    def _tuned(self, cell: Cell) -> dict[str, Any]:
        return {} if cell.epsilon is None else dict(self.chosen.get((cell.data, cell.method, cell.epsilon), {}))

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {}

    def search(self) -> Tuning:
        """The fits by which the settings of tuned lines are chosen."""
        return Tuning(self)

    def with_choices(self, finished: Sequence[Finished]) -> Fits:
        """This task with the settings that a search chooses."""
        return replace(self, chosen=self.search().best(finished))

    def search_of(self, cell: Cell) -> tuple[str, str] | None:
        """The data and line of the search that chooses the settings of a cell; None where none does.

        Settings that are chosen on other data have one search for all data, "".
        """
        line = self._place(cell)[1]
        return (cell.data if line.tuned_on == "own data" else "", line.name) if line.tune else None

    def searched(self, name: str) -> tuple[list[Mapping[str, Sequence[Any]]], bool]:
        """What the settings of a line were chosen from, and whether that is the paper's."""
        line = next(line for line in self.of.lines if line.name == name)
        return line.grids(), line.grid == "printed"

    # --- the answer ---

    def panels(self, finished: Sequence[Finished]) -> tuple[Panel, ...]:
        """ε across, one panel a data set; the paper's figures in a panel of their own where its data is another."""
        done = by_place(finished)
        found = []
        for panel in self.of.data:
            series: list[Series] = []
            printed = panel.printed_series()
            if panel.printed_apart:
                found.append(Panel(panel.printed_apart, "ε", self._metric(panel), tuple(printed.values())))
            for line in self._lines(panel):
                if line.printed in printed and not panel.printed_apart:
                    series.append(_at(printed[line.printed], panel.epsilons))
                if points := tuple(self._points(done, panel, line)):
                    series.append(Series(line.name, line.role, points))
            # From the best errors to those of guessing there is more than a linear axis shows.
            logarithmic = self._metric(panel) in ("test error", "relative error")
            found.append(Panel(panel.name, "ε", self._metric(panel), tuple(series), log_y=logarithmic))
            found += [one for measure in self._measures(panel) if (one := self._measured(done, panel, measure)).series]
            if self.of.times:
                found.append(self._times(done, panel))
        return tuple(found)

    def _points(self, done: Places, panel: Data, line: Line, score: str = "score") -> Iterable[Point]:
        for epsilon in panel.epsilons:
            here = done.get((panel.name, line.name, epsilon if line.private else None))
            if here and all(one.values.get(score) is not None for one in here):
                yield averaged(epsilon, [float(one.values[score]) for one in here], line.role, here)

    def _measured(self, done: Places, panel: Data, measure: str) -> Panel:
        """Another score of the same fits; lines without it, such as the null model, are left out."""
        lines = [(line, tuple(self._points(done, panel, line, measure))) for line in self._lines(panel)]
        series = tuple(Series(line.name, line.role, points) for line, points in lines if points)
        title = {"auc": "AUC", "log_loss": "log-loss"}.get(measure, measure)
        return Panel(f"{panel.name}: {title}", "ε", title, series)

    def _times(self, done: Places, panel: Data) -> Panel:
        """Medians, since the first fit in a process reads and compiles what others find ready."""

        def typical(line: Line, epsilon: float | None) -> float:
            return median([one.seconds for one in done.get((panel.name, line.name, epsilon), ())] or [math.nan])

        beside = next(line for line in self.of.lines if line.method == SCIKIT_LEARN)
        compared = (panel.name, beside.name, None) in done
        unit = typical(beside, None) if compared else 1.0
        series = []
        for line in self._lines(panel):
            if (panel.name, line.name, panel.epsilons[0] if line.private else None) in done and line.method != NULL:
                places = [(epsilon, typical(line, epsilon if line.private else None)) for epsilon in panel.epsilons]
                points = (Point(epsilon, took / unit, None, f"{took:.2g} s") for epsilon, took in places)
                series.append(Series(line.name, line.role, tuple(points)))
        label = "scikit-learn's ℓ1 fit = 1" if compared else "seconds"
        return Panel(f"{panel.name}: time of a fit", "ε", label, tuple(series), log_y=True)


def narrow(X: Any) -> None:
    """Make the indices of sparse rows 32 bits wide where they fit, in place: liblinear takes no others."""
    if sp.issparse(X) and X.indices.dtype != np.int32 and X.nnz < 2**31:
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)


def _at(series: Series, places: Sequence[float]) -> Series:
    return replace(series, points=tuple(point for point in series.points if point.x in places))


@dataclass(frozen=True, eq=False)
class Curves(Fits):
    """The same fits, drawn against how often they read the rows, and how often they threshold weights."""

    def panels(self, finished: Sequence[Finished]) -> tuple[Panel, ...]:
        """Two panels for each data set and ε; one series for each line that sweeps over its passes."""
        done = by_place(finished)
        found = []
        for panel, epsilon in [(one, epsilon) for one in self.of.data for epsilon in one.epsilons]:
            for value, label in (("passes", "passes over the rows"), ("thresholds", "hard-thresholding operations")):
                series: dict[str, tuple[Role, list[Point]]] = {}
                for line in self._lines(panel):
                    if here := done.get((panel.name, line.name, epsilon if line.private else None)):
                        at = fmean(float(one.values[value]) for one in here)
                        point = averaged(at, [float(one.values["score"]) for one in here], line.role, here)
                        series.setdefault(line.curve, (line.role, []))[1].append(point)
                lines = tuple(Series(name, role, tuple(points)) for name, (role, points) in series.items())
                found.append(Panel(f"{panel.name}, ε = {epsilon:g}", label, self._metric(panel), lines, log_x=True))
        return tuple(found)


# --- tuning as the papers did it -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Tuning:
    """Every setting of every tuned line, judged by cross-validation on the private rows: a task of the runner.

    What this learns from the rows is not billed. A trial is a fold.
    """

    fits: Fits

    def cells(self) -> list[Cell]:
        of = self.fits.of
        return [
            Cell(panel.name, self._named(line, tried), epsilon, fold)
            for panel in of.data
            for fold in range(FOLDS)
            for line in self.fits._lines(panel)
            if fold < (line.tuning_folds or of.tuning_folds)
            for tried in settings_of(line)
            for epsilon in self.fits._budgets(panel, line)
        ]

    def fingerprint(self) -> dict[str, Any]:
        return {"name": f"{self.fits.of.name}, tuning"}

    def depends(self, cell: Cell) -> dict[str, Any]:
        place, tried = self._place(cell)
        return {**self.fits.depends(place), "tried": tried, "metric": self._metric(place)}

    def files_digest(self, cell: Cell) -> str:
        return self.fits.files_digest(self._place(cell)[0])

    def sources(self, cell: Cell) -> tuple[str, ...]:
        return self.fits.sources(self._place(cell)[0])

    def run(self, cell: Cell) -> dict[str, Any]:
        place, tried = self._place(cell)
        panel, line = self.fits._place(place)
        first = replace(place, trial=0)
        problem = self.fits.problem(panel, first).held_out(cell.trial)
        # Another noise than that of any trial, and the same for all settings.
        other = replace(place, trial=-1 - cell.trial)
        return self.fits._trial(panel, line, tried, problem, other, self._metric(place))

    def best(self, finished: Sequence[Finished]) -> dict[Choice, dict[str, Any]]:
        """The settings with the least mean over folds; a setting that failed is not among them."""
        scores: dict[Choice, dict[str, list[float]]] = {}
        for one in finished:
            place, tried = self._place(one.cell)
            assert place.epsilon is not None
            key = (place.data, place.method, place.epsilon)
            score = math.inf if one.failed else float(one.values["score"])
            found = scores.setdefault(key, {}).setdefault(json.dumps(tried, sort_keys=True), [])
            found.append(math.inf if math.isnan(score) else score)
        return {key: json.loads(self._best(key, scores)) for key in scores}

    def search_of(self, cell: Cell) -> tuple[str, str] | None:
        """The data and line of the search that a cell is part of, as `Fits.search_of` has them."""
        return self.fits.search_of(self._place(cell)[0])

    def _best(self, key: Choice, scores: Mapping[Choice, Mapping[str, Sequence[float]]]) -> str:
        """The best setting on the data itself, or on all other data of the task at the same ε.

        On other data the mean is of log(score / best score there), since data sets differ in how hard they are. Data
        with the same rows, such as the same digits with other labels, are not other data.
        """
        data, name, epsilon = key
        line = next(line for line in self.fits.of.lines if line.name == name)
        if line.tuned_on == "own data":
            return min(scores[key], key=lambda text: fmean(scores[key][text]))
        panels = {panel.name: panel for panel in self.fits.of.data}

        def is_other(panel: Data) -> bool:
            same = panel.same_rows and panel.same_rows == panels[data].same_rows
            return panel.name != data and panel.task == panels[data].task and not same

        others = [
            {text: max(fmean(values), _SMALLEST_SCORE) for text, values in found.items()}
            for (other, method, at), found in scores.items()
            if is_other(panels[other]) and method == name and at == epsilon
        ]
        if not others:
            raise ValueError(f"{self.fits.of.name}: {name} has no other data to be tuned on at ε = {epsilon:g}")
        return min(scores[key], key=lambda text: fmean(math.log(means[text] / min(means.values())) for means in others))

    def _metric(self, place: Cell) -> str:
        """The table's own where it can be had from private rows."""
        panel, _ = self.fits._place(place)
        metric = self.fits._metric(panel)
        if metric not in ("relative error", "objective"):
            return metric
        return "logistic loss" if panel.task == "classification" else "squared error"

    @staticmethod
    def _named(line: Line, tried: Mapping[str, Any]) -> str:
        return f"{line.name} | {json.dumps(dict(tried), sort_keys=True)}"

    @staticmethod
    def _place(cell: Cell) -> tuple[Cell, dict[str, Any]]:
        name, tried = cell.method.split(" | ", 1)
        return replace(cell, method=name), json.loads(tried)


def settings_of(line: Line) -> list[dict[str, Any]]:
    """Every combination of the values that a line's settings are chosen from, and, unless the grid is a paper's, the
    defaults; [] where none are chosen.
    """
    tried = [dict(zip(grid, values)) for grid in line.grids() for values in product(*grid.values())]
    return [{}, *tried] if tried and line.grid == "ours" else tried
