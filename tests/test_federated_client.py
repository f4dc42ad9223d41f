"""A client of a study: what its noise is, what it bills, what it refuses, and what it remembers after any crash."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm
from test_batch_queries import all_kinds, assert_no_unit_moves_it_further, batch_of
from test_batch_queries import answer as exact
from test_queries import some_rows, weights_of

import tulle.federated.client as client_module
from tulle import Budget, FileLedger
from tulle.batch_queries import BatchGradient
from tulle.curator import Curator, summation_slack
from tulle.events import NoisePerSensitivity
from tulle.exact_noise import grid_and_scale
from tulle.federated.client import Client
from tulle.federated.linear import LinearTask, LinearTerms, linear_terms
from tulle.federated.link import DirectLink
from tulle.federated.messages import Enrol, Enrolled, Refused, Round, Update
from tulle.federated.questions import AskLabels, AskShape
from tulle.federated.server import Server, StudyStoppedError
from tulle.federated.simulation import _seeds, simulate
from tulle.federated.terms import Terms
from tulle.federated.wire import MAGIC, decode, encode
from tulle.mechanisms import SampledGaussian
from tulle.privacy import Plan, Release, epsilon, proof
from tulle.queries import Query
from tulle.report import PrivacyReport
from tulle.sampling import Sampling
from tulle.weights import SparseWeights

N, D = 40, 12
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
Y = np.where(X[:, 3] - X[:, 7] > 0, "b", "a")
CAP = Budget(100.0, 0.5)
LINEAR = linear_terms(D, step=1.0, classes=("a", "b"), row_l2=2.0)
TERMS = Terms("s", LINEAR, 3, 2, 4, 1.0, 0.25, batch=8, epsilon=2.0, delta=1e-3)
ZERO = SparseWeights.zeros(*LINEAR.shape)
SOME = SparseWeights.from_dense(np.eye(D + 1)[:, [2]])
REPLIES = (Enrolled, Update, Refused, SparseWeights)

# Of noise and nothing else: rows that have no label of the study count as nothing, whatever is in them.
LONG = 2000
SILENT_X, SILENT_Y = np.ones((N, LONG)), np.full(N, "neither")
SILENT = LinearTerms(LONG, ("a", "b"), row_l2=2.0, fit_intercept=False)
NOISE_ONLY = Terms("noise", SILENT, 6, 1, LONG, 0.7, 0.25, batch=8, epsilon=2.0, delta=1e-3)
NOTHING = SparseWeights.zeros(LONG, 1)


@pytest.fixture(autouse=True, scope="module")
def no_power_cuts() -> Iterator[None]:
    """Crashes here are those of processes: waiting for the disk would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield


@dataclass
class House:
    """A client's place: its rows, its ledger and its folder. `start` starts its process, or starts it again."""

    folder: Path
    X: Any = field(default_factory=lambda: X)
    y: Any = field(default_factory=lambda: Y)
    cap: Budget = CAP
    settings: dict[str, Any] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def start(self, **other: Any) -> Client:
        path = self.folder / "ledger.json"
        settings = self.settings | other
        ledger = None
        if not settings.get("without_privacy"):
            ledger = FileLedger(path, "rows") if path.exists() else FileLedger.create(path, "rows", self.cap)
        rows = {"X": self.X, "y": self.y} | {key: settings.pop(key) for key in ("X", "y") if key in settings}
        state = self.folder / "state"
        return Client("ada", **rows, ledger=ledger, state=state, tell=self.told.append, **settings)

    @property
    def entries(self) -> tuple[Any, ...]:
        return FileLedger(self.folder / "ledger.json", "rows").entries

    @property
    def files(self) -> dict[str, bytes]:
        """All that is on disk, but locks."""
        found = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def state_of(self, terms: Terms) -> Path:
        return self.folder / "state" / f"{terms.digest}.study"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def said(client: Client, message: Any) -> Any:
    return decode(client.answer(encode(message)), REPLIES)


def enrol(client: Client, terms: Terms = TERMS) -> Enrolled:
    about = said(client, Enrol(terms))
    assert isinstance(about, Enrolled), about
    return about


def ask(client: Client, number: int, weights: SparseWeights = ZERO, terms: Terms = TERMS) -> Any:
    return said(client, Round(terms.digest, number, weights))


def answer(client: Client, number: int, weights: SparseWeights = ZERO, terms: Terms = TERMS) -> np.ndarray:
    update = ask(client, number, weights, terms)
    assert isinstance(update, Update), update
    assert (update.study, update.number, update.client) == (terms.digest, number, "ada")
    return update.weights.to_dense()


