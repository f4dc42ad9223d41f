"""The user's side: one row, one answer, at most at the price that the user allows, whatever a server asks."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import local_hosts
import numpy as np
import pytest

import tulle.local.user_side
from tulle.local.user_side.answer_format import (
    Ask,
    ExceedsAsk,
    GradientAsk,
    LabelAsk,
    Question,
    WireError,
    decode_answer,
    encode_question,
    place,
)
from tulle.local.user_side.ball import PrivUnit
from tulle.local.user_side.channel import Channel
from tulle.local.user_side.label_randomisers import (
    GaussianLabel,
    Hybrid,
    LaplaceLabel,
    Piecewise,
    RandomisedResponse,
    TwoPoint,
)
from tulle.local.user_side.responses import RESPONSES, Response
from tulle.local.user_side.uniforms import FloatArray, SeededUniforms, Uniforms
from tulle.local.user_side.user import AlreadyAnsweredError, FileRecord, MemoryRecord, RefusedError, User

ROW = [0.25, -0.5, 0.75]
YES_OR_NO = RandomisedResponse(1.0, 1.0, 2)


class Fixed:
    """Uniforms that are all the same, and how often they were asked for."""

    def __init__(self, value: float = 0.3) -> None:
        self.value, self.calls = value, 0

    def draw(self, users: int, each: int) -> FloatArray:
        self.calls += 1
        return np.full((users, each), self.value)


class Broken:
    """A source of randomness that fails."""

    def draw(self, users: int, each: int) -> FloatArray:
        raise OSError("no entropy")


def asking(ask: Ask, channel: Channel, study: str = "a study", start: float = 0.0, end: float = 1.0) -> bytes:
    return encode_question(Question(study, 1, start, end, ask, channel))


def gradient(
    weights: Any = (0.1, 0.2, 0.3, 0.4), channel: Channel | None = None, intercept: bool = True, response: str = "tanh"
) -> bytes:
    weights = np.array(weights, dtype=float)
    channel = PrivUnit.best(1.0, 2.0, len(weights)) if channel is None else channel
    return asking(GradientAsk(weights, response, intercept), channel)


def label(channel: Channel | None = None, **place_of_group: Any) -> bytes:
    return asking(LabelAsk(), TwoPoint(1.0, 2.0) if channel is None else channel, **place_of_group)


def user(x: Any = ROW, y: float = 1.5, **settings: Any) -> User:
    return User("anna", x, y, **{"max_epsilon": 1.0, **settings})


def still_answers(anyone: User, question: bytes | None = None) -> bool:
    """Whether a user has an answer left."""
    try:
        return bool(anyone.answer(label() if question is None else question))
    except AlreadyAnsweredError:
        return False


# --- one answer -------------------------------------------------------------------------------------------------------


def test_a_user_answers_once() -> None:
    """The same question again, or another one of another study: refused, and nothing is drawn."""
    uniforms = Fixed()
    anna = user(uniforms=uniforms)
    assert decode_answer(anna.answer(gradient()), 4).user == "anna"
    for question in (gradient(), label(), label(study="another study")):
        with pytest.raises(AlreadyAnsweredError, match="answered before"):
            anna.answer(question)
    assert uniforms.calls == 1


def test_a_record_on_disk_outlives_the_user(tmp_path: Path) -> None:
    """A new `User` with the same file does not answer; the file says what was paid, for which study, and no row."""
    path = tmp_path / "anna.json"
    user(record=FileRecord(path)).answer(label())
    assert json.loads(path.read_text()) == {
        **{"study": "a study", "round": 1, "epsilon": 1.0, "delta": 0.0},
        "tulle": tulle.__version__,
    }
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(AlreadyAnsweredError, match=r"anna\.json records that this user has answered before"):
        user(record=FileRecord(str(path))).answer(label())


def test_a_record_on_disk_outlives_the_process(tmp_path: Path) -> None:
    """Another process with the same file does not answer either."""
    path = tmp_path / "anna.json"
    user(record=FileRecord(path)).answer(label())
    code = (
        "import sys\nfrom tulle.local.user_side.user import AlreadyAnsweredError, FileRecord, User\n"
        "user = User('anna', [1.0], 1.0, max_epsilon=1.0, record=FileRecord(sys.argv[1]))\n"
        "try:\n    user.answer(sys.stdin.buffer.read())\nexcept AlreadyAnsweredError:\n    print('refused')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], input=label(), capture_output=True, timeout=60)
    assert done.stdout.split() == [b"refused"], done.stderr


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_one_of_many_processes_wins_the_race_for_a_record(tmp_path: Path) -> None:
    """Four processes that start at once, fifty times over: exactly one of them answers each time."""
    n_files, n_processes = 50, 4
    wins = local_hosts.race([str(tmp_path / str(number)) for number in range(n_files)], label(), n_processes)
    assert sorted(number for won in wins for number in won) == list(range(n_files))


def test_a_record_that_another_process_makes_at_the_last_moment_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before the file is opened: looking for it first would find nothing."""
    path = tmp_path / "anna.json"
    really_open = os.open

    def overtaken(file: Any, *settings: Any, **more: Any) -> int:
        path.write_text("")
        return really_open(file, *settings, **more)

    monkeypatch.setattr(os, "open", overtaken)
    with pytest.raises(AlreadyAnsweredError):
        user(record=FileRecord(path)).answer(label())


