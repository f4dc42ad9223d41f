"""The delta that is asked for, the one that is printed, and what finite precision takes of it: one_delta.csv.

`python docs/pictures/one_delta.py`, some seconds. All methods, epsilon = 1, 4, 8 and 10, and the shapes of the real
data sets that the project is measured on. A report's delta is a function of the plan, and a plan is one of public
quantities, so no row is read; tests/trusted/test_one_delta.py holds fits to what the plans say.
"""

from __future__ import annotations

import csv
from pathlib import Path

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.accounting.calibration import default_delta
from tulle.methods import METHODS
from tulle.methods.loss_functions import resolve_loss
from tulle.trusted.accountants import prove

# Training rows, features, classes (0: regression).
SETS = {
    "RCV1 subset": (20_242, 47_236, 2),
    "pneumonia": (4_708, 784, 2),
    "MNIST": (60_000, 784, 10),
    "Covertype": (464_809, 54, 2),
    "IMDB ratings": (25_000, 74_849, 0),
    "Golub": (57, 7_129, 2),
    "riboflavin": (57, 4_088, 0),
    "a9a": (32_561, 123, 2),
    "20 Newsgroups, 2^18 hashed words": (11_314, 262_144, 20),
    "w8a": (39_799, 300, 2),
    "Reuters acquisitions": (2_000, 9_947, 2),
}
# Of several classes these fit one against the rest.
ONE_AT_A_TIME = ("fit_again", "screen_refine", "two_stage", "knowledge_transfer")
EPSILONS = (1.0, 4.0, 8.0, 10.0)
HEADER = ("data", "method", "epsilon", "epsilon_printed", "delta_asked", "delta_printed", "for_finite_precision")


def line(name: str, method: str, epsilon: float) -> tuple[object, ...]:
    n_rows, n_features, classes = SETS[name]
    bounds = Bounds(row_l2=1.0, row_linf=1.0) if classes else Bounds(row_l2=1.0, row_linf=1.0, label=10.0)
    model = (SparseClassifier if classes else SparseRegressor)(epsilon, method=method, bounds=bounds)
    if classes > 2 and method in ONE_AT_A_TIME:
        model.set_params(loss="squared_hinge")
    loss = resolve_loss(model.loss, "classification", classes) if classes else resolve_loss(model.loss, "regression")
    delta = default_delta(n_rows)
    plans = [one.plan for one in model._request(loss, n_rows).plan_all((n_rows, n_features))]
    proved, slack = (max(prove(plan, delta)[part] for plan in plans) for part in (0, 1))
    return (name, method, epsilon, f"{proved:.6g}", f"{delta:g}", f"{delta:g}", f"{slack:g}")


def main() -> None:
    place = Path(__file__).with_name("one_delta.csv")
    with place.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(line(name, method, epsilon) for name in SETS for method in METHODS for epsilon in EPSILONS)
    print(place)


if __name__ == "__main__":
    main()
