"""Weights and offsets of rows, and weights of classes: read cell by cell, before anything is billed.

docs/model_features.md says what each means, and which methods take which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tulle.backends.rows_elsewhere import Spread
from tulle.backends.weighted_rows import CarriedNumbers
from tulle.backends.weighted_targets import LARGEST_OFFSET, clip_offsets, clip_weights
from tulle.estimators.bounds import Bounds
from tulle.estimators.column_settings import NO_NAMES, ColumnNames
from tulle.files import array_checks
from tulle.files.error_messages import show_setting
from tulle.methods.loss_functions import Loss
from tulle.methods.weighted_loss import WeightedLoss
from tulle.preprocessing.class_balance import ClassBalance, ClassFactors
from tulle.trusted import intake
from tulle.trusted.events import FloatArray
from tulle.trusted.losses import ConvexHuber, ConvexSquared
from tulle.trusted.plan import is_number

# Losses of y - margin alone, by what objective perturbation uses of them: an offset is taken off the target.
_OF_RESIDUALS = (ConvexSquared, ConvexHuber)


@dataclass(frozen=True, eq=False)
class RowInputs:
    """What was passed to fit for each row besides X and y, as it was given; and the names that a pipeline knows."""

    sample_weight: Any = None
    offset: Any = None
    names: ColumnNames = NO_NAMES


NO_INPUTS = RowInputs()


@dataclass(frozen=True, eq=False)
class FitInputs:
    """Targets and loss of a fit, and what its rows carry; `said` are lines of the report, which depend on no row."""

    targets: FloatArray | None
    loss: Loss
    numbers: CarriedNumbers | None = None
    balance: ClassBalance | None = None
    said: tuple[str, ...] = ()


def read_row_numbers(given: Any, name: str, n_rows: int) -> FloatArray:
    """One finite number for each row; as for targets, an error names rows that have none and quotes no cell."""
    array_checks.warn_of_column(given, name)
    cells = intake.read_cells(given, name)
    if len(cells) != n_rows:
        raise ValueError(f"{name} holds {len(cells)} numbers for {n_rows} rows; pass one for each row")
    return array_checks.read_finite_numbers(cells, name)


def offset_bound(bounds: Bounds | None, loss: Loss, private: bool) -> float:
    """The declared bound of offsets; without privacy inf where there is none."""
    declared = None if bounds is None else bounds.offset
    if loss.n_outputs > 1:
        raise ValueError("offset is for one margin: a regression, or two classes")
    if declared is None:
        if private:
            raise ValueError("an offset needs a bound that is declared without looking at the rows: Bounds(offset=...)")
        return math.inf
    if declared > LARGEST_OFFSET and type(loss.convex) not in _OF_RESIDUALS:
        raise ValueError(
            f"Bounds(offset=...) must be at most {LARGEST_OFFSET:g} for {type(loss).__name__}, whose offsets are added "
            f"to margins; got {declared:g}"
        )
    return float(declared)


def read_offset(given: Any, n_rows: int, bounds: Bounds | None, loss: Loss, private: bool) -> FloatArray:
    """Offsets to predict with, clipped as those of the fit were."""
    return clip_offsets(read_row_numbers(given, "offset", n_rows), offset_bound(bounds, loss, private))


def read_class_weights(given: Any, classes: Any) -> ClassFactors | ClassBalance | None:
    """The weight of each class, the largest 1: from public numbers, or to be learnt from noisy counts."""
    if given is None:
        return None
    if isinstance(given, str):
        if given == "balanced":
            return ClassBalance(len(classes))
        raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {given!r}")
    if not isinstance(given, Mapping):
        raise TypeError(f"class_weight must be a dict, 'balanced' or None, got {type(given).__name__}")
    keys = {intake.get_key(label): place for place, label in enumerate(np.asarray(classes).tolist())}
    weights = np.ones(len(classes))
    for label, weight in given.items():
        if not (is_number(weight) and 0 <= weight < math.inf):
            raise ValueError(
                f"class_weight must have finite numbers >= 0, got {show_setting(weight)} for {show_setting(label)}"
            )
        if intake.get_key(label) not in keys:
            raise ValueError(f"class_weight names {show_setting(label)}, which is none of the classes")
        weights[keys[intake.get_key(label)]] = weight
    if not weights.max() > 0:
        raise ValueError("class_weight gives every class a weight of 0; one must be larger")
    return ClassFactors(tuple(float(weight) for weight in weights / weights.max()))


def read_inputs(model: Any, X: Any, targets: FloatArray | None, loss: Loss, given: RowInputs) -> FitInputs:
    """What a fit of `model` has of weights and offsets. Rows elsewhere have none."""
    factors = read_class_weights(getattr(model, "class_weight", None), getattr(model, "classes_", ()))
    if factors is None and given.sample_weight is None and given.offset is None:
        return FitInputs(targets, loss)
    if isinstance(X, Spread) or targets is None:
        raise ValueError("sample_weight, class_weight and offset need rows in memory; convert the rows, or omit them")
    n_rows, said = X.shape[0], []
    weights = np.ones(n_rows)
    if given.sample_weight is not None:
        weights = clip_weights(read_row_numbers(given.sample_weight, "sample_weight", n_rows))
        said.append(
            "Rows had weights, each clipped to [0, 1]: a weight multiplies the loss of its row. Means are divided by "
            "the number of rows; the sum of weights was not looked at."
        )
    if isinstance(factors, ClassFactors):
        weights = weights * factors(targets)
        said.append(f"Classes had public weights, the largest scaled to 1: {_list(factors.factors)}.")
    elif factors is not None:
        said.append("Classes had weights from noisy counts of their rows, which are on the bill.")
    offsets, bound, shifted = None, 0.0, type(loss.convex) in _OF_RESIDUALS
    if given.offset is not None:
        bound = offset_bound(model.bounds, loss, model.epsilon is not None or model.rho is not None)
        offsets = clip_offsets(read_row_numbers(given.offset, "offset", n_rows), bound)
        what = "taken off their targets" if shifted else "added to their margins"
        said.append(f"Rows had offsets, clipped to {bound:g} (declared) and {what}.")
    if shifted and offsets is not None:
        targets, offsets, bound = targets - offsets, None, 0.0
        if given.sample_weight is None:
            return FitInputs(targets, loss, said=tuple(said))
    said.append("tulle.backends.weighted_rows, outside of the trusted package, saw the rows.")
    numbers = CarriedNumbers(weights, offsets, bound)
    balance = factors if isinstance(factors, ClassBalance) else None
    return FitInputs(targets, WeightedLoss(loss, bound), numbers, balance, tuple(said))


def refuse_features(model: Any, where: str) -> None:
    """Raise where a model has settings that fits of another kind would leave out."""
    names = [name for name in ("class_weight", "always", "feature_groups") if getattr(model, name, None) is not None]
    if names:
        raise ValueError(f"{where} takes no {' and no '.join(names)}; fit the model by itself, or leave it out")


def _list(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
