"""Pairs that move every release by its sensitivity, and the likelihood ratio of all answers on the bill."""

from __future__ import annotations

import importlib.util
import math
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.accounting.bounds_from_counts import mu_lower_bound, mu_of_right_guesses, range_of_right_guesses
from tulle.audit import Pair, audit_channel, audit_model, worst_case_pairs
from tulle.audit.attacks import strongest_verdict
from tulle.audit.judges import GaussianCurve
from tulle.audit.likelihood import KnownWorlds
from tulle.audit.targets import _ModelRuns
from tulle.backends.known_bounds import KnownBounds
from tulle.estimators.request import FitRequest, PlannedFit
from tulle.fast.sparse_weights import SparseWeights
from tulle.local.user_side.label_randomisers import GaussianLabel
from tulle.methods import FrankWolfe, HardThresholding
from tulle.methods.base import RowSplit
from tulle.methods.gradient_queries import BatchGradient, ClippedGradient
from tulle.methods.loss_functions import Logistic, Squared
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian, Mechanism, SampledGaussian, TopK
from tulle.trusted.objectives import Minimiser
from tulle.trusted.plan import Budget, Plan, Release
from tulle.trusted.queries import Magnitudes, Query
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import Sampling

ROOT = Path(__file__).resolve().parents[2]
DELTA = 1e-5
HELD = "a row at the bound with either label, others hold its weight"
LIFTED = "a row that raises one score and lowers all others, others hold weights"
OPPOSITE = "opposite labels on a row at the bound"
ONE_STEP = HardThresholding(noise="gaussian", n_iter=1, damping=0.0)
BOUNDS = Bounds(row_linf=1.0, label=1.0)


def ready_pair(loss: Any, name: str, n_rows: int, n_features: int, persons: int = 1) -> Pair:
    known = KnownBounds(1.0, 1.0, 1.0, False)
    made = worst_case_pairs(loss, known, n_rows, n_features, rows_per_person=persons)
    (pair,) = [one for one in made if one.name == name]
    return pair


def facts(loss: Any, pair: Pair, persons: int = 1) -> PublicFacts:
    n, d = pair.X.shape
    return PublicFacts(n, d, 1, loss, Budget(1.0, DELTA), 1.0, 1.0, 1.0, False, persons)


def worlds_of(pair: Pair) -> tuple[Rows, Rows]:
    first, second = (Rows(X.copy(), y.copy()) for X, y in (pair.world(0), pair.world(1)))
    return first, second


def known_worlds(mechanism: Mechanism, public: PublicFacts, pair: Pair) -> KnownWorlds:
    return KnownWorlds(PlannedFit(public, ONE_STEP, Plan((Release("x", mechanism, 1),))), worlds_of(pair))


def exact(known: KnownWorlds, query: Query) -> list[Any]:
    return [ask("x", query) for ask in known._everybody]


# --- pairs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Squared(), Logistic()])
@pytest.mark.parametrize("persons", [1, 3])
def test_a_mean_gradient_moves_by_its_sensitivity(loss: Any, persons: int) -> None:
    """At weights 0, and at weights that noise has moved a little: the slopes of the person's rows stay at the clip."""
    pair = ready_pair(loss, HELD, 8, 1, persons)
    public = facts(loss, pair, persons)
    known = known_worlds(Gaussian(), public, pair)
    for weight in (0.0, 0.1):
        query = ClippedGradient(np.array([[weight]]), 0.25, "l2", 0.0)
        first, second = exact(known, query)
        allowed = query.resolve(public).sensitivity(public).l2
        assert np.linalg.norm(first - second) == pytest.approx(allowed, rel=0.01)


@pytest.mark.parametrize(("loss", "clip"), [(Squared(), 0.25), (Logistic(), 0.25), (Logistic(), 0.5)])
def test_the_gradient_at_a_minimiser_moves_by_its_sensitivity(loss: Any, clip: float) -> None:
    """What objective perturbation hides: where 400 rows hold the weight, at several minimisers."""
    pair = ready_pair(loss, HELD, 400, 1)
    public = facts(loss, pair)
    query = Minimiser(np.array([0]), clip, 1.0, 1.0, np.zeros(1))
    objectives = exact(known_worlds(Gaussian(), public, pair), query)
    moves = query.sensitivity(public).objective
    assert moves is not None
    for noise in (-1.0, 0.0, 1.0):
        theta = objectives[0].minimise(np.array([noise]))
        gradients = [one.parts.sum(partial(one.terms.gradient, theta=theta), np.zeros(1)) for one in objectives]
        assert abs(gradients[0] - gradients[1])[0] == pytest.approx(moves.gradient, rel=0.01)


