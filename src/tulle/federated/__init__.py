"""Federated learning: hospitals that keep their rows.

Two trust models. *Curious server*: every client draws its own noise and sends noisy models (`Client`, `Server`).
*Trusted aggregator*: clients send clipped sums, and the server adds the noise once
(`tulle.federated.server_side.aggregator`). `tulle.federated.server_side.flower` connects them over Flower,
`tulle.federated.client_side.network_study` fits PyTorch models.
"""

from __future__ import annotations

from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import LinearTerms, linear_terms
from tulle.federated.messages import RefusedError
from tulle.federated.server_side.server import FederatedFit, RoundRecord, Server, StudyStoppedError
from tulle.federated.server_side.simulation import simulate
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
