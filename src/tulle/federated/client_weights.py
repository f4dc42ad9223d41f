"""Weights p_i of clients: public, positive, with sum 1. Their rows need not count alike."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from tulle.trusted.curator import summation_slack
from tulle.trusted.plan import is_number


def check_weights(weights: Any) -> dict[str, float]:
    """Weights by client; raise unless they are positive and add up to 1."""
    if not isinstance(weights, Mapping) or not weights:
        raise ValueError(f"weights of clients must be a mapping of their names to numbers > 0, got {weights!r}")
    for name, weight in weights.items():
        if not (is_number(weight) and 0 < weight <= 1):
            raise ValueError(f"the weight of client {name!r} must lie in (0, 1], got {weight!r}")
    if not math.isclose(math.fsum(weights.values()), 1.0, rel_tol=1e-9):
        raise ValueError(f"the weights of clients must add up to 1, not {math.fsum(weights.values()):.10g}")
    return {str(name): float(weight) for name, weight in weights.items()}


def check_all_weighted(weights: Mapping[str, float], clients: Collection[str]) -> None:
    """Raise unless exactly these clients have a weight."""
    if set(weights) != set(clients):
        raise ValueError(
            f"weights are for clients {', '.join(sorted(weights))}, and those that take part are "
            f"{', '.join(sorted(clients))}; give each of them a weight"
        )


def weigh_sums(weights: Mapping[str, float], sizes: Mapping[str, int]) -> tuple[int, dict[str, float]]:
    """What sums of weighted clients are divided by, and a factor in (0, 1] for each client's exact sums.

    Wanted is the mean sum_i p_i (sum over the rows of client i) / n_i. With N = floor(min n_i / p_i) and factors
    f_i = N p_i / n_i <= 1 it is (sum_i f_i × sum of client i) / N. Replace-one: a row adds f_i times what it adds to a
    plain sum, so no more than a clipped row may add, and replacing it moves the mean by at most 2 C f_i / N =
    2 C p_i / n_i, where a query of N rows states 2 C / N >= 2 C max p_i / n_i. Methods, mechanisms and noise are those
    of N rows. Rounding: the curator allows for sums of N rows, and there are more; factors are reduced by the
    difference, which includes two more roundings for the product.
    """
    total = sum(sizes.values())
    counted = math.floor(min(sizes[name] / weight for name, weight in weights.items()) * (1 + 1e-12))
    counted = max(1, min(counted, total))
    rounding = 1.0 if counted == total else summation_slack(counted) / summation_slack(total + 2)
    return counted, {name: min(1.0, counted * weight / sizes[name]) * rounding for name, weight in weights.items()}