@pytest.mark.parametrize("n_features", [2, 20])
def test_one_score_rises_and_all_others_fall_by_the_sensitivity(n_features: int) -> None:
    pair = ready_pair(Logistic(), LIFTED, 40, n_features)
    public = facts(Logistic(), pair)
    flat = float(np.abs(pair.X[0]).max())
    public = PublicFacts(**{**vars(public), "row_linf": flat})
    query = Magnitudes(ClippedGradient(np.zeros((n_features, 1)), 0.5, "linf", 0.0))
    first, second = exact(known_worlds(TopK(), public, pair), query)
    allowed = query.resolve(public).sensitivity(public).linf
    assert (first - second)[0, 0] == pytest.approx(allowed, rel=0.01)
    np.testing.assert_allclose((first - second)[1:, 0], -allowed, rtol=0.01)


def test_the_rows_of_one_person_differ_and_no_others() -> None:
    for pair in worst_case_pairs(Squared(), KnownBounds(1.0, 1.0, 1.0, False), 8, 2, rows_per_person=3):
        assert pair.rows_of_person == 3
        assert pair.X.shape == (8, 2)
        np.testing.assert_array_equal(pair.X[3:], pair.X_other[3:])
        np.testing.assert_array_equal(pair.X[:3], np.tile(pair.X[0], (3, 1)))
    with pytest.raises(ValueError, match="differ beyond their first 3 rows"):
        Pair("four", np.zeros((5, 1)), np.zeros(5), np.r_[np.ones((4, 1)), [[0.0]]], np.zeros(5), 3)


# --- likelihood ratios -----------------------------------------------------------------------------------------------


def ratio(known: KnownWorlds, query: Query, answer: Any) -> float:
    ratios: list[float] = []
    known.watch(lambda name, query, then=None: answer, ratios)("x", query)
    return ratios[0]


@pytest.mark.parametrize("n_rows", [3, 6])
def test_the_ratio_of_a_noisy_mean_is_that_of_two_densities(n_rows: int) -> None:
    pair = ready_pair(Squared(), OPPOSITE, n_rows, 1)
    public = facts(Squared(), pair)
    mechanism = Gaussian().scaled(2.0)
    query = ClippedGradient(np.zeros((1, 1)), 0.25, "l2", 0.0)
    known = known_worlds(mechanism, public, pair)
    scale, moved = 2.0 * query.resolve(public).sensitivity(public).l2, 0.25 / n_rows
    for answer in (-0.3, 0.1):
        expected = norm.logpdf(answer, -moved, scale) - norm.logpdf(answer, moved, scale)
        assert ratio(known, query, np.array([[answer]])) == pytest.approx(expected, rel=1e-9)


def test_the_ratio_of_a_choice_is_that_of_its_probabilities() -> None:
    pair = ready_pair(Logistic(), LIFTED, 40, 2)
    public = facts(Logistic(), pair)
    query = Magnitudes(ClippedGradient(np.zeros((2, 1)), 0.5, "linf", 0.0))
    known = known_worlds(TopK(k=1), public, pair)
    scale = query.resolve(public).sensitivity(public).linf
    first, second = (np.exp(scores[:, 0] / scale) for scores in exact(known, query))
    for item in (0, 1):
        chosen = np.arange(2)[:, None] == item
        expected = math.log(first[item] / first.sum()) - math.log(second[item] / second.sum())
        assert ratio(known, query, chosen) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("scheme", ["poisson", "without_replacement"])
def test_who_was_in_a_batch_is_not_known(scheme: Any) -> None:
    """Rows without a gradient but for one: the density is a mixture of its being drawn and not."""
    pair = ready_pair(Squared(), OPPOSITE, 4, 1)
    public = facts(Squared(), pair)
    mechanism = SampledGaussian(batches=Sampling(scheme, 4, 2))
    query = BatchGradient(SparseWeights.zeros(1, 1), 0.25)
    known = known_worlds(mechanism, public, pair)
    scale, moved = 2 * 0.25 / 2, 0.25 / 2
    for answer in (-0.3, 0.1):
        densities = [0.5 * norm.pdf(answer, 0, scale) + 0.5 * norm.pdf(answer, sign * moved, scale) for sign in (-1, 1)]
        expected = math.log(densities[0] / densities[1])
        assert ratio(known, query, np.array([[answer]])) == pytest.approx(expected, rel=1e-9)


def test_batches_beyond_counting_are_left_out() -> None:
    pair = ready_pair(Squared(), OPPOSITE, 40, 1)
    known = known_worlds(SampledGaussian(batches=Sampling("poisson", 40, 2)), facts(Squared(), pair), pair)
    assert ratio(known, BatchGradient(SparseWeights.zeros(1, 1), 0.25), np.ones((1, 1))) == 0.0


def request_of(model: Any, n_rows: int) -> FitRequest:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request: FitRequest = model._request(Logistic() if hasattr(model, "decision_function") else Squared(), n_rows)
    return request


