"""FedSGD-HT, DP-FedSGD-HT, DP-FedGD-HT and DP-SCSG-HT at clients as printed: plain numpy against simulated studies.

Liang, Tong, Ding, Pan and Bi, "Stochastic privacy-preserving methods for nonconvex sparse learning" (2023), section 6.
Noise comes from a tape of standard draws that clients and the plain version read in the same order; batches are those
that clients drew. Tapes have fixed seeds; nothing can fail by chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from tulle.federated import Terms, linear_terms, simulate
from tulle.federated.client_side import client
from tulle.trusted.mechanisms import AdditiveNoise, _as_array
from tulle.trusted.sampling import Sampler

Array = np.ndarray[Any, np.dtype[Any]]

D, KEPT, STEP, ROUNDS, LOCAL = 12, 3, 0.7, 4, 3
SIZES = {"ada": 90, "ben": 50, "cy": 60}
ROW_BOUND = np.sqrt(D)  # features lie in [-1, 1]
CLIP = 0.5  # of slopes, for a row at its bound


class Tape:
    """Standard draws and batches, which are read twice: by the study, and by the plain version after `rewind`."""

    def __init__(self, loudness: float) -> None:
        self._loudness = loudness
        self.batches: list[Array] = []
        self.rewind()

    def rewind(self) -> None:
        self._generator, self._read = np.random.default_rng(5), 0

    def normal(self) -> Array:
        return self._loudness * self._generator.standard_normal((D, 1))

    def batch(self) -> Array:
        self._read += 1
        return self.batches[self._read - 1]

    @property
    def all_read(self) -> bool:
        return self._read == len(self.batches)


class NoTieBreaks:
    """Coins that move no weight: clients break ties by factors of 1 + 1e-9."""

    def random(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape)


@pytest.fixture
def tape(loudness: float, monkeypatch: pytest.MonkeyPatch) -> Tape:
    made = Tape(loudness)

    def add_noise(mechanism: Any, exact: Any, sensitivity: Any, generator: Any, then: Any) -> Any:
        values = _as_array(exact)
        scale = mechanism._scale(getattr(sensitivity, mechanism.NORM))
        noisy = values + scale * made.normal() if scale else values
        return noisy if then is None else then(noisy)

    draw = Sampler.draw

    def draw_and_keep(sampler: Sampler, generator: Any) -> Any:
        made.batches.append(draw(sampler, generator))
        return made.batches[-1]

    monkeypatch.setattr(AdditiveNoise, "release", add_noise)
    monkeypatch.setattr(Sampler, "draw", draw_and_keep)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    return made


def keep_largest(w: Array) -> Array:
    """H_τ."""
    kept = w.copy()
    kept[np.argsort(-np.abs(w))[KEPT:]] = 0.0
    return kept


def hospitals() -> dict[str, tuple[Array, Array]]:
    rng = np.random.default_rng(1)
    weights = np.zeros(D)
    weights[:KEPT] = [3.0, -2.0, 2.0]
    found = {}
    for name, n in SIZES.items():
        X = rng.uniform(-1, 1, (n, D))
        found[name] = (X, (X @ weights + rng.logistic(0, 0.5, n) > 0).astype(float))
    return found


def printed_federated(
    tape: Tape,
    rows: dict[str, tuple[Array, Array]],
    sigma: dict[str, float],
    b: int | None,
    longest: float,
    equal: bool,
) -> Array:
    """In each round every client takes K steps x <- H_τ( x - η ( gradient + u ) ) from the server's model, and the
    server thresholds their mean with weights p_i. Each row's gradient is cut to a length; a mean over a Poisson batch
    is by its expected size.
    """
    x = np.zeros(D)
    total = sum(len(y) for _, y in rows.values())
    for _ in range(ROUNDS):
        mean = np.zeros(D)
        for name, (X, y) in rows.items():
            own = x
            for _ in range(LOCAL):
                batch = tape.batch()
                assert b is not None or sorted(batch) == list(range(len(y)))
                gradients = X[batch] * (expit(X[batch] @ own) - y[batch])[:, None]
                gradients *= np.minimum(1.0, longest / np.linalg.norm(gradients, axis=1))[:, None]
                gradient = gradients.sum(axis=0) / (b or len(y))
                noise = sigma[name] * tape.normal()[:, 0] if sigma[name] else 0.0
                own = keep_largest(own - STEP * (gradient + noise))
            share = 1 / len(rows) if equal else len(y) / total
            mean += share * own
        x = keep_largest(mean)
    return x


@pytest.mark.parametrize("weighting", ["rows", "equal"])
@pytest.mark.parametrize("batch", [20, None], ids=["DP-FedSGD-HT", "DP-FedGD-HT"])
@pytest.mark.parametrize("loudness", [0.0, 1.0], ids=["no noise", "the same noise"])
def test_private_studies_are_as_printed(
    tape: Tape, batch: int | None, weighting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise is that of the largest change by one row replaced, 2 × clip × row bound / batch, times what each client
    calibrated for the whole study."""
    monkeypatch.setattr(client, "keyed_generator", lambda *key: NoTieBreaks())
    rows = hospitals()
    model = linear_terms(D, step=STEP, fit_intercept=False, classes=(0.0, 1.0), row_l2=float(ROW_BOUND))
    terms = Terms("s", model, ROUNDS, LOCAL, KEPT, STEP, CLIP, batch, 30.0, 1e-4)
    fit = simulate(terms, rows, seed=0, weighting=weighting)
    about = {one.client: one for one in fit.clients}
    sigma = {name: about[name].noise * 2 * CLIP * ROW_BOUND / (batch or SIZES[name]) for name in rows}
    assert all(one.epsilon is not None and one.epsilon <= 30.0 for one in about.values())
    tape.rewind()
    expected = printed_federated(tape, rows, sigma, batch, CLIP * ROW_BOUND, weighting == "equal")
    assert tape.all_read
    assert np.count_nonzero(expected) == KEPT
    np.testing.assert_allclose(fit.weights.to_dense()[:, 0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loudness", [0.0])
def test_fedsgd_ht_is_as_printed(tape: Tape) -> None:
    """Without noise, clipping or a budget."""
    rows = hospitals()
    model = linear_terms(D, step=STEP, fit_intercept=False, classes=(0.0, 1.0), row_l2=float(ROW_BOUND))
    fit = simulate(Terms("s", model, ROUNDS, LOCAL, KEPT, STEP, float("inf"), 20, None, None), rows, seed=0)
    tape.rewind()
    expected = printed_federated(tape, rows, dict.fromkeys(rows, 0.0), 20, np.inf, False)
    assert tape.all_read
    assert np.count_nonzero(expected) == KEPT
    np.testing.assert_allclose(fit.weights.to_dense()[:, 0], expected, rtol=1e-9, atol=1e-12)


def cut(gradients: Array, longest: float) -> Array:
    """Each line scaled down to a length."""
    lengths = np.linalg.norm(gradients, axis=1)
    return gradients * np.where(lengths > longest, longest / np.where(lengths > 0, lengths, 1.0), 1.0)[:, None]


def printed_snapshots(
    tape: Tape, rows: dict[str, tuple[Array, Array]], noises: dict[str, tuple[float, float]], clip: float
) -> Array:
    """In each round every client runs one epoch of DP-SCSG-HT from the server's model x~: μ = gradient on a large batch
    at x~ + u1, then K steps x <- H_τ( x - η ( gradient on a batch at x - that at x~ + μ + u2 ) ). A row's difference is
    cut to 0.4 of the clip, and to what the loss's curvature of 1/4 allows between the two models.
    """
    x, total = np.zeros(D), sum(len(y) for _, y in rows.values())
    longest = clip * ROW_BOUND
    for _ in range(ROUNDS):
        mean = np.zeros(D)
        for name, (X, y) in rows.items():
            n, (u1, u2) = len(y), noises[name]
            b, large = min(20, n), min(55, n)

            def gradients(at: Array, batch: Array, X: Array = X, y: Array = y) -> Array:
                return cut(X[batch] * (expit(X[batch] @ at) - y[batch])[:, None], longest)

            own = x
            snapshot = gradients(x, tape.batch()).sum(axis=0) / large
            snapshot += u1 * 2 * longest / large * tape.normal()[:, 0] if u1 else 0.0
            for _ in range(LOCAL):
                batch = tape.batch()
                most = min(0.4 * longest, ROW_BOUND**2 / 4 * np.linalg.norm(own - x))
                change = cut(gradients(own, batch) - gradients(x, batch), most).sum(axis=0) / b
                noise = u2 * 2 * most / b * tape.normal()[:, 0] if u2 else 0.0
                own = keep_largest(own - STEP * (change + snapshot + noise))
            mean += len(y) / total * own
        x = keep_largest(mean)
    return x


@pytest.mark.parametrize(
    ("loudness", "epsilon", "clip"),
    [(0.0, None, np.inf), (0.0, 30.0, CLIP), (1.0, 30.0, CLIP)],
    ids=["no privacy", "no noise", "the same noise"],
)
def test_scsg_at_clients_is_as_printed(
    tape: Tape, epsilon: float | None, clip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """55 rows a snapshot, of which one client has fewer: it takes all."""
    if epsilon is not None:
        monkeypatch.setattr(client, "keyed_generator", lambda *key: NoTieBreaks())
    rows = hospitals()
    model = linear_terms(D, step=STEP, fit_intercept=False, classes=(0.0, 1.0), row_l2=float(ROW_BOUND))
    delta = None if epsilon is None else 1e-4
    terms = Terms(
        "s", model, ROUNDS, LOCAL, KEPT, STEP, clip, 20, epsilon, delta, snapshot_batch=55, difference_clip=0.4
    )
    fit = simulate(terms, rows, seed=0)
    noises = {one.client: (one.snapshot_noise, one.noise) for one in fit.clients}
    assert all((u1 > 0) == (u2 > 0) == (epsilon is not None) for u1, u2 in noises.values())
    tape.rewind()
    expected = printed_snapshots(tape, rows, noises, clip)
    assert tape.all_read
    assert np.count_nonzero(expected) == KEPT
    np.testing.assert_allclose(fit.weights.to_dense()[:, 0], expected, rtol=1e-9, atol=1e-12)