def test_one_of_many_threads_wins_the_race_for_a_record() -> None:
    """The record in memory, too: eight threads, one answer."""
    anna, start, answers = user(), threading.Barrier(8), []

    def try_it() -> None:
        start.wait()
        with suppress(AlreadyAnsweredError):
            answers.append(anna.answer(label()))

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 1


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_the_record_is_written_before_anything_is_drawn(kind: str, tmp_path: Path) -> None:
    """A source that fails has cost the answer: who crashes in the middle stays silent, and never speaks twice."""
    record = MemoryRecord() if kind == "memory" else FileRecord(tmp_path / "anna.json")
    with pytest.raises(OSError, match="no entropy"):
        user(record=record, uniforms=Broken()).answer(label())
    with pytest.raises(AlreadyAnsweredError):
        user(record=record).answer(label())


def test_a_record_that_cannot_be_written_gives_no_answer(tmp_path: Path) -> None:
    """Nothing is drawn where nothing can be written down."""
    uniforms = Fixed()
    anna = user(record=FileRecord(tmp_path / "no such folder" / "anna.json"), uniforms=uniforms)
    with pytest.raises(FileNotFoundError):
        anna.answer(label())
    assert uniforms.calls == 0


def test_a_crash_in_the_middle_of_the_record_allows_no_answer(tmp_path: Path) -> None:
    """An empty file, made and not yet filled when the power went, is a record."""
    path = tmp_path / "anna.json"
    path.touch()
    with pytest.raises(AlreadyAnsweredError):
        user(record=FileRecord(path)).answer(label())


# --- refusals, before anything is spent -------------------------------------------------------------------------------


def here(width: float) -> tuple[float, float]:
    """A group that ends just before anna's place, or (width 0) starts just after."""
    at = place("a study", "anna")
    return (0.0, at) if width else (math.nextafter(at, 1), 1.0)


