"""What a question of a masked study may ask: by type and shape, before trusted code works out how far rows move it.

A message can hold any value in any field, and the server is not trusted. Sensitivities are proved for float64: squares
of integers wrap around, and true or false as an index means something else than 1 or 0. Weights of another shape than
the model's could make the line of a row depend on other rows. Weights so large that slopes follow the rounding of
margins are those of no method: the rounding depends on no other row (`tulle.federated.client_side.row_by_row`), and
they are refused all the same. Nothing here looks at rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.linear_study import LinearTerms
from tulle.methods import row_functions
from tulle.trusted.clipped_sum import ClippedSum
from tulle.trusted.events import FloatArray

# Margins are at most so large, for labels of a size of 1. A limit against weights that are chosen for their rounding;
# no proof rests on it.
_LARGEST_MARGIN = 1e9
# Labels that have no declared bound are taken for such as this.
_LARGEST_LABEL = 1e9

_Fits = Callable[[Any, LinearTerms], bool]


def is_query(query: Any, model: LinearTerms) -> bool:
    """Whether a query, as `tulle.federated.question_data.unpack` returns it, is a clipped sum that clients of this
    model answer."""
    if type(query) is not ClippedSum or not _fit(query, _FIELDS, model):
        return False
    fields = _ROW_FUNCTIONS.get(type(query.row_function))
    of_each_output = query.coordinates is None or query.coordinates.shape == query.shape[1:]
    # Without an intercept the last of the weights is a feature's.
    has_constant = model.fit_intercept or query.intercept_value == 0
    return of_each_output and has_constant and fields is not None and _fit(query.row_function, fields, model)


def _fit(of: Any, fields: dict[str, _Fits], model: LinearTerms) -> bool:
    return all(fits(getattr(of, name), model) for name, fits in fields.items())


def _number(value: Any, model: LinearTerms) -> bool:
    return type(value) in (int, float) and abs(value) < math.inf


def _flag(value: Any, model: LinearTerms) -> bool:
    return type(value) is bool


def _word(value: Any, model: LinearTerms, words: tuple[str, ...]) -> bool:
    return type(value) is str and value in words


def _array(value: Any, model: LinearTerms, kind: str, ndim: int) -> bool:
    return type(value) is np.ndarray and value.ndim == ndim and value.dtype.kind == kind


def _array_or_none(value: Any, model: LinearTerms, kind: str, ndim: int) -> bool:
    return value is None or _array(value, model, kind, ndim)


def _shape(value: Any, model: LinearTerms) -> bool:
    return type(value) is tuple and len(value) == 2 and all(type(length) is int and length >= 1 for length in value)


def _weights(value: Any, model: LinearTerms) -> bool:
    """A line for each parameter of the model, and a column for each output."""
    if type(value) is SparseWeights:
        return value.shape == model.shape and _bounded(value.values, model)
    return _array(value, model, "f", 2) and value.shape == model.shape and _bounded(value, model)


def _bounded(weights: FloatArray, model: LinearTerms) -> bool:
    """Whether no row of the model has a margin that is too large; weights that are not finite have."""
    public = model.public(1)
    label = 1.0 if model.classes is not None else min(max(public.label, 1.0), _LARGEST_LABEL)
    longest = float(np.sqrt((weights**2).sum(axis=0)).max(initial=0.0))
    return longest * public.row_bound(model.intercept_value) <= _LARGEST_MARGIN * label


def _direction(value: Any, model: LinearTerms) -> bool:
    return _array(value, model, "f", 2) and len(value) == model.shape[0]


def _levels(value: Any, model: LinearTerms) -> bool:
    return type(value) is tuple and len(value) == 2 and all(_number(level, model) for level in value)


def _features(value: Any, model: LinearTerms) -> bool:
    return _array(value, model, "i", 1) and bool(np.all((value >= 0) & (value < model.n_features)))


# The fields of a sum but its row function.
_FIELDS: dict[str, _Fits] = {
    "shape": _shape,
    "level": _number,
    "norm": partial(_word, words=("l2", "linf", "each")),
    "times": partial(_word, words=("rows", "one", "itself")),
    "intercept_value": _number,
    "support": partial(_array_or_none, kind="b", ndim=2),
    "units": partial(_array_or_none, kind="f", ndim=1),
    "coordinates": partial(_array_or_none, kind="i", ndim=1),
    "non_negative": _flag,
    "in_batches": _flag,
    "path": lambda value, model: value is None,
}

# Allowed row functions, with the fields of each: margins are those of `tulle.federated.client_side.row_by_row` alone.
_ROW_FUNCTIONS: dict[type, dict[str, _Fits]] = {
    row_functions.LossSlopes: {"weights": _weights},
    row_functions.RowWeights: {},
    row_functions.SlopeChanges: {"weights": _weights, "anchor": _weights, "levels": _levels},
    row_functions.SquaredMargins: {"direction": _direction, "weighted": _flag},
    row_functions.FeaturesAndTarget: {"features": _features, "row_bound": _number, "unit": _number},
}
