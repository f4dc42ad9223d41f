"""Fits of published tables: which rows they see, how they are judged, and how papers chose their settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso, LogisticRegression
from tiny_data import census_numbers, image_label, image_numbers, write_census, write_images

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.datasets import dp_ight_figure1
from tulle.experiments import fits, problems
from tulle.experiments.catalogue import Data, Line, stated
from tulle.experiments.cell_runner import run_cells
from tulle.experiments.cells import Cell, Finished, data_seed, noise_seed
from tulle.experiments.examples import Examples
from tulle.experiments.fits import Curves, Fits, Tuning, settings_of
from tulle.experiments.problems import Problem, problem_of
from tulle.experiments.trial import run_trial
from tulle.methods import HardThresholding, KnowledgeTransfer
from tulle.transfer.public_features import UniformFeatures


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two small data sets."""
    write_images(tmp_path)
    write_census(tmp_path)
    monkeypatch.setenv("TULLE_DATA", str(tmp_path))
    _forget_rows()
    yield tmp_path
    _forget_rows()


def _forget_rows() -> None:
    for kept in (problems._loaded, problems._divided, problems._draw):
        kept.cache_clear()


def images(**says: Any) -> Data:
    return Data("images", "load_pneumonia", "classification", (1.0,), **says)


def census(**says: Any) -> Data:
    return Data("census", "load_a9a", "classification", (1.0,), **says)


def of_images(panel: Data, trial: int = 0, seed: int = 0) -> tuple[set[int], set[int]]:
    """The numbers of training and test rows."""
    problem = problem_of(panel, trial, seed)
    assert problem.test is not None
    for part in (problem.train, problem.test):
        assert np.array_equal(part.y, image_label(image_numbers(part.X)))  # labels go with their rows
    train, test = image_numbers(problem.train.X).tolist(), image_numbers(problem.test.X).tolist()
    assert len(set(train)) == len(train)
    assert len(set(test)) == len(test)
    assert set(train).isdisjoint(test)
    return set(train), set(test)


TRAIN, TEST = set(range(40)), set(range(45, 60))


# --- rows ------------------------------------------------------------------------------------------------------------


def test_given_rows_are_those_of_the_file(folder: Path) -> None:
    """In every trial; the validation part is left out, or is with the training rows."""
    for trial in range(3):
        assert of_images(images(), trial, seed=trial) == (TRAIN, TEST)
    assert of_images(images(arguments={"validation": True})) == (set(range(45)), TEST)


def test_a_random_split_keeps_the_sizes_and_changes_the_rows(folder: Path) -> None:
    """By the seed alone; nothing is in both parts, and nothing is lost."""
    splits = [of_images(images(split="random"), trial, seed) for trial, seed in ((0, 1), (0, 2), (5, 1))]
    for train, test in splits:
        assert (len(train), len(test)) == (40, 15)
        assert train | test == TRAIN | TEST
    assert splits[0] != splits[1]
    assert splits[0] == splits[2]
    assert splits[0] != (TRAIN, TEST)


def test_folds_judge_every_training_row_once(folder: Path) -> None:
    """Five trials divide the training rows; the file's test rows are not touched, and seeds change nothing."""
    folds = [of_images(images(split="folds"), trial, seed=trial + 7) for trial in range(5)]
    assert [len(test) for _, test in folds] == [8] * 5
    assert set().union(*(test for _, test in folds)) == TRAIN
    assert all(train == TRAIN - test for train, test in folds)
    assert of_images(images(split="folds"), 5, seed=0) == folds[0]


def test_fewer_rows_are_drawn_in_each_trial(folder: Path) -> None:
    """Training rows alone; folds are then those of the drawn rows."""
    drawn = [of_images(images(rows=10), 0, seed) for seed in range(3)]
    assert all(len(train) == 10 and train < TRAIN and test == TEST for train, test in drawn)
    assert len({frozenset(train) for train, _ in drawn}) == 3
    train, test = of_images(images(rows=10, split="folds"), 1, seed=0)
    assert (len(train), len(test)) == (8, 2)
    assert train | test == drawn[0][0]


