"""The error of one linear model whose rows are at clients, against ε, for each trust model.

Settings of the TOML file, besides one data set:

    clients  how many share the training rows
    methods  name, `trust`, `deal`, and what `trust` asks for:

        trust = "central"     all rows in one place, by `method` of `tulle.methods`
        trust = "aggregator"  clients send clipped sums, and the server adds the noise once, for `method`
        trust = "masked"      clients share the noise, for at most `colluding` that collude; the default of masked sums
        trust = "curious"     clients noise their own models: `terms` of `tulle.federated.Terms`, with `memory = true`
                              for the memory of all features, `margin_noise`, which sets the step, and `average`, the
                              share of rounds whose mean is the model

        deal = "even"         equal parts, drawn at random
        deal = "skewed"       very different numbers of rows, and shares of the classes: Dirichlet, for each class

All methods have the same parts and the same seed of noise in a trial, so that a trusted aggregator gives the central
fit up to the order in which sums are added.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tulle import datasets
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.estimators.bounds import Bounds
from tulle.estimators.sparse import SparseClassifier
from tulle.experiments.averages import averaged, by_place
from tulle.experiments.cells import Cell, Finished, data_seed, seed_from
from tulle.experiments.data_files import source_digest
from tulle.experiments.examples import Examples, judged, record_warnings
from tulle.experiments.problems import Problem, problem_of
from tulle.methods import METHODS
from tulle.reports.series import Panel, Role, Series
from tulle.trusted.plan import Budget

if TYPE_CHECKING:
    from tulle.experiments.catalogue import Data, Published

DEALS = ("even", "skewed")
Parts = dict[str, tuple[Any, Any]]
ROLES: Mapping[str, Role] = {"central": "honest", "aggregator": "honest", "masked": "honest", "curious": "oracle"}


def deal_rows(rows: Examples, clients: int, how: str, seed: int) -> Parts:
    """The rows of each client, "even" or "skewed"."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    own = np.array_split(order, clients)
    if how == "skewed":
        classes = [order[rows.y[order] == label] for label in np.unique(rows.y)]
        shares = rng.dirichlet(np.ones(clients), len(classes))
        ends = [(np.cumsum(share)[:-1] * len(of)).astype(int) for share, of in zip(shares, classes)]
        cut = [np.split(of, end) for of, end in zip(classes, ends)]
        own = [np.concatenate(parts) for parts in zip(*cut)]
    return {f"client {k}": (rows.X[np.sort(part)], rows.y[np.sort(part)]) for k, part in enumerate(own)}


