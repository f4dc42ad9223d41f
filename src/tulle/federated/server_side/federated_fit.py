"""What a study gave: its weights, its rounds, its clients and its promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.linear_study import LinearTerms
from tulle.federated.messages import Enrolled
from tulle.federated.server_side.linear_model_of_study import make_linear_model
from tulle.federated.terms import Terms
from tulle.reports.report import PrivacyReport


@dataclass(frozen=True)
class RoundRecord:
    """What became of a round.

    Attributes
    ----------
    number : int
        From 1.
    answered : tuple of str
        The clients whose answers counted.
    missing : tuple of str
        Enrolled clients that were gone, late or refused.
    rejected : dict of str to int
        Messages that did not count, by reason.
    seconds : float
    bytes_received : int
        Of all answers that counted.
    """

    number: int
    answered: tuple[str, ...]
    missing: tuple[str, ...]
    rejected: dict[str, int]
    seconds: float
    bytes_received: int


@dataclass(frozen=True, eq=False)
class FederatedFit:
    """What a study gave.

    Attributes
    ----------
    terms : Terms
    weights : SparseWeights
        As the study remembers them; the last line is the intercept, times its constant column, where there is one.
    rounds : tuple of RoundRecord
        Of this run of the server.
    clients : tuple of Enrolled
        Who enrolled, and what each promised its own people.
    privacy : PrivacyReport
        The promise to everybody: the largest of the clients' promises, since each person is at one client.
    """

    terms: Terms
    weights: SparseWeights
    rounds: tuple[RoundRecord, ...]
    clients: tuple[Enrolled, ...]
    privacy: PrivacyReport

    def model(self) -> Any:
        """The fitted estimator of a linear study, to predict with and to save.

        Returns
        -------
        SparseClassifier or SparseRegressor
        """
        linear = self.terms.model
        if not isinstance(linear, LinearTerms):
            raise TypeError(
                "the study fitted a network; tulle.federated.client_side.network_study.network_of makes a module of it"
            )
        dense, d = self.weights.to_dense(), linear.n_features
        constant = linear.intercept_value * dense[d:] if linear.fit_intercept else np.zeros((1, dense.shape[1]))
        terms, weights = self.terms, np.vstack([dense[:d], constant])
        return make_linear_model(
            linear, terms.budget, terms.n_nonzero, weights, terms.steps, self._passes(), self.privacy
        )

    def _passes(self) -> float:
        """About how often each row was read, of the client that read its rows most often."""
        terms = self.terms
        return max(
            (
                (terms.steps * client.batch + terms.rounds * terms.count_snapshot_rows(client.n_rows)) / client.n_rows
                for client in self.clients
            ),
            default=0.0,
        )
