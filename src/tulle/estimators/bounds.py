"""Bounds on private rows: declared, or estimated by a private quantile that is on the bill. Never peeked at.

Proof: docs/proofs/quantile.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from tulle import intake
from tulle.curator import Ask, Curator
from tulle.events import FloatArray, NoisePerSensitivity
from tulle.losses import Loss
from tulle.mechanisms import TopK
from tulle.privacy import Plan, Release, bill_open_ledgers, is_number, stream_of
from tulle.public import PublicFacts
from tulle.queries import QuantileScores
from tulle.randomness import keyed_generator, seed_of
from tulle.rows import Rows

# Values that a bound can be estimated as: a grid that no data touches, from 1e-3 to 1e6 in steps of sqrt(2).
GRID = 2.0 ** (np.arange(-20, 41) / 2)


# Of bounds that are declared. Beyond, products of rows and slopes leave the range of floats, and a sum that overflows
# tells more than a noisy one.
SMALLEST_BOUND, LARGEST_BOUND = 1e-50, 1e50


@dataclass(frozen=True)
class KnownBounds:
    """The bounds of one fit, declared, implied or estimated; inf where there is none (without privacy only)."""

    row_l2: float
    row_linf: float
    label: float
    normalise: bool

    def clip(self, rows: Rows, loss: Loss) -> None:
        """Make the rows obey the bounds. What happens to a row depends on that row alone."""
        with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
            if self.row_linf < self.row_l2 and not self.normalise:
                rows.clip_entries(self.row_linf)
            if self.row_l2 < math.inf:
                rows.clip_rows(self.row_l2, self.row_linf, self.normalise)
        if loss.kind == "regression" and self.label < math.inf:
            rows.clip_targets(-self.label, self.label)


@dataclass(frozen=True)
class Bounds:
    """What is known about rows and labels before looking at them. Whatever lies outside is clipped.

    Parameters
    ----------
    row_l2 : float or None, default=None
        Bound on the Euclidean norm of a row's features, in [1e-50, 1e50]. Longer rows are scaled down to it.
    row_linf : float or None, default=None
        Bound on the magnitude of a single feature, in [1e-50, 1e50]. Entries beyond it are clipped.
    label : float or None, default=None
        Bound on the magnitude of a regression target, in [1e-50, 1e50]. Targets beyond it are clipped.
    normalise : bool, default=False
        Scale every row to norm `row_l2` (1 if that is None) instead of only the longer ones; a row whose largest entry
        would pass a declared `row_linf` is scaled until it reaches that. Costs no privacy: what happens to a row
        depends on that row alone. Predictions normalise their rows too.
    rows_per_person : int, default=1
        The unit of privacy is a person with at most this many rows; sensitivities grow by this factor. Where person
        ids are passed to ``fit(..., groups=ids)``, a person's surplus rows are left out.
    estimate_share : float, default=0.1
        The part of epsilon, in (0, 1), that a fit spends on bounds which it needs and which are not declared.
    quantile : float, default=0.75
        The quantile, in (0, 1), that an undeclared bound is estimated as. Nearer to 1 fewer rows are clipped, but few
        rows then stand between a good estimate and a wild one.

    Notes
    -----
    The bounds speak of the features; the intercept's constant column is added by the methods. Of `row_l2` and
    `row_linf` one is enough: row_linf <= row_l2 <= sqrt(features) row_linf.
    """

    row_l2: float | None = None
    row_linf: float | None = None
    label: float | None = None
    normalise: bool = False
    rows_per_person: int = 1
    estimate_share: float = 0.1
    quantile: float = 0.75

    def __post_init__(self) -> None:
        for name in ("row_l2", "row_linf", "label"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and 0 < value < math.inf):
                raise ValueError(f"Bounds({name}=...) must be a finite number > 0, got {value!r}")
            if value is not None and not SMALLEST_BOUND <= value <= LARGEST_BOUND:
                raise ValueError(
                    f"Bounds({name}=...) must lie in [{SMALLEST_BOUND:g}, {LARGEST_BOUND:g}], got {value!r}"
                )
        for name in ("estimate_share", "quantile"):
            value = getattr(self, name)
            if not (is_number(value) and 0 < value < 1):
                raise ValueError(f"Bounds({name}=...) must lie strictly between 0 and 1, got {value!r}")
        if not (isinstance(self.rows_per_person, (int, np.integer)) and self.rows_per_person >= 1):
            raise ValueError(f"Bounds(rows_per_person=...) must be an integer >= 1, got {self.rows_per_person!r}")

    def missing(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Which of the wanted bounds ("row_l2", "row_linf", "label") are neither declared nor implied."""
        rows_known = self.normalise or self.row_l2 is not None or self.row_linf is not None
        return tuple(of for of in wanted if not (self.label if of == "label" else rows_known))

    def known(self, n_features: int, found: dict[str, float] | None = None) -> KnownBounds:
        """These bounds and the `found` ones, with row_l2 and row_linf filled in from each other."""
        found = found or {}
        row_l2 = self.row_l2 or found.get("row_l2", math.inf)
        row_linf = self.row_linf or found.get("row_linf", math.inf)
        if self.normalise:
            row_l2 = self.row_l2 or 1.0
        row_l2 = min(row_l2, math.sqrt(n_features) * row_linf)
        return KnownBounds(
            float(row_l2),
            float(min(row_linf, row_l2)),
            float(self.label or found.get("label", math.inf)),
            self.normalise,
        )

    @classmethod
    @np.errstate(all="ignore")  # a warning, or an error, about somebody's extreme row would be a release
    def estimate(
        cls,
        X: Any,
        y: Any = None,
        *,
        epsilon: float,
        quantile: float = 0.75,
        rows_per_person: int = 1,
        random_state: Any = None,
    ) -> Bounds:
        """Estimate bounds from private rows, purely `epsilon`-privately, billed to every open `Ledger`.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            Or rows elsewhere, as for `SparseClassifier.fit`.
        y : array of shape (n,) or None, default=None
            Regression targets; None estimates no label bound.
        epsilon : float
            In (0, inf), split evenly over the two or three bounds.
        quantile : float, default=0.75
            In (0, 1).
        rows_per_person : int, default=1
            At least 1.
        random_state : int, RandomState, Generator or None, default=None
            An integer makes the result reproducible and the promise void towards those who know it; not so inside a
            `FileLedger`, where no seed repeats noise. A RandomState or a Generator counts as None.

        Returns
        -------
        Bounds
        """
        from tulle.backends import find_spread

        if not (is_number(epsilon) and 0 < epsilon < math.inf):
            raise ValueError(f"epsilon must be a finite number > 0, got {epsilon!r}")
        cls(quantile=quantile, rows_per_person=rows_per_person)  # checks both
        seed = seed_of(random_state)
        spread = find_spread(X, y)
        if spread is None:
            X, targets = _checked(X, y)
        else:
            spread.check()
            if y is None:
                spread = spread.coded(intake.NoTargets())
            else:
                spread.smallest_target()  # an error where they are words
                spread = spread.coded(intake.AsNumbers())
        shape = X.shape if spread is None else spread.shape
        wanted = ("row_l2", "row_linf") if y is None else ("row_l2", "row_linf", "label")
        plan = Plan((), quantile_releases(wanted, epsilon))
        entries = bill_open_ledgers("Bounds.estimate", [plan], (epsilon, 0.0), rows_per_person)
        public = PublicFacts.without_model(shape[0], shape[1], rows_per_person)
        generator = keyed_generator(seed, stream_of(entries))
        said = ("Bounds.estimate", [plan], None, (float(epsilon), 0.0), rows_per_person)
        with nullcontext() if spread is None else spread.billed(*said):
            rows = Rows(X, targets) if spread is None else spread.rows(None)
            curator = Curator(rows, public, plan, generator)
            found = estimate_quantiles(curator.ask, wanted, quantile)
            curator.settle()
        return cls(
            found["row_l2"],
            found["row_linf"],
            found.get("label"),
            quantile=quantile,
            rows_per_person=rows_per_person,
        )


