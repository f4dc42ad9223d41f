"""Tables and figures of papers, run again: what the paper prints, its own noise with its true ε, and sound noise.

One TOML file in `published/` is one table; the runner and the table on the screen are the same for all. A file has a
`title`, a `paper`, `notes`, and a `kind`:

    kind = "fits"     models fitted by `lines` (method, parameters, calibration) to each of `data`, scored by `metric`
    kind = "noise"    what the printed noise of the papers on batches proves

`printed` of data names a CSV file (method, epsilon, mean, std) beside it with the paper's numbers; `fast` says what is
left with ``--fast``; `substitute` must say so where the data is not the paper's; `get` where to get data from.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tulle import datasets
from tulle.bounds import Bounds
from tulle.estimators import SparseClassifier, SparseRegressor
from tulle.experiments.cells import Cell, Finished, data_seed, noise_seed
from tulle.experiments.comparison import (
    Examples,
    loss_of,
    markdown,
    mean_and_error,
    refuse_open_ledgers,
    summarised_warnings,
    told,
    write_json,
)
from tulle.experiments.runner import run_cells, write_text
from tulle.methods import METHODS
from tulle.methods.published_stochastic import TrueEpsilon, true_epsilon_table
from tulle.report import rounded_up

FORMAT = "tulle reproduction 1"
_FOLDER = resources.files("tulle.experiments") / "published"
# Of the splits and the noise: published tables have no use for others.
_SEED = 0


class MissingDataError(FileNotFoundError):
    """The data of an experiment is not there; the message says where to get it."""


# --- what a TOML file says -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """One panel of a figure, or the data of a table.

    Attributes
    ----------
    name : str
    source : str
        A function of `tulle.datasets`: one that draws data from a seed, or a loader of real data ("load_...").
    task : {"classification", "regression"}
    epsilons : tuple of float
    arguments : mapping
        Of the source.
    n_nonzero : int or None
    bounds : mapping
        Of `tulle.Bounds`.
    printed : str
        The file with the paper's numbers; "" where it prints none.
    """

    name: str
    source: str
    task: Literal["classification", "regression"]
    epsilons: tuple[float, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    n_nonzero: int | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)
    printed: str = ""

    def printed_figures(self) -> dict[tuple[str, float], str]:
        """What the paper prints, by its names of methods and ε."""
        if not self.printed:
            return {}
        rows = csv.DictReader((_FOLDER / self.printed).read_text(encoding="utf-8").splitlines())
        return {
            (row["method"], float(row["epsilon"])): row["mean"] + (f" ± {row['std']}" if row["std"] else "")
            for row in rows
        }


@dataclass(frozen=True)
class Line:
    """One line of a table: a method with its parameters, and whose noise it draws.

    Attributes
    ----------
    name : str
    method : str
        A name of `tulle.methods.METHODS`.
    parameters : mapping
        Of the method. ``features = {uniform = [low, high]}`` are public features from a distribution.
    calibration : {"rigorous", "published"}
    private : bool
    printed : str
        The line's name in the paper's own numbers; "" where they have none.
    """

    name: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    calibration: Literal["rigorous", "published"] = "rigorous"
    private: bool = True
    printed: str = ""

    def method_object(self) -> Any:
        from tulle.public_features import UniformFeatures

        parameters = dict(self.parameters)
        if "features" in parameters:
            parameters["features"] = UniformFeatures(*parameters["features"]["uniform"])
        return METHODS[self.method](**parameters)


@dataclass(frozen=True)
class Published:
    """A table or a figure of a paper, as its TOML file states it."""

    name: str
    title: str
    paper: str
    kind: Literal["fits", "noise"]
    notes: tuple[str, ...] = ()
    metric: Literal["relative error", "test error", "1 − R²"] = "relative error"
    delta: float = 1e-5
    trials: int = 1
    data: tuple[Data, ...] = ()
    lines: tuple[Line, ...] = ()
    substitute: str = ""
    get: str = ""
    fast: Mapping[str, Any] = field(default_factory=dict)

    def faster(self) -> Published:
        """The part of it that takes little time, as its file says."""
        wanted = self.fast.get("data", [panel.name for panel in self.data])
        budgets = self.fast.get("epsilons")
        panels = tuple(
            replace(panel, epsilons=tuple(e for e in panel.epsilons if budgets is None or e in budgets))
            for panel in self.data
            if panel.name in wanted
        )
        return replace(self, data=panels, trials=self.fast.get("trials", self.trials))


def names() -> list[str]:
    """The names of all tables and figures."""
    return sorted(Path(file.name).stem for file in _FOLDER.iterdir() if file.name.endswith(".toml"))


def published(name: str) -> Published:
    """The table or figure of that name."""
    if name not in names():
        raise ValueError(f"there is no {name!r}; choose among {', '.join(names())}")
    return stated(name, (_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def stated(name: str, text: str) -> Published:
    """What the text of a TOML file states; an error where it says something unknown."""
    says = tomllib.loads(text)
    says["data"] = tuple(
        Data(**{**panel, "epsilons": tuple(map(float, panel["epsilons"]))}) for panel in says.get("data", ())
    )
    says["lines"] = tuple(Line(**line) for line in says.get("lines", ()))
    says["notes"] = tuple(says.get("notes", ()))
    return Published(name=name, **says)


# --- models fitted to data -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Rows to train on, and what is known to judge by: test rows, or the true weights."""

    train: Examples
    test: Examples | None
    weights: Any = None


