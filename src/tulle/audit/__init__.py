"""Lower bounds on epsilon by attack: what a mechanism, a model or your own function gives away at least.

Accounting proves from above, an audit shows from below. An audited epsilon above the claimed one is a proof, at the
stated confidence, that the claim is false; one below it proves only that this attack, with this many runs, found
no leak.

>>> from tulle.audit import audit_mechanism
>>> from tulle.trusted.events import NoisePerSensitivity
>>> from tulle.trusted.mechanisms import Gaussian
>>> result = audit_mechanism(Gaussian(NoisePerSensitivity(3.73)), delta=1e-5, claimed=1.0, runs=200_000, seed=0)
>>> result.refuted
False
"""

from tulle.accounting.bounds_from_counts import (
    best_possible,
    clopper_pearson,
    epsilon_lower_bound,
    mu_lower_bound,
    range_lower_bound,
)
from tulle.audit.channel_audit import audit_channel
from tulle.audit.estimator_audit import audit_estimator
from tulle.audit.first_runs import TargetError
from tulle.audit.mechanism_audit import audit_mechanism
from tulle.audit.neighbours import Pair, even_lead, worst_case_pairs
from tulle.audit.one_run import audit_one_run, one_run_bound
from tulle.audit.one_run_model import audit_model_in_one_run
from tulle.audit.one_run_power import OneRunPower, one_run_power
from tulle.audit.power import Power, expected_power
from tulle.audit.replay import ReplayResult, replay
from tulle.audit.result import AuditResult
from tulle.audit.sequential import SequentialResult, audit_sequentially
from tulle.audit.sequential_targets import (
    audit_channel_sequentially,
    audit_estimator_sequentially,
    audit_mechanism_sequentially,
    audit_model_sequentially,
)
from tulle.audit.targets import audit_function, audit_model

__all__ = [
    "AuditResult",
    "OneRunPower",
    "Pair",
    "Power",
    "ReplayResult",
    "SequentialResult",
    "TargetError",
    "audit_channel",
    "audit_channel_sequentially",
    "audit_estimator",
    "audit_estimator_sequentially",
    "audit_function",
    "audit_mechanism",
    "audit_mechanism_sequentially",
    "audit_model",
    "audit_model_in_one_run",
    "audit_model_sequentially",
    "audit_one_run",
    "audit_sequentially",
    "best_possible",
    "clopper_pearson",
    "epsilon_lower_bound",
    "even_lead",
    "expected_power",
    "mu_lower_bound",
    "one_run_bound",
    "one_run_power",
    "range_lower_bound",
    "replay",
    "worst_case_pairs",
]