@pytest.mark.parametrize("panel", [images(features=3), census(features=30)], ids=lambda panel: panel.name)
def test_fewer_features_are_the_same_for_training_and_test_rows(folder: Path, panel: Data) -> None:
    whole = problem_of(replace(panel, features=None), 0, 0)
    chosen = []
    for seed in (1, 2, 1):
        problem = problem_of(panel, 0, seed)
        for part, full in ((problem.train, whole.train), (problem.test, whole.test)):
            assert part is not None
            assert full is not None
            assert part.X.shape == (len(full), panel.features)
            assert np.array_equal(part.y, full.y)
        # The training columns that were kept, found among all by their values.
        dense, every = _dense(problem.train.X), _dense(whole.train.X)
        kept = tuple(tuple(np.flatnonzero((every == column[:, None]).all(axis=0))) for column in dense.T)
        assert problem.test is not None
        assert whole.test is not None
        tested, all_tested = _dense(problem.test.X), _dense(whole.test.X)
        assert all(
            any(np.array_equal(tested[:, j], all_tested[:, place]) for place in places) for j, places in enumerate(kept)
        )
        chosen.append(kept)
    assert chosen[0] != chosen[1]
    assert chosen[0] == chosen[2]


def _dense(X: Any) -> Any:
    return X.toarray() if sp.issparse(X) else X


def test_public_rows_lose_their_labels_and_are_not_trained_on(folder: Path) -> None:
    problem = problem_of(images(public_share=0.25), 0, 3)
    public, train = set(image_numbers(problem.public).tolist()), set(image_numbers(problem.train.X).tolist())
    assert (len(public), len(train)) == (10, 30)
    assert public | train == TRAIN
    assert problem.test is not None
    assert set(image_numbers(problem.test.X).tolist()) == TEST
    other = problem_of(images(public_share=0.25), 0, 4)
    assert set(image_numbers(other.public).tolist()) != public
    assert problem_of(images(), 0, 3).public is None


def test_sparse_rows_are_divided_like_dense_ones(folder: Path) -> None:
    """All of it at once, with rows that stay compressed."""
    panel = census(split="random", rows=40, public_share=0.5)
    problem = problem_of(panel, 0, 1)
    assert problem.test is not None
    parts = [census_numbers(X).tolist() for X in (problem.train.X, problem.public, problem.test.X)]
    assert [len(part) for part in parts] == [20, 20, 20]
    assert len(set().union(*parts)) == 60
    assert all(sp.issparse(X) and X.format == "csr" for X in (problem.train.X, problem.public, problem.test.X))
    assert np.array_equal(problem.train.y, np.where(np.array(parts[0]) % 3 == 0, -1, 1))
    assert np.array_equal(problem.test.y, np.where(np.array(parts[2]) % 3 == 0, -1, 1))


def test_drawn_data_is_that_of_the_seed() -> None:
    panel = Data("linear", "dp_ight_figure1", "regression", (1.0,), {"n": 30, "d": 5, "s": 2})
    problem, expected = problem_of(panel, 0, 9), dp_ight_figure1(30, 5, 2, seed=9)
    assert np.array_equal(problem.train.X, expected.X)
    assert np.array_equal(problem.train.y, expected.y)
    assert np.array_equal(problem.weights, expected.weights)
    assert problem.test is None
    assert not np.array_equal(problem_of(panel, 0, 8).train.X, expected.X)


