"""What a hostile reading of the federated code found: servers, clients and disks that do what no honest one does."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from client_house import LINEAR, LONG, SOME, TERMS, D, House, N, X, Y, answer, ask, enrol, refused, said
from test_client_noise import NOISE_ONLY, NOTHING, UNRELATED, correlation, scale_of, silent
from test_federated_server import PRIVATE, Scripted, enrolled, unit

from tulle import Bounds, Budget, FileLedger
from tulle.backends.rows_elsewhere import AsNumbers
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side import study_plan
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import LinearTerms
from tulle.federated.client_side.study_plan import check_range
from tulle.federated.encoding import decode, encode
from tulle.federated.messages import AskWilling, Enrol, Enrolled, Refused, RefusedError, Update, Willing
from tulle.federated.question_data import OF_ROWS
from tulle.federated.questions import (
    REPLY_CLASSES,
    AskPrice,
    AskRows,
    Clipped,
    Done,
    OpenFit,
    Opening,
    Summed,
    question_of,
)
from tulle.federated.server_side.server import Server
from tulle.methods.gradient_queries import BatchGradient, ClippedGradient
from tulle.methods.loss_functions import Squared, facts_without_model
from tulle.trusted.curator import Curator
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.exact_noise import grid_and_scale
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian, SampledGaussian
from tulle.trusted.plan import Plan, Release
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import Sampling


@pytest.fixture(autouse=True, scope="module")
def no_power_cuts() -> Iterator[None]:
    """Crashes here are those of processes: waiting for the disk would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def at(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


# --- numbers of the server's choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["row_l2", "row_linf", "label"])
def test_declared_bounds_have_a_range(name: str) -> None:
    """Products of rows and slopes beyond it leave the range of floats, and one row then wipes out a sum."""
    for value in (1e-50, 1.0, 1e50):
        assert getattr(Bounds(**{name: value}), name) == value  # type: ignore[arg-type]
    for value in (1.1e50, 1.79e308, 0.9e-50, 5e-324):
        with pytest.raises(ValueError, match="must lie in"):
            Bounds(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "model"),
    [
        ({}, {"row_l2": 1.79e308, "normalise": True}),
        ({}, {"row_linf": 1e51}),
        ({}, {"label": 5e-324}),
        ({}, {"intercept_value": 1e51}),
        ({"clip": 1e306}, {}),
        ({"clip": 1e-300}, {}),
        ({"step": 1e-300}, {}),
        ({"penalty": 1e300}, {}),
        ({"local_steps": 10_001}, {}),
    ],
)
def test_terms_of_extreme_numbers_are_refused_unbilled(
    house: House, change: dict[str, Any], model: dict[str, Any]
) -> None:
    """A server writes bytes as it likes: that no honest one makes such terms is nothing to rely on."""
    terms, linear = replace(TERMS), replace(LINEAR)
    for name, value in model.items():
        object.__setattr__(linear, name, value)
    for name, value in (change | {"model": linear}).items():
        object.__setattr__(terms, name, value)
    refused(said(house.start(), Enrol(terms)), "malformed")
    assert house.entries == ()


@pytest.mark.parametrize("dense", [True, False])
def test_a_row_that_would_be_stretched_beyond_all_numbers_counts_as_nothing(dense: bool) -> None:
    """And leaves the others as they are; 0 × inf would make the whole sum no number, and then zero."""
    raw = np.ones((4, 2))
    raw[0] *= 1e-6
    short, gone = (Rows(part if dense else sp.csr_array(part), np.ones(len(part))) for part in (raw, raw[1:]))
    facts = PublicFacts(4, 2, 1, Squared(), None, 1.7e308, 1.7e308, 1.0, False)
    answers = []
    for some in (short, gone):
        some.clip_rows(1.7e308, math.inf, True)
        with np.errstate(all="ignore"):
            answers.append(ClippedGradient(np.zeros((2, 1)), 0.01).evaluate(some, facts))
    (block,) = short.blocks
    assert block.active.tolist() == [False, True, True, True]
    assert np.isfinite(block.norms("l2")).all()
    np.testing.assert_array_equal(answers[0], answers[1])
    assert answers[0].any()


