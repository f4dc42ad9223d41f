"""The fit behind `inference=True`: its plan and bill, what is refused, which rows are asked what, what leaves it."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fits import RecordingCurator, assert_storage_does_not_matter, recorder
from interval_fits import LABELS, LOSSES, WEIGHTS, draw, model, truth
from replayed import differences, replayed
from sklearn.base import clone
from test_aggregator import Houses
from test_aggregator import X as CLIENT_ROWS
from test_aggregator import Y as CLIENT_LABELS
from test_front_replay import OTHER_ROWS, in_form, targets, told_of_model, usual

import tulle.audit.own_ledger
import tulle.estimators.request
from tulle import Bounds, Budget, Ledger, PrivateSearch, SparseClassifier, SparseRegressor
from tulle.audit import audit_model
from tulle.audit.own_ledger import run_plan
from tulle.backends.block_folder import open_blocks
from tulle.backends.block_writer import write_blocks
from tulle.inference import IntervalFit
from tulle.inference.interval_fit import MOST_COLUMNS, MOST_WEIGHTS
from tulle.inference.weight_summary import FIXED_BEFOREHAND
from tulle.methods import ScreenRefine
from tulle.methods.loss_functions import Squared
from tulle.trusted.curator import Curator
from tulle.trusted.rows import Rows

__all__ = ["recorder"]  # a fixture

KINDS = {"fixed": (3, {}), "chosen": (30, {"n_nonzero": 4})}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_bill_is_the_plan_and_uses_the_budget_up(loss: str, kind: str, recorder: type[RecordingCurator]) -> None:
    d, settings = KINDS[kind]
    X, y = draw(loss, 1000, 0, d)
    with Ledger(Budget(50.0, 1e-3)) as ledger:
        fitted = model(loss, 2.0, delta=1e-6, **settings).fit(X, y)
    report = fitted.privacy_
    assert 0.99 * 2.0 <= report.epsilon <= 2.0
    assert len(ledger.fits) == 1
    names = [line.release for line in report.bill]
    assert [asked.name for asked in recorder.asked] == names
    own = ["moments", "spread"] if loss == "squared" else ["weights", "curvature", "spread"]
    first = {"fixed": [] if loss == "squared" else ["start"], "chosen": ["start", "select"]}[kind]
    assert names == first + own


@pytest.mark.parametrize("loss", LOSSES)
def test_looking_at_intervals_asks_nothing(loss: str, recorder: type[RecordingCurator]) -> None:
    X, y = draw(loss, 1000, 0)
    fitted = model(loss, 8.0).fit(X, y)
    count = len(recorder.asked)
    with Ledger(Budget(1e-9, 0.0)):
        fitted.summary().to_frame()
        fitted.predict_interval(X)
    assert len(recorder.asked) == count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_storage_does_not_matter(loss: str, kind: str) -> None:
    d, settings = KINDS[kind]
    assert_storage_does_not_matter(model(loss, 4.0, **settings), *draw(loss, 1000, 1, d))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_plan_does_not_look_at_data(loss: str, kind: str) -> None:
    """Estimated bounds included: the noise per sensitivity is the same for rows of other sizes."""
    d, settings = KINDS[kind]
    X, y = draw(loss, 1000, 1, d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small, large = (clone(model(loss, 4.0, bounds=None, **settings)).fit(size * X, y) for size in (0.01, 100.0))
    assert small.privacy_.bill == large.privacy_.bill
    assert small.privacy_.epsilon <= 4.0


# --- which rows are asked what ---


@pytest.mark.parametrize("seed", [0, None])
def test_rows_that_choose_features_are_used_for_nothing_else(seed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is in one of two parts: that of `start` and `select`, or that of all other questions."""
    seen: dict[str, set[int]] = {}
    ask = RecordingCurator.__mro__[1].ask

    def watch(curator: Any, name: str, query: Any, then: Any = None) -> Any:
        numbers = np.concatenate([block.columns(np.array([29]))[:, 0] for block in curator._rows.blocks])
        seen[name] = set(np.round(numbers * 1000).astype(int))
        return ask(curator, name, query, then)

    monkeypatch.setattr("tulle.trusted.curator.Curator.ask", watch)
    X, y = draw("logistic", 1000, 2, 30)
    X[:, 29] = np.arange(1000) / 1000  # the row's number
    fitted = model("logistic", 4.0, n_nonzero=4, random_state=seed).fit(X, y)
    assert seen["start"] == seen["select"]
    assert seen["weights"] == seen["curvature"] == seen["spread"]
    assert not seen["select"] & seen["weights"]
    assert seen["select"] | seen["weights"] == set(range(1000))
    assert len(seen["select"]) == 350
    assert fitted.inference_.n_rows == len(seen["weights"])
    assert fitted.inference_.choice == "split"


