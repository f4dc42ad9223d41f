"""Labels are private and features are known: label-LDP-IHT (Wang and Xu, ICML 2019, algorithm 2), or the LASSO after.

Proof: docs/proofs/local_protocol.md.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from tulle.bounds import Bounds
from tulle.estimators import LinearClassifier, Seed, classes_of
from tulle.events import FloatArray
from tulle.intake import codes
from tulle.local.channel import check_count, check_positive
from tulle.local.estimators import LocalModel, LocalRegressor
from tulle.local.labels import RandomisedResponse
from tulle.local.noisy_labels import (
    LOGISTIC_LINK,
    SOFTMAX_LINK,
    Link,
    NoisyLabels,
    best_sparsity,
    hard_thresholding,
    lasso,
    link_of,
)
from tulle.local.protocols import LabelCollection, Protocol
from tulle.local.responses import Response, resolve_response
from tulle.privacy import Budget, PrivacyWarning, default_delta, is_number

Solver = Literal["iht", "lasso"]


class _LabelPrivate(LocalModel):
    """Users send randomised labels once; a sparse model is fitted to them and to features that the server knows."""

    solver: Solver
    n_nonzero: int | None
    penalty: float | None
    n_iter: int
    step: float | None
    refit: bool
    _protects = "labels"  # features are public here, and steps of a pipeline may learn from them

    def _check_solver(self) -> None:
        if self.solver not in get_args(Solver):
            raise ValueError(f"solver={self.solver!r} is unknown; choose one of {get_args(Solver)}")
        check_count("n_iter", self.n_iter, 1)
        if self.step is not None:
            check_positive("step", self.step)
        if self.n_nonzero is not None:
            check_count("n_nonzero", self.n_nonzero, 1)
        if self.penalty is not None and not (is_number(self.penalty) and 0 <= self.penalty < math.inf):
            raise ValueError(f"penalty must be a finite number >= 0 or None, got {self.penalty!r}")

    def _solve(self, X: Any, answered: npt.NDArray[np.intp], targets: FloatArray, link: Link) -> None:
        """Fit the rows of those who answered."""
        data = NoisyLabels(X[answered], targets, link, bool(self.fit_intercept))
        if not len(answered):
            weights = np.zeros(data.shape)
        elif self.solver == "lasso":
            weights = lasso(data, self.penalty)
        else:
            if self.n_nonzero is None:
                # No more than central fits would take, n/(2 log d).
                most = min(X.shape[1], max(1, int(len(answered) / (2 * math.log(max(X.shape[1], 3))))))
                nonzero = best_sparsity(data, most)
            else:
                nonzero = self._nonzero(self.n_nonzero, X.shape[1])
            weights = hard_thresholding(data, nonzero, n_iter=self.n_iter, step=self.step, refit=bool(self.refit))
        self._keep(weights)

    def _describe(self, protocol: Protocol) -> str:
        after = "IHT" if self.solver == "iht" else "the LASSO"
        labels = "exact labels" if protocol.budget is None else "randomised labels"
        return f"{labels}, sent once (label-LDP; Wang and Xu, ICML 2019), then {after} on known features"


class LabelPrivateSparseRegressor(_LabelPrivate, LocalRegressor):
    """Sparse regression where every user's label is private towards everybody, and features are known to the server.

    Non-interactive: each user sends a randomised label once. What is done with it after costs nothing. Error hardly
    grows with the number of features.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        What a label costs, in [1e-6, 16]; None randomises nothing.
    delta : float or None, default=None
        In [0, 1); only randomiser="gaussian" has use for it, and None is min(1e-5, 1/(10 n)) there, else 0.
    n_nonzero : int or None, default=None
        Non-zero weights, at least 1. None: the power of two that predicts held-out
        randomised labels best.
    randomiser : str, default="auto"
        "auto" has the least variance for the worst label: "two_point" below epsilon = 0.61, "hybrid" above. Also
        "piecewise", "laplace", and the paper's "gaussian".
    solver : {"iht", "lasso"}, default="iht"
    response : str or Response, default="identity"
        f in y = f(<x, w>) + noise: "identity", "logistic", "tanh", or a `tulle.local.Response`.
    bounds : Bounds or None, default=None
        `label` is read; where it is not declared, it is searched for with a tenth of the users.
    penalty : float or None, default=None
        Of the LASSO, at least 0. None: by cross-validation on randomised labels.
    n_iter : int, default=20
        Steps of IHT at most.
    step : float or None, default=None
        Of IHT, in (0, inf). None: the best along the gradient.
    refit : bool, default=True
        Whether IHT fits the weights that it keeps anew after each step. False, with `step`, is the paper's algorithm.
    fit_intercept : bool, default=True
    random_state : int, RandomState, Generator or None, default=None
        None: every user draws from the operating system. An integer makes a simulation that can be repeated, but for
        inside a `tulle.FileLedger`. A RandomState or a Generator counts as None.
    verbose : int, default=0

    Attributes
    ----------
    coef_, intercept_, support_, n_answers_, expected_, privacy_
        As in `LocalSparseRegressor`.
    n_iter_ : int
        Rounds of questions; not the steps of IHT, which `n_iter` bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from tulle import Bounds
    >>> from tulle.local import LabelPrivateSparseRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], (5_000, 300))
    >>> y = 0.8 * X[:, 3] - 0.6 * X[:, 7]
    >>> model = LabelPrivateSparseRegressor(1.0, n_nonzero=2, bounds=Bounds(label=2.0), random_state=0)
    >>> model.fit(X, y).support_
    array([3, 7])
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        *,
        n_nonzero: int | None = None,
        randomiser: str = "auto",
        solver: Solver = "iht",
        response: str | Response = "identity",
        bounds: Bounds | None = None,
        penalty: float | None = None,
        n_iter: int = 20,
        step: float | None = None,
        refit: bool = True,
        fit_intercept: bool = True,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_nonzero = n_nonzero
        self.randomiser = randomiser
        self.solver = solver
        self.response = response
        self.bounds = bounds
        self.penalty = penalty
        self.n_iter = n_iter
        self.step = step
        self.refit = refit
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

    def protocol(self, n_features: int, n_users: int) -> LabelCollection:
        """The protocol that a server would run for these settings, with so many users of so many features."""
        gaussian = self.randomiser == "gaussian"
        delta = default_delta(n_users) if self.delta is None else Budget(1.0, self.delta).delta
        # Of other channels what is promised is what is proved: they are purely private.
        budget = self._budget(delta if gaussian else 0.0)
        if gaussian and budget is not None and delta >= 1 / n_users:
            warnings.warn(
                f"delta = {delta:g} is not below 1 / (number of users) = {1 / n_users:.3g}: such a promise would allow "
                "publishing a label chosen at random; use delta=None, or randomiser='auto' which needs none",
                PrivacyWarning,
                stacklevel=3,
            )
        protocol = LabelCollection(
            budget, n_features, self._known_bounds(), bool(self.fit_intercept), randomiser=self.randomiser
        )
        protocol.make_channel(1.0)  # an unknown name is told before anybody is asked
        return protocol

    def fit(self, X: Any, y: Any) -> LabelPrivateSparseRegressor:
        """Simulate the study: each row is a user.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            Known to the server.
        y : array of shape (n,)
            Private.

        Returns
        -------
        self
        """
        self._check_solver()
        link = link_of(resolve_response(self.response))
        X, targets = self._checked_numbers(X, y)
        protocol = self.protocol(X.shape[1], X.shape[0])
        self._study(protocol, X, targets)
        answered, given = protocol.by_number()
        self._solve(X, answered, protocol.channel.unit * given[:, None].astype(np.float64), link)
        return self