@pytest.mark.parametrize(("bound", "short"), [(1e50, 1e-130), (1e50, 0.05), (1e-50, 1e-130)])
def test_a_short_row_among_stretched_ones_moves_a_gradient_no_further_than_another(bound: float, short: float) -> None:
    rows = np.abs(np.random.default_rng(0).normal(size=(40, 3))) + 1
    other = rows.copy()
    other[0] *= short
    model = LinearTerms(3, (-1, 1), row_l2=bound, normalise=True, fit_intercept=False)
    found = []
    for part in (rows, other):
        task = model.task(part, np.ones(40), None, 1)
        query = task.gradient(SparseWeights.zeros(3, 1), 1e-30)
        with np.errstate(all="ignore"):
            found.append(query.evaluate(task.rows, task.public).to_dense())
    assert found[0].any()
    assert np.linalg.norm(found[0] - found[1]) <= query.sensitivity(task.public).l2 * (1 + 1e-9)


@pytest.mark.parametrize("kind", [ClippedGradient, BatchGradient])
def test_no_row_adds_more_than_its_level_where_its_factor_is_below_all_normal_numbers(kind: Any) -> None:
    """2.6e-16 / 1e308 is rounded up to nearly twice what it is."""
    weights = SparseWeights(np.array([0]), np.array([[1e308]]), 2)
    query = BatchGradient(weights, 2.6e-16, 0.0) if kind is BatchGradient else kind(weights.to_dense(), 2.6e-16)
    facts = PublicFacts(1, 2, 1, Squared(), None, 1.0, 1.0, 1.0, False)
    with np.errstate(all="ignore"):
        found, level = query.evaluate(Rows(np.array([[1.0, 0.0]]), np.zeros(1)), facts), query.level(facts)
    dense: Any = found.to_dense() if kind is BatchGradient else found
    assert np.abs(dense).max() <= level * (1 + 1e-9)


class Seen(Rows):
    """Rows that count how often they are summed."""

    asked = 0

    def reduce(self, *how: Any, **more: Any) -> Any:
        self.asked += 1
        return super().reduce(*how, **more)

    def batch(self, numbers: Any) -> Rows:
        return self


@pytest.mark.parametrize(("noise", "asked"), [(1.0, False), (0.0, True)])
@pytest.mark.parametrize("sampled", [False, True])
def test_sums_that_could_overflow_are_not_asked_for(noise: float, asked: bool, sampled: bool) -> None:
    """An overflowing sum counts as nothing, and tells by that how large it was. Without noise nothing is promised."""
    n = 1000
    facts = PublicFacts(n, 1, 1, Squared(), None, 1.0, 1.0, 1.0, False)
    per = NoisePerSensitivity(noise)
    mechanism = SampledGaussian(per, Sampling("poisson", n, 100)) if sampled else Gaussian(per)
    for clip, allowed in ((1e306, asked), (1e148, asked), (1e140, True)):
        seen = Seen(np.full((n, 1), 0.5), np.zeros(n))
        curator = Curator(seen, facts, Plan((Release("step", mechanism, 1),)), np.random.default_rng(0))
        weights = np.full((1, 1), 1e300)
        query = (
            BatchGradient(SparseWeights.from_dense(weights), clip, 0.0) if sampled else ClippedGradient(weights, clip)
        )
        if allowed:
            curator.ask("step", query)
            assert seen.asked
        else:
            with pytest.raises(ValueError, match="could overflow"):
                curator.ask("step", query)
            assert not seen.asked


def test_a_study_whose_sums_could_overflow_is_refused() -> None:
    """No terms reach so far; the guard looks at the level of a row and the number of rows."""
    check_range(TERMS, N)
    terms = replace(TERMS)
    object.__setattr__(terms, "clip", 1e150)
    with pytest.raises(RefusedError, match="could overflow"):
        check_range(terms, N)


def test_weights_beyond_what_clients_accept_do_not_come_from_clients(house: House) -> None:
    """What a client answers is what the next client accepts: nobody is made to refuse by another's answer."""
    terms = replace(TERMS, step=1e50, clip=1e50)
    client = house.start()
    enrol(client, terms)
    for number in (1, 2):
        start = SparseWeights.from_dense(1e100 * SOME.to_dense())
        assert np.abs(answer(client, number, start, terms)).max() <= 1e100