def refused(reply: Any, why: str) -> Refused:
    assert isinstance(reply, Refused), reply
    assert reply.why == why, reply
    assert reply.client == "ada"
    return reply


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
def test_a_simulation_has_other_noise_at_every_client(tmp_path: Path) -> None:
    """False alarms: 1e-6."""
    seen: dict[str, np.ndarray] = {}
    for name, own in zip("ab", _seeds(3, 2)):
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


# --- what a study costs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [8, 39, 100, None])
def test_a_client_proves_its_own_promise_and_bills_just_that(house: House, batch: int | None) -> None:
    terms = replace(TERMS, batch=batch)
    client = house.start()
    about = enrol(client, terms)
    assert about.epsilon is not None
    assert 0.99 * 2.0 < about.epsilon <= 2.0
    assert about.delta == 1e-3
    assert about.batch == min(batch or N, N)
    plan = client._studies[terms.digest].plan
    (release,) = plan.releases
    assert release.count == terms.rounds * terms.local_steps == 6
    assert release.mechanism.noise.value == about.noise
    (entry,) = house.entries
    assert (entry.epsilon, entry.delta) == (proof(plan, 1e-3)[0], 1e-3) == (about.epsilon, about.delta)
    assert entry.plan == (f"local step: {release.mechanism.label}, 6 times, noise / sensitivity {about.noise:.6g}",)
    assert "'s'" in entry.what
    assert terms.digest[:8] in entry.what
    report = client.report(terms.digest)
    assert (report.epsilon, report.delta, report.asked) == (about.epsilon, 1e-3, (2.0, 1e-3))
    assert report.bill[0].count == 6
    assert report.floating_point_slack == 0


def test_steps_on_all_rows_are_one_gaussian(house: House) -> None:
    """mu = 2 C sqrt(K R) / (n sigma), and what that mu promises by the exact formula."""
    terms = replace(TERMS, batch=None)
    about = enrol(house.start(), terms)
    level = terms.clip * math.hypot(2.0, LINEAR.intercept_value)
    sigma = about.noise * 2 * level / N
    mu = 2 * level * math.sqrt(terms.local_steps * terms.rounds) / (N * sigma)
    eps = about.epsilon
    assert eps is not None
    delta = norm.cdf(-eps / mu + mu / 2) - math.exp(eps) * norm.cdf(-eps / mu - mu / 2)
    assert delta == pytest.approx(1e-3, rel=1e-4)


def test_a_thousand_steps_of_six_thousand_rows(tmp_path: Path) -> None:
    """Noise of .794 clips for batches of 64 of 6,000 costs 4.61 when rows are replaced (and not 4)."""
    linear = LinearTerms(1, ("a", "b"), row_l2=1.0, fit_intercept=False)
    terms = Terms("vector", linear, 500, 2, 1, 1.0, 0.25, 64, 4.6075, 1e-5)
    about = enrol(House(tmp_path, np.ones((6000, 1)), np.resize(["a", "b"], 6000)).start(), terms)
    assert 2 * about.noise == pytest.approx(0.794, rel=1e-3)
    assert about.epsilon == pytest.approx(4.6075, rel=1e-3)


