"""DP-FedSGD-HT (Liang, Tong, Ding, Pan and Bi, 2023), figure 3: test accuracy of a network against rounds.

Settings of the TOML file:

    clients      each has two digits of MNIST, every digit is at two clients
    local_steps  K, of each client in a round
    n_nonzero    τ, the weights that are kept
    rounds       of a study; tuning_rounds of those that settings are chosen by
    shown        the rounds at which accuracy is shown: its mean over so many rounds up to there as `window` says
    epsilons     of each client, for the whole study
    methods      name, and either `tune`, a grid of batch (rows, or "all"), step and clip (a number, or "none") or a
                 list of such grids that is searched as one, or `like`, the method whose settings it takes;
                 `private = false` for no noise; `noise = "paper"` for the noise that the paper's accountant gives

Settings are chosen by a study of another seed on five sixths of the training rows, by the accuracy on the others in the
last rounds: oracle-tuned, not private.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from tulle.accounting.crosscheck import import_dp_accounting
from tulle.datasets.standard import load_mnist
from tulle.experiments.averages import averaged, by_place
from tulle.experiments.cells import Cell, Finished, seed_from
from tulle.experiments.data_files import source_digest
from tulle.reports.series import Panel, Point, Role, Series
from tulle.trusted.accountants import epsilon as proved_epsilon
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian, Mechanism, SampledGaussian
from tulle.trusted.plan import Release
from tulle.trusted.sampling import Sampling

if TYPE_CHECKING:
    from tulle.experiments.catalogue import Published

DATA = "MNIST, two digits a client"
ARCHITECTURE, CLASSES = "mnist_cnn", 10
# One row of each so many is held out while settings are chosen.
HELD_OUT = 6
# TensorFlow Privacy's orders of Rényi divergences.
ORDERS = (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.5, *map(float, range(5, 64)), 128.0, 256.0, 512.0)
Choice = tuple[str, str, float | None]


@lru_cache(maxsize=1)
def images() -> Any:
    """MNIST: kept, since all studies read it."""
    return load_mnist()


@lru_cache(maxsize=1)
def images_digest() -> str:
    return source_digest(load_mnist.__name__)


def client_rows(y: Any, clients: int) -> dict[str, Any]:
    """The numbers of each client's rows: of every digit one half goes to one client, the other to the one before."""
    halves = [np.array_split(np.flatnonzero(y == digit), 2) for digit in range(clients)]
    return {f"client {k}": np.concatenate([halves[k][0], halves[(k + 1) % clients][1]]) for k in range(clients)}


def paper_epsilon(asked: float, delta: float, rows: int, batch: int | None, steps: int) -> float:
    """The ε that is proved, for replacing a row, for the noise that the paper's accountant gives for the ε asked for.

    That accountant is TensorFlow Privacy's (extra `crosscheck`), and it says how large the paper's noise is, no more:
    Rényi divergences, Poisson batches, a row added or removed. Batches are
    Poisson here too. Replacing a row changes a clipped sum by up to twice the clip level.
    """
    from scipy.optimize import brentq

    dp = import_dp_accounting()
    dp_event = dp.dp_event

    def accounted(noise: float) -> float:
        step: Any = dp_event.GaussianDpEvent(noise)
        if batch is not None:
            step = dp_event.PoissonSampledDpEvent(batch / rows, step)
        accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
        return float(accountant.compose(dp_event.SelfComposedDpEvent(step, steps)).get_epsilon(delta))

    noise = brentq(lambda z: accounted(z) - asked, 0.3, 300.0)
    per_sensitivity = NoisePerSensitivity(noise / 2)
    mechanism: Mechanism = Gaussian(per_sensitivity)
    if batch is not None:
        mechanism = SampledGaussian(per_sensitivity, Sampling("poisson", rows, batch))
    return proved_epsilon((Release("local step", mechanism, steps),), delta)


