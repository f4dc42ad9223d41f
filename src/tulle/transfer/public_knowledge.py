"""Public knowledge about the features of a fit, as ``fit(X, y, public=...)`` takes it.

Public rows without labels say which features are common and in which directions rows vary; `PublicFrequencies` says the
first alone. Nothing in here is private, and nothing in here costs anything: no function sees a private row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import lsqr
from sklearn.utils import check_array
from sklearn.utils.extmath import row_norms

from tulle.backends.known_bounds import KnownBounds
from tulle.transfer.public_features import even_directions
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts

Features = npt.NDArray[np.intp]

# Fewer public rows say little about which features are common.
LEAST_ROWS = 20

# Candidates: at most so many features, the most common ones. On text more of them add noise, and fewer lose words.
MOST_CANDIDATES = 4000

# At most so many directions: beyond, finding them takes longer than the fit.
MOST_DIRECTIONS = 300

# Public rows for each direction that they are to show, and the rows times directions that are held as dense numbers.
_ROWS_PER_DIRECTION, _LARGEST_BLOCK = 4, 4e7

# Public rows beyond these sizes are refused, as bounds are; entries and rows that are smaller than the largest by this
# factor are taken for 0.
_SIZES, _DUST = (1e-50, 1e50), 1e-30

# Where fewer than half of the wanted directions can be shown, those that can must hold this part of the rows' squared
# length.
_ENOUGH = 0.9

# The check looks at so many leading directions. Squared lengths of rows on many features are estimated by this many
# random combinations of them.
_CHECKED, _PROBES = 20, 32

PUBLIC_ASSUMPTION = (
    "Public {what} were declared. If they are not public, nothing is guaranteed about the people in them; if they were "
    "chosen by looking at private rows, nothing is guaranteed about anybody."
)


@dataclass(frozen=True, eq=False)
class PublicFrequencies:
    """How common each feature is, from a public source, for ``fit(X, y, public=PublicFrequencies(values))``.

    Parameters
    ----------
    values : array of shape (d,)
        Finite, >= 0, not all zero, on any scale: the share of rows that have the feature, its count in a public corpus,
        or its mean square. They must not come from the private rows.
    """

    values: Any

    def __post_init__(self) -> None:
        try:
            values = np.asarray(self.values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError("PublicFrequencies takes one number for each feature") from None
        if values.ndim != 1 or len(values) == 0:
            raise ValueError(f"PublicFrequencies takes one number for each feature, got the shape {values.shape}")
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() > 0):
            raise ValueError("PublicFrequencies must be finite, >= 0 and not all zero")
        object.__setattr__(self, "values", values)


def read_public(public: Any, n_features: int, names: Any = None) -> PublicKnowledge:
    """Public rows or frequencies, checked; errors say what to change.

    Parameters
    ----------
    public : PublicFrequencies, array, sparse array or DataFrame of shape (m, d)
    n_features : int
        Of the private rows.
    names : sequence of str or None, default=None
        Names of the private columns, where they have names. Those of a DataFrame of public rows must be the same.
    """
    if isinstance(public, PublicFrequencies):
        if len(public.values) != n_features:
            raise ValueError(f"public has frequencies of {len(public.values)} features, the private rows {n_features}")
        return PublicKnowledge(public.values, None)
    if isinstance(public, (str, bytes)) or callable(getattr(public, "draw", None)):
        raise TypeError(
            f"public must be rows of shape (m, {n_features}) or tulle.PublicFrequencies, got {type(public).__name__}"
        )
    columns = getattr(public, "columns", None)
    if names is not None and columns is not None and list(columns) != list(names):
        raise ValueError("the columns of public must have the names of the private columns, in the same order")
    rows = check_array(public, accept_sparse="csr", dtype=np.float64, ensure_min_samples=0, input_name="public")
    if rows.shape[1] != n_features:
        raise ValueError(f"public has {rows.shape[1]} columns, the private rows {n_features}")
    if rows.shape[0] < LEAST_ROWS:
        raise ValueError(f"public has {rows.shape[0]} rows; pass at least {LEAST_ROWS}, a few hundred are enough")
    rows = sp.csr_array(rows) if sp.issparse(rows) else rows
    largest = float(np.abs(rows.data if sp.issparse(rows) else rows).max(initial=0.0))
    if largest == 0:
        raise ValueError("all public rows are zero")
    if not _SIZES[0] <= largest <= _SIZES[1]:
        raise ValueError(f"the largest entry of public is {largest:g}; it must lie in [{_SIZES[0]:g}, {_SIZES[1]:g}]")
    rows = rows.copy()
    values = rows.data if sp.issparse(rows) else rows
    values[np.abs(values) < _DUST * largest] = 0.0
    return PublicKnowledge(_mean_squares(rows / largest), rows)


def _mean_squares(rows: Any) -> FloatArray:
    squares = rows.multiply(rows) if sp.issparse(rows) else rows**2
    return np.asarray(squares.mean(axis=0), dtype=np.float64).ravel()


@dataclass(frozen=True, eq=False)
class PublicKnowledge:
    """How common each feature is, on any scale, and public rows if there are any."""

    frequencies: FloatArray
    rows: Any
    _views: dict[tuple[object, ...], PublicView] = field(default_factory=dict, repr=False)

    @cached_property
    def candidates(self) -> Features:
        """The features that a first fit in public coordinates has."""
        return self.common(MOST_CANDIDATES)

    def common(self, count: int) -> Features:
        """The `count` most common features, in order; those that the public source does not have are none of them."""
        common = np.argsort(-self.frequencies, kind="stable")[:count]
        return np.sort(common[self.frequencies[common] > 0])

    def most_directions(self, public: PublicFacts) -> int:
        """How many directions public rows can show, and a fit can hold; 0 without rows."""
        shown = 0 if self.rows is None else self.rows.shape[0] // _ROWS_PER_DIRECTION
        return min(MOST_DIRECTIONS, len(self.candidates), shown, max(int(_LARGEST_BLOCK / public.n_rows), 10))

    def shows_enough(self, public: PublicFacts, wanted: int) -> bool:
        """Whether public rows can show half of the `wanted` directions, or of those that a fit can have."""
        return 2 * self.most_directions(public) >= min(wanted, MOST_DIRECTIONS, len(self.candidates))

    @property
    def is_useful(self) -> bool:
        """Whether there is anything to use: rows, or features to leave out."""
        return self.rows is not None or len(self.candidates) < len(self.frequencies)

    def assumption(self) -> str:
        """What the report says."""
        return PUBLIC_ASSUMPTION.format(what="frequencies of features" if self.rows is None else "rows")

    def view(self, public: PublicFacts, wanted: int) -> PublicView:
        """The coordinates that it suggests under the bounds of a fit, for rows that can tell `wanted` directions."""
        bounds = (public.row_l2, public.row_linf, public.normalised, public.n_rows, wanted)
        if bounds not in self._views:
            self._views[bounds] = self._make_view(public, wanted)
        return self._views[bounds]

    def _make_view(self, public: PublicFacts, wanted: int) -> PublicView:
        if self.rows is None:
            return PublicView(self.candidates, None, None, self.frequencies, public.row_l2)
        rows = KnownBounds(public.row_l2, public.row_linf, math.inf, public.normalised).clip_copy(self.rows)
        count = max(min(wanted, self.most_directions(public)), 1)
        mixing, held = even_directions(scale_to_unit(rows[:, self.candidates]), count)
        enough = self.shows_enough(public, wanted) or held >= _ENOUGH
        return PublicView(self.candidates, mixing if enough else None, rows, self.frequencies, public.row_l2)


def scale_to_unit(rows: Any) -> Any:
    """Public rows at length 1; empty ones, or as good as empty, at 0."""
    lengths = np.sqrt(row_norms(rows, squared=True))
    least = max(_DUST * float(lengths.max(initial=0.0)), 1e-300)
    factors = np.where(lengths > least, 1 / np.maximum(lengths, least), 0.0)
    return sp.csr_array(sp.diags_array(factors) @ rows) if sp.issparse(rows) else rows * factors[:, None]


@dataclass(frozen=True, eq=False)
class PublicView:
    """Candidate features, the directions in them that a fit uses (None: each feature by itself), and public rows."""

    features: Features
    mixing: FloatArray | None
    rows: Any
    frequencies: FloatArray
    row_l2: float

    def probes(self, n_parameters: int) -> tuple[FloatArray, FloatArray]:
        """Public vectors in the checked directions, and in all features, as the columns of two arrays.

        The sum of a row's squared products with them, over that of their squared lengths, is the row's squared length
        there over the number of directions: exactly for the leading directions themselves, about for random
        combinations of features. From a fixed seed: they need not be secret.
        """
        generator, d = np.random.default_rng(0), len(self.frequencies)
        everywhere = np.zeros((n_parameters, _PROBES))
        everywhere[:d] = generator.choice([-1.0, 1.0], (d, _PROBES)) / math.sqrt(d)
        basis = self._basis()
        if basis is None:
            basis = generator.choice([-1.0, 1.0], (len(self.features), _PROBES)) / math.sqrt(len(self.features))
        inside = np.zeros((n_parameters, basis.shape[1]))
        inside[self.features] = basis
        return inside, everywhere

    def _basis(self) -> FloatArray | None:
        """Unit vectors along the first directions."""
        if self.mixing is None:
            return None
        first = self.mixing[:, : self.n_probed]
        return np.asarray(first / np.linalg.norm(first, axis=0))

    @property
    def least_share(self) -> float:
        """The part of the expected share that private rows must have; frequencies may be of another kind of count."""
        return 0.5 if self.rows is None else 0.8

    @property
    def n_probed(self) -> int:
        """How many directions are checked: the leading ones, or one for each candidate."""
        return len(self.features) if self.mixing is None else min(self.mixing.shape[1], _CHECKED)

    @cached_property
    def checked_length(self) -> float:
        """What the lengths of private rows are cut off at in the check: for rows like the public ones hardly ever."""
        longest = math.sqrt(2) * self.row_l2
        if self.rows is None:
            return longest
        mean = float(np.mean(self._checked_squares(self.rows, self.features, self._basis())))
        return min(math.sqrt(3 * mean), longest) if mean > 0 else longest

    @staticmethod
    def _checked_squares(rows: Any, features: Features, basis: FloatArray | None) -> FloatArray:
        """Squared lengths of rows on some features, or in directions of these."""
        on = rows[:, features]
        return np.asarray(row_norms(on if basis is None else np.asarray(on @ basis), squared=True))

    @cached_property
    def expected_share(self) -> float:
        """The part of their squared length that private rows like the public ones have in the checked directions.

        Directions are found from every second public row and measured on the others: rows have a larger part in
        directions that they themselves were used to find. Frequencies come without rows, and are taken as they are.
        """
        if self.rows is None:
            return float(self.frequencies[self.features].sum() / self.frequencies.sum())
        shown, others = self.rows[::2], self.rows[1::2]
        if self.mixing is None:
            squares = _mean_squares(shown)
            common = np.argsort(-squares, kind="stable")[: len(self.features)]
            inside = self._checked_squares(others, np.sort(common[squares[common] > 0]), None)
        else:
            first, _ = even_directions(scale_to_unit(shown[:, self.features]), self.n_probed)
            inside = self._checked_squares(others, self.features, first / np.linalg.norm(first, axis=0))
        inside = np.minimum(inside, self.checked_length**2)
        return float(inside.sum() / max(row_norms(others, squared=True).sum(), 1e-300))

    def lengths(self, features: Features | None = None) -> FloatArray:
        """Lengths of public rows in the coordinates of the first fit, or on some features; without rows, none."""
        if self.rows is None:
            return np.zeros(0)
        on = self.rows[:, self.features if features is None else features]
        if features is None and self.mixing is not None:
            on = np.asarray(on @ self.mixing)
        return np.asarray(np.sqrt(row_norms(on, squared=True)))

    def sparse_student(self, weights: FloatArray, count: int) -> FloatArray:
        """At most `count` weights whose margins on public rows are near those of `weights`, of shape (features,).

        Kept are the features that margins vary most by, |w_j| sqrt(mean square of x_j); the kept weights then make up
        for the others by least squares, pulled to where they were.
        """
        importance = np.abs(weights) * np.sqrt(self.frequencies if self.rows is None else _mean_squares(self.rows))
        chosen = np.sort(np.argsort(-importance, kind="stable")[:count])
        chosen = chosen[weights[chosen] != 0]
        student = np.zeros_like(weights)
        student[chosen] = weights[chosen]
        if self.rows is None or len(chosen) == 0:
            return student
        on = self.rows[:, chosen]
        missing = np.asarray(self.rows @ (weights - student)).ravel()
        pull = math.sqrt(float(_mean_squares(on).mean()) * on.shape[0])
        if pull > 0 and np.any(missing):
            student[chosen] += lsqr(on, missing, damp=pull, iter_lim=60)[0]
        return student