def test_which_rows_these_are_depends_on_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    batch = Rows.batch
    monkeypatch.setattr(Rows, "batch", lambda rows, which: (drawn.append(which.copy()), batch(rows, which))[1])
    for scale in (1.0, 1e6):
        X, y = draw("logistic", 500, 2, 30)
        model("logistic", 4.0, n_nonzero=4).fit(scale * X, y)
    assert len(drawn) == 4
    for one, other in zip(drawn[:2], drawn[2:]):
        np.testing.assert_array_equal(one, other)


def test_rows_elsewhere_choose_features_by_all_rows_and_there_are_no_p_values(tmp_path: Path) -> None:
    X, y = draw("squared", 2000, 2, 30)
    write_blocks(tmp_path / "blocks", [(X[:900], y[:900]), (X[900:], y[900:])])
    blocks = open_blocks(tmp_path / "blocks")
    fitted = model("squared", 8.0, n_nonzero=4).fit(blocks.X, blocks.y)
    summary = fitted.summary()
    assert fitted.inference_.choice == "same rows"
    assert FIXED_BEFOREHAND in summary.notes
    assert all(math.isnan(line.p_value) for line in summary.lines)
    assert not any(math.isnan(line.low) for line in summary.lines)
    split = model("squared", 8.0, n_nonzero=4).fit(X, y).summary()
    assert not any(math.isnan(line.p_value) for line in split.lines)


def test_chosen_features_are_the_right_ones() -> None:
    X, y = draw("squared", 5000, 4, 30)
    fitted = model("squared", 4.0, n_nonzero=2).fit(X, y)
    assert fitted.inference_.features.tolist() == [0, 1]
    assert fitted.support_.tolist() == [0, 1]
    np.testing.assert_allclose(fitted.coef_[:2], WEIGHTS[:2], atol=0.3)


# --- what leaves ---


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("other", OTHER_ROWS)
def test_nothing_but_the_answers_leaves(loss: str, kind: str, other: str, tmp_path: Path) -> None:
    """Model, file, report, page, warnings: the same for unrelated rows with the answers of the first."""
    form = "sparse" if other in ("longer", "empty", "both") else "dense"
    settings = {"classes": [0, 1]} if loss == "logistic" else {}
    n_nonzero = 3 if kind == "chosen" else None
    bounds = Bounds(row_linf=1.0, label=LABELS[loss])

    def fit(X: Any, y: Any) -> Any:
        with Ledger(Budget(1e9, 0.1)) as ledger:
            fitted = model(loss, 3.0, delta=1e-6, bounds=bounds, n_nonzero=n_nonzero, **settings)
            return fitted.fit(in_form(form, X), y), ledger.fits

    def told(fitted: Any) -> dict[str, Any]:
        summary = fitted[0].summary()
        frame = summary.to_frame().to_csv()
        return {
            **told_of_model(tmp_path)(fitted),
            "summary": str(summary),
            "html": summary._repr_html_(),
            "frame": frame,
        }

    one, two = replayed(
        lambda: fit(usual(), targets(loss)),
        lambda: fit(OTHER_ROWS[other](), targets(loss, other)),
        told,
    )
    assert not one.error, one.error
    assert differences(one, two) == []


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rows", ["zeros", "equal", "one column", "separated", "two rows"])
def test_any_rows_get_an_answer(loss: str, rows: str) -> None:
    """Whatever they are, and at any budget, the fit ends without an error, and its numbers are finite or missing."""
    X, y = draw(loss, 200, 0)
    if rows == "zeros":
        X = 0 * X
    elif rows == "equal":
        X = np.full_like(X, 0.3)
    elif rows == "one column":
        X[:, 1:] = X[:, :1]
    elif rows == "separated":
        X[:, 0] = np.where(y > np.median(y), 1.0, -1.0)
    else:
        X, y = X[:2], np.array([0.0, 1.0])
    for epsilon in (0.01, 5.0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fitted = model(loss, epsilon, delta=1e-6).fit(X, y)
                lines = fitted.summary().lines
            except ValueError as error:
                raise AssertionError("an error after the bill says something about the rows") from error
        assert all(math.isfinite(line.estimate) for line in lines)
        assert all(math.isnan(line.low) or line.low < line.high for line in lines)
        assert np.isfinite(fitted.coef_).all()


@pytest.mark.parametrize("size", [1e-50, 1e-3, 1e3, 1e30])
@pytest.mark.parametrize("loss", LOSSES)
def test_units_of_any_size_get_an_answer(loss: str, size: float) -> None:
    """Those of the smallest and the largest bounds; and within reason it is the same in other units."""
    X, y = draw(loss, 500, 0)
    label = LABELS[loss] and (LABELS[loss] * size if loss == "squared" else LABELS[loss])
    target = y * size if loss == "squared" else y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model(loss, 5.0, bounds=Bounds(row_linf=size, label=label)).fit(X * size, target)
        usual = model(loss, 5.0).fit(X, y)
    assert np.isfinite(fitted.coef_).all()
    assert len(fitted.summary().lines) == 4
    if 1e-9 < size < 1e9:
        np.testing.assert_array_equal(fitted.inference_.determined, usual.inference_.determined)
        unit = 1.0 if loss == "squared" else size
        for line, same in zip(fitted.summary().lines[:3], usual.summary().lines):
            assert line.estimate * unit == pytest.approx(same.estimate, rel=0.05, abs=0.02)
            assert line.standard_error * unit == pytest.approx(same.standard_error, rel=0.05)


def test_units_whose_squares_overflow_are_refused_before_anything_is_released(recorder: type[RecordingCurator]) -> None:
    X, y = draw("squared", 500, 0)
    with Ledger(Budget(9.0, 1e-3)) as ledger, pytest.raises(ValueError, match="squares overflow"):
        model("squared", 5.0, bounds=Bounds(row_linf=1e49, label=1e49)).fit(1e49 * X, 1e49 * y)
    assert not ledger.fits
    assert not recorder.asked


def test_a_choice_of_nothing_is_the_first_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScreenRefine, "screen", lambda *arguments: np.zeros((30, 1)))
    monkeypatch.setattr("tulle.trusted.curator.Curator.settle", lambda curator: None)
    fitted = model("squared", 5.0, n_nonzero=2, fit_intercept=False).fit(*draw("squared", 500, 0, 30))
    assert fitted.inference_.features.tolist() == [0]


