"""Accuracy under the three trust models of docs/federated.md, against the number of clients.

    python docs/pictures/federated_trust.py        # four minutes; writes federated_trust.csv

The same 9,000 made-up rows are dealt to 3, 10 or 30 clients. Runs are seeded: this is no release.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tulle import Bounds, Budget, FileLedger, SparseClassifier
from tulle.federated import Client, Terms, linear_terms, simulate, simulate_masked
from tulle.federated.link import DirectLink
from tulle.federated.server_side.aggregator import RowsAtClients

RESULTS = Path(__file__).with_suffix(".csv")
ROWS, FEATURES, WEIGHTS, TRIALS = 9_000, 40, (3.0, -3.0, 2.0, -2.0, 2.0), 5
DELTA, ROW_L2, STEP = 1e-5, 3.8, 0.3


def rows(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    X = rng.uniform(-1, 1, (n, FEATURES))
    return X, np.where(X[:, : len(WEIGHTS)] @ WEIGHTS + rng.logistic(0, 0.5, n) > 0, "ward", "home")


def curious(
    parts: dict[str, tuple[Any, Any]], epsilon: float, seed: int, memory: int | None = 20, average: float = 0.5
) -> Any:
    """Each client draws its own noise."""
    model = linear_terms(FEATURES, step=STEP, classes=("home", "ward"), row_l2=ROW_L2)
    terms = Terms(
        study="trust",
        model=model,
        rounds=30,
        local_steps=1,
        n_nonzero=len(WEIGHTS),
        memory=memory,
        step=STEP,
        clip=1.0,
        batch=None,
        epsilon=epsilon,
        delta=DELTA,
    )
    return simulate(terms, parts, average=average, seed=seed).model()


def forgetful(parts: dict[str, tuple[Any, Any]], epsilon: float, seed: int) -> Any:
    """As in the paper: only the kept weights are remembered, and the last model counts."""
    return curious(parts, epsilon, seed, memory=None, average=0.0)


def aggregated(parts: dict[str, tuple[Any, Any]], epsilon: float, seed: int) -> Any:
    """The server draws the noise, once."""
    with tempfile.TemporaryDirectory() as folder:
        answers = {}
        for name, (X, y) in parts.items():
            ledger = FileLedger.create(Path(folder, f"{name}.json"), name, Budget(epsilon, DELTA))
            client = Client(name, X, y, ledger=ledger, state=Path(folder, name), trusts_aggregator=True)
            answers[name] = client.answer
        bounds = Bounds(row_l2=ROW_L2)
        model = SparseClassifier(epsilon, DELTA, n_nonzero=len(WEIGHTS), bounds=bounds, random_state=seed)
        return model.fit(RowsAtClients(DirectLink(answers)), None)


def masked(parts: dict[str, tuple[Any, Any]], epsilon: float, seed: int, colluding: int = 0) -> Any:
    """The clients share the noise, and the server reads sums alone."""
    model = linear_terms(FEATURES, step=STEP, classes=("home", "ward"), row_l2=ROW_L2)
    settings: dict[str, Any] = {"n_nonzero": len(WEIGHTS), "seed": seed, "colluding": colluding}
    return simulate_masked(model, parts, epsilon=epsilon, delta=DELTA, **settings).model()


def masked_against_a_third(parts: dict[str, tuple[Any, Any]], epsilon: float, seed: int) -> Any:
    return masked(parts, epsilon, seed, colluding=len(parts) // 3)


LINES = {
    "curious server, no memory": forgetful,
    "curious server": curious,
    "masked sums": masked,
    "masked sums, a third colludes": masked_against_a_third,
    "trusted aggregator": aggregated,
}


def main() -> None:
    rng = np.random.default_rng(0)
    X, y = rows(ROWS, rng)
    test = rows(20_000, rng)
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["epsilon", "clients", "trust", "accuracy", "deviation"])
        for epsilon in (0.25, 1.0):
            for count in (3, 10, 30):
                parts = {f"client {k}": (X[k::count], y[k::count]) for k in range(count)}
                for name, fit in LINES.items():
                    found = [fit(parts, epsilon, seed).score(*test) for seed in range(TRIALS)]
                    table.writerow([epsilon, count, name, f"{np.mean(found):.4f}", f"{np.std(found, ddof=1):.4f}"])
                    file.flush()


if __name__ == "__main__":
    main()
