"""The budget that an estimator is given: in epsilon, in rho, or none."""

from __future__ import annotations

import warnings

from tulle.accounting.calibration import default_delta
from tulle.accounting.zcdp import AnyBudget
from tulle.files.error_messages import PrivacyWarning
from tulle.methods.parameter_checks import to_python_number
from tulle.trusted.plan import Budget


def read_budget(epsilon: float | None, delta: float | None, rho: float | None, n_rows: int) -> Budget | None:
    """The budget of a fit to so many rows; None without privacy. Warns of a delta that allows publishing a row."""
    # As Python's own numbers, which error messages quote.
    epsilon, delta, rho = map(to_python_number, (epsilon, delta, rho))
    delta = default_delta(n_rows) if delta is None else delta
    budget: Budget
    if rho is not None:
        if epsilon is None or epsilon != 1.0:  # 1.0: left at its default
            raise ValueError(f"the budget is in epsilon or in rho, got epsilon={epsilon!r} and rho={rho!r}; omit one")
        budget = AnyBudget(rho=rho, delta=delta)
    elif epsilon is None:
        return None
    else:
        budget = Budget(epsilon, delta)
    if delta >= 1 / n_rows:
        warnings.warn(
            f"delta = {delta:g} is not below 1 / (number of rows) = {1 / n_rows:.3g}: such a guarantee would "
            "allow publishing a row chosen at random; use delta=None or a much smaller value",
            PrivacyWarning,
            stacklevel=6,
        )
    return budget