def test_all_methods_and_budgets_of_a_trial_see_the_same_rows(folder: Path) -> None:
    """And other trials others."""
    task = Fits(replace(stated("tiny", TUNED), data=(images(split="random", features=4, public_share=0.5),)))
    seen = []
    for trial in range(2):
        cells = [Cell("images", method, epsilon, trial) for method in ("a", "b") for epsilon in (None, 1.0, 2.0)]
        found = [task.problem(task.of.data[0], cell) for cell in cells]
        first = found[0]
        assert first.test is not None
        for other in found[1:]:
            assert other.test is not None
            assert other.train.digest() == first.train.digest()
            assert other.test.digest() == first.test.digest()
            assert np.array_equal(other.public, first.public)
        seen.append(first.train.digest())
    assert seen[0] != seen[1]


def test_settings_are_chosen_on_training_rows_alone(folder: Path) -> None:
    """Fifths of the training rows take turns as judges; test rows are in none of them, public rows stay public."""
    problem = problem_of(images(public_share=0.25), 0, 3)
    train = set(image_numbers(problem.train.X).tolist())
    judging: list[int] = []
    for fold in range(5):
        part = problem.held_out(fold)
        assert part.test is not None
        learning, judges = (image_numbers(examples.X).tolist() for examples in (part.train, part.test))
        assert set(learning) | set(judges) == train
        assert set(learning).isdisjoint(judges)
        assert (len(learning), len(judges)) == (24, 6)
        assert np.array_equal(part.train.y, image_label(image_numbers(part.train.X)))
        assert np.array_equal(part.test.y, image_label(image_numbers(part.test.X)))
        assert part.public is problem.public
        assert part.weights is None
        judging += judges
    assert sorted(judging) == sorted(train)


# --- one fit and its score -------------------------------------------------------------------------------------------


def regression(n: int = 120, d: int = 6) -> Problem:
    rng = np.random.default_rng(5)
    weights = np.array([1.0, -0.5, *np.zeros(d - 2)])
    X = rng.uniform(-1, 1, (n, d))
    y = np.clip(X @ weights + 0.1 * rng.normal(size=n), -2, 2)
    return Problem(Examples(X[:80], y[:80]), Examples(X[80:], y[80:]), weights)


def classification(low: float = 0.0) -> Problem:
    """Labels `low` and 1; three quarters of the training rows have 1."""
    problem = regression()
    assert problem.test is not None
    cut = np.quantile(problem.train.y, 0.25)
    train, test = (Examples(part.X, np.where(part.y > cut, 1.0, low)) for part in (problem.train, problem.test))
    return Problem(train, test, problem.weights)


BOUNDS = {"row_l2": 3.0, "row_linf": 1.0, "label": 2.0}
REGRESSION = Data("rows", "load_a9a", "regression", (4.0,), n_nonzero=3, bounds=BOUNDS)
CLASSES = replace(REGRESSION, task="classification", bounds={"row_l2": 3.0, "row_linf": 1.0})
SOUND = Line("sound", "hard_thresholding", {"n_iter": 2})


def fitted(panel: Data, problem: Problem, method: Any = None, epsilon: float | None = 4.0, seed: int = 3) -> Any:
    """The model that a line must have fitted."""
    return (SparseRegressor if panel.task == "regression" else SparseClassifier)(
        epsilon,
        1e-5,
        n_nonzero=3,
        method=HardThresholding(n_iter=2) if method is None else method,
        bounds=Bounds(**panel.bounds),
        fit_intercept=True,
        random_state=seed,
    ).fit(problem.train.X, problem.train.y)


def tried(panel: Data, line: Line, problem: Problem, metric: str, epsilon: float | None = 4.0) -> dict[str, Any]:
    return run_trial(panel, line, {}, problem, epsilon=epsilon, delta=1e-5, metric=metric, seed=3)


