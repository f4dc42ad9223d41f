"""Hyper-parameter selection that is on the bill: the best of a secret number of private trials.

Choosing settings by their score on private rows is a release, however private each fit is. `PrivateSearch` draws the
number of trials at random and keeps it secret; then only the best trial has to be paid for, at about twice the epsilon
of one (Papernot and Steinke 2022). Proof: docs/proofs/tuning.md.

Trusted, as `tulle.fitting` is: rows are handed to curators here.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tulle import intake
from tulle.backends import find_spread
from tulle.estimators import Seed, SparseClassifier, SparseRegressor
from tulle.events import FloatArray
from tulle.events import NoisePerSensitivity as Noise
from tulle.fitting import FitRequest, possible_plans, run_fit, warn_beforehand
from tulle.losses import Loss
from tulle.mechanisms import Gaussian
from tulle.pipelines import warn_of_peeks
from tulle.privacy import (
    BillLine,
    Budget,
    Plan,
    PrivacyReport,
    PrivacyWarning,
    Release,
    bill_open_ledgers,
    billed_to,
    can_be_repeated,
    gaussian_epsilon,
    is_number,
    proof,
    stream_of,
)
from tulle.public_features import check_not_private
from tulle.randomness import keyed_generator, seed_of
from tulle.scores import Metric, ask_score, label_bound, resolve_metric, row_figures
from tulle.trials import BestOfTrials, TrialCount, TrialLedger, TrialPrice, affordable_search, as_plan

# What the search itself decides for every trial.
_DECIDED = ("epsilon", "delta", "calibration", "random_state", "verbose")

# Settings that are tried out, on paper alone, before anything is billed.
_TRIED_BEFOREHAND = 64

_NO_EPSILON = "its releases keep within the price of a trial at no epsilon"


def _best_has(name: str) -> Any:
    """Whether the model that is or will be the best one has a method."""
    return available_if(lambda search: hasattr(getattr(search, "best_estimator_", search.estimator), name))


@dataclass(frozen=True, eq=False)
class _Parts:
    """The rows, as every trial sees them. Which row is in which part looks at no data."""

    training: npt.NDArray[np.intp]
    training_rows: Any
    held_out_rows: Any
    held_out_labels: Any


@dataclass(frozen=True, eq=False)
class _Trial:
    """What one trial releases, if it is the best."""

    model: Any
    params: dict[str, Any]
    score: float


class PrivateSearch(MetaEstimatorMixin, BaseEstimator):
    """Random search over settings, private as a whole: the model, its settings and its score cost one budget.

    Each trial draws settings, fits privately to the training rows and gets a noisy score on the hold-out rows. The
    number of trials is random and stays secret, and the best trial alone is returned: there is no table of results,
    no count of trials, and no refit. Running time tells something of the number; do not publish it.

    Parameters
    ----------
    estimator : SparseClassifier or SparseRegressor
        What is fitted. Its `epsilon` and `delta` are replaced by what a trial may cost, its `random_state` and
        `verbose` by the search's; `calibration` must be "rigorous". Declare its bounds: each trial pays anew for bounds
        that it has to estimate. Its callbacks are not called, for they could count.
    param_distributions : dict or list of dict
        As in scikit-learn's RandomizedSearchCV: names of settings (nested ones like ``method__n_iter`` too) with lists
        of values or distributions with ``rvs``. Trials draw independently, with replacement. Fixed without looking at
        the rows.
    budget : Budget
        What the whole search may cost; delta > 0.
    n_trials : float, default=10.0
        The mean number of trials, in (1, inf).
    shape : float, default=0.0
        Shape of the law of the number of trials, in (-1, 10]: 0 logarithmic, 1 geometric. Larger values spread the
        number less and cost more: of 10 trials on average and epsilon = 1 in all, one may cost 0.50 with shape 0, and
        0.41 with shape 1; but with shape 0 one search in four makes a single trial, with shape 1 one in ten.
    holdout : float, default=0.2
        The part of the rows, in (0, 1), that is kept for scores.
    scoring : {"accuracy", "auc", "absolute_error", "squared_error", "r2"} or None, default=None
        None: "accuracy" for classifiers. For regressors "absolute_error", 1 - mean |residual| / label bound: at equal
        noise it tells models apart better than squares, which are tiny where the bound is generous. Regressors need a
        declared ``Bounds(label=...)``.
    random_state : int, RandomState, Generator or None, default=None
        An integer makes the search reproducible, and the promise void towards whoever knows or guesses it; not so
        inside a `FileLedger`, where no seed repeats noise. A RandomState or a Generator counts as None.
    verbose : int, default=0
        1 says on standard error what is public: the parts of the rows and what a trial may cost; never how far it is.

    Attributes
    ----------
    best_estimator_ : estimator
        The best trial's model, fitted to the training rows; its `privacy_` is the report of the whole search.
    best_params_ : dict
        The settings that it drew.
    best_score_ : float
        Its noisy score. Optimistic: it is the largest of several. `tulle.private_score` on fresh rows is not.
    privacy_ : PrivacyReport
        For the whole search.

    Examples
    --------
    >>> import numpy as np
    >>> from tulle import Bounds, Budget, PrivateSearch, SparseClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 50))
    >>> y = X[:, 3] - X[:, 7] > 0
    >>> model = SparseClassifier(bounds=Bounds(row_linf=1.0))
    >>> search = PrivateSearch(model, {"n_nonzero": [2, 10, 50]}, Budget(4.0, 1e-5), random_state=0).fit(X, y)
    >>> search.best_params_["n_nonzero"] in (2, 10, 50), bool(search.best_score_ > 0.9)
    (True, True)
    >>> bool(3.99 < search.privacy_.epsilon <= 4.0)
    True
    """

    best_estimator_: Any

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        budget: Budget,
        *,
        n_trials: float = 10.0,
        shape: float = 0.0,
        holdout: float = 0.2,
        scoring: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.param_distributions = param_distributions
        self.budget = budget
        self.n_trials = n_trials
        self.shape = shape
        self.holdout = holdout
        self.scoring = scoring
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = deepcopy(inner.classifier_tags)
        tags.regressor_tags = deepcopy(inner.regressor_tags)
        tags.target_tags = deepcopy(inner.target_tags)
        tags.input_tags = deepcopy(inner.input_tags)
        return tags

    # --- the search ---

    def fit(self, X: Any, y: Any) -> PrivateSearch:
        """Search on private rows.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            Dense float32 or float64, CSR or CSC; never densified. The two parts are copies.
        y : array of shape (n,)
            Class labels or regression targets. Where the estimator declares `classes`, rows with another label count
            as nothing in fits and in scores.

        Returns
        -------
        self
        """
        preparation = warn_of_peeks(self)
        search, metric, label = self._settings()
        seed = seed_of(self.random_state)
        template = self._template()
        if find_spread(X, y) is not None:
            raise TypeError(
                "PrivateSearch copies its two parts of the rows and needs them in memory; fit rows on disk or on a "
                "cluster with fixed settings"
            )
        check_not_private(getattr(template.method, "features", None), X)
        rows, labels = template._checked_to_fit(X, y)
        template._targets(labels)  # an error where they are no classes, or no numbers
        metric.check(template)
        n_rows = rows.shape[0]
        n_held_out = self._n_held_out(n_rows)
        self._warn(n_rows)
        delta = search.price.delta(self.budget)
        offers = _Offers(template, search.price, delta, n_rows - n_held_out, rows, labels)
        self._try_beforehand(offers)
        plan = as_plan(search)
        proved, accountant = proof(plan, self.budget.delta)
        if self.verbose:
            self._say(n_rows, n_held_out, search)
        entries = bill_open_ledgers("PrivateSearch.fit", [plan], (proved, self.budget.delta), 1)

        generator = keyed_generator(seed, stream_of(entries))
        seed = seed if can_be_repeated(entries) else None
        shuffled = generator.permutation(n_rows)
        training, held_out = np.sort(shuffled[n_held_out:]), np.sort(shuffled[:n_held_out])
        parts = _Parts(training, rows[training], rows[held_out], labels[held_out])
        best: _Trial | None = None
        # The number of trials is a local figure of this loop, and dies with it. All settings are drawn, and
        # planned, before the first row is looked at: a plan that fails does so whatever the rows are.
        drawn = [self._draw(generator) for _ in range(search.trials.draw(generator))]
        for params, epsilon in [(params, offers.epsilon(params)) for params in drawn]:
            model = offers.model(params).set_params(epsilon=epsilon, delta=delta)
            # Child seeds where there is a seed; otherwise each fit gets a key of its own from the operating system.
            model.set_params(random_state=None if seed is None else int(generator.integers(2**63)))
            trial = _run_trial(model, params, offers, parts, metric, label, generator)
            # Ties keep the earlier trial, which is as good as tossing a coin: trials are exchangeable.
            if best is None or trial.score > best.score:
                best = trial
        assert best is not None  # the law of the number of trials has no 0
        report = self._report(best, search, (proved, accountant), n_rows, n_held_out, seed)
        self._keep(best, replace(report, assumptions=(*report.assumptions, *preparation)))
        return self

    def _settings(self) -> tuple[BestOfTrials, Metric, float]:
        """The search, the metric and the label bound, or an error that says what to change."""
        model = self.estimator
        if not isinstance(model, (SparseClassifier, SparseRegressor)):
            raise TypeError(f"estimator must be a tulle.SparseClassifier or tulle.SparseRegressor, got {model!r}")
        if model.epsilon is None:
            raise ValueError("estimator has epsilon=None; a private search fits privately, give it any epsilon")
        if model.calibration != "rigorous":
            raise ValueError(f"estimator must have calibration='rigorous', got {model.calibration!r}")
        if not isinstance(self.budget, Budget):
            raise TypeError(f"budget must be a tulle.Budget, for example Budget(1.0, 1e-5); got {self.budget!r}")
        if not (is_number(self.holdout) and 0 < self.holdout < 1):
            raise ValueError(f"holdout must lie strictly between 0 and 1, got {self.holdout!r}")
        search = affordable_search(TrialCount(self.n_trials, self.shape), self.budget)
        ParameterSampler(self.param_distributions, 1)  # checks its form
        if not self._grids():
            raise ValueError("param_distributions is an empty list; {} tries the estimator's own settings alone")
        names = {name for grid in self._grids() for name in grid}
        for name in sorted(names.intersection(_DECIDED)):
            raise ValueError(f"param_distributions must not hold {name!r}: the search decides it for every trial")
        if "classes" in names:
            raise ValueError(
                "param_distributions must not hold 'classes': declare them on the estimator, for all trials"
            )
        if isinstance(model, SparseClassifier):
            return search, resolve_metric(self.scoring, "classification", "accuracy"), 1.0
        metric = resolve_metric(self.scoring, "regression", "absolute_error")
        return search, metric, label_bound(None, model.bounds)

    def _grids(self) -> list[dict[str, Any]]:
        given = self.param_distributions
        return [given] if isinstance(given, dict) else list(given)

    def _template(self) -> Any:
        """The model before a trial's settings: silent, since progress bars and callbacks could be counted."""
        return clone(self.estimator).set_callbacks().set_params(verbose=0, random_state=None)

    def _n_held_out(self, n_rows: int) -> int:
        if n_rows < 3:
            raise ValueError(f"{n_rows} rows are too few: a search needs two to train on and one to score on")
        return min(max(round(self.holdout * n_rows), 1), n_rows - 2)

    def _warn(self, n_rows: int) -> None:
        if self.budget.delta >= 1 / n_rows:
            warnings.warn(
                f"delta = {self.budget.delta:g} is not below 1 / (number of rows) = {1 / n_rows:.3g}: such a promise "
                "would allow publishing a row chosen at random; use a much smaller value",
                PrivacyWarning,
                stacklevel=3,
            )

    def _try_beforehand(self, offers: _Offers) -> None:
        """Plan settings before anything is billed: all of a small grid, a sample of anything else.

        What every one of them warns of is said once, in the words of the first. It looks at public quantities alone,
        and is the same however many trials follow.
        """
        lists = all(not hasattr(values, "rvs") for grid in self._grids() for values in grid.values())
        if lists and len(ParameterGrid(self._grids())) <= _TRIED_BEFOREHAND:
            samples = list(ParameterGrid(self._grids()))
        else:
            samples = list(ParameterSampler(self._grids(), _TRIED_BEFOREHAND, random_state=0))
        for params in samples:
            offers.check(params)
        said = offers.warnings_of(samples[0])
        if said and all(offers.warnings_of(params) for params in samples[1:]):
            for message in said:
                warnings.warn(f"in every trial, for example with {samples[0]}: {message}", UserWarning, stacklevel=3)

    def _draw(self, generator: np.random.Generator) -> dict[str, Any]:
        """The settings of one trial. One at a time: the sampler would otherwise not repeat points of a grid."""
        (params,) = ParameterSampler(self._grids(), 1, random_state=int(generator.integers(2**32)))
        return params

    def _say(self, n_rows: int, n_held_out: int, search: BestOfTrials) -> None:
        alone = gaussian_epsilon(search.price.mu, search.price.delta(self.budget))
        print(
            f"PrivateSearch: {n_rows - n_held_out:,} rows to train on, {n_held_out:,} to score on; about "
            f"{self.n_trials:g} trials at epsilon = {alone:.3g} each, in all {self.budget.epsilon:g}",
            file=sys.stderr,
        )

    # --- what is kept ---

    def _keep(self, best: _Trial, privacy: PrivacyReport) -> None:
        # A later fit of this model must not repeat the noise of its trial.
        best.model.set_params(random_state=self.estimator.random_state, verbose=self.estimator.verbose)
        best.model.privacy_ = self.privacy_ = privacy
        self.best_estimator_, self.best_params_, self.best_score_ = best.model, best.params, best.score

    def _report(
        self,
        best: _Trial,
        search: BestOfTrials,
        proved: tuple[float, str],
        n_rows: int,
        n_held_out: int,
        seed: int | None,
    ) -> PrivacyReport:
        epsilon, accountant = proved
        fit: PrivacyReport = best.model.privacy_
        delta = self.budget.delta
        score = next(iter(_score_plan(search.price)))
        inside = [
            *fit.bill,
            BillLine("score", score.mechanism.label, 1, score.mechanism.noise.value, proof([score], delta)[0]),
        ]
        return replace(
            fit,
            epsilon=epsilon,
            delta=delta,
            asked=(self.budget.epsilon, delta),
            method=(
                f"PrivateSearch, the best of a secret number of trials (truncated negative binomial law, mean "
                f"{self.n_trials:g}, shape {self.shape:g}), each fitted to {n_rows - n_held_out:,} rows and scored on "
                f"{n_held_out:,} others; returned: {fit.method}"
            ),
            accountant=f"{accountant} of the best of randomly many trials (Papernot and Steinke 2022, theorem 2)",
            unit=f"one row; replace-one adjacency: the number of rows, {n_rows:,}, is public",
            bill=(
                BillLine("search", search.label, 1, search.noise.value, epsilon),
                *(replace(line, release=f"in the trial: {line.release}") for line in inside),
            ),
            assumptions=(
                *fit.assumptions,
                "The number of trials is not known to anyone, and no trial but the returned one leaves a trace. The "
                "running time grows with that number: do not publish it.",
                "The settings to choose from, and how likely each is, were fixed without looking at the rows.",
            ),
            who_saw_what=(
                "The process that ran the search held the rows, all trials and their exact scores.",
                "Each trial's method saw the answers on its own bill and public quantities.",
                "Whoever gets the result sees the returned model, its settings, its noisy score and this report; the "
                "promise covers all of it.",
            ),
            seeded=seed is not None,
            floating_point_slack=0.0,
        )

    # --- using the best model ---

    @property
    def n_features_in_(self) -> int:
        """The number of features of the rows that were searched on."""
        # As in scikit-learn's searches: an AttributeError, so that hasattr is false before fit.
        return self._best_attribute("n_features_in_")

    @property
    def feature_names_in_(self) -> Any:
        """The names of the features, where the rows had any."""
        return self._best_attribute("feature_names_in_")

    @property
    def classes_(self) -> Any:
        """The class labels; classifiers only."""
        return self._best_attribute("classes_")

    def _best_attribute(self, name: str) -> Any:
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r} before fit")
        return getattr(self.best_estimator_, name)

    def _best(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The best model's predictions."""
        return self._best().predict(X)

    @_best_has("decision_function")
    def decision_function(self, X: Any) -> FloatArray:
        """The best model's margins; classifiers only."""
        return self._best().decision_function(X)

    @_best_has("predict_proba")
    def predict_proba(self, X: Any) -> FloatArray:
        """The best model's class probabilities; logistic loss only."""
        return self._best().predict_proba(X)

    @_best_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> FloatArray:
        """The logarithms of the best model's class probabilities; logistic loss only."""
        return self._best().predict_log_proba(X)

    def score(self, X: Any, y: Any) -> float:
        """Accuracy or R² on rows that may be looked at: no noise is added. See `tulle.private_score` for others."""
        return float(self._best().score(X, y))


class _Offers:
    """For each setting the epsilon at which its fit takes all of the trial's price. Looks at no features of rows.

    The labels are looked at as a single fit looks at them before it spends anything: which classes there are, where
    none were declared, and whether a loss accepts them.

    Parameters
    ----------
    template : estimator
        That rows and labels were checked by.
    price : TrialPrice
    delta : float
        At which fits are planned.
    n_training : int
    rows, labels : arrays
        All of them, from the intake.
    """

    def __init__(self, template: Any, price: TrialPrice, delta: float, n_training: int, rows: Any, labels: Any) -> None:
        self.price = price
        self.delta = delta
        self._template = template
        self._shape = (n_training, rows.shape[1])
        self._rows = rows
        self._labels = labels
        # All but exact where all releases are Gaussian.
        self._guess = gaussian_epsilon(price.mu, delta) * (1 - 1e-6)
        self._known: dict[Hashable, float] = {}

    def model(self, params: dict[str, Any]) -> Any:
        """A model with these settings. Values are cloned: models of several trials must not share objects."""
        model = clone(self._template)
        return model.set_params(**{name: clone(value, safe=False) for name, value in params.items()})

    def prepare(self, model: Any) -> tuple[FloatArray, Loss]:
        """The targets of all rows as the model's loss wants them, and the loss; tells the model of its features.

        The classes are the declared ones, or those of all rows, not of the training rows: the former are published.
        """
        check_not_private(getattr(model.method, "features", None), self._rows)
        # The rows were checked once, for all models.
        model.n_features_in_ = self._rows.shape[1]
        if hasattr(self._template, "feature_names_in_"):
            model.feature_names_in_ = self._template.feature_names_in_
        targets, loss = model._targets(self._labels)
        return targets, loss

    def request(self, model: Any, loss: Loss) -> FitRequest:
        """What is asked of a fit of this model to the training rows."""
        # Many fits share one bill, which has no room for what finite precision might take of each of them.
        return replace(model._request(loss, self._shape[0]), exact_only=True)

    def check(self, params: dict[str, Any]) -> None:
        """Raise where no fit with these settings can be planned."""
        with _speaking_of(params):
            model = self.model(params)
            _, loss = self.prepare(model)
            if math.isinf(self._share(model, loss, self._guess)):
                raise ValueError(_NO_EPSILON)

    def epsilon(self, params: dict[str, Any]) -> float:
        """The epsilon of a fit with these settings."""
        key = _key(params)
        if key is not None and key in self._known:
            return self._known[key]
        with _speaking_of(params):
            model = self.model(params)
            _, loss = self.prepare(model)
            found = _dearest(lambda epsilon: self._share(model, loss, epsilon), self._guess)
        if key is not None:
            self._known[key] = found
        return found

    def warnings_of(self, params: dict[str, Any]) -> list[str]:
        """What a fit with these settings warns of before it spends anything."""
        epsilon = self.epsilon(params)
        with _speaking_of(params):
            model = self.model(params).set_params(epsilon=epsilon, delta=self.delta)
            _, loss = self.prepare(model)
            request = self.request(model, loss)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                warn_beforehand(request, self._shape, epsilon)
        return [str(warning.message) for warning in caught]

    def _share(self, model: Any, loss: Loss, epsilon: float) -> float:
        request = self.request(model.set_params(epsilon=epsilon, delta=self.delta), loss)
        if request.bounds.rows_per_person > 1:
            raise ValueError("a person's rows could fall into both parts; PrivateSearch protects single rows only")
        return max(self.price.share(plan) for plan in possible_plans(request, self._shape))


@contextmanager
def _speaking_of(params: dict[str, Any]) -> Iterator[None]:
    """Silence warnings, which could be counted, and say in errors which settings they are about."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        raise ValueError(f"the settings {params} of param_distributions cannot be fitted: {error}") from error


def _dearest(share: Callable[[float], float], guess: float) -> float:
    """The largest epsilon, to a part in a thousand, that takes no more than the price."""
    # Room for the rounding of calibrations, which a ledger's confirmation allows for.
    most, enough = 1 - 1e-7, 0.999
    low, high = 0.0, math.inf
    for _ in range(100):
        taken = share(guess)
        if taken <= most:
            low = guess
        else:
            high = guess
        if enough <= taken <= most or 0 < low < high < low * 1.0001:
            return low
        # Costs grow about as the square of epsilon.
        guess *= math.sqrt((most + enough) / 2 / taken) if 0 < taken < math.inf else 0.5
        if not low < guess < high:
            guess = 2 * low if math.isinf(high) else math.sqrt(low * high) if low > 0 else high / 4
    raise ValueError(_NO_EPSILON)


def _key(params: dict[str, Any]) -> Hashable | None:
    """What tells settings apart, or None where some value cannot be hashed. 1, 1.0 and True are three values."""
    key = tuple((name, type(value), value) for name, value in sorted(params.items()))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _score_plan(price: TrialPrice) -> Plan:
    """One Gaussian release that takes the whole price."""
    return Plan((Release("score", Gaussian(Noise(1 / price.mu)), 1),))


def _run_trial(
    model: Any,
    params: dict[str, Any],
    offers: _Offers,
    parts: _Parts,
    metric: Metric,
    label: float,
    generator: np.random.Generator,
) -> _Trial:
    """Fit to the training rows, score on the others.

    The parts have no row in common, and which part a row is in does not depend on data. Replacing a row therefore
    changes what the fit sees or what the score sees, never both; each keeps within the whole price.
    """
    price, delta = offers.price, offers.delta
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # they could be counted
        targets, loss = offers.prepare(model)
        with billed_to(TrialLedger(price, delta)):
            fitted = run_fit(offers.request(model, loss), parts.training_rows, targets[parts.training])
        model._keep(fitted)
        plan = _score_plan(price)
        TrialLedger(price, delta).bill("score", [plan], (proof(plan, delta)[0], delta))
        figures = row_figures(metric, model, parts.held_out_rows, parts.held_out_labels, label)
        declared = metric.kind == "classification" and model.classes is not None
        active = intake.codes(parts.held_out_labels, model.classes_) >= 0 if declared else None
        answer = ask_score(metric, plan, figures, generator, active=active)
    return _Trial(model, params, metric.score(answer))