REFUSALS: dict[str, tuple[Callable[[], bytes], str]] = {
    "epsilon too large": (lambda: label(TwoPoint(1.0000001, 2.0)), "costs epsilon"),
    "epsilon far too large": (lambda: gradient(channel=PrivUnit.best(16.0, 2.0, 4)), "costs epsilon"),
    "a delta": (lambda: label(GaussianLabel(0.5, 2.0, 1.1e-6)), "delta = 1.1e-06"),
    "too few weights": (lambda: gradient([0.1, 0.2, 0.3]), "3 weights"),
    "too many weights": (lambda: gradient([0.1] * 5), "5 weights"),
    "no constant": (lambda: gradient([0.1] * 4, intercept=False), "4 weights"),
    "a channel for fewer": (lambda: gradient(channel=PrivUnit.best(1.0, 2.0, 3)), "answers of 3 numbers"),
    "a channel for one": (lambda: gradient(channel=TwoPoint(1.0, 2.0)), "answers of 1 numbers"),
    "a channel for four": (lambda: label(PrivUnit.best(1.0, 2.0, 4)), "through a channel for 4"),
    "an unknown response": (lambda: gradient(response="eval"), "does not know the response 'eval'"),
    "another group, before": (lambda: label(start=here(1)[0], end=here(1)[1]), "other users"),
    "another group, after": (lambda: label(start=here(0)[0], end=here(0)[1]), "other users"),
    "yes or no, two points": (lambda: asking(ExceedsAsk("row", 1.0, True), TwoPoint(1.0, 2.0)), "yes-or-no"),
    "yes or no, three": (lambda: asking(ExceedsAsk("label", 1.0, True), RandomisedResponse(1.0, 1.0, 3)), "yes-or-no"),
    "yes or no, four": (lambda: asking(ExceedsAsk("row", 1.0, True), PrivUnit.best(1.0, 2.0, 4)), "channel for 4"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_a_user_does_not_allow_is_refused_and_costs_nothing(what: str) -> None:
    """Nothing is drawn, no record is written, and a proper question is answered after."""
    uniforms = Fixed()
    anna = user(uniforms=uniforms)
    question, text = REFUSALS[what]
    with pytest.raises(RefusedError, match=text) as caught:
        anna.answer(question())
    assert not isinstance(caught.value, AlreadyAnsweredError)
    assert uniforms.calls == 0
    assert still_answers(anna)
    assert uniforms.calls == 1


def test_what_cannot_be_read_costs_nothing() -> None:
    """A server that sends nonsense does not silence its users."""
    anna = user()
    for raw in (b"", b"{}", label()[:-1], label().replace(b'"epsilon":1.0', b'"epsilon":0.0')):
        with pytest.raises(WireError):
            anna.answer(raw)
    assert still_answers(anna)


def test_the_price_that_is_allowed_is_paid() -> None:
    """At the limits themselves, epsilon and delta, a user answers."""
    user(max_epsilon=1.0).answer(label(TwoPoint(1.0, 2.0)))
    user(max_delta=1e-6).answer(label(GaussianLabel(1.0, 2.0, 1e-6)))
    with pytest.raises(RefusedError):
        user(max_delta=1e-6).answer(label(GaussianLabel(1.0, 2.0, 1.1e-6)))


@pytest.mark.parametrize("channel", [Piecewise(1.0, 2.0), Hybrid(1.0, 2.0), GaussianLabel(1.0, 2.0, 1e-6)])
@pytest.mark.parametrize("epsilon", [b"5e-324", b"1e-300", b"1e-9"])
def test_a_hostile_epsilon_does_not_cost_the_answer(channel: Channel, epsilon: bytes) -> None:
    """One so small that nothing can be computed with it is refused before the record is written."""
    anna = user(max_delta=1e-6)
    with pytest.raises(WireError, match="invalid channel"):
        anna.answer(label(channel).replace(b'"epsilon":1.0', b'"epsilon":' + epsilon))
    assert still_answers(anna)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_epsilon": 0.0}, "max_epsilon"),
        ({"max_epsilon": math.inf}, "max_epsilon"),
        ({"max_epsilon": math.nan}, "max_epsilon"),
        ({"max_epsilon": True}, "max_epsilon"),
        ({"max_delta": 1.0}, "max_delta"),
        ({"max_delta": -0.1}, "max_delta"),
        ({"max_delta": math.nan}, "max_delta"),
        ({"x": [1.0, math.nan, 0.0]}, "must be finite numbers"),
        ({"y": math.inf}, "must be finite numbers"),
    ],
)
def test_a_user_knows_its_limits_and_its_row(settings: dict[str, Any], text: str) -> None:
    """No limit is unlimited, and a row is numbers."""
    with pytest.raises(ValueError, match=text):
        user(**settings)