def test_errors_of_regression_by_hand() -> None:
    problem = regression()
    assert problem.test is not None
    model = fitted(REGRESSION, problem)
    wrong = problem.test.y - (problem.test.X @ model.coef_ + model.intercept_)
    away = problem.test.y - problem.test.y.mean()
    expected = {
        "squared error": (wrong**2).sum() / 40,
        "half squared error": (wrong**2).sum() / 80,
        "1 − R²": (wrong**2).sum() / (away**2).sum(),
        "relative error": math.sqrt(((model.coef_ - problem.weights) ** 2).sum() / (1 + 0.25)),
    }
    assert len({round(value, 6) for value in expected.values()}) == 4
    for metric, value in expected.items():
        values = tried(REGRESSION, SOUND, problem, metric)
        assert values["score"] == pytest.approx(value, rel=1e-12)
        assert values["proved"] == model.privacy_.epsilon <= 4.0
        assert values["nonzero"] == np.count_nonzero(model.coef_)
        assert (values["passes"], values["thresholds"]) == (model.n_passes_, model.n_thresholds_)
        assert values["seconds"] > 0


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_errors_of_classification_by_hand(low: float) -> None:
    """The larger label counts as +1, whatever the two are called; the objective is that of training rows."""
    problem = classification(low)
    assert problem.test is not None
    penalty = 0.3
    line = replace(SOUND, parameters={"n_iter": 2, "penalty": penalty})
    model = fitted(CLASSES, problem, HardThresholding(n_iter=2, penalty=penalty))
    weights, intercept = model.coef_.ravel(), float(model.intercept_[0])

    def loss(part: Examples) -> float:
        signs = np.where(part.y == 1.0, 1.0, -1.0)
        return float(np.mean(np.log1p(np.exp(-signs * (part.X @ weights + intercept)))))

    answers = np.where(problem.test.X @ weights + intercept > 0, 1.0, low)
    expected = {
        "test error": np.mean(answers != problem.test.y),
        "logistic loss": loss(problem.test),
        "objective": loss(problem.train) + penalty / 2 * (weights**2).sum(),
        "relative error": np.linalg.norm(weights - problem.weights) / math.sqrt(1.25),
    }
    for metric, value in expected.items():
        assert tried(CLASSES, line, problem, metric)["score"] == pytest.approx(value, rel=1e-9)


def test_no_budget_no_noise_and_nothing_proved() -> None:
    problem = regression()
    line = replace(SOUND, private=False)
    values = tried(REGRESSION, line, problem, "squared error", epsilon=None)
    assert values["proved"] is None
    model = fitted(REGRESSION, problem, epsilon=None)
    assert problem.test is not None
    assert values["score"] == pytest.approx(np.mean((model.predict(problem.test.X) - problem.test.y) ** 2), rel=1e-12)


def test_chosen_settings_come_on_top_of_those_of_the_line() -> None:
    problem = regression()
    values = run_trial(
        REGRESSION, SOUND, {"n_iter": 5}, problem, epsilon=4.0, delta=1e-5, metric="relative error", seed=3
    )
    model = fitted(REGRESSION, problem, HardThresholding(n_iter=5))
    assert values["score"] == pytest.approx(np.linalg.norm(model.coef_ - problem.weights) / math.sqrt(1.25), rel=1e-12)


def test_published_noise_is_the_papers() -> None:
    """And proves more than was asked for."""
    line = Line("paper's noise", "hard_thresholding", {"noise": "gaussian"}, calibration="published")
    values = tried(REGRESSION, line, regression(), "squared error")
    assert values["proved"] > 4.0
    assert line.role == "unsound"


def test_the_null_model_by_hand() -> None:
    """The mean or the commonest class of training rows; for the logistic loss, their log odds; no weights at all."""
    line = Line("null model", "null model", private=False)
    numbers = regression()
    assert numbers.test is not None
    wrong = numbers.test.y - numbers.train.y.mean()
    for metric, value in {
        "squared error": np.mean(wrong**2),
        "half squared error": np.mean(wrong**2) / 2,
        "1 − R²": np.mean(wrong**2) / numbers.test.y.var(),
        "relative error": 1.0,
    }.items():
        assert tried(REGRESSION, line, numbers, metric, None) == {"score": pytest.approx(value, rel=1e-12)}
    for low in (0.0, -1.0):
        classes = classification(low)
        assert classes.test is not None
        assert np.mean(classes.train.y == 1) == 0.75
        rare = np.mean(classes.test.y != 1)
        entropy = -rare * math.log(0.25) - (1 - rare) * math.log(0.75)
        for metric, value in {"test error": rare, "logistic loss": entropy}.items():
            assert tried(CLASSES, line, classes, metric, None) == {"score": pytest.approx(value, rel=1e-12)}


