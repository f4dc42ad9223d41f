"""Parameters that are numbers of numpy: they mean what Python's mean, and trusted code gets Python's."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.methods import METHODS, HardThresholding, resolve_method
from tulle.methods.loss_functions import Huber, Poisson
from tulle.methods.parameter_checks import to_python_number

ROWS = np.random.default_rng(7).normal(size=(80, 6)) / 4
PUBLIC = np.random.default_rng(8).normal(size=(30, 6)) / 4
LABELS = (ROWS[:, 0] > 0).astype(int)
BOUNDS = Bounds(row_l2=1.0)
# Numbers that most parameters can have, each as numpy's types with few bits and with many.
TRIED: dict[Any, tuple[type, ...]] = {2: (np.int8, np.int64), 40: (np.uint8,), 0.25: (np.float16, np.float32)}
# What a parameter needs besides.
WITH: dict[tuple[str, str], dict[str, Any]] = {
    ("screen_refine", "steps"): {"refinement": "steps"},
    ("stochastic_hard_thresholding", "snapshot_batch"): {"variant": "scsg", "batch": 2},
    ("stochastic_hard_thresholding", "difference_clip"): {"variant": "svrg"},
    ("knowledge_transfer", "penalty"): {"variant": "published", "features": PUBLIC},
    ("knowledge_transfer", "teacher_step"): {"variant": "published", "features": PUBLIC},
}


def _numeric() -> list[tuple[str, str]]:
    """Every parameter of every method that takes a number."""
    return [
        (name, parameter)
        for name, cls in METHODS.items()
        for parameter, one in inspect.signature(cls).parameters.items()
        if {"int", "float"} & set(str(one.annotation).replace("|", " ").split())
    ]


def _weights(method: Any) -> Any:
    model = SparseClassifier(1.0, 1e-5, method=method, bounds=BOUNDS, random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(ROWS, LABELS).coef_


@pytest.mark.parametrize(("name", "parameter"), _numeric())
def test_every_number_of_a_method(name: str, parameter: str) -> None:
    tried = 0
    for value, kinds in TRIED.items():
        settings = WITH.get((name, parameter), {})
        try:
            expected = _weights(METHODS[name](**{parameter: value}, **settings))
        except ValueError:  # out of the range of this parameter, or for another setting
            continue
        for kind in kinds:
            tried += 1
            found = _weights(METHODS[name](**{parameter: kind(value)}, **settings))
            np.testing.assert_array_equal(found, expected)
    # What only a theorem's settings use needs all of them at once.
    theorem = {"smoothness", "strong_convexity", "weight_norm", "label_noise", "true_nonzero", "published_constant"}
    assert tried or parameter in theorem, parameter


def test_the_users_object_stays_as_it_is() -> None:
    given = HardThresholding(n_iter=np.int8(5))
    found = resolve_method(given)
    assert type(found.n_iter) is int  # type: ignore[attr-defined]
    assert type(given.n_iter) is np.int8
    plain = HardThresholding(n_iter=5)
    assert resolve_method(plain) is plain


def test_bounds_and_losses_hold_pythons_numbers() -> None:
    bounds = Bounds(np.float32(1), label=np.float16(2), rows_per_person=np.int64(2), quantile=np.float32(0.5))
    held = (bounds.row_l2, bounds.label, bounds.rows_per_person, bounds.quantile, Huber(np.float32(1)).threshold)
    assert [type(one) for one in (*held, Poisson(np.int64(3)).cap)] == [float, float, int, float, float, int]
    assert type(to_python_number(np.longdouble(0.5))) is float
    estimated = Bounds.estimate(ROWS, epsilon=np.float32(1), quantile=np.float32(0.75), random_state=0)
    assert estimated == Bounds.estimate(ROWS, epsilon=1.0, quantile=0.75, random_state=0)
    wanted = Bounds(row_l2=1.0, label=1.0, rows_per_person=2)
    found = []
    for kind, declared in ((float, wanted), (np.float16, Bounds(1.0, None, 1.0, rows_per_person=np.int8(2)))):
        model = SparseRegressor(1.0, 1e-5, loss=Huber(kind(0.5)), bounds=declared, random_state=3)
        with pytest.warns(UserWarning, match="no better than guessing"):
            found.append(model.fit(ROWS, ROWS[:, 0]).coef_)
    np.testing.assert_array_equal(*found)
