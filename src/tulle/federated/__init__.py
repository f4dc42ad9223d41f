"""Federated learning: hospitals that keep their rows.

Three trust models. *Curious server*: every client draws its own noise and sends noisy models (`Client`, `Server`).
*Masked sums*: clients share the noise of one data set and mask what they send, so that the server can read sums over
all clients and nothing else (`Client`, `MaskedServer`). *Trusted aggregator*: clients send clipped sums, and the server
adds the noise once (`tulle.federated.server_side.aggregator`). `tulle.federated.server_side.grpc_link` connects them
over gRPC with certificates, `tulle.federated.server_side.flower` over a Flower SuperLink;
`tulle.federated.client_side.network_study` fits PyTorch models.
"""

from __future__ import annotations

from tulle.federated.client_side.client import Client
from tulle.federated.client_side.client_identity import ClientIdentity
from tulle.federated.client_side.linear_study import LinearTerms, linear_terms
from tulle.federated.masked_terms import MaskedTerms
from tulle.federated.messages import RefusedError
from tulle.federated.server_side.federated_fit import FederatedFit, RoundRecord
from tulle.federated.server_side.masked_server import MaskedFit, MaskedServer
from tulle.federated.server_side.masked_simulation import simulate_masked
from tulle.federated.server_side.server import Server, StudyStoppedError
from tulle.federated.server_side.simulation import simulate
from tulle.federated.terms import Terms

__all__ = [
    "Client",
    "ClientIdentity",
    "FederatedFit",
    "LinearTerms",
    "MaskedFit",
    "MaskedServer",
    "MaskedTerms",
    "RefusedError",
    "RoundRecord",
    "Server",
    "StudyStoppedError",
    "Terms",
    "linear_terms",
    "simulate",
    "simulate_masked",
]