def test_a_person_with_several_rows_is_promised_the_same_for_more_noise(tmp_path: Path) -> None:
    """Twice as far, and more often in a batch; the ledger counts the same unit."""
    found = {}
    for k in (1, 2):
        folder = tmp_path / str(k)
        folder.mkdir()
        home = House(folder, settings={"rows_per_person": k, "groups": np.arange(N) // 2})
        found[k] = enrol(home.start())
        assert home.entries[0].epsilon == found[k].epsilon
    one, two = found[1], found[2]
    assert one.unit == "one row"
    assert "one person with at most 2 rows" in two.unit
    assert two.noise > 1.2 * one.noise
    sampling = Sampling("poisson", N, 8, 2)
    plan = [Release("x", SampledGaussian(NoisePerSensitivity(two.noise), sampling), 6)]
    assert two.epsilon == pytest.approx(epsilon(plan, 1e-3), rel=1e-12)


def test_rows_beyond_a_persons_share_count_as_nothing(tmp_path: Path) -> None:
    """Whatever is in them, and without being taken from the public number of rows."""
    groups = np.arange(N) // 2  # two rows each
    terms = replace(TERMS, batch=None, epsilon=None, delta=None)
    changed, labels = X.copy(), Y.copy()
    changed[1::2], labels[1::2] = 1e6, np.where(Y[1::2] == "a", "b", "a")
    answers = []
    for name, rows, y in (("as they are", X, Y), ("changed", changed, labels), ("two", X, Y)):
        folder = tmp_path / name
        folder.mkdir()
        k = 2 if name == "two" else 1
        home = House(folder, rows, y, settings={"groups": groups, "rows_per_person": k, "without_privacy": True})
        client = home.start()
        assert enrol(client, terms).n_rows == N
        answers.append(answer(client, 1, ZERO, terms))
    np.testing.assert_array_equal(answers[0], answers[1])
    assert not np.array_equal(answers[0], answers[2])


def test_rows_of_no_class_count_as_nothing_and_the_server_is_not_told(tmp_path: Path) -> None:
    """A study of rows with such labels looks as one of rows that are empty."""
    model = LinearTerms(D, ("a", "b"), row_l2=2.0, fit_intercept=False)
    private, plain = replace(TERMS, model=model), replace(TERMS, model=model, batch=None, epsilon=None, delta=None)
    other, empty = Y.copy(), X.copy()
    other[::3], empty[::3] = "c", 0.0
    replies = []
    for name, rows, y in (("of no class", X, other), ("empty", empty, Y)):
        folder = tmp_path / name
        folder.mkdir()
        enrolled = House(folder, rows, y).start().answer(encode(Enrol(private)))
        client = House(folder / "plain", rows, y, settings={"without_privacy": True})
        (folder / "plain").mkdir()
        one = client.start()
        start = SparseWeights.zeros(*model.shape)
        replies.append((enrolled, one.answer(encode(Enrol(plain))), one.answer(encode(Round(plain.digest, 1, start)))))
    assert replies[0] == replies[1]
    assert isinstance(decode(replies[0][2], REPLIES), Update)


# --- billing: once, before anything is answered ----------------------------------------------------------------------


def test_a_study_is_billed_once_and_before_its_first_answer(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    bill, steps = FileLedger.bill, Client._steps

    def billed(self: FileLedger, *args: Any) -> int:
        order.append("bill")
        return bill(self, *args)

    def stepped(self: Client, *args: Any) -> SparseWeights:
        assert len(house.entries) == 1  # on disk
        order.append("steps")
        return steps(self, *args)

    monkeypatch.setattr(FileLedger, "bill", billed)
    monkeypatch.setattr(Client, "_steps", stepped)
    client = house.start()
    refused(ask(client, 1), "not enrolled")
    first = enrol(client)
    assert enrol(client) == first
    for number in (1, 2, 3):
        answer(client, number)
    assert enrol(client) == first
    assert order == ["bill", "steps", "steps", "steps"]
    assert len(house.entries) == 1


def test_a_client_at_its_cap_refuses_and_nothing_else(tmp_path: Path) -> None:
    """The first study fits under the cap, the second does not; the first goes on."""
    home = House(tmp_path, cap=Budget(2.5, 1e-3))
    client = home.start()
    enrol(client)
    before = home.files
    second = replace(TERMS, study="second")
    for _ in range(2):
        reply = refused(said(client, Enrol(second)), "cap")
        assert not any(figure in reply.text for figure in ("2", "%"))  # how much is left is nobody's business
        refused(ask(client, 1, terms=second), "not enrolled")
        assert home.files == before
    assert any(line.startswith("refused (cap)") for line in home.told)
    answer(client, 1)
    refused(said(home.start(), Enrol(second)), "cap")
    assert len(home.entries) == 1


def test_other_terms_are_another_study_and_billed_anew(house: House) -> None:
    client = house.start()
    enrol(client)
    answer(client, 1)
    for k, change in enumerate(({"clip": 0.26}, {"study": "t"}, {"epsilon": 2.5}, {"step": 0.9}), 2):
        other = replace(TERMS, **change)
        refused(ask(client, 1, terms=other), "not enrolled")
        enrol(client, other)
        assert len(house.entries) == k
        answer(client, 1, terms=other)


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_a_client_that_was_restarted_goes_on_and_is_not_billed_again(house: House, answered: int) -> None:
    client = house.start()
    first = enrol(client)
    kept = [ask(client, number).weights.to_dense() for number in range(1, answered + 1)]
    client = house.start()
    refused(ask(client, answered + 1), "not enrolled")  # until it hears the terms
    assert enrol(client) == first
    assert len(house.entries) == 1
    assert client.answered(TERMS.digest) == tuple(range(1, answered + 1))
    if answered:
        np.testing.assert_array_equal(answer(client, answered), kept[-1])
        refused(ask(client, answered, SOME), "answered")
    for number in range(answered + 1, 4):
        answer(client, number)
    refused(ask(client, 4), "out of turn")
    assert len(house.entries) == 1


def test_whoever_deletes_the_state_is_billed_again(house: House) -> None:
    enrol(house.start())
    house.state_of(TERMS).unlink()
    enrol(house.start())
    assert len(house.entries) == 2


def test_a_state_that_is_gone_while_the_client_runs_ends_the_study(house: House) -> None:
    """Or rounds would be answered a second time."""
    client = house.start()
    enrol(client)
    answer(client, 1)
    house.state_of(TERMS).unlink()
    for number in (1, 2):
        refused(ask(client, number), "not enrolled")


@pytest.mark.parametrize("how", ["cut", "empty", "garbage", "of another study"])
def test_a_damaged_state_ends_the_study(house: House, how: str) -> None:
    client = house.start()
    enrol(client)
    answer(client, 1)
    place = house.state_of(TERMS)
    raw = place.read_bytes()
    other = encode(client_module.StudyState("0" * 64, N, 1, 0.7))
    place.write_bytes({"cut": raw[:-3], "empty": b"", "garbage": b"\xff" * 50, "of another study": other}[how])
    for running in (client, house.start()):
        assert isinstance(said(running, Enrol(TERMS)) if running is not client else ask(running, 2), Refused)
        assert isinstance(ask(running, 1), Refused)
        assert isinstance(ask(running, 2), Refused)
    assert len(house.entries) == 1


def test_a_client_with_another_number_of_rows_does_not_go_on(house: House) -> None:
    enrol(house.start())
    client = house.start(X=X[:-1], y=Y[:-1])
    refused(said(client, Enrol(TERMS)), "terms")
    refused(ask(client, 1), "not enrolled")
    assert len(house.entries) == 1


def test_a_crash_between_the_bill_and_the_state_bills_twice_and_never_answers_unbilled(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Client._write
    monkeypatch.setattr(Client, "_write", failing)
    client = house.start()
    refused(said(client, Enrol(TERMS)), "failed")
    refused(ask(client, 1), "not enrolled")
    assert len(house.entries) == 1
    monkeypatch.setattr(Client, "_write", plain)
    enrol(house.start())
    assert len(house.entries) == 2


def failing(self: Client, state: Any) -> None:
    raise OSError(28, "no space left on the disk of row 12345")


def test_an_answer_that_could_not_be_written_down_is_not_sent(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round can be asked again, for another draw: nothing left. The study still has all of its rounds."""
    plain = Client._write
    taken: list[np.ndarray] = []
    steps = Client._steps

    def seen(self: Client, *args: Any) -> SparseWeights:
        taken.append(steps(self, *args).to_dense())
        return SparseWeights.from_dense(taken[-1])

    monkeypatch.setattr(Client, "_steps", seen)
    client = house.start()
    enrol(client)
    before = house.files
    monkeypatch.setattr(Client, "_write", failing)
    reply = refused(ask(client, 1), "failed")
    assert "12345" not in reply.text
    assert house.files == before
    monkeypatch.setattr(Client, "_write", plain)
    found = answer(client, 1)
    np.testing.assert_array_equal(found, taken[1])
    assert not np.array_equal(taken[0], taken[1])
    assert client.answered(TERMS.digest) == (1,)


def test_a_failed_write_costs_no_round(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of which nothing left are not counted: the last round is answered too."""
    plain = Client._write
    client = house.start()
    enrol(client)
    monkeypatch.setattr(Client, "_write", failing)
    refused(ask(client, 1), "failed")
    monkeypatch.setattr(Client, "_write", plain)
    for number in (1, 2, 3):
        answer(client, number)


# --- rounds: each once -----------------------------------------------------------------------------------------------


def test_the_last_round_is_sent_again_bit_for_bit_to_the_same_question_only(house: House) -> None:
    client = house.start()
    enrol(client)
    question = encode(Round(TERMS.digest, 1, ZERO))
    first = client.answer(question)
    assert client.answer(question) == first
    restarted = house.start()
    enrol(restarted)
    assert restarted.answer(question) == first
    for other in (SOME, SparseWeights.from_dense(1e-300 * SOME.to_dense())):
        refused(ask(client, 1, other), "answered")
    answer(client, 2)
    refused(decode(client.answer(question), REPLIES), "answered")  # it keeps one answer, and gives no second one
    assert client.answered(TERMS.digest) == (1, 2)


@pytest.mark.parametrize("number", [0, -1, 4, 2**70, -(2**70)])
def test_rounds_that_the_study_does_not_have_are_refused(house: House, number: int) -> None:
    client = house.start()
    enrol(client)
    before = house.files
    refused(ask(client, number), "out of turn")
    assert house.files == before


@pytest.mark.parametrize("number", ["true", "1.0", '"1"', "null", '{"float":"inf"}', "1e0"])
def test_numbers_that_are_none_are_refused(house: House, number: str) -> None:
    client = house.start()
    enrol(client)
    raw = encode(Round(TERMS.digest, 1, ZERO))
    changed = raw.replace(b'"number":1', f'"number":{number}'.encode())
    head = len(MAGIC)
    length = int.from_bytes(raw[head : head + 8], "little") + len(changed) - len(raw)
    changed = changed[:head] + length.to_bytes(8, "little") + changed[head + 8 :]
    refused(decode(client.answer(changed), REPLIES), "malformed")
    answer(client, 1)


def test_rounds_may_be_missed_and_are_then_gone(house: House) -> None:
    client = house.start()
    enrol(client)
    answer(client, 2)
    refused(ask(client, 1), "out of turn")
    answer(client, 3)
    for number in (1, 3, 4):
        assert isinstance(ask(client, number, SOME), Refused)
    assert client.answered(TERMS.digest) == (2, 3)


def test_two_processes_on_one_folder_never_answer_a_round_twice(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked at the same moment: with one question, one answer in two copies; with two, one answer and a refusal."""
    plain = Client._steps

    def slow(self: Client, *args: Any) -> SparseWeights:
        time.sleep(0.05)
        return plain(self, *args)

    monkeypatch.setattr(Client, "_steps", slow)
    clients = [house.start(), house.start()]
    both = at_once([lambda c=c: c.answer(encode(Enrol(TERMS))) for c in clients])
    assert both[0] == both[1]
    assert len(house.entries) == 1
    for number in (1, 2, 3):
        starts = (ZERO, ZERO) if number == 2 else (ZERO, SOME)
        questions = [encode(Round(TERMS.digest, number, start)) for start in starts]
        replies = at_once([lambda c=c, q=q: c.answer(q) for c, q in zip(clients, questions)])
        updates = {raw for raw in replies if isinstance(decode(raw, REPLIES), Update)}
        assert len(updates) == 1
        if number != 2:
            (no,) = (reply for reply in map(read, replies) if isinstance(reply, Refused))
            assert no.why == "answered"
        assert clients[0].answered(TERMS.digest) == tuple(range(1, number + 1))


def read(raw: bytes) -> Any:
    return decode(raw, REPLIES)


def at_once(calls: list[Callable[[], bytes]]) -> list[bytes]:
    """What some calls give that are made at the same time."""
    found: dict[int, bytes] = {}
    ready = threading.Barrier(len(calls))

    def run(k: int) -> None:
        ready.wait()
        found[k] = calls[k]()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[k] for k in range(len(calls))]


# --- weights that a server chooses -----------------------------------------------------------------------------------


def weights(values: Any) -> SparseWeights:
    return SparseWeights.from_dense(np.asarray(values, dtype=float).reshape(-1, 1))


BAD_WEIGHTS = {
    "a line too few": weights(np.eye(D)[0]),
    "a line too many": weights(np.eye(D + 2)[0]),
    "two outputs": SparseWeights.zeros(D + 1, 2),
    "no output": SparseWeights.zeros(D + 1, 0),
    "not a number": weights(np.r_[math.nan, np.zeros(D)]),
    "infinite": weights(np.r_[np.zeros(D), math.inf]),
    "minus infinite": weights(np.r_[-math.inf, np.zeros(D)]),
    "beyond 1e100": weights(np.r_[1.1e100, np.zeros(D)]),
    "the largest": weights(np.r_[-1.7e308, np.zeros(D)]),
    "too many": weights(np.r_[np.ones(5), np.zeros(D - 4)]),
    "far too many": weights(np.full(D + 1, 1e-300)),
    "far too long": SparseWeights(np.array([2**40]), np.ones((1, 1)), 2**41),
}


@pytest.mark.parametrize("what", BAD_WEIGHTS)
def test_weights_that_no_round_starts_from_are_refused(house: House, what: str) -> None:
    client = house.start()
    enrol(client)
    before = house.files
    refused(ask(client, 1, BAD_WEIGHTS[what]), "weights")
    assert house.files == before
    answer(client, 1)  # and the round is not lost


def test_as_many_weights_as_are_remembered_and_the_intercept_may_be_sent(house: House) -> None:
    terms = replace(TERMS, memory=6)
    client = house.start()
    enrol(client, terms)
    answer(client, 1, weights(np.r_[np.ones(6), np.zeros(D - 6), 1.0]), terms)
    refused(ask(client, 2, weights(np.r_[np.ones(7), np.zeros(D - 7), 1.0]), terms), "weights")


@pytest.mark.parametrize("size", [1e15, 1e100, 5e-324])
def test_weights_of_any_size_are_answered_with_a_model_that_has_its_shape(house: House, size: float) -> None:
    client = house.start()
    enrol(client)
    start = np.zeros(D + 1)
    start[[0, 1, 2, D]] = size, -size, size, size
    found = answer(client, 1, weights(start))
    assert np.isfinite(found).all()
    assert np.count_nonzero(found[:D]) <= TERMS.n_nonzero


@pytest.mark.parametrize("terms", [TERMS, replace(TERMS, memory=7)], ids=["paper", "memory"])
def test_an_answer_has_no_more_weights_than_are_remembered(house: House, terms: Terms) -> None:
    client = house.start()
    enrol(client, terms)
    for number in (1, 2, 3):
        found = answer(client, number, terms=terms)
        assert 1 <= np.count_nonzero(found[:D]) <= terms.remembered


# --- what a client agrees to -----------------------------------------------------------------------------------------


def test_a_client_with_a_ledger_takes_part_in_no_study_without_noise(house: House) -> None:
    terms = replace(TERMS, epsilon=None, delta=None)
    client = house.start()
    before = house.files
    refused(said(client, Enrol(terms)), "terms")
    refused(ask(client, 1, terms=terms), "not enrolled")
    assert house.files == before


def test_a_client_without_a_ledger_takes_part_in_no_private_study(house: House) -> None:
    client = house.start(without_privacy=True)
    refused(said(client, Enrol(TERMS)), "terms")
    about = enrol(client, replace(TERMS, epsilon=None, delta=None))
    assert (about.epsilon, about.delta, about.noise) == (None, None, 0.0)


def test_a_study_may_cost_no_more_than_its_people_allow(house: House) -> None:
    client = house.start(max_epsilon=1.9)
    refused(said(client, Enrol(TERMS)), "terms")
    assert not house.entries
    enrol(client, replace(TERMS, epsilon=1.9))
    assert len(house.entries) == 1


@pytest.mark.parametrize(("delta", "allowed"), [(0.9, False), (1 / N, False), (0.99 / N, True)])
def test_delta_must_be_below_one_in_all_rows(house: House, delta: float, allowed: bool) -> None:
    reply = said(house.start(), Enrol(replace(TERMS, delta=delta)))
    assert isinstance(reply, Enrolled if allowed else Refused)
    assert len(house.entries) == allowed


@pytest.mark.parametrize(
    ("bounds", "allowed"),
    [({}, False), ({"row_linf": 1.0}, True), ({"normalise": True}, True), ({"row_l2": 2.0}, True)],
)
def test_rows_must_have_a_bound(house: House, bounds: dict[str, Any], allowed: bool) -> None:
    terms = replace(TERMS, model=LinearTerms(D, ("a", "b"), fit_intercept=False, **bounds))
    reply = said(house.start(), Enrol(terms))
    assert isinstance(reply, Enrolled if allowed else Refused), reply
    assert len(house.entries) == allowed


@pytest.mark.parametrize(
    "model",
    [
        LinearTerms(D + 1, ("a", "b"), row_l2=2.0, fit_intercept=False),
        LinearTerms(2**31 - 1, ("a", "b"), row_l2=2.0, fit_intercept=False),
        LinearTerms(D - 1, ("a", "b"), row_l2=2.0, fit_intercept=False),
    ],
    ids=["more features", "far more features", "fewer features"],
)
def test_terms_that_do_not_go_with_the_rows_are_refused_without_saying_why(house: House, model: LinearTerms) -> None:
    client = house.start()
    reply = refused(said(client, Enrol(replace(TERMS, model=model))), "terms")
    assert reply.text == "the rows here do not go with these terms"
    assert not house.entries
    assert any("do not go with" in line and line != reply.text for line in house.told)


@pytest.mark.parametrize(
    "model",
    [
        LinearTerms(D, (0, 1), row_l2=2.0, fit_intercept=False),
        LinearTerms(D, ("1.0", "b"), row_l2=2.0, fit_intercept=False),
        LinearTerms(D, None, "squared", row_l2=2.0, label=1.0, fit_intercept=False),
        LinearTerms(D, None, "poisson", row_l2=2.0, label=1.0, fit_intercept=False),
    ],
    ids=["numbers", "words", "regression", "counts"],
)
def test_whether_a_client_enrols_says_nothing_of_its_labels(tmp_path: Path, model: LinearTerms) -> None:
    """Nor does an answer: words for numbers, numbers for words and numbers below zero make no error."""
    terms = replace(TERMS, model=model)
    replies = set()
    for k, y in enumerate((Y, np.where(Y == "a", 0, 1), np.linspace(-5, 5, N), np.full(N, "x"))):
        folder = tmp_path / str(k)
        folder.mkdir()
        client = House(folder, X, y).start()
        replies.add(client.answer(encode(Enrol(terms))))
        answer(client, 1, SparseWeights.zeros(D, 1), terms)
    assert len(replies) == 1


def test_what_goes_wrong_with_rows_is_told_here_and_not_to_the_server(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = house.start()
    enrol(client)
    rows = [str(value) for value in X[0]]

    def broken(*args: Any, **more: Any) -> Any:
        raise ValueError(f"row 12345 holds {X[0]}, {rows[0]}")

    monkeypatch.setattr(BatchGradient, "evaluate", broken)
    raw = client.answer(encode(Round(TERMS.digest, 1, ZERO)))
    assert refused(read(raw), "failed").text == "it failed"
    assert b"12345" not in raw
    assert rows[0].encode() not in raw
    # Its type and place in the code: what a library says may quote a row, also on the client's own console.
    assert any("ValueError (test_federated_client.py, line " in line for line in house.told)
    assert not any("12345" in line or rows[0] in line for line in house.told)
    for kind in (RuntimeError, MemoryError, ZeroDivisionError, KeyError, UnicodeError):

        def also(*args: Any, kind: type[Exception] = kind, **more: Any) -> Any:
            raise kind() if kind is UnicodeError else kind("row 12345")

        monkeypatch.setattr(LinearTerms, "task", also)
        raw = client.answer(encode(Enrol(replace(TERMS, study=kind.__name__))))
        assert isinstance(read(raw), Refused)
        assert b"12345" not in raw


def test_refusals_hold_nothing_of_the_rows(tmp_path: Path) -> None:
    """The same bytes, whoever's rows they are."""
    questions = [
        encode(Enrol(replace(TERMS, epsilon=None, delta=None))),
        encode(Enrol(replace(TERMS, delta=0.5))),
        encode(Enrol(replace(TERMS, model=LinearTerms(D, (3, 4), row_l2=1.0, fit_intercept=False)))),
        encode(Round(TERMS.digest, 1, ZERO)),
        b"nonsense",
        encode(Enrol(TERMS)),
        encode(Round(TERMS.digest, 7, ZERO)),
        encode(Round(TERMS.digest, 1, BAD_WEIGHTS["too many"])),
    ]
    found = []
    for name, rows, y in (("one", X, Y), ("other", 50 * X[::-1], np.full(N, "0x5eC2e7"))):
        folder = tmp_path / name
        folder.mkdir()
        client = House(folder, rows, y).start()
        found.append([client.answer(question) for question in questions])
        assert b"0x5eC2e7" not in b"".join(found[-1])
    assert found[0] == found[1]


def test_a_client_shows_no_rows(house: House) -> None:
    client = house.start()
    assert repr(client) == str(client) == "Client('ada')"


def rows_with(value: float) -> np.ndarray:
    changed = X.copy()
    changed[3, 4] = value
    return changed


@pytest.mark.parametrize(
    "change",
    [
        {"X": rows_with(math.nan)},
        {"X": rows_with(math.inf)},
        {"X": sp.csr_array(rows_with(-math.inf))},
        {"y": np.where(np.arange(N) == 3, math.nan, 1.0)},
        {"y": np.where(np.arange(N) == 3, math.inf, 1.0)},
        {"X": X[:1], "y": Y[:1]},
        {"X": X[:0], "y": Y[:0]},
        {"y": Y[:-1]},
        {"groups": np.arange(N - 1)},
        {"rows_per_person": 0},
        {"rows_per_person": True},
        {"max_epsilon": 0.0},
        {"max_epsilon": math.nan},
        {"max_epsilon": math.inf},
    ],
)
def test_bad_rows_and_settings_are_told_when_a_client_is_made(house: House, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of many texts
        house.start(**change)


@pytest.mark.parametrize("name", ["", " ada", "a\nb", "x" * 101, None])
def test_bad_names_are_told_when_a_client_is_made(tmp_path: Path, name: Any) -> None:
    with pytest.raises(ValueError, match="name must be 1 to 100"):
        Client(name, X, Y, ledger=None, state=tmp_path, without_privacy=True)


def test_a_ledger_or_no_privacy_but_not_both_and_not_neither(house: House) -> None:
    ledger = house.start().ledger
    for both in ({"ledger": None}, {"ledger": ledger, "without_privacy": True}):
        with pytest.raises(ValueError, match="give a ledger to bill"):
            Client("ada", X, Y, state=house.folder / "s", **both)


# --- whatever is sent ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> tuple[House, Client]:
    """A client in the middle of a study, with a ledger that allows no other."""
    home = House(tmp_path_factory.mktemp("target"), cap=Budget(2.0, 1e-3))
    client = home.start()
    enrol(client)
    answer(client, 1)
    return home, client


SENT = [encode(Enrol(TERMS)), encode(Round(TERMS.digest, 2, SOME)), encode(Round(TERMS.digest, 1, ZERO))]


@given(data=st.data(), sample=st.sampled_from(SENT))
@settings(max_examples=150)
def test_no_bytes_make_a_client_raise_or_spend(
    target: tuple[House, Client], data: st.DataObject, sample: bytes
) -> None:
    home, client = target
    if data.draw(st.booleans()):
        raw = bytearray(sample)
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(raw)))
            kind = data.draw(st.sampled_from(["flip", "cut", "put", "digit"]))
            if kind == "cut":
                del raw[at:]
            elif kind == "put":
                raw[at:at] = data.draw(st.binary(min_size=1, max_size=6))
            elif at < len(raw):
                raw[at] = data.draw(st.integers(0, 255)) if kind == "flip" else ord(data.draw(st.sampled_from("0129")))
        sent = bytes(raw)
    else:
        sent = data.draw(st.sampled_from([b"", MAGIC, b"tulle federated 1\n"])) + data.draw(st.binary(max_size=100))
    reply = read(client.answer(sent))
    assert isinstance(reply, (Enrolled, Update, Refused))
    assert len(home.entries) == 1
    if isinstance(reply, Update):
        assert reply.number in (1, 2, 3)


def test_messages_for_others_are_refused(house: House) -> None:
    client = house.start()
    about = enrol(client)
    for message in (about, ask(client, 1), Refused("ada", "cap", ""), ZERO, TERMS):
        refused(read(client.answer(encode(message))), "malformed")


def test_a_client_that_trusts_no_aggregator_sends_no_sums(house: House) -> None:
    client = house.start()
    before = house.files
    for question in (AskShape(), AskLabels()):
        refused(read(client.answer(encode(question))), "trust")
    assert house.files == before


def test_a_message_that_is_too_long_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    client = house.start()
    assert decode.__defaults__ is not None
    monkeypatch.setattr(decode, "__defaults__", (100,))
    reply = client.answer(encode(Enrol(TERMS)))
    monkeypatch.undo()
    refused(read(reply), "malformed")
    assert not house.entries


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


# --- a whole study, against the books --------------------------------------------------------------------------------


def test_no_more_is_released_than_was_billed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a server asks, whatever it sends and however often the client is restarted."""
    asked = 0
    plain = Curator.ask

    def counted(self: Curator, *args: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        return plain(self, *args, **more)

    monkeypatch.setattr(Curator, "ask", counted)
    generator = np.random.default_rng(0)
    released: set[tuple[int, bytes]] = set()
    client = house.start()
    for _ in range(60):
        if generator.random() < 0.2:
            client = house.start()
        enrol(client)
        reply = ask(client, int(generator.integers(-1, 6)), SOME if generator.random() < 0.5 else ZERO)
        if isinstance(reply, Update):
            released.add((reply.number, encode(reply.weights)))
    assert len(released) == len({number for number, _ in released}) <= TERMS.rounds
    assert asked == TERMS.local_steps * len(released)
    assert len(house.entries) == 1


def test_a_server_runs_a_client_through_its_study(house: House) -> None:
    client = house.start()
    fit = Server(TERMS, patience=1.0).run(DirectLink({"x": client.answer}))
    assert client.answered(TERMS.digest) == (1, 2, 3)
    assert fit.privacy.epsilon == house.entries[0].epsilon
    plan = Plan(client._studies[TERMS.digest].plan.releases)
    assert fit.privacy.epsilon == proof(plan, 1e-3)[0]


def test_a_simulation_keeps_its_books_in_a_folder(tmp_path: Path) -> None:
    """And goes no further than the budget, which is each client's cap."""
    parts = {"a": (X[:20], Y[:20]), "b": (X[20:], Y[20:])}
    fit = simulate(TERMS, parts, folder=tmp_path)
    ledgers = {name: FileLedger(tmp_path / f"{name}.json", name) for name in parts}
    assert {name: ledger.entries[0].epsilon for name, ledger in ledgers.items()} == {
        about.client: about.epsilon for about in fit.clients
    }
    with pytest.raises(StudyStoppedError, match="cap"):
        simulate(replace(TERMS, study="second"), parts, folder=tmp_path)


def test_the_clients_own_people_find_its_promise_beside_its_state(house: House) -> None:
    client = house.start()
    enrolled = enrol(client)
    place = house.folder / "state" / f"{TERMS.digest}.privacy.json"
    assert place.stat().st_mode & 0o777 == 0o600
    report = PrivacyReport.from_dict(json.loads(place.read_text()))
    assert report == client.report(TERMS.digest)
    assert (report.epsilon, report.delta) == (enrolled.epsilon, enrolled.delta)
    assert report.epsilon == pytest.approx(house.entries[0].epsilon, rel=1e-12)
    assert report.who_saw_what[0].startswith("Trust model: curious server")
    assert [(line.count, line.noise_per_sensitivity) for line in report.bill] == [(TERMS.steps, enrolled.noise)]
