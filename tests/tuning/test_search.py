"""PrivateSearch: one budget for the whole search, one price for every trial, and nothing told of the others."""

from __future__ import annotations

import json
import math
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import loguniform, randint
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import tulle.trusted.fit
import tulle.tuning.search
from tulle import Bounds, Budget, Ledger, PrivateSearch, SparseClassifier, SparseRegressor
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.estimators.fit_callbacks import SUPPORTED
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.files import array_checks
from tulle.files.error_messages import PrivacyWarning
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods import FrankWolfe, HardThresholding
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import GumbelMax
from tulle.trusted.plan import Plan, Release
from tulle.tuning.best_of_trials import TrialCount, TrialLedger, TrialPrice, affordable_search

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (300, 6))
Y = (X[:, 0] > 0).astype(int)
TARGET = X[:, 0] - X[:, 1]
BOUNDS = Bounds(row_linf=1.0, label=2.0)
BUDGET = Budget(2.0, 1e-5)
SETTINGS: dict[str, Any] = {"n_nonzero": [1, 3], "method__n_iter": [1, 2]}


def classifier(**settings: Any) -> SparseClassifier:
    return SparseClassifier(**{"bounds": BOUNDS, "method": HardThresholding(noise="gaussian"), **settings})


def search(**settings: Any) -> PrivateSearch:
    estimator = settings.pop("estimator", classifier())
    given = {"n_trials": 3.0, "random_state": 0, **settings}
    return PrivateSearch(estimator, given.pop("param_distributions", SETTINGS), given.pop("budget", BUDGET), **given)


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise AssertionError("noise would have been drawn")

    monkeypatch.setattr(tulle.trusted.fit, "keyed_generator", refuse)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of every trial, and the ledger that its fit was billed to."""
    seen: list[dict[str, Any]] = []
    names = ("model", "params", "offers", "parts", "metric", "label", "generator")
    run, ledger = tulle.tuning.search._run_trial, TrialLedger

    def watched(*arguments: Any) -> Any:
        seen.append({**dict(zip(names, arguments)), "ledgers": [], "seed": arguments[0].random_state})
        return run(*arguments)

    def watched_ledger(*arguments: Any) -> TrialLedger:
        made = ledger(*arguments)
        seen[-1]["ledgers"].append(made)
        return made

    monkeypatch.setattr(tulle.tuning.search, "_run_trial", watched)
    monkeypatch.setattr(tulle.tuning.search, "TrialLedger", watched_ledger)
    return seen


def number_of_trials(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(TrialCount, "draw", lambda self, generator: count)


# --- the guarantee ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [Budget(0.2, 1e-6), Budget(1.0, 1e-5), Budget(8.0, 1e-4)], ids=str)
@pytest.mark.parametrize(("n_trials", "shape"), [(2.0, 0.0), (10.0, 1.0), (4.0, -0.5)])
def test_the_whole_budget_is_proved_and_no_more(budget: Budget, n_trials: float, shape: float) -> None:
    fitted = search(budget=budget, n_trials=n_trials, shape=shape).fit(X, Y)
    assert 0.99 * budget.epsilon < fitted.privacy_.epsilon <= budget.epsilon
    assert fitted.privacy_.delta == budget.delta
    assert fitted.privacy_.asked == (budget.epsilon, budget.delta)


CANDIDATES: dict[str, dict[str, Any]] = {
    "gaussian": {"method": HardThresholding(noise="gaussian"), "bounds": BOUNDS},
    "one step": {"method": HardThresholding(noise="gaussian", n_iter=1), "bounds": BOUNDS},
    "selection": {"method": HardThresholding(noise="selection"), "bounds": BOUNDS},
    "estimated bounds": {"method": HardThresholding(noise="gaussian"), "bounds": None},
    "selection, estimated bounds": {"method": HardThresholding(noise="selection"), "bounds": None},
    "either noise": {"method": HardThresholding(), "bounds": None, "n_nonzero": 50},
    "default": {"method": "auto", "bounds": BOUNDS},
}


@pytest.mark.parametrize("name", CANDIDATES)
@pytest.mark.parametrize("budget", [Budget(0.5, 1e-5), Budget(4.0, 1e-5), Budget(0.01, 1e-3)], ids=str)
def test_every_setting_takes_the_same_price(name: str, budget: Budget) -> None:
    """The dearest plan that a setting can lead to takes 99 to 100 % of the price at the dearer of the two orders."""
    price = affordable_search(TrialCount(5.0), budget).price
    wide = RNG.uniform(-1, 1, (400, 60))
    labels = (wide[:, 0] > 0).astype(int)
    offers = tulle.tuning.offers._Offers(classifier(), price, price.delta(budget), 300, wide, labels)
    model = offers.model(CANDIDATES[name]).set_params(
        epsilon=offers.epsilon(CANDIDATES[name]), delta=price.delta(budget)
    )
    _, _, loss = model._prepare(wide, labels)
    shares = [price.share(one.plan) for one in model._request(loss, 300).plan_all((300, 60))]
    assert 0.99 < max(shares) <= 1
    if name in ("gaussian", "one step"):
        assert max(shares) > 0.9999


def test_trials_keep_within_the_price_as_they_run(runs: list[dict[str, Any]]) -> None:
    """Fit and score each take at most the whole price: they look at different rows."""
    grid = [{"method": [CANDIDATES[name]["method"]], "bounds": [CANDIDATES[name]["bounds"]]} for name in CANDIDATES]
    search(param_distributions=grid, n_trials=20.0).fit(X, Y)
    assert len(runs) > 5
    for run in runs:
        fit, score = run["ledgers"]
        assert [what for what, _ in fit.fits] == ["SparseClassifier.fit"]
        assert 0.99 < fit.share <= 1
        assert [what for what, _ in score.fits] == ["score"]
        assert score.share == pytest.approx(1.0)
    assert len({run["offers"].price for run in runs}) == 1


def test_a_trial_that_is_too_dear_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a setting ever be offered more than the price, its fit is refused before it draws noise."""
    dearer = tulle.tuning.offers._Offers.epsilon
    monkeypatch.setattr(tulle.tuning.offers._Offers, "epsilon", lambda self, params: 1.01 * dearer(self, params))
    with pytest.raises(BudgetExceededError, match="nothing was released"):
        search().fit(X, Y)


