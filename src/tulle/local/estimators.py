"""Local studies with scikit-learn's interface: rows of an array play the users.

Everything that a real study would do is done, by the same code: questions, channels, groups, one answer each.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from sklearn.base import RegressorMixin

from tulle.bounds import Bounds
from tulle.estimators import LinearClassifier, LinearModel, Seed, coded_classes, seed_of
from tulle.events import FloatArray
from tulle.local import billing
from tulle.local.channel import check_count, check_epsilon, check_positive
from tulle.local.expectations import Expectation, best_rounds, expectation, noise
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
from tulle.local.protocols import BallChoice, LabelCollection, LdpIht, Protocol
from tulle.local.responses import RESPONSES, Response, resolve_response
from tulle.local.server import Server
from tulle.local.simulation import Population, simulate
from tulle.privacy import Budget, PrivacyReport, PrivacyWarning, is_number
from tulle.randomness import keyed_generator

Solver = Literal["iht", "lasso"]


class _LocalModel(LinearModel):
    """What local estimators share: the study, its report and its warnings."""

    epsilon: float | None
    fit_intercept: bool
    random_state: Seed
    verbose: int

    def _budget(self, delta: float = 0.0) -> Budget | None:
        if self.epsilon is None:
            return None
        check_epsilon("epsilon", self.epsilon)
        return Budget(self.epsilon, delta)

    def _known_bounds(self) -> Bounds:
        bounds = Bounds() if self.bounds is None else self.bounds
        if not isinstance(bounds, Bounds):
            raise TypeError(f"bounds must be a Bounds or None, got {bounds!r}")
        if bounds.rows_per_person != 1:
            raise ValueError("a user has one row and one answer here: Bounds(rows_per_person=1)")
        if bounds.normalise:
            raise ValueError("users do not normalise rows: normalise them before fit, and use Bounds(row_l2=1.0)")
        return bounds

    def _study(self, protocol: Protocol, X: Any, y: FloatArray, responses: dict[str, Response]) -> Server:
        """Ask everyone; sets `privacy_`, `expected_`, `n_answers_` and `n_iter_`."""
        self.expected_: Expectation = expectation(protocol, X.shape[0])
        if self.expected_.hopeless or X.shape[0] < self.expected_.floor:
            warnings.warn(
                f"{self.expected_}; use more users, fewer features or a larger epsilon"
                + (", or protect labels alone" if self.expected_.whole_row else ""),
                UserWarning,
                stacklevel=3,
            )
        seed = seed_of(self.random_state)
        stream = billing.bill(f"{type(self).__name__}.fit", protocol)
        # Inside a ledger, studies that share a seed still get different answers.
        inner = seed if seed is None or not stream else int(keyed_generator(seed, stream).integers(2**63))
        server = simulate(protocol, Population(X, y, responses, inner), verbose=self.verbose)
        self.n_iter_ = protocol.n_rounds
        self.n_answers_ = server.accepted
        self.privacy_: PrivacyReport = billing.report(
            protocol, self._describe(protocol), X.shape[0], server.accepted, seed is not None
        )
        return server

    def _describe(self, protocol: Protocol) -> str:
        raise NotImplementedError

    def _keep(self, weights: FloatArray) -> None:
        self.coef_, self.intercept_ = self._shaped(weights)
        self.support_ = np.flatnonzero(np.any(np.atleast_2d(self.coef_) != 0, axis=0))

    @staticmethod
    def _nonzero(wanted: Any, n_features: int) -> int:
        check_count("n_nonzero", wanted, 1)
        return int(min(wanted, n_features))


class _LocalRegressor(RegressorMixin, _LocalModel):
    """Numbers by a response function of a margin."""

    response: str | Response

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a few hundred users are far too few
        return tags

    def _shaped(self, weights: FloatArray) -> tuple[FloatArray, Any]:
        return weights[:-1, 0].copy(), float(weights[-1, 0])

    def predict(self, X: Any) -> FloatArray:
        """The predicted label of each row."""
        return self._answers(self._margins(X))

    def _answers(self, margins: FloatArray) -> FloatArray:
        return np.asarray(resolve_response(self.response).value(margins[:, 0]))

    def _checked_numbers(self, X: Any, y: Any) -> tuple[Any, FloatArray]:
        X, y = self._checked(X, y, y_numeric=True)
        return X.tocsr() if hasattr(X, "tocsr") else X, np.asarray(y, dtype=np.float64)


class _WholeRowRegressor(_LocalRegressor):
    """Users send randomised gradients."""

    n_nonzero: int | None
    ball: BallChoice
    radius: float | None
    weight_bound: float | None

    def protocol(self, n_features: int, n_users: int) -> LdpIht:
        """The protocol that a server would run for these settings, with so many users of so many features."""
        raise NotImplementedError

    def _protocol(self, n_features: int, n_users: int, n_rounds: int | None, step: float | None) -> LdpIht:
        if n_rounds is not None:
            check_count("n_rounds", n_rounds, 1)
        if self.ball not in get_args(BallChoice):
            raise ValueError(f"ball={self.ball!r} is unknown; choose one of {get_args(BallChoice)}")
        for name, value in (("step", step), ("radius", self.radius), ("weight_bound", self.weight_bound)):
            if value is not None:
                check_positive(name, value)
        protocol = LdpIht(
            self._budget(),
            n_features,
            self._known_bounds(),
            bool(self.fit_intercept),
            n_gradients=8 if n_rounds is None else int(n_rounds),
            ball=self.ball,
            response=resolve_response(self.response),
            step=step,
            radius=self.radius,
            weight_bound=self.weight_bound,
        )
        if n_rounds is None:
            protocol.n_gradients = best_rounds(protocol, n_users)
        # So many that their noise together is half of the largest weights' norm.
        seen = 0.25 / max(noise(protocol, n_users) ** 2, 1e-12)
        default = max(1, int(min(seen, n_features)))
        protocol.n_nonzero = self._nonzero(default if self.n_nonzero is None else self.n_nonzero, n_features)
        return protocol

    def fit(self, X: Any, y: Any) -> Self:
        """Simulate the study: each row is a user.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
        y : array of shape (n,)

        Returns
        -------
        self
        """
        X, targets = self._checked_numbers(X, y)
        protocol = self.protocol(X.shape[1], X.shape[0])
        responses = {**RESPONSES, protocol.response.name: protocol.response}
        self._study(protocol, X, targets, responses)
        weights = protocol.weights if protocol.fit_intercept else np.append(protocol.weights, 0.0)
        self._keep(weights[:, None])
        return self

    def _describe(self, protocol: Protocol) -> str:
        assert isinstance(protocol, LdpIht)
        return (
            f"LDP-IHT (Wang and Xu, ICML 2019), {protocol.n_gradients} gradient round(s), {protocol.n_nonzero} "
            f"non-zero weights, gradients clipped to {protocol.first_radius:.4g} at first, response "
            f"{protocol.response.name}"
        )


class LocalSparseRegressor(_WholeRowRegressor):
    """LDP-IHT: sparse regression where every user's whole row is private towards everybody, the server included.

    Users are asked once, in `n_rounds` groups. Error grows with the number of features: n must be far above p/ε².

    Parameters
    ----------
    epsilon : float or None, default=1.0
        What one answer costs, and so what the study costs each user; in [1e-6, 16]. Purely epsilon-private. None
        randomises nothing, to compare with.
    n_nonzero : int or None, default=None
        Non-zero weights, at least 1. None: as many as the expected noise allows.
    n_rounds : int or None, default=None
        T: groups of users, at least 1. More rounds correct more of what correlated features do to a single one, and
        are noisier. None: 8, 4 or 2, by the noise that public quantities let one expect.
    ball : {"priv_unit", "hemisphere"}, default="priv_unit"
        How gradients are randomised; the hemisphere is the paper's, and never better.
    response : str or Response, default="identity"
        f in y = f(<x, w>) + noise: "identity", "logistic", "tanh", or a `tulle.local.Response`. A response that
        flattens out is learnt slowly where it is flat: use more rounds or a larger step.
    bounds : Bounds or None, default=None
        Of `row_l2` (or `row_linf`) and `label`, what is not declared is searched for with a tenth of the users.
    step : float or None, default=None
        The first step, in (0, inf). None suits features of equal variance that fill the row bound.
    radius : float or None, default=None
        What first gradients are clipped to, in (0, inf). None: half of row bound × label bound × f'(0), and all of it
        with one round.
    weight_bound : float or None, default=None
        Weights are kept within this norm. None: what would explain labels at their bound.
    fit_intercept : bool, default=True
    random_state : int, RandomState, Generator or None, default=None
        None: every user draws from the operating system. A seed makes a simulation that can be repeated.
    verbose : int, default=0
        1 shows the rounds on standard error.

    Attributes
    ----------
    coef_ : array of shape (d,)
    intercept_ : float
    support_ : array of int
    n_iter_ : int
        Rounds, those that searched for bounds included.
    n_answers_ : int
    expected_ : Expectation
        What was expected from public quantities alone, before anybody was asked. Print it.
    privacy_ : PrivacyReport

    Examples
    --------
    >>> import numpy as np
    >>> from tulle import Bounds
    >>> from tulle.local import LocalSparseRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], (50_000, 10))
    >>> y = 0.8 * X[:, 3] - 0.6 * X[:, 7]
    >>> bounds = Bounds(row_linf=1.0, label=2.0)
    >>> LocalSparseRegressor(2.0, n_nonzero=2, bounds=bounds, random_state=0).fit(X, y).support_
    array([3, 7])
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        n_nonzero: int | None = None,
        n_rounds: int | None = None,
        ball: BallChoice = "priv_unit",
        response: str | Response = "identity",
        bounds: Bounds | None = None,
        step: float | None = None,
        radius: float | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.n_nonzero = n_nonzero
        self.n_rounds = n_rounds
        self.ball = ball
        self.response = response
        self.bounds = bounds
        self.step = step
        self.radius = radius
        self.weight_bound = weight_bound
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

    def protocol(self, n_features: int, n_users: int) -> LdpIht:
        return self._protocol(n_features, n_users, self.n_rounds, self.step)