# --- finite precision ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1.0, 8.0, 40.0])
def test_the_delta_that_is_promised_billed_and_asked_for_is_one(house: House, epsilon: float) -> None:
    """At epsilon = 40 finite precision took more than all of it before; now there is no part of it to state."""
    terms = replace(TERMS, epsilon=epsilon)
    client = house.start()
    about = enrol(client, terms)
    report = client.report(terms.digest)
    (entry,) = house.entries
    assert about.delta == report.delta == entry.delta == terms.delta
    assert report.floating_point_slack == 0
    assert client._studies[terms.digest].plan.inexact == 0
    assert any("no part of δ" in line for line in report.assumptions)
    assert "finite precision" not in "\n".join(house.told)


@pytest.mark.parametrize("size", [0.0, 1.0, 1e100])
def test_steps_are_whole_numbers_of_a_public_grid_whatever_weights_are_sent(
    house: House, monkeypatch: pytest.MonkeyPatch, size: float
) -> None:
    """The grid and the scale of noise come from public figures, and so do the units that leave: none is cut."""
    from tulle.trusted import mechanisms

    seen = []
    add_noise = mechanisms.add_noise

    def watched(exact: Any, scale: float, grid: float, *rest: Any) -> Any:
        units = add_noise(exact, scale, grid, *rest)
        seen.append((np.abs(exact / grid).max(), scale / grid, units.copy()))
        return units

    monkeypatch.setattr(mechanisms, "add_noise", watched)
    client = house.start()
    enrol(client)
    answer(client, 1, SparseWeights.from_dense(size * SOME.to_dense()))
    assert len(seen) == TERMS.local_steps
    for largest, steps, units in seen:
        np.testing.assert_array_equal(units, np.rint(units))
        assert 100 <= steps <= 2.0**32
        assert largest < 2.0**52  # so that sums with noise are exact


def test_a_study_begun_by_an_earlier_version_is_not_gone_on_with(house: House) -> None:
    """Its rounds cost more than was billed for them; deleting its state begins it anew, and bills it again."""
    enrol(house.start())
    (state,) = (house.folder / "state").glob("*.study")
    state.write_bytes(state.read_bytes().replace(b"tulle federated 2\n", b"tulle federated 1\n", 1))
    assert "earlier version" in refused(said(house.start(), Enrol(TERMS)), "terms").text
    assert any("left the finite-precision part out" in line and state.name in line for line in house.told)
    assert len(house.entries) == 1
    state.unlink()
    enrol(house.start())
    assert len(house.entries) == 2


