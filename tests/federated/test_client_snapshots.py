"""A federated client whose local steps have snapshots: what it plans, bills and answers, and who refuses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from client_house import SOME, TERMS, ZERO, D, House, N, X, Y, answer, ask, enrol, refused

from tulle.accounting.mechanism_words import describe_mechanism
from tulle.federated.client_side.study_plan import SNAPSHOT, STEP, check_range, plan_rounds_left, plan_study
from tulle.federated.encoding import decode, encode
from tulle.federated.messages import Enrolled, RefusedError
from tulle.federated.server_side.simulation import simulate
from tulle.federated.server_side.study_report import study_report
from tulle.federated.terms import ModelTerms, Terms
from tulle.methods.gradient_queries import BatchGradient
from tulle.trusted.accountants import proof
from tulle.trusted.curator import Curator
from tulle.trusted.mechanisms import _as_array
from tulle.trusted.plan import PlanError

pytestmark = pytest.mark.usefixtures("no_power_cuts")

SCSG = replace(TERMS, snapshot_batch=20)
SVRG = replace(TERMS, snapshot_batch="all")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often curators were asked, by release."""
    counts: Counter[str] = Counter()
    plain = Curator.ask

    def ask_and_count(curator: Curator, name: str, *about: Any, **more: Any) -> Any:
        counts[name] += 1
        return plain(curator, name, *about, **more)

    monkeypatch.setattr(Curator, "ask", ask_and_count)
    return counts


# --- bills -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("terms", "rows"), [(SCSG, 20), (SVRG, N), (replace(TERMS, snapshot_batch=1000), N)])
def test_the_bill_holds_all_snapshots_and_all_steps(house: House, terms: Terms, rows: int) -> None:
    client = house.start()
    about = enrol(client, terms)
    assert about.epsilon is not None
    assert 0.99 * 2.0 < about.epsilon <= 2.0
    step, snapshot = client._studies[terms.digest].plan.releases
    assert (step.name, step.count, snapshot.name, snapshot.count) == (STEP, 6, SNAPSHOT, 3)
    batches = [release.mechanism.sampling for release in (step, snapshot)]
    assert [(one.batch, one.n_rows, one.scheme) for one in batches if one] == [
        (8, N, "poisson"),
        (rows, N, "poisson"),
    ]
    assert (about.noise, about.snapshot_noise) == (step.mechanism.noise.value, snapshot.mechanism.noise.value)
    assert about.snapshot_noise / about.noise == pytest.approx(rows / 8 * math.sqrt(0.2 / 2))
    (entry,) = house.entries
    plan = client._studies[terms.digest].plan
    assert (entry.epsilon, entry.delta) == (proof(plan, 1e-3)[0], 1e-3) == (about.epsilon, about.delta)
    assert entry.plan == tuple(
        f"{release.name}: {describe_mechanism(release.mechanism)}, {release.count} times, noise / sensitivity "
        f"{release.mechanism.noise.value:.6g}"
        for release in (step, snapshot)
    )
    lines = client.report(terms.digest).bill
    assert [(line.release, line.count) for line in lines] == [(STEP, 6), (SNAPSHOT, 3)]
    assert about.epsilons_alone == tuple(line.epsilon_alone for line in lines)
    assert max(about.epsilons_alone) < about.epsilon < sum(about.epsilons_alone)


def test_a_study_answers_what_was_billed(house: House, asked: Counter[str]) -> None:
    client = house.start()
    enrol(client, SCSG)
    for number in (1, 2, 3):
        answer(client, number, SOME, SCSG)
        assert asked == {STEP: 2 * number, SNAPSHOT: number}
    study = client._studies[SCSG.digest]
    assert study.curator is not None
    study.curator.settle()  # the ledger's plan, all of it
    for name in (STEP, SNAPSHOT):
        with pytest.raises(PlanError, match="more than"):
            study.curator.ask(name, study.task.gradient(ZERO, 1.0))


