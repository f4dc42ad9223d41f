"""Rows at clients of a trusted aggregator: the fit of the same rows in memory, and what clients see to themselves."""

from __future__ import annotations

import ast
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from spread_fits import BOUNDED, BOUNDS, METHODS, margins, model, sparse_rows

import tulle.federated.server_side.aggregator as aggregator
from tulle import Bounds, Budget, FileLedger, Ledger, SparseClassifier, SparseRegressor
from tulle.backends.input_kinds import find_spread
from tulle.backends.rows_elsewhere import AsNumbers
from tulle.estimators.bounds import QuantileScores
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.client import Client
from tulle.federated.encoding import decode, encode
from tulle.federated.link import DirectLink, Link
from tulle.federated.messages import Refused
from tulle.federated.question_data import OF_ROWS, Expected, Question
from tulle.federated.questions import (
    CLASSES,
    REPLY_CLASSES,
    AskLabels,
    AskParts,
    AskPrice,
    AskRows,
    AskShape,
    Clip,
    Clipped,
    CloseFit,
    Done,
    Labels,
    NotOpen,
    OpenFit,
    Opening,
    SettleFit,
    Summed,
    question_of,
)
from tulle.federated.server_side.aggregator import RowsAtClients
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods import HardThresholding, KnowledgeTransfer, ScreenRefine, StochasticHardThresholding
from tulle.methods.gradient_queries import ClippedGradient
from tulle.methods.loss_functions import Logistic, facts_without_model
from tulle.trusted.accountants import proof
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian, SampledGaussian, TopK
from tulle.trusted.plan import Plan, Release
from tulle.trusted.sampling import Sampling

N = 600
X = sparse_rows(N)
MARGINS = margins(X)
Y = (MARGINS > 0).astype(float)
ARRAYS = {"sparse": X, "dense": X.toarray()}
CAP = Budget(1e4, 1e-3)
ENDS = {"ada": (0, 250), "ben": (250, 260), "cy": (260, N)}
QUICK = HardThresholding(n_iter=2)
BATCHES = StochasticHardThresholding(batch=60, passes=0.2)
MANY_BATCHES = StochasticHardThresholding(batch=60, passes=3.0)


@dataclass
class Houses(Link):
    """Clients in this process, some of which are out of reach, or answer otherwise than they should."""

    folder: Path
    X: Any
    y: Any
    cap: Budget = CAP
    settings: dict[str, Any] | None = None
    groups: Any = None

    def __post_init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.away: set[str] = set()
        self.seen: list[tuple[str, bytes]] = []
        self.meddle: Callable[[str, bytes, bytes], bytes] = lambda name, raw, reply: reply
        self.before: Callable[[str, bytes], None] = lambda name, raw: None
        for name in ENDS:
            self.start(name)

    def start(self, name: str, **other: Any) -> None:
        """Start a client, or start it again: all that it knows is in its folder."""
        path = self.folder / f"{name}.json"
        settings: dict[str, Any] = {"trusts_aggregator": True} | (self.settings or {}) | other
        ledger = None
        if not settings.get("without_privacy"):
            cap = settings.pop("cap", self.cap)
            ledger = FileLedger(path, "rows") if path.exists() else FileLedger.create(path, "rows", cap)
        part = slice(*ENDS[name])
        groups = None if self.groups is None else self.groups[part]
        self.clients[name] = Client(
            name, self.X[part], self.y[part], ledger=ledger, state=self.folder / name, groups=groups, **settings
        )

    def ledger(self, name: str) -> FileLedger:
        return FileLedger(self.folder / f"{name}.json", "rows")

    def connected(self) -> tuple[str, ...]:
        return tuple(name for name in reversed(list(self.clients)) if name not in self.away)

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        for name in whom:
            self.before(name, message)
            self.seen.append((name, message))
            if name not in self.away:
                yield name, self.meddle(name, message, self.clients[name].answer(message))

    def rows(self, **settings: Any) -> RowsAtClients:
        return RowsAtClients(self, **({"seconds": 1.0, "patience": 0.1} | settings))


@pytest.fixture
def houses(tmp_path: Path) -> Houses:
    return Houses(tmp_path, X, Y)


def assert_same(unfitted: Any, here: tuple[Any, ...], there: Any, exact: bool = True, **groups: Any) -> Any:
    """The same model of rows in one array and of rows at clients: to the last bit, where values lie on noise's grid."""
    one = clone(unfitted).fit(*here, **groups)
    other = clone(unfitted).fit(there, None)
    assert np.any(one.coef_)
    np.testing.assert_array_equal(other.support_, one.support_)
    for name in ("coef_", "intercept_"):
        np.testing.assert_allclose(
            getattr(other, name), getattr(one, name), rtol=0, atol=0 if exact else 1e-12, err_msg=name
        )
    assert other.privacy_.epsilon == one.privacy_.epsilon
    assert other.privacy_.bill == one.privacy_.bill
    return other


# --- the same fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_fits_clients_as_it_fits_an_array(houses: Houses, method: str) -> None:
    # A student is fitted to what the teacher answers, by scikit-learn.
    assert_same(model(METHODS[method]), (X, Y), houses.rows(), exact=method != "knowledge transfer")