@pytest.mark.parametrize("sparse", [False, True])
def test_the_reference_is_the_fit_that_users_come_from(sparse: bool) -> None:
    """scikit-learn's ℓ1 fits, on dense rows and on compressed ones; nothing is proved of them."""
    line = Line("scikit-learn", "scikit-learn", private=False)
    for panel, problem in ((REGRESSION, regression()), (CLASSES, classification())):
        X, y = problem.train.X, problem.train.y
        if panel.task == "regression":
            model = Lasso(alpha=0.01 * np.abs(X.T @ (y - y.mean())).max() / len(y)).fit(X, y)
        else:
            model = LogisticRegression(l1_ratio=1.0, solver="liblinear").fit(X, y)
        assert problem.test is not None
        answers = model.predict(problem.test.X)
        metric = "squared error" if panel.task == "regression" else "test error"
        errors = (answers - problem.test.y) ** 2 if panel.task == "regression" else answers != problem.test.y
        if sparse:
            parts = (Examples(sp.csr_array(part.X), part.y) for part in (problem.train, problem.test))
            problem = Problem(*parts, problem.weights)
        values = tried(panel, line, problem, metric, None)
        assert set(values) == {"score", "nonzero", "seconds"}
        assert values["score"] == pytest.approx(np.mean(errors), rel=1e-3)
        assert values["nonzero"] == np.count_nonzero(model.coef_)


def test_public_features_reach_the_method(folder: Path) -> None:
    """Rows of the data, or a distribution: the same fit as with the method made by hand, and other than the other."""
    panel = replace(images(public_share=0.5), n_nonzero=3, bounds={"row_l2": 3.0, "row_linf": 1.0})
    problem = problem_of(panel, 0, 0)
    scores = {}
    for name, says, features in (
        ("rows", "public", problem.public),
        ("law", {"uniform": [-0.5, 1.0]}, UniformFeatures(-0.5, 1.0)),
    ):
        line = Line("transfer", "knowledge_transfer", {"features": says})
        scores[name] = tried(panel, line, problem, "logistic loss", 50.0)["score"]
        model = fitted(panel, problem, KnowledgeTransfer(features=features), 50.0)
        assert problem.test is not None
        signs = np.where(problem.test.y == 1, 1.0, -1.0)
        loss = np.logaddexp(0, -signs * model.decision_function(problem.test.X)).mean()
        assert scores[name] == pytest.approx(loss, rel=1e-9)
    assert scores["rows"] != scores["law"]


# --- settings chosen as the papers chose them -------------------------------------------------------------------------

TUNED = """
title = "A tuned table"
paper = "Nobody (never)"
kind = "fits"
metric = "relative error"
delta = 1e-5
trials = 2

[[data]]
name = "linear"
source = "dp_ight_figure1"
arguments = { n = 200, d = 8, s = 2 }
task = "regression"
n_nonzero = 2
bounds = { row_l2 = 4.0, row_linf = 2.0, label = 4.0 }
epsilons = [4, 8]

[[lines]]
name = "tuned (oracle-tuned, not private)"
method = "hard_thresholding"
tune = { n_iter = [1, 3], step = [0.1, 1.0] }

[[lines]]
name = "as it comes"
method = "hard_thresholding"
"""
TUNED_LINE = "tuned (oracle-tuned, not private)"


def tuned(**says: Any) -> Fits:
    return Fits(replace(stated("tuned", TUNED), **says))


