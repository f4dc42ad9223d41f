"""Methods and budgets compared on one table, with test rows, trials and standard errors.

The fits draw noise from seeds, and scores are computed on the rows themselves. A comparison is for people who may see
the rows: nothing of it is for release, and no ledger is billed for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np

from tulle.accounting.calibration import default_delta
from tulle.estimators.bounds import Bounds
from tulle.estimators.request import FitRequest
from tulle.experiments.averages import mean_and_error
from tulle.experiments.cell_runner import run_cells, write_text
from tulle.experiments.cells import Cell, Finished, data_seed, noise_seed
from tulle.experiments.compared_models import (
    constant_model,
    count_nonzero,
    describe_object,
    fit_model,
    is_estimator,
    make_model,
    proved_epsilon,
    takes_budget,
    to_plain,
)
from tulle.experiments.comparison_metrics import ComparisonMetric
from tulle.experiments.comparison_table import budget_words, table
from tulle.experiments.examples import METRICS, Examples, digest_rows, judged, record_warnings
from tulle.files.number_text import finite
from tulle.ledgers.ledger import ledgers_are_open
from tulle.methods import METHODS, resolve_method
from tulle.methods.base import Method
from tulle.methods.loss_functions import resolve_loss
from tulle.reports.comparison_format import FORMAT
from tulle.reports.report import About
from tulle.transfer.public_knowledge import read_public
from tulle.trusted.plan import Budget

NOT_FOR_RELEASE = "Not for release: scores were computed on the rows themselves, without noise."
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
NULL_MODEL, NO_PRIVACY = "null model", "auto"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Every method at every budget, the fit without privacy and the null model, on the same splits.

    Attributes
    ----------
    name : str
        Of the data.
    rows : Examples
        To train on, and to test on where `test` is None.
    task : {"classification", "regression"}
    test : Examples or None
        Rows to test on; None sets a random share aside, another in each trial. Where rows have person ids, a person
        is on one side.
    methods : tuple of str
        Names of `tulle.methods.METHODS`, or of `given`.
    epsilons : tuple of float
        Each in (0, inf).
    trials : int
        At least 1.
    delta : float or None
        In [0, 1); None: min(1e-5, 1 / (10 training rows)).
    settings : mapping
        Other parameters of the estimator: bounds, n_nonzero, loss, fit_intercept.
    test_share : float
        In (0, 1).
    seed : int
        Splits and noise derive from it.
    public : array, sparse array or None
        Public rows for the methods that can use them; the others, and the fit without privacy, do without.
    given : mapping
        Method objects and estimators, by names that no method has. An estimator without a parameter epsilon is fitted
        once in each trial, and is not private.
    metrics : tuple of ComparisonMetric
        Scores besides the error.
    """

    name: str
    rows: Examples
    task: Literal["classification", "regression"]
    test: Examples | None = None
    methods: tuple[str, ...] = tuple(METHODS)
    epsilons: tuple[float, ...] = EPSILONS
    trials: int = 5
    delta: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    test_share: float = 0.3
    seed: int = 0
    public: Any = None
    given: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[ComparisonMetric, ...] = ()

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in METHODS and name not in self.given]
        if unknown:
            raise ValueError(f"method {unknown[0]!r} is unknown; choose among {', '.join(METHODS)}")
        for what, axis in (("methods", self.methods), ("epsilons", self.epsilons)):
            if not axis or len(set(axis)) < len(axis):
                raise ValueError(f"{what} must be listed at least once and each only once, got {list(axis)}")
        if self.trials < 1:
            raise ValueError(f"trials must be at least 1, got {self.trials}")
        if not 0 < self.test_share < 1:
            raise ValueError(f"the share of test rows must lie strictly between 0 and 1, got {self.test_share}")
        if self.test is not None and self.test.X.shape[1] != self.rows.X.shape[1]:
            raise ValueError(
                f"the test rows have {self.test.X.shape[1]} features and the rows of {self.name} have "
                f"{self.rows.X.shape[1]}; pass two files with the same columns"
            )
        if min(self.n_train - 1, self.n_test) < 1:
            raise ValueError(f"{len(self.rows)} rows are too few for training and test rows; use more rows")
        for epsilon in self.epsilons:
            Budget(epsilon, self._delta)  # refuses invalid budgets
        if self.public is not None:
            read_public(self.public, self.rows.X.shape[1])  # refuses rows that cannot be used

    @property
    def n_test(self) -> int:
        """Test rows; with person ids about as many."""
        return round(self.test_share * len(self.rows)) if self.test is None else len(self.test)

    @property
    def n_train(self) -> int:
        """Training rows; with person ids about as many."""
        return len(self.rows) - (self.n_test if self.test is None else 0)

    @property
    def _delta(self) -> float:
        return default_delta(self.n_train) if self.delta is None else self.delta

    @property
    def metric(self) -> str:
        return METRICS[self.task]

    def able(self) -> tuple[Comparison, dict[str, str]]:
        """This comparison without the methods that cannot fit such a model at all, and why those cannot."""
        left_out: dict[str, str] = {}
        for name in self.methods:
            try:
                self._plan(self._object(name))
            except ValueError as error:
                left_out[name] = str(error)
        kept = tuple(name for name in self.methods if name not in left_out)
        if not kept:
            raise ValueError(next(iter(left_out.values())))
        return replace(self, methods=kept), left_out

    def _object(self, name: str) -> Any:
        """The method or the estimator behind a name."""
        return self.given[name] if name in self.given else resolve_method(name)

    def _plan(self, method: Method) -> None:
        """Raise where a method cannot fit such a model; of an estimator that is seen when it is fitted."""
        if is_estimator(method):
            return
        kind = "logistic" if self.task == "classification" else "squared"
        n_classes = len(np.unique(self.rows.y)) if self.task == "classification" else 2
        request = FitRequest(
            what=type(method).__name__,
            budget=Budget(self.epsilons[0], self._delta),
            n_nonzero=self.settings.get("n_nonzero"),
            method=method,
            loss=resolve_loss(self.settings.get("loss", kind), self.task, n_classes),
            bounds=self.settings.get("bounds") or Bounds(),
            calibration="rigorous",
            fit_intercept=self.settings.get("fit_intercept", True),
            seed=0,
        )
        request.plan_all((self.n_train, self.rows.X.shape[1]))

    @cached_property
    def informed(self) -> tuple[str, ...]:
        """The methods that are given the public rows: those that can use them for such a model."""
        found: list[str] = []
        if self.public is not None:
            knowledge = read_public(self.public, self.rows.X.shape[1])
            for name in self.methods:
                with suppress(ValueError):  # it runs without them
                    if not is_estimator(self._object(name)):
                        self._plan(self._object(name).with_public(knowledge))
                        found.append(name)
        return tuple(found)

    # --- as a task of the runner ---

    def cells(self) -> list[Cell]:
        """Trial by trial, so that a comparison that is stopped has something of everything."""
        found = []
        for trial in range(self.trials):
            found += [Cell("table", NULL_MODEL, None, trial), Cell("table", NO_PRIVACY, None, trial)]
            found += [Cell("table", name, epsilon, trial) for name in self.methods for epsilon in self._budgets(name)]
        return found

    def _budgets(self, name: str) -> tuple[float | None, ...]:
        return self.epsilons if takes_budget(self._object(name)) else (None,)

    def fingerprint(self) -> dict[str, Any]:
        """What one cell depends on. Methods, budgets and trials are not among it: a folder may get more of them."""
        bounds = self.settings.get("bounds") or Bounds()
        return {
            "rows": self._digests[0],
            "test rows": self._digests[1] if self.test is not None else f"a share of {self.test_share:g}",
            "task": self.task,
            "delta": self._delta,
            "seed": self.seed,
            # Left out where there are none, as in folders that were begun before there could be any.
            **({} if self.public is None else {"public rows": digest_rows(self.public)}),
            **{name: to_plain(value) for name, value in self.settings.items() if name != "bounds"},
            **{f"bounds.{name}": value for name, value in asdict(bounds).items()},
        }

    def depends(self, cell: Cell) -> dict[str, Any]:
        """Whether it is given the public rows, further metrics, and objects; the rest is in the fingerprint."""
        found: dict[str, Any] = {} if self.public is None else {"public rows": self._is_informed(cell)}
        if self.metrics:
            found["metrics"] = [[metric.name, metric.code] for metric in self.metrics]
        if cell.method in self.given:
            found["object"] = describe_object(self.given[cell.method])
        return found

    def files_digest(self, cell: Cell) -> str:
        return ""

    def _is_informed(self, cell: Cell) -> bool:
        return cell.epsilon is not None and cell.method in self.informed

    def sources(self, cell: Cell) -> tuple[str, ...]:
        kind = METHODS.get(cell.method) or type(self.given.get(cell.method))
        known = [kind.__module__] if kind in METHODS.values() else []
        return (__name__, *known)

    @cached_property
    def _digests(self) -> tuple[str, ...]:
        return tuple(part.digest() for part in (self.rows, self.test) if part is not None)

    def split(self, cell: Cell) -> tuple[Examples, Examples]:
        """Training and test rows of the cell's trial."""
        if self.test is not None:
            return self.rows, self.test
        rng = np.random.default_rng(data_seed(self.seed, cell))
        n = len(self.rows)
        if self.rows.groups is None:
            order = rng.permutation(n)
            return self.rows.chosen(np.sort(order[self.n_test :])), self.rows.chosen(np.sort(order[: self.n_test]))
        people, person = np.unique(self.rows.groups, return_inverse=True)
        tested = np.isin(person, rng.permutation(len(people))[: max(1, round(self.test_share * len(people)))])
        return self.rows.chosen(np.flatnonzero(~tested)), self.rows.chosen(np.flatnonzero(tested))

    def run(self, cell: Cell) -> dict[str, Any]:
        train, test = self.split(cell)
        if cell.method == NULL_MODEL:
            return self._scores(constant_model(self.task, train), test)
        seed = noise_seed(self.seed, cell) if cell.epsilon is not None or cell.method in self.given else 0
        one = self.given.get(cell.method, cell.method)
        model = make_model(one, self.task, cell.epsilon, self._delta, seed, self.settings)
        with record_warnings() as warned:
            fit_model(model, train, self.public if self._is_informed(cell) else None)
            scores = self._scores(model, test)
        return {
            **scores,
            "proved": None if cell.epsilon is None else proved_epsilon(model),
            "nonzero": count_nonzero(model),
            "warnings": warned,
        }

    def _scores(self, model: Any, test: Examples) -> dict[str, Any]:
        """The error of a model on test rows, and its other scores."""
        answers = np.asarray(model.predict(test.X))
        others = {metric.name: metric.score(model, test.X, test.y) for metric in self.metrics}
        return {"score": judged(self.metric, test.y, answers), **others}

    # --- the answer ---

    def summary(self, finished: Sequence[Finished]) -> dict[str, Any]:
        """The means over trials, as comparison.json has them."""
        rows = []
        for name in self.methods:
            for epsilon in self.epsilons:
                done = _successes(finished, name, epsilon)
                if done:
                    stated = [one.values["proved"] for one in done]
                    proved = None if None in stated else max(map(float, stated))
                    rows.append({"method": name, "epsilon": epsilon, **self._means(done), "proved": proved})
        references = [
            {"method": name, **self._means(done)}
            for name in self.given
            if self._budgets(name) == (None,) and (done := _successes(finished, name, None))
        ]
        without, null = _successes(finished, NO_PRIVACY, None), _successes(finished, NULL_MODEL, None)
        from tulle import __version__

        return {
            "format": FORMAT,
            "note": NOT_FOR_RELEASE,
            "data": self.name,
            "task": self.task,
            "metric": self.metric,
            "n_train": self.n_train,
            "n_test": self.n_test,
            "n_features": self.rows.X.shape[1],
            "delta": self._delta,
            "trials": self.trials,
            "seed": self.seed,
            "public": None if self.public is None else {"n_rows": self.public.shape[0], "methods": [*self.informed]},
            "tulle": __version__,
            "rows": rows,
            "no_privacy": {"method": NO_PRIVACY, **self._means(without)} if without else None,
            "null_model": self._means(null) if null else None,
            # Only where there are any, as in files that were written before there could be.
            **({"references": references} if references else {}),
            **({"metrics": [metric.name for metric in self.metrics]} if self.metrics else {}),
            "warnings": summarised_warnings(finished),
            "failed": [{**asdict(one.cell), "reason": one.failed} for one in finished if one.failed],
        }

    def _means(self, done: Sequence[Finished]) -> dict[str, Any]:
        """The means of some trials: of the error, of other scores, and of the number of weights where it is known."""
        found = _mean(done, "score")
        if self.metrics:
            found["metrics"] = {metric.name: _mean(done, metric.name) for metric in self.metrics}
        weights = [float(count) for one in done if (count := one.values.get("nonzero")) is not None]
        return {**found, "nonzero": fmean(weights)} if len(weights) == len(done) else found