@lru_cache(maxsize=1)
def _drawn(source: str, arguments: str, seed: int) -> Problem:
    """A synthetic data set; kept, since cells of one trial follow each other."""
    problem = getattr(datasets, source)(**json.loads(arguments), seed=seed)
    return Problem(Examples(problem.X, problem.y), None, problem.weights)


@dataclass(frozen=True, eq=False)
class Fits:
    """Every line on every panel, budget and trial: a task of the runner."""

    of: Published

    @property
    def _whole(self) -> Published:
        """All that its file states, where a part was chosen."""
        return published(self.of.name) if self.of.name in names() else self.of

    @cached_property
    def _loaded(self) -> dict[str, Problem]:
        """Real data, read once, here, and shared with the workers."""
        found = {}
        for panel in self._whole.data:
            if panel.source.startswith("load_"):
                try:
                    split = getattr(datasets, panel.source)(**panel.arguments)
                except FileNotFoundError as error:
                    raise MissingDataError(
                        f"{self.of.name} needs data that is not here ({error}): {self.of.get}"
                    ) from None
                found[panel.name] = Problem(
                    Examples(split.X_train, split.y_train), Examples(split.X_test, split.y_test)
                )
        return found

    def cells(self) -> list[Cell]:
        return [
            Cell(panel.name, line.name, epsilon, trial)
            for panel in self.of.data
            for trial in range(self.of.trials)
            for line in self.of.lines
            for epsilon in (panel.epsilons if line.private else (None,))
        ]

    def fingerprint(self) -> dict[str, Any]:
        """The whole of what its file states, not what is chosen of it: a fast run may go on as a full one."""
        whole = self._whole
        return {
            "name": whole.name,
            "metric": whole.metric,
            "delta": whole.delta,
            **{f"data {panel.name}": _without(asdict(panel), "epsilons") for panel in whole.data},
            **{f"line {line.name}": _without(asdict(line), "printed") for line in whole.lines},
            **{
                f"rows of {name}": [part.digest() for part in (problem.train, problem.test) if part is not None]
                for name, problem in self._loaded.items()
            },
        }

    def _problem(self, panel: Data, cell: Cell) -> Problem:
        if panel.name in self._loaded:
            return self._loaded[panel.name]
        return _drawn(panel.source, json.dumps(dict(panel.arguments), sort_keys=True), data_seed(_SEED, cell))

    def run(self, cell: Cell) -> dict[str, Any]:
        panel = next(panel for panel in self.of.data if panel.name == cell.data)
        line = next(line for line in self.of.lines if line.name == cell.method)
        problem = self._problem(panel, cell)
        model = (SparseClassifier if panel.task == "classification" else SparseRegressor)(
            cell.epsilon,
            self.of.delta,
            n_nonzero=panel.n_nonzero,
            method=line.method_object(),
            bounds=Bounds(**panel.bounds),
            calibration=line.calibration,
            fit_intercept=problem.weights is None,
            random_state=noise_seed(_SEED, cell),
        )
        with told() as warned:
            model.fit(problem.train.X, problem.train.y)
        return {
            "score": self._score(panel, problem, model),
            "proved": None if cell.epsilon is None else model.privacy_.epsilon,
            "nonzero": len(model.support_),
            "warnings": warned,
        }

    def _score(self, panel: Data, problem: Problem, model: Any) -> float:
        if self.of.metric == "relative error":
            distance = np.linalg.norm(model.coef_.ravel() - problem.weights)
            return float(distance / np.linalg.norm(problem.weights))
        assert problem.test is not None
        return loss_of(panel.task, problem.test.y, model.predict(problem.test.X))

    def table(self, finished: Sequence[Finished]) -> str:
        """Lines down, budgets across, one table a panel."""
        parts = []
        for panel in self.of.data:
            body: list[list[str]] = []
            printed = panel.printed_figures()
            for line in self.of.lines:
                if line.printed:
                    figures = [printed.get((line.printed, epsilon), "") for epsilon in panel.epsilons]
                    body.append([f"{line.printed}, paper", *figures])
                body.append([line.name, *(self._figure(finished, panel, line, e) for e in panel.epsilons)])
            header = [self.of.metric, *(f"ε = {epsilon:g}" for epsilon in panel.epsilons)]
            parts.append(f"{panel.name}, δ = {self.of.delta:g}\n\n{markdown(header, body)}")
        parts.append(
            f"Mean ± standard error of {self.of.trials} trials. “True ε” is what is proved, at the same δ, for the "
            "noise that the paper prints for the ε above; sound lines and auto keep the ε above."
        )
        return "\n\n".join(parts)

    def _figure(self, finished: Sequence[Finished], panel: Data, line: Line, epsilon: float) -> str:
        place = (panel.name, line.name, epsilon if line.private else None)
        here = [one for one in finished if (one.cell.data, one.cell.method, one.cell.epsilon) == place]
        done = [one.values for one in here if not one.failed]
        if not done:
            return f"failed ({here[0].failed})"
        mean, error = mean_and_error([float(values["score"]) for values in done])
        text = f"{mean:.4f} ± {error:.4f}"
        if not line.private:
            return text
        proved = max(float(values["proved"]) for values in done)
        if line.calibration == "rigorous" and proved <= epsilon * (1 + 1e-9):
            return text
        return f"{text} (true ε {'∞' if proved == float('inf') else rounded_up(proved, 3)})"


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