@pytest.mark.parametrize(
    "method",
    ["auto", "knowledge_transfer", KnowledgeTransfer(variant="dense")],
    ids=["auto", "sparse teacher", "dense teacher"],
)
@pytest.mark.parametrize("kind", ARRAYS)
def test_public_rows_at_the_server(tmp_path: Path, method: Any, kind: str) -> None:
    """The directions that they show travel to clients within the question; the rows do not."""
    public = np.random.default_rng(8).uniform(-0.3, 0.3, (200, X.shape[1]))
    houses = Houses(tmp_path, ARRAYS[kind], Y)
    here = model(method).fit(ARRAYS[kind], Y, public=public)
    there = model(method).fit(houses.rows(), None, public=public)
    assert np.any(here.coef_)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=0, atol=1e-9)
    assert there.privacy_.bill == here.privacy_.bill
    assert any("public" in line and "private rows" in line for line in there.privacy_.assumptions)
    assert not any(public[0].tobytes() in message for _, message in houses.seen)


@pytest.mark.parametrize("method", ["hard_thresholding", "auto", BATCHES], ids=["passes", "auto", "batches"])
def test_dense_rows(tmp_path: Path, method: Any) -> None:
    assert_same(model(method), (ARRAYS["dense"], Y), Houses(tmp_path, ARRAYS["dense"], Y).rows())


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("method", [QUICK, ScreenRefine()], ids=["passes", "minimiser"])
def test_rows_at_clients_obey_the_same_bounds(tmp_path: Path, method: Any, kind: str, bounds: str) -> None:
    assert_same(model(method, bounds=BOUNDS[bounds]), (ARRAYS[kind], Y), Houses(tmp_path, ARRAYS[kind], Y).rows())


@pytest.mark.parametrize(
    ("loss", "method"), [("logistic", QUICK), ("squared_hinge", QUICK), ("squared_hinge", "screen_refine")]
)
def test_three_classes_that_are_words(tmp_path: Path, loss: str, method: Any) -> None:
    """Also where a client does not have all of them, or only short ones, or holds them as objects."""
    words = np.array(["ham", "spam", "buttered toast"])[np.digitize(MARGINS, [0.0, 0.7])]
    words[slice(*ENDS["ben"])] = "ham"
    found = assert_same(model(method, loss=loss), (X, words), Houses(tmp_path, X, words.astype(object)).rows())
    assert found.classes_.tolist() == ["buttered toast", "ham", "spam"]
    assert found.predict(X).shape == (N,)


@pytest.mark.parametrize("labels", [np.array([False, True]), np.array([3, 7])], ids=["truth", "whole numbers"])
def test_classes_keep_their_kind(tmp_path: Path, labels: Any) -> None:
    y = labels[Y.astype(int)]
    found = assert_same(model(QUICK), (X, y), Houses(tmp_path, X, y).rows())
    assert found.classes_.dtype == labels.dtype


@pytest.mark.parametrize(
    ("loss", "method"),
    [
        ("squared", ScreenRefine(refinement="statistics")),
        ("squared", ScreenRefine(refinement="objective")),
        ("huber", "hard_thresholding"),
        ("poisson", "hard_thresholding"),
    ],
)
def test_regression(tmp_path: Path, loss: str, method: Any) -> None:
    y = np.abs(np.round(MARGINS)) if loss == "poisson" else MARGINS
    bounds = Bounds(row_l2=1.5, label=2.0)
    regressor = SparseRegressor(200.0, 1e-6, method=method, loss=loss, bounds=bounds, random_state=0, n_nonzero=8)
    assert_same(regressor, (X, y), Houses(tmp_path, X, y).rows())


def test_estimated_label_bounds(tmp_path: Path) -> None:
    regressor = SparseRegressor(200.0, 1e-6, method=QUICK, random_state=0)
    assert_same(regressor, (X, MARGINS), Houses(tmp_path, X, MARGINS).rows())


@pytest.mark.parametrize("method", [HardThresholding(n_iter=5), "screen_refine"], ids=["passes", "minimiser"])
def test_a_fit_without_privacy(tmp_path: Path, method: Any) -> None:
    there = Houses(tmp_path, X, Y, settings={"without_privacy": True}).rows()
    assert_same(model(method, epsilon=None), (X, Y), there, exact=False)


def test_bounds_are_estimated_alone(houses: Houses) -> None:
    here = Bounds.estimate(X, epsilon=3.0, random_state=0)
    assert Bounds.estimate(houses.rows(), epsilon=3.0, random_state=0) == here
    for name in ENDS:
        (entry,) = houses.ledger(name).entries
        assert entry.what.startswith("Bounds.estimate by a trusted aggregator")
        assert entry.epsilon == pytest.approx(3.0)


def test_people_are_known_at_the_clients(tmp_path: Path) -> None:
    """Each of its own: the same fit as one in memory of people who are at one client only."""
    groups = np.random.default_rng(0).integers(0, 60, N) + 100 * np.searchsorted([250, 260], np.arange(N), "right")
    there = Houses(tmp_path, X, Y, settings={"rows_per_person": 2}, groups=groups)
    unfitted = model(QUICK, bounds=Bounds(row_l2=1.5, rows_per_person=2))
    found = assert_same(unfitted, (X, Y), there.rows(), groups=groups)
    assert np.any(found.coef_ != clone(unfitted).fit(X, Y).coef_)
    with pytest.raises(ValueError, match="groups are known at the clients"):
        unfitted.fit(there.rows(), None, groups=groups)
    assert all(len(there.ledger(name).entries) == 1 for name in ENDS)


