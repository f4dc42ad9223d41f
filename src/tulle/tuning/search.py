"""Hyper-parameter selection that is on the bill: the best of a secret number of private trials.

Choosing settings by their score on private rows is a release, however private each fit is. `PrivateSearch` draws the
number of trials at random and keeps it secret; then only the best trial has to be paid for, at about twice the epsilon
of one (Papernot and Steinke 2022). Proof: docs/proofs/tuning.md.

Vouched for on use: it holds rows, and keeps the number of trials secret.
"""

from __future__ import annotations

import sys
import warnings
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

from tulle.accounting.mechanism_words import describe_mechanism
from tulle.accounting.zcdp import refuse_rho
from tulle.backends.input_kinds import find_spread
from tulle.estimators.fit_callbacks import without_callbacks
from tulle.estimators.linear_model import Seed
from tulle.estimators.pipeline_checks import warn_of_peeks
from tulle.estimators.request import run_fit
from tulle.estimators.sparse import SparseClassifier, SparseRegressor
from tulle.files.error_messages import PrivacyWarning
from tulle.files.own_types import register
from tulle.ledgers.ledger import describe_entries
from tulle.ledgers.spending import note_release
from tulle.methods import resolve_method
from tulle.monitoring.log_events import muted
from tulle.monitoring.logged_account import open_logged_account
from tulle.reports.report import NOTHING_ELSE_PROVED, BillLine, PrivacyReport, bill_lines
from tulle.reports.words import warn_of_large_epsilon
from tulle.transfer.public_features import check_not_private
from tulle.transfer.public_knowledge import PublicKnowledge, read_public
from tulle.trusted import intake
from tulle.trusted.accountants import proof
from tulle.trusted.billing import billed_to
from tulle.trusted.events import FloatArray
from tulle.trusted.events import NoisePerSensitivity as Noise
from tulle.trusted.fit import Account, Order, open_account
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Budget, Plan, Release, is_number
from tulle.trusted.randomness import seed_of
from tulle.tuning.best_of_trials import BestOfTrials, TrialCount, TrialLedger, TrialPrice, affordable_search, as_plan
from tulle.tuning.metrics import Metric, resolve_metric
from tulle.tuning.offers import _Offers, _Parts
from tulle.tuning.private_score import ask_score, label_bound, row_figures

# What the search itself decides for every trial.
_DECIDED = ("epsilon", "delta", "rho", "calibration", "random_state", "verbose")

# Settings that are tried out, on paper alone, before anything is billed.
_TRIED_BEFOREHAND = 64


def _best_has(name: str) -> Any:
    """Whether the model that is or will be the best one has a method."""
    return available_if(lambda search: hasattr(getattr(search, "best_estimator_", search.estimator), name))


@dataclass(frozen=True, eq=False)
class _Trial:
    """What one trial releases, if it is the best."""

    model: Any
    params: dict[str, Any]
    score: float


