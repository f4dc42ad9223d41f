"""Losses: slopes are derivatives, bounds on them hold and are least, and what is missing is named."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.methods.loss_functions import (
    LOSSES,
    Huber,
    Logistic,
    Loss,
    OneVsRest,
    Poisson,
    Softmax,
    Squared,
    SquaredHinge,
    resolve_loss,
)
from tulle.trusted.losses import Norm

ALL: dict[str, Loss] = {
    "squared": Squared(),
    "huber": Huber(0.7),
    "poisson": Poisson(1.5),
    "logistic": Logistic(),
    "squared hinge": SquaredHinge(),
    "softmax 2": Softmax(2),
    "softmax 5": Softmax(5),
    "one vs rest": OneVsRest(Logistic(), 3),
    "one vs rest hinge": OneVsRest(SquaredHinge(), 4),
}
every_loss = pytest.mark.parametrize("name", ALL)


def targets_within(loss: Loss, label_bound: float) -> st.SearchStrategy[float]:
    """The targets that a loss is for, up to a bound."""
    if loss.kind == "regression":
        low = 0.0 if isinstance(loss, Poisson) else -label_bound
        return st.floats(low, label_bound) | st.sampled_from([low, label_bound])
    return st.sampled_from([-1.0, 1.0]) if loss.n_outputs == 1 else st.integers(0, loss.n_outputs - 1).map(float)


def margins_within(loss: Loss, bound: float) -> st.SearchStrategy[np.ndarray]:
    one = st.floats(-bound, bound) | st.sampled_from([-bound, bound, 0.0])
    return st.lists(one, min_size=loss.n_outputs, max_size=loss.n_outputs).map(lambda m: np.array([m]))


def slope_norm(loss: Loss, margins: np.ndarray, target: float, norm: Norm) -> float:
    slopes = loss.slope(margins, np.array([target]))[0]
    return float(np.linalg.norm(slopes) if norm == "l2" else np.abs(slopes).max())


@every_loss
@given(data=st.data())
def test_slope_is_the_derivative_of_value(name: str, data: st.DataObject) -> None:
    """Central differences, away from the kinks of the second derivative; 2/3 and 3/2 of the slope do not fit."""
    loss = ALL[name]
    margins = data.draw(margins_within(loss, 3.0))
    target = np.array([data.draw(targets_within(loss, 4.0))])
    slope = loss.slope(margins, target)
    assert slope.shape == margins.shape
    h = 1e-5
    for k in range(loss.n_outputs):
        shift = np.zeros_like(margins)
        shift[0, k] = h
        difference = (loss.value(margins + shift, target) - loss.value(margins - shift, target))[0] / (2 * h)
        tolerance = 2 * h * max(loss.curvature, 1.0) + 1e-9
        assert abs(slope[0, k] - difference) <= tolerance
        if abs(slope[0, k]) > 0.05:
            assert abs(2 / 3 * slope[0, k] - difference) > tolerance
            assert abs(3 / 2 * slope[0, k] - difference) > tolerance


@every_loss
@given(data=st.data())
def test_convex_with_bounded_curvature(name: str, data: st.DataObject) -> None:
    """Slopes are monotone, and Lipschitz with the stated curvature: 0 <= <Δs, Δm> <= curvature |Δm|²."""
    loss = ALL[name]
    a, b = data.draw(margins_within(loss, 5.0)), data.draw(margins_within(loss, 5.0))
    target = np.array([data.draw(targets_within(loss, 4.0))])
    product = float(((loss.slope(a, target) - loss.slope(b, target)) * (a - b)).sum())
    square = float(((a - b) ** 2).sum())
    assert -1e-9 <= product <= loss.curvature * square * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(
    ("name", "margins", "direction", "target"),
    [
        ("squared", [0.0], [1.0], 0.0),
        ("huber", [0.0], [1.0], 0.0),
        ("poisson", [1.5 - 2e-4], [1.0], 0.0),
        ("logistic", [0.0], [1.0], 1.0),
        ("squared hinge", [0.0], [1.0], 1.0),
        ("softmax 2", [0.0, 0.0], [1.0, -1.0], 0.0),
        ("softmax 5", [40.0, 40.0, 0.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0, 0.0], 0.0),
        ("one vs rest", [0.0] * 3, [1.0] * 3, 0.0),
        ("one vs rest hinge", [0.0] * 4, [1.0] * 4, 0.0),
    ],
)
def test_the_curvature_is_attained(name: str, margins: list[float], direction: list[float], target: float) -> None:
    """So a stated curvature of 2/3 would be wrong; 3/2 would not be the least."""
    loss, m, v, y = ALL[name], np.array([margins]), np.array([direction]), np.array([target])
    h = 1e-4
    second = float(((loss.slope(m + h * v, y) - loss.slope(m - h * v, y)) * v).sum()) / (2 * h * float((v**2).sum()))
    assert second == pytest.approx(loss.curvature, rel=1e-2)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@every_loss
@given(data=st.data())
def test_slope_bound_holds(name: str, norm: Norm, data: st.DataObject) -> None:
    loss = ALL[name]
    bound, label = data.draw(st.sampled_from([0.0, 0.1, 1.0, 3.0, 30.0])), data.draw(st.sampled_from([0.5, 1.0, 7.0]))
    margins, target = data.draw(margins_within(loss, bound)), data.draw(targets_within(loss, label))
    assert slope_norm(loss, margins, target, norm) <= loss.slope_bound(bound, label, norm) * (1 + 1e-12)


WORST = {  # margins at the bound M and a target at the bound B that attain the slope bound
    "squared": lambda M, B: ([M], -B),
    "huber": lambda M, B: ([M], -B),
    "poisson": lambda M, B: ([M], 0.0) if math.exp(min(M, 1.5)) > B - math.exp(-M) else ([-M], B),
    "logistic": lambda M, B: ([-M], 1.0),
    "squared hinge": lambda M, B: ([-M], 1.0),
    "softmax 2": lambda M, B: ([-M, M], 0.0),
    "one vs rest": lambda M, B: ([-M, M, M], 0.0),
    "one vs rest hinge": lambda M, B: ([-M, M, M, M], 0.0),
}


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("margin_bound", [0.0, 0.5, 2.0, 20.0])
@pytest.mark.parametrize("label", [0.3, 1.0, 9.0])
@pytest.mark.parametrize("name", WORST)
def test_slope_bound_is_attained(name: str, margin_bound: float, label: float, norm: Norm) -> None:
    margins, target = WORST[name](margin_bound, label)
    found = slope_norm(ALL[name], np.array([margins]), target, norm)
    assert found == pytest.approx(ALL[name].slope_bound(margin_bound, label, norm), rel=1e-9)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("classes", [2, 3, 5, 50])
def test_softmax_bound_is_attained_at_margin_zero_and_far_out(classes: int, norm: Norm) -> None:
    loss = Softmax(classes)
    assert slope_norm(loss, np.zeros((1, classes)), 0.0, norm) == pytest.approx(loss.slope_bound(0.0, 1.0, norm))
    far = np.full((1, classes), -50.0)
    far[0, 1] = 50.0
    assert slope_norm(loss, far, 0.0, norm) == pytest.approx(loss.slope_bound(50.0, 1.0, norm))


@pytest.mark.parametrize("name", ["logistic", "squared hinge"])
def test_one_vs_rest_is_the_sum_of_its_parts(name: str) -> None:
    rng = np.random.default_rng(0)
    binary, margins, targets = ALL[name], rng.normal(size=(30, 4)), rng.integers(0, 4, 30).astype(float)
    loss = OneVsRest(binary, 4)
    signs = [np.where(targets == k, 1.0, -1.0) for k in range(4)]
    np.testing.assert_allclose(
        loss.value(margins, targets), sum(binary.value(margins[:, [k]], signs[k]) for k in range(4)), rtol=1e-14
    )
    for k in range(4):
        np.testing.assert_array_equal(loss.slope(margins, targets)[:, [k]], binary.slope(margins[:, [k]], signs[k]))


def test_softmax_of_two_classes_is_the_logistic_loss_of_the_difference() -> None:
    margins, targets = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    difference, signs = margins[:, [1]] - margins[:, [0]], 2.0 * targets - 1
    np.testing.assert_allclose(Softmax(2).value(margins, targets), Logistic().value(difference, signs), rtol=1e-12)
    np.testing.assert_allclose(
        Softmax(2).probabilities(margins), Logistic().probabilities(difference), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("loss", [Logistic(), Softmax(4)], ids=["logistic", "softmax"])
def test_probabilities_add_up_to_one_however_far_the_margin(loss: Logistic | Softmax) -> None:
    margins = np.array([[0.0], [800.0], [-800.0], [1e300]]) * np.ones(loss.n_outputs)
    probabilities = loss.probabilities(margins)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.all((probabilities >= 0) & (probabilities <= 1))


def test_poisson_is_linear_above_its_cap() -> None:
    loss, y = Poisson(cap=2.0), np.array([3.0])
    np.testing.assert_allclose(loss.slope(np.array([[50.0]]), y), math.exp(2.0) - 3.0)
    np.testing.assert_allclose(loss.mean(np.array([[50.0], [1.0]])), [[math.exp(2.0)], [math.exp(1.0)]])


@every_loss
def test_default_clip_is_a_slope_that_the_zero_model_can_meet(name: str) -> None:
    loss = ALL[name]
    expected = loss.slope_bound(0.0, 8.0) * (1.0 if loss.kind == "classification" else 0.25)
    assert loss.default_clip(8.0) == pytest.approx(expected)
    assert 0 < loss.typical_curvature(8.0) <= loss.curvature


class TestResolve:
    @pytest.mark.parametrize("name", LOSSES)
    def test_every_name_gives_its_loss(self, name: str) -> None:
        kind = LOSSES[name].kind
        assert type(resolve_loss(name, kind)) is LOSSES[name]

    def test_an_unknown_name_lists_the_choices(self) -> None:
        with pytest.raises(ValueError, match=r"'logit' is unknown for classification.*'logistic', 'squared_hinge'"):
            resolve_loss("logit", "classification")

    @pytest.mark.parametrize(("loss", "kind"), [("squared", "classification"), ("logistic", "regression")])
    def test_a_name_of_the_other_kind_is_unknown(self, loss: str, kind: str) -> None:
        with pytest.raises(ValueError, match=f"{loss!r} is unknown for {kind}"):
            resolve_loss(loss, kind)

    def test_an_object_of_the_other_kind_is_refused(self) -> None:
        with pytest.raises(ValueError, match="is for regression; this estimator does classification"):
            resolve_loss(Squared(), "classification")

    @pytest.mark.parametrize("missing", ["slope", "slope_bound", "curvature", "default_clip"])
    def test_what_an_object_lacks_is_named(self, missing: str) -> None:
        names = {"kind", "curvature", "typical_curvature", "value", "slope", "slope_bound", "default_clip", "mean"}
        names.add("convex")
        partial = type("Partial", (), dict.fromkeys(names - {missing}, "regression"))()
        with pytest.raises(TypeError, match=rf"lacks {missing}; derive it from tulle\.methods\.loss_functions\.Loss"):
            resolve_loss(partial, "regression")

    def test_several_classes(self) -> None:
        assert resolve_loss("logistic", "classification", 4) == Softmax(4)
        assert resolve_loss("squared_hinge", "classification", 4) == OneVsRest(SquaredHinge(), 4)
        assert resolve_loss("logistic", "classification", 2) == Logistic()

    def test_a_loss_of_the_users_own_is_kept(self) -> None:
        @dataclass(frozen=True)
        class Mine(Squared):
            pass

        mine = Mine()
        assert resolve_loss(mine, "regression") is mine


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.inf, math.nan])
def test_huber_refuses_a_senseless_threshold(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold must be a finite number > 0"):
        Huber(threshold)


@pytest.mark.parametrize("cap", [0.0, -1.0, 101.0, math.nan])
def test_poisson_refuses_a_senseless_cap(cap: float) -> None:
    with pytest.raises(ValueError, match=r"cap must lie in \(0, 100\]"):
        Poisson(cap)
