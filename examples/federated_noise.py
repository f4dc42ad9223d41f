"""The epsilon that the noise of the federated paper proves, accounted for the way its batches are drawn.

DP-FedSGD-HT (Liang, Tong, Ding, Pan, Bi 2023) calibrates its noise with the accountant of TensorFlow Privacy, which is
for Poisson batches, and for data sets that differ by adding or removing a row. The paper's batches have a fixed size,
and its neighbours have one row replaced, which changes a clipped sum by twice as much. The columns:

    accountant   the requested epsilon: Rényi divergences, Poisson batches, a row added or removed
    tight        the same batches and neighbours, by privacy loss distributions (dp_accounting)
    Poisson      the same noise on Poisson batches, a row replaced (tulle)
    fixed size   the same noise on batches of a fixed size without replacement, a row replaced (tulle): the paper's case

    python examples/federated_noise.py        # a few seconds; needs the extra crosscheck
"""

from __future__ import annotations

from typing import Any, NamedTuple

from scipy.optimize import brentq

import tulle.accounting.calibration  # noqa: F401  (adds the accountants of batches)
from tulle.accounting.crosscheck import import_dp_accounting
from tulle.trusted.accountants import epsilon
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import SampledGaussian
from tulle.trusted.plan import Release
from tulle.trusted.sampling import Sampling, Scheme

dp = import_dp_accounting()

ROWS, DELTA = 6_000, 1e-5  # a tenth of MNIST at each of ten clients
ADDED = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
# TensorFlow Privacy's.
ORDERS = [1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.5, *range(5, 64), 128, 256, 512]


# Batch, steps and the epsilon asked for. The last two are those of docs/pictures/federated_mnist.py.
CASES = ((64, 1_000, 4.0), (64, 3_000, 6.0), (256, 500, 4.0), (256, 500, 6.0))


class Proved(NamedTuple):
    """One setting.

    Attributes
    ----------
    batch, steps : int
        Rows of a step, and steps of a client in all rounds, K R.
    asked : float
    noise : float
        Standard deviation over the clip level, the noise multiplier of TensorFlow Privacy.
    tight, poisson, fixed_size : float
        The epsilon proved for this noise, as described at the top of this file.
    """

    batch: int
    steps: int
    asked: float
    noise: float
    tight: float
    poisson: float
    fixed_size: float


def added_or_removed(accountant: Any, noise: float, batch: int, steps: int) -> float:
    """The epsilon of an accountant of dp_accounting, for Poisson batches and adding or removing a row."""
    step = dp.dp_event.PoissonSampledDpEvent(batch / ROWS, dp.dp_event.GaussianDpEvent(noise))
    return float(accountant.compose(dp.dp_event.SelfComposedDpEvent(step, steps)).get_epsilon(DELTA))


def replaced(scheme: Scheme, noise: float, batch: int, steps: int) -> float:
    """The epsilon that tulle proves for replacing a row; its sensitivity is twice the clip level."""
    step = SampledGaussian(NoisePerSensitivity(noise / 2), Sampling(scheme, ROWS, batch))
    return epsilon((Release("local step", step, steps),), DELTA)


def proved(batch: int, steps: int, asked: float) -> Proved:
    noise = brentq(lambda z: added_or_removed(dp.rdp.RdpAccountant(ORDERS, ADDED), z, batch, steps) - asked, 0.5, 4.0)
    return Proved(
        batch,
        steps,
        asked,
        noise,
        added_or_removed(dp.pld.PLDAccountant(ADDED), noise, batch, steps),
        replaced("poisson", noise, batch, steps),
        replaced("without_replacement", noise, batch, steps),
    )


def main() -> None:
    print(f"{ROWS:,} rows, delta = {DELTA:g}\n")
    print("batch  steps  noise / clip  accountant  tight  Poisson  fixed size")
    for row in (proved(*case) for case in CASES):
        print(
            f"{row.batch:5}  {row.steps:5}  {row.noise:12.3f}  {row.asked:10.2f}  {row.tight:5.2f}  "
            f"{row.poisson:7.2f}  {row.fixed_size:10.1f}"
        )


if __name__ == "__main__":
    main()
