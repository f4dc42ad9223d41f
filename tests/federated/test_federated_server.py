"""The server of a study: the same model as a central fit, whoever answers, whoever does not and whoever lies."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

import tulle
from tulle import Bounds, Budget, FileLedger, SparseClassifier, SparseRegressor
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import LinearTerms, linear_terms
from tulle.federated.client_side.row_by_row import make_rows
from tulle.federated.encoding import MAGIC, decode, encode
from tulle.federated.link import DirectLink, Link
from tulle.federated.messages import AskWilling, Enrol, Enrolled, Refused, Round, Update, Willing
from tulle.federated.server_side.federated_fit import FederatedFit, RoundRecord
from tulle.federated.server_side.server import Server, StudyStoppedError
from tulle.federated.server_side.simulation import simulate
from tulle.federated.server_side.study_report import study_report
from tulle.federated.terms import Terms
from tulle.methods import StochasticHardThresholding
from tulle.reports.report import PrivacyReport
from tulle.trusted import hooks

N, D = 200, 20
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
SCORES = X[:, 3] - X[:, 7] + 0.5 * X[:, 11]
TARGETS = {
    "two classes": np.where(SCORES > 0.1, "b", "a"),
    "three classes": np.array(["c", "a", "b"])[np.digitize(SCORES, [-0.4, 0.4])],
    "regression": np.clip(SCORES, -1, 1),
}
Y = TARGETS["two classes"]
CLASSES = {"two classes": ("b", "a"), "three classes": ("b", "c", "a"), "regression": None}
QUESTIONS = (AskWilling, Enrol, Round, Terms, LinearTerms, SparseWeights)
REPLIES = (Enrolled, Update, Refused, SparseWeights)


def model_of(kind: str, fit_intercept: bool = True, **other: Any) -> LinearTerms:
    public: dict[str, Any] = {"classes": CLASSES[kind], "row_l2": 2.0}
    if kind == "regression":
        public |= {"loss": "squared", "label": 1.0}
    return linear_terms(D, step=2.0, fit_intercept=fit_intercept, **public, **other)


LINEAR = model_of("two classes")
PLAIN = Terms("s", LINEAR, 6, 1, 4, 2.0, 0.5, batch=40, epsilon=None, delta=None)
PRIVATE = replace(PLAIN, epsilon=4.0, delta=1e-4)
PARTS = {"ada": slice(0, 100), "ben": slice(100, 160), "cy": slice(160, N)}


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Crashes here are those of processes: waiting for the disk would take most of the time."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


# --- the same as a central fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [4, 9])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", TARGETS)
def test_one_client_and_one_step_is_the_central_fit_to_the_last_bit(
    kind: str, fit_intercept: bool, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise, under one seed: the same batches, the same steps. Clients add up margins row by row, and so does
    the central fit here. Sparse rows add up in another order."""
    monkeypatch.setitem(hooks._HOOKS, "block", lambda *rows: make_rows(*rows).blocks[0])
    rounds, batch = 12, 40
    method = StochasticHardThresholding(
        batch=batch, passes=rounds * batch / N, step=2.0, memory=memory, damping=0.0, average=0.0, clip=0.5
    )
    estimator = SparseRegressor if kind == "regression" else SparseClassifier
    more = {"loss": "squared"} if kind == "regression" else {}
    bounds = Bounds(row_l2=2.0, label=1.0) if kind == "regression" else Bounds(row_l2=2.0)
    y = TARGETS[kind]
    central = estimator(
        None, n_nonzero=4, method=method, bounds=bounds, fit_intercept=fit_intercept, random_state=7, **more
    ).fit(X, y)
    assert central.n_iter_ == rounds
    terms = Terms("s", model_of(kind, fit_intercept), rounds, 1, 4, 2.0, 0.5, batch, None, None, memory)
    found = simulate(terms, {"one": (X, y)}, seed=7).model()
    assert np.count_nonzero(central.coef_)
    np.testing.assert_array_equal(found.coef_, central.coef_)
    np.testing.assert_array_equal(found.intercept_, central.intercept_)
    np.testing.assert_array_equal(found.predict(X), central.predict(X))
    sparse = simulate(terms, {"one": (sp.csr_array(X), y)}, seed=7).model()
    np.testing.assert_allclose(sparse.coef_, central.coef_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sparse.intercept_, central.intercept_, rtol=0, atol=1e-12)
    other = simulate(terms, {"one": (X, y)}, seed=8).model()
    assert not np.array_equal(other.coef_, central.coef_)


@pytest.mark.parametrize("memory", [None, 9])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_three_local_steps_of_one_client_are_three_rounds(memory: int | None, penalty: float) -> None:
    one = replace(PLAIN, rounds=12, local_steps=1, memory=memory, penalty=penalty)
    three = replace(one, rounds=4, local_steps=3)
    models = [simulate(terms, {"one": (X, Y)}, seed=3).weights.to_dense() for terms in (one, three)]
    assert models[0].any()
    np.testing.assert_array_equal(models[0], models[1])