def test_order_is_by_name_whoever_came_first(houses: Houses) -> None:
    assert houses.connected() == ("cy", "ben", "ada")
    rows = houses.rows()
    assert rows.clients == ("ada", "ben", "cy")
    assert rows.shape == (N, X.shape[1])
    assert houses.rows(clients=["cy", "ada"]).shape[0] == N - 10


# --- the bill --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [QUICK, BATCHES, "screen_refine"], ids=["passes", "batches", "minimiser"])
def test_every_client_bills_the_whole_fit_once(houses: Houses, method: Any) -> None:
    found = model(method, epsilon=2.0).fit(houses.rows(), None)
    for name in ENDS:
        (entry,) = houses.ledger(name).entries
        assert entry.epsilon == found.privacy_.epsilon
        assert entry.delta == 1e-6
        assert entry.what.startswith("SparseClassifier.fit by a trusted aggregator (fit ")
        assert len(entry.plan) == len(found.privacy_.bill)


def test_the_bill_is_on_disk_before_the_first_sum(houses: Houses) -> None:
    """And with estimated bounds before the first quantile: no question finds a ledger without its entry."""
    asked: list[str] = []

    def looked(name: str, raw: bytes) -> None:
        if isinstance(decode(raw, CLASSES), AskRows):
            assert len(houses.ledger(name).entries) == 1
            asked.append(name)

    houses.before = looked
    model(QUICK, bounds=Bounds()).fit(houses.rows(), None)
    assert set(asked) == set(ENDS)


def test_one_refusal_costs_nobody_anything(houses: Houses) -> None:
    shutil.rmtree(houses.folder / "ben.json")
    houses.start("ben", cap=Budget(1.0, 1e-6))
    with pytest.raises(BudgetExceededError, match=r"nothing was billed.*client 'ben' refuses \(cap"):
        model(QUICK, epsilon=2.0).fit(houses.rows(), None)
    assert all(houses.ledger(name).entries == () for name in ENDS)
    assert not any(isinstance(decode(raw, CLASSES), (AskRows, OpenFit)) for _, raw in houses.seen)
    model(QUICK, epsilon=0.5).fit(houses.rows(), None)
    with pytest.raises(BudgetExceededError):
        model(QUICK, epsilon=0.95).fit(houses.rows(), None)
    assert [len(houses.ledger(name).entries) for name in ENDS] == [1, 1, 1]


@pytest.mark.parametrize(
    ("settings", "fit", "why"),
    [
        ({"max_epsilon": 1.0}, {"epsilon": 2.0}, "this client allows 1 a fit"),
        ({}, {"epsilon": None}, "no epsilon is proved for this fit"),
        ({"without_privacy": True}, {}, "no ledger to bill"),
        ({"rows_per_person": 3}, {}, "people here have up to 3"),
    ],
)
def test_a_client_refuses_what_it_was_not_set_up_for(
    houses: Houses, settings: dict[str, Any], fit: dict[str, Any], why: str
) -> None:
    houses.start("ben", **settings)
    with pytest.raises(BudgetExceededError, match=why):
        model(QUICK, **fit).fit(houses.rows(), None)
    assert houses.ledger("ada").entries == ()


def test_published_noise_that_proves_more_is_billed_at_what_it_proves(houses: Houses) -> None:
    """The price is the client's own, whatever the server asked for."""
    with pytest.warns(UserWarning, match="proves only"):
        found = model(HardThresholding(n_iter=2), epsilon=2.0, calibration="published").fit(houses.rows(), None)
    assert found.privacy_.epsilon > 2.0
    assert houses.ledger("cy").entries[0].epsilon == found.privacy_.epsilon


def test_units_of_another_size_are_not_added_up(houses: Houses) -> None:
    model(QUICK).fit(houses.rows(), None)
    with pytest.raises(BudgetExceededError, match=r"units of 1 row\(s\)"):
        model(QUICK, bounds=Bounds(row_l2=1.5, rows_per_person=2)).fit(houses.rows(), None)


def test_the_servers_own_ledger_is_billed_too(houses: Houses) -> None:
    with Ledger(Budget(300.0, 1e-5)) as ledger:
        model(QUICK).fit(houses.rows(), None)
        assert [what for what, _ in ledger.fits] == ["SparseClassifier.fit"]


# --- who saw what ----------------------------------------------------------------------------------------------------


def test_the_report_names_the_trust_model(houses: Houses) -> None:
    lines = model(QUICK).fit(houses.rows(), None).privacy_.who_saw_what
    assert lines[0].startswith("Trusted aggregator: 3 clients kept their rows and sent exact sums")
    assert not any("points on the way" in line or "a batch held" in line for line in lines)
    solved = model("screen_refine").fit(houses.rows(), None).privacy_
    assert any("points on the way to a minimum" in line for line in solved.who_saw_what)
    assert "Trusted aggregator" in str(solved)