@dataclass(frozen=True, eq=False)
class Rounds:
    """Studies of every method, ε and seed: a task of the runner.

    Attributes
    ----------
    of : Published
    chosen : mapping
        Settings by data, method and ε.
    """

    of: Published
    chosen: Mapping[Choice, Mapping[str, Any]] = field(default_factory=dict)

    # --- as a task of the runner ---

    def cells(self) -> list[Cell]:
        return [
            Cell(DATA, method["name"], epsilon, trial)
            for trial in range(self.of.trials)
            for method in self.of.settings["methods"]
            for epsilon in self.budgets(method)
        ]

    def fingerprint(self) -> dict[str, Any]:
        return {"name": self.of.name}

    def depends(self, cell: Cell) -> dict[str, Any]:
        names = ("clients", "local_steps", "n_nonzero", "rounds", "shown", "window")
        return {
            **{name: self.of.settings[name] for name in names},
            "delta": self.of.delta,
            "noise": self.method(cell.method).get("noise", ""),
            "settings": dict(self.chosen.get(self._choice(cell), {})),
        }

    def files_digest(self, cell: Cell) -> str:
        return images_digest()

    def sources(self, cell: Cell) -> tuple[str, ...]:
        return (__name__,)

    def run(self, cell: Cell) -> dict[str, Any]:
        """Accuracy on the test rows, and the ε that is proved for each client."""
        mnist = images()
        rows = client_rows(mnist.y_train, self.of.settings["clients"])
        parts = {name: (mnist.X_train[own], mnist.y_train[own]) for name, own in rows.items()}
        says, judged = self.of.settings, (mnist.X_test, mnist.y_test)
        return self.study(cell, self.chosen[self._choice(cell)], parts, judged, says["rounds"], says["shown"])

    def study(
        self,
        cell: Cell,
        settings: Mapping[str, Any],
        parts: Mapping[str, tuple[Any, Any]],
        judged: tuple[Any, Any],
        rounds: int,
        shown: Sequence[int],
    ) -> dict[str, Any]:
        """One study: the accuracy at the rounds that are shown, on rows to judge by."""
        import torch

        from tulle.federated.client_side.network_study import NetworkTerms, accuracy
        from tulle.federated.server_side.simulation import simulate
        from tulle.federated.terms import Terms

        torch.set_num_threads(1)
        says = self.of.settings
        steps = rounds * says["local_steps"]
        batch = None if settings["batch"] == "all" else int(settings["batch"])
        epsilon = cell.epsilon
        if epsilon is not None and self.method(cell.method).get("noise") == "paper":
            # Clients differ by a few rows; the smallest has the largest ε.
            sizes = [len(y) for _, y in parts.values()]
            epsilon = paper_epsilon(epsilon, self.of.delta, min(sizes), batch, steps)
        seed = seed_from(0, "network and noise", cell.trial) % 2**62
        network = NetworkTerms(ARCHITECTURE, CLASSES, seed=seed)
        terms = Terms(
            study=f"{cell.method[:60]}, {cell.trial}",
            model=network,
            rounds=rounds,
            local_steps=says["local_steps"],
            n_nonzero=says["n_nonzero"],
            step=float(settings["step"]),
            clip=math.inf if settings["clip"] == "none" else float(settings["clip"]),
            batch=batch,
            epsilon=epsilon,
            delta=None if epsilon is None else self.of.delta,
        )
        found: dict[int, float] = {}
        wanted = {at - back for at in shown for back in range(says["window"])}

        def judge(record: Any, weights: Any) -> None:
            if record.number in wanted:
                found[record.number] = accuracy(network, weights, *judged)

        fit = simulate(terms, parts, seed=seed, progress=judge)
        means = {
            f"round {at}": fmean(found[at - back] for back in range(says["window"]) if at - back in found)
            for at in shown
        }
        proved = None if epsilon is None else fit.privacy.epsilon
        return {**means, "proved": proved, **{name: settings[name] for name in ("batch", "step", "clip")}}

    def search(self) -> RoundsTuning:
        """The studies by which the settings of every method are chosen."""
        return RoundsTuning(self)

    def with_choices(self, finished: Sequence[Finished]) -> Rounds:
        """This task with the settings that a search chooses."""
        return replace(self, chosen=self.search().best(finished))

    def search_of(self, cell: Cell) -> tuple[str, str]:
        """The data and method of the search that chooses the settings of a cell."""
        return self._choice(cell)[:2]

    def method(self, name: str) -> Mapping[str, Any]:
        return next(one for one in self.of.settings["methods"] if one["name"] == name)

    def searched(self, name: str) -> tuple[list[Mapping[str, Sequence[Any]]], bool]:
        """What the settings of a method were chosen from, and whether that is the paper's: it prints none."""
        return grids_of(self.method(name)), False

    def budgets(self, method: Mapping[str, Any]) -> Sequence[float | None]:
        return [float(one) for one in self.of.settings["epsilons"]] if method.get("private", True) else [None]

    def _choice(self, cell: Cell) -> Choice:
        return (cell.data, str(self.method(cell.method).get("like", cell.method)), cell.epsilon)

    # --- the answer ---

    def panels(self, finished: Sequence[Finished]) -> tuple[Panel, ...]:
        """Rounds across, one panel for each ε; the method without noise is in all of them."""
        done = by_place(finished)
        found = []
        for budget in self.of.settings["epsilons"]:
            series = []
            for method in self.of.settings["methods"]:
                epsilon = float(budget) if method.get("private", True) else None
                if here := done.get((DATA, method["name"], epsilon)):
                    role = _role(method)
                    points = tuple(self._point(at, role, here) for at in self.of.settings["shown"])
                    series.append(Series(method["name"], role, points))
            found.append(Panel(f"{DATA}, ε = {budget:g}", "round", "test accuracy", tuple(series)))
        return tuple(found)

    @staticmethod
    def _point(at: int, role: Role, here: Sequence[Finished]) -> Point:
        return averaged(at, [float(one.values[f"round {at}"]) for one in here], role, here)


