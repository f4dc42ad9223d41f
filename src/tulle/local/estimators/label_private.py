"""Labels are private and features are known: label-LDP-IHT (Wang and Xu, ICML 2019, algorithm 2), or the LASSO after.

Proof: docs/proofs/local_protocol.md.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from tulle.accounting.calibration import default_delta
from tulle.estimators.bounds import Bounds
from tulle.estimators.linear_model import Seed
from tulle.files.error_messages import PrivacyWarning
from tulle.files.own_types import register
from tulle.local.estimators.local_model import LocalClassifier, LocalModel, LocalRegressor
from tulle.local.server_side.noisy_labels import (
    LOGISTIC_LINK,
    SOFTMAX_LINK,
    Link,
    NoisyLabels,
    best_sparsity,
    hard_thresholding,
    lasso,
    link_of,
)
from tulle.local.server_side.protocols import LabelCollection, Protocol
from tulle.local.user_side.channel import check_count, check_positive
from tulle.local.user_side.label_randomisers import RandomisedResponse
from tulle.local.user_side.responses import Response, resolve_response
from tulle.methods.public_start import read_start
from tulle.trusted.events import FloatArray
from tulle.trusted.plan import Budget, is_number
from tulle.trusted.randomness import seed_of

Solver = Literal["iht", "lasso"]
Start = Literal["zero", "normal"]
Settings = Literal["default", "theorem"]

# Tells the generator of a random start from those of users who share its seed.
_START_STREAM = (1,)


class _LabelPrivate(LocalModel):
    """Users send randomised labels once; a sparse model is fitted to them and to features that the server knows."""

    solver: Solver
    n_nonzero: int | None
    penalty: float | None
    n_iter: int | None
    step: float | None
    refit: bool
    ball: float | None
    start: Any
    _protects = "labels"  # features are public here, and steps of a pipeline may learn from them

    def _check_solver(self) -> None:
        if self.solver not in get_args(Solver):
            raise ValueError(f"solver={self.solver!r} is unknown; choose one of {get_args(Solver)}")
        if self.n_iter is not None:
            check_count("n_iter", self.n_iter, 1)
        if self.step is not None:
            check_positive("step", self.step)
        if self.ball is not None:
            check_positive("ball", self.ball)
        named = self.start is None or isinstance(self.start, str)
        if named and self.start not in get_args(Start):
            raise ValueError(f"start={self.start!r} is unknown; choose one of {get_args(Start)}, or give weights")
        if not named and self.solver == "lasso":
            raise ValueError("start=... is for solver='iht'; the LASSO is a minimiser, which starts from nothing")
        if self.n_nonzero is not None:
            check_count("n_nonzero", self.n_nonzero, 1)
        if self.penalty is not None and not (is_number(self.penalty) and 0 <= self.penalty < math.inf):
            raise ValueError(f"penalty must be a finite number >= 0 or None, got {self.penalty!r}")

    @property
    def _by_theorem(self) -> bool:
        return getattr(self, "settings", "default") == "theorem"

    def _n_iter(self, n_users: int, n_features: int) -> int:
        if self.n_iter is not None:
            return self.n_iter
        return max(1, math.ceil(math.log(n_users / n_features))) if self._by_theorem else 20

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
                nonzero = best_sparsity(data, most, ball=self.ball)
            else:
                nonzero = self._nonzero(self.n_nonzero, X.shape[1])
            weights = hard_thresholding(
                data,
                nonzero,
                n_iter=self._n_iter(*X.shape),
                step=self.step,
                refit=bool(self.refit) and not self._by_theorem,
                ball=1.0 if self._by_theorem and self.ball is None else self.ball,
                start=self._first_weights(data.shape),
            )
        self._keep(weights)

    def _first_weights(self, shape: tuple[int, int]) -> FloatArray:
        """Where IHT starts. The intercept starts from 0 unless one is given."""
        weights = np.zeros(shape)
        given = self._given_start(shape[0] - 1, shape[1])
        if given is not None:
            weights[:-1], weights[-1] = given
        elif self.start == "normal":
            seeds = np.random.SeedSequence(seed_of(self.random_state), spawn_key=_START_STREAM)
            weights[:-1] = np.random.default_rng(seeds).standard_normal((shape[0] - 1, shape[1]))
        return weights

    def _given_start(self, n_features: int, n_outputs: int) -> tuple[FloatArray, FloatArray] | None:
        """The weights that `start` gives, checked before anybody is asked; None for names."""
        start = None if isinstance(self.start, str) else self.start
        return read_start(type(self).__name__, start, n_features, n_outputs, bool(self.fit_intercept))

    def _describe(self, protocol: Protocol) -> str:
        after = "IHT" if self.solver == "iht" else "the LASSO"
        labels = "exact labels" if protocol.budget is None else "randomised labels"
        return f"{labels}, sent once (label-LDP; Wang and Xu, ICML 2019), then {after} on known features"


@register("model")
class LabelPrivateSparseRegressor(_LabelPrivate, LocalRegressor):
    """Sparse regression where every user's label is kept private from everybody, and the server knows the features.

    Non-interactive: each user sends a randomised label once. Processing it afterwards costs nothing. Error hardly grows
    with the number of features.

    The defaults are not the paper's. settings="theorem" is algorithm 2 as printed; its experiments have start="normal".

    Parameters
    ----------
    epsilon : float or None, default=1.0
        What a label costs, in [1e-6, 16]; None randomises nothing.
    delta : float or None, default=None
        In [0, 1); only randomiser="gaussian" has use for it, and None is min(1e-5, 1/(10 n)) there, else 0.
    settings : {"default", "theorem"}, default="default"
        "theorem" runs algorithm 2 as printed: randomiser="gaussian", refit=False, ball=1.0 where it is None and
        n_iter = ⌈log(n/p)⌉ where it is None, with n users and p features. It needs `n_nonzero` (s), `step` (η, whose
        constant the theorem leaves open), a declared label bound, solver="iht" and fit_intercept=False.
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
    n_iter : int or None, default=None
        Steps of IHT at most. None: 20; with settings="theorem" ⌈log(n/p)⌉, at least 1.
    step : float or None, default=None
        Of IHT, in (0, inf). None: the best along the gradient.
    refit : bool, default=True
        Whether IHT fits the weights that it keeps anew after each step; the paper does not.
    ball : float or None, default=None
        The radius, in (0, inf), of the ball that IHT projects all weights onto after each step, the intercept's
        included; the paper has 1. None: no projection.
    start : {"zero", "normal"}, array or tuple, default="zero"
        Where IHT starts: from 0; from weights that are drawn from the standard normal distribution, as in the paper's
        experiments; or from public weights as in `LocalSparseRegressor`, (features, outputs) for several classes.
    fit_intercept : bool, default=True
    random_state : int, RandomState, Generator or None, default=None
        None: every user draws from the operating system. An integer makes a simulation that can be repeated, except
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
        settings: Settings = "default",
        n_nonzero: int | None = None,
        randomiser: str = "auto",
        solver: Solver = "iht",
        response: str | Response = "identity",
        bounds: Bounds | None = None,
        penalty: float | None = None,
        n_iter: int | None = None,
        step: float | None = None,
        refit: bool = True,
        ball: float | None = None,
        start: Any = "zero",
        fit_intercept: bool = True,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.settings = settings
        self.n_nonzero = n_nonzero
        self.randomiser = randomiser
        self.solver = solver
        self.response = response
        self.bounds = bounds
        self.penalty = penalty
        self.n_iter = n_iter
        self.step = step
        self.refit = refit
        self.ball = ball
        self.start = start
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

    def _check_theorem(self) -> None:
        """Raise where a quantity that the theorem's settings are computed from is missing."""
        if self.settings not in get_args(Settings):
            raise ValueError(f"settings={self.settings!r} is unknown; choose one of {get_args(Settings)}")
        if not self._by_theorem:
            return
        if self.fit_intercept:
            raise ValueError("settings='theorem' has no intercept: use fit_intercept=False")
        if self.solver != "iht" or self.randomiser not in ("auto", "gaussian"):
            raise ValueError("settings='theorem' is solver='iht' on labels with randomiser='gaussian'")
        missing = []
        if self.n_nonzero is None:
            missing.append("n_nonzero=... (s, the number of weights to keep)")
        if self.step is None:
            missing.append("step=... (η, whose constant the theorem leaves open)")
        if self._known_bounds().label is None:
            missing.append("bounds=Bounds(label=...) (what labels are clipped to)")
        if missing:
            raise ValueError("settings='theorem' needs " + ", ".join(missing))

    def protocol(self, n_features: int, n_users: int) -> LabelCollection:
        """The protocol that a server would run for these settings, with so many users of so many features."""
        self._check_theorem()
        randomiser = "gaussian" if self._by_theorem else self.randomiser
        gaussian = randomiser == "gaussian"
        delta = default_delta(n_users) if self.delta is None else Budget(1.0, self.delta).delta
        # Other channels promise exactly what they prove: they are purely private.
        budget = self._budget(delta if gaussian else 0.0)
        if gaussian and budget is not None and delta >= 1 / n_users:
            warnings.warn(
                f"delta = {delta:g} is not below 1 / (number of users) = {1 / n_users:.3g}: such a guarantee would "
                "allow publishing a label chosen at random; use delta=None, or randomiser='auto' which needs none",
                PrivacyWarning,
                stacklevel=3,
            )
        protocol = LabelCollection(
            budget, n_features, self._known_bounds(), bool(self.fit_intercept), randomiser=randomiser
        )
        protocol.make_channel(1.0)  # an unknown name is reported before any user is asked
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
        self._given_start(X.shape[1], 1)
        protocol = self.protocol(X.shape[1], X.shape[0])
        self._study(protocol, X, targets)
        answered, given = protocol.by_number()
        self._solve(X, answered, protocol.channel.unit * given[:, None].astype(np.float64), link)
        return self


@register("model")
class LabelPrivateSparseClassifier(_LabelPrivate, LocalClassifier):
    """Sparse classification where every user's class is kept private from everybody, and the server knows the features.

    Non-interactive: each user sends its class once, by randomised response. Processing it afterwards costs nothing.

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
    penalty, n_iter, step, refit, ball, start, fit_intercept, random_state, verbose
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
        n_iter: int | None = None,
        step: float | None = None,
        refit: bool = True,
        ball: float | None = None,
        start: Any = "zero",
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
        self.ball = ball
        self.start = start
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

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
        X, self.classes_, numbers = self._checked_classes(X, y)
        k = len(self.classes_)
        self._given_start(X.shape[1], 1 if k == 2 else k)
        protocol = self.protocol(X.shape[1], X.shape[0], k)
        self._study(protocol, X, numbers.astype(np.float64))
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