@pytest.mark.parametrize(("sampling", "weaker"), [("poisson", False), ("without_replacement", True)])
def test_the_report_says_what_clients_learn_of_batches(houses: Houses, sampling: Any, weaker: bool) -> None:
    method = StochasticHardThresholding(batch=60, passes=0.2, sampling=sampling)
    seen = model(method).fit(houses.rows(), None).privacy_.who_saw_what
    (line,) = [line for line in seen if "which of their own rows a batch held" in line]
    assert ("weaker than stated" in line) == weaker


def test_a_client_learns_of_a_batch_its_own_rows_only(houses: Houses) -> None:
    model(BATCHES).fit(houses.rows(), None)
    batches = [(name, decode(raw, CLASSES)) for name, raw in houses.seen]
    numbers = {name: [m.rows.numbers for of, m in batches if of == name and isinstance(m, AskRows)] for name in ENDS}
    assert any(part is not None and len(part) for part in numbers["cy"])
    for name, (start, end) in ENDS.items():
        assert all(part.max(initial=0) < end - start for part in numbers[name] if part is not None)


def test_only_what_differs_from_zero_travels(tmp_path: Path) -> None:
    """Questions about few weights of many features are short."""
    wide = sparse_rows(N, 20_000)
    houses = Houses(tmp_path, wide, Y)
    model(HardThresholding(n_iter=3)).fit(houses.rows(), None)
    assert max(len(raw) for _, raw in houses.seen) < 10_000