def test_settings_that_compare_equal_are_told_apart() -> None:
    """1, 1.0 and True are one dictionary key; lists have none."""
    keys = [tulle.tuning.offers._key({"a": value}) for value in (1, 1.0, True)]
    assert len(set(keys)) == 3
    assert tulle.tuning.offers._key({"a": [1]}) is None


def test_the_tables_of_the_page_are_true() -> None:
    """Each figure of docs/tuning.md, to the digits printed."""
    text = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
    whole = gaussian_mu(1.0, 1e-5)
    searches = re.findall(r"^\| (\d+) \| ([\d.]+) \| ×([\d.]+) \| ([\d.]+) \| ×([\d.]+) \|$", text, re.MULTILINE)
    assert len(searches) == 4
    for mean, *printed in searches:
        figures = []
        for shape in (0.0, 1.0):
            mu = affordable_search(TrialCount(float(mean), shape), Budget(1.0, 1e-5)).price.mu
            figures += [gaussian_epsilon(mu, 1e-5), whole / mu]
        assert [float(figure) for figure in printed] == pytest.approx(figures, abs=0.006)
    grids = re.findall(r"^\| .+ \| (\d+) \| ([\d.]+) \| ×([\d.]+) \|$", text, re.MULTILINE)
    assert len(grids) == 4
    for fits, each, noise in grids:
        assert float(each) == pytest.approx(gaussian_epsilon(whole / math.sqrt(int(fits)), 1e-5), abs=6e-4)
        assert float(noise) == pytest.approx(math.sqrt(int(fits)), abs=0.006)
    for fits, together in re.findall(r"(\d+) (?:fits at ε = 0.5 )?cost ([\d.]+)\b", text):
        assert float(together) == pytest.approx(
            gaussian_epsilon(math.sqrt(int(fits)) * gaussian_mu(0.5, 1e-5), 1e-5), abs=0.01
        )


