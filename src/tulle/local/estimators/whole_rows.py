"""Whole rows are private: LDP-IHT (Wang and Xu, ICML 2019, algorithm 1) and the one-round estimator of theorem 1.

Proof: docs/proofs/local_protocol.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal, Self, get_args

import numpy as np

from tulle.estimators.bounds import Bounds
from tulle.estimators.linear_model import Seed
from tulle.files.own_types import register
from tulle.local.estimators.local_model import LocalClassifier, LocalModel, LocalRegressor
from tulle.local.server_side.expectations import best_rounds, noise
from tulle.local.server_side.protocols import BallChoice, LdpIht, Protocol
from tulle.local.user_side.channel import check_count, check_positive
from tulle.local.user_side.responses import LOGISTIC_LOSS, RESPONSES, Response, resolve_response
from tulle.methods.public_start import read_start
from tulle.trusted.events import FloatArray

Settings = Literal["default", "theorem"]


class _WholeRows(LocalModel):
    """Users send randomised gradients."""

    response: str | Response
    n_nonzero: int | None
    ball: BallChoice | None
    radius: float | None
    weight_bound: float | None

    def protocol(self, n_features: int, n_users: int) -> LdpIht:
        """The protocol that a server would run for these settings, with so many users of so many features."""
        raise NotImplementedError

    def _protocol(
        self, n_features: int, n_users: int, n_rounds: int | None, step: float | None, **given: Any
    ) -> LdpIht:
        """The protocol; `given` has fields of `LdpIht` that take the place of the estimator's parameters."""
        if n_rounds is not None:
            check_count("n_rounds", n_rounds, 1)
        for name, value in (("step", step), ("radius", self.radius), ("weight_bound", self.weight_bound)):
            if value is not None:
                check_positive(name, value)
        protocol = LdpIht(
            self._budget(),
            n_features,
            self._known_bounds(),
            bool(self.fit_intercept),
            **{
                "n_gradients": 8 if n_rounds is None else int(n_rounds),
                "ball": self.ball,
                "response": self._known_response(),
                "step": step,
                "radius": self.radius,
                "weight_bound": self.weight_bound,
                **given,
            },
        )
        if n_rounds is None:
            protocol.n_gradients = best_rounds(protocol, n_users)
        # So many that their noise together is half of the largest weights' norm.
        seen = 0.25 / max(noise(protocol, n_users) ** 2, 1e-12)
        default = max(1, int(min(seen, n_features)))
        protocol.n_nonzero = self._nonzero(default if self.n_nonzero is None else self.n_nonzero, n_features)
        return protocol

    def _known_response(self) -> Response:
        return resolve_response(self.response)

    def _ask_everyone(self, X: Any, targets: FloatArray) -> None:
        """Simulate the study, and keep its weights."""
        protocol = self.protocol(X.shape[1], X.shape[0])
        responses = {**RESPONSES, protocol.response.name: protocol.response}
        self._study(protocol, X, targets, responses, stacklevel=4)
        weights = protocol.weights if protocol.fit_intercept else np.append(protocol.weights, 0.0)
        self._keep(weights[:, None])

    def _describe(self, protocol: Protocol) -> str:
        assert isinstance(protocol, LdpIht)
        return (
            f"LDP-IHT (Wang and Xu, ICML 2019), {protocol.n_gradients} gradient round(s), "
            f"{protocol.kept(protocol.n_gradients - 1)} non-zero weights, gradients clipped to "
            f"{protocol.first_radius:.4g} {'in all rounds' if protocol.constant_radius else 'at first'}, response "
            f"{protocol.response.name}"
        )


class _WholeRowRegressor(_WholeRows, LocalRegressor):
    """Labels are numbers."""

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
        self._ask_everyone(*self._checked_numbers(X, y))
        return self


