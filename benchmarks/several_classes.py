"""Test errors with several classes, defaults now and before: the table of docs/hard_thresholding.md.

python benchmarks/several_classes.py FOLDER, with MNIST and the 20 newsgroups' text in FOLDER (default: TULLE_DATA).
"""

from __future__ import annotations

import bz2
import csv
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from tulle import Bounds, SparseClassifier
from tulle.datasets import load_mnist
from tulle.methods import HardThresholding

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SEEDS = 3


def read_posts(path: Path) -> tuple[Any, np.ndarray]:
    """Words hashed to 2^15 columns, present or not, rows of unit length; and the group of each post."""
    csv.field_size_limit(10**9)
    with bz2.open(path, "rt", encoding="utf-8", errors="replace", newline="") as file:
        posts = list(csv.DictReader(file))
    hashed = HashingVectorizer(n_features=2**15, binary=True, alternate_sign=False)
    return hashed.transform(post["text"] for post in posts), np.array([post["group"] for post in posts])


def read_sets(folder: Path) -> dict[str, tuple[Any, ...]]:
    posts = [read_posts(folder / f"news20_text_{part}.csv.bz2") for part in ("train", "test")]
    digits = load_mnist(folder / "mnist")
    X, test = normalize(digits.X_train), normalize(digits.X_test)
    return {
        "20 newsgroups, 11,314 x 32,768": (*posts[0], *posts[1]),
        "MNIST, first 5,000 x 784": (X[:5000], digits.y_train[:5000], test, digits.y_test),
        "MNIST, first 30,000 x 784": (X[:30000], digits.y_train[:30000], test, digits.y_test),
    }


def before(n: int, d: int, classes: int, mu: float) -> dict[str, Any]:
    """The settings that were the defaults for any number of classes."""
    steps = int(min(max(round(np.sqrt(n * mu) / 20), 2), 50))
    method = HardThresholding(n_iter=steps, clip=float(np.sqrt(1 - 1 / classes)))
    return {"n_nonzero": int(min(max(n * min(mu, 1.0) / (2 * np.log(d)), 1), d)), "method": method}


def error(split: tuple[Any, ...], epsilon: float, seed: int, **settings: Any) -> float:
    X, y, test, labels = split
    bounds = Bounds(row_l2=1.0, row_linf=1.0)
    model = SparseClassifier(epsilon, 1e-5, bounds=bounds, random_state=seed, classes=sorted(set(y)), **settings)
    return float(np.mean(model.fit(X, y).predict(test) != labels))


def main() -> None:
    from tulle.methods.noise_scales import budget_mu
    from tulle.trusted.plan import Budget

    folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["TULLE_DATA"])
    for name, split in read_sets(folder).items():
        n, d = split[0].shape
        for epsilon in EPSILONS:
            old = before(n, d, len(set(split[1])), budget_mu(Budget(epsilon, 1e-5)))
            errors = [[error(split, epsilon, seed, **settings) for seed in range(SEEDS)] for settings in (old, {})]
            means, spread = np.mean(errors, axis=1), np.std(errors[1])
            print(f"{name}, epsilon {epsilon:g}: {means[0]:.3f} -> {means[1]:.3f} ± {spread:.3f}", flush=True)


if __name__ == "__main__":
    main()
