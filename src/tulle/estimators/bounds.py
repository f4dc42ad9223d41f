"""Bounds on private rows: declared, or estimated by a private quantile that is on the bill. Never peeked at.

Proof: docs/proofs/quantile.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tulle.backends.input_kinds import find_spread
from tulle.backends.known_bounds import KnownBounds
from tulle.backends.rows_elsewhere import NoTargets
from tulle.estimators.memory_check import check_width
from tulle.fast.install import install
from tulle.files import array_checks
from tulle.ledgers import ledger as _ledger  # noqa: F401 (it looks for ledgers of other processes)
from tulle.ledgers.spending import note_release
from tulle.methods.loss_functions import facts_without_model
from tulle.methods.parameter_checks import to_python_number
from tulle.monitoring.logged_account import open_logged_account
from tulle.reports.words import warn_of_large_epsilon
from tulle.trusted import intake
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.fit import Order
from tulle.trusted.mechanisms import Sensitivity, TopK
from tulle.trusted.plan import Budget, Plan, Release, is_number
from tulle.trusted.queries import Query, vouch_for_query
from tulle.trusted.randomness import seed_of
from tulle.trusted.rows import Block, Rows

install()

# Values that a bound can be estimated as: a grid that no data touches, from 1e-3 to 1e6 in steps of sqrt(2).
GRID = 2.0 ** (np.arange(-20, 41) / 2)


# Of bounds that are declared. Beyond, products of rows and slopes leave the range of floats, and a sum that overflows
# tells more than a noisy one.
SMALLEST_BOUND, LARGEST_BOUND = 1e-50, 1e50


@vouch_for_query
@dataclass(frozen=True, eq=False)
class QuantileScores(Query):
    """For each cell of a public grid, minus how many ranks it is away from holding the wanted quantile.

    With C(t) the number of rows whose norm (or |label|) is at most t, cell k between two values of the grid scores
    -max(quantile n - C(t_k), C(t_{k-1}) - quantile n, 0). Replacing a row moves each count by at most 1, and a maximum
    moves by no more than what it is taken over. Scoring cells, not values, tells the cell that all rows lie in from
    the empty ones above it. Proof: docs/proofs/quantile.md.
    """

    grid: FloatArray
    quantile: float  # in (0, 1)
    of: str  # "row_l2", "row_linf": the norms of rows; "label": the magnitudes of labels

    def __post_init__(self) -> None:
        # Next to a quantile of 2^53 rows a count of 1 is rounded to 2.
        if not 0 < self.quantile < 1:
            raise ValueError(f"a quantile lies strictly between 0 and 1, got {self.quantile!r}")

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(linf=float(public.rows_per_unit))

    def size(self, public: PublicFacts) -> float:
        return public.n_rows * math.sqrt(len(self.grid))

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        counts = rows.reduce(self._counts)
        below, wanted = np.r_[0.0, counts[:-1]], self.quantile * public.n_rows
        return -np.maximum(np.maximum(wanted - counts, below - wanted), 0.0)[:, None]

    def _counts(self, block: Block) -> FloatArray:
        values = np.abs(block.targets) if self.of == "label" else block.norms("l2" if self.of == "row_l2" else "linf")
        values = np.where(block.active, values, 0.0)
        return np.searchsorted(np.sort(values), self.grid, side="right").astype(float)


@dataclass(frozen=True)
class Bounds:
    """Bounds on rows and labels that are known before looking at them. Larger values are clipped.

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
        ids are passed to ``fit(..., groups=ids)``, a person's surplus rows are left out: with 1, all but the first, of
        which a warning and the report tell.
    estimate_share : float, default=0.1
        The part of epsilon, in (0, 1), that a fit spends on bounds which it needs and which are not declared.
    quantile : float, default=0.75
        The quantile, in (0, 1), that an undeclared bound is estimated as. Nearer to 1 fewer rows are clipped, but few
        rows then stand between a good estimate and a wild one.
    offset : float or None, default=None
        Bound on the magnitude of offsets (``fit(..., offset=...)``), in [1e-50, 1e50]; at most 30 where they are added
        to margins, for all losses but "squared" and "huber". Offsets beyond it are clipped. With the latter two
        `label` bounds target - offset.

    Notes
    -----
    The bounds speak of the features; the intercept's constant column is added by the methods. Of `row_l2` and
    `row_linf` one is enough: row_linf <= row_l2 <= sqrt(features) row_linf. A private fit warns of bounds of rows
    outside of [1e-6, 1e6] and of labels outside of [1e-6, 1e9].
    """

    row_l2: float | None = None
    row_linf: float | None = None
    label: float | None = None
    normalise: bool = False
    rows_per_person: int = 1
    estimate_share: float = 0.1
    quantile: float = 0.75
    offset: float | None = None

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, to_python_number(getattr(self, name)))
        for name in ("row_l2", "row_linf", "label", "offset"):
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
            An integer makes the result reproducible, without a guarantee against those who know it; not so inside a
            `FileLedger`, where no seed repeats noise. A RandomState or a Generator counts as None.

        Returns
        -------
        Bounds
        """
        if not (is_number(epsilon) and 0 < epsilon < math.inf):
            raise ValueError(f"epsilon must be a finite number > 0, got {epsilon!r}")
        warn_of_large_epsilon(epsilon, 4)  # np.errstate stands between
        checked = cls(quantile=quantile, rows_per_person=rows_per_person)
        epsilon, quantile, rows_per_person = to_python_number(epsilon), checked.quantile, checked.rows_per_person
        seed = seed_of(random_state)
        spread = find_spread(X, y)
        if spread is None:
            X, targets = _check(X, y)
        else:
            spread.check()
            if y is None:
                spread = spread.coded(NoTargets())
            else:
                spread.smallest_target()  # an error where they are words
                spread = spread.coded(intake.AsNumbers())
        shape = X.shape if spread is None else spread.shape
        check_width(shape[1])
        wanted = ("row_l2", "row_linf") if y is None else ("row_l2", "row_linf", "label")
        plan = Plan((), quantile_releases(wanted, epsilon))
        order = Order("Bounds.estimate", (plan,), 0.0, rows_per_person, seed, Budget(epsilon))
        public = facts_without_model(shape[0], shape[1], rows_per_person)
        if spread is not None:
            spread.check_reachable()
        about = {"n_rows": int(shape[0]), "n_features": int(shape[1])}
        with open_logged_account(order, __name__, about, holders=spread) as account:
            note_release()
            rows = Rows(X, targets) if spread is None else spread.rows(None)
            found = account.ask_first(rows, public, lambda ask: estimate_quantiles(ask, wanted, quantile))
        return cls(
            found["row_l2"],
            found["row_linf"],
            found.get("label"),
            quantile=quantile,
            rows_per_person=rows_per_person,
        )


def _check(X: Any, y: Any) -> tuple[Any, FloatArray]:
    """Finite rows, and finite targets: zeros where there are none."""
    rows = array_checks.read_rows(X)
    if y is None:
        return rows, np.zeros(rows.shape[0])
    array_checks.warn_of_column(y, "y")
    targets = intake.read_cells(y, "y")
    array_checks.check_same_length(rows, targets)
    return rows, array_checks.read_finite_numbers(targets, "y")


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