class LabelPrivateSparseClassifier(_LabelPrivate, LinearClassifier):
    """Sparse classification where every user's class is private towards everybody, and features are known.

    Non-interactive: each user sends its class once, by randomised response. What is done with it after costs nothing.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        What a class costs, in [1e-6, 16]. Purely epsilon-private. None randomises nothing.
    n_nonzero : int or None, default=None
        Non-zero weights for each class, at least 1. None: the power of two that predicts
        held-out answers best.
    solver : {"iht", "lasso"}, default="iht"
    classes : sequence of str or of numbers, or None, default=None
        The classes that there are, at least two, declared without looking at anybody's. A user of another class answers
        as one of the first. None takes them from the rows, and publishes them.
    penalty, n_iter, step, refit, fit_intercept, random_state, verbose
        As in `LabelPrivateSparseRegressor`, and so are the attributes.

    Attributes
    ----------
    classes_ : array
        The declared classes in order, or those that the rows hold.

    Examples
    --------
    >>> import numpy as np
    >>> from tulle.local import LabelPrivateSparseClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], (5_000, 300))
    >>> y = X[:, 3] + X[:, 7] > 0
    >>> LabelPrivateSparseClassifier(1.0, n_nonzero=2, random_state=0).fit(X, y).support_
    array([3, 7])
    """

    bounds = None  # there is nothing to bound

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        n_nonzero: int | None = None,
        solver: Solver = "iht",
        classes: Any = None,
        penalty: float | None = None,
        n_iter: int = 20,
        step: float | None = None,
        refit: bool = True,
        fit_intercept: bool = True,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.n_nonzero = n_nonzero
        self.solver = solver
        self.classes = classes
        self.penalty = penalty
        self.n_iter = n_iter
        self.step = step
        self.refit = refit
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a few hundred users are far too few
        return tags

    def protocol(self, n_features: int, n_users: int, n_classes: int = 2) -> LabelCollection:
        """The protocol that a server would run for these settings."""
        return LabelCollection(self._budget(), n_features, Bounds(), bool(self.fit_intercept), n_classes=n_classes)

    def fit(self, X: Any, y: Any) -> LabelPrivateSparseClassifier:
        """Simulate the study: each row is a user.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            Known to the server.
        y : array of shape (n,)
            Private classes.

        Returns
        -------
        self
        """
        self._check_solver()
        X, labels = self._checked_to_fit(X, y)
        X = X.tocsr() if hasattr(X, "tocsr") else X
        self.classes_ = classes_of(self, lambda: labels)
        k = len(self.classes_)
        protocol = self.protocol(X.shape[1], X.shape[0], k)
        # Everybody answers, for silence would say something.
        self._study(protocol, X, np.maximum(codes(labels, self.classes_), 0).astype(np.float64))
        answered, given = protocol.by_number()
        channel = protocol.channel
        if isinstance(channel, RandomisedResponse):
            indicators = channel.indicators(given)
        else:
            indicators = np.eye(k)[np.round(channel.unit * given).astype(int)]
        if k == 2:
            self._solve(X, answered, indicators[:, 1:], LOGISTIC_LINK)
        else:
            self._solve(X, answered, indicators, SOFTMAX_LINK)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of each class."""
        margins = self._margins(X)
        return np.hstack([expit(-margins), expit(margins)]) if len(self.classes_) == 2 else softmax(margins, axis=1)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """The logarithm of the probability of each class."""
        return np.log(self.predict_proba(X))