def test_a_method_that_divides_rows_shows_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which row is in which part is secret, and a ratio that knew it would refute sound claims."""
    model = SparseRegressor(4.0, DELTA, n_nonzero=1, bounds=BOUNDS, method=ONE_STEP, fit_intercept=False)
    subject = _ModelRuns(request_of(model, 6), ready_pair(Squared(), OPPOSITE, 6, 1))
    assert subject(0, 3, keyed_generator(0))[:, 0].all()
    halves = RowSplit(("nothing",), 0.5)
    monkeypatch.setattr(HardThresholding, "split", lambda self, public: halves)
    assert not subject(0, 3, keyed_generator(0))[:, 0].any()
    with pytest.raises(ValueError, match="sees nothing of a method that divides rows"):
        audit(model, subject.pair, runs=100)


STEP_MODEL = SparseRegressor(4.0, DELTA, n_nonzero=1, bounds=BOUNDS, method=ONE_STEP, fit_intercept=False)


@pytest.mark.parametrize(
    ("model", "name", "n_rows", "n_features", "least"),
    [
        (STEP_MODEL, OPPOSITE, 6, 1, 0.9),
        (SparseClassifier(4.0, DELTA, bounds=Bounds(row_l2=1.0)), HELD, 200, 1, 0.7),
    ],
)
def test_the_ratio_tells_worlds_apart_nearly_as_the_claim_allows(
    model: Any, name: str, n_rows: int, n_features: int, least: float
) -> None:
    """The spread of the log-ratio is the mu that a Gaussian release has: 250 runs know it to 5 % (standard error)."""
    request = request_of(model, n_rows)
    loss = request.loss
    pair = ready_pair(loss, name, n_rows, n_features)
    runs = _ModelRuns(request, pair)(0, 250, keyed_generator(5))
    assert least * 0.925 < runs[:, 0].std() < 1.12 * 0.925


# --- right guesses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [-1.0, 0.5, 1.0])
def test_right_guesses_exceed_mu_no_more_often_than_stated(threshold: float) -> None:
    """Events of a 1-GDP release, symmetric and not: 4,000 audits of 300 runs, 5 % allowed; more than 262 have
    probability 1e-5."""
    rng = np.random.default_rng(0)
    p, q = ndtr(1 - threshold), ndtr(-threshold)
    hits, false_hits = rng.binomial(300, p, 4000), rng.binomial(300, q, 4000)
    assert (mu_of_right_guesses(hits, false_hits, 300, 0.95) > 1).sum() <= 262
    if threshold == 0.5:
        assert (mu_of_right_guesses(hits, false_hits, 300, 0.95) > 1).sum() > 100  # it is no looser than stated either


def test_right_guesses_prove_more_of_a_symmetric_event_and_nothing_below_three_quarters() -> None:
    counts = 550, 450, 1000
    assert mu_of_right_guesses(*counts, 0.95) > 1.3 * mu_lower_bound(*counts, 0.95)
    assert mu_of_right_guesses(300, 1, 1000, 0.95) < mu_lower_bound(300, 1, 1000, 0.95)
    assert mu_of_right_guesses(*counts, 0.95, moved=0.01) < mu_of_right_guesses(*counts, 0.95) - 0.04
    assert mu_of_right_guesses(*counts, 0.7) == range_of_right_guesses(*counts, 0.7) == -math.inf


def test_the_way_to_count_is_chosen_on_other_runs() -> None:
    way, guesses = GaussianCurve(1.0).ways(0.95)
    assert (way, guesses) == (GaussianCurve(1.0), GaussianCurve(1.0, guesses=True))
    assert GaussianCurve(1.0).ways(0.7) == (way,)  # the other one is not proved, and would show nothing
    rng = np.random.default_rng(0)
    first, second = rng.normal(1.0, 1.0, (400, 1)), rng.normal(0.0, 1.0, (400, 1))
    assert strongest_verdict(first, second, DELTA, 0.7, GaussianCurve(1.0)).bound > 0.5


# --- audits ----------------------------------------------------------------------------------------------------------


def audit(model: Any, pair: Pair, **settings: Any) -> Any:
    return audit_model(model, pairs=[pair], judge="gaussian", attack="likelihood_ratio", seed=1, **settings)


@pytest.mark.parametrize(("persons", "n_rows"), [(1, 6), (3, 8)])
def test_half_of_the_noise_is_found_and_all_of_it_is_not(
    monkeypatch: pytest.MonkeyPatch, persons: int, n_rows: int
) -> None:
    """Of one step on all rows of a person. A false alarm has probability 5 %, with seed 1 there is none."""
    bounds = Bounds(row_linf=1.0, label=1.0, rows_per_person=persons)
    model = SparseRegressor(4.0, DELTA, n_nonzero=1, bounds=bounds, method=ONE_STEP, fit_intercept=False)
    pair = ready_pair(Squared(), OPPOSITE, n_rows, 1, persons)
    sound = audit(model, pair, runs=300)
    assert not sound.refuted
    assert sound.mu is not None
    assert sound.mu > 0.6 * 0.925
    assert sound.runs == 300  # all are counted
    release = Gaussian.release
    monkeypatch.setattr(
        Gaussian,
        "release",
        lambda self, *given: release(self.scaled(0.5), *given),  # type: ignore[arg-type]
    )
    assert audit(model, pair, runs=300).refuted


def test_a_folder_refuses_a_second_attack(tmp_path: Path) -> None:
    """Two looks at the same runs: the larger bound of both would fail more often than stated."""
    pair = ready_pair(Squared(), OPPOSITE, 6, 1)
    chosen = audit_model(
        STEP_MODEL, pairs=[pair], judge="gaussian", splits=1, runs=100, confidence=0.9, seed=1, folder=tmp_path
    )
    assert chosen.runs == 50
    with pytest.raises(ValueError, match="contains another audit"):
        audit(STEP_MODEL, pair, runs=100, confidence=0.9, folder=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": []}, "one or more pairs"),
        ({"pairs": [ready_pair(Squared(), OPPOSITE, 6, 1)] * 2}, "different names"),
        ({"pilot_runs": 7}, "pilot_runs must be a whole number >= 8"),
        ({"runs": 0}, "runs must be a whole number"),
        ({"runs": 10.5}, "runs must be a whole number"),
    ],
)
def test_bad_numbers_of_runs_and_pairs_are_refused(change: dict[str, Any], message: str) -> None:
    settings = {"n_features": 1, "pilot_runs": 8, "runs": 16} | change
    with pytest.raises(ValueError, match=message):
        audit_model(STEP_MODEL, **settings)


def test_what_is_no_estimator_of_tulle_is_refused() -> None:
    with pytest.raises(ValueError, match="use audit_estimator"):
        audit_model(3.0)


def test_a_choice_is_counted_by_its_range() -> None:
    model = SparseRegressor(
        1.0, DELTA, n_nonzero=1, bounds=BOUNDS, method=FrankWolfe(1.0, n_iter=1), fit_intercept=False
    )
    pair = ready_pair(Squared(), OPPOSITE, 6, 1)
    result = audit_model(model, pairs=[pair], judge="bounded_range", attack="likelihood_ratio", runs=1_000, seed=0)
    assert not result.refuted
    assert result.range is not None
    assert result.range > 0.7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"judge": "any"}, "is for judge='gaussian'"),
        ({"splits": 2}, "splits=1"),
        ({"attack": "best"}, "attack must be"),
    ],
)
def test_a_ratio_that_does_not_fit_the_judge_is_refused(change: dict[str, Any], message: str) -> None:
    model = SparseRegressor(4.0, DELTA, n_nonzero=1, bounds=BOUNDS, method=ONE_STEP, fit_intercept=False)
    settings = {"judge": "gaussian", "attack": "likelihood_ratio"} | change
    with pytest.raises(ValueError, match=message):
        audit_model(model, pairs=[ready_pair(Squared(), OPPOSITE, 6, 1)], runs=16, **settings)


def test_a_gaussian_label_is_tested_as_a_mu() -> None:
    channel = GaussianLabel(4.0, 1.0, DELTA)
    result = audit_channel(channel, judge="gaussian", claimed_mu=0.925, runs=20_000, seed=0)
    assert not result.refuted
    assert result.mu is not None
    assert result.mu > 0.85


# --- documentation ---------------------------------------------------------------------------------------------------


def test_tables_of_audited_bounds_are_the_measured_ones() -> None:
    """Tables of docs/audit.md are those of docs/pictures/audit_bounds.jsonl. One sound claim in twenty may be refuted
    in them, and is named on the page: one was."""
    place = importlib.util.spec_from_file_location("audited_claims", ROOT / "docs" / "pictures" / "audited_claims.py")
    assert place is not None
    assert place.loader is not None
    drawing = importlib.util.module_from_spec(place)
    place.loader.exec_module(drawing)
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8").splitlines()
    for lines in (table() for table in drawing.TABLES):
        start = page.index(lines[0])
        assert page[start : start + len(lines)] == lines
        assert not page[start + len(lines)]
    assert len(drawing.table()) > 20
    refuted = [cell for cell, one in drawing.measured("bounds").items() if one["refuted"]]
    assert refuted == [("a client's answer to a curious server", 4.0)]
    assert any("was refuted by chance: a client's answer at ε = 4" in line for line in page)
    for one in drawing.measured("sound").values():
        assert one["refuted"] <= 19  # more than 19 of 200 have probability 1 % at 5 % each