@dataclass(frozen=True, eq=False)
class Clients:
    """Fits by every trust model, ε and trial: a task of the runner."""

    of: Published

    def __post_init__(self) -> None:
        if len(self.of.data) != 1:
            raise ValueError(f"{self.of.name}: clients share the rows of one data set, got {len(self.of.data)}")
        for method in self.of.settings["methods"]:
            for what, allowed in (("trust", tuple(ROLES)), ("deal", DEALS)):
                said = method.get(what, "even" if method.get("trust") == "central" else "nothing")
                if said not in allowed:
                    raise ValueError(
                        f"{self.of.name}: {what} = {said!r} of {method['name']} is unknown; choose among "
                        f"{', '.join(allowed)}"
                    )

    # --- as a task of the runner ---

    def cells(self) -> list[Cell]:
        return [
            Cell(self._panel.name, method["name"], epsilon, trial)
            for trial in range(self.of.trials)
            for method in self.of.settings["methods"]
            for epsilon in self._panel.epsilons
        ]

    def fingerprint(self) -> dict[str, Any]:
        return {"name": self.of.name}

    def depends(self, cell: Cell) -> dict[str, Any]:
        method = {name: value for name, value in self._method(cell).items() if name != "name"}
        return {
            "method": method,
            "panel": self._panel.measured(),
            "delta": self.of.delta,
            **({} if method["trust"] == "central" else {"clients": self.of.settings["clients"]}),
        }

    def files_digest(self, cell: Cell) -> str:
        return source_digest(self._panel.source)

    def sources(self, cell: Cell) -> tuple[str, ...]:
        method = self._method(cell).get("method")
        named = (METHODS[method].__module__,) if method else ()
        return (__name__, getattr(datasets, self._panel.source).__module__, *named)

    def run(self, cell: Cell) -> dict[str, Any]:
        """The error on test rows, and the ε that is proved."""
        method, rows_seed = self._method(cell), data_seed(0, cell)
        problem = problem_of(self._panel, cell.trial, rows_seed)
        assert problem.test is not None
        assert cell.epsilon is not None
        seed = seed_from(0, "noise at clients", cell.epsilon, cell.trial)
        with record_warnings() as warned:
            if method["trust"] == "central":
                model = self._estimator(method, cell.epsilon, seed).fit(problem.train.X, problem.train.y)
                privacy = model.privacy_
            else:
                parts = deal_rows(problem.train, self.of.settings["clients"], method["deal"], rows_seed)
                fit = {"aggregator": self._aggregated, "masked": self._masked, "curious": self._curious}
                model, privacy = fit[method["trust"]](method, parts, problem, cell.epsilon, seed)
        return {
            "score": judged("test error", problem.test.y, model.predict(problem.test.X)),
            "nonzero": int(np.count_nonzero(model.coef_)),
            "proved": privacy.epsilon,
            "warnings": warned,
        }

    def _estimator(self, method: Mapping[str, Any], epsilon: float, seed: int) -> SparseClassifier:
        return SparseClassifier(
            epsilon,
            self.of.delta,
            method=method["method"],
            bounds=Bounds(**self._panel.bounds),
            fit_intercept=self._panel.has_intercept,
            random_state=seed,
        )

    def _aggregated(
        self, method: Mapping[str, Any], parts: Parts, problem: Problem, epsilon: float, seed: int
    ) -> tuple[Any, Any]:
        """A central fit with rows at clients that trust an aggregator, each with a ledger of its own."""
        from tulle.federated.client_side.client import Client
        from tulle.federated.link import DirectLink
        from tulle.federated.server_side.aggregator import RowsAtClients
        from tulle.ledgers.on_disk import FileLedger

        with tempfile.TemporaryDirectory() as folder:
            answers = {}
            for name, (X, y) in parts.items():
                ledger = FileLedger.create(Path(folder, f"{name}.json"), name, Budget(epsilon * 1.001, self.of.delta))
                client = Client(name, X, y, ledger=ledger, state=Path(folder, name), trusts_aggregator=True)
                answers[name] = client.answer
            model = self._estimator(method, epsilon, seed).fit(RowsAtClients(DirectLink(answers)), None)
        return model, model.privacy_

    def _masked(
        self, method: Mapping[str, Any], parts: Parts, problem: Problem, epsilon: float, seed: int
    ) -> tuple[Any, Any]:
        from tulle.federated.server_side.masked_simulation import simulate_masked

        fit = simulate_masked(
            self._terms_model(problem, 1.0),
            parts,
            epsilon=epsilon,
            delta=self.of.delta,
            colluding=method["colluding"],
            seed=seed,
        )
        return fit.model(), fit.privacy

    def _curious(
        self, method: Mapping[str, Any], parts: Parts, problem: Problem, epsilon: float, seed: int
    ) -> tuple[Any, Any]:
        from tulle.federated.server_side.simulation import simulate
        from tulle.federated.terms import Terms

        says = dict(method["terms"])
        # All noise together moves the margin of a row by about so much, from public quantities.
        noise = 2 * says["clip"] * says["rounds"] * says["local_steps"] / gaussian_mu(epsilon, self.of.delta)
        step = method["margin_noise"] * len(problem.train) / math.sqrt(len(parts)) / noise
        memory = problem.train.X.shape[1] if method["memory"] else None
        terms = Terms(
            study=f"{method['name'][:60]}, {seed}",
            model=self._terms_model(problem, step),
            epsilon=epsilon,
            delta=self.of.delta,
            step=step,
            memory=memory,
            batch=None,
            **says,
        )
        fit = simulate(terms, parts, seed=seed, average=method["average"])
        return fit.model(), fit.privacy

    def _terms_model(self, problem: Problem, step: float) -> Any:
        from tulle.federated.client_side.linear_study import linear_terms

        return linear_terms(
            problem.train.X.shape[1],
            step=step,
            classes=tuple(float(label) for label in np.unique(problem.train.y)),
            fit_intercept=self._panel.has_intercept,
            **self._panel.bounds,
        )

    @property
    def _panel(self) -> Data:
        return self.of.data[0]

    def _method(self, cell: Cell) -> Mapping[str, Any]:
        return next(one for one in self.of.settings["methods"] if one["name"] == cell.method)

    # --- the answer ---

    def panels(self, finished: Sequence[Finished]) -> tuple[Panel, ...]:
        """ε across, one series for each trust model."""
        done = by_place(finished)
        series = []
        for method in self.of.settings["methods"]:
            role = ROLES[method["trust"]]
            points = tuple(
                averaged(epsilon, [float(one.values["score"]) for one in here], role, here)
                for epsilon in self._panel.epsilons
                if (here := done.get((self._panel.name, method["name"], epsilon)))
            )
            if points:
                series.append(Series(method["name"], role, points))
        return (Panel(self._panel.name, "ε", "test error", tuple(series), log_y=True),)