def test_nothing_is_pickled_and_nothing_is_run_that_was_sent() -> None:
    folder = Path(aggregator.__file__).parents[1]
    for name in ("aggregator", "questions", "summing", "encoding"):
        (path,) = folder.rglob(f"{name}.py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        words |= {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        assert words.isdisjoint({"pickle", "cloudpickle", "marshal", "dill", "eval", "exec", "compile", "__import__"})


# --- clients that drop out and come back -----------------------------------------------------------------------------


def counted(houses: Houses, name: str, at: int, then: Callable[[], None]) -> None:
    """Do something just before a client is asked its question number `at` (from 0), in place of `before`."""
    left = [at]

    def before(of: str, raw: bytes) -> None:
        if of == name and isinstance(decode(raw, CLASSES), (AskRows, AskParts)):
            left[0] -= 1
            if left[0] == -1:
                then()

    houses.before = before


def moments(*at: int) -> list[Any]:
    """Methods, and after how many questions something happens to a client. Two steps are four questions."""
    methods = {"minimiser": "screen_refine", "batches": MANY_BATCHES, "passes": QUICK}
    times = [(name, k) for name in methods for k in at if name != "passes" or k < 4]
    return [pytest.param(methods[name], k, id=f"{name}-{k}") for name, k in times]


def test_a_client_that_drops_out_counts_as_nothing_from_then_on(houses: Houses) -> None:
    """From the first question on, the fit is that of its rows not counting in memory, with the same n."""
    counted(houses, "ada", 0, lambda: houses.away.add("ada"))
    with pytest.warns(UserWarning, match=r"client 'ada' does not answer; its 250 rows"):
        found = model(QUICK).fit(houses.rows(), None)
    nothing = X.toarray()
    nothing[:250] = np.nan  # behind the estimator's checks such a row counts as nothing
    from tulle.estimators.request import run_fit

    unfitted = model(QUICK)
    expected = run_fit(unfitted._request(Logistic(), N), nothing, 2 * Y - 1)
    np.testing.assert_array_equal(found.coef_.ravel(), expected.weights[:-1, 0])
    assert any("stopped answering: ada" in line for line in found.privacy_.who_saw_what)
    assert found.privacy_.epsilon == expected.privacy.epsilon


@pytest.mark.parametrize(("method", "at"), moments(1, 5, 12))
def test_a_fit_goes_on_without_a_client(houses: Houses, method: Any, at: int) -> None:
    counted(houses, "ben", at, lambda: houses.away.add("ben"))
    with pytest.warns(UserWarning, match="client 'ben' does not answer"):
        found = model(method, epsilon=20.0).fit(houses.rows(patience=0.0), None)
    assert np.isfinite(found.coef_).all()
    assert np.any(found.coef_)


def test_a_client_that_is_back_takes_part_in_the_next_fit(houses: Houses) -> None:
    rows = houses.rows(patience=0.0)
    counted(houses, "ben", 1, lambda: houses.away.add("ben"))
    with pytest.warns(UserWarning, match="client 'ben' does not answer"):
        model(QUICK).fit(rows, None)
    houses.away.clear()
    found = assert_same(model(QUICK), (X, Y), rows)
    assert not any("stopped answering" in line for line in found.privacy_.who_saw_what)


def test_too_few_clients_end_a_fit(houses: Houses) -> None:
    counted(houses, "ada", 1, lambda: houses.away.update({"ada", "ben"}))
    with (
        pytest.warns(UserWarning, match="does not answer"),
        pytest.raises(RuntimeError, match=r"1 client\(s\) are left, and 2 are needed"),
    ):
        model(QUICK).fit(houses.rows(min_clients=2), None)
    assert any(isinstance(decode(raw, CLASSES), CloseFit) for name, raw in houses.seen if name == "cy")


def test_a_client_that_is_late_is_waited_for(houses: Houses) -> None:
    """Gone for two rounds of asking, and back within the patience of the server: nothing is lost."""
    rounds = [0]

    def connected() -> tuple[str, ...]:
        rounds[0] += 1
        if rounds[0] > 4:
            houses.away.discard("ada")
        return Houses.connected(houses)

    def leave() -> None:
        houses.away.add("ada")
        houses.connected = connected  # type: ignore[method-assign]

    counted(houses, "ada", 1, leave)
    assert_same(model(QUICK), (X, Y), houses.rows(patience=30.0))
    assert rounds[0] > 4


@pytest.mark.parametrize(("method", "at"), moments(0, 3, 10, 25))
def test_a_client_that_is_killed_and_started_again_goes_on(houses: Houses, method: Any, at: int) -> None:
    """All that it held in memory is gone: the fit, clipped rows, the solver's parts. The model is the same, and it is
    billed once."""
    killed: list[None] = []

    def kill() -> None:
        killed.append(None)
        houses.start("ada")

    counted(houses, "ada", at, kill)
    assert_same(model(method), (X, Y), houses.rows())
    assert killed
    assert len(houses.ledger("ada").entries) == 1


def test_a_client_may_come_back_on_another_connection(tmp_path: Path) -> None:
    houses = Houses(tmp_path, X, Y)
    numbers = dict.fromkeys(ENDS, 0)

    class Renamed(Link):
        """Connections have numbers; a client that is started again has another one."""

        def connected(self) -> tuple[str, ...]:
            return tuple(f"{name}:{numbers[name]}" for name in ENDS)

        def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
            for connection in whom:
                name, _, number = connection.partition(":")
                houses.before(name, message)
                if int(number) == numbers[name]:
                    yield connection, houses.clients[name].answer(message)

    def again() -> None:
        numbers["cy"] += 1
        houses.start("cy")

    counted(houses, "cy", 1, again)
    assert_same(model(QUICK), (X, Y), RowsAtClients(Renamed(), seconds=1.0, patience=20.0))
    assert len(houses.ledger("cy").entries) == 1


def test_a_stranger_cannot_take_a_clients_place_with_other_rows(houses: Houses) -> None:
    """Nor speak for it on its own connection."""
    rows = houses.rows(patience=1.5)  # long enough for a stranger to answer, also on a busy machine
    (houses.folder / "others").mkdir()
    other = Houses(houses.folder / "others", X[::-1], Y)
    houses.clients["eve"] = other.clients["ben"]  # says that it is ben, with as many rows
    houses.clients["mallory"] = Client(
        "ben", X[:50], Y[:50], ledger=other.ledger("ada"), state=houses.folder / "m", trusts_aggregator=True
    )
    with pytest.raises(ValueError, match="two connections say that they are client 'ben'"):
        houses.rows()
    del houses.clients["eve"]
    counted(houses, "ben", 0, lambda: houses.away.add("ben"))
    with pytest.warns(UserWarning, match="client 'ben' does not answer"):
        model(QUICK).fit(rows, None)


GARBAGE: dict[str, Callable[[Summed], Any]] = {
    "not a number": lambda said: replace(said, value=said.value * math.nan),
    "infinite": lambda said: replace(said, value=said.value + math.inf),
    "another shape": lambda said: replace(said, value=said.value[:-1]),
    "whole numbers": lambda said: replace(said, value=said.value.astype(np.int64)),
    "a number": lambda said: replace(said, value=1.0),
    "nothing": lambda said: replace(said, value=None),
    "sparse": lambda said: replace(said, value=SparseWeights.from_dense(said.value)),
    "of another question": lambda said: replace(said, number=said.number + 1),
    "of another fit": lambda said: replace(said, fit="0" * 32),
    "of another client": lambda said: replace(said, client="cy"),
    "something else": lambda said: Done(said.client, said.fit),
}


@pytest.mark.parametrize("garbage", [*GARBAGE, "bytes", "no bytes", "cut short"])
@pytest.mark.parametrize("once", [True, False], ids=["once", "for ever"])
def test_garbage_is_no_answer(houses: Houses, garbage: str, once: bool) -> None:
    """Whoever says something better when it is asked again goes on; whoever does not counts as nothing."""
    done: list[None] = []

    def meddle(name: str, raw: bytes, reply: bytes) -> bytes:
        said = decode(reply, REPLY_CLASSES)
        if name != "ben" or not isinstance(said, Summed) or (once and done):
            return reply
        done.append(None)
        if garbage in GARBAGE:
            return encode(GARBAGE[garbage](said))
        return {"bytes": b"\x80\x04garbage", "no bytes": b"", "cut short": reply[:-3]}[garbage]

    houses.meddle = meddle
    if once:
        assert_same(model(QUICK), (X, Y), houses.rows(patience=20.0))
        return
    with pytest.warns(UserWarning, match="client 'ben' does not answer"):
        model(QUICK).fit(houses.rows(patience=0.0), None)
    assert done


def test_silence_before_the_bill_costs_nobody_anything(houses: Houses) -> None:
    rows = houses.rows()
    houses.away.add("cy")
    with pytest.raises(TimeoutError, match="no answer from cy; nothing was billed"):
        model(QUICK).fit(rows, None)
    with pytest.raises(TimeoutError, match=r"cy did not answer within 0\.1 seconds"):
        houses.rows(clients=list(ENDS))
    houses.away.clear()
    houses.before = lambda name, raw: houses.away.update({"cy"} if b'"AskPrice"' in raw else ())
    with pytest.raises(TimeoutError, match="nothing was billed and nothing released: no answer from cy"):
        model(QUICK).fit(rows, None)
    assert all(houses.ledger(name).entries == () for name in ENDS)


# --- refusals at the server ------------------------------------------------------------------------------------------


class Mine(Logistic):
    """A loss of the user's own."""


def test_code_of_the_users_own_is_not_sent(houses: Houses) -> None:
    rows = houses.rows()
    asked = len(houses.seen)
    for loss in (Mine(), type("Logistic", (Logistic,), {})()):
        with pytest.raises(TypeError, match="not one of tulle's own"):
            SparseClassifier(2.0, loss=loss, bounds=BOUNDED, method=QUICK).fit(rows, None)
    assert all(isinstance(decode(raw, CLASSES), AskLabels) for _, raw in houses.seen[asked:])
    contribution: Any = GRADIENT._contribution
    for function in (len, lambda block: 0.0, contribution, partial(contribution, 1.0)):
        with pytest.raises(TypeError, match="clients are sent no code"):
            question_of(function, OF_ROWS)
    namesake: Any = type("Budget", (Budget,), {})(1.0)
    with pytest.raises(TypeError, match="Budget is not one of tulle's own classes"):
        question_of(partial(contribution, public=replace(PUBLIC, budget=namesake)), OF_ROWS)


def test_what_cannot_be_done_here_is_said(houses: Houses) -> None:
    rows = houses.rows()
    assert find_spread(rows) is rows
    with pytest.raises(ValueError, match="pass y=None"):
        model(QUICK).fit(rows, Y)
    with pytest.raises(ValueError, match="no fit is billed"):
        rows.rows(None)
    fitted = model(QUICK).fit(rows, None)
    with pytest.raises(ValueError, match="let each of them predict"):
        fitted.predict(rows)
    houses.start("ada", trusts_aggregator=False)
    with pytest.raises(ValueError, match=r"client 'ada' refuses: .*trusts no aggregator"):
        houses.rows()


def test_targets_that_do_not_go_together_cost_nothing(tmp_path: Path) -> None:
    houses = Houses(tmp_path, X, Y)
    houses.y = np.where(Y > 0, "yes", "no")
    houses.start("ben")
    with pytest.raises(ValueError, match="text at some clients and numbers at others"):
        model(QUICK).fit(houses.rows(), None)
    with pytest.raises(ValueError, match="y contains text"):
        SparseRegressor(1.0).fit(houses.rows(), None)
    houses.y = -MARGINS
    houses.start("ben")
    with pytest.raises(ValueError, match="the targets here are no class labels"):
        model(QUICK).fit(houses.rows(), None)
    with pytest.raises(ValueError, match="needs targets >= 0"):
        SparseRegressor(1.0, loss="poisson", bounds=Bounds(row_l2=1.0, label=1.0)).fit(houses.rows(), None)
    houses.X = X[:, :50]
    houses.start("ben")
    with pytest.raises(ValueError, match="different numbers of features"):
        houses.rows()
    assert all(houses.ledger(name).entries == () for name in ENDS)


# --- a malicious server ----------------------------------------------------------------------------------------------

PUBLIC = facts_without_model(N, X.shape[1], 1)
GRADIENT = replace(ClippedGradient(np.zeros((X.shape[1], 1)), 1.0).resolve(PUBLIC), level=1.0)
ALL = Clipped(AsNumbers(), (), None)


def opening(*releases: Release, delta: float = 1e-6, rows_per_unit: int = 1, nonce: str = "0" * 32) -> Opening:
    releases = releases or (Release("step", Gaussian(NoisePerSensitivity(5.0)), 3),)
    return Opening(nonce, "a fit", (Plan(releases),), delta, rows_per_unit)


def sum_of(fit: str, **other: Any) -> AskRows:
    question, _ = question_of(partial(GRADIENT._contribution, public=PUBLIC), OF_ROWS)
    return AskRows(fit, 0, replace(question, **other), ALL, "sum")


@pytest.fixture
def ada(houses: Houses) -> Callable[[Any], Any]:
    return lambda message: decode(houses.clients["ada"].answer(encode(message)), REPLY_CLASSES)


def test_sums_of_a_fit_that_was_opened_are_answered(houses: Houses, ada: Callable[[Any], Any]) -> None:
    """What the tests below find refused is answered otherwise."""
    fit = opening()
    assert isinstance(ada(OpenFit(fit)), Done)
    said = ada(sum_of(fit.fit))
    assert isinstance(said, Summed)
    assert Expected((X.shape[1], 1)).fits(said.value)


def test_without_a_bill_there_is_nothing(houses: Houses, ada: Callable[[Any], Any]) -> None:
    fit = opening()
    assert isinstance(ada(sum_of(fit.fit)), NotOpen)
    assert isinstance(ada(AskPrice(fit)), Done)
    assert isinstance(ada(sum_of(fit.fit)), NotOpen)
    assert houses.ledger("ada").entries == ()


def test_what_is_closed_stays_closed(houses: Houses, ada: Callable[[Any], Any]) -> None:
    """Also after the client was started again, and also where it was started again before it was closed."""
    fits = [opening(nonce=f"{k:032x}") for k in range(2)]
    for fit in fits:
        ada(OpenFit(fit))
    ada(CloseFit(fits[0].fit))
    houses.start("ada")
    ada(CloseFit(fits[1].fit))
    for _ in range(2):
        for fit in fits:
            assert isinstance(ada(sum_of(fit.fit)), NotOpen)
            said = ada(OpenFit(fit))
            assert isinstance(said, Refused)
            assert said.why == "answered"
            assert isinstance(ada(sum_of(fit.fit)), NotOpen)
        houses.start("ada")
    assert len(houses.ledger("ada").entries) == 2


def test_opening_again_is_not_billed_again_and_another_plan_is(houses: Houses, ada: Callable[[Any], Any]) -> None:
    fit = opening()
    for _ in range(2):
        ada(OpenFit(fit))
        houses.start("ada")
    assert len(houses.ledger("ada").entries) == 1
    dearer = opening(Release("step", Gaussian(NoisePerSensitivity(5.0)), 4))
    assert dearer.fit != fit.fit
    ada(OpenFit(dearer))
    assert len(houses.ledger("ada").entries) == 2


def test_past_the_cap_nothing_is_opened(tmp_path: Path) -> None:
    houses = Houses(tmp_path, X, Y, cap=Budget(1.0, 1e-6))
    client, refused = houses.clients["ada"], 0
    for k in range(20):
        fit = opening(Release("step", Gaussian(NoisePerSensitivity(20.0)), 3), nonce=f"{k:032x}")
        said = decode(client.answer(encode(OpenFit(fit))), REPLY_CLASSES)
        refused += isinstance(said, Refused)
        assert isinstance(decode(client.answer(encode(sum_of(fit.fit))), REPLY_CLASSES), NotOpen if refused else Summed)
    spent = houses.ledger("ada")
    assert 0 < refused < 20
    assert len(spent.entries) == 20 - refused
    assert spent.share <= 1 + 1e-9


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"method": "__init__"}, id="made anew"),
        pytest.param({"method": "evaluate", "keywords": (("public", PUBLIC),)}, id="evaluated"),
        pytest.param({"method": "sensitivity", "keywords": ()}, id="another method"),
        pytest.param({"method": "__class__"}, id="the class"),
        pytest.param({"method": "_clip", "keywords": (("slopes", np.ones((250, 1))),)}, id="row by row"),
        pytest.param({"keywords": ()}, id="no keywords"),
        pytest.param({"keywords": (("public", PUBLIC), ("block", 1))}, id="one more"),
        pytest.param({"keywords": (("public", PUBLIC), ("public", PUBLIC))}, id="one twice"),
        pytest.param({"of": PUBLIC, "method": "row_bound", "keywords": ()}, id="of facts"),
        pytest.param({"of": "text", "method": "upper", "keywords": ()}, id="of words"),
        pytest.param({"of": None}, id="of nothing"),
    ],
)
def test_other_questions_get_nothing(houses: Houses, ada: Callable[[Any], Any], asked: dict[str, Any]) -> None:
    fit = opening()
    ada(OpenFit(fit))
    said = ada(sum_of(fit.fit, **asked))
    assert isinstance(said, Refused)
    assert said.why == "malformed"