class OneRoundSparseRegressor(_WholeRowRegressor):
    """One question for everybody: the non-interactive estimator of Wang and Xu's theorem 1, whole rows private.

    With features that are uncorrelated and of equal variance v, E[y x] = v w. Each user sends a randomised y x once;
    the server divides the mean by v and keeps the largest. With other features this is biased: use
    `LocalSparseRegressor`.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        In [1e-6, 16]; None randomises nothing.
    n_nonzero : int or None, default=None
        At least 1; None: as many as the expected noise allows.
    second_moment : float or None, default=None
        v, in (0, inf). None: what features that fill the row bound evenly have.
    ball, response, bounds, radius, weight_bound, fit_intercept, random_state, verbose
        As in `LocalSparseRegressor`, and so are the attributes.
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        n_nonzero: int | None = None,
        second_moment: float | None = None,
        ball: BallChoice = "priv_unit",
        response: str | Response = "identity",
        bounds: Bounds | None = None,
        radius: float | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.n_nonzero = n_nonzero
        self.second_moment = second_moment
        self.ball = ball
        self.response = response
        self.bounds = bounds
        self.radius = radius
        self.weight_bound = weight_bound
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

    def protocol(self, n_features: int, n_users: int) -> LdpIht:
        step = None
        if self.second_moment is not None:
            check_positive("second_moment", self.second_moment)
            step = 1 / (self.second_moment * resolve_response(self.response).steepness ** 2)
        return self._protocol(n_features, n_users, 1, step)


class _LabelPrivate(_LocalModel):
    """Users send randomised labels once; a sparse model is fitted to them and to features that the server knows."""

    solver: Solver
    n_nonzero: int | None
    penalty: float | None
    n_iter: int
    step: float | None
    refit: bool

    def _check_solver(self) -> None:
        if self.solver not in get_args(Solver):
            raise ValueError(f"solver={self.solver!r} is unknown; choose one of {get_args(Solver)}")
        check_count("n_iter", self.n_iter, 1)
        if self.step is not None:
            check_positive("step", self.step)
        if self.n_nonzero is not None:
            self._nonzero(self.n_nonzero, 1)
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


class LabelPrivateSparseRegressor(_LabelPrivate, _LocalRegressor):
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
        Non-zero weights, at least 1. None: what predicts held-out randomised labels best.
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
        None: every user draws from the operating system. A seed makes a simulation that can be repeated.
    verbose : int, default=0

    Attributes
    ----------
    coef_, intercept_, support_, n_iter_, n_answers_, expected_, privacy_
        As in `LocalSparseRegressor`.

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
        delta = min(1e-5, 1 / (10 * n_users)) if self.delta is None else Budget(1.0, self.delta).delta
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
        self._study(protocol, X, targets, dict(RESPONSES))
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
        Non-zero weights for each class, at least 1. None: what predicts held-out answers best.
    solver : {"iht", "lasso"}, default="iht"
    penalty, n_iter, step, refit, fit_intercept, random_state, verbose
        As in `LabelPrivateSparseRegressor`, and so are the attributes.

    Attributes
    ----------
    classes_ : array
        The set of classes is taken as public.

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

    bounds = None

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        n_nonzero: int | None = None,
        solver: Solver = "iht",
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
        return LabelCollection(
            self._budget(), n_features, self._known_bounds(), bool(self.fit_intercept), n_classes=n_classes
        )

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
        X, y = self._checked(X, y)
        X = X.tocsr() if hasattr(X, "tocsr") else X
        self.classes_, codes = coded_classes(self, y)
        k = len(self.classes_)
        protocol = self.protocol(X.shape[1], X.shape[0], k)
        self._study(protocol, X, codes.astype(np.float64), dict(RESPONSES))
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