# --- refusals and warnings, before anything is released ---


@pytest.mark.parametrize(
    ("settings", "columns", "words"),
    [
        ({"method": "hard_thresholding"}, 3, "omit method="),
        ({"inference": "yes"}, 3, "inference must be True or False"),
        ({"calibration": "published"}, 3, "no published noise"),
        ({"delta": 0.0}, 3, "delta > 0"),
        ({"rho": 0.1}, 3, "not in rho"),
        ({"bounds": Bounds(row_linf=1.0, rows_per_person=2)}, 3, "one row per person"),
        ({"loss": "squared_hinge"}, 3, "'logistic'"),
        ({}, MOST_WEIGHTS + 1, f"at most {MOST_WEIGHTS} weights"),
        ({"n_nonzero": MOST_WEIGHTS + 1}, MOST_WEIGHTS + 5, f"at most {MOST_WEIGHTS} weights"),
        ({"n_nonzero": 5}, MOST_COLUMNS + 1, "columns"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_settings_are_refused_before_anything_is_released(
    settings: dict[str, Any], columns: int, words: str, recorder: type[RecordingCurator]
) -> None:
    X, y = (
        sp.random_array((50, columns), density=0.01, random_state=np.random.default_rng(0)).tocsr(),
        np.arange(50) % 2,
    )
    settings = {"epsilon": 1.0, "bounds": Bounds(row_linf=1.0), **settings}
    if "rho" in settings:
        del settings["epsilon"]
    epsilon = settings.pop("epsilon", 1.0)
    with Ledger(Budget(5.0, 1e-3)) as ledger, pytest.raises(ValueError, match=words):
        SparseClassifier(epsilon, **{"inference": True, **settings}).fit(X, y)
    assert not ledger.fits
    assert not recorder.asked


def test_several_classes_and_other_losses_are_refused() -> None:
    X, y = draw("logistic", 90, 0)
    with pytest.raises(ValueError, match="two classes"):
        SparseClassifier(1.0, inference=True, bounds=Bounds(row_linf=1.0)).fit(X, np.arange(90) % 3)
    with pytest.raises(ValueError, match="Huber"):
        SparseRegressor(1.0, loss="huber", inference=True, bounds=Bounds(row_linf=1.0, label=1.0)).fit(X, y)


def test_squared_loss_keeps_to_a_budget_in_rho() -> None:
    fitted = model("squared", 1.0, rho=0.5).fit(*draw("squared", 2000, 0))
    assert fitted.privacy_.rho == pytest.approx(0.5, rel=0.01)
    assert fitted.inference_.determined.all()


def test_searches_refuse_intervals() -> None:
    search = PrivateSearch(model("squared", 1.0), {"n_nonzero": [1, 2]}, Budget(3.0, 1e-5), n_trials=2, random_state=0)
    with pytest.raises(ValueError, match="best of several fits"):
        search.fit(*draw("squared", 300, 0))


def test_there_is_no_summary_without_inference() -> None:
    fitted = model("squared", 1.0, inference=False).fit(*draw("squared", 300, 0))
    assert not hasattr(fitted, "summary")
    assert not hasattr(fitted, "predict_interval")


@pytest.mark.parametrize("loss", LOSSES)
def test_too_few_rows_are_warned_of_before_anything_is_released(loss: str, recorder: type[RecordingCurator]) -> None:
    """With the width to expect; from public quantities alone."""
    X, y = draw(loss, 150, 0)
    with pytest.warns(UserWarning, match=r"rows are few for 95 % intervals of 4 weights.*±"):
        model(loss, 0.5).fit(X, y)
    words = []
    for size in (1.0, 0.0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model(loss, 0.5).fit(size * X, y)
        words.append([str(one.message) for one in caught])
    assert words[0] == words[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(loss, 8.0).fit(*draw(loss, 5000, 0))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_expected_width_is_about_the_one_that_comes(loss: str) -> None:
    """What the warning states, in units of the prediction's scale at a typical entry (1 / sqrt(3) here): the median of
    nine fits, which differ by a factor of 3 among themselves where the curvature hardly stands out of its noise."""
    unit, ratios = math.sqrt(3) * (LABELS[loss] if loss == "squared" else 1.0), []
    for seed in range(9):
        with pytest.warns(UserWarning, match="rows are few") as caught:
            fitted = model(loss, 0.8, random_state=seed).fit(*draw(loss, 400, seed))
        stated = float(str(caught[0].message).split("±")[1].split(" ")[0])
        ratios.append(stated * unit / (1.96 * np.median(np.sqrt(np.diag(fitted.inference_.covariance))[:3])))
    assert 0.5 < np.median(ratios) < 2


def test_it_is_a_method_that_can_be_looked_at() -> None:
    assert IntervalFit().get_params() == {"split_rows": True, "periods": 0, "period_value": 1.0}
    report = model("logistic", 4.0, n_nonzero=4).fit(*draw("logistic", 1000, 0, 30)).privacy_
    assert "350 rows drawn at random" in report.method
    assert any("Intervals" in line for line in report.assumptions)


def test_estimates_are_the_models_weights() -> None:
    fitted = model("logistic", 4.0).fit(*draw("logistic", 2000, 0))
    np.testing.assert_array_equal(np.append(fitted.coef_[0], fitted.intercept_), fitted.inference_.estimates)
    assert np.abs(fitted.inference_.estimates - truth("logistic")).max() < 0.6


# --- audits, and rows at clients ---


def test_an_audit_finds_no_violation() -> None:
    """All answers of a fit on worst-case neighbours; so many runs could prove more than is claimed."""
    found = audit_model(model("squared", 2.0, delta=1e-3), runs=400, pilot_runs=100, seed=0)
    assert found.epsilon <= 2.0
    assert found.best_possible > 2.0


@pytest.mark.parametrize("loss", LOSSES)
def test_features_of_always_stay_in(loss: str) -> None:
    """One without any part in the target, among those that are chosen; and these alone, where nothing is left to
    choose: then no row and no cost goes into choosing."""
    X, y = draw(loss, 4000, 0, 12)
    fitted = model(loss, 8.0, n_nonzero=4, always=[9]).fit(X, y)
    assert {0, 9} <= set(fitted.inference_.features.tolist())
    assert len(fitted.inference_.features) == 4
    assert fitted.inference_.choice == "split"
    assert 0.99 * 8.0 < fitted.privacy_.epsilon <= 8.0
    alone = model(loss, 8.0, n_nonzero=2, always=[0, 9]).fit(X, y)
    assert alone.inference_.features.tolist() == [0, 9]
    assert (alone.inference_.choice, alone.inference_.n_rows) == ("fixed", 4000)
    assert not {"select", "screen"} & {line.release for line in alone.privacy_.bill}
    here = model(loss, 8.0).fit(X[:, [0, 9]], y)  # the same fit, but for the noise of other seeds
    wide = here.inference_.covariance.diagonal() / alone.inference_.covariance.diagonal()
    assert np.all((wide > 0.5) & (wide < 2))


def test_groups_of_columns_have_no_intervals() -> None:
    X, y = draw("squared", 300, 0, 6)
    with Ledger(Budget(9.0, 0.1)) as ledger, pytest.raises(ValueError, match="feature_groups"):
        model("squared", 1.0, feature_groups=[0, 0, 1, 1, 2, 2]).fit(X, y)
    assert len(ledger.fits) == 0


def test_an_audit_divides_rows_as_a_fit_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features are chosen by 35 of 100 rows there, too."""
    seen: list[tuple[str, int]] = []
    request = SparseRegressor(2.0, bounds=Bounds(row_linf=1.0, label=4.0), n_nonzero=2, inference=True)._request(
        Squared(), 100
    )
    planned = request.plan_all((100, 6))[0]
    X, y = draw("squared", 100, 0, 6)
    rows = Rows(X, y)

    class Watching(Curator):
        def ask(self, name: str, query: Any, then: Any = None) -> Any:
            seen.append((name, sum(rows.sizes())))
            return super().ask(name, query, then)

    monkeypatch.setattr(tulle.audit.own_ledger, "Curator", Watching)
    run_plan(planned, rows, np.random.default_rng(0), None)
    assert dict(seen) == {"start": 35, "select": 35, "moments": 65, "spread": 65}


@pytest.mark.parametrize("size", [0.0, 1e-320, 1e150, 1e300])
@pytest.mark.parametrize("loss", LOSSES)
def test_any_released_answers_get_an_answer(loss: str, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where warnings are errors: by then the budget is spent."""
    given: list[Any] = []
    infer = IntervalFit.infer
    monkeypatch.setattr(IntervalFit, "infer", lambda *parts: given.extend(parts) or infer(*parts))
    model(loss, 1.0).fit(*draw(loss, 500, 0, 3))
    method, released, public, releases = given
    for part in ("curvature", "spread", "weights"):
        old = getattr(released, part)
        other = replace(released, **{part: None if old is None else np.sign(old) * size})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            infer(method, other, public, releases).check()


def test_memory_of_the_parts_is_taken_before_the_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much the parts of sparse rows take depends on the rows: where it is too much, nothing was billed yet."""

    def refuse(rows: Rows) -> None:
        raise MemoryError

    monkeypatch.setattr(tulle.estimators.request, "rehearse_copy", refuse)
    X, y = draw("squared", 100, 0, 6)
    with Ledger(Budget(9.0, 0.1)) as ledger, pytest.raises(MemoryError):
        model("squared", 1.0, n_nonzero=2).fit(sp.csr_array(X), y)
    assert len(ledger.fits) == 0
    model("squared", 1.0).fit(sp.csr_array(X), y)  # rows are not divided


def test_rows_at_clients_have_the_same_intervals(tmp_path: Path) -> None:
    houses = Houses(tmp_path, CLIENT_ROWS, CLIENT_LABELS)
    unfitted = SparseClassifier(20.0, 1e-5, bounds=Bounds(row_l2=3.0), inference=True, random_state=0)
    here, there = clone(unfitted).fit(CLIENT_ROWS, CLIENT_LABELS), clone(unfitted).fit(houses.rows(), None)
    np.testing.assert_allclose(there.inference_.estimates, here.inference_.estimates, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(there.inference_.covariance, here.inference_.covariance, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "given", "words"),
    [
        ({}, {"sample_weight": np.ones(299)}, "299 numbers for 300 rows"),
        ({"method": IntervalFit(periods=2), "n_nonzero": 2}, {}, "for all features"),
    ],
)
def test_what_intervals_are_not_for_is_refused(settings: Any, given: Any, words: str) -> None:
    """Before the bill: weights of other rows, and features of hazards that some of a person's rows would choose."""
    X, y = draw("squared", 300, 0)
    own = {"bounds": Bounds(row_l2=9.0, label=9.0), **settings}
    with Ledger(Budget(9.0, 0.1)) as ledger, pytest.raises(ValueError, match=words):
        SparseRegressor(1.0, inference=True, **own).fit(X, y, **given)
    assert len(ledger.fits) == 0