@dataclass(frozen=True)
class Step:
    """A class that clients do not know, or know by another meaning."""

    gradient: Any = None


def test_other_classes_get_nothing(houses: Houses, ada: Callable[[Any], Any]) -> None:
    fit = opening()
    ada(OpenFit(fit))
    for message in (Step(), AskRows(fit.fit, 0, Question(Step(), "evaluate", ()), ALL, "sum"), Done("ada", fit.fit)):
        said = ada(message)
        assert isinstance(said, Refused)
        assert said.why == "malformed"


@pytest.mark.parametrize(
    "numbers",
    [[3, 2], [2, 2], [-1], [250], [0.5], [[1], [2]]],
    ids=["falling", "twice", "below", "beyond", "half", "two"],
)
def test_batches_are_of_the_clients_own_rows(houses: Houses, ada: Callable[[Any], Any], numbers: Any) -> None:
    fit = opening()
    ada(OpenFit(fit))
    said = ada(replace(sum_of(fit.fit), rows=replace(ALL, numbers=np.array(numbers))))
    assert isinstance(said, Refused)


def test_an_entry_that_is_too_large_for_floats_is_not_told(houses: Houses, ada: Callable[[Any], Any]) -> None:
    """What is asked of unclipped rows, in a fit that is billed, is finite as well."""
    fit = opening()
    ada(OpenFit(fit))
    question, _ = question_of(partial(replace(GRADIENT, level=1e308)._contribution, public=PUBLIC), OF_ROWS)
    said = ada(AskRows(fit.fit, 0, question, ALL, "sum"))
    assert isinstance(said, Summed)
    assert np.isfinite(said.value).all()