def test_a_user_keeps_its_own_copy_of_the_row() -> None:
    """Who changes the array after that changes no answer."""
    row = np.array(ROW)
    anna, ben = user(row, uniforms=Fixed()), user(uniforms=Fixed())
    row[:] = 100.0
    assert anna.answer(gradient()) == ben.answer(gradient())


# --- answers ----------------------------------------------------------------------------------------------------------


def randomised(question: bytes, monkeypatch: pytest.MonkeyPatch, kind: type[Channel], **settings: Any) -> FloatArray:
    """The value that a user's channel gets for a question."""
    seen = []
    honest = kind.answer

    def spy(self: Channel, values: FloatArray, uniforms: FloatArray) -> Any:
        seen.append(values.copy())
        return honest(self, values, uniforms)

    monkeypatch.setattr(kind, "answer", spy)
    user(**settings).answer(question)
    assert len(seen) == 1
    return seen[0][0]


def test_the_gradient_is_that_of_the_users_squared_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """By differences, with the constant as the last entry of the row, for all responses."""
    weights = np.array([0.3, -0.2, 0.5, 0.7])
    row = np.array([*ROW, 1.0])
    for name, response in RESPONSES.items():
        found = randomised(gradient(weights, response=name), monkeypatch, PrivUnit)

        def error(at: FloatArray, response: Response = response) -> float:
            return float(response.value(np.atleast_1d(row @ at))[0] - 1.5) ** 2 / 2

        step = 1e-6
        expected = [(error(weights + step * axis) - error(weights - step * axis)) / (2 * step) for axis in np.eye(4)]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
        monkeypatch.undo()


def test_without_an_intercept_there_is_no_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient has one entry for each feature."""
    found = randomised(gradient([0.1, 0.2, 0.3], intercept=False, response="identity"), monkeypatch, PrivUnit)
    np.testing.assert_allclose(found, (np.dot(ROW, [0.1, 0.2, 0.3]) - 1.5) * np.array(ROW))


@pytest.mark.parametrize(
    ("quantity", "intercept", "size"),
    [
        ("label", True, 1.5),
        ("label", False, 1.5),
        ("row", False, math.hypot(*ROW)),
        ("row", True, math.hypot(*ROW, 1.0)),
    ],
)
def test_a_threshold_is_compared_with_the_right_size(
    quantity: Any, intercept: bool, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The label's magnitude, or the norm of the row, with its constant where there is one."""
    for threshold, beyond in ((0.999 * size, 1.0), (1.001 * size, 0.0)):
        question = asking(ExceedsAsk(quantity, threshold, intercept), YES_OR_NO)
        assert randomised(question, monkeypatch, RandomisedResponse, y=-1.5).tolist() == [beyond]
        monkeypatch.undo()