# --- trials ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 200])
def test_as_many_trials_as_are_drawn(count: int, runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    number_of_trials(monkeypatch, count)
    search(n_trials=2.0).fit(X, Y)
    assert len(runs) == count


def test_the_number_of_trials_is_random(runs: list[dict[str, Any]]) -> None:
    """30 searches of 3 trials on average; each has 3 with probability 0.13, so all do once in 1e26."""
    counts = []
    for seed in range(30):
        runs.clear()
        search(random_state=seed).fit(X, Y)
        counts.append(len(runs))
    assert len(set(counts)) > 3
    assert min(counts) == 1


def test_settings_are_drawn_with_replacement_and_evenly(
    runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """160 draws from four points: each comes 15 to 70 times, but for a chance of one in ten million."""
    number_of_trials(monkeypatch, 160)
    search().fit(X, Y)
    found = [tuple(sorted(run["params"].items())) for run in runs]
    counts = {point: found.count(point) for point in set(found)}
    assert len(counts) == 4
    assert all(15 < count < 70 for count in counts.values())


def test_distributions_and_lists_of_grids(runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    number_of_trials(monkeypatch, 12)
    grids = [{"n_nonzero": randint(1, 6)}, {"method__step": loguniform(0.1, 10), "fit_intercept": [True, False]}]
    search(param_distributions=grids).fit(X, Y)
    drawn = [frozenset(run["params"]) for run in runs]
    assert set(drawn) == {frozenset({"n_nonzero"}), frozenset({"method__step", "fit_intercept"})}
    steps = [run["params"]["method__step"] for run in runs if "method__step" in run["params"]]
    assert len(set(steps)) == len(steps)


@pytest.mark.filterwarnings("ignore:in every trial")
@pytest.mark.parametrize("holdout", [0.2, 0.5, 0.001, 0.999])
def test_the_parts_are_disjoint_and_look_at_no_data(holdout: float, runs: list[dict[str, Any]]) -> None:
    """Sizes are functions of n; every row is in one part, the same for other rows under the same seed."""
    numbered = np.column_stack([np.arange(300.0), X])
    for rows, labels in ((numbered, Y), (numbered + np.r_[0, np.ones(6)], Y[::-1])):
        search(holdout=holdout).fit(rows, labels)
    parts = [run["parts"] for run in runs]
    held_out = parts[0].held_out_rows[:, 0]
    assert len(held_out) == min(max(round(300 * holdout), 1), 298)
    assert sorted([*parts[0].training_rows[:, 0], *held_out]) == list(range(300))
    for part in parts:
        np.testing.assert_array_equal(part.held_out_rows[:, 0], held_out)
        np.testing.assert_array_equal(part.training_rows[:, 0], part.training)
    np.testing.assert_array_equal(parts[0].held_out_labels, Y[held_out.astype(int)])
    assert set(held_out) != set(range(len(held_out)))


@pytest.mark.parametrize("scoring", ["accuracy", "auc", "absolute_error", "r2"])
def test_no_row_is_both_fitted_to_and_scored_on(scoring: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fits and metrics are handed, by a column of row numbers: no row twice, none left out, with their labels."""
    fitted_to: list[tuple[np.ndarray, np.ndarray]] = []
    scored_on: list[tuple[np.ndarray, np.ndarray]] = []
    metric = tulle.tuning.metrics.METRICS[scoring]
    fit, figures = tulle.tuning.search.run_fit, metric.figures

    def watched_fit(request: Any, rows: Any, targets: Any, *rest: Any) -> Any:
        fitted_to.append((rows[:, 0].astype(int), targets))
        return fit(request, rows, targets, *rest)

    def watched_figures(model: Any, rows: Any, labels: Any, bound: float) -> Any:
        scored_on.append((rows[:, 0].astype(int), labels))
        return figures(model, rows, labels, bound)

    monkeypatch.setattr(tulle.tuning.search, "run_fit", watched_fit)
    monkeypatch.setattr(metric, "figures", watched_figures)
    number_of_trials(monkeypatch, 4)
    numbered = np.column_stack([np.arange(300.0), X])
    estimator: Any = classifier() if metric.kind == "classification" else SparseRegressor(bounds=BOUNDS)
    labels, targets = (Y, 2 * Y - 1) if metric.kind == "classification" else (TARGET, TARGET)
    search(estimator=estimator, param_distributions={"n_nonzero": [1, 2]}, scoring=scoring).fit(numbered, labels)
    assert len(fitted_to) == len(scored_on) == 4
    for (trained, seen_targets), (held_out, seen_labels) in zip(fitted_to, scored_on):
        assert not set(trained) & set(held_out)
        assert sorted([*trained, *held_out]) == list(range(300))
        np.testing.assert_array_equal(seen_targets, targets[trained])
        np.testing.assert_array_equal(seen_labels, labels[held_out])


def test_the_best_score_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the earlier of two equal ones."""
    made = []

    def trial(model: Any, params: Any, *rest: Any) -> Any:
        done = run(model, params, *rest)
        scores = [0.3, 0.9, 0.1, 0.9, 0.2]
        made.append(tulle.tuning.search._Trial(done.model, {"number": len(made)}, scores[len(made)]))
        return made[-1]

    run = tulle.tuning.search._run_trial
    number_of_trials(monkeypatch, 5)
    monkeypatch.setattr(tulle.tuning.search, "_run_trial", trial)
    fitted = search().fit(X, Y)
    assert (fitted.best_score_, fitted.best_params_) == (0.9, {"number": 1})
    assert fitted.best_estimator_ is made[1].model


def test_a_good_setting_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is far too short against the default one, ten trials, ample data: in 8 of 8 seeds."""
    rows = RNG.uniform(-1, 1, (4000, 5))
    target = rows[:, 0] - rows[:, 1]
    number_of_trials(monkeypatch, 10)
    for seed in range(8):
        fitted = search(
            estimator=SparseRegressor(bounds=BOUNDS, method=HardThresholding()),
            param_distributions={"method__step": [1e-9, None]},
            budget=Budget(8.0, 1e-5),
            random_state=seed,
        ).fit(rows, target)
        assert fitted.best_params_ == {"method__step": None}
        assert fitted.score(rows, target) > 0.8


@pytest.mark.parametrize("scoring", ["accuracy", "absolute_error"])
def test_the_score_has_the_right_noise(scoring: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of 1,500 trials of a perfect model: deviation within 10 % of 1 / (hold-out rows × mu), 5.4 sigma.

    Noise 20 % too small would be out. False alarms and misses: fewer than one in a million. All trials have the first
    one's model, to save time.
    """
    regression = scoring == "absolute_error"
    scores = []
    run = tulle.tuning.search._run_trial

    def trial(*arguments: Any) -> Any:
        done = run(*arguments)
        scores.append(done.score)
        return done

    metric = tulle.tuning.metrics.METRICS[scoring]
    monkeypatch.setattr(metric, "figures", lambda model, X, y, label: np.ones((len(y), 1)))
    monkeypatch.setattr(tulle.tuning.search, "_run_trial", trial)
    fit, fits = tulle.tuning.search.run_fit, []

    def fit_once(*arguments: Any) -> Any:
        if not fits:
            fits.append(fit(*arguments))
        return fits[0]

    monkeypatch.setattr(tulle.tuning.search, "run_fit", fit_once)
    number_of_trials(monkeypatch, 1500)
    estimator: Any = SparseRegressor(bounds=BOUNDS) if regression else classifier()
    search(estimator=estimator, param_distributions={"n_nonzero": [1]}, scoring=scoring).fit(X, Y)
    mu = affordable_search(TrialCount(3.0), BUDGET).price.mu
    assert len(set(scores)) > 10
    assert 0.9 < np.std(scores) * 60 * mu < 1.1
    assert np.mean(scores) == pytest.approx(1.0, abs=5.5 / (60 * mu * math.sqrt(1500)))


def test_trials_have_noise_of_their_own(runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a seed each trial has a child of it; without, each takes its key from the operating system."""
    number_of_trials(monkeypatch, 6)
    search(random_state=5).fit(X, Y)
    seeds = [run["seed"] for run in runs]
    assert len(set(seeds)) == 6
    assert 5 not in seeds
    runs.clear()
    search(random_state=None).fit(X, Y)
    assert [run["seed"] for run in runs] == [None] * 6


def test_seeds() -> None:
    """Scores and weights lie on grids, and two searches can agree by chance; four that all agree share their noise."""

    def results(*states: Any) -> set[Any]:
        found = [search(random_state=state).fit(X, Y) for state in states]
        assert {model.privacy_.seeded for model in found} == {isinstance(states[0], int)}
        bests = [(model.best_score_, model.best_estimator_) for model in found]
        return {(score, best.coef_.tobytes(), best.intercept_.tobytes()) for score, best in bests}

    assert len(results(4, 4, 4)) == 1
    assert len(results(4, 5, 6, 7)) > 1
    assert len(results(None, None, None, None)) > 1
    assert len(results(*(np.random.default_rng(0) for _ in range(4)))) > 1
    with Ledger(Budget(40.0, 1e-5)):
        assert len(results(4, 4, 4, 4)) > 1


# --- what stays secret -----------------------------------------------------------------------------------------------


def test_nothing_is_kept_but_the_best_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same attributes after 2 trials and after 40, no table of results, and a pickle of about the same size."""
    sizes = []
    for count in (2, 40):
        number_of_trials(monkeypatch, count)
        fitted = search(param_distributions={"n_nonzero": [2]}).fit(X, Y)
        public = {"best_estimator_", "best_params_", "best_score_", "privacy_"}
        assert set(vars(fitted)) == {*fitted.get_params(deep=False), *public}
        assert not any(isinstance(value, (list, np.ndarray)) for name, value in vars(fitted).items() if name in public)
        sizes.append(len(pickle.dumps(fitted)))
    assert abs(sizes[0] - sizes[1]) < 16


def test_the_report_does_not_depend_on_the_number_of_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = []
    for count in (2, 40):
        number_of_trials(monkeypatch, count)
        reports.append(search(param_distributions={"n_nonzero": [2], "method__n_iter": [1]}).fit(X, Y).privacy_)
    one, other = (json.loads(report.to_json()) for report in reports)
    assert one == other


class Counter:
    """A callback that counts fits."""

    def __init__(self) -> None:
        self.begun = 0

    def setup(self, estimator: Any, context: Any) -> None:
        self.begun += 1

    def on_fit_task_begin(self, *arguments: Any, **named: Any) -> None:
        self.begun += 1

    def on_fit_task_end(self, *arguments: Any, **named: Any) -> None: ...

    def teardown(self, *arguments: Any, **named: Any) -> None: ...


def test_progress_and_callbacks_are_silent_and_warnings_come_once(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An estimator that shows progress, warns of few rows for its bounds, and has a callback: none can be counted.

    What a single fit would warn of is said once, from public quantities, however many trials there are.
    """
    heard = []
    for count in (1, 12):
        number_of_trials(monkeypatch, count)
        counter = Counter()
        loud = SparseClassifier(verbose=1)
        if SUPPORTED:
            loud.set_callbacks(counter)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = search(estimator=loud, param_distributions={"n_nonzero": [1, 2]}).fit(X, Y)
        assert capfd.readouterr() == ("", "")
        assert counter.begun == 0
        assert fitted.best_estimator_.verbose == 1
        assert {warning.filename for warning in caught} == {__file__}
        heard.append([str(warning.message) for warning in caught])
    assert heard[0] == heard[1]
    assert len(heard[0]) == 1
    assert re.match(r"in every trial, for example with .*: 240 rows are too few to estimate row_l2", heard[0][0])


@pytest.mark.usefixtures("no_noise")
def test_hopeless_searches_are_told_before_they_are_billed() -> None:
    with (
        Ledger(Budget(0.001, 1e-5)),
        pytest.warns(UserWarning, match="in every trial.* no better than guessing"),
        pytest.raises(BudgetExceededError),
    ):
        search(budget=Budget(0.01, 1e-5)).fit(X, Y)


def test_what_some_settings_escape_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search(param_distributions={"bounds": [None, BOUNDS]}, n_trials=5.0).fit(X, Y)


def test_rows_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of settings and trials. What is predicted for during a trial is checked as ever."""
    checked: list[Any] = []
    read_rows = array_checks.read_rows

    def watched(rows: Any, **settings: Any) -> Any:
        checked.append(rows)
        return read_rows(rows, **settings)

    monkeypatch.setattr(array_checks, "read_rows", watched)
    number_of_trials(monkeypatch, 5)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    fitted = search().fit(frame, Y)
    assert [rows is frame for rows in checked if len(rows) == len(X)] == [True]
    assert fitted.feature_names_in_.tolist() == list("abcdef")


def test_verbose_says_what_is_public(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    for count in (2, 9):
        number_of_trials(monkeypatch, count)
        search(verbose=1).fit(X, Y)
        texts.append(capfd.readouterr().err)
    assert texts[0] == texts[1]
    assert "240 rows to train on, 60 to score on; about 3 trials" in texts[0]


def test_the_best_model_speaks_for_the_whole_search() -> None:
    """Its report is the search's, and a clone of it does not repeat the trial's noise."""
    fitted = search(estimator=classifier(random_state=11)).fit(X, Y)
    assert fitted.best_estimator_.privacy_ is fitted.privacy_
    assert fitted.best_estimator_.random_state == 11
    text = str(fitted.privacy_)
    assert "best of a secret number of trials" in text
    assert "Papernot and Steinke 2022" in text
    assert "the number of rows, 300, is public" in text
    names = [line.release for line in fitted.privacy_.bill]
    assert names[0] == "search"
    assert names[-1] == "in the trial: score"
    assert all(line.epsilon_alone < fitted.privacy_.epsilon for line in fitted.privacy_.bill[1:])
    assert fitted.privacy_.floating_point_slack == 0
    precision = [line for line in fitted.privacy_.assumptions if "without rounding errors" in line]
    assert len(precision) == 1


def test_trials_have_no_part_of_delta_for_finite_precision() -> None:
    """The price of a search has no room for it: trials are planned with the plain engine, whatever is asked for."""
    offered = {"method": [FrankWolfe(engine="incremental", n_iter=20)]}
    fitted = search(param_distributions=offered).fit(sp.csr_array(X), Y)
    assert fitted.privacy_.floating_point_slack == 0
    on_demand = Plan((Release("vertex", GumbelOnDemand(NoisePerSensitivity(1e6), 1, 10, 300), 1),))
    exact = Plan((Release("vertex", GumbelMax(NoisePerSensitivity(1e6)), 1),))
    price = TrialPrice(1.0, 10.0, 5.0)
    assert price.share(exact) < 1 < price.share(on_demand) == math.inf


# --- ledgers ---------------------------------------------------------------------------------------------------------


def test_a_search_is_billed_once() -> None:
    with Ledger(Budget(5.0, 1e-5)) as outer, Ledger(Budget(4.0, 1e-5)) as inner:
        search().fit(X, Y)
        assert [what for what, _ in outer.fits] == [what for what, _ in inner.fits] == ["PrivateSearch.fit"]
        assert 1.9 < outer.epsilon < 2.02  # the ledger's grid of orders is a coarse one
        classifier(epsilon=0.1, delta=1e-5).fit(X, Y)
    assert [len(ledger.fits) for ledger in (outer, inner)] == [2, 2]


def test_a_search_may_spend_the_whole_cap() -> None:
    with Ledger(BUDGET) as ledger:
        search().fit(X, Y)
        with pytest.raises(BudgetExceededError):
            search().fit(X, Y)
    assert ledger.epsilon <= 2.0


@pytest.mark.usefixtures("no_noise")
def test_past_the_cap_nothing_is_drawn() -> None:
    unfitted = search()
    with (
        Ledger(Budget(1.9, 1e-5)) as ledger,
        pytest.raises(BudgetExceededError, match=r"PrivateSearch\.fit would take"),
    ):
        unfitted.fit(X, Y)
    assert ledger.fits == []
    assert not hasattr(unfitted, "best_estimator_")


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"estimator": HardThresholding()}, "must be a tulle.SparseClassifier"),
        ({"estimator": SparseClassifier(None)}, "epsilon=None"),
        ({"estimator": SparseClassifier(calibration="published")}, "calibration='rigorous'"),
        ({"estimator": classifier(bounds=Bounds(row_linf=1.0, rows_per_person=2))}, "protects single rows only"),
        ({"estimator": SparseRegressor()}, r"declare it with Bounds\(label=\.\.\.\)"),
        ({"budget": 1.0}, "budget must be a tulle.Budget"),
        ({"budget": Budget(1.0)}, "delta > 0"),
        ({"n_trials": 1}, "finite number > 1"),
        ({"shape": -1}, r"lie in \(-1, 10\]"),
        ({"holdout": 0.0}, "holdout must lie strictly between 0 and 1"),
        ({"holdout": "half"}, "holdout must lie strictly between 0 and 1"),
        ({"scoring": "r2"}, r"scored by one of \['accuracy', 'auc'\]"),
        ({"random_state": -1}, "random_state must be"),
        ({"param_distributions": 3}, "not a dict or a list"),
        ({"param_distributions": []}, "empty list"),
        ({"param_distributions": {"n_nonzero": 3}}, "not iterable or a distribution"),
        ({"param_distributions": {"epsilon": [1.0]}}, "must not contain 'epsilon'"),
        ({"param_distributions": [{"n_nonzero": [1]}, {"random_state": [1]}]}, "must not contain 'random_state'"),
        ({"param_distributions": {"nonzero": [1]}}, r"settings \{'nonzero': 1\} .* cannot be fitted"),
        ({"param_distributions": {"n_nonzero": [1, 0]}}, r"'n_nonzero': 0.* cannot be fitted: n_nonzero must be"),
        ({"param_distributions": {"method__n_iter": [3, -1]}}, "cannot be fitted"),
        ({"param_distributions": {"method__n_iter": randint(-100, 1)}}, "cannot be fitted"),
        ({"param_distributions": {"loss": ["logistic", "squared"]}}, "cannot be fitted"),
        ({"param_distributions": {"bounds": [Bounds(row_l2=1.0, rows_per_person=3)]}}, "protects single rows only"),
        ({"estimator": classifier(method="auto")}, "cannot be fitted"),
    ],
)
def test_bad_settings_are_neither_billed_nor_tried(changed: dict[str, Any], message: str) -> None:
    with Ledger(Budget(50.0, 1e-5)) as ledger, pytest.raises((ValueError, TypeError), match=message):
        search(**changed).fit(X, Y)
    assert ledger.fits == []


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (X, None, "requires y to be passed"),
        (X[:2], Y[:2] * 0 + [0, 1], "too few"),
        (X, Y * 0, "one class"),
        (X, Y[:-1], "inconsistent numbers of samples"),
        (np.where(np.eye(300, 6) > 0, np.nan, X), Y, "NaN"),
    ],
    ids=["no labels", "two rows", "one class", "lengths", "nan"],
)
def test_bad_rows_are_neither_billed_nor_tried(rows: Any, labels: Any, message: str) -> None:
    with Ledger(Budget(50.0, 1e-5)) as ledger, pytest.raises(ValueError, match=message):
        search().fit(rows, labels)
    assert ledger.fits == []


@pytest.mark.usefixtures("no_noise")
def test_a_loss_that_the_labels_do_not_suit_is_found_before_anything_is_spent() -> None:
    """Negative counts for the Poisson loss, one of two losses in the grid."""
    with pytest.raises(ValueError, match=r"'loss': 'poisson'.* cannot be fitted.*targets >= 0"):
        search(estimator=SparseRegressor(bounds=BOUNDS), param_distributions={"loss": ["squared", "poisson"]}).fit(
            X, TARGET
        )


def test_auc_is_for_two_classes() -> None:
    with pytest.raises(ValueError, match="two classes"):
        search(scoring="auc").fit(X, np.arange(300) % 3)


def test_a_delta_that_would_allow_publishing_a_row_warns() -> None:
    with pytest.warns(PrivacyWarning, match="publishing a row") as caught:
        search(budget=Budget(1.0, 0.01)).fit(X, Y)
    assert caught[0].filename == __file__


# --- scikit-learn ----------------------------------------------------------------------------------------------------


def test_clones_and_parameters() -> None:
    unfitted = search()
    copied = clone(unfitted)
    assert copied.get_params(deep=False).keys() == unfitted.get_params(deep=False).keys()
    assert copied.set_params(estimator__n_nonzero=4, n_trials=5.0).estimator.n_nonzero == 4
    assert unfitted.estimator.n_nonzero is None
    method = unfitted.estimator.method
    unfitted.fit(X, Y)
    assert unfitted.estimator.method is method
    assert method.n_iter is None, "a trial's settings must not stay in the given objects"
    assert not hasattr(unfitted.estimator, "coef_")


def test_trials_do_not_share_objects(runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    number_of_trials(monkeypatch, 6)
    shared = HardThresholding()
    search(param_distributions={"method": [shared], "method__n_iter": [1, 2, 3]}).fit(X, Y)
    assert len({id(run["model"].method) for run in runs}) == 6
    assert shared.n_iter is None


def test_delegates_to_the_best_model() -> None:
    unfitted = search()
    assert not hasattr(unfitted, "n_features_in_")
    assert not hasattr(unfitted, "classes_")
    assert hasattr(unfitted, "predict_proba")
    for use in (unfitted.predict, unfitted.predict_proba, unfitted.decision_function):
        with pytest.raises(NotFittedError):
            use(X)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    fitted = unfitted.fit(frame, np.where(Y, "yes", "no"))
    check_is_fitted(fitted)
    best = fitted.best_estimator_
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.n_features_in_ == 6
    assert fitted.feature_names_in_.tolist() == list("abcdef")
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(fitted, name)(frame), getattr(best, name)(frame))
    assert fitted.score(frame, np.where(Y, "yes", "no")) == best.score(frame, np.where(Y, "yes", "no"))
    assert not hasattr(search(estimator=classifier(loss="squared_hinge")), "predict_proba")


def test_a_regression() -> None:
    regressor = SparseRegressor(bounds=BOUNDS)
    for scoring in (None, "squared_error", "r2"):
        fitted = search(
            estimator=regressor, param_distributions={"n_nonzero": [1, 2]}, scoring=scoring, budget=Budget(20.0, 1e-5)
        ).fit(X, TARGET)
        assert fitted.predict(X).shape == (300,)
        assert not hasattr(fitted, "classes_")
        assert not hasattr(fitted, "predict_proba")
        assert math.isfinite(fitted.best_score_)


def test_dense_and_sparse_rows_give_the_same_search() -> None:
    rows = np.where(RNG.random((200, 8)) < 0.5, 0.0, RNG.uniform(-1, 1, (200, 8)))
    labels = (rows[:, 0] > 0).astype(int)
    found = [search().fit(kind(rows), labels) for kind in (np.array, sp.csr_array, sp.csc_array)]
    for other in found[1:]:
        assert other.best_params_ == found[0].best_params_
        assert other.best_score_ == found[0].best_score_
        np.testing.assert_allclose(other.best_estimator_.coef_, found[0].best_estimator_.coef_, atol=1e-9)


def test_a_rare_class_is_in_the_model_wherever_its_row_falls() -> None:
    """The classes of all rows are public; which of them are among the training rows is not, and must not show."""
    labels = Y.copy()
    labels[17] = 2

    for seed in range(6):
        fitted = search(random_state=seed).fit(X, labels)
        assert fitted.classes_.tolist() == [0, 1, 2]
        assert fitted.best_estimator_.coef_.shape == (3, 6)

    lone = (np.arange(300) == 17).astype(int)  # with one row of a class the training rows can hold a single class
    for seed in range(12):
        assert search(random_state=seed).fit(X, lone).classes_.tolist() == [0, 1]


def test_noise_per_sensitivity_on_the_bill_is_that_of_a_gaussian_trial() -> None:
    fitted = search().fit(X, Y)
    mechanism = affordable_search(TrialCount(3.0), BUDGET)
    assert mechanism.noise == NoisePerSensitivity(fitted.privacy_.bill[0].noise_per_sensitivity)
    assert fitted.privacy_.bill[-1].noise_per_sensitivity == pytest.approx(mechanism.noise.value)


# --- public rows -----------------------------------------------------------------------------------------------------

PUBLIC = np.random.default_rng(1).uniform(-1, 1, (60, 6))


@pytest.mark.filterwarnings("ignore:in every trial.*no better than guessing:UserWarning")
@pytest.mark.parametrize("method", ["auto", "fit_again", "knowledge_transfer"])
def test_public_rows_reach_every_trial(
    monkeypatch: pytest.MonkeyPatch, runs: list[dict[str, Any]], method: str
) -> None:
    """Each trial is planned and fitted with them at the price of a trial, and the report of the search states them."""
    number_of_trials(monkeypatch, 3)
    asked = search(estimator=classifier(method=method), param_distributions={"n_nonzero": [2, 4]})
    fitted = asked.fit(X, Y, public=PUBLIC)
    assert len(runs) == 3
    for one in runs:
        assert any("public" in line and "private rows" in line for line in one["model"].privacy_.assumptions)
    assert any("public" in line and "private rows" in line for line in fitted.privacy_.assumptions)
    assert fitted.privacy_.epsilon <= BUDGET.epsilon
    kept = pickle.dumps(fitted)
    assert PUBLIC[0].tobytes() not in kept
    assert not any(one is PUBLIC for one in fitted.get_params().values())
    without = search(estimator=classifier(method=method), param_distributions={"n_nonzero": [2, 4]}).fit(X, Y)
    assert not any("public" in line and "private rows" in line for line in without.privacy_.assumptions)


@pytest.mark.parametrize(
    ("methods", "public", "words"),
    [
        (["auto", "frank_wolfe"], PUBLIC, "FrankWolfe makes no use of public rows; use method='auto'"),
        ([HardThresholding()], PUBLIC, "HardThresholding makes no use of public rows"),
        (["auto"], X, "are the private rows"),
        (["auto"], X[:50], "are the private rows"),
        (["auto"], PUBLIC[:, 1:], "public has 5 columns, the private rows 6"),
        (["auto"], PUBLIC[:10], "public has 10 rows"),
        (["auto"], np.zeros((60, 6)), "all public rows are zero"),
    ],
    ids=["one of two methods", "no method", "the private rows", "some private rows", "columns", "few rows", "zeros"],
)
@pytest.mark.usefixtures("no_noise")
def test_bad_public_rows_are_refused_before_the_bill(methods: list[Any], public: Any, words: str) -> None:
    with Ledger(Budget(100.0, 1e-2)) as ledger, pytest.raises(ValueError, match=words):
        search(param_distributions={"method": methods}).fit(X, Y, public=public)
    assert ledger.fits == []


@pytest.mark.usefixtures("no_noise")
def test_a_rare_method_of_a_large_grid_is_refused_before_the_bill() -> None:
    """A sample of the grid is planned, but every method is asked whether it can use public rows."""
    grid = {"method": ["auto"] * 999 + ["frank_wolfe"], "n_nonzero": list(range(1, 7))}
    with Ledger(Budget(100.0, 1e-2)) as ledger, pytest.raises(ValueError, match="FrankWolfe makes no use"):
        search(param_distributions=grid).fit(X, Y, public=PUBLIC)
    assert ledger.fits == []