def kept(values: np.ndarray, keep: int) -> np.ndarray:
    """The largest entries, and the intercept's line."""
    found = values.copy()
    order = np.argsort(-np.abs(values[:D, 0]), kind="stable")
    found[order[keep:], 0] = 0.0
    return found


def clipped_gradient(w: np.ndarray, X: np.ndarray, y: np.ndarray, a: float, clip: float) -> np.ndarray:
    """The mean of logistic gradients, each clipped to clip × its bound, written out."""
    lengths = np.linalg.norm(X, axis=1)
    X = X * np.minimum(1.0, 2.0 / lengths)[:, None]
    rows = np.hstack([X, np.full((len(X), 1), a)]) if a else X
    signs = np.where(y == "b", 1.0, -1.0)
    slopes = -signs * expit(-signs * (rows @ w)[:, 0])
    norms = np.abs(slopes) * np.linalg.norm(rows, axis=1)
    level = clip * math.hypot(2.0, a)
    return np.asarray(rows.T @ (slopes * np.minimum(1.0, level / norms)) / len(rows))[:, None]


@pytest.mark.parametrize("penalty", [0.0, 0.1])
@pytest.mark.parametrize("clip", [0.2, 5.0])
@pytest.mark.parametrize("weighting", ["rows", "equal"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rounds_on_all_rows_are_hard_thresholding_written_out(
    fit_intercept: bool, weighting: Any, clip: float, penalty: float
) -> None:
    """FedGD-HT of three clients, two local steps: steps, averages by weights, thresholds."""
    model = model_of("two classes", fit_intercept)
    a = model.intercept_value
    terms = Terms("s", model, 5, 2, 4, 2.0, clip, None, None, None, penalty=penalty)
    w = np.zeros(model.shape)
    sizes = {name: len(X[part]) if weighting == "rows" else 1 for name, part in PARTS.items()}
    for _ in range(5):
        local = {}
        for name, part in PARTS.items():
            v = w
            for _ in range(2):
                shrunk = penalty * v * (np.arange(len(v)) < D)[:, None]
                v = kept(v - 2.0 * (clipped_gradient(v, X[part], Y[part], a, clip) + shrunk), 4)
            local[name] = v
        w = kept(sum(sizes[name] * local[name] for name in PARTS) / sum(sizes.values()), 4)
    fit = simulate(terms, {name: (X[part], Y[part]) for name, part in PARTS.items()}, weighting=weighting)
    np.testing.assert_allclose(fit.weights.to_dense(), w, rtol=0, atol=1e-12)
    assert np.count_nonzero(w[:D]) == 4


# --- averaging -------------------------------------------------------------------------------------------------------


@dataclass
class Scripted(Link):
    """Connections that say what a test says: a function of the message, or None for silence."""

    members: dict[str, Callable[[Any], bytes | None]]
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def connected(self) -> tuple[str, ...]:
        return tuple(self.members)

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        question = decode(message, QUESTIONS)
        for at in whom:
            self.asked.append((at, question))
            reply = self.members[at](question)
            if reply is not None:
                yield at, reply


def enrolled(name: str, n_rows: int = 10, terms: Terms = PLAIN, **other: Any) -> Enrolled:
    figures: dict[str, Any] = {"epsilon": terms.epsilon, "delta": terms.delta}
    about: dict[str, Any] = {"batch": 1, "noise": 1.0, "rows_per_person": 1, "seeded": False}
    return Enrolled(terms.digest, name, n_rows, **(figures | about | other))


def member(
    name: str, model: Callable[[Round], Any], n_rows: int = 10, terms: Terms = PLAIN
) -> Callable[[Any], bytes | None]:
    """One who enrols and answers each round with weights, or with bytes of its own, or not at all."""

    def answer(question: Any) -> bytes | None:
        if isinstance(question, Enrol):
            return encode(enrolled(name, n_rows, terms))
        if isinstance(question, AskWilling):
            return encode(Willing(terms.digest, name, n_rows))
        found = model(question)
        if isinstance(found, SparseWeights):
            return encode(Update(question.study, question.number, name, found))
        assert found is None or isinstance(found, bytes)
        return found

    return answer


def unit(line: int, value: float = 1.0) -> SparseWeights:
    return SparseWeights(np.array([line]), np.array([[value]]), D + 1)


def dense_model(seed: int, keep: int = 4) -> SparseWeights:
    found = np.zeros((D + 1, 1))
    generator = np.random.default_rng(seed)
    lines = generator.choice(D, keep, replace=False)
    found[lines, 0] = generator.normal(size=keep)
    found[D] = generator.normal()
    return SparseWeights.from_dense(found)


@pytest.mark.parametrize("weighting", ["rows", "equal"])
@pytest.mark.parametrize("average", [0.0, 0.5, 0.51, 1.0])
def test_models_are_averaged_thresholded_and_averaged_over_rounds(weighting: Any, average: float) -> None:
    rounds, rows = 6, {"a": 50, "b": 30, "c": 7}
    terms = replace(PLAIN, rounds=rounds)
    sent: list[np.ndarray] = []

    def speaks(k: int, name: str) -> Callable[[Round], SparseWeights]:
        def model(asked: Round) -> SparseWeights:
            if name == "a":
                sent.append(asked.weights.to_dense())
            return dense_model(10 * asked.number + k)

        return model

    link = Scripted({name: member(name, speaks(k, name), rows[name], terms) for k, name in enumerate(rows)})
    fit = Server(terms, weighting=weighting, average=average, patience=1.0).run(link)
    shares = {name: rows[name] if weighting == "rows" else 1 for name in rows}
    after = []
    for number in range(1, rounds + 1):
        models = [shares[name] * dense_model(10 * number + k).to_dense() for k, name in enumerate(rows)]
        after.append(kept(sum(models) / sum(shares.values()), 4))
    np.testing.assert_array_equal(sent[0], 0.0)
    for found, expected in zip(sent[1:], after):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    last = after[rounds - math.ceil(average * rounds) :] if average else after[-1:]
    assert len(last) == {0.0: 1, 0.5: 3, 0.51: 4, 1.0: 6}[average]
    np.testing.assert_allclose(fit.weights.to_dense(), kept(np.mean(last, axis=0), 4), rtol=0, atol=1e-14)


def test_more_weights_are_remembered_than_the_model_keeps() -> None:
    terms = replace(PLAIN, rounds=2, memory=7)
    sent: list[SparseWeights] = []

    def model(asked: Round) -> SparseWeights:
        sent.append(asked.weights)
        return dense_model(asked.number, 7)

    fit = Server(terms, patience=1.0).run(Scripted({"a": member("a", model, terms=terms)}))
    np.testing.assert_array_equal(sent[1].to_dense(), dense_model(1, 7).to_dense())
    assert np.count_nonzero(fit.weights.to_dense()[:D]) == 4
    np.testing.assert_array_equal(fit.weights.to_dense(), kept(dense_model(2, 7).to_dense(), 4))


def test_only_weights_that_are_not_zero_travel(tmp_path: Path) -> None:
    """Sixteen bytes each, whatever the number of features."""
    lengths = {}
    for d in (50, 50_000):
        linear = linear_terms(d, step=1.0, classes=("a", "b"), row_l2=1.0)
        terms = replace(PRIVATE, model=linear, rounds=1, n_nonzero=20)
        rows = sp.random_array((N, d), density=10 / d, random_state=np.random.default_rng(0), format="csr")
        client = Client("ada", rows, Y, ledger=ledger(tmp_path / f"{d}.json"), state=tmp_path / str(d))
        heard = [client.answer(encode(Enrol(terms)))]
        heard.append(client.answer(encode(Round(terms.digest, 1, linear.start(20)))))
        update = decode(heard[1], REPLIES)
        assert 15 <= np.count_nonzero(update.weights.to_dense()) <= 21  # on a grid some are zero
        lengths[d] = len(heard[1])
        assert lengths[d] <= 16 * 21 + 300
        assert len(encode(Round(terms.digest, 1, update.weights))) <= 16 * 21 + 300
    assert lengths[50_000] - lengths[50] < 20


def ledger(path: Path, cap: Budget = Budget(100.0, 0.5)) -> FileLedger:  # noqa: B008 - frozen
    return FileLedger(path, "rows") if path.exists() else FileLedger.create(path, "rows", cap)


# --- who does not count ----------------------------------------------------------------------------------------------

HONEST = unit(2, 1.5)
TWO = np.ones((2, 1))


def head(message: Any, arrays: Any = (), tail: bytes = b"") -> bytes:
    text = json.dumps({"message": message, "arrays": arrays}).encode()
    return MAGIC + len(text).to_bytes(8, "little") + text + tail


def update_with(
    asked: Round, lines: Any = None, values: Any = None, n_lines: Any = D + 1, client: str = "bad", **other: Any
) -> bytes:
    """An update with parts of any kind, past all checks of whoever would write it."""
    lines = np.array([1]) if lines is None else np.asarray(lines)
    values = np.ones((1, 1)) if values is None else np.asarray(values)
    parts = {"lines": {"array": 0}, "values": {"array": 1}, "n_lines": n_lines}
    about = {"study": asked.study, "number": asked.number, "client": client}
    about |= {"weights": {"is": "SparseWeights", "of": parts}} | other
    arrays = [[array.dtype.str, list(array.shape)] for array in (lines, values)]
    return head({"is": "Update", "of": about}, arrays, lines.tobytes() + values.tobytes())


def many(count: int) -> SparseWeights:
    return SparseWeights.from_dense(np.r_[np.ones(count), np.zeros(D + 1 - count)][:, None])


LIES: dict[str, tuple[Callable[[Round], bytes | SparseWeights | None], str | None]] = {
    "silence": (lambda asked: None, None),
    "nothing": (lambda asked: b"", "malformed"),
    "garbage": (lambda asked: b"\x80\x04\x95garbage", "malformed"),
    "a head and no body": (lambda asked: MAGIC + b"\xff" * 8, "malformed"),
    "another message": (lambda asked: encode(enrolled("bad")), "malformed"),
    "its question": (lambda asked: encode(asked), "malformed"),
    "bare weights": (lambda asked: encode(HONEST), "malformed"),
    "a refusal": (lambda asked: encode(Refused("bad", "cap", "no")), "refused: cap"),
    "a kind of array that is none": (lambda asked: head(None, [[{}, [1]]]), "malformed"),
    "an array longer than any": (lambda asked: head(None, [["<f8", [0, 2**63 - 1]]]), "malformed"),
    "the last round": (lambda asked: encode(Update(asked.study, asked.number - 1, "bad", HONEST)), "other round"),
    "the next round": (lambda asked: encode(Update(asked.study, asked.number + 1, "bad", HONEST)), "other round"),
    "another study": (lambda asked: encode(Update("0" * 64, asked.number, "bad", HONEST)), "other round"),
    "another's name": (lambda asked: encode(Update(asked.study, asked.number, "good", unit(1, 9.0))), "unknown client"),
    "not a number": (lambda asked: unit(2, math.nan), "impossible"),
    "infinity": (lambda asked: unit(2, -math.inf), "impossible"),
    "a weight beyond all": (lambda asked: unit(2, 1e101), "impossible"),
    "too many weights": (lambda asked: many(5), "impossible"),
    "all weights": (lambda asked: many(D + 1), "impossible"),
    "a line too few": (lambda asked: SparseWeights.zeros(D, 1), "impossible"),
    "another output": (lambda asked: SparseWeights.zeros(D + 1, 2), "impossible"),
    "no output": (lambda asked: SparseWeights.zeros(D + 1, 0), "impossible"),
    "lines that are no integers": (lambda asked: update_with(asked, [0.2, 0.6], TWO), "any"),
    "lines that are truths": (lambda asked: update_with(asked, [False, True], TWO), "any"),
    "weights that are truths": (lambda asked: update_with(asked, values=[[True]]), "any"),
    "a length that is no integer": (lambda asked: update_with(asked, n_lines=float(D + 1)), "any"),
    "a length that is an array": (lambda asked: update_with(asked, n_lines={"array": 0}), "any"),
    "a study that is an array": (lambda asked: update_with(asked, study={"array": 0}), "any"),
    "a study that is a long array": (
        lambda asked: update_with(asked, [1, 2], np.ones((2, 1)), study={"array": 0}),
        "any",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_whoever_answers_wrongly_is_counted_and_left_out(lie: str) -> None:
    """The model is that of the others, in every round, and the study ends as it should.

    What is "any" may count, where it is but an odd way to write a model, or be rejected; the study goes on with both.
    """
    words, why = LIES[lie]
    terms = replace(PLAIN, rounds=3)
    sent: list[np.ndarray] = []

    def honest(asked: Round) -> SparseWeights:
        sent.append(asked.weights.to_dense())
        return HONEST

    link = Scripted({"x": member("bad", words, 10**6, terms), "y": member("good", honest, 10, terms)})
    fit = Server(terms, patience=0.01, seconds=0.1).run(link)
    assert [record.number for record in fit.rounds] == [1, 2, 3]
    for record in fit.rounds:
        assert "good" in record.answered
        if why != "any":
            assert record.answered == ("good",)
            assert record.missing == ("bad",)
            assert record.rejected == ({} if why is None else {why: 1})
    assert np.isfinite(fit.weights.to_dense()).all()
    assert all(np.isfinite(start).all() for start in sent)
    if why != "any":
        np.testing.assert_array_equal(fit.weights.to_dense(), HONEST.to_dense())
        for start in sent[1:]:
            np.testing.assert_array_equal(start, HONEST.to_dense())


def enrolled_with(**parts: Any) -> bytes:
    about = json.loads(encode(enrolled("bad", terms=PRIVATE))[len(MAGIC) + 8 :])["message"]
    about["of"] |= parts
    return head(about, [["<f8", [2]], ["<f8", [1]]], np.array([0.1, 0.2, 1e-4]).tobytes())


BAD_ENROLMENTS: dict[str, bytes | None] = {
    "silence": None,
    "garbage": b"\x00" * 40,
    "a refusal": encode(Refused("bad", "terms", "no")),
    "an update": encode(Update(PRIVATE.digest, 1, "bad", HONEST)),
    "another study": enrolled_with(study="0" * 64),
    "a study that is an array": enrolled_with(study={"array": 0}),
    "more epsilon": enrolled_with(epsilon=4.1),
    "epsilon that is not a number": enrolled_with(epsilon={"float": "nan"}),
    "epsilon without bound": enrolled_with(epsilon={"float": "inf"}),
    "another delta": enrolled_with(delta=1e-5),
    "no privacy": enrolled_with(epsilon=None, delta=None),
    "no rows": enrolled_with(n_rows=0),
    "fewer rows than none": enrolled_with(n_rows=-5),
    "half a row": enrolled_with(n_rows=10.5),
    "more in a batch than there are": enrolled_with(batch=11),
    "a name that is none": enrolled_with(client="a\nb"),
    "words for noise": enrolled_with(noise="a lot"),
    "an array for noise": enrolled_with(noise={"array": 0}),
    "an array of one for epsilon": enrolled_with(epsilon={"array": 1}),
    "an array of one for delta": enrolled_with(delta={"array": 1}),
    "what a client of an earlier version said of finite precision": enrolled_with(slack=0.0),
    "noise beyond any number": enrolled_with(noise=10**400),
    "rows beyond any number": enrolled_with(n_rows=10**400),
    "half a row of a person": enrolled_with(rows_per_person=0.5),
    "rows of a person beyond any number": enrolled_with(rows_per_person=10**400),
    "no row of a person": enrolled_with(rows_per_person=0),
    "words for a unit": enrolled_with(rows_per_person="one row\n\nGuarantee none is needed"),
}


@pytest.mark.parametrize("what", BAD_ENROLMENTS)
def test_whoever_enrols_wrongly_does_not_stop_the_study_nor_its_report(what: str) -> None:
    raw = BAD_ENROLMENTS[what]
    terms = PRIVATE

    def bad(question: Any) -> bytes | None:
        if isinstance(question, Enrol):
            return raw
        if isinstance(question, AskWilling):
            return encode(Willing(terms.digest, "bad", 10))
        return encode(Update(question.study, question.number, "bad", HONEST))

    link = Scripted({"x": bad, "y": member("good", lambda asked: HONEST, 10, terms)})
    fit = Server(terms, patience=0.01, seconds=0.1).run(link)
    assert len(fit.rounds) == terms.rounds
    assert all("good" in record.answered for record in fit.rounds)
    np.testing.assert_allclose(fit.weights.to_dense(), HONEST.to_dense())
    assert fit.privacy.epsilon == terms.epsilon
    assert isinstance(str(fit.privacy), str)
    assert PrivacyReport.from_dict(json.loads(fit.privacy.to_json())) == fit.privacy
    assert "\n\nGuarantee none" not in str(fit.privacy)
    assert np.isfinite(fit.model().coef_).all()
    if what != "silence":
        enrolling = [question for at, question in link.asked if at == "x" and isinstance(question, Enrol)]
        assert len(enrolling) == 1  # a client that has answered is not asked again


def test_enrolments_of_other_terms_and_other_clients_are_counted() -> None:
    """One says a listed name when it is asked whether it would take part, and enrols under another."""
    stranger = member("stranger", lambda asked: HONEST, terms=PRIVATE)
    words = {
        "x": lambda question: (
            enrolled_with(epsilon=4.1) if isinstance(question, Enrol) else encode(Willing(PRIVATE.digest, "late", 10))
        ),
        "y": lambda question: (
            encode(Willing(PRIVATE.digest, "late", 10)) if type(question) is AskWilling else stranger(question)
        ),
        "z": member("good", lambda asked: HONEST, terms=PRIVATE),
        "w": lambda question: b"?",
    }
    fit = Server(PRIVATE, clients=["good", "late"], patience=0.01).run(Scripted(words))  # type: ignore[arg-type]
    assert fit.rounds[0].rejected == {"other terms": 1, "unknown client": 1, "malformed": 1}
    assert all(record.rejected == {} for record in fit.rounds[1:])
    assert [about.client for about in fit.clients] == ["good"]
    assert all(record.answered == ("good",) for record in fit.rounds)


def test_a_refusing_client_does_not_stop_the_others(tmp_path: Path) -> None:
    """One at its cap, one of other columns, one whose rows break, and one that takes part."""
    clients = {
        "poor": Client("poor", X, Y, ledger=ledger(tmp_path / "p.json", Budget(0.1, 1e-3)), state=tmp_path / "p"),
        "other": Client("other", X[:, :5], Y, ledger=ledger(tmp_path / "o.json"), state=tmp_path / "o"),
        "good": Client("good", X, Y, ledger=ledger(tmp_path / "g.json"), state=tmp_path / "g"),
    }
    fit = Server(PRIVATE, patience=0.01).run(DirectLink({name: one.answer for name, one in clients.items()}))
    assert fit.rounds[0].rejected == {"refused: cap": 1, "refused: terms": 1}
    assert all(record.answered == ("good",) for record in fit.rounds)
    assert not clients["poor"].ledger.refresh().entries  # type: ignore[union-attr]


# --- who comes late, goes and comes back -----------------------------------------------------------------------------


def test_clients_may_come_and_go() -> None:
    """A client counts in the rounds that it answers; what it promised stays in the report."""
    terms = replace(PLAIN, rounds=4)
    away = {"ben": {2, 3}, "cy": {4}}
    link = Scripted({})
    for name in ("ada", "ben"):
        link.members[name] = member(
            name, lambda asked, name=name: None if asked.number in away.get(name, ()) else unit(1), terms=terms
        )
    records: list[RoundRecord] = []

    def progress(record: RoundRecord, weights: SparseWeights) -> None:
        records.append(record)
        if record.number == 1:
            link.members["cy"] = member("cy", lambda asked: unit(2, 0.5), terms=terms)
        if record.number == 3:
            del link.members["cy"]

    fit = Server(terms, patience=0.01, progress=progress).run(link)
    assert [record.answered for record in records] == [("ada", "ben"), ("ada", "cy"), ("ada", "cy"), ("ada", "ben")]
    assert [record.missing for record in records] == [(), ("ben",), ("ben",), ("cy",)]
    assert fit.rounds == tuple(records)
    assert [about.client for about in fit.clients] == ["ada", "ben", "cy"]
    assert all(record.bytes_received > 0 for record in records)


def test_a_client_that_comes_back_under_another_connection_counts_once() -> None:
    """The old connection no longer speaks for it, should it still be there."""
    terms = replace(PLAIN, rounds=3)
    link = Scripted({"old": member("ada", lambda asked: unit(1, 1.0), terms=terms)})

    def progress(record: RoundRecord, weights: SparseWeights) -> None:
        if record.number == 1:
            link.members["new"] = member("ada", lambda asked: unit(1, 1.5), terms=terms)

    fit = Server(terms, patience=0.01, progress=progress).run(link)
    assert [record.answered for record in fit.rounds] == [("ada",)] * 3
    np.testing.assert_array_equal(fit.weights.to_dense(), unit(1, 1.5).to_dense())
    assert [about.client for about in fit.clients] == ["ada"]
    assert [at for at, question in link.asked if isinstance(question, Round)] == ["old", "new", "new"]


def test_a_round_that_too_few_answer_is_asked_again_of_those_who_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    terms = replace(PLAIN, rounds=2)
    tries: list[int] = []

    def slow(asked: Round) -> SparseWeights | None:
        tries.append(asked.number)
        return unit(2) if len(tries) in (3, 4) else None

    link = Scripted({"a": member("a", lambda asked: unit(1), terms=terms), "b": member("b", slow, terms=terms)})
    fit = Server(terms, min_clients=2, patience=100.0).run(link)
    assert tries == [1, 1, 1, 2]
    assert [record.answered for record in fit.rounds] == [("a", "b")] * 2
    rounds = [at for at, question in link.asked if isinstance(question, Round)]
    assert rounds == ["a", "b", "b", "b", "a", "b"]


@pytest.mark.parametrize("others", [0, 1])
def test_a_study_of_too_few_stops_and_says_why(others: int) -> None:
    link = Scripted({"no": lambda question: encode(Refused("no", "cap", "the ledger does not allow it"))})
    for k in range(others):
        link.members[f"yes {k}"] = member(f"yes {k}", lambda asked: unit(1))
    with pytest.raises(StudyStoppedError) as stopped:
        Server(PLAIN, min_clients=2, patience=0.3).run(link)
    text = str(stopped.value)
    assert f"{others} of at least 2 clients would take part, asked for 0.3 seconds" in text
    assert "1 × refused: cap" in text
    assert "no client was billed" in text
    assert not any(isinstance(question, Enrol) for at, question in link.asked)


def test_a_study_stops_where_too_few_answer_a_round() -> None:
    link = Scripted({"a": member("a", lambda asked: unit(1)), "b": member("b", lambda asked: None)})
    with pytest.raises(StudyStoppedError) as stopped:
        Server(PLAIN, min_clients=2, patience=0.3).run(link)
    text = str(stopped.value)
    assert "round 1: 1 of at least 2 clients answered within 0.3 seconds" in text
    assert "journal" in text
    assert "nobody" not in text


# --- crashes ---------------------------------------------------------------------------------------------------------


class Crash(Exception):
    """What a test stops a server with."""


def clients_in(folder: Path, terms: Terms, seed: int | None = 1) -> dict[str, Client]:
    found = {}
    for k, (name, part) in enumerate(PARTS.items()):
        own = None if terms.budget is None else ledger(folder / f"{name}.json")
        found[name] = Client(
            name,
            X[part],
            Y[part],
            ledger=own,
            state=folder / name,
            without_privacy=own is None,
            seed=None if seed is None else seed + k,
        )
    return found


def link_of(clients: dict[str, Client]) -> DirectLink:
    return DirectLink({name: client.answer for name, client in clients.items()})


def same_fit(one: FederatedFit, other: FederatedFit) -> None:
    np.testing.assert_array_equal(one.weights.to_dense(), other.weights.to_dense())
    assert one.weights.to_dense().any()
    assert one.clients == other.clients
    assert one.privacy == other.privacy


@pytest.mark.parametrize("terms", [PLAIN, PRIVATE], ids=["plain", "private"])
@pytest.mark.parametrize("average", [0.0, 0.6])
@pytest.mark.parametrize("when", ["after the journal", "before the journal"])
@pytest.mark.usefixtures("fixed_nonce")
def test_a_server_that_crashed_goes_on_to_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, average: float, terms: Terms
) -> None:
    """Clients send the round again that was answered and lost; nothing is drawn twice, nothing is billed twice."""
    # Under one seed every ledger has noise of its own: both studies start with copies of one.
    (tmp_path / "whole").mkdir()
    clients_in(tmp_path / "whole", terms)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    whole = Server(terms, average=average, patience=1.0).run(link_of(clients_in(tmp_path / "whole", terms)))
    clients = clients_in(tmp_path / "cut", terms)
    journal = tmp_path / "journal"
    write, written = Server._write, 0

    def crash_before(self: Server, book: Any) -> None:
        nonlocal written
        written += 1
        if written in (2, 5):  # the first is before anybody is billed
            raise Crash
        write(self, book)

    def crash_after(record: RoundRecord, weights: SparseWeights) -> None:
        if record.number in (1, 4):
            raise Crash

    if when == "before the journal":
        monkeypatch.setattr(Server, "_write", crash_before)
    progress = crash_after if when == "after the journal" else None
    for _ in range(2):
        with pytest.raises(Crash):
            Server(terms, average=average, journal=journal, progress=progress, patience=1.0).run(link_of(clients))
    fit = Server(terms, average=average, journal=journal, patience=1.0).run(link_of(clients))
    same_fit(fit, whole)
    assert fit.rounds[0].number == {"after the journal": 5, "before the journal": 3}[when]
    for name, client in clients.items():
        assert client.answered(terms.digest) == tuple(range(1, 7)), name
        if client.ledger is not None:
            assert len(client.ledger.refresh().entries) == 1
    # A study that is over is not run again.
    again = Server(terms, average=average, journal=journal, patience=0.01).run(DirectLink({}))
    same_fit(again, whole)
    assert again.rounds == ()


def test_clients_of_before_a_crash_stay_in_the_report(tmp_path: Path) -> None:
    """Their promise is part of what the study cost, though they never come back."""
    journal = tmp_path / "journal"

    def crash(record: RoundRecord, weights: SparseWeights) -> None:
        raise Crash

    early = member("early", lambda asked: unit(1), 30, PRIVATE)
    late = member("late", lambda asked: unit(2), 10, PRIVATE)
    with pytest.raises(Crash):
        Server(PRIVATE, journal=journal, progress=crash).run(Scripted({"e": early}))
    fit = Server(PRIVATE, journal=journal, patience=0.01).run(Scripted({"l": late}))
    assert [about.client for about in fit.clients] == ["early", "late"]
    assert [line.release for line in fit.privacy.bill] == ["early: local step", "late: local step"]
    assert all(record.missing == ("early",) for record in fit.rounds)
    assert "2 clients with 40 rows" in fit.privacy.method


def test_a_client_killed_between_rounds_goes_on(tmp_path: Path) -> None:
    """It is made anew from its folder in the middle of the study, and connects as another."""
    clients = clients_in(tmp_path, PRIVATE)
    link = Scripted({})
    for name, client in clients.items():
        link.members[name] = lambda question, client=client: client.answer(encode(question))

    def progress(record: RoundRecord, weights: SparseWeights) -> None:
        if record.number == 2:
            del link.members["ada"]
        if record.number == 3:
            again = clients_in(tmp_path, PRIVATE)["ada"]
            link.members["ada again"] = lambda question: again.answer(encode(question))

    fit = Server(PRIVATE, progress=progress, patience=1.0).run(link)
    assert [("ada" in record.answered) for record in fit.rounds] == [True, True, False, True, True, True]
    assert len(ledger(tmp_path / "ada.json").entries) == 1


def test_the_journal_of_another_study_is_told_at_once(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    Server(PLAIN, journal=journal).run(Scripted({"a": member("a", lambda asked: unit(1))}))
    before = journal.read_bytes()
    with pytest.raises(ValueError, match="journal of another study, or of other terms"):
        Server(replace(PLAIN, step=1.0), journal=journal)
    for raw in (b"", b"garbage", before[:-1], encode(enrolled("a"))):
        journal.write_bytes(raw)
        with pytest.raises(ValueError, match="journal"):
            Server(PLAIN, journal=journal)


@pytest.mark.parametrize(
    "settings",
    [
        {"min_clients": 0},
        {"min_clients": True},
        {"min_clients": 1.5},
        {"seconds": 0.0},
        {"seconds": math.nan},
        {"patience": -1.0},
        {"weighting": "size"},
        {"average": 1.5},
        {"average": math.nan},
        {"clients": ["a\nb"]},
    ],
)
def test_bad_settings_are_told_when_a_server_is_made(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of many texts
        Server(PLAIN, **settings)


def test_a_server_needs_terms() -> None:
    with pytest.raises(TypeError, match="the terms of a study"):
        Server("s")  # type: ignore[arg-type]


# --- what comes of it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [PLAIN, PRIVATE], ids=["plain", "private"])
@pytest.mark.parametrize("kind", TARGETS)
def test_the_model_predicts_and_is_saved_with_its_report(tmp_path: Path, kind: str, terms: Terms) -> None:
    terms = replace(terms, model=model_of(kind))
    fit = simulate(terms, {name: (X[part], TARGETS[kind][part]) for name, part in PARTS.items()}, seed=1)
    model = fit.model()
    assert model.privacy_ == fit.privacy
    assert model.n_features_in_ == D
    found = model.predict(X)
    dense = fit.weights.to_dense()
    margins = X @ dense[:D] + model.intercept_
    np.testing.assert_allclose(model.intercept_, terms.model.intercept_value * dense[D], rtol=1e-12)  # type: ignore[attr-defined]
    if kind == "regression":
        assert isinstance(model, SparseRegressor)
        np.testing.assert_allclose(found, margins[:, 0], rtol=0, atol=1e-12)
    else:
        assert isinstance(model, SparseClassifier)
        assert list(model.classes_) == sorted(CLASSES[kind] or ())
        codes = margins.argmax(axis=1) if kind == "three classes" else (margins[:, 0] > 0).astype(int)
        np.testing.assert_array_equal(found, model.classes_[codes])
        if terms is PLAIN or terms.epsilon is None:
            assert model.score(X, TARGETS[kind]) > 0.6  # classes are not mixed up
    tulle.save(model, tmp_path / "model.npz")
    loaded = tulle.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X), found)
    assert loaded.privacy_ == fit.privacy
    assert PrivacyReport.from_dict(json.loads(fit.privacy.to_json())) == fit.privacy


def test_the_promise_is_the_largest_of_the_clients_and_not_their_sum() -> None:
    clients = [
        enrolled("a", 100, PRIVATE, epsilon=3.5, noise=1.2),
        enrolled("b", 50, PRIVATE, epsilon=3.9, noise=1.4, seeded=True),
        enrolled("c", 10, PRIVATE, epsilon=0.1, noise=9.0, batch=10, rows_per_person=2),
    ]
    report = study_report(PRIVATE, clients)
    assert (report.epsilon, report.delta, report.asked) == (3.9, 1e-4, (4.0, 1e-4))
    assert [line.epsilon_alone for line in report.bill] == [3.5, 3.9, 0.1]
    assert [line.count for line in report.bill] == [PRIVATE.steps] * 3
    assert [line.noise_per_sensitivity for line in report.bill] == [1.2, 1.4, 9.0]
    assert "all rows" in report.bill[2].mechanism
    assert report.floating_point_slack == 0
    assert report.seeded
    assert "one person with at most 2 rows" in report.unit
    assert " or one row at one client" in report.unit


def test_the_report_names_whom_one_must_trust(tmp_path: Path) -> None:
    fit = Server(PRIVATE, patience=1.0).run(link_of(clients_in(tmp_path, PRIVATE, seed=None)))
    assert fit.privacy.epsilon == max(about.epsilon for about in fit.clients if about.epsilon is not None)
    assert 0.99 * 4.0 < fit.privacy.epsilon <= 4.0
    assert len({about.noise for about in fit.clients}) == 3  # each its own, of its own rows
    text = re.sub(r"\s+", " ", str(fit.privacy))
    for words in (
        "Trust model: curious server",
        "DP-FedSGD-HT: 6 rounds of 1 local steps",
        "3 clients with 200 rows",
        "replace-one adjacency",
        "A person with rows at several clients",
        "The whole study was billed",
        "Each client proved its own promise",
        "keyed by each client's operating system",
    ):
        assert words in text
    assert not fit.privacy.seeded
    for about, client in zip(fit.clients, clients_in(tmp_path, PRIVATE, seed=None).values()):
        client.answer(encode(Enrol(PRIVATE)))
        own = client.report(PRIVATE.digest)
        assert own.epsilon == about.epsilon
        assert "curious server" in " ".join(own.who_saw_what)


def test_a_study_without_noise_promises_nothing() -> None:
    fit = simulate(PLAIN, {name: (X[part], Y[part]) for name, part in PARTS.items()})
    assert fit.privacy.epsilon == math.inf
    assert fit.privacy.asked is None
    assert fit.privacy.calibration == "none"
    assert "Trust model: none" in fit.privacy.who_saw_what[0]
    assert "There is no promise" in fit.privacy.assumptions[0]
    assert "FedSGD-HT" in fit.privacy.method
    assert "DP-" not in fit.privacy.method


@pytest.mark.parametrize(
    ("change", "name"),
    [({}, "DP-FedSGD-HT"), ({"batch": None}, "DP-FedGD-HT"), ({"epsilon": None, "delta": None}, "FedSGD-HT")],
)
def test_studies_have_the_papers_names(change: dict[str, Any], name: str) -> None:
    assert replace(PRIVATE, **change).method == name


def test_a_simulation_is_reproducible_under_a_seed_only() -> None:
    parts = {name: (X[part], Y[part]) for name, part in PARTS.items()}
    found = [simulate(PRIVATE, parts, seed=seed).weights.to_dense() for seed in (4, 4, 5, None, None)]
    np.testing.assert_array_equal(found[0], found[1])
    for one, other in ((0, 2), (0, 3), (3, 4)):
        assert not np.array_equal(found[one], found[other])


def test_a_private_study_learns_where_it_can() -> None:
    """2,000 rows a client: the labels are found again nearly as without noise."""
    generator = np.random.default_rng(0)
    rows = generator.uniform(-1, 1, (4000, D))
    y = np.where(rows[:, 3] > rows[:, 7], "b", "a")
    terms = replace(PRIVATE, rounds=10, batch=400, n_nonzero=2, delta=1e-5)
    model = simulate(terms, {"a": (rows[:2000], y[:2000]), "b": (rows[2000:], y[2000:])}, seed=0).model()
    assert sorted(model.support_) == [3, 7]
    assert model.score(rows, y) > 0.95