def test_every_combination_is_tried_on_every_fold() -> None:
    """And the defaults; of tuned lines alone, at each budget."""
    task = tuned()
    assert settings_of(task.of.lines[0]) == [
        {},
        *({"n_iter": n_iter, "step": step} for n_iter in (1, 3) for step in (0.1, 1.0)),
    ]
    assert settings_of(task.of.lines[1]) == []
    cells = Tuning(task).cells()
    assert len(set(cells)) == len(cells) == 5 * 2 * 2
    assert all(cell.method.startswith(TUNED_LINE) for cell in cells)
    assert {cell.trial for cell in cells} == {0, 1}
    assert len(Tuning(tuned(tuning_folds=5)).cells()) == 5 * 2 * 5


@pytest.mark.parametrize("bad", ["failed", "not a number"])
def test_the_least_mean_is_chosen(bad: str) -> None:
    """For each budget by itself. A setting that failed once, or had no score, loses whatever else it had."""
    tuning = Tuning(tuned())
    means = {
        (4.0, None, None): (0.4, 0.5),
        (4.0, 1, 0.1): (0.5, 0.5),
        (4.0, 1, 1.0): (0.1, 0.7),  # the least mean, not the least of all nor the least of the first fold
        (4.0, 3, 0.1): (0.05, 0.9),
        (4.0, 3, 1.0): (0.0, None),
        (8.0, None, None): (0.26, 0.26),
        (8.0, 1, 0.1): (0.3, 0.3),
        (8.0, 1, 1.0): (0.4, 0.4),
        (8.0, 3, 0.1): (None, 0.0),
        (8.0, 3, 1.0): (0.2, 0.3),
    }
    finished = []
    for cell in tuning.cells():
        _, settings = tuning._place(cell)
        score = means[cell.epsilon or 0, settings.get("n_iter"), settings.get("step")][cell.trial]
        if score is not None:
            finished.append(Finished(cell, {"score": score}, 0.0))
        elif bad == "failed":
            finished.append(Finished(cell, {}, 0.0, "ValueError: no"))
        else:
            finished.append(Finished(cell, {"score": "nan"}, 0.0))
    expected = {
        ("linear", TUNED_LINE, 4.0): {"n_iter": 1, "step": 1.0},
        ("linear", TUNED_LINE, 8.0): {"n_iter": 3, "step": 1.0},
    }
    assert tuning.best(finished) == expected
    assert tuning.best(finished[::-1]) == expected


class Seen:
    """Stands for `run_trial`: keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def __call__(self, panel: Data, line: Line, parameters: Any, problem: Problem, **says: Any) -> dict[str, Any]:
        self.asked.append({"line": line.name, "parameters": dict(parameters), "problem": problem, **says})
        return {"score": 1.0}


def test_tuning_draws_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for all settings, another in each fold, and in none of the trials: luck is not what is chosen."""
    seen = Seen()
    monkeypatch.setattr(fits, "run_trial", seen)
    task = tuned(trials=50)
    for cell in Tuning(task).cells():
        Tuning(task).run(cell)
    by_place: dict[tuple[float, int], set[int]] = {}
    for cell, asked in zip(Tuning(task).cells(), seen.asked):
        by_place.setdefault((cell.epsilon or 0, cell.trial), set()).add(asked["seed"])
    assert all(len(seeds) == 1 for seeds in by_place.values())
    seeds = set().union(*by_place.values())
    assert len(seeds) == len(by_place) == 4
    assert seeds.isdisjoint(noise_seed(0, cell) for cell in task.cells())


