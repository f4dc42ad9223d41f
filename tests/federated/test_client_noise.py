"""A federated client: the law of its noise, and the sensitivity of what it sends."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from client_house import CAP, LONG, SOME, TERMS, D, House, N, X, Y, answer, enrol, said
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm
from test_batch_queries import all_kinds, assert_no_unit_moves_it_further, batch_of
from test_batch_queries import answer as exact
from test_queries import some_rows, weights_of

from tulle import FileLedger
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import LinearTask, LinearTerms
from tulle.federated.messages import Enrol, Enrolled, Round
from tulle.federated.server_side.simulation import spawn_seeds
from tulle.federated.terms import Terms
from tulle.methods.gradient_queries import BatchGradient
from tulle.trusted.accountants import epsilon
from tulle.trusted.curator import Curator, summation_slack
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.exact_noise import grid_and_scale
from tulle.trusted.mechanisms import SampledGaussian
from tulle.trusted.plan import Release
from tulle.trusted.queries import Query
from tulle.trusted.sampling import Sampling

pytestmark = pytest.mark.usefixtures("no_power_cuts")

SILENT_X, SILENT_Y = np.ones((N, LONG)), np.full(N, "neither")

SILENT = LinearTerms(LONG, ("a", "b"), row_l2=2.0, fit_intercept=False)

NOISE_ONLY = Terms("noise", SILENT, 6, 1, LONG, 0.7, 0.25, batch=8, epsilon=2.0, delta=1e-3)

NOTHING = SparseWeights.zeros(LONG, 1)


def silent(folder: Path, **settings: Any) -> House:
    return House(folder, SILENT_X, SILENT_Y, settings=settings)


# --- the law of the noise --------------------------------------------------------------------------------------------


def scale_of(terms: Terms, n: int, noise: float, per_person: int = 1) -> float:
    """Noise per sensitivity, times 2 C rows_per_person / batch with C = clip × the bound on rows, times the step."""
    assert isinstance(terms.model, LinearTerms)
    assert terms.model.row_l2 is not None
    level = terms.clip * math.hypot(terms.model.row_l2, terms.model.intercept_value)
    return terms.step * noise * 2 * level * per_person / min(terms.batch or n, n) * summation_slack(n)


def has_scale(found: np.ndarray, scale: float) -> bool:
    """Whether normal draws may be of this scale.

    False alarms: 1e-6. Draws are on a grid of at most a quarter of the scale, which adds a part in 192 to the variance.
    """
    total = np.square(found / scale).sum()
    return bool(chi2.ppf(5e-7, found.size) <= total <= chi2.isf(5e-7, found.size) * (1 + 1 / 192))


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


# Independent draws of this length are correlated by more with a probability of 1e-7.
UNRELATED = 5.4 / math.sqrt(LONG)


@pytest.mark.parametrize("batch", [8, None])
@pytest.mark.parametrize("per_person", [1, 2])
def test_a_step_carries_the_noise_that_was_calibrated(tmp_path: Path, batch: int | None, per_person: int) -> None:
    """Rejects 2/3 and 3/2 of it. False alarms: 1e-6 of each case."""
    terms = replace(NOISE_ONLY, batch=batch)
    client = silent(tmp_path, rows_per_person=per_person).start()
    about = enrol(client, terms)
    found = answer(client, 1, NOTHING, terms)
    scale = scale_of(terms, N, about.noise, per_person)
    assert has_scale(found, scale)
    assert not has_scale(found, scale * 2 / 3)
    assert not has_scale(found, scale * 3 / 2)
    assert abs(found.mean()) < 5.4 * scale / math.sqrt(LONG)  # with a probability of 1 - 1e-7
    # Normal: as many beyond one, two and three scales as there should be, within 5.4 deviations (1e-6 in all).
    for k in (1, 2, 3):
        beyond = 2 * norm.sf(k)
        share = np.mean(np.abs(found) > k * scale)
        assert abs(share - beyond) < 5.4 * math.sqrt(beyond / LONG) + 2 * norm.pdf(k) / 8


def test_more_rows_have_less_noise_each_client_its_own(tmp_path: Path) -> None:
    """Half the rows, twice the chance to be in a batch: more noise per sensitivity, as its own accountant says."""
    found = {}
    for n in (N, N // 2):
        folder = tmp_path / str(n)
        folder.mkdir()
        about = enrol(House(folder, X[:n], Y[:n]).start())
        plan = [Release("x", SampledGaussian(NoisePerSensitivity(about.noise), Sampling("poisson", n, 8)), TERMS.steps)]
        assert about.epsilon == pytest.approx(epsilon(plan, 1e-3), rel=1e-12)
        assert about.n_rows == n
        assert about.batch == 8
        found[n] = about.noise
    assert found[N // 2] > 1.2 * found[N]


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.usefixtures("fixed_nonce")
def test_a_client_that_was_restarted_draws_other_noise(tmp_path: Path, seed: int | None) -> None:
    """False alarms: 1e-6."""
    home, drawn = silent(tmp_path, seed=seed), []
    for number in (1, 2, 3):
        client = home.start()
        enrol(client, NOISE_ONLY)
        drawn.append(answer(client, number, NOTHING, NOISE_ONLY))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs(correlation(drawn[one], drawn[other])) < UNRELATED


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.usefixtures("fixed_nonce")
def test_noise_is_drawn_anew_by_every_client_round_step_study_and_process(tmp_path: Path, seed: int | None) -> None:
    """No two draws of a hospital, nor of two, are correlated. False alarms: 1e-7 of each pair, below 1e-5 in all."""
    drawn: dict[str, np.ndarray] = {}
    second = replace(NOISE_ONLY, study="second")
    home = silent(tmp_path, seed=seed)
    client = home.start()
    for terms in (NOISE_ONLY, second):
        enrol(client, terms)
        for number in (1, 2):
            drawn[f"{terms.study} {number}"] = answer(client, number, NOTHING, terms)
    client = home.start()
    for terms in (NOISE_ONLY, second):
        enrol(client, terms)
        for number in (3, 4):
            drawn[f"{terms.study} {number} after a restart"] = answer(client, number, NOTHING, terms)
    other = tmp_path / "other"
    other.mkdir()
    client = silent(other, seed=None if seed is None else 6).start()
    enrol(client, NOISE_ONLY)
    drawn["elsewhere"] = answer(client, 1, NOTHING, NOISE_ONLY)
    names = list(drawn)
    related = [
        (one, two)
        for k, one in enumerate(names)
        for two in names[:k]
        if abs(correlation(drawn[one], drawn[two])) > UNRELATED
    ]
    assert not related


@pytest.mark.usefixtures("fixed_nonce")
def test_a_study_after_a_restart_shares_no_noise_with_the_next_one(tmp_path: Path) -> None:
    """Under a seed: whoever has two models with the same noise can subtract them. False alarms: 1e-7."""
    home = silent(tmp_path, seed=5)
    enrol(home.start(), NOISE_ONLY)
    client = home.start()
    enrol(client, NOISE_ONLY)
    one = answer(client, 1, NOTHING, NOISE_ONLY)
    second = replace(NOISE_ONLY, study="second")
    enrol(client, second)
    assert abs(correlation(one, answer(client, 1, NOTHING, second))) < UNRELATED


@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.usefixtures("fixed_nonce")
def test_a_study_that_is_billed_again_draws_other_noise(tmp_path: Path, restarts: int) -> None:
    """Under a seed, too: the server may ask the same round again, from other weights. False alarms: 1e-7."""
    home = silent(tmp_path, seed=5)
    client = home.start()
    enrol(client, NOISE_ONLY)
    for _ in range(restarts):
        client = home.start()
        enrol(client, NOISE_ONLY)
    one = answer(client, 1, NOTHING, NOISE_ONLY)
    home.state_of(NOISE_ONLY).unlink()
    client = home.start()
    enrol(client, NOISE_ONLY)
    assert len(home.entries) == 2
    assert abs(correlation(one, answer(client, 1, NOTHING, NOISE_ONLY))) < UNRELATED


@pytest.mark.usefixtures("fixed_nonce")
@pytest.mark.parametrize("names", [("ada", "bob"), ("ada", "ada")])
@pytest.mark.parametrize("restarts", [0, 1])
def test_clients_that_share_a_ledger_and_a_seed_have_noise_of_their_own(
    tmp_path: Path, names: tuple[str, str], restarts: int
) -> None:
    """Each draws the noise of its own entry, also after both were started again. False alarms: 1e-7 of each case."""
    if restarts and len(set(names)) == 1:
        pytest.skip("a server knows one client by one name, and its folder is one process's")
    ledger = FileLedger.create(tmp_path / "budget", "rows", CAP)
    for _ in range(restarts + 1):
        clients = [
            Client(name, SILENT_X, SILENT_Y, ledger=ledger, state=tmp_path / str(k), seed=5)
            for k, name in enumerate(names)
        ]
        for client in clients:
            assert isinstance(said(client, Enrol(NOISE_ONLY)), Enrolled)
    assert len(ledger.refresh().entries) == 2
    drawn = [said(client, Round(NOISE_ONLY.digest, 1, NOTHING)).weights.to_dense() for client in clients]
    assert abs(correlation(*drawn)) < UNRELATED


def test_a_simulation_has_other_noise_at_every_client(tmp_path: Path) -> None:
    """False alarms: 1e-6."""
    seen: dict[str, np.ndarray] = {}
    for name, own in zip("ab", spawn_seeds(3, 2)):
        folder = tmp_path / name
        folder.mkdir()
        client = silent(folder, seed=own).start()
        enrol(client, NOISE_ONLY)
        seen[name] = answer(client, 1, NOTHING, NOISE_ONLY)
    assert abs(correlation(seen["a"], seen["b"])) < UNRELATED


def test_the_steps_of_one_round_have_noise_of_their_own(tmp_path: Path) -> None:
    """Three steps in one answer: three times the variance, and not nine. False alarms: 1e-6."""
    terms = replace(NOISE_ONLY, rounds=2, local_steps=3)
    client = silent(tmp_path).start()
    about = enrol(client, terms)
    found = answer(client, 1, NOTHING, terms)
    assert has_scale(found, math.sqrt(3) * scale_of(terms, N, about.noise))
    assert not has_scale(found, 3 * scale_of(terms, N, about.noise))


@pytest.mark.parametrize("size", [1.0, 1e15, 1e100])
def test_noise_does_not_depend_on_the_size_of_the_weights_that_a_server_sends(tmp_path: Path, size: float) -> None:
    """Elsewhere than at the large weight the answer is noise of the same scale. False alarms: 1e-6."""
    client = silent(tmp_path).start()
    about = enrol(client, NOISE_ONLY)
    start = np.zeros((LONG, 1))
    start[7] = size
    found = answer(client, 1, SparseWeights.from_dense(start), NOISE_ONLY)
    rest = np.delete(found, 7)
    scale = scale_of(NOISE_ONLY, N, about.noise)
    assert has_scale(rest, scale)
    assert not has_scale(rest, scale * 2 / 3)
    assert np.isfinite(found).all()
    assert abs(found[7, 0] - size) <= max(7 * scale, 1e-8 * size)


@pytest.mark.parametrize("size", [0.0, 3.0, 1e15, 1e100])
def test_what_is_released_is_a_gradient_and_never_a_sum_with_the_servers_weights(
    house: House, monkeypatch: pytest.MonkeyPatch, size: float
) -> None:
    """A sum of huge weights and noisy sums is rounded to where the weights say: it would show exact sums."""
    asked: list[tuple[Query, np.ndarray, Any]] = []
    plain = Curator.ask

    def spy(self: Curator, name: str, query: Query, then: Any = None) -> Any:
        found = plain(self, name, query, then)
        asked.append((query, np.array(found), then))
        return found

    monkeypatch.setattr(Curator, "ask", spy)
    client = house.start()
    about = enrol(client)
    start = size * SOME.to_dense()
    found = answer(client, 1, SparseWeights.from_dense(start))
    assert len(asked) == TERMS.local_steps
    scale = scale_of(TERMS, N, about.noise)
    for query, noisy, then in asked:
        assert type(query) is BatchGradient
        assert then is None
        assert noisy.shape == (D + 1, 1)
        assert np.all(np.abs(noisy) < 30 * scale + 1)  # no start in it
        grid, _ = grid_and_scale(about.noise, scale / about.noise, math.sqrt(D + 1))
        assert np.all(noisy / (grid / 16) % 1 == 0)  # slopes, and so the grid, may be smaller at other weights
    if size == 0.0:
        assert found.any()


# --- sensitivity -----------------------------------------------------------------------------------------------------

MODELS: dict[str, dict[str, Any]] = {
    "logistic": {"classes": ("a", "b"), "row_l2": 1.5},
    "logistic, entries": {"classes": ("a", "b"), "row_linf": 0.5},
    "normalised": {"classes": (0, 1), "row_l2": 1.25, "normalise": True},
    "three classes": {"classes": ("a", "b", "c"), "row_l2": 1.0, "row_linf": 0.75},
    "squared": {"loss": "squared", "row_l2": 1.5, "label": 2.0},
    "squared, any label": {"loss": "squared", "row_l2": 1.5},
    "huber": {"loss": "huber", "row_linf": 0.5},
}


@pytest.mark.parametrize("storage", ["dense", "csr"])
@pytest.mark.parametrize("kind", MODELS)
@given(
    data=st.data(), batch=st.integers(1, 3), drawn=st.lists(st.integers(0, 2)), clip=st.sampled_from([0.01, 0.4, 9.0])
)
@settings(max_examples=10)
def test_no_person_moves_a_gradient_further_than_its_sensitivity(
    kind: str, storage: str, data: st.DataObject, batch: int, drawn: list[int], clip: float
) -> None:
    """A person's rows are replaced by any others: beyond the bounds, of no class, and more of them than count."""
    n, d, k = data.draw(st.integers(4, 6)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    a = data.draw(st.sampled_from([0.0, 0.3, 5.0]))
    model = LinearTerms(d, fit_intercept=a > 0, intercept_value=a, **MODELS[kind])
    loss, labels = model.resolved_loss, [*(model.classes or ()), *(("zzz", "") if kind != "normalised" else (7, -1))]
    rows, y = data.draw(some_rows(n, d, loss))
    own = data.draw(st.integers(k, 3))  # of which k count
    other_rows, other_y = rows.copy(), np.nan_to_num(y, posinf=1e300, neginf=-1e300)
    y = other_y.copy()
    other_rows[:own], new = data.draw(some_rows(own, d, loss))
    other_y[:own] = np.nan_to_num(new, posinf=1e300, neginf=-1e300)
    if model.classes is not None:
        names = st.lists(st.sampled_from(labels), min_size=n, max_size=n).map(np.array)
        y, other_y = data.draw(names), data.draw(names)
        other_y[own:] = y[own:]
    groups = np.r_[np.zeros(own), np.arange(1, n - own + 1)]
    made = sp.csr_array if storage == "csr" else np.array
    with np.errstate(all="ignore"):
        first, second = (model.task(made(x), t, groups, k) for x, t in ((rows, y), (other_rows, other_y)))
    assert isinstance(first, LinearTask)
    assert first.public.rows_per_unit == k
    public = replace(first.public, n_rows=batch)
    at = SparseWeights.from_dense(data.draw(weights_of(first.public)))
    query = first.gradient(at, clip)
    # The rows of the person that count, and those that do not, are the first ones: taking them out is taking k out.
    batches = [numbers - set(range(k, own)) for numbers in all_kinds(n, drawn)]
    assert_no_unit_moves_it_further(query, first.rows, second.rows, n, public, batches)
    with_surplus, without = (set(range(n)), set(range(n)) - set(range(k, own)))
    one, two = (exact(query, batch_of(first.rows, numbers), public) for numbers in (with_surplus, without))
    np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-14 * n * query.size(public))


@pytest.mark.parametrize("a", [0.0, 0.75])
def test_some_neighbours_move_a_gradient_as_far_as_its_sensitivity(a: float) -> None:
    """So that one of 2/3 would be exceeded and the test above can fail."""
    model = LinearTerms(2, ("a", "b"), row_l2=1.5, fit_intercept=a > 0, intercept_value=a)
    X, X2 = np.tile([1.5, 0.0], (4, 1)), np.tile([1.5, 0.0], (4, 1))
    y, y2 = np.array(["a"] * 4), np.array(["b", "a", "a", "a"])
    X2[0] *= 1e6
    first, second = (model.task(x, t, None, 1) for x, t in ((X, y), (X2, y2)))
    query = first.gradient(SparseWeights.zeros(*model.shape), 0.4)
    moved = query.evaluate(first.rows, first.public).to_dense() - query.evaluate(second.rows, second.public).to_dense()
    share = np.linalg.norm(moved) / query.sensitivity(first.public).l2
    assert 0.99 < share <= 1 + 1e-9