# --- enrolment says nothing of rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.str_, object])
def test_words_among_labels_that_are_numbers_are_not_told(tmp_path: Path, kind: Any) -> None:
    """One row says "unknown", of a regression and of classes that are numbers: the client enrols as it would."""
    models = [
        LinearTerms(D, None, loss="squared", row_l2=2.0, label=1.0, fit_intercept=False),
        LinearTerms(D, (0, 1), row_l2=2.0, fit_intercept=False),
    ]
    for k, model in enumerate(models):
        said_of = []
        for word in ("1", "unknown"):
            labels = np.array(["0", "1"] * (N // 2), dtype="U7")
            labels[7] = word
            home = House(at(tmp_path, f"{k} {word}"), y=labels.astype(kind))
            said_of.append(enrol(home.start(), replace(TERMS, model=model)))
        assert said_of[0] == said_of[1]


# --- ledgers and states ----------------------------------------------------------------------------------------------


def test_a_study_is_billed_to_every_ledger_that_it_is_run_under(house: House) -> None:
    """Other people's ledger with the folder of the first: it is billed too, and refuses past its own cap."""
    client = house.start()
    enrol(client)
    answer(client, 1)
    ledgers = {
        cap: FileLedger.create(house.folder / f"{cap}.json", "others", Budget(cap, 1e-3)) for cap in (100.0, 0.01)
    }
    state = house.folder / "state"
    other = Client("ada", X, Y, ledger=ledgers[100.0], state=state)
    enrol(other)
    answer(other, 2)
    assert len(ledgers[100.0].refresh().entries) == 1
    poor = Client("ada", X, Y, ledger=ledgers[0.01], state=state)
    refused(said(poor, Enrol(TERMS)), "cap")
    refused(ask(poor, 3), "not enrolled")
    assert ledgers[0.01].refresh().entries == ()


def test_a_study_is_not_paid_for_by_another_that_bears_its_digest_as_a_name(house: House) -> None:
    """Names are the server's: a cheap study named after a dear one must not pass for it in a ledger."""
    enrol(house.start())
    ledger = FileLedger.create(house.folder / "other.json", "others", Budget(100.0, 0.5))
    other = Client("ada", X, Y, ledger=ledger, state=house.folder / "state")
    ending = other._admission._ending(TERMS)  # as it stands in the ledger
    enrol(other, replace(TERMS, study=ending, epsilon=0.01))
    enrol(other)
    assert [round(entry.epsilon, 2) for entry in ledger.refresh().entries] == [0.01, 2.0]


def test_a_ledger_that_was_put_back_is_billed_again(house: House) -> None:
    """From a copy of before the bill: the state alone does not mean that anything was paid."""
    house.start()
    path = house.folder / "budget"
    shutil.copytree(path, house.folder / "copy")
    enrol(house.start())
    shutil.rmtree(path)
    (house.folder / "copy").rename(path)
    assert house.entries == ()
    enrol(house.start())
    assert len(house.entries) == 1


@pytest.mark.parametrize("before", [5, 1])
def test_a_client_does_not_go_on_with_another_unit(house: House, before: int) -> None:
    """Neither with a smaller one, whose noise is less, nor with a larger one, whose promise was another."""
    groups, terms = np.arange(N) // 5, replace(TERMS, batch=None)
    client = house.start(groups=groups, rows_per_person=before)
    noise = enrol(client, terms).noise
    answer(client, 1, terms=terms)
    again = house.start(groups=groups, rows_per_person=6 - before)
    refused(said(again, Enrol(terms)), "terms")
    refused(ask(again, 2, terms=terms), "not enrolled")
    (house.folder / "elsewhere").mkdir()
    other = House(house.folder / "elsewhere", settings={"groups": groups, "rows_per_person": 6 - before})
    assert enrol(other.start(), terms).noise == noise  # of one sensitivity: it is not this that tells them apart


def test_a_client_does_not_go_on_with_rows_of_another_number(house: House) -> None:
    """Steps on all rows have noise of the same number of sensitivities, of rows that are others."""
    terms = replace(TERMS, batch=None)
    client = house.start()
    enrol(client, terms)
    answer(client, 1, terms=terms)
    again = house.start(X=X[:-1], y=Y[:-1])
    refused(said(again, Enrol(terms)), "terms")
    refused(ask(again, 2, terms=terms), "not enrolled")


def test_a_client_does_not_go_on_with_other_noise(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade whose accountant proves more: the rounds before and after would belong to no one proof."""
    enrol(house.start())
    plain = study_plan.calibrate  # type: ignore[attr-defined]

    def sharper(planned: Any, budget: Any) -> Any:
        return tuple(release.scaled(0.9) for release in plain(planned, budget))

    monkeypatch.setattr(study_plan, "calibrate", sharper)
    refused(said(house.start(), Enrol(TERMS)), "terms")


def test_a_state_that_was_put_back_ends_the_study(house: House) -> None:
    """The round would be answered twice, with noise of its own each time, for one bill."""
    client = house.start()
    enrol(client)
    place = house.state_of(TERMS)
    old = place.read_bytes()
    answer(client, 1)
    place.write_bytes(old)
    for number in (1, 2):
        refused(ask(client, number), "failed")
    assert client.answered(TERMS.digest) == ()


# --- seeds -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fixed_nonce")
def test_two_ledgers_never_share_noise_under_one_seed(tmp_path: Path) -> None:
    """As where two hospitals run the same script: the difference of their models would be that of exact sums.

    False alarms: 1e-7.
    """
    found = []
    for name in "ab":
        client = silent(at(tmp_path, name), seed=7).start()
        enrol(client, NOISE_ONLY)
        found.append(answer(client, 1, NOTHING, NOISE_ONLY))
    assert abs(correlation(*found)) < UNRELATED


@pytest.mark.usefixtures("fixed_nonce")
def test_two_studies_never_share_noise_under_one_seed(tmp_path: Path) -> None:
    """Whatever was restarted, billed or forgotten in between. False alarms: below 1e-5."""
    home = silent(tmp_path, seed=7)
    studies = [replace(NOISE_ONLY, study=name) for name in "abc"]
    found = []
    enrol(home.start(), studies[0])
    client = home.start()
    for terms in studies:
        enrol(client, terms)
        found.append(answer(client, 1, NOTHING, terms))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs(correlation(found[one], found[other])) < UNRELATED


@pytest.mark.usefixtures("fixed_nonce")
def test_ties_are_broken_by_other_numbers_than_the_noise_and_tell_no_seed(tmp_path: Path) -> None:
    """Whoever guesses the seed does not find it confirmed by the last digits of an answer.

    Noise lies on a grid, and the coins are what is left of it: they are not `default_rng(seed)`. False alarms: 1e-7.
    """
    client = silent(tmp_path, seed=7).start()
    enrol(client, NOISE_ONLY)
    terms = replace(NOISE_ONLY, study="once", rounds=1, step=1.0)
    about = enrol(client, terms)
    found = answer(client, 1, NOTHING, terms)
    scale = scale_of(terms, N, about.noise)
    grid, _ = grid_and_scale(about.noise, scale / about.noise, 2.0 * math.sqrt(LONG))
    exact = np.round(found / grid) * grid
    kept = exact != 0
    coins = (found[kept] / exact[kept] - 1) * 1e9
    guessed = np.random.default_rng(7).random((LONG, 1))[kept]
    assert abs(correlation(coins, guessed)) < UNRELATED
    assert 0.4 < coins.mean() < 0.6


# --- a trusted aggregator --------------------------------------------------------------------------------------------


def opened(*releases: Release, delta: float = 1e-4) -> Opening:
    return Opening("0" * 32, "a fit", (Plan(releases),), delta, 1)


def by_aggregator(client: Client, message: Any) -> Any:
    return decode(client.answer(encode(message)), REPLY_CLASSES)


QUIET = Release("step", Gaussian(NoisePerSensitivity(1e6)), 1)


@pytest.mark.parametrize(
    ("delta", "cap", "allowed"), [(0.9, 0.5, False), (1 / N, 0.5, False), (0.02, 0.5, True), (0.02, 0.01, False)]
)
def test_an_aggregators_delta_says_something_about_each_row(
    tmp_path: Path, delta: float, cap: float, allowed: bool
) -> None:
    """At a delta of the server's choice any noise has a small epsilon."""
    client = House(tmp_path, y=np.sign(X[:, 0]), cap=Budget(100.0, cap), settings={"trusts_aggregator": True}).start()
    for message in (AskPrice(opened(QUIET, delta=delta)), OpenFit(opened(QUIET, delta=delta))):
        found = by_aggregator(client, message)
        assert isinstance(found, Done if allowed else Refused)
        assert getattr(found, "why", None) == (None if allowed else "terms")


@pytest.mark.parametrize(("delta", "cap", "allowed"), [(0.02, 0.5, True), (0.02, 0.01, False)])
def test_a_studys_delta_is_below_the_caps(tmp_path: Path, delta: float, cap: float, allowed: bool) -> None:
    found = said(House(tmp_path, cap=Budget(100.0, cap)).start(), Enrol(replace(TERMS, delta=delta)))
    assert isinstance(found, Enrolled) if allowed else refused(found, "terms")


@pytest.mark.parametrize("sampled", [True, False])
def test_single_rows_are_summed_only_in_fits_that_plan_batches(tmp_path: Path, sampled: bool) -> None:
    client = House(tmp_path, y=np.sign(X[:, 0]), settings={"trusts_aggregator": True}).start()
    batches = SampledGaussian(NoisePerSensitivity(5.0), Sampling("poisson", N, 8))
    fit = opened(Release("step", batches, 1) if sampled else QUIET)
    assert isinstance(by_aggregator(client, OpenFit(fit)), Done)
    public = facts_without_model(N, D, 1)
    query = replace(BatchGradient(SparseWeights.zeros(D, 1), 1.0, 0.0).resolve(public), level=1.0)
    question, _ = question_of(partial(query._contribution, public=public), OF_ROWS)

    def asked(numbers: Any) -> Any:
        rows = Clipped(AsNumbers(), (), None if numbers is None else np.array(numbers))
        return by_aggregator(client, AskRows(fit.fit, 0, question, rows, "sum"))

    assert isinstance(asked(None), Summed)
    assert isinstance(asked([7]), Summed if sampled else Refused)
    for wrong in ([7, 7], [7, 3], [-1], [N], [0.5], [[1]]):
        assert isinstance(asked(wrong), Refused)


# --- a server among liars --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "values", "n_lines"),
    [
        pytest.param(np.array([0.5]), np.ones((1, 1)), 3, id="lines of floats"),
        pytest.param(np.array([True]), np.ones((1, 1)), 3, id="lines of truths"),
        pytest.param(np.array([1]), np.ones((1, 1), dtype=bool), 3, id="values of truths"),
        pytest.param(np.array([1]), np.ones((1, 1), dtype=np.int64), 3, id="values of integers"),
        pytest.param(np.array([1]), np.ones((1, 1)), 3.0, id="a length of floats"),
        pytest.param(np.array([1]), np.ones((1, 1)), np.array(3), id="a length that is an array"),
    ],
)
def test_weights_are_of_the_types_that_sums_rely_on(lines: Any, values: Any, n_lines: Any) -> None:
    with pytest.raises(ValueError, match="lines are integers"):
        SparseWeights(lines, values, n_lines)


@pytest.mark.parametrize("name", ["epsilon", "delta", "noise"])
@pytest.mark.parametrize("value", [np.array([0.5]), "0.5", math.nan, math.inf, -0.5, 10**400, True])
def test_what_a_client_says_of_itself_is_numbers(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match="figures are none"):
        enrolled("a", terms=PRIVATE, **{name: value})


def test_a_client_that_enrols_again_is_believed_the_worse_of_what_it_said() -> None:
    """Rounds of before stay as they were: from a seed, with less noise, and at a larger epsilon."""
    said_of = [
        enrolled("a", 50, PRIVATE, epsilon=3.9, noise=1.5, seeded=True),
        enrolled("a", 50, PRIVATE, epsilon=3.5, noise=1.2),
        enrolled("a", 50, PRIVATE, epsilon=3.6, noise=1.9),
    ]
    link = Scripted({})

    def member(about: Enrolled) -> Any:
        def reply(question: Any) -> bytes:
            if isinstance(question, AskWilling):
                return encode(about if isinstance(question, Enrol) else Willing(about.study, "a", about.n_rows))
            return encode(Update(question.study, question.number, "a", unit(2)))

        return reply

    def progress(record: Any, weights: SparseWeights) -> None:
        if record.number < 3:
            link.members = {f"{record.number}": member(said_of[record.number])}

    link.members = {"0": member(said_of[0])}
    fit = Server(PRIVATE, progress=progress, patience=0.01).run(link)
    (about,) = fit.clients
    assert (about.epsilon, about.noise, about.seeded) == (3.9, 1.2, True)
    assert fit.privacy.seeded
    assert fit.privacy.epsilon == 3.9
    assert fit.privacy.floating_point_slack == 0


@pytest.mark.parametrize("other", [{"n_rows": 40}, {"rows_per_person": 2}])
def test_a_client_that_enrols_again_with_other_rows_is_left_out(other: dict[str, Any]) -> None:
    first = enrolled("a", 50, PRIVATE)
    link = Scripted({})

    def member(about: Enrolled, line: int) -> Any:
        def reply(question: Any) -> bytes:
            if not isinstance(question, AskWilling):
                return encode(Update(question.study, question.number, about.client, unit(line)))
            return encode(about if isinstance(question, Enrol) else Willing(about.study, about.client, about.n_rows))

        return reply

    def progress(record: Any, weights: SparseWeights) -> None:
        if record.number == 1:
            link.members = {"again": member(replace(first, **other), 1), "b": member(enrolled("b", 10, PRIVATE), 2)}

    link.members = {"once": member(first, 1)}
    fit = Server(PRIVATE, progress=progress, patience=0.01).run(link)
    assert [record.answered for record in fit.rounds] == [("a",), *[("b",)] * 5]
    assert fit.rounds[1].rejected["other terms"] == 1


@pytest.mark.parametrize("classes", [("0", "1"), (0.0, 1.0), ("0.0", "1.0")])
def test_how_a_column_of_labels_was_read_does_not_decide_which_rows_count(classes: tuple[Any, ...]) -> None:
    """One row that says "unknown" makes a file's column of numbers one of words: all other rows count as before."""
    terms = LinearTerms(2, classes, row_l2=1.0, fit_intercept=False)
    numbers = np.array([0.0, 1.0, 1.0, 0.0])
    for words in (["0", "1", "1", "unknown"], ["0.0", "1.0", "1.0", "unknown"]):
        for given, counted in ((numbers, [True] * 4), (np.array(words), [True, True, True, False])):
            targets, known = terms.targets(given)
            assert known.tolist() == counted
            assert targets[known].tolist() == [-1.0, 1.0, 1.0, -1.0][: sum(counted)]


def test_classes_that_are_one_number_are_one_class() -> None:
    with pytest.raises(ValueError, match="at least two different"):
        LinearTerms(2, ("1", "1.0"), row_l2=1.0, fit_intercept=False)
