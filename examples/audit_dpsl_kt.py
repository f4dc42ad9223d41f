"""DPSL-KT as published is not private: an attack on its output alone.

Wang and Gu (AAAI 2020) train a sparse teacher on private rows without noise, let it label public features with noise,
and train a sparse student on those. Their noise covers how far the teacher can move *within one support*. Here one
changed label moves the teacher to the other support. The rows have a perfectly conditioned design, so every assumption
of the paper's theorem 4.3 holds.

    python examples/audit_dpsl_kt.py        # claimed epsilon 1, audited far above 5, in well under two minutes
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tulle.audit import AuditResult, audit_function

Array = npt.NDArray[np.float64]

N, PENALTY, CLAIMED, DELTA = 1000, 1.0, 1.0, 1e-5


def ight(X: Array, y: Array, step: float, penalty: float = 0.0, n_iter: int = 20) -> Array:
    """Iterative gradient hard thresholding for the squared loss; one weight is kept."""
    w = np.zeros(X.shape[1])
    for _ in range(n_iter):
        w = w - step * (X.T @ (X @ w - y) / len(y) + penalty * w)
        w[np.argsort(np.abs(w))[:-1]] = 0.0
    return w


def dpsl_kt(X: Array, y: Array, rng: np.random.Generator) -> Array:
    """Algorithm 1 of the paper with theorem 4.3's noise, for the data below; returns the student."""
    public_rows, spectrum = N, 1 / 3  # uniform features on (-1, 1): covariance I / 3
    slope_bound = 1 + 1 / (1 + PENALTY)  # bounds every |gradient entry| at the minimiser, for all such data
    variance = 8 * public_rows * spectrum * slope_bound**2 * np.log(2.5 / DELTA) / (N * CLAIMED * PENALTY) ** 2
    teacher = ight(X, y, 1 / (1 + PENALTY), PENALTY)
    X_public = rng.uniform(-1, 1, (public_rows, 2))
    answers = X_public @ teacher + np.sqrt(variance) * rng.standard_normal(public_rows)
    return ight(X_public, answers, 1 / spectrum)


def neighbours() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Two data sets that differ in one label: the two features tie, and the label breaks the tie either way."""
    X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]] * (N // 4))
    y = X.sum(axis=1) / 2
    row = int(np.flatnonzero(X[:, 0] > X[:, 1])[0])
    worlds = []
    for label in (1.0, -1.0):
        labels = y.copy()
        labels[row] = label
        worlds.append((X, labels))
    return worlds[0], worlds[1]


def audit(runs: int = 8_000, n_jobs: int = 2, seed: int | None = 0) -> AuditResult:
    """Audit the student alone: two numbers."""
    return audit_function(
        dpsl_kt, *neighbours(), delta=DELTA, claimed=CLAIMED, runs=runs, n_jobs=n_jobs, seed=seed, verbose=1
    )


if __name__ == "__main__":
    print(audit())