# --- what printed noise proves ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Noise:
    """What the printed noise of DP-SGD-HT and DP-SCSG-HT proves: a task of the runner. There is no chance in it."""

    of: Published

    @cached_property
    def _rows(self) -> dict[Cell, TrueEpsilon]:
        return {_noise_cell(row): row for row in true_epsilon_table()}

    def cells(self) -> list[Cell]:
        return list(self._rows)

    def fingerprint(self) -> dict[str, Any]:
        return {"name": self.of.name}

    def run(self, cell: Cell) -> dict[str, Any]:
        row = self._rows[cell]
        return {
            "batches": " / ".join(map(str, row.uses)),
            "noise": " / ".join(f"{noise:.3g}" for noise in row.noise),
            "fixed size": row.without_replacement,
            "Poisson": row.poisson,
            "failing": len(row.failed),
            "failing conditions": "; ".join(row.failed),
        }

    def table(self, finished: Sequence[Finished]) -> str:
        header = ["data", "method", "batches", "noise", "claim", "fixed size", "Poisson", "failing"]
        body = []
        for one in finished:
            claim = one.cell.epsilon or 0.0
            if one.failed:
                body.append([one.cell.data, one.cell.method, f"failed ({one.failed})", "", f"{claim:g}", "", "", ""])
                continue
            proved = [float(one.values[scheme]) for scheme in ("fixed size", "Poisson")]
            marked = [f"{'!' if epsilon > claim else ''}{rounded_up(epsilon, 3)}" for epsilon in proved]
            about = [str(one.values[name]) for name in ("batches", "noise")]
            body.append([one.cell.data, one.cell.method, *about, f"{claim:g}", *marked, str(one.values["failing"])])
        return markdown(header, body)


def _noise_cell(row: TrueEpsilon) -> Cell:
    size = " / ".join(map(str, row.batches))
    method = "DP-SGD-HT" if len(row.batches) == 1 else f"DP-SCSG-HT, {row.constants} constants"
    return Cell(f"{row.data}, {row.n_rows:,} rows, batch {size}", method, row.claim, 0)


# --- all together ----------------------------------------------------------------------------------------------------

_KINDS: dict[str, type[Fits] | type[Noise]] = {"fits": Fits, "noise": Noise}


def reproduce(
    of: Published,
    folder: str | Path,
    *,
    jobs: int | None = None,
    restart: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Run a published table or figure and write table.md and reproduction.json beside the runner's own files.

    Parameters
    ----------
    of : Published
    folder : path
    jobs, restart, progress
        As in `tulle.experiments.runner.run_cells`.

    Returns
    -------
    dict
        What reproduction.json holds: with `table`, the Markdown, and `failed`, the cells that failed.
    """
    refuse_open_ledgers("an experiment")
    task = _KINDS[of.kind](of)
    finished = run_cells(task, folder, jobs=jobs, restart=restart, progress=progress)
    parts = [f"# {of.title}", of.paper, *([f"**{of.substitute}**"] if of.substitute else []), task.table(finished)]
    remarks = [*of.notes, *summarised_warnings(finished)]
    parts.append("\n".join(f"- {remark}" for remark in remarks))
    values = {
        "format": FORMAT,
        "name": of.name,
        "title": of.title,
        "paper": of.paper,
        "substitute": of.substitute,
        "trials": of.trials,
        "cells": [asdict(one.cell) | _without(dict(one.values), "warnings") for one in finished if not one.failed],
        "failed": [asdict(one.cell) | {"reason": one.failed} for one in finished if one.failed],
        "table": "\n\n".join(parts) + "\n",
    }
    write_text(Path(folder) / "table.md", str(values["table"]))
    write_json(Path(folder) / "reproduction.json", values)
    return values
