"""A federated client: what a study costs, and that it is billed once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_house import LINEAR, REPLIES, SOME, TERMS, ZERO, D, House, N, X, Y, answer, ask, enrol, refused, said
from scipy.stats import norm

import tulle
import tulle.federated.client_side.client as client_module
from tulle import Budget, FileLedger
from tulle.accounting.mechanism_words import describe_mechanism
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import LinearTerms
from tulle.federated.encoding import decode, encode
from tulle.federated.messages import Enrol, Refused, Round, Update, invitation
from tulle.federated.terms import Terms
from tulle.trusted.accountants import epsilon, proof
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import SampledGaussian
from tulle.trusted.plan import Release
from tulle.trusted.sampling import Sampling

pytestmark = pytest.mark.usefixtures("no_power_cuts")

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
    assert entry.plan == (
        f"local step: {describe_mechanism(release.mechanism)}, 6 times, noise / sensitivity {about.noise:.6g}",
    )
    assert "'s'" in entry.what
    assert terms.digest[:8] in entry.what
    report = client.report(terms.digest)
    assert report.billed == (f"entry 1, head {house.entries[0].head}",)
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
    assert one.unit == "one person, of whom one row is used (how many rows they have is not protected)"
    assert replace(one, grouped=False).unit == "one row"
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
        assert not any(figure in reply.text for figure in ("2", "%"))  # the server must not learn how much is left
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


@pytest.mark.parametrize("what", ["memory", "disk"])
def test_a_machine_that_is_too_small_refuses_before_the_bill(
    house: House, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its own people are told what is too small, the server only that something is."""
    client = house.start()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    if what == "memory":
        monkeypatch.setattr("tulle.estimators.memory_check.free_memory", lambda: 100)
    else:
        monkeypatch.setattr("os.posix_fallocate", full)
    reply = said(client, Enrol(TERMS))
    refused(reply, "failed")
    assert reply.text == "this client's machine is too small for the study"
    assert any("cannot be taken part in here" in line for line in house.told)
    assert house.entries == ()
    monkeypatch.undo()
    enrol(client)
    assert len(house.entries) == 1


def test_a_client_that_is_not_listed_refuses_before_the_bill(house: House) -> None:
    """Names are not sent, which others could speak by; who is listed takes part."""
    client = house.start()
    others = tuple(invitation(TERMS.digest, name) for name in ("bob", "eve"))
    refused(said(client, Enrol(TERMS, others)), "not invited")
    assert house.entries == ()
    assert b"bob" not in encode(Enrol(TERMS, others))
    assert not isinstance(said(client, Enrol(TERMS, (*others, invitation(TERMS.digest, "ada")))), Refused)
    assert len(house.entries) == 1


def test_a_state_names_the_version_that_wrote_it_and_one_of_before_goes_on(house: House) -> None:
    """A state without a version is one of before: neither billed again nor answered again."""
    client = house.start()
    enrol(client)
    answer(client, 1)
    place = house.state_of(TERMS)
    raw = place.read_bytes()
    state = decode(raw, (client_module.StudyState, SparseWeights))
    assert state.version == tulle.__version__
    place.write_bytes(encode(replace(state, version="")))
    assert b"version" not in place.read_bytes()
    again = house.start()
    enrol(again)
    answer(again, 2)
    refused(ask(again, 1), "answered")
    assert len(house.entries) == 1


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
