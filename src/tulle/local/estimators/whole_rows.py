"""Whole rows are private: LDP-IHT (Wang and Xu, ICML 2019, algorithm 1) and the one-round estimator of theorem 1.

Proof: docs/proofs/local_protocol.md.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tulle.bounds import Bounds
from tulle.estimators import Seed
from tulle.local.channel import check_count, check_positive
from tulle.local.estimators import LocalRegressor
from tulle.local.expectations import best_rounds, noise
from tulle.local.protocols import BallChoice, LdpIht, Protocol
from tulle.local.responses import RESPONSES, Response, resolve_response


class _WholeRowRegressor(LocalRegressor):
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
        How gradients are randomised; the hemisphere is the paper's, and never has less noise.
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
        None: every user draws from the operating system. An integer makes a simulation that can be repeated, but for
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
