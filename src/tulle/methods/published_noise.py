"""The noise that the paper of DP-SGD-HT and DP-SCSG-HT prints, its side conditions, and what that noise really proves.

Paper: Liang, Tong, Ding, Pan, Bi, Theorems 4.1 and 5.1, here for gradients of norm at most l = 1. Both theorems rest on
one lemma: Gaussian noise of z standard deviations per sensitivity, on a batch of size b of n rows without replacement,
has a Rényi divergence of at most 5 (b/n)² α / z² at order α, if

    z² >= 1.5    and    α <= log( n / (b (1 + z²)) ).

Noises are returned per sensitivity of replacing one row: 2 l / b for a gradient, 4 l / b for a difference of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from tulle.accounting.mechanism_words import describe_mechanism
from tulle.trusted.accountants import best_accountant
from tulle.trusted.events import FloatArray, NoisePerSensitivity, SampledGaussianEvent
from tulle.trusted.mechanisms import Exact, Sensitivity, Then

Option = Literal["I", "II"]


def sgd_noise(n: int, b: int, T: int, eps: float, delta: float) -> float:
    """Theorem 4.1: sigma² = 40 α l² T / (n² eps), α = 1 + 2 log(1/delta) / eps, per sensitivity 2 l / b."""
    return b / n * math.sqrt(10 * _order(eps, delta) * T / eps)


def sgd_failed_conditions(n: int, b: int, T: int, eps: float, delta: float) -> tuple[str, ...]:
    """The side conditions of Theorem 4.1 that do not hold, in words with both numbers.

    With z² = 10 b² α T / (n² eps): z² >= 1.5 and α <= log( n³ eps / (n² b eps + 10 α T b³) ) = log( n / (b (1 + z²)) ).
    """
    return _failed_of_lemma("the steps", n, b, sgd_noise(n, b, T, eps, delta), _order(eps, delta))


def scsg_noise(
    n: int, B: int, b: int, J: int, eps: float, delta: float, option: Option, intended: bool = False
) -> tuple[float, float]:
    """Theorem 5.1, for the snapshots (per sensitivity 2 l / B) and for the differences (per 4 l / b).

    sigma² = 2 C B l² α J / (b n² eps); sigma1² = 160 sigma² for snapshots and sigma2² = 40 sigma² for differences as
    printed. The proof needs 20 / sigma1² + 80 / sigma2² = 1 / sigma², which 40 and 160 meet and 160 and 40 do not:
    `intended` swaps them. For geometric lengths (option I) half of delta pays for epochs that last too long: α = 1 +
    2 log(2/delta) / eps, and C is the smallest C >= 1 with 1 - (1 - delta/2)^(1/J) >= exp(-(C - 1 - log C)). Epochs of
    fixed length (option II) have α = 1 + 2 log(1/delta) / eps and C = 1.
    """
    order = _scsg_order(eps, delta, option)
    sigma = math.sqrt(2 * _surplus(J, delta, option) * B * order * J / (b * eps)) / n
    first, second = (40, 160) if intended else (160, 40)
    return math.sqrt(first) * sigma * B / 2, math.sqrt(second) * sigma * b / 4


def scsg_failed_conditions(n: int, B: int, b: int, J: int, eps: float, delta: float, option: Option) -> tuple[str, ...]:
    """The side conditions of Theorem 5.1 that do not hold, in words with both numbers.

    They are those of the lemma for either release, with the constants that the proof needs (40 and 160), whichever are
    printed: with z1² = 10 B² sigma² / l² for snapshots and z2² = 10 b² sigma² / l² for differences, both at least 1.5,
    and α at most log( n / (B (1 + z1²)) ) and log( n / (b (1 + z2²)) ).
    """
    snapshots, differences = scsg_noise(n, B, b, J, eps, delta, option, intended=True)
    order = _scsg_order(eps, delta, option)
    return (
        *_failed_of_lemma("the snapshots", n, B, snapshots, order),
        *_failed_of_lemma("the differences", n, b, differences, order),
    )


def _order(eps: float, delta: float) -> float:
    return 1 + 2 * math.log(1 / delta) / eps


def _scsg_order(eps: float, delta: float, option: Option) -> float:
    """α of Theorem 5.1: half of delta is spent on the lengths of epochs where these are random."""
    return _order(eps, delta / 2 if option == "I" else delta)


def _surplus(J: int, delta: float, option: Option) -> float:
    """C: by which factor more steps are counted than are expected, so that J geometric lengths rarely pass it."""
    if option == "II":
        return 1.0
    needed = -math.log(-math.expm1(math.log1p(-delta / 2) / J))
    return float(brentq(lambda c: c - 1 - math.log(c) - needed, 1.0, 2 * needed + 10))


def _failed_of_lemma(what: str, n: int, b: int, noise: float, order: float) -> tuple[str, ...]:
    failed = []
    if noise**2 < 1.5:
        failed.append(f"{what}: z² = {noise**2:.3g} is less than 1.5")
    if order > (most := math.log(n / (b * (1 + noise**2)))):
        failed.append(f"{what}: α = {order:.3g} is more than log(n / (batch (1 + z²))) = {most:.3g}")
    return tuple(failed)


# --- what it proves --------------------------------------------------------------------------------------------------

# The paper's data, with the numbers of rows that it trains on.
_ROWS = {"RCV1": 20_242, "E2006": 3_308}
_DELTA = 1e-5
_CLAIMS = (2.0, 4.0, 10.0)

# Twenty passes of DP-SGD-HT; ten passes of DP-SCSG-HT, in which an epoch reads 3 B rows.
_SGD = (("RCV1", 10), ("RCV1", 50), ("RCV1", 256), ("RCV1", 1024), ("E2006", 10), ("E2006", 100))
_SCSG = (("RCV1", 2024, 202), ("RCV1", 2024, 67), ("RCV1", 404, 40), ("RCV1", 10_121, 506))


@dataclass(frozen=True)
class TrueEpsilon:
    """The claim of the published noise, and the epsilon that is proved for it.

    Attributes
    ----------
    data : str
    n_rows : int
    batches : tuple of int
        (b,) for DP-SGD-HT, (B, b) for DP-SCSG-HT.
    uses : tuple of int
        How many batches of each size.
    constants : {"printed", "intended"}
        Of Theorem 5.1; Theorem 4.1 has one set.
    claim, delta : float
    noise : tuple of float
        Per sensitivity, for each size of batch.
    without_replacement, poisson : float
        The epsilon that is proved at `delta`, for batches of a fixed size and for Poisson batches.
    failed : tuple of str
        The side conditions of the theorem that do not hold.
    """

    data: str
    n_rows: int
    batches: tuple[int, ...]
    uses: tuple[int, ...]
    constants: Literal["printed", "intended"]
    claim: float
    delta: float
    noise: tuple[float, ...]
    without_replacement: float
    poisson: float
    failed: tuple[str, ...]


def true_epsilon_table() -> Iterator[TrueEpsilon]:
    """The rows of both tables, DP-SGD-HT first, each as soon as it is computed."""
    for data, b in _SGD:
        n = _ROWS[data]
        steps = round(20 * n / b)
        for claim in _CLAIMS:
            noise = sgd_noise(n, b, steps, claim, _DELTA)
            failed = sgd_failed_conditions(n, b, steps, claim, _DELTA)
            yield _proved(data, (b,), (steps,), "printed", claim, (noise,), failed)
    for data, B, b in _SCSG:
        n = _ROWS[data]
        epochs = 10 * n // (3 * B)
        for constants in ("printed", "intended"):
            for claim in _CLAIMS:
                noises = scsg_noise(n, B, b, epochs, claim, _DELTA, "II", intended=constants == "intended")
                failed = scsg_failed_conditions(n, B, b, epochs, claim, _DELTA, "II")
                yield _proved(data, (B, b), (epochs, epochs * (B // b)), constants, claim, noises, failed)


def _proved(
    data: str,
    batches: Sequence[int],
    uses: Sequence[int],
    constants: Literal["printed", "intended"],
    claim: float,
    noises: Sequence[float],
    failed: tuple[str, ...],
) -> TrueEpsilon:
    n = _ROWS[data]

    def proved(scheme: Literal["poisson", "without_replacement"]) -> float:
        events = (SampledGaussianEvent(NoisePerSensitivity(z), b / n, scheme) for z, b in zip(noises, batches))
        return best_accountant(tuple(zip(events, uses)), _DELTA)[0]

    return TrueEpsilon(
        data,
        n,
        tuple(batches),
        tuple(uses),
        constants,
        claim,
        _DELTA,
        tuple(noises),
        proved("without_replacement"),
        proved("poisson"),
        failed,
    )


@dataclass(frozen=True)
class NoiseWithoutProof(Exact):
    """exact + N(0, σ²), σ = noise × a sensitivity that a paper claims and that does not hold.

    Nothing is promised: it costs what the exact answer costs.

    Parameters
    ----------
    noise : NoisePerSensitivity
    claimed : float
        The paper's sensitivity, >= 0.
    """

    claimed: float = 0.0

    def release(
        self, exact: Any, sensitivity: Sensitivity, generator: np.random.Generator, then: Then | None
    ) -> FloatArray:
        return exact + self.noise.value * self.claimed * generator.standard_normal(exact.shape)


@describe_mechanism.register
def _(mechanism: NoiseWithoutProof) -> str:
    return "Gaussian noise without a proof"