def compare(
    comparison: Comparison,
    folder: Path,
    *,
    jobs: int | None = None,
    restart: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Run a comparison and write comparison.json, table.md and report.html next to the runner's own files.

    Parameters
    ----------
    comparison : Comparison
    folder : path
    jobs, restart, progress
        As in `tulle.experiments.cell_runner.run_cells`.

    Returns
    -------
    dict
        What comparison.json holds.
    """
    return run_comparison(comparison, folder, jobs=jobs, restart=restart, progress=progress)[0]


def run_comparison(
    comparison: Comparison, folder: Path, *, jobs: int | None, restart: bool, progress: bool
) -> tuple[dict[str, Any], list[Finished]]:
    """The same, with all cells."""
    refuse_open_ledgers("a comparison")
    if comparison.public is not None and not comparison.informed:
        raise ValueError(
            f"none of the methods {', '.join(comparison.methods)} can use public rows for such a model; add auto or "
            "fit_again, or omit the public rows"
        )
    finished = run_cells(comparison, folder, jobs=jobs, restart=restart, progress=progress)
    summary = comparison.summary(finished)
    write_summary(folder, summary)
    return summary, finished


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write comparison.json, table.md and report.html."""
    write_json(folder / "comparison.json", summary)
    write_text(folder / "table.md", table(summary))
    if summary["rows"]:
        write_text(folder / "report.html", _page(summary))


def refuse_open_ledgers(what: str) -> None:
    """An error inside a ledger, which promises that all that is learnt of its rows was billed."""
    if ledgers_are_open():
        raise ValueError(
            f"{what} cannot run while a Ledger is open: its fits draw noise from known seeds and its scores have no "
            "noise at all, so no ledger can bill it. Close the ledger, and do not release the results"
        )


def summarised_warnings(finished: Iterable[Finished]) -> list[str]:
    """Each kind of warning once, with the methods and budgets that it was for; where its numbers differ, an example."""
    texts: dict[str, list[str]] = {}
    places: dict[str, dict[str, list[str]]] = {}
    for one in finished:
        for text in one.values.get("warnings", ()):
            kind = re.sub(r"\d[\d.,e-]*", "0", text)  # the same except for numbers
            texts.setdefault(kind, []).append(text)
            budgets = places.setdefault(kind, {}).setdefault(one.cell.method, [])
            if (budget := budget_words(one.cell.epsilon)) not in budgets:
                budgets.append(budget)
    whose = {
        kind: "; ".join(f"{method} ({', '.join(budgets)})" for method, budgets in found.items())
        for kind, found in places.items()
    }
    return [
        f"{whose[kind]}: {'for example, ' if len(set(found)) > 1 else ''}{found[0]}" for kind, found in texts.items()
    ]


def _successes(finished: Iterable[Finished], method: str, epsilon: float | None) -> list[Finished]:
    return [one for one in finished if (one.cell.method, one.cell.epsilon) == (method, epsilon) and not one.failed]


def _mean(done: Sequence[Finished], name: str) -> dict[str, Any]:
    mean, error = mean_and_error([float(one.values[name]) for one in done])
    return {"mean": mean, "standard_error": error, "trials": len(done)}


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file whole; infinite numbers as strings."""
    write_text(path, json.dumps(finite(dict(values)), indent=2, ensure_ascii=False, allow_nan=False))


def _page(summary: Mapping[str, Any]) -> str:
    from datetime import UTC, datetime

    from tulle.reports.pages import comparison_page

    made = datetime.now(UTC).isoformat(timespec="seconds")
    return comparison_page(summary, About(title="Comparison of methods", made=made, data=str(summary["data"])))
