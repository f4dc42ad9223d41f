"""What local estimators share: a study that is simulated, its report and its warnings.

Rows of an array play the users. Everything that a real study would do is done, by the same code: questions, channels,
groups, one answer each. `tulle.local.estimators.whole_rows` and `tulle.local.estimators.label_private` have the
estimators.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tulle.estimators.bounds import Bounds
from tulle.estimators.linear_model import LinearClassifier, LinearModel, Seed
from tulle.estimators.pipeline_checks import warn_of_peeks
from tulle.estimators.sparse import classes_of
from tulle.files.array_checks import read_finite_numbers
from tulle.files.error_messages import PrivacyWarning
from tulle.files.number_text import rounded_up
from tulle.ledgers.ledger import describe_entries
from tulle.local.estimators import local_bill as billing
from tulle.local.estimators.simulated_study import Population, simulate
from tulle.local.server_side.expectations import Expectation, expectation
from tulle.local.server_side.protocols import LdpIht, Protocol
from tulle.local.server_side.study_server import Server
from tulle.local.user_side.channel import check_count, check_epsilon
from tulle.local.user_side.responses import RESPONSES, Response, resolve_response
from tulle.methods.public_start import START_ASSUMPTION
from tulle.reports.report import PrivacyReport
from tulle.trusted.billing import can_be_repeated, stream_of
from tulle.trusted.events import FloatArray
from tulle.trusted.intake import encode_labels
from tulle.trusted.plan import Budget
from tulle.trusted.randomness import keyed_generator, seed_of


class LocalModel(LinearModel):
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
        return Bounds() if self.bounds is None else self.bounds

    def _study(
        self,
        protocol: Protocol,
        X: Any,
        y: FloatArray,
        responses: Mapping[str, Response] = RESPONSES,
        *,
        stacklevel: int = 3,
    ) -> Server:
        """Ask everyone; sets `privacy_`, `expected_`, `n_answers_` and `n_iter_`. Warnings name the line of `fit`."""
        preparation = warn_of_peeks(self)
        own_start = not isinstance(getattr(self, "start", "zero"), (str, type(None)))
        if own_start and not isinstance(protocol, LdpIht):  # whose report says it
            preparation = (START_ASSUMPTION, *preparation)
        expected = expectation(protocol, X.shape[0])
        if expected.hopeless or X.shape[0] < expected.floor:
            warnings.warn(
                f"{expected}; use more users, fewer features or a larger epsilon"
                + (", or protect labels alone" if expected.whole_row else ""),
                UserWarning,
                stacklevel=stacklevel,
            )
        if protocol.n_searching:
            # How far the share of yes can be off, by the coins alone.
            each = X.shape[0] * protocol.bounds.estimate_share / protocol.n_searching
            if 0.5 / (2 * protocol.yes_or_no.chance - 1) / math.sqrt(max(each, 1e-9)) > 0.1:
                warnings.warn(
                    f"bounds are estimated from about {each:.0f} users per question, too few for a reliable answer; "
                    "declare known bounds with bounds=Bounds(...)",
                    UserWarning,
                    stacklevel=stacklevel,
                )
        if (taken := billing.arithmetic(protocol)) >= 1 / X.shape[0]:
            warnings.warn(
                f"delta = {rounded_up(taken, 2)}, which finite precision needs, is not below 1 / (number of users) = "
                f"{1 / X.shape[0]:.3g}: such a guarantee would allow publishing a row chosen at random; use a smaller "
                "epsilon or fewer features",
                PrivacyWarning,
                stacklevel=stacklevel,
            )
        seed = seed_of(self.random_state)
        entries = billing.bill(f"{type(self).__name__}.fit", protocol)
        # Inside a ledger, studies that share a seed still get different answers; in a file's, no seed repeats any.
        seed = seed if can_be_repeated(entries) else None
        stream = stream_of(entries)
        inner = seed if seed is None or not stream else int(keyed_generator(seed, stream).integers(2**63))
        server = simulate(protocol, Population(X, y, responses, inner), verbose=self.verbose)
        # Only now: a study that a ledger refuses leaves nothing that looks fitted.
        self.expected_: Expectation = expected
        self.n_iter_ = protocol.n_rounds
        self.n_answers_ = server.accepted
        self.privacy_: PrivacyReport = billing.report(
            protocol,
            self._describe(protocol),
            X.shape[0],
            server.accepted,
            seeded=seed is not None,
            simulated=True,
            labels_published=getattr(self, "classes", ()) is None,
            preparation=preparation,
        )
        self.privacy_ = replace(self.privacy_, billed=describe_entries(entries))
        return server

    def _describe(self, protocol: Protocol) -> str:
        raise NotImplementedError

    def _keep(self, weights: FloatArray) -> None:
        self.coef_, self.intercept_ = self._shape_weights(weights)
        self.support_ = np.flatnonzero(np.any(np.atleast_2d(self.coef_) != 0, axis=0))

    @staticmethod
    def _nonzero(wanted: Any, n_features: int) -> int:
        check_count("n_nonzero", wanted, 1)
        return int(min(wanted, n_features))


class LocalClassifier(LinearClassifier):
    """Classes by the sign of a margin, or by the largest; probabilities of a logistic model."""

    classes: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a few hundred users are far too few
        return tags

    def _checked_classes(self, X: Any, y: Any) -> tuple[Any, npt.NDArray[Any], npt.NDArray[np.intp]]:
        """The rows, the classes and the number of each user's class; 0 for a class that was not declared."""
        rows, labels = self._check_to_fit(X, y)
        classes = classes_of(self, lambda: labels)
        # Everybody answers, for silence would say something.
        numbers = np.maximum(encode_labels(labels, classes), 0).astype(np.intp)
        return rows.tocsr() if hasattr(rows, "tocsr") else rows, classes, numbers

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class."""
        check_is_fitted(self)
        return self._respond(X, _probabilities, columns=self.classes_.tolist())

    def predict_log_proba(self, X: Any) -> Any:
        """The logarithm of the probability of each class."""
        return np.log(self.predict_proba(X))


def _probabilities(margins: FloatArray) -> FloatArray:
    two = margins.shape[1] == 1
    return np.hstack([expit(-margins), expit(margins)]) if two else np.asarray(softmax(margins, axis=1))


def _values(response: Response, margins: FloatArray) -> FloatArray:
    return np.asarray(response.value(margins[:, 0]))


class LocalRegressor(RegressorMixin, LocalModel):
    """Numbers by a response function of a margin."""

    response: str | Response

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a few hundred users are far too few
        return tags

    def _shape_weights(self, weights: FloatArray) -> tuple[FloatArray, Any]:
        return weights[:-1, 0].copy(), float(weights[-1, 0])

    def predict(self, X: Any) -> Any:
        """The predicted label of each row."""
        return self._respond(X, self._answer())

    def _answer(self) -> Callable[[FloatArray], FloatArray]:
        return partial(_values, resolve_response(self.response))

    def _checked_numbers(self, X: Any, y: Any) -> tuple[Any, FloatArray]:
        rows, labels = self._check_to_fit(X, y)
        return rows.tocsr() if hasattr(rows, "tocsr") else rows, read_finite_numbers(labels, "y")