def _role(method: Mapping[str, Any]) -> Role:
    if not method.get("private", True):
        return "reference"
    return "unsound" if method.get("noise") == "paper" else "oracle"


@dataclass(frozen=True, eq=False)
class RoundsTuning:
    """Every setting of every method in one study each, judged by training rows that were held out: a task.

    What this learns from the rows is not billed.
    """

    rounds: Rounds

    def cells(self) -> list[Cell]:
        return [
            Cell(DATA, f"{method['name']} | {json.dumps(tried, sort_keys=True)}", epsilon, -1)
            for method in self.rounds.of.settings["methods"]
            for grid in grids_of(method)
            for tried in tried_settings(grid)
            for epsilon in self.rounds.budgets(method)
        ]

    def fingerprint(self) -> dict[str, Any]:
        return {"name": f"{self.rounds.of.name}, tuning"}

    def depends(self, cell: Cell) -> dict[str, Any]:
        place, tried = self._place(cell)
        rounds = self.rounds.of.settings["tuning_rounds"]
        return {**self.rounds.depends(place), "settings": tried, "rounds": rounds, "shown": [rounds]}

    def files_digest(self, cell: Cell) -> str:
        return self.rounds.files_digest(cell)

    def sources(self, cell: Cell) -> tuple[str, ...]:
        return self.rounds.sources(cell)

    def run(self, cell: Cell) -> dict[str, Any]:
        place, tried = self._place(cell)
        X, y = images().X_train, images().y_train
        parts = {}
        judged = []
        for name, own in client_rows(y, self.rounds.of.settings["clients"]).items():
            kept = np.arange(len(own)) % HELD_OUT != 0
            parts[name] = (X[own[kept]], y[own[kept]])
            judged.append(own[~kept])
        held = np.concatenate(judged)
        rounds = self.rounds.of.settings["tuning_rounds"]
        return self.rounds.study(place, tried, parts, (X[held], y[held]), rounds, [rounds])

    def best(self, finished: Sequence[Finished]) -> dict[Choice, dict[str, Any]]:
        """The settings with the greatest accuracy at the end; a study that failed is not among them."""
        last = f"round {self.rounds.of.settings['tuning_rounds']}"
        scores: dict[Choice, dict[str, float]] = {}
        for one in finished:
            place, tried = self._place(one.cell)
            score = -math.inf if one.failed else float(one.values[last])
            key = (place.data, place.method, place.epsilon)
            scores.setdefault(key, {})[json.dumps(tried, sort_keys=True)] = score
        return {key: json.loads(max(found, key=found.__getitem__)) for key, found in scores.items()}

    def search_of(self, cell: Cell) -> tuple[str, str]:
        """The data and method of the search that a cell is part of."""
        return self.rounds.search_of(self._place(cell)[0])

    @staticmethod
    def _place(cell: Cell) -> tuple[Cell, dict[str, Any]]:
        name, tried = cell.method.split(" | ", 1)
        return replace(cell, method=name), json.loads(tried)


def grids_of(method: Mapping[str, Any]) -> list[Mapping[str, Sequence[Any]]]:
    """All grids that the settings of a method are chosen from; [] where it takes another's."""
    tune = method.get("tune", [])
    return [tune] if isinstance(tune, Mapping) else list(tune)


def tried_settings(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of a grid's values."""
    return [dict(zip(grid, values)) for values in product(*grid.values())]
