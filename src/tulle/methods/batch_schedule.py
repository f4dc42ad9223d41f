"""The schedule of `StochasticHardThresholding`: sizes of batches, steps of epochs, and the noise they add up to."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from tulle.methods.noise_scales import budget_mu, kept_row_norm
from tulle.methods.parameter_checks import check_whole
from tulle.methods.theorem_settings import refuse, sgd_steps
from tulle.trusted.facts import PublicFacts

# Each size has an event of its own, and calibration composes all of them.
_MOST_SIZES = 20


def check_batches(method: Any) -> None:
    """Raise unless the sizes of batches, and what a theorem prescribes of them, can be had."""
    batch, variant, name = method.batch, method.variant, type(method).__name__
    if isinstance(batch, (tuple, list, np.ndarray)):
        if variant != "sgd":
            raise ValueError(f"{name}(batch=...) of several sizes is for variant='sgd'; give one number")
        if method.passes is not None:
            raise ValueError(f"{name}(batch=...) of several sizes has a size for each step: leave passes=None")
        whole = all(isinstance(size, (int, np.integer)) and not isinstance(size, bool) for size in batch)
        if not (len(batch) and whole and min(batch) >= 1):
            raise ValueError(f"{name}(batch=...) must be an integer >= 1, or one for each step, got {batch!r}")
        if (different := len(set(batch))) > _MOST_SIZES:
            raise ValueError(f"{name}(batch=...) must have at most {_MOST_SIZES} different sizes, got {different}")
    elif batch == "theorem":
        if variant != "svrg":
            refuse(method, "batch", ["variant='svrg' (B / b = sqrt(k) with B = n; elsewhere b is open)"])
    else:
        check_whole(method, {"batch": 1}, optional=("batch",))
    if method.snapshot_batch == "theorem":
        missing = [] if variant == "scsg" else ["variant='scsg'"]
        missing += [] if isinstance(batch, (int, np.integer)) else ["batch=... (b, which the theorem leaves open)"]
        if missing:
            refuse(method, "snapshot_batch", missing)
    else:
        check_whole(method, {"snapshot_batch": 1}, optional=("snapshot_batch",))


def batch_sizes(method: Any, public: PublicFacts, default_passes: float) -> tuple[tuple[int, ...], int | None, float]:
    """b of each step or of all, B or None without snapshots, and the passes: defaults, or a theorem's.

    Theorem: B / b = sqrt(k); and for DP-SGD-HT T b = passes × n with the T of `sgd_steps`.
    """
    n, root = public.n_rows, math.sqrt(public.n_nonzero)
    if isinstance(method.batch, (tuple, list, np.ndarray)):
        sizes = tuple(min(int(size), n) for size in method.batch)
        return sizes, None, sum(sizes) / n
    given = max(round(n / root), 1) if method.batch == "theorem" else method.batch
    passes = default_passes if method.passes in (None, "theorem") else method.passes
    large: int | None = None
    if method.variant != "sgd":
        few = max(math.ceil(passes * n / 20), given or 1)
        wanted = max(round(given * root), given) if method.snapshot_batch == "theorem" else method.snapshot_batch
        large = n if method.variant == "svrg" else min(wanted or few, n)
    batch = min(given or math.ceil(n / 10 if large is None else large / 5), n)
    if large is not None and large < batch:
        raise ValueError(f"snapshot_batch={large} must be at least batch={batch}")
    if method.passes == "theorem":
        passes = sgd_steps(method, public) * batch / n
    return (batch,), large, passes


def epoch_lengths(
    n: int, batch: int, large: int | None, passes: float, option: Literal["I", "II"], seed: int
) -> tuple[int, ...]:
    """The steps after each snapshot; without snapshots all steps at once."""
    if large is None:
        return (max(round(passes * n / batch), 1),)
    mean = large / batch
    epochs = max(round(passes * n / (large + round(mean) * batch)), 1)
    if option == "II":
        return (round(mean),) * epochs
    # P(N = k) = (1 - p) p^k with p = B / (B + b). The coins are public and drawn before anything is calibrated.
    coins = np.random.default_rng(seed)
    drawn = coins.geometric(batch / (large + batch), epochs) - 1
    drawn[0] = max(drawn[0], 1)  # a run of no step at all would be none
    return tuple(int(min(length, math.ceil(10 * mean))) for length in drawn)


def margin_noise(
    public: PublicFacts,
    sizes: Counter[int],
    large: int | None,
    lengths: tuple[int, ...],
    clip: float,
    snapshot_noise: float,
    difference_clip: float,
) -> float:
    """About the standard deviation that all noise of steps of size 1 puts on the margin of a row at its bound.

    Many small releases are together about Gaussian: a sampled one of rate q and noise z (per record bound) adds
    4 q² sinh(1 / z²) to mu² (docs/stochastic_hard_thresholding.md). Only default steps depend on it. `sizes`: how many
    steps have each size of batch; noise per record bound is in proportion to it.
    """
    n, mu, largest = public.n_rows, budget_mu(public.budget), max(sizes)
    parts = [(size / n, size / largest, count) for size, count in sizes.items()]
    if large is not None:
        parts.append((large / n, snapshot_noise, len(lengths)))

    def excess(log_z: float) -> float:
        squares = [count * q**2 * _sinh((r * math.exp(log_z)) ** -2.0) for q, r, count in parts]
        return 4 * sum(squares) - mu**2

    z = math.exp(float(brentq(excess, -12.0, 30.0)))
    level = clip * public.row_l2 * kept_row_norm(public, False) * public.rows_per_unit
    if large is None:
        return level * z / largest * math.sqrt(sum(lengths))
    steps = difference_clip * z / largest * math.sqrt(sum(lengths))
    # The noise of a snapshot is in every step until the next one.
    snapshots = snapshot_noise * z / large * math.sqrt(sum(length**2 for length in lengths))
    return level * math.hypot(steps, snapshots)


def _sinh(x: float) -> float:
    return math.sinh(min(x, 700.0))
