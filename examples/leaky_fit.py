"""A function that claims ε = 1 and leaks one number without noise, and an audit that finds it.

`python examples/leaky_fit.py` audits it in Python; as a command: `tulle audit examples/leaky_fit.py:fit --claimed 1`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tulle.audit import audit_function

Arrays = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def fit(X: npt.NDArray[np.float64], y: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Everything that would be published."""
    weights = X.T @ y / len(y) + rng.normal(0, 0.1, X.shape[1])
    return np.append(weights, np.abs(y).max())  # the leak: the largest label, without noise


def neighbours() -> tuple[Arrays, Arrays]:
    """Two data sets that differ in one label."""
    X, y = np.random.default_rng(0).uniform(-1, 1, (50, 3)), np.zeros(50)
    return (X, y), (X, np.append(1.0, y[1:]))


if __name__ == "__main__":
    print(audit_function(fit, *neighbours(), delta=1e-5, claimed=1.0, runs=2_000))
