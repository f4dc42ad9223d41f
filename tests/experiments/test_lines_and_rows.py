"""What lines and data of a table may say of rows: public rows, columns scaled privately, rows that are shared."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tulle import Bounds, PrivatePipeline, SparseClassifier
from tulle.experiments import catalogue, trial
from tulle.experiments.cells import Cell, Finished
from tulle.experiments.examples import Examples
from tulle.experiments.fits import Fits, Tuning, settings_of
from tulle.experiments.problems import Problem
from tulle.preprocessing import PrivateScaler

TEXT = """
title = "Three tasks"
paper = "None"
kind = "fits"
metric = "test error"
trials = 2
times = true
[[data]]
name = "even"
source = "load_a9a"
task = "classification"
bounds = { row_linf = 1.0 }
epsilons = [8]
same_rows = "digits"
[[data]]
name = "ten"
source = "load_w8a"
task = "classification"
bounds = { row_linf = 1.0 }
epsilons = [8]
same_rows = "digits"
[[data]]
name = "census"
source = "load_a9a"
task = "classification"
bounds = { row_linf = 1.0 }
epsilons = [8]
[[lines]]
name = "default"
method = "auto"
[[lines]]
name = "with public rows"
method = "auto"
public_rows = 50
[[lines]]
name = "tuned"
method = "hard_thresholding"
tuned_on = "other data"
tune = { n_iter = [1, 2, 3] }
[[lines]]
name = "scikit-learn, no privacy"
method = "scikit-learn"
private = false
"""


def made(rows: int = 400, columns: int = 6) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2 * rows, columns))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    return Problem(Examples(X[:rows], y[:rows]), Examples(X[rows:], y[rows:]))


def run(panel: catalogue.Data, line: catalogue.Line, problem: Problem) -> dict[str, Any]:
    return trial.run_trial(panel, line, {}, problem, epsilon=8.0, delta=1e-5, metric="test error", seed=3)


def test_public_rows_are_taken_from_the_training_rows() -> None:
    """No row is both, none is lost; a fifth at most; another part in each trial."""
    problem = made()
    told = problem.with_public(50, 1)
    assert told.public.shape == (50, 6)
    assert len(told.train) == 350
    together = np.vstack([told.public, told.train.X])
    assert sorted(map(tuple, together)) == sorted(map(tuple, problem.train.X))
    for row, label in zip(told.train.X, told.train.y):
        assert problem.train.y[np.flatnonzero((row == problem.train.X).all(axis=1))] == label
    assert len(problem.with_public(3_000, 1).train) == 320
    assert not np.array_equal(problem.with_public(50, 2).public, told.public)
    assert told.test is problem.test


def test_a_fit_with_public_rows_is_one_of_fewer_private_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the estimator does it by hand; and lines without public rows fit all of them."""
    fits, problem = Fits(catalogue.stated("rows", TEXT)), made()
    monkeypatch.setattr(Fits, "problem", lambda self, panel, cell: problem)
    seen: list[Problem] = []

    def watched(self: Fits, panel: Any, line: Any, tuned: Any, given: Problem, *rest: Any, **more: Any) -> Any:
        seen.append(given)
        return whole(self, panel, line, tuned, given, *rest, **more)

    whole = Fits._trial
    monkeypatch.setattr(Fits, "_trial", watched)
    for method in ("default", "with public rows"):
        assert fits.run(Cell("even", method, 8.0, 0))["proved"] <= 8.0
    assert seen[0] is problem
    panel, line = fits._place(Cell("even", "with public rows", 8.0, 0))
    given = seen[1]
    by_hand = SparseClassifier(8.0, 1e-5, bounds=Bounds(row_linf=1.0), random_state=3)
    by_hand.fit(given.train.X, given.train.y, public=given.public)
    assert run(panel, line, given)["score"] == np.mean(by_hand.predict(given.test.X) != given.test.y)  # type: ignore[union-attr]
    fits.run(Cell("even", "with public rows", 2.0, 0))
    assert np.array_equal(seen[2].public, given.public)  # of one trial the same for every budget


def test_a_scaled_fit_pays_for_its_scales_with_the_same_budget() -> None:
    """One ε for the scaler and the model; the row bounds of the data are not used by the fit."""
    of = catalogue.stated("rows", TEXT)
    panel, problem = replace(of.data[0], scaled=True), made()
    wide = Problem(Examples(problem.train.X * 1000 + 7, problem.train.y), problem.test)
    found = run(panel, of.lines[0], wide)
    by_hand = PrivatePipeline([("scale", PrivateScaler()), ("model", SparseClassifier())], 8.0, 1e-5, random_state=3)
    by_hand.fit(wide.train.X, wide.train.y)
    assert found["proved"] == by_hand.privacy_.epsilon
    assert 7.9 < found["proved"] <= 8.0
    assert {line.release for line in by_hand.privacy_.bill} > {"quartiles"}
    assert found["nonzero"] == np.count_nonzero(by_hand.model_.coef_)


def test_what_a_file_says_of_rows_is_part_of_what_is_measured() -> None:
    """And what other files do not say leaves their results as they are."""
    of = catalogue.stated("rows", TEXT)
    panel, (plain, public, *_) = of.data[0], of.lines
    assert "scaled" not in panel.measured()
    assert replace(panel, scaled=True).measured()["scaled"]
    assert "same_rows" not in panel.measured()
    assert "public_rows" not in plain.measured()
    assert public.measured()["public_rows"] == 50
    with pytest.raises(ValueError, match="with public rows: public rows are those of the data or a part"):
        replace(public, public=True)


def test_settings_are_not_chosen_on_the_same_rows_with_other_labels() -> None:
    fits = Fits(catalogue.stated("rows", TEXT))
    names = [json.dumps(tried) for tried in settings_of(fits.of.lines[2])]
    scores = {"even": (0.5, 0.0, 0.3, 0.2), "ten": (0.5, 0.4, 0.1, 0.4), "census": (0.5, 0.4, 0.4, 0.1)}
    found = [
        Finished(Cell(data, f"tuned | {name}", 8.0, 0), {"score": score}, 0.0)
        for data, values in scores.items()
        for name, score in zip(names, values, strict=True)
    ]
    best = {data: settings["n_iter"] for (data, *_), settings in Tuning(fits).best(found).items()}
    assert best == {"even": 3, "ten": 3, "census": 1}


def test_without_scikit_learn_times_are_in_seconds() -> None:
    fits = Fits(catalogue.stated("rows", TEXT))
    done = [
        Finished(Cell("even", "default", 8.0, 0), {"score": 0.1, "proved": 8.0}, 2.0),
        Finished(Cell("census", "default", 8.0, 0), {"score": 0.1, "proved": 8.0}, 2.0),
        Finished(Cell("census", "scikit-learn, no privacy", None, 0), {"score": 0.1}, 4.0),
    ]
    panels = {panel.name: panel for panel in fits.panels(done)}
    even, census = (panels[f"{name}: time of a fit"] for name in ("even", "census"))
    assert (even.y, even.series[0].points[0].mean) == ("seconds", 2.0)
    assert (census.y, census.series[0].points[0].mean) == ("scikit-learn's ℓ1 fit = 1", 0.5)
