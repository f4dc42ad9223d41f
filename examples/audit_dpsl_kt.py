"""DPSL-KT as published is not private: an attack that uses only its output. The correct variant withstands it.

Wang and Gu (AAAI 2020) train a sparse teacher on private rows without noise, label public features with it, with noise,
and train a sparse student on those. Their noise covers the change of the teacher *for a fixed support*. Here one
changed label changes the support of the teacher. The design matrix is perfectly conditioned, so every assumption
of the paper's theorem 4.3 holds, and also of its corollary 4.7.

    python examples/audit_dpsl_kt.py        # claimed epsilon 1, audited far above 5, in about two minutes
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tulle import Bounds, SparseRegressor
from tulle.audit import AuditResult, audit_function
from tulle.methods import KnowledgeTransfer
from tulle.transfer.public_features import UniformFeatures

Array = npt.NDArray[np.float64]

N, PENALTY, CLAIMED, DELTA = 1000, 1.0, 1.0, 1e-5

# gamma bounds every |gradient entry| at the minimiser, for all data with |x| <= 1 and |y| <= 1.
PUBLISHED = KnowledgeTransfer(
    "published", UniformFeatures(-1, 1), penalty=PENALTY, gradient_bound=1 + 1 / (1 + PENALTY), n_iter=3
)
UNPENALISED = KnowledgeTransfer(
    "published", UniformFeatures(-1, 1), penalty=0.0, sparse_eigenvalue=1.0, gradient_bound=2.0, n_iter=3
)
SOUND = KnowledgeTransfer("sparse", UniformFeatures(-1, 1))


def student(method: KnowledgeTransfer, X: Array, y: Array, rng: np.random.Generator) -> Array:
    """The published output: the weights of the student, two numbers of which one is zero."""
    model = SparseRegressor(
        CLAIMED,
        DELTA,
        n_nonzero=1,
        method=method,
        bounds=Bounds(row_linf=1.0, label=1.0),
        fit_intercept=False,
        random_state=int(rng.integers(2**63)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warns that nothing is proved, and that delta allows little
        return np.asarray(model.fit(X, y).coef_)


def published(X: Array, y: Array, rng: np.random.Generator) -> Array:
    """Algorithm 1 of the paper with the noise of theorem 4.3."""
    return student(PUBLISHED, X, y, rng)


def unpenalised(X: Array, y: Array, rng: np.random.Generator) -> Array:
    """Algorithm 1 of the paper with the noise of corollary 4.7."""
    return student(UNPENALISED, X, y, rng)


def sound(X: Array, y: Array, rng: np.random.Generator) -> Array:
    """tulle's default variant."""
    return student(SOUND, X, y, rng)


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


def audit(
    fit: Callable[[Array, Array, np.random.Generator], Array] = published,
    runs: int = 2_000,
    n_jobs: int = 2,
    seed: int | None = 0,
) -> AuditResult:
    """Audit only the student."""
    return audit_function(
        fit, *neighbours(), delta=DELTA, claimed=CLAIMED, runs=runs, n_jobs=n_jobs, seed=seed, verbose=1
    )


if __name__ == "__main__":
    for fit, runs in ((published, 2_000), (unpenalised, 2_000), (sound, 20_000)):
        print(audit(fit, runs))