def _checked(X: Any, y: Any) -> tuple[Any, FloatArray]:
    """Finite rows, and finite targets: zeros where there are none."""
    rows = intake.entries(X)
    if y is None:
        return rows, np.zeros(rows.shape[0])
    targets = intake.cells(y, "y")
    intake.check_same_length(rows, targets)
    return rows, intake.finite_numbers(targets, "y")


def reliable(n_rows: int, quantile: float, epsilon: float, rows_per_person: int = 1) -> bool:
    """Whether an estimate at this epsilon lands beyond all rows with probability below 5 %, from public quantities.

    Cells above all rows are (1 - quantile) n ranks away, those below quantile × n, and the exponential mechanism
    halves the odds of a cell every 2 log(2) rows_per_person / epsilon ranks.
    """
    ranks = min(quantile, 1 - quantile) * n_rows / rows_per_person
    return len(GRID) * math.exp(-epsilon * ranks / 2) < 0.05


def quantile_releases(wanted: Sequence[str], epsilon: float) -> tuple[Release, ...]:
    """The releases that estimate the wanted bounds for `epsilon` in all."""
    return tuple(Release(f"{of} quantile", TopK(NoisePerSensitivity(2.0 * len(wanted) / epsilon)), 1) for of in wanted)


def estimate_quantiles(ask: Ask, wanted: Sequence[str], quantile: float) -> dict[str, float]:
    """Private quantiles by the exponential mechanism over the grid."""
    found = {}
    for of in wanted:
        chosen = ask(f"{of} quantile", QuantileScores(GRID, quantile, of))
        found[of] = float(GRID[int(np.argmax(chosen[:, 0]))])
    return found