SAMPLED = SampledGaussian(NoisePerSensitivity(1.0), Sampling("poisson", N, 60, 2))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"plans": ()}, id="no plan"),
        pytest.param({"plans": (Plan(()),)}, id="an empty plan"),
        pytest.param({"plans": (Plan((Release("step", Gaussian(), 0),)),)}, id="nothing released"),
        pytest.param({"plans": (Plan((Release("step", Gaussian(), -3),)),)}, id="a negative count"),
        pytest.param({"plans": (Plan((Release("step", Gaussian(), 0.5),)),)}, id="half a count"),  # type: ignore[arg-type]
        pytest.param({"plans": (Plan((Release("step", TopK(k=-1), 1),)),)}, id="a negative choice"),
        pytest.param({"plans": (Plan((Release("step", SAMPLED, 1),)),)}, id="other units"),
        pytest.param({"plans": (Plan((Release("step", GRADIENT, 1),)),)}, id="no mechanism"),  # type: ignore[arg-type]
        pytest.param({"delta": -1.0}, id="negative delta"),
        pytest.param({"delta": 1.0}, id="all delta"),
        pytest.param({"rows_per_unit": 0}, id="no rows"),
        pytest.param({"nonce": "../../somewhere"}, id="a path"),
        pytest.param({"what": "two\nlines"}, id="lines"),
    ],
)
def test_plans_without_a_price_are_none(houses: Houses, change: dict[str, Any]) -> None:
    """They cannot be made here, and bytes that say so are refused by a client."""
    fit = opening()
    with pytest.raises(ValueError, match=r".+"):
        replace(fit, **change)
    for name, value in change.items():
        object.__setattr__(fit, name, value)
    said = decode(houses.clients["ada"].answer(encode(OpenFit(fit))), REPLY_CLASSES)
    assert isinstance(said, Refused)
    assert said.why == "malformed"
    assert houses.ledger("ada").entries == ()