def test_rounds_after_a_restart_are_those_that_are_left(house: House, asked: Counter[str]) -> None:
    client = house.start()
    enrol(client, SCSG)
    answer(client, 1, SOME, SCSG)
    again = house.start()
    enrol(again, SCSG)
    answer(again, 3, SOME, SCSG)  # the second round is over for this client
    curator = again._studies[SCSG.digest].curator
    assert curator is not None
    assert {name: release.count for name, release in curator._bill._planned.items()} == {STEP: 4, SNAPSHOT: 2}
    assert asked == {STEP: 4, SNAPSHOT: 2}
    assert len(house.entries) == 1


def test_a_round_asked_again_has_the_same_answer_and_no_more_is_drawn(house: House, asked: Counter[str]) -> None:
    client = house.start()
    enrol(client, SCSG)
    first = answer(client, 1, SOME, SCSG)
    again = house.start()
    enrol(again, SCSG)
    np.testing.assert_array_equal(answer(client, 1, SOME, SCSG), first)
    np.testing.assert_array_equal(answer(again, 1, SOME, SCSG), first)
    refused(ask(again, 1, ZERO, SCSG), "answered")
    assert asked == {STEP: 2, SNAPSHOT: 1}


@pytest.mark.parametrize("answered", [0, 1, 3])
def test_what_is_left_costs_no_more_than_was_billed(answered: int) -> None:
    plan = plan_study(SCSG, N, 1)
    left = plan_rounds_left(plan, SCSG, answered)
    assert [release.count for release in left.releases] == [2 * (3 - answered), 3 - answered]
    assert [release.mechanism for release in left.releases] == [release.mechanism for release in plan.releases]
    assert proof(left, 1e-3)[0] <= proof(plan, 1e-3)[0]


def test_a_study_whose_snapshots_had_other_noise_is_not_gone_on_with(house: House) -> None:
    client = house.start()
    enrol(client, SCSG)
    state = client._read(SCSG.digest)
    assert state is not None
    client._write(replace(state, snapshot_noise=0.9 * state.snapshot_noise))
    other = house.start()
    with pytest.raises(RefusedError, match="noise"):
        other._open(SCSG)


# --- rows and weights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [SCSG, SVRG])
def test_a_round_is_private_at_any_weights_of_the_server(house: House, terms: Terms) -> None:
    """Weights at the end of the range give an answer as any others do."""
    client = house.start()
    enrol(client, terms)
    start = SOME.scaled(1e100)
    assert np.all(np.isfinite(answer(client, 1, start, terms)))


def test_what_is_released_are_gradients_and_never_sums_with_the_servers_weights(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums with huge weights are rounded to where the weights say. A step is asked at the model of the round's start
    and where the client is now."""
    seen: list[tuple[str, Any]] = []
    plain = Curator.ask

    def spy(curator: Curator, name: str, query: Any, then: Any = None) -> Any:
        assert then is None
        assert type(query) is BatchGradient
        seen.append((name, query.anchor))
        found = plain(curator, name, query, then)
        assert np.all(np.abs(found) < 100)  # no start in it
        return found

    monkeypatch.setattr(Curator, "ask", spy)
    client = house.start()
    enrol(client, SCSG)
    answer(client, 1, SOME.scaled(1e15), SCSG)
    assert [name for name, _ in seen] == [SNAPSHOT, STEP, STEP]
    assert seen[0][1] is None
    for _, anchor in seen[1:]:
        np.testing.assert_array_equal(anchor.to_dense(), 1e15 * SOME.to_dense())


def test_sparse_rows_have_the_answers_of_dense_ones() -> None:
    found = [
        simulate(replace(SCSG, study="same"), {"ada": (rows, Y)}, seed=3).weights.to_dense()
        for rows in (X, sp.csr_array(X))
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    assert np.count_nonzero(found[0][:-1]) == SCSG.n_nonzero


def test_each_row_adds_to_changes_what_their_level_allows() -> None:
    """Whatever two models the server's weights lead to."""
    task = TERMS.model.task(X, Y, None, 1)
    for scale in (0.0, 1e-3, 1.0, 1e3):
        query = task.gradient_change(SOME.scaled(scale), ZERO, 0.25, 0.05).resolve(task.public)
        assert query.level <= 0.05 * task.public.row_bound(task.intercept_value) * (1 + 1e-12)
        assert query.one_unit(task.public) == pytest.approx(query.level / N)
        mean = _as_array(query.evaluate(task.rows, task.public))
        assert np.linalg.norm(mean) <= query.level * (1 + 1e-12)


def test_sums_of_changes_are_counted_twice_in_what_could_overflow() -> None:
    edge = 0.75 * 1e150 / (N * SCSG.model.level(1.0))
    plain, snapshots = (replace(one, clip=1.0) for one in (TERMS, SCSG))
    for one in (plain, snapshots):
        object.__setattr__(one, "clip", edge)
    check_range(plain, N)
    with pytest.raises(RefusedError, match="overflow"):
        check_range(snapshots, N)


# --- terms and messages ----------------------------------------------------------------------------------------------


class _Network(ModelTerms):
    """A model without snapshots."""

    shape = property(lambda self: (D, 1))
    start: Callable[..., Any] = lambda self, n_nonzero: ZERO
    threshold = task = level = facts = start


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"snapshot_batch": 7}, "from batch=8"),
        ({"snapshot_batch": 8.0}, "from batch=8"),
        ({"snapshot_batch": True}, "from batch=8"),
        ({"snapshot_batch": 10**8}, "10,000,000"),
        ({"snapshot_batch": "most"}, "'all'"),
        ({"snapshot_batch": 20, "batch": None}, "give batch"),
        ({"snapshot_batch": 20, "difference_clip": 0.0}, r"\(0, 2\]"),
        ({"snapshot_batch": 20, "difference_clip": 2.5}, r"\(0, 2\]"),
        ({"snapshot_batch": 20, "difference_clip": math.nan}, r"\(0, 2\]"),
        ({"difference_clip": 0.5}, "give snapshot_batch"),
        ({"snapshot_batch": 20, "model": _Network()}, "linear models"),
    ],
)
def test_terms_that_make_no_sense_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        replace(TERMS, **settings)


