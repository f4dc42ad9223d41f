"""Audits in one run: the bound against exact worst cases, false alarms, power, and targets that fail."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable
from decimal import Decimal, getcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from pages import ROOT
from scipy.optimize import brentq, linprog
from scipy.special import ndtr, ndtri
from scipy.stats import binom
from sklearn.base import clone

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import AuditResult, TargetError, audit_model_in_one_run, audit_one_run, one_run_bound, one_run_power
from tulle.audit.claimed_curves import ClaimedCurve, GaussianClaim, Profile, RangeClaim
from tulle.audit.one_run import one_run_p_value
from tulle.audit.one_run_tails import Lines, _equalised, are_refuted, fewest_right, tail_bound, touching_lines
from tulle.audit.own_ledger import AuditLedger
from tulle.methods.loss_functions import Softmax
from tulle.reports.pages import audit_page

DELTA = 1e-5
CLAIMS = {
    "mu 1": GaussianClaim(1.0),
    "mu 0.4": GaussianClaim(0.4),
    "epsilon": Profile(((1.0, 0.0),)),
    "epsilon, delta": Profile(((1.0, 0.05),)),
    "two pairs": Profile(((0.3, 0.1), (1.0, 0.02))),
    "range": RangeClaim(1.5),
}


def few_lines(claim: ClaimedCurve) -> Lines:
    """Seven lines, so that a linear program knows the same claim."""
    rates = ndtr(np.array([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]))
    slopes = claim.slope(rates)
    lines = np.unique(np.round(np.column_stack([slopes, claim.allowed(rates) - slopes * rates]), 12), axis=0)
    lines = lines[lines[:, 0] > 0]
    return Lines(lines[:, 0], np.maximum(lines[:, 1], 0.0))


def worst_mechanism(m: int, r: int, v: int, lines: Lines) -> float:
    """The largest P(W >= v) over all mechanisms for m rows: a linear program over P(guesses | coins)."""
    coins = list(itertools.product((0, 1), repeat=m))
    guesses = [one for one in itertools.product((0, 1, 2), repeat=m) if sum(guess < 2 for guess in one) == r]
    n = len(guesses)
    pairs = [(a, b) for a, b in itertools.permutations(range(len(coins)), 2) if _apart(coins[a], coins[b]) == 1]
    chosen, size = len(coins) * n, len(coins) * n + len(pairs) * len(lines.slopes) * n
    aim = np.zeros(size)
    for (a, coin), (g, guess) in itertools.product(enumerate(coins), enumerate(guesses)):
        aim[a * n + g] = -(m - _apart(coin, guess) >= v) / len(coins)
    limits, heights = [], []
    for number, ((a, b), (slope, height)) in enumerate(
        itertools.product(pairs, zip(lines.slopes, lines.heights, strict=True))
    ):
        slack = chosen + number * n + np.arange(n)
        ahead = np.zeros((n + 1, size))
        ahead[np.arange(n), a * n + np.arange(n)] = 1
        ahead[np.arange(n), b * n + np.arange(n)] = -slope
        ahead[np.arange(n), slack] = -1
        ahead[n, slack] = 1
        limits.append(sp.csr_array(ahead))
        heights += [0.0] * n + [height]
    whole = sp.csr_array(
        (np.ones(chosen), (np.repeat(np.arange(len(coins)), n), np.arange(chosen))), (len(coins), size)
    )
    return -linprog(aim, sp.vstack(limits), heights, whole, np.ones(len(coins))).fun


def _apart(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(a != b for a, b in zip(one, other))


def worst_symmetric(m: int, r: int, v: int, lines: Lines) -> float:
    """The same over mechanisms that treat all rows and both versions alike, which give as much: averages over the
    exchanges of rows and versions keep every line. Unknown are the P(W = c); rows without a guess tell nothing."""
    n, J = r + 1, len(lines.slopes)
    size = n + 2 * J * r
    aim = np.r_[np.where(np.arange(n) >= v, -1.0, 0.0), np.zeros(2 * J * r)]
    limits, heights = [], []
    for j, (slope, height) in enumerate(zip(lines.slopes, lines.heights, strict=True)):
        for c in range(1, n):
            for side, (for_right, for_wrong) in enumerate(((1.0, -slope), (-slope, 1.0))):
                row = np.zeros(size)
                row[c], row[c - 1] = for_right * c / m, for_wrong * (r - c + 1) / m
                row[n + (2 * j + side) * r + c - 1] = -1
                limits.append(row)
                heights.append(0.0)
        row = np.zeros(size)
        row[n + 2 * j * r : n + 2 * (j + 1) * r] = 1
        limits.append(row)
        heights.append(height - (1 - r / m) * max(1 - slope, 0.0))
    return -linprog(aim, np.array(limits), heights, np.r_[np.ones(n), np.zeros(size - n)][None], [1.0]).fun


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize(("m", "r"), [(1, 1), (2, 2), (2, 1), (3, 3), (3, 2)])
def test_no_mechanism_for_few_rows_beats_the_bound(m: int, r: int, claim: ClaimedCurve) -> None:
    """All mechanisms, however they tie the guesses together; 1e-6 is the solver's precision."""
    lines = few_lines(claim)
    for v in range(1, r + 1):
        worst = worst_mechanism(m, r, v, lines)
        assert worst == pytest.approx(worst_symmetric(m, r, v, lines), abs=1e-6)
        assert worst <= tail_bound(m, r, v, lines) + 1e-6


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize(("m", "r"), [(12, 12), (25, 25), (25, 10)])
def test_the_bound_is_near_the_worst_mechanism(m: int, r: int, claim: ClaimedCurve) -> None:
    """Above it, and for (epsilon, delta) equal to it."""
    lines = few_lines(claim)
    for v in (r // 2, 3 * r // 4, r - 1, r):
        worst, bound = worst_symmetric(m, r, v, lines), tail_bound(m, r, v, lines)
        assert worst <= bound + 1e-6
        if bound > 1e-2:
            assert bound <= 1.15 * worst
        if isinstance(claim, Profile) and len(claim.pairs) == 1:
            assert bound == pytest.approx(worst, abs=1e-6)


def hostile_tail(claim: ClaimedCurve, m: int, r: int, v: int, often: float) -> float:
    """P(W >= v) of a release that shows nothing but with probability `often`, and then r random rows by a randomised
    response as accurate as the claim allows."""
    part = often * r / m
    wrong = brentq(lambda b: float(claim.allowed(np.array(b))) - (part - b), 1e-12, part / 2)
    return float(often * binom.sf(v - 1, r, 1 - wrong / part) + (1 - often) * binom.sf(v - 1, r, 0.5))


@pytest.mark.parametrize("claim", [GaussianClaim(1.0), GaussianClaim(0.3), RangeClaim(2.0)], ids=repr)
@pytest.mark.parametrize(("m", "r"), [(200, 200), (200, 40)])
def test_hostile_releases_stay_below_the_bound(m: int, r: int, claim: ClaimedCurve) -> None:
    lines = touching_lines(claim)
    for v in np.linspace(0.55, 1, 6) * r:
        bound = tail_bound(m, r, int(v), lines)
        assert max(hostile_tail(claim, m, r, int(v), often) for often in (0.01, 0.05, 0.2)) <= bound
    # And the bound cannot be much smaller: a few right guesses less than refute, and hostile releases have them.
    (fewest,) = fewest_right(m, [r], 0.05, lines)
    often = np.linspace(0.02, 0.15, 14)
    assert fewest > r or max(hostile_tail(claim, m, r, int(0.95 * fewest) - 1, one) for one in often) > 0.03


@pytest.mark.parametrize("span", [0.0, 1e-9, 1e-6, 1e-4, 0.01, 1.0, 6.9, 20.0])
def test_lines_lie_above_the_curve_of_a_range_to_the_last_digit(span: float) -> None:
    """The largest F(q) - k q is (sqrt(E) - sqrt(k))^2 / (E - 1), E = e^span, by 50 digits."""
    getcontext().prec = 50
    lines = touching_lines(RangeClaim(span))
    most = Decimal(span).exp()
    for slope, height in zip(lines.slopes.tolist(), lines.heights.tolist()):
        k = Decimal(slope)
        needed = max(Decimal(0), 1 - k)  # at q = 0 and q = 1
        if 1 / most <= k <= most and span > 0:
            needed = max(needed, (most.sqrt() - k.sqrt()) ** 2 / (most - 1))
        assert Decimal(height) >= needed


def test_independent_and_common_noise_stay_below_the_bound() -> None:
    """Each row with noise of its own, and one noisy sum by which all rows are guessed alike."""
    m, mu = 60, 1.0
    lines = touching_lines(GaussianClaim(mu))
    ones = np.arange(m + 1)
    for v in range(31, m + 1, 3):
        bound = tail_bound(m, m, v, lines)
        assert binom.sf(v - 1, m, ndtr(mu / 2)) <= bound
        above = ndtr(mu * (ones - m / 2))  # that the noisy sum is above m / 2
        right = above * (ones >= v) + (1 - above) * (m - ones >= v)
        assert binom.pmf(ones, m, 0.5) @ right <= bound


def test_without_delta_the_bound_is_the_binomial_tail() -> None:
    for m, r, v, epsilon in ((40, 40, 30, 0.5), (500, 120, 100, 1.0), (500, 120, 120, 2.0)):
        assert one_run_p_value(m, r, v, epsilon, 0.0) == pytest.approx(
            binom.sf(v - 1, r, 1 / (1 + math.exp(-epsilon))), rel=1e-6
        )


def test_what_a_tail_adds_is_never_rounded_up() -> None:
    """v P(B = v) / P(B >= v) in exact fractions; the tails of the first two are 4e-281 and 1e-287."""
    for r, v, odds in ((302, 271, 0.06948570513803237), (213, 189, 0.021135684902237085), (90, 50, 1.3), (40, 40, 9.0)):
        exact = sum(math.comb(r, w) * Fraction(odds) ** w for w in range(v, r + 1))
        exact = v * math.comb(r, v) * Fraction(odds) ** v / exact
        found = float(_equalised(np.array([[r]]), np.array([[v]]), np.array([[odds]]))[0, 0])
        assert (1 - 1e-8) * exact < found <= exact


def test_lines_lie_above_their_curve() -> None:
    """A line that cuts the curve would refute true claims."""
    rates = np.concatenate([np.geomspace(1e-12, 1e-2, 300), np.linspace(0.01, 1, 300)])
    for claim in CLAIMS.values():
        lines = touching_lines(claim)
        assert np.all(lines.heights[:, None] + np.outer(lines.slopes, rates) >= claim.allowed(rates) * (1 - 1e-12))
        moved = touching_lines(claim, 0.01)
        shifted = claim.allowed(np.minimum(rates + 0.01, 1.0)) + 0.01
        assert np.all(moved.heights[:, None] + np.outer(moved.slopes, rates) >= shifted * (1 - 1e-12))


def test_one_right_guess_more_is_refuted_and_one_less_is_not() -> None:
    lines = touching_lines(GaussianClaim(0.5))
    (fewest,) = fewest_right(500, [100], 0.05, lines)
    assert are_refuted(500, [100] * 2, [fewest - 1, fewest], [0.05] * 2, [lines] * 2) == [False, True]
    assert tail_bound(500, 100, fewest, lines) < 0.05 < tail_bound(500, 100, fewest - 1, lines)
    # All at once, or one by one: entries of a batch do not mix.
    alone = [are_refuted(500, [r], [v], [0.05], [lines]) for r, v in ((100, fewest), (400, 220), (4, 4))]
    assert are_refuted(500, [100, 400, 4], [fewest, 220, 4], [0.05] * 3, [lines] * 3) == [one for (one,) in alone]
    assert tail_bound(500, 100, 0, lines) == 1.0


# --- whole audits ----------------------------------------------------------------------------------------------------

M = 400
VERSIONS = (np.zeros((M, 1)), np.ones(M)), (np.zeros((M, 1)), -np.ones(M))


def own_noise(mu: float) -> Callable[[Any, Any, np.random.Generator], Any]:
    """Each row with noise of its own: mu-GDP."""

    def fit(X: Any, y: Any, rng: np.random.Generator) -> Any:
        return mu * y / 2 + rng.standard_normal(len(y))

    return fit


def all_or_nothing(mu: float, often: float, guesses: int) -> Callable[[Any, Any, np.random.Generator], Any]:
    """mu-GDP: nothing, but with probability `often` some random rows, as accurately as mu allows."""
    part = often * guesses / M
    wrong = brentq(lambda b: ndtr(ndtri(b) + mu) - (part - b), 1e-12, part / 2) / part

    def fit(X: Any, y: Any, rng: np.random.Generator) -> Any:
        if rng.random() > often:
            return np.zeros(len(y))
        # As many of each answer as the audit will guess, where there are so many.
        shown = np.where(rng.random(len(y)) < wrong, -y, y)
        return shown * (rng.permutation(len(y)) < guesses)

    return fit


def audit(fit: Any, seed: int, **words: Any) -> AuditResult:
    arguments = {"delta": DELTA, "judge": "gaussian", "claimed_mu": 0.8, "seed": seed} | words
    return audit_one_run(fit, *VERSIONS, lambda published: published, **arguments)


@pytest.mark.parametrize("release", ["own noise", "all or nothing"])
def test_sound_audits_are_refuted_no_more_often_than_stated(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """400 audits exactly at the claim, confidence 0.9: 40 are allowed on average. More than 64 of 400: probability 1e-4
    if the rate were 0.1."""
    guesses = one_run_power(M, delta=DELTA, claimed_mu=0.8, confidence=0.9).guesses
    fit = own_noise(0.8) if release == "own noise" else all_or_nothing(0.8, 0.1, guesses)
    # The verdict of judge "curve" needs no search for a bound, so that 400 audits take seconds.
    monkeypatch.setattr("tulle.audit.one_run.largest_refuted", lambda *_: 0.0)
    refuted = sum(audit(fit, seed, judge="curve", confidence=0.9).refuted for seed in range(400))
    assert refuted <= 64
    assert release == "own noise" or refuted >= 4  # the bound is near what is possible


def test_a_violation_of_the_stated_size_is_seen_as_often_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stated for 90 % of audits; fewer than 860 of 1,000: probability 3e-5 if the rate were 0.9."""
    power = one_run_power(M, delta=DELTA, claimed_mu=0.8)
    assert power.has_power
    mu = gaussian_mu(power.seen, DELTA)
    monkeypatch.setattr("tulle.audit.one_run.largest_refuted", lambda *_: 0.0)
    seen = sum(audit(own_noise(mu), seed, judge="curve").refuted for seed in range(1_000))
    assert seen >= 860
    assert sum(audit(own_noise(0.6 * mu), seed, judge="curve").refuted for seed in range(100)) < 50


def test_judges_agree_and_the_gaussian_one_proves_more() -> None:
    mu = 2.5
    gaussian, curve, free = (
        audit(own_noise(mu), 1, **words)
        for words in ({}, {"judge": "curve"}, {"judge": "any", "claimed_mu": None, "claimed": 3.0})
    )
    assert gaussian.refuted
    assert curve.refuted
    assert 0.8 < gaussian.mu < mu  # type: ignore[operator]
    assert gaussian.claimed_mu == 0.8
    assert gaussian.guesses == curve.guesses
    power, right = one_run_power(M, delta=DELTA, claimed_mu=0.8), int(curve.attack.split()[2])
    assert curve.excess == (right - power.fewest_right + 1) / power.guesses
    assert gaussian.epsilon > 1.3 * gaussian.epsilon_any  # type: ignore[operator]
    assert curve.epsilon == gaussian.epsilon_any
    assert free.judge == "any"
    assert free.best_possible > free.epsilon > 0
    span = audit(own_noise(mu), 1, judge="bounded_range", claimed_mu=None, claimed_range=1.0, delta=0.0)
    assert span.refuted
    assert span.range > 1  # type: ignore[operator]
    pairs = audit(own_noise(mu), 1, judge="curve", claimed_mu=None, claimed_curve=[(1.0, 0.01), (3.0, 1e-5)])
    assert pairs.refuted
    assert pairs.claimed_curve is not None


def test_the_bound_on_mu_is_refuted_itself_and_little_more_is_not() -> None:
    result = audit(own_noise(2.5), 1)
    right = int(result.attack.split()[2])
    assert result.mu is not None
    lines = [touching_lines(GaussianClaim(result.mu + more)) for more in (0.0, 1e-3)]
    assert are_refuted(M, [result.guesses] * 2, [right] * 2, [0.05] * 2, lines) == [True, False]  # type: ignore[list-item]


def test_guesses_are_fixed_before_the_coins_are_drawn() -> None:
    """The same number for every seed and every release: it is a function of the claim and of the number of rows."""
    power = one_run_power(M, delta=DELTA, claimed_mu=0.8)
    results = [audit(own_noise(mu), seed) for mu, seed in ((0.1, 0), (0.1, 1), (6.0, 2))]
    assert {result.guesses for result in results} == {power.guesses}
    assert audit(own_noise(0.8), 0, guesses=20).guesses == 20


def test_rows_with_one_version_are_no_canaries() -> None:
    """200 of 400 rows differ. Others change nothing but the number of scores."""
    y = np.r_[-np.ones(200), np.ones(200)]
    result = audit_one_run(
        own_noise(50.0), VERSIONS[0], (np.zeros((M, 1)), y), lambda out: out, delta=0.0, claimed=1.0, seed=0
    )
    assert result.runs == 200
    assert result.refuted
    with pytest.raises(ValueError, match="differ in 0 row"):
        audit_one_run(own_noise(1.0), VERSIONS[0], VERSIONS[0], lambda out: out, delta=0.0)


def test_versions_are_drawn_by_fair_coins_row_by_row() -> None:
    """Sparse rows and labels come from the same version; about half of 400 from each (fewer than 150: 3e-7)."""
    seen: list[tuple[Any, Any]] = []
    drawn: list[Any] = []

    def fit(X: Any, y: Any, rng: np.random.Generator) -> Any:
        seen.append((X, y))
        drawn.append(rng.random(M) < 0.5)
        return y

    X = sp.csr_array(sp.eye(M))
    audit_one_run(fit, (X, np.ones(M)), (-X, -np.ones(M)), lambda out: out, delta=0.0, claimed=1.0, seed=3)
    ((rows, y),) = seen
    np.testing.assert_array_equal(rows.diagonal(), y)
    assert 150 < (y == 1).sum() < 250
    assert 150 < (drawn[0] == (y == 1)).sum() < 250  # the fit cannot draw the coins again


def _raise(*_: Any) -> Any:
    raise KeyError("Jane Doe")


@pytest.mark.parametrize(
    ("fit", "score", "message"),
    [
        (_raise, lambda out: out, r"_raise\(X, y, rng\) failed: KeyError \(test_one_run.py"),
        (own_noise(1.0), _raise, "must return one number per row, and failed: KeyError"),
        (own_noise(1.0), lambda out: "no number", "must return one number per row, and failed: ValueError"),
        (own_noise(1.0), lambda out: out[:-1], r"one number per row, 400 in all; it returned shape \(399,\)"),
        (own_noise(1.0), lambda out: out[:, None], r"it returned shape \(400, 1\)"),
        (own_noise(1.0), lambda out: out.sum(), r"it returned shape \(\)"),
        (own_noise(1.0), lambda out: np.where(out > 2, np.nan, out), "returned NaN"),
    ],
)
def test_a_target_or_a_score_that_fails_is_named(fit: Any, score: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        audit_one_run(fit, *VERSIONS, score, delta=0.0, seed=0)
    assert "Jane" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"judge": "gaussian", "claimed": 1.0}, "pass claimed_mu and not claimed"),
        ({"judge": "any", "claimed_mu": 1.0}, "tested by judge='gaussian'"),
        ({"judge": "curve", "claimed_curve": lambda a: 1 - a}, "slope of a curve that is a function"),
        ({"guesses": 30.0}, "guesses must be an even number"),
        ({"guesses": 402}, "guesses must be an even number"),
        ({"claimed": -1.0}, "epsilon in"),
        ({"confidence": 1.0}, "confidence must lie"),
    ],
)
def test_bad_settings_are_refused_before_the_run(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit_one_run(_raise, *VERSIONS, lambda out: out, **({"delta": DELTA} | words))


# --- power -----------------------------------------------------------------------------------------------------------


def test_power_is_stated_before_the_run_and_in_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    result = audit(own_noise(0.8), 0, verbose=1)
    assert capsys.readouterr().err == f"power: {result.power}\n"
    assert result.power is not None
    assert "400 canaries" in str(result)
    assert str(result.power) in str(result)
    assert AuditResult.from_dict(result.to_dict()).power == result.power


def test_more_canaries_see_smaller_violations_and_too_few_see_none() -> None:
    seen = [one_run_power(m, delta=DELTA, claimed=1.0).seen for m in (100, 400, 1_600)]
    assert seen == sorted(seen, reverse=True)
    assert one_run_power(100, delta=DELTA, claimed_mu=gaussian_mu(1.0, DELTA)).seen < seen[0]
    few = one_run_power(10, delta=DELTA, claimed=4.0)
    assert few.seen == math.inf
    assert "is not refuted, for any noise" in str(few)
    assert "no power" in few.shortfall
    assert few.fewest_right == few.guesses + 1
    assert one_run_power(400, delta=0.0, claimed=1.0).release == "randomised response"
    nothing = one_run_power(400, delta=0.0)
    assert nothing.claimed is None
    assert nothing.guesses == 2 * (400 // 6)
    for words, message in (({"canaries": 1}, "canaries"), ({"chance": 1.0}, "chance"), ({"delta": 1.0}, "delta")):
        with pytest.raises(ValueError, match=message):
            one_run_power(**({"canaries": 10, "delta": 0.0} | words))  # type: ignore[arg-type]


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [SparseClassifier, SparseRegressor])
def test_a_sound_model_passes_and_one_with_too_little_noise_does_not(model: Any) -> None:
    made = model(epsilon=2.0, delta=DELTA, bounds=Bounds(row_l2=1.0, label=1.0))
    sound = audit_model_in_one_run(made, judge="gaussian", canaries=500, seed=0)
    assert not sound.refuted
    assert 0 < sound.mu < sound.claimed_mu  # type: ignore[operator]
    assert sound.claimed == pytest.approx(2.0, rel=1e-4)
    assert sound.pair.startswith(model.__name__)
    # The fit has the noise of epsilon = 100 and the claim that of 2.
    loud = model(epsilon=100.0, delta=DELTA, bounds=Bounds(row_l2=1.0, label=1.0))
    assert audit_model_in_one_run(loud, judge="gaussian", claimed_mu=sound.claimed_mu, canaries=500, seed=0).refuted


def test_a_model_with_few_weights_is_guessed_where_it_has_weights() -> None:
    model = SparseClassifier(
        epsilon=20.0, delta=DELTA, n_nonzero=40, method="hard_thresholding", bounds=Bounds(row_l2=1.0)
    )
    result = audit_model_in_one_run(model, canaries=300, seed=0)
    assert result.guesses == 40
    assert not result.refuted
    assert audit_model_in_one_run(model, claimed=0.1, canaries=300, seed=0).refuted


def test_several_classes_and_estimated_bounds_are_audited_by_epsilon() -> None:
    softmax = SparseClassifier(epsilon=4.0, delta=DELTA, loss=Softmax(3), bounds=Bounds(row_l2=1.0))
    assert not audit_model_in_one_run(softmax, canaries=120, seed=0).refuted
    assert audit_model_in_one_run(clone(softmax).set_params(epsilon=200.0), claimed=1.0, canaries=120, seed=0).refuted
    assert not audit_model_in_one_run(SparseRegressor(epsilon=4.0, delta=DELTA), canaries=120, seed=0).refuted
    for change, message in (({"epsilon": None}, "without a budget"), ({}, "canaries must be")):
        with pytest.raises(ValueError, match=message):
            audit_model_in_one_run(SparseRegressor(**({"epsilon": 1.0} | change)), canaries=1)


def test_a_fit_that_refuses_its_rows_is_a_target_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AuditLedger, "bill", _raise)
    model = SparseClassifier(epsilon=1.0, delta=DELTA, bounds=Bounds(row_l2=1.0))
    with pytest.raises(TargetError, match=r"SparseClassifier.fit\(X, y, rng\) failed: KeyError"):
        audit_model_in_one_run(model, canaries=30)


# --- pages -----------------------------------------------------------------------------------------------------------


def test_a_result_has_a_page_and_refuses_a_picture(tmp_path: Path) -> None:
    for words in ({}, {"judge": "curve"}, {"judge": "any", "claimed_mu": None, "claimed": 1.0}):
        result = audit(own_noise(2.5), 1, **words)
        page = audit_page(result.to_dict())
        assert "one, with 400 canaries" in page
        assert "has no curve" in page
        assert "more of them may find a violation" in page
        with pytest.raises(ValueError, match="has no curve to draw"):
            result.plot(tmp_path / "audit.png")
    assert "above what the claim allows" not in str(audit(own_noise(2.5), 1, judge="curve"))
    with pytest.raises(ValueError, match="no audit can have these values"):
        AuditResult.from_dict(audit(own_noise(1.0), 0).to_dict() | {"guesses": M + 1})


def test_the_page_has_the_numbers_of_the_benchmark() -> None:
    """Two lines of its tables, made anew; the others take minutes."""
    spec = importlib.util.spec_from_file_location("audit_one_run", ROOT / "benchmarks" / "audit_one_run.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    for line in (benchmark.closeness(1_000, 1.0), benchmark.false_alarms(1_000, 1.0)):
        assert f"\n{line}\n" in text


def test_the_public_bound_is_that_of_judge_any() -> None:
    result = audit(own_noise(2.5), 1, judge="any", claimed_mu=None, guesses=100)
    right = int(result.attack.split()[2])
    assert result.epsilon == one_run_bound(M, 100, right, DELTA, 0.95)
