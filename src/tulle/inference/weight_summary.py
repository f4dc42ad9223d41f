"""The table of estimates: standard errors, intervals, p-values, and what privacy costs of their width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import t as student

from tulle.files.install_hints import import_pandas
from tulle.files.notebook_html import html_paragraphs, html_table
from tulle.inference.evidence import Evidence, check_level
from tulle.trusted.events import FloatArray

if TYPE_CHECKING:
    import pandas

INTERCEPT = "(intercept)"

FIXED_BEFOREHAND = (
    "Conditional on these features being fixed beforehand. They were chosen by the same rows, so there are no p-values."
)
_SPLIT = "The features were chosen by other rows than those that the weights were fitted to: intervals hold for them."
_NOT_DETERMINED = (
    "No intervals: at this budget the curvature of the loss does not stand out of its noise. Use more rows, fewer "
    "features or a larger epsilon. Estimates are shrunk towards 0."
)
_TOLD_LITTLE = (
    "No interval (–) for a weight that the curvature tells too little about, as for a rare feature, and for an "
    "intercept that depends on a weight without a closed interval."
)
_OPEN = (
    "An end at ∞ (for ratios 0 or ∞) is open: the rows do not limit the weight on that side, as where a feature nearly "
    "decides the outcome."
)
_APPROXIMATE = "Intervals hold approximately, the better the more rows there are; they count sampling and all noise."


@dataclass(frozen=True)
class Line:
    """One weight. Numbers are NaN where nothing can be said."""

    name: str
    estimate: float
    standard_error: float
    low: float
    high: float
    p_value: float
    privacy_share: float


@dataclass(frozen=True)
class WeightSummary:
    """Weights with their standard errors, intervals and p-values. Printing shows a table, and so do notebooks.

    Attributes
    ----------
    lines : tuple of Line
        `name`, `estimate`, `standard_error`, `low`, `high` (-inf and inf where the interval is open), `p_value` (of the
        hypothesis that the weight is 0) and
        `privacy_share`: the part of the interval's width that is due to privacy, in [0, 1).
    level : float
        The coverage of the intervals.
    scale : str
        What the estimates are: "weight", "odds ratio", "rate ratio" or "hazard odds ratio".
    notes : tuple of str
        What to know when reading them.
    n_rows : int
        Rows that the weights were fitted to.
    """

    lines: tuple[Line, ...]
    level: float
    scale: str
    notes: tuple[str, ...]
    n_rows: int

    @property
    def null_value(self) -> float:
        """The estimate of a feature that has no part in the prediction."""
        return 0.0 if self.scale == "weight" else 1.0

    def to_frame(self) -> pandas.DataFrame:
        """The table as a DataFrame, a line for each name. Needs pandas."""
        pandas = import_pandas()
        columns = ("estimate", "standard_error", "low", "high", "p_value", "privacy_share")
        values = {column: [getattr(line, column) for line in self.lines] for column in columns}
        return pandas.DataFrame(values, index=pandas.Index([line.name for line in self.lines], name="feature"))

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        percent = f"{100 * self.level:g} %"
        head = ("feature", self.scale, "std. error", f"low ({percent})", f"high ({percent})", "p-value", "privacy")
        return head, [
            (
                line.name,
                *(_number(value) for value in (line.estimate, line.standard_error, line.low, line.high)),
                "–" if math.isnan(line.p_value) else "< 0.001" if line.p_value < 0.001 else f"{line.p_value:.3f}",
                "–" if math.isnan(line.privacy_share) else f"{100 * line.privacy_share:.0f} %",
            )
            for line in self.lines
        ]

    def __str__(self) -> str:
        head, body = self._cells()
        widths = [max(len(row[k]) for row in (head, *body)) for k in range(len(head))]
        lines = [
            "  ".join(f"{cell:<{width}}" if not k else f"{cell:>{width}}" for k, (cell, width) in enumerate(pairs))
            for pairs in (list(zip(row, widths)) for row in (head, *body))
        ]
        return "\n".join([*lines, "", self._told(), *self.notes])

    def _told(self) -> str:
        return f"{self.n_rows:,} rows; “privacy” is the part of an interval's width that is due to noise."

    def _repr_html_(self) -> str:
        return html_table(*self._cells()) + html_paragraphs((self._told(), *self.notes))


def _number(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return "–" if math.isnan(value) else f"{value:.4g}"


def summarise(
    evidence: Evidence,
    names: Sequence[str],
    level: float = 0.95,
    units: tuple[FloatArray, FloatArray] | None = None,
    ratio: str = "",
) -> WeightSummary:
    """The table of weights and their errors.

    Parameters
    ----------
    evidence : Evidence
    names : sequence of str
        Of all features of the model, chosen or not.
    level : float, default=0.95
        The coverage of the intervals, in (0, 1).
    units : tuple of arrays or None, default=None
        (middles, halves) of all features, as `Schema.units` gives them: weights are then for one unit of the column.
    ratio : str, default=""
        "odds ratio", "rate ratio" or "hazard odds ratio": exponentials of the weights, with standard errors by the
        delta method.
    """
    check_level(level)
    s = len(evidence.features)
    estimates, change = evidence.estimates, np.eye(len(evidence.estimates))
    if units is not None:
        middles, halves = (np.asarray(part)[evidence.features] for part in units)
        change[:s, :s] = np.diag(1 / halves)
        if len(estimates) > s:
            change[s, :s] = -middles / halves
    estimates = change @ estimates
    variances = np.einsum("ij,jk,ik->i", change, evidence.covariance, change)
    # The intercept in another unit mixes variances that are known better and worse; the worst is taken for it.
    freedom = evidence.freedom.copy()
    sampling = np.square(change) @ evidence.sampling
    low, high = evidence.find_ends(level)
    determined = ~np.any((change != 0) & ~evidence.determined, axis=1)
    mixed = len(estimates) > s and bool(change[s, :s].any())
    if mixed:
        freedom[s] = evidence.freedom.min()
        sampling[s] = math.nan  # which would need their covariances without privacy
        # A sum with a weight that has no limit has none.
        determined[s] &= bool(np.isfinite([low, high])[:, change[s] != 0].all())
    errors = np.where(determined, np.sqrt(np.maximum(variances, 0.0)), math.nan)
    with np.errstate(all="ignore"):
        tests = np.where(determined, evidence.p_values(), math.nan)
        low, high = (np.where(determined, ends, math.nan) for ends in (low, high))
        if units is not None:
            low[:s], high[:s] = low[:s] / halves, high[:s] / halves
        if mixed:
            # A sum over weights: on a straight line, by the covariance.
            reach = student.ppf((1 + level) / 2, freedom[s]) * errors[s]
            low[s], high[s] = estimates[s] - reach, estimates[s] + reach
            tests[s] = 2 * student.sf(np.abs(estimates[s]) / errors[s], freedom[s])
        shares = np.clip(1 - np.sqrt(sampling) / errors, 0.0, 1.0)
    if evidence.choice == "same rows":
        tests = np.full(len(estimates), math.nan)
    shown = [str(names[feature]) for feature in evidence.features] + [INTERCEPT] * (len(estimates) > s)
    table = np.column_stack([estimates, errors, low, high, tests, shares])
    if ratio:
        table, shown = table[:s], shown[:s]  # the exponential of an intercept is no ratio
        with np.errstate(over="ignore"):
            table[:, [0, 2, 3]] = np.exp(table[:, [0, 2, 3]])
        table[:, 1] *= table[:, 0]
    opened = bool(np.isinf(low).any() or np.isinf(high).any())
    lines = tuple(Line(name, *(float(value) for value in row)) for name, row in zip(shown, table))
    some, every = bool(evidence.determined.any()), not np.isnan(low).any()
    notes = (
        _APPROXIMATE if some else _NOT_DETERMINED,
        *([_TOLD_LITTLE] if some and not every else []),
        *([_OPEN] if opened else []),
        *([_SPLIT] if evidence.choice == "split" else []),
        *([FIXED_BEFOREHAND] if evidence.choice == "same rows" else []),
    )
    return WeightSummary(lines, level, ratio or "weight", notes, evidence.n_rows)