def test_tuning_sees_the_training_rows_of_the_first_trial(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four fifths to learn from and one to judge by; never a test row of that trial."""
    seen = Seen()
    monkeypatch.setattr(fits, "run_trial", seen)
    task = tuned(data=(images(split="random"),), metric="test error")
    first = task.problem(task.of.data[0], Cell("images", "", None, 0))
    assert first.test is not None
    train, test = (set(image_numbers(part.X).tolist()) for part in (first.train, first.test))
    for cell in Tuning(task).cells():
        Tuning(task).run(cell)
    assert len(seen.asked) == 10
    for asked in seen.asked:
        problem = asked["problem"]
        learning, judging = (set(image_numbers(part.X).tolist()) for part in (problem.train, problem.test))
        assert test.isdisjoint(learning | judging)
        assert learning | judging == train
        assert (len(learning), len(judging)) == (32, 8)
        assert asked["metric"] == "test error"


@pytest.mark.parametrize(
    ("task", "metric", "judged_by"),
    [
        ("regression", "relative error", "squared error"),
        ("classification", "relative error", "logistic loss"),
        ("classification", "objective", "logistic loss"),
        ("regression", "half squared error", "half squared error"),
        ("regression", "1 − R²", "1 − R²"),
    ],
)
def test_tuning_judges_by_what_can_be_had_of_private_rows(
    task: Any, metric: Any, judged_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """True weights are known to nobody."""
    seen = Seen()
    monkeypatch.setattr(fits, "run_trial", seen)
    chosen = tuned(metric=metric)
    chosen = tuned(metric=metric, data=(replace(chosen.of.data[0], task=task),))
    tuning = Tuning(chosen)
    tuning.run(tuning.cells()[0])
    assert seen.asked[0]["metric"] == judged_by == tuning.depends(tuning.cells()[0])["metric"]


def test_trials_run_with_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the budget that it was chosen for; the choice is part of what a result depends on."""
    chosen = {("linear", TUNED_LINE, 4.0): {"n_iter": 3, "step": 0.1}, ("linear", TUNED_LINE, 8.0): {"n_iter": 1}}
    task = Fits(tuned().of, chosen)
    seen = Seen()
    monkeypatch.setattr(fits, "run_trial", seen)
    for cell in task.cells():
        task.run(cell)
        asked = seen.asked[-1]
        expected = chosen.get((cell.data, cell.method, cell.epsilon or 0), {})
        assert asked["parameters"] == expected == task.depends(cell)["tuned"]
        assert (asked["epsilon"], asked["delta"], asked["metric"]) == (cell.epsilon, 1e-5, "relative error")
        assert asked["seed"] == noise_seed(0, cell)
        assert asked["problem"] is problem_of(task.of.data[0], cell.trial, data_seed(0, cell))
    other = Fits(task.of, {**chosen, ("linear", TUNED_LINE, 4.0): {"n_iter": 1, "step": 0.1}})
    changed = [cell for cell in task.cells() if task.depends(cell) != other.depends(cell)]
    assert changed == [Cell("linear", TUNED_LINE, 4.0, trial) for trial in range(2)]


def test_delta_and_metric_of_the_data_come_before_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    monkeypatch.setattr(fits, "run_trial", seen)
    task = tuned(data=(replace(tuned().of.data[0], delta=1e-3, metric="squared error"),))
    task.run(task.cells()[0])
    assert (seen.asked[0]["delta"], seen.asked[0]["metric"]) == (1e-3, "squared error")
    assert {**task.depends(task.cells()[0])}.items() >= {"delta": 1e-3, "metric": "squared error"}.items()


def test_seconds_are_those_of_the_fit_and_no_value(tmp_path: Path) -> None:
    finished = run_cells(tuned(lines=tuned().of.lines[1:], trials=1), tmp_path, jobs=1)
    for one in finished:
        assert "seconds" not in one.values
        assert set(one.values) == {"score", "nonzero", "proved", "passes", "thresholds", "warnings"}
        assert one.seconds > 0


# --- output ----------------------------------------------------------------------------------------------------------


def found(task: Fits, **values: Any) -> list[Finished]:
    """Every cell with a score of its trial + 1."""
    return [
        Finished(cell, {"score": cell.trial + 1.0, "proved": cell.epsilon, "passes": 2, "thresholds": 3} | values, 1.0)
        for cell in task.cells()
    ]


def test_sound_noise_that_proves_more_than_its_budget_stops_everything() -> None:
    """No table is made of it."""
    task = tuned()
    task.panels(found(task))
    with pytest.raises(AssertionError, match=r"tuned .* claims ε = 4 but proves 4.5"):
        task.panels(found(task, proved=4.5))
    with pytest.raises(AssertionError, match="claims ε = 4 but proves inf"):
        Curves(task.of).panels(found(task, proved="inf"))


def test_the_true_epsilon_of_printed_noise_is_rounded_up_and_the_worst_of_all_trials() -> None:
    line = Line("paper's noise", "hard_thresholding", {}, calibration="published")
    task = tuned(lines=(line,))
    results = found(task)
    for one, proved in zip(results, (4.8511, 9.0, 4.2, 9.99991)):
        one.values["proved"] = proved  # type: ignore[index]
    (panel,) = task.panels(results)
    assert [point.note for point in panel.series[0].points] == ["true ε 4.86", "true ε 10"]
    (panel,) = task.panels(found(task, proved="inf"))
    assert {point.note for point in panel.series[0].points} == {"no ε is proved"}


def test_points_are_means_over_the_trials_that_did_not_fail() -> None:
    task = tuned(trials=3)
    results = found(task)
    failed = [replace(one, values={}, failed="ValueError: no") for one in results if one.cell.trial == 2]
    (panel,) = task.panels([one for one in results if one.cell.trial < 2] + failed)
    for series in panel.series:
        assert [(point.x, point.mean, point.error) for point in series.points] == [(4.0, 1.5, 0.5), (8.0, 1.5, 0.5)]
    (panel,) = task.panels(failed)
    assert panel.series == ()


def test_a_reference_without_a_budget_stands_at_each() -> None:
    null = Line("null model", "null model", private=False)
    task = tuned(lines=(null,))
    assert [cell.epsilon for cell in task.cells()] == [None, None]
    (panel,) = task.panels(found(task))
    assert [(point.x, point.mean, point.note) for point in panel.series[0].points] == [(4.0, 1.5, ""), (8.0, 1.5, "")]
    assert panel.series[0].role == "reference"


def test_curves_go_by_passes_and_by_thresholds() -> None:
    """One series for a line and all values of what it sweeps over."""
    line = Line("swept", "hard_thresholding", {"noise": "gaussian"}, sweep={"n_iter": [1, 2]})
    task = Curves(tuned(lines=tuple(line.swept()), trials=1).of)
    assert [one.parameters["n_iter"] for one in task.of.lines] == [1, 2]
    results = found(task)
    for one in results:
        n_iter = int(one.cell.method[-1])
        one.values.update(passes=n_iter, thresholds=10 * n_iter)  # type: ignore[attr-defined]
    panels = task.panels(results)
    assert [panel.name for panel in panels] == ["linear, ε = 4"] * 2 + ["linear, ε = 8"] * 2
    assert [[point.x for point in panel.series[0].points] for panel in panels] == [[1, 2], [10, 20]] * 2
    assert all([series.name for series in panel.series] == ["swept"] for panel in panels)


def test_times_are_medians_beside_those_of_scikit_learn() -> None:
    beside = Line("scikit-learn", "scikit-learn", private=False)
    task = tuned(lines=(*tuned().of.lines[1:], beside), trials=3, times=True)
    seconds = {("as it comes", 4.0): (100, 6, 5), ("as it comes", 8.0): (3, 3, 3), ("scikit-learn", None): (2, 2, 9)}
    results = [
        replace(one, seconds=float(seconds[one.cell.method, one.cell.epsilon][one.cell.trial])) for one in found(task)
    ]
    _, times = task.panels(results)
    by_name = {series.name: series for series in times.series}
    assert [(point.x, point.mean, point.note) for point in by_name["as it comes"].points] == [
        (4.0, 3.0, "6 s"),
        (8.0, 1.5, "3 s"),
    ]
    assert [point.mean for point in by_name["scikit-learn"].points] == [1.0, 1.0]
