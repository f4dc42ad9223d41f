"""Audits in one run: how close to the claim they come, which violations they see, and their false alarms.

Canaries are rows with independent Gaussian noise, each with exactly the claimed mu; every bound is that of the median
number of right guesses. Hostile releases keep the claim and make guesses depend on each other. Prints Markdown tables.

    python benchmarks/audit_one_run.py            # some minutes
    python benchmarks/audit_one_run.py --quick    # 1,000 canaries only
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from tulle import Bounds, SparseClassifier
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import audit_model_in_one_run, one_run_bound, one_run_power
from tulle.audit.claimed_curves import GaussianClaim
from tulle.audit.one_run_tails import largest_refuted
from tulle.trusted.gaussian import gaussian_epsilon

DELTA, CONFIDENCE, REPEATS = 1e-5, 0.95, 400
EPSILONS = (0.5, 1.0, 2.0, 4.0)


def gaussian_right(mu: float, canaries: int, guesses: int, rng: np.random.Generator) -> int:
    """Right guesses of one run in which every canary has noise of its own."""
    coins = rng.random(canaries) < 0.5
    order = np.argsort(mu * coins + rng.standard_normal(canaries))
    half = guesses // 2
    return int(coins[order[-half:]].sum() + (~coins[order[:half]]).sum())


def sum_right(mu: float, canaries: int, guesses: int, rng: np.random.Generator) -> int:
    """The same where one noisy sum of all coins is released: all guesses are alike."""
    coins = rng.random(canaries) < 0.5
    most = coins.sum() + rng.standard_normal() / mu > canaries / 2
    return int((coins[:guesses] == most).sum())


def hostile_right(mu: float, canaries: int, guesses: int, rng: np.random.Generator, often: float = 0.05) -> int:
    """The same where nothing is released but with probability `often`, and then as much as mu-GDP allows."""
    part = often * guesses / canaries
    wrong = brentq(lambda b: ndtr(ndtri(b) + mu) - (part - b), 1e-300, part / 2)
    return int(rng.binomial(guesses, 1 - wrong / part if rng.random() < often else 0.5))


def published_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Steinke, Nasr and Jagielski (2023), theorem 5.2, for comparison."""
    rate = 1 / (1 + math.exp(-epsilon))
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, rate))
    worst = float(np.max(below / np.arange(1, right + 1), initial=0.0))
    return float(binom.sf(right - 1, guesses, rate)) + 2 * canaries * delta * worst


def published_bound(canaries: int, guesses: int, right: int) -> float:
    if published_p_value(canaries, guesses, right, 0.0, DELTA) > 1 - CONFIDENCE:
        return 0.0
    excess = lambda epsilon: published_p_value(canaries, guesses, right, epsilon, DELTA) - (1 - CONFIDENCE)  # noqa: E731
    return float(brentq(excess, 0.0, 40.0))


def median_right(mu: float, canaries: int, guesses: int) -> int:
    return int(np.median([gaussian_right(mu, canaries, guesses, np.random.default_rng(s)) for s in range(101)]))


def closeness(canaries: int, epsilon: float) -> str:
    mu = gaussian_mu(epsilon, DELTA)
    third = 2 * (canaries // 6)
    in_third = median_right(mu, canaries, third)
    published = published_bound(canaries, third, in_third)
    same_guesses = one_run_bound(canaries, third, in_third, DELTA, CONFIDENCE)
    free = one_run_power(canaries, delta=DELTA, claimed=epsilon)
    any_law = one_run_bound(canaries, free.guesses, median_right(mu, canaries, free.guesses), DELTA, CONFIDENCE)
    power = one_run_power(canaries, delta=DELTA, claimed_mu=mu)
    right = median_right(mu, canaries, power.guesses)
    found = largest_refuted(canaries, power.guesses, right, 1 - CONFIDENCE, GaussianClaim, 40.0)
    shares = [value / epsilon for value in (published, same_guesses, any_law, gaussian_epsilon(found, DELTA))]
    cells = [f"{canaries:,}", f"{epsilon:g}", f"{mu:.3f}", *(f"{share:.2f}" for share in shares)]
    cells += [f"{free.guesses:,}, {power.guesses:,}", f"{free.seen:.2f}", f"{power.seen:.2f}"]
    return f"| {' | '.join(cells)} |"


def false_alarms(canaries: int, epsilon: float) -> str:
    mu = gaussian_mu(epsilon, DELTA)
    power = one_run_power(canaries, delta=DELTA, claimed_mu=mu)
    releases: tuple[Callable[..., int], ...] = (gaussian_right, sum_right, hostile_right)
    counts = [
        sum(
            release(mu, canaries, power.guesses, np.random.default_rng((seed, number))) >= power.fewest_right
            for seed in range(REPEATS)
        )
        for number, release in enumerate(releases)
    ]
    return f"| {canaries:,} | {epsilon:g} | {' | '.join(map(str, counts))} |"


def model_row(canaries: int, epsilon: float) -> str:
    model = SparseClassifier(epsilon=epsilon, delta=DELTA, bounds=Bounds(row_l2=1.0))
    found = audit_model_in_one_run(model, judge="gaussian", canaries=canaries, seed=0)
    right = found.attack.removeprefix("one run, ").removesuffix(" guesses right")
    cells = [f"{canaries:,}", f"{epsilon:g}", right, f"{found.epsilon:.2f}", f"{found.epsilon_any:.2f}"]
    return f"| {' | '.join([*cells, 'yes' if found.refuted else 'none found'])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    sizes = (1_000,) if parser.parse_args().quick else (1_000, 10_000)
    warnings.simplefilter("ignore")
    print(f"Audited ε / claimed ε, Gaussian canaries at the claim, δ = {DELTA:g}, confidence {CONFIDENCE:g}\n")
    heads = "2023 bound | any, same guesses | any | gaussian | guesses | seen, any | seen, gaussian"
    print(f"| canaries | claimed ε | claimed μ | {heads} |")
    print("| --- " * 10 + "|")
    for canaries in sizes:
        for epsilon in EPSILONS:
            print(closeness(canaries, epsilon), flush=True)
    print(f"\nFalse alarms of {REPEATS} sound audits, judge gaussian ({REPEATS * (1 - CONFIDENCE):.0f} are allowed)\n")
    print("| canaries | claimed ε | own noise | one sum | hostile |")
    print("| --- " * 5 + "|")
    for canaries in sizes:
        for epsilon in EPSILONS:
            print(false_alarms(canaries, epsilon), flush=True)
    print("\n`SparseClassifier` with defaults, one fit, judge gaussian\n")
    print("| canaries | claimed ε | right guesses | audited ε | the same, any | violation |")
    print("| --- " * 6 + "|")
    for canaries in (*sizes[:1], 5_000, *sizes[1:]):
        for epsilon in (1.0, 4.0):
            print(model_row(canaries, epsilon), flush=True)


if __name__ == "__main__":
    main()