def test_a_plan_that_proves_nothing_is_refused(houses: Houses, ada: Callable[[Any], Any]) -> None:
    for mechanism in (Gaussian(NoisePerSensitivity(0.0)), Gaussian(NoisePerSensitivity(1e-300))):
        said = ada(OpenFit(opening(Release("step", mechanism, 1))))
        assert isinstance(said, Refused)
    assert houses.ledger("ada").entries == ()


def test_the_price_is_that_of_the_dearest_plan(houses: Houses, ada: Callable[[Any], Any]) -> None:
    plans = tuple(Plan((Release("step", Gaussian(NoisePerSensitivity(5.0)), count),)) for count in (2, 9, 4))
    ada(OpenFit(replace(opening(), plans=plans)))
    assert houses.ledger("ada").entries[0].epsilon == proof(plans[1], 1e-6)[0]


@pytest.mark.parametrize("count", [9, 10])
def test_a_dearer_plan_than_was_billed_ends_the_fit(houses: Houses, ada: Callable[[Any], Any], count: int) -> None:
    fit = opening(Release("step", Gaussian(NoisePerSensitivity(5.0)), 9))
    ada(OpenFit(fit))
    settled = Plan((Release("step", Gaussian(NoisePerSensitivity(5.0)), count),))
    said = ada(SettleFit(fit.fit, settled))
    assert isinstance(said, Done if count == 9 else Refused)
    assert isinstance(ada(sum_of(fit.fit)), Summed if count == 9 else NotOpen)


def test_targets_of_a_regression_are_no_labels(tmp_path: Path) -> None:
    """A server that asks for the set of labels does not get everybody's target."""
    for y, told in ((Y, True), (MARGINS, False), (np.arange(N) * 7, True), (np.arange(5000) * 7, False)):
        rows = np.ones((len(y), 2))
        path = tmp_path / f"{len(y)}-{y[1]}.json"
        ledger = FileLedger.create(path, "rows", CAP)
        client = Client("ada", rows, y, ledger=ledger, state=tmp_path / "state", trusts_aggregator=True)
        assert isinstance(decode(client.answer(encode(AskLabels())), REPLY_CLASSES), Labels if told else Refused)


def test_who_trusts_nobody_says_nothing(houses: Houses, ada: Callable[[Any], Any]) -> None:
    houses.start("ada", trusts_aggregator=False)
    for message in (AskShape(), AskLabels(), AskPrice(opening()), OpenFit(opening()), sum_of(opening().fit)):
        said = ada(message)
        assert isinstance(said, Refused)
        assert said.why == "trust"
    assert houses.ledger("ada").entries == ()


def test_rows_are_clipped_by_what_is_installed_only() -> None:
    for how, bounds in (("reduce", ()), ("clip_rows", (1.0,)), ("__init__", (1.0,)), ("clip_entries", ("x",))):
        with pytest.raises(ValueError, match="tulle's own means"):
            Clip(how, bounds)


def test_the_order_of_clips_is_the_servers(houses: Houses, ada: Callable[[Any], Any]) -> None:
    """Rows clipped for one question are not those of another: what was asked first is answered again the same."""
    fit = opening()
    ada(OpenFit(fit))
    question, _ = question_of(QuantileScores(np.array([0.1, 0.5, 1.0, 2.0]), 0.5, "row_l2")._counts, OF_ROWS)

    def counts(*clips: Clip) -> list[float]:
        return list(ada(AskRows(fit.fit, 0, question, Clipped(AsNumbers(), clips, None), "sum")).value)

    first = counts()
    small = counts(Clip("clip_rows", (0.5, math.inf, False)))
    assert small[1] == 250 > first[1]
    assert counts() == first
    assert counts(Clip("clip_rows", (0.5, math.inf, False))) == small


def test_a_direct_link_is_enough(houses: Houses) -> None:
    link = DirectLink({name: client.answer for name, client in houses.clients.items()})
    assert_same(model(QUICK), (X, Y), RowsAtClients(link))