def test_terms_without_snapshots_have_the_bytes_of_before() -> None:
    """A study that runs while clients are upgraded stays the same study."""
    assert b"snapshot" not in encode(TERMS)
    assert b"difference" not in encode(TERMS)
    assert TERMS.digest == "2c0ab5af128ebb44f71b015a01662ac0348008405dfeb86ae6a5d9933ac8d2a4"
    assert len({TERMS.digest, SCSG.digest, SVRG.digest, replace(SCSG, difference_clip=0.5).digest}) == 4
    classes = (Terms, type(TERMS.model))
    for terms in (TERMS, SCSG, replace(SVRG, difference_clip=0.5)):
        assert decode(encode(terms), classes) == terms


def test_names_and_words_of_studies_with_snapshots() -> None:
    assert (SCSG.method, SVRG.method) == ("DP-FedSCSG-HT", "DP-FedSVRG-HT")
    assert "a snapshot on about 20 rows in each round" in SCSG.describe()
    assert "a snapshot on all rows in each round" in SVRG.describe()
    assert "snapshot" not in TERMS.describe()


def test_the_studys_report_lists_snapshots(house: House) -> None:
    about = enrol(house.start(), SCSG)
    step, snapshot = study_report(SCSG, (about,)).bill
    assert (step.release, step.count, step.noise_per_sensitivity) == ("ada: local step", 6, about.noise)
    assert (snapshot.release, snapshot.count, snapshot.noise_per_sensitivity) == (
        "ada: snapshot",
        3,
        about.snapshot_noise,
    )
    assert "about 20 of 40" in snapshot.mechanism
    assert (step.epsilon_alone, snapshot.epsilon_alone) == about.epsilons_alone


@pytest.mark.parametrize("wrong", [(1.0,), (1.0, -1.0), (1.0, math.nan), [1.0, 1.0], ("a", "b")])
def test_a_client_cannot_state_other_figures(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        Enrolled("s", "ada", 10, 5, 1.0, 1e-5, 1.0, 1, False, epsilons_alone=wrong)


def test_rows_read_are_those_of_steps_and_snapshots() -> None:
    terms = replace(SCSG, epsilon=None, delta=None, clip=math.inf)
    fit = simulate(terms, {"a": (X, Y), "b": (X[:30], Y[:30])}, seed=0)
    assert fit._passes() == (6 * 8 + 3 * 20) / 30
    assert fit.model().n_passes_ == fit._passes()
