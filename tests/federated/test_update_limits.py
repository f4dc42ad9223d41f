"""Updates that no honest client would send are rejected one by one; honest ones, however extreme, are not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tulle import Budget, FileLedger
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated import Client, Server, StudyStoppedError, Terms, linear_terms
from tulle.federated.client_side.study_plan import SNAPSHOT, STEP, get_noise, plan_study
from tulle.federated.encoding import decode, encode
from tulle.federated.link import Link
from tulle.federated.messages import AskWilling, Enrol, Enrolled, Round, Update, Willing
from tulle.federated.server_side.simulation import simulate
from tulle.federated.server_side.update_limits import UpdateLimits

pytestmark = pytest.mark.usefixtures("no_power_cuts")

N, D = 60, 8
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
Y = np.where(X[:, 0] > 0, 1, 0)
MODEL = linear_terms(D, step=1.0, classes=(0, 1), row_l2=2.0)
FULL = Terms("s", MODEL, 3, 2, 4, 1.0, 0.5, batch=None, epsilon=1.0, delta=1e-4)
SNAPSHOTS = replace(FULL, batch=5, snapshot_batch=20, difference_clip=0.5)
ZERO = SparseWeights.zeros(*MODEL.shape)


def one_weight(value: float, line: int = 2) -> SparseWeights:
    return SparseWeights(np.array([line]), np.array([[value]]), D + 1)


def enrolled(terms: Terms, n: int = N, m: int = 1, name: str = "a", **other: Any) -> Enrolled:
    plan = plan_study(terms, n, m)
    figures = {"noise": get_noise(plan, STEP), "snapshot_noise": get_noise(plan, SNAPSHOT)} | other
    batch = min(terms.batch or n, n)
    return Enrolled(
        terms.digest, name, n, batch, terms.epsilon, terms.delta, rows_per_person=m, seeded=False, **figures
    )


def limits(terms: Terms, client: Enrolled, value: float, start: SparseWeights = ZERO) -> bool:
    return UpdateLimits(terms).contain(one_weight(value), start, client)


# --- the bound -------------------------------------------------------------------------------------------------------


def test_steps_on_all_rows_reach_their_clip_and_their_noise() -> None:
    """K η C for the means, and η s √(2 K L) for the noise, written out."""
    client = enrolled(FULL)
    level = 0.5 * math.hypot(2.0, MODEL.intercept_value)
    chances = math.log(5 * (D + 1) * 3 * 2 / 1e-9)
    noise = client.noise * 2 * level / N * math.sqrt(2 * 2 * chances)
    assert UpdateLimits(FULL).reach(client) == pytest.approx(1.01 * (2 * level + noise), rel=1e-12)
    assert 1e-12 < 2 * math.exp(-chances) * (D + 1) * 3 < 1e-9


@pytest.mark.parametrize("terms", [FULL, replace(FULL, batch=5), SNAPSHOTS, replace(FULL, epsilon=None, delta=None)])
@pytest.mark.parametrize("m", [1, 4])
def test_ten_times_the_reach_is_rejected_and_the_reach_is_not(terms: Terms, m: int) -> None:
    client = enrolled(terms, m=m)
    reach = UpdateLimits(terms).reach(client)
    for sign in (-1, 1):
        assert limits(terms, client, sign * 0.999 * reach)
        assert not limits(terms, client, sign * 1.001 * reach)
        assert not limits(terms, client, sign * 10 * reach)
        assert not limits(terms, client, sign * 1e99)


@pytest.mark.parametrize("penalty", [0.0, 0.5, 1.0, 1.5, 3.0])
def test_what_is_left_of_the_servers_weights(penalty: float) -> None:
    """With η λ <= 1 a weight keeps its side or shrinks; beyond 1 it may change sides, and beyond 2 it grows."""
    terms = replace(FULL, penalty=penalty)
    client, start = enrolled(terms), one_weight(1000.0)
    reach = UpdateLimits(terms).reach(client)
    growth = max(1.0, abs(1 - penalty)) ** 2
    assert limits(terms, client, growth * 1000.0 + 0.9 * reach, start)
    assert not limits(terms, client, 1.02 * growth * 1000.0 + reach, start)
    assert limits(terms, client, -900.0, start) == (penalty > 1)
    assert limits(terms, client, -0.9 * reach, start)
    assert not limits(terms, client, 1000.0 + reach)  # another line than the server's


def test_noise_that_the_budget_does_not_need_is_not_believed() -> None:
    """A client that states 1e300 is limited as one whose every answer is of all rows, without the gain of batches; one
    that states more rows of a person than it has, as one that has no others."""
    for terms in (FULL, replace(FULL, batch=5), SNAPSHOTS):
        honest = UpdateLimits(terms).reach(enrolled(terms))
        liar = UpdateLimits(terms).reach(enrolled(terms, noise=1e300, snapshot_noise=1e300))
        assert honest <= liar < 20 * honest
        assert not limits(terms, enrolled(terms, noise=1e300, snapshot_noise=1e300), 1e99)
    many, all_rows = enrolled(FULL, m=10**9), enrolled(FULL, m=N)
    assert UpdateLimits(FULL).reach(many) == UpdateLimits(FULL).reach(all_rows)
    assert UpdateLimits(FULL).reach(enrolled(FULL, noise=1e300)) < 1.02 * UpdateLimits(FULL).reach(enrolled(FULL))


@pytest.mark.parametrize("n", [3, 7, 60, 5000])
@pytest.mark.parametrize("terms", [FULL, replace(FULL, batch=5), SNAPSHOTS, replace(SNAPSHOTS, snapshot_batch="all")])
def test_no_honest_noise_is_cut(terms: Terms, n: int) -> None:
    """What the server believes at most is at least what clients of any size calibrate."""
    for m in (1, 3):
        client = enrolled(terms, n, m)
        stated = UpdateLimits(terms).reach(client)
        more = UpdateLimits(terms).reach(replace(client, noise=2 * client.noise + 1, snapshot_noise=1e9))
        assert more >= stated
        uncut = UpdateLimits(terms)
        uncut._most_noise = math.inf
        assert uncut.reach(client) == stated


def test_without_a_clip_there_is_no_limit_but_that_of_all_weights() -> None:
    terms = replace(FULL, epsilon=None, delta=None, clip=math.inf)
    assert UpdateLimits(terms).reach(enrolled(terms)) == math.inf
    assert limits(terms, enrolled(terms), 1e99)


def test_extreme_terms_make_no_error() -> None:
    for change in ({"penalty": 1e50}, {"step": 1e50, "clip": 1e50}, {"step": 1e-50, "clip": 1e-50}):
        terms = replace(FULL, local_steps=1000, **change)
        client = enrolled(terms, m=2**52)
        assert isinstance(UpdateLimits(terms).contain(one_weight(1e100), one_weight(1e100), client), bool)


# --- honest clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "terms",
    [
        FULL,
        replace(FULL, local_steps=20, penalty=0.3, memory=8),
        replace(FULL, batch=2, local_steps=5, epsilon=0.05),
        SNAPSHOTS,
        replace(SNAPSHOTS, snapshot_batch="all", local_steps=10, epsilon=20.0),
        replace(FULL, penalty=2.5, local_steps=4),
        replace(FULL, epsilon=None, delta=None, batch=1, local_steps=1),
        replace(FULL, step=50.0),
    ],
)
def test_no_honest_update_is_rejected(terms: Terms) -> None:
    """Rows that are alike, at their bound and in one column: the first gradients have their largest norm in one entry.

    False alarms: 1e-9 a client, by the bound that is tested. Seeds are fixed.
    """
    rows = np.zeros((N, D))
    rows[:, 0] = 2.0
    parts = {"a": (rows, np.ones(N, int)), "b": (-rows, np.ones(N, int)), "c": (X, Y)}
    fit = simulate(replace(terms, rounds=6), parts, seed=1)
    assert all(record.answered == ("a", "b", "c") and not record.rejected for record in fit.rounds)


def test_an_extreme_honest_draw_is_accepted_and_a_larger_one_is_not() -> None:
    """Clipped gradients that all point one way, and noise of 7 standard deviations in each of K steps of all rows."""
    client = enrolled(FULL)
    level = MODEL.level(0.5)
    sd = client.noise * 2 * level / N
    together = 2 * level + math.sqrt(2) * 7 * sd
    assert limits(FULL, client, together)
    assert not limits(FULL, client, 2 * level + math.sqrt(2) * 12 * sd)


# --- the server ------------------------------------------------------------------------------------------------------


@dataclass
class WithStranger(Link):
    """An honest client, and one that answers each round with a weight of its own."""

    honest: Client
    value: float
    n_rows: int = 10**6

    def connected(self) -> tuple[str, ...]:
        return ("honest", "stranger")

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        asked = decode(message, (AskWilling, Enrol, Round, Terms, type(MODEL), SparseWeights))
        for at in whom:
            if at == "honest":
                yield at, self.honest.answer(message)
            elif isinstance(asked, Enrol):
                yield at, encode(enrolled(asked.terms, self.n_rows, name="stranger", noise=1e300))
            elif isinstance(asked, AskWilling):
                yield at, encode(Willing(asked.terms.digest, "stranger", self.n_rows))
            else:
                yield at, encode(Update(asked.study, asked.number, "stranger", one_weight(self.value)))


@pytest.mark.parametrize("factor", [None, 10.0, 1.05, 0.9])
@pytest.mark.parametrize("batch", [None, 5])
def test_a_strangers_weight_beyond_the_terms_does_not_count_and_stops_nothing(
    tmp_path: Path, batch: int | None, factor: float | None
) -> None:
    """1e99, which won before, and multiples of the reach. It has stated a million rows, to count for all others."""
    terms = replace(FULL, batch=batch)
    stranger = enrolled(terms, 10**6, name="stranger", noise=1e300)
    value = 1e99 if factor is None else factor * UpdateLimits(terms).reach(stranger)
    ledger = FileLedger.create(tmp_path / "ledger", "rows", Budget(2.0, 1e-3))
    honest = Client("honest", X, Y, ledger=ledger, state=tmp_path / "state")
    fit = Server(terms, min_clients=1, patience=0.01).run(WithStranger(honest, value))
    counts = factor is not None and factor < 1
    assert len(fit.rounds) == terms.rounds
    for record in fit.rounds[:1]:
        assert record.answered == (("honest", "stranger") if counts else ("honest",))
        assert record.rejected == ({} if counts else {"impossible": 1})
    assert np.abs(fit.weights.values).max() < 100


def test_a_study_of_clients_that_are_all_rejected_says_so(tmp_path: Path) -> None:
    ledger = FileLedger.create(tmp_path / "ledger", "rows", Budget(2.0, 1e-3))
    honest = Client("honest", X, Y, ledger=ledger, state=tmp_path / "state")
    with pytest.raises(StudyStoppedError, match="impossible"):
        Server(FULL, min_clients=2, patience=0.01).run(WithStranger(honest, 1e99))
