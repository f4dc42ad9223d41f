"""Without the hooks of `tulle.fast` trusted code answers alone, with the same law."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import ks_2samp

from tulle.fast.lazy_noise import Background
from tulle.fast.sparse_weights import SparseWeights
from tulle.fast.thresholded_noise import SparseAnswer
from tulle.methods.thresholds import HardThreshold
from tulle.trusted import hooks
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import SampledGaussian, Sensitivity
from tulle.trusted.randomness import keyed_generator

FITS = """
import numpy as np, scipy.sparse as sp
from tulle import SparseClassifier, Bounds
from tulle.methods import CoordinateDescent, FrankWolfe, StochasticHardThresholding
from tulle.trusted import hooks

assert hooks.get("lazy_noise") is None
X = np.random.default_rng(0).uniform(-1, 1, (300, 20))
y = (X[:, 0] > 0).astype(int)
chosen = {"noise": "selection", "engine": "incremental", "n_iter": 5}
for method in (FrankWolfe(**chosen), CoordinateDescent(**chosen), StochasticHardThresholding(variant="svrg")):
    model = SparseClassifier(method=method, epsilon=2.0, delta=1e-4, bounds=Bounds(row_l2=5.0, row_linf=1.0))
    model.set_params(random_state=0).fit(sp.csr_array(X), y)
    assert model.privacy_.floating_point_slack == 0
    assert np.isfinite(model.coef_).all()
"""


def answers(noise: float, seed: int) -> np.ndarray:
    """Lines 1, 4 and 11, which is free of thresholds, of many draws."""
    rng = np.random.default_rng(3)
    listed = SparseWeights(np.array([1, 4, 11]), rng.normal(size=(3, 1)), 12)
    exact = SparseAnswer(listed, Background(rng.normal(size=(12, 1))))
    mechanism, generator, then = (
        SampledGaussian(NoisePerSensitivity(noise)),
        keyed_generator(seed),
        HardThreshold(3, 11),
    )
    drawn = [np.asarray(mechanism.release(exact, Sensitivity(l2=1.0), generator, then))[:, 0] for _ in range(3000)]
    return np.array(drawn)[:, [1, 4, 11]]


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (1.5, False)])
def test_plain_answers_have_the_law_of_lazy_ones(
    factor: float, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two-sample tests of three lines, thresholded to zero or not; false alarm 3e-6."""
    lazy = answers(1.0, 0)
    monkeypatch.delitem(hooks._HOOKS, "lazy_noise")
    plain = answers(factor, 1)
    least = min(ks_2samp(one, other).pvalue for one, other in zip(lazy.T, plain.T))
    assert bool(least > 1e-6) is accepted


def test_fits_run_without_hooks_and_plan_no_scores_on_demand() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FITS],
        env={**os.environ, "TULLE_PLAIN": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
