"""Federated learning: hospitals that keep their rows.

Two trust models. *Curious server*: every client draws its own noise and sends noisy models (`Client`, `Server`).
*Trusted aggregator*: clients send clipped sums, and the server adds the noise once (`tulle.federated.aggregator`).
`tulle.federated.flower` connects them over Flower, `tulle.federated.network` fits PyTorch models.
"""

from __future__ import annotations

from tulle.federated.client import Client
from tulle.federated.linear import LinearTerms, linear_terms
from tulle.federated.messages import RefusedError
from tulle.federated.server import FederatedFit, RoundRecord, Server, StudyStoppedError
from tulle.federated.simulation import simulate
from tulle.federated.terms import Terms

__all__ = [
    "Client",
    "FederatedFit",
    "LinearTerms",
    "RefusedError",
    "RoundRecord",
    "Server",
    "StudyStoppedError",
    "Terms",
    "linear_terms",
    "simulate",
]