@register("model")
class LocalSparseRegressor(_WholeRowRegressor):
    """LDP-IHT: sparse regression where every user's whole row is private towards everybody, the server included.

    Users are asked once, in `n_rounds` groups. Error grows with the number of features: n must be far above p/ε².

    The defaults are not the paper's: steps and radii shrink, and the result is cut to `n_nonzero` weights.
    settings="theorem" runs algorithm 1 as printed.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        What one answer costs, and so what the study costs each user; in [1e-6, 16]. Purely epsilon-private. None
        randomises nothing, to compare with.
    settings : {"default", "theorem"}, default="default"
        "theorem" runs algorithm 1 as printed: one step length, one radius, a result of 8 × `n_nonzero` weights in the
        unit ball. It needs `n_nonzero` (s*), `step` (η, whose constant the theorem leaves open), declared bounds or
        `radius`, and fit_intercept=False. Parameters below that are given take the place of the theorem's.
    n_nonzero : int or None, default=None
        Non-zero weights, at least 1. None: as many as the expected noise allows.
    n_rounds : int or None, default=None
        T: groups of users, at least 1. More rounds correct more of what correlated features do to a single one, and
        are noisier. None: 8, 4 or 2, by the noise that public quantities let one expect; ⌈log(n/p)⌉, and at least 1,
        with settings="theorem".
    ball : {"priv_unit", "hemisphere"} or None, default=None
        How gradients are randomised; the hemisphere is the paper's, and never has less noise. None: the hemisphere with
        settings="theorem", else "priv_unit".
    response : str or Response, default="identity"
        f in y = f(<x, w>) + noise: "identity", "logistic", "tanh", or a `tulle.local.Response`. A response that
        flattens out is learnt slowly where it is flat: use more rounds or a larger step.
    bounds : Bounds or None, default=None
        Where `row_l2` (or `row_linf`) or `label` is not declared, it is searched for with a tenth of the users.
    step : float or None, default=None
        The first step, in (0, inf). None suits features of equal variance that fill the row bound.
    radius : float or None, default=None
        What first gradients are clipped to, in (0, inf). None: half of row bound × label bound × f'(0), and all of it
        with one round; with settings="theorem" the longest gradient that the bounds allow.
    weight_bound : float or None, default=None
        Weights are kept within this norm. None: what would explain labels at their bound; 1 with settings="theorem".
    start : None, array or tuple, default=None
        Public weights that the first gradients are taken at: of shape (features,), or a tuple (coef, intercept) as a
        fitted model has them; finite, at most 1e50 in magnitude. They must not come from the same users' rows unless
        that study is billed too. With settings="theorem", in the ball of `weight_bound` and of at most 8 × `n_nonzero`
        weights, for which the radius is computed. None: 0.
    fit_intercept : bool, default=True
    random_state : int, RandomState, Generator or None, default=None
        None: every user draws from the operating system. An integer makes a simulation that can be repeated, except
        inside a `tulle.FileLedger`. A RandomState or a Generator counts as None.
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
        settings: Settings = "default",
        n_nonzero: int | None = None,
        n_rounds: int | None = None,
        ball: BallChoice | None = None,
        response: str | Response = "identity",
        bounds: Bounds | None = None,
        step: float | None = None,
        radius: float | None = None,
        weight_bound: float | None = None,
        start: Any = None,
        fit_intercept: bool = True,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.settings = settings
        self.n_nonzero = n_nonzero
        self.n_rounds = n_rounds
        self.ball = ball
        self.response = response
        self.bounds = bounds
        self.step = step
        self.radius = radius
        self.weight_bound = weight_bound
        self.start = start
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

    def protocol(self, n_features: int, n_users: int) -> LdpIht:
        if self.settings not in get_args(Settings):
            raise ValueError(f"settings={self.settings!r} is unknown; choose one of {get_args(Settings)}")
        if self.settings == "default":
            ball = "priv_unit" if self.ball is None else self.ball
            start = self._first_weights(n_features)
            return self._protocol(n_features, n_users, self.n_rounds, self.step, ball=ball, start=start)
        self._check_theorem()
        rounds = max(1, math.ceil(math.log(n_users / n_features))) if self.n_rounds is None else self.n_rounds
        protocol = self._protocol(
            n_features,
            n_users,
            rounds,
            self.step,
            ball="hemisphere" if self.ball is None else self.ball,
            weight_bound=1.0 if self.weight_bound is None else self.weight_bound,
            constant_step=True,
            constant_radius=True,
            cut_at_end=False,
            start=self._first_weights(n_features),
        )
        self._check_start(protocol)
        if protocol.n_searching:
            raise ValueError(
                "settings='theorem' needs bounds=Bounds(row_linf=..., label=...) or radius=...: the level that "
                "gradients are clipped to is computed from bounds, and users are not asked for them"
            )
        return protocol

    def _first_weights(self, n_features: int) -> FloatArray | None:
        given = read_start(type(self).__name__, self.start, n_features, 1, bool(self.fit_intercept))
        if given is None:
            return None
        return np.concatenate([given[0][:, 0], given[1]]) if self.fit_intercept else given[0][:, 0]

    def _check_start(self, protocol: LdpIht) -> None:
        """Raise where the radius that clips nothing is computed for other weights than these."""
        most, longest = 8 * protocol.n_nonzero, protocol.largest_weight
        if self.radius is not None or protocol.start is None:
            return
        if np.count_nonzero(protocol.start) > most or np.linalg.norm(protocol.start) > longest * (1 + 1e-9):
            raise ValueError(
                f"settings='theorem' computes the radius for at most {most} weights of norm {longest:g}: shorten "
                "start, or give radius=..."
            )

    def _check_theorem(self) -> None:
        """Raise where a quantity that the theorem's settings are computed from is missing."""
        if self.fit_intercept:
            raise ValueError("settings='theorem' has no intercept: use fit_intercept=False")
        missing = []
        if self.n_nonzero is None:
            missing.append("n_nonzero=... (s*, the number of non-zero weights to look for)")
        if self.step is None:
            missing.append("step=... (η, whose constant the theorem leaves open)")
        if missing:
            raise ValueError("settings='theorem' needs " + ", ".join(missing))