def test_a_response_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user answers with the function it knows by that name, and never with one that the server sends."""
    cube = Response("cube and more", lambda margins: margins**3 + margins, lambda margins: 3 * margins**2 + 1)
    question = gradient([1.0, 0.0, 0.0], response="cube and more", intercept=False)
    with pytest.raises(RefusedError, match="does not know the response 'cube and more'"):
        user().answer(question)
    responses = {**RESPONSES, cube.name: cube}
    found = randomised(question, monkeypatch, PrivUnit, responses=responses)
    margin = ROW[0]
    np.testing.assert_allclose(found, (margin**3 + margin - 1.5) * (3 * margin**2 + 1) * np.array(ROW))


@pytest.mark.parametrize("fault", ["raises", "NaN", "an object", "too many", "none"])
def test_a_response_that_fails_for_this_row_is_answered_all_the_same(fault: str) -> None:
    """Silence would tell about the row, once the record is written: what cannot be computed counts as 0."""

    def value(margins: FloatArray) -> Any:
        if np.all(margins == 0):
            return margins
        if fault == "raises":
            raise ValueError("no such margin")
        return {
            "NaN": np.full(len(margins), math.nan),
            "an object": np.array([None] * len(margins)),
            "too many": np.zeros(7),
            "none": None,
        }[fault]

    frail = Response("frail", value, np.ones_like)
    question = gradient(response="frail")
    answers, zero = [], np.zeros((1, 4))
    for _ in range(2):
        anna = user(responses={"frail": frail}, uniforms=SeededUniforms(5, [0]))
        try:
            answers.append(decode_answer(anna.answer(question), 4).values.tolist())
        except Exception as error:
            answers.append(repr(error))
    channel = PrivUnit.best(1.0, 2.0, 4)
    assert answers == 2 * [channel.answer(zero, SeededUniforms(5, [0]).draw(1, channel.n_uniforms))[0].tolist()]


def test_noise_is_the_users_own() -> None:
    """The same row and question give other answers with other draws, and the same with the same."""
    answers = [user(uniforms=SeededUniforms(seed, [0])).answer(gradient()) for seed in (1, 1, 2)]
    assert answers[0] == answers[1]
    assert answers[0] != answers[2]
    drawn = {user().answer(gradient()) for _ in range(3)}
    assert len(drawn) == 3


def test_what_a_user_sends_holds_its_name_and_the_answer_alone() -> None:
    """Exactly the fields of an answer; the numbers are those that the channel gave."""
    raw = user(uniforms=SeededUniforms(3, [0])).answer(gradient([0.0] * 4, response="identity"))
    message = json.loads(raw)
    assert set(message) == {"tulle", "message", "study", "round", "user", "values"}
    channel = PrivUnit.best(1.0, 2.0, 4)
    values = -1.5 * np.array([[*ROW, 1.0]])
    expected = channel.answer(values, SeededUniforms(3, [0]).draw(1, channel.n_uniforms))
    assert decode_answer(raw, 4).values.tolist() == expected[0].tolist()


# --- extreme rows -----------------------------------------------------------------------------------------------------

EXTREME = [1e308, -1e308, 1.7976931348623157e308, 5e-324, -5e-324, 2.2e-308, 0.0, -0.0]
CHANNELS: list[Channel] = [
    TwoPoint(1.0, 2.0),
    Piecewise(1.0, 2.0),
    Hybrid(1.0, 2.0),
    LaplaceLabel(1.0, 2.0),
    GaussianLabel(1.0, 2.0, 1e-5),
    RandomisedResponse(1.0, 1.0, 3),
    PrivUnit.best(1.0, 1e-100, 1),
    TwoPoint(1e-6, 1e-100),
    Hybrid(0.7, 1e100),
    LaplaceLabel(1.0, 1e100),
]


def quiet_answer(question: bytes, x: Any, y: float, uniforms: Uniforms, width: int, channel: Channel) -> None:
    """An answer without a warning, that the channel can give, though numpy is told to raise."""
    raw, said = b"", None
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        try:
            raw = user(x, y, max_delta=1e-5, uniforms=uniforms).answer(question)
        except (ArithmeticError, Warning) as error:
            said = error
    assert said is None
    assert channel.possible(decode_answer(raw, width).values)


@pytest.mark.parametrize("y", EXTREME)
def test_extreme_labels_are_answered_without_a_word(y: float) -> None:
    """Neither an error nor a warning: both would tell about the label, once the record is written."""
    for channel in CHANNELS:
        for uniform in (2.0**-53, 0.5, 1 - 2.0**-53):
            quiet_answer(label(channel), ROW, y, Fixed(uniform), 1, channel)
    for threshold in (0.0, 1.0, 1e308):
        quiet_answer(asking(ExceedsAsk("label", threshold, True), YES_OR_NO), ROW, y, Fixed(), 1, YES_OR_NO)


@pytest.mark.parametrize("y", EXTREME)
@pytest.mark.parametrize("x", EXTREME)
def test_extreme_rows_are_answered_without_a_word(x: float, y: float) -> None:
    """Gradients that overflow, vanish or are no numbers, at extreme weights, for all responses."""
    for bound in (1e-100, 1.0, 1e100):
        channel = PrivUnit.best(1.0, bound, 4)
        for response in RESPONSES:
            for weights in ([1e308, -1e308, 1e308, 1.0], [5e-324] * 4, [0.0] * 4):
                question = gradient(weights, channel, response=response)
                quiet_answer(question, [x, -x, 1.0], y, SeededUniforms(0, [1]), 4, channel)
    for threshold in (0.0, 1e308):
        quiet_answer(asking(ExceedsAsk("row", threshold, True), YES_OR_NO), [x, x, x], y, Fixed(), 1, YES_OR_NO)


# --- what others see of a user ----------------------------------------------------------------------------------------


def test_a_user_that_is_printed_shows_no_row() -> None:
    """Neither it nor what it raises: logs are read by others."""
    anna = user([0.123456789, 1.0, 1.0], 9.87654321)
    shown = [repr(anna), str(anna), f"{anna}", repr([anna])]
    for question in (*(make() for make, _ in REFUSALS.values()), b"{}", gradient(), gradient()):
        try:
            anna.answer(question)
        except (RefusedError, WireError) as error:
            shown.append(f"{error!r} {error}")
    assert len(shown) == 4 + len(REFUSALS) + 2
    assert repr(anna) == "User('anna')"
    assert not any(digits in text for text in shown for digits in ("0.12345", "9.8765", "1.0, 1.0"))


# --- what a user's device has to load ---------------------------------------------------------------------------------


def loaded_by(statement: str) -> set[str]:
    """All modules that a fresh interpreter has loaded after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(json.loads(run.stdout))