@register("model")
class PrivateSearch(MetaEstimatorMixin, BaseEstimator):
    """Random search over settings, private as a whole: the model, its settings and its score cost one budget.

    Each trial draws settings, fits privately to the training rows and gets a noisy score on the hold-out rows. The
    number of trials is random and stays secret, and the best trial alone is returned: there is no table of results,
    no count of trials, and no refit. Running time tells something of the number; do not publish it.

    Parameters
    ----------
    estimator : SparseClassifier or SparseRegressor
        The model to fit. Its `epsilon` and `delta` are replaced by what a trial may cost, its `random_state` and
        `verbose` by the search's; `calibration` must be "rigorous". Declare its bounds: each trial pays anew for bounds
        that it has to estimate. Its callbacks are not called: they could count trials.
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
        An integer makes the search reproducible, without a guarantee against anyone who knows or guesses it; not so
        inside a `FileLedger`, where no seed repeats noise. A RandomState or a Generator counts as None.
    verbose : int, default=0
        1 prints public facts on standard error: the parts of the rows and what a trial may cost; never its progress.

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

    def fit(self, X: Any, y: Any, *, public: Any = None) -> PrivateSearch:
        """Search on private rows.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            Dense float32 or float64, CSR or CSC; never densified. The two parts are copies.
        y : array of shape (n,)
            Class labels or regression targets. Where the estimator declares `classes`, rows with another label count
            as nothing in fits and in scores.
        public : None, array or sparse array of shape (m, d), or `tulle.PublicFrequencies`, default=None
            As for `SparseClassifier.fit`, for every trial; the methods of all settings must be able to use it.

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
                "PrivateSearch splits the rows into two copies and needs them in memory; for rows on disk or on a "
                "cluster, fit with fixed settings"
            )
        for known in (public, getattr(template.method, "features", None)):
            check_not_private(known, X)
        rows, labels = template._check_to_fit(X, y)
        template._targets(labels)  # an error where they are no classes, or no numbers
        metric.check(template)
        n_rows = rows.shape[0]
        n_held_out = self._n_held_out(n_rows)
        self._warn(n_rows)
        delta = search.price.delta(self.budget)
        knowledge = (
            None if public is None else read_public(public, rows.shape[1], getattr(template, "feature_names_in_", None))
        )
        if knowledge is not None:
            self._check_use(knowledge)
        offers = _Offers(template, search.price, delta, n_rows - n_held_out, rows, labels, knowledge)
        self._try_beforehand(offers)
        plan = as_plan(search)
        if self.verbose:
            self._say(n_rows, n_held_out, search)
        order = Order("PrivateSearch.fit", (plan,), self.budget.delta, 1, seed, self.budget)
        about = {"n_rows": int(n_rows), "n_features": int(rows.shape[1])}
        with open_logged_account(order, __name__, about) as account:
            note_release()
            best = self._best_trial(account, search, offers, metric, label, n_held_out)
        report = self._report(
            best,
            search,
            (account.promise.epsilon, proof(plan, self.budget.delta)[1]),
            n_rows,
            n_held_out,
            account.seeded,
        )
        said, billed = (*report.assumptions, *preparation), describe_entries(account.entries)
        self._keep(best, replace(report, assumptions=said, billed=billed))
        return self

    def _best_trial(
        self, account: Account, search: BestOfTrials, offers: _Offers, metric: Metric, label: float, n_held_out: int
    ) -> _Trial:
        """The best of a secret number of trials, on the account of the whole search."""
        generator, parts = account.generator, offers.split(account.generator, n_held_out)
        best: _Trial | None = None
        # The number of trials is a local figure of this loop, and dies with it. All settings are drawn, and
        # planned, before the first row is looked at: a plan that fails does so for any rows.
        drawn = [self._draw(generator) for _ in range(search.trials.draw(generator))]
        for params, epsilon in [(params, offers.epsilon(params)) for params in drawn]:
            model = offers.model(params).set_params(epsilon=epsilon, delta=offers.delta)
            # Child seeds where there is a seed; otherwise each fit gets a key of its own from the operating system.
            model.set_params(random_state=int(generator.integers(2**63)) if account.seeded else None)
            trial = _run_trial(model, params, offers, parts, metric, label, generator)
            # Ties keep the earlier trial, which is as good as tossing a coin: trials are exchangeable.
            if best is None or trial.score > best.score:
                best = trial
        assert best is not None  # the law of the number of trials has no 0
        return best

    def _settings(self) -> tuple[BestOfTrials, Metric, float]:
        """The search, the metric and the label bound, or an error that says what to change."""
        model = self.estimator
        if not isinstance(model, (SparseClassifier, SparseRegressor)):
            raise TypeError(f"estimator must be a tulle.SparseClassifier or tulle.SparseRegressor, got {model!r}")
        if model.epsilon is None:
            raise ValueError("estimator has epsilon=None; a private search fits privately, so set any epsilon")
        if model.calibration != "rigorous":
            raise ValueError(f"estimator must have calibration='rigorous', got {model.calibration!r}")
        if model.rho is not None:
            raise ValueError("estimator has a rho; the search's budget decides what each trial costs, so omit it")
        if not isinstance(self.budget, Budget):
            raise TypeError(f"budget must be a tulle.Budget, for example Budget(1.0, 1e-5); got {self.budget!r}")
        refuse_rho(self.budget, "PrivateSearch")
        if not (is_number(self.holdout) and 0 < self.holdout < 1):
            raise ValueError(f"holdout must lie strictly between 0 and 1, got {self.holdout!r}")
        search = affordable_search(TrialCount(self.n_trials, self.shape), self.budget)
        ParameterSampler(self.param_distributions, 1)  # checks its form
        if not self._grids():
            raise ValueError("param_distributions is an empty list; {} tries only the estimator's own settings")
        names = {name for grid in self._grids() for name in grid}
        for name in sorted(names.intersection(_DECIDED)):
            raise ValueError(f"param_distributions must not contain {name!r}: the search sets it for every trial")
        if "classes" in names:
            raise ValueError(
                "param_distributions must not contain 'classes': declare them on the estimator, for all trials"
            )
        if isinstance(model, SparseClassifier):
            return search, resolve_metric(self.scoring, "classification", "accuracy"), 1.0
        metric = resolve_metric(self.scoring, "regression", "absolute_error")
        return search, metric, label_bound(None, model.bounds)

    def _grids(self) -> list[dict[str, Any]]:
        given = self.param_distributions
        return [given] if isinstance(given, dict) else list(given)

    def _check_use(self, knowledge: PublicKnowledge) -> None:
        """Raise where a method that may be drawn cannot use the public knowledge. All methods are checked: of a large
        grid only a sample is planned before the bill."""
        for grid in self._grids():
            methods = grid.get("method", [self.estimator.method])
            for method in () if hasattr(methods, "rvs") else methods:
                resolve_method(method).with_public(knowledge)

    def _template(self) -> Any:
        """The model before a trial's settings: silent, since progress bars and callbacks could be counted."""
        return without_callbacks(clone(self.estimator)).set_params(verbose=0, random_state=None)

    def _n_held_out(self, n_rows: int) -> int:
        if n_rows < 3:
            raise ValueError(f"{n_rows} rows are too few: a search needs two to train on and one to score on")
        return min(max(round(self.holdout * n_rows), 1), n_rows - 2)

    def _warn(self, n_rows: int) -> None:
        warn_of_large_epsilon(self.budget.epsilon, 4)
        if self.budget.delta >= 1 / n_rows:
            warnings.warn(
                f"delta = {self.budget.delta:g} is not below 1 / (number of rows) = {1 / n_rows:.3g}: such a "
                "guarantee would allow publishing a row chosen at random; use a much smaller value",
                PrivacyWarning,
                stacklevel=3,
            )

    def _try_beforehand(self, offers: _Offers) -> None:
        """Plan settings before anything is billed: all of a small grid, a sample of anything else.

        A warning that all of them raise is shown once, with the text of the first. It looks at public quantities alone,
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

    # --- results ---

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
        seeded: bool,
    ) -> PrivacyReport:
        epsilon, accountant = proved
        fit: PrivacyReport = best.model.privacy_
        delta = self.budget.delta
        score = next(iter(_score_plan(search.price)))
        inside = [*fit.bill, *bill_lines([score], delta)]
        return replace(
            fit,
            epsilon=epsilon,
            delta=delta,
            asked=(self.budget.epsilon, delta),
            **NOTHING_ELSE_PROVED,  # a proof for one trial is no proof for the search
            n_rows=n_rows,
            method=(
                f"PrivateSearch, the best of a secret number of trials (truncated negative binomial law, mean "
                f"{self.n_trials:g}, shape {self.shape:g}), each fitted to {n_rows - n_held_out:,} rows and scored on "
                f"{n_held_out:,} others; returned: {fit.method}"
            ),
            accountant=f"{accountant} of the best of randomly many trials (Papernot and Steinke 2022, theorem 2)",
            unit=f"one row; replace-one adjacency: the number of rows, {n_rows:,}, is public",
            bill=(
                BillLine("search", describe_mechanism(search), 1, search.noise.value, epsilon),
                *(replace(line, release=f"in the trial: {line.release}") for line in inside),
            ),
            assumptions=(
                *fit.assumptions,
                "The number of trials is secret, and only the returned trial is released. The running time grows with "
                "that number: do not publish it.",
                "The settings to choose from, and how likely each is, were fixed without looking at the rows.",
            ),
            who_saw_what=(
                "The process that ran the search held the rows, all trials and their exact scores.",
                "Each trial's method saw the answers on its own bill and public quantities.",
                "Recipients of the result see the returned model, its settings, its noisy score and this report; the "
                "guarantee covers all of it.",
            ),
            seeded=seeded,
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
    with warnings.catch_warnings(), np.errstate(all="ignore"), muted():
        warnings.simplefilter("ignore")  # they could be counted, as lines of a log could
        targets, loss = offers.prepare(model)
        with billed_to(TrialLedger(price, delta)):
            fitted = run_fit(offers.request(model, loss), parts.training_rows, targets[parts.training])
        model._keep(fitted)
        plan = _score_plan(price)
        figures = row_figures(metric, model, parts.held_out_rows, parts.held_out_labels, label)
        declared = metric.kind == "classification" and model.classes is not None
        active = intake.encode_labels(parts.held_out_labels, model.classes_) >= 0 if declared else None
        order = Order("score", (plan,), delta)
        with open_account(order, ledgers=(TrialLedger(price, delta),), generator=generator) as account:
            answer = ask_score(account, metric, figures, active)
    return _Trial(model, params, metric.score(answer))