@register("model")
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


@register("model")
class LocalSparseClassifier(_WholeRows, LocalClassifier):
    """LDP-IHT with the logistic loss: two classes, every user's whole row private towards everybody.

    A user's gradient is that of the logistic loss, (σ(<x, w>) - 1) x for the second class and σ(<x, w>) x for the
    first, randomised as in `LocalSparseRegressor`. The paper has the squared error alone.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        What one answer costs, in [1e-6, 16]. Purely epsilon-private. None randomises nothing.
    n_nonzero : int or None, default=None
        Non-zero weights, at least 1. None: as many as the expected noise allows.
    n_rounds : int or None, default=None
        T: groups of users, at least 1. None: 8, 4 or 2, by the noise that public quantities let one expect.
    ball : {"priv_unit", "hemisphere"}, default="priv_unit"
    classes : sequence of two strings or numbers, or None, default=None
        The two classes, declared without looking at anybody's. A user of another class answers as one of the first.
        None takes them from the rows, and publishes them.
    bounds : Bounds or None, default=None
        Of `row_l2` (or `row_linf`); searched for with a tenth of the users where it is not declared. Classes need none.
    step, radius, weight_bound, fit_intercept, random_state, verbose
        As in `LocalSparseRegressor`, for labels of -1 and 1; and so are the attributes.

    Attributes
    ----------
    classes_ : array of shape (2,)
        The declared classes in order, or those that the rows hold.

    Examples
    --------
    >>> import numpy as np
    >>> from tulle import Bounds
    >>> from tulle.local import LocalSparseClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], (50_000, 10))
    >>> y = X[:, 3] - X[:, 7] + rng.normal(size=50_000) > 0
    >>> LocalSparseClassifier(2.0, n_nonzero=2, bounds=Bounds(row_linf=1.0), random_state=0).fit(X, y).support_
    array([3, 7])
    """

    response = LOGISTIC_LOSS.name

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        n_nonzero: int | None = None,
        n_rounds: int | None = None,
        ball: BallChoice = "priv_unit",
        classes: Any = None,
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
        self.classes = classes
        self.bounds = bounds
        self.step = step
        self.radius = radius
        self.weight_bound = weight_bound
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _known_bounds(self) -> Bounds:
        bounds = super()._known_bounds()
        return replace(bounds, label=1.0) if isinstance(bounds, Bounds) else bounds

    def _known_response(self) -> Response:
        return LOGISTIC_LOSS

    def protocol(self, n_features: int, n_users: int) -> LdpIht:
        return self._protocol(n_features, n_users, self.n_rounds, self.step)

    def fit(self, X: Any, y: Any) -> Self:
        """Simulate the study: each row is a user.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
        y : array of shape (n,)
            Labels of two classes.

        Returns
        -------
        self
        """
        X, classes, numbers = self._checked_classes(X, y)
        if len(classes) != 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: there are "
                f"{len(classes)} classes; declare two with classes=..., or use LabelPrivateSparseClassifier"
            )
        self._ask_everyone(X, np.where(numbers == 1, 1.0, -1.0))
        self.classes_ = classes
        return self