def test_the_users_side_needs_numpy_and_scipy_alone() -> None:
    """Beside the standard library; and of tulle the user's side, neither accountants nor mechanisms nor estimators."""
    loaded = loaded_by("import tulle.local.user_side.user, tulle.local.user_side.http_client")
    bare = loaded_by("import numpy, scipy.special, scipy.optimize")
    packages = {name.split(".")[0] for name in loaded}
    assert {"numpy", "scipy", "tulle"} <= packages
    assert packages.isdisjoint({"sklearn", "numba", "randomgen", "dp_accounting", "joblib", "pandas", "matplotlib"})
    known = {name.split(".")[0] for name in bare} | set(sys.stdlib_module_names)
    assert packages - known == {"tulle"}
    packages = {"tulle.local", "tulle.local.user_side", "tulle.trusted", "tulle.accounting", "tulle.files"}
    of_tulle = {name for name in loaded if name.startswith("tulle.")} - packages
    user_side = Path(tulle.local.user_side.__path__[0])
    assert of_tulle - {f"tulle.local.user_side.{path.stem}" for path in user_side.glob("*.py")} == {
        "tulle.trusted.gaussian",
        "tulle.accounting.gaussian_budget",
        "tulle.files.durable_writes",
        "tulle.files.saved_models",  # of `import tulle`
        "tulle.trusted.intake",
        "tulle.trusted.exact_noise",
    }


def test_the_servers_side_needs_more() -> None:
    """The test above can fail: the server loads mechanisms and accountants."""
    loaded = loaded_by("import tulle.local.server_side.study_server")
    assert {"tulle.trusted.plan", "tulle.trusted.mechanisms"} <= loaded


def test_an_answer_loads_nothing_more() -> None:
    """Not at the first answer either, through any channel."""
    loaded = loaded_by(
        "from tulle.local.user_side.label_randomisers import GaussianLabel\n"
        "from tulle.local.user_side.user import User\n"
        "from tulle.local.user_side.answer_format import LabelAsk, Question, encode_question\n"
        "question = Question('s', 1, 0.0, 1.0, LabelAsk(), GaussianLabel(1.0, 1.0, 1e-5))\n"
        "User('anna', [1.0], 1.0, max_epsilon=1.0, max_delta=1e-5).answer(encode_question(question))"
    )
    assert not any(name.startswith(("sklearn", "numba", "randomgen", "tulle.trusted.plan")) for name in loaded)
