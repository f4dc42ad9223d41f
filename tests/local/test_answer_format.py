"""What travels between a server and its users: nothing is lost on the way, and nothing else than a message is read.

The one statistical test fixes its names; it rejects a right law with probability below 1e-6.
"""

from __future__ import annotations

import base64
import json
import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from tulle.local.user_side.answer_format import (
    CHANNELS,
    MOST_NUMBERS,
    MOST_QUESTION_BYTES,
    Answer,
    Ask,
    ExceedsAsk,
    GradientAsk,
    LabelAsk,
    Question,
    WireError,
    answer_bytes,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    place,
)
from tulle.local.user_side.ball import PrivUnit
from tulle.local.user_side.channel import Channel, Unrandomised
from tulle.local.user_side.label_randomisers import (
    GaussianLabel,
    Hybrid,
    LaplaceLabel,
    Piecewise,
    RandomisedResponse,
    TwoPoint,
)

WEIGHTS = np.array([0.1, -0.0, 5e-324, -1.7976931348623157e308])
ASKS: dict[str, Ask] = {
    "gradient": GradientAsk(WEIGHTS, "logistic", True),
    "label": LabelAsk(),
    "exceeds": ExceedsAsk("row", 1 / 3, False),
    "exceeds, label": ExceedsAsk("label", 0.0, True),
}
SOME_CHANNELS: dict[str, Channel] = {
    channel.name: channel
    for channel in (
        PrivUnit.best(1 / 3, 0.7, 4),
        TwoPoint(1e-6, 1e-100),
        Piecewise(16.0, 2.0),
        Hybrid(1.0, 2.0),
        LaplaceLabel(1.0, 1e100),
        GaussianLabel(1.0, 2.0, 1e-7),
        RandomisedResponse(0.5, 1.0, 7),
    )
}
QUESTION = Question("a study", 3, 0.25, 1 / 3, ASKS["gradient"], SOME_CHANNELS["priv_unit"])
ANSWER = Answer("a study", 3, "anna", np.array([0, 1, -(2**31), 2**31 - 1]))


def written(question: Question = QUESTION) -> dict[str, Any]:
    """A proper question as a JSON object."""
    return json.loads(encode_question(question))


def answered() -> dict[str, Any]:
    """A proper answer of four numbers as a JSON object."""
    return json.loads(encode_answer(ANSWER))


def dumped(message: Any) -> bytes:
    return json.dumps(message).encode()


def changed(message: dict[str, Any], path: str, value: Any) -> bytes:
    """A message with one field set to another value; NaN and the like are written as JavaScript would."""
    *outer, last = path.split(".")
    inner = message
    for name in outer:
        inner = inner[name]
    inner[last] = value
    return dumped(message)


def refusal(raw: bytes, numbers: int | None = None) -> str:
    """Why a question (or an answer of so many numbers) is refused."""
    with pytest.raises(WireError) as caught:
        decode_question(raw) if numbers is None else decode_answer(raw, numbers)
    assert str(caught.value)
    return caught.value.reason


def same_ask(one: Ask, other: Ask) -> bool:
    if isinstance(one, GradientAsk):
        assert isinstance(other, GradientAsk)
        same = other.weights.dtype == np.float64 and one.weights.tobytes() == other.weights.tobytes()
        return same and (one.response, one.intercept) == (other.response, other.intercept)
    return one == other


# --- nothing is lost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("channel", SOME_CHANNELS)
def test_a_question_arrives_as_it_was_sent(ask: str, channel: str) -> None:
    """Every kind of question through every channel: each number to its last bit, each field of its own type."""
    sent = Question('größe 😀 " \\ \n', 2**31 - 1, 1 / 3, 1.0, ASKS[ask], SOME_CHANNELS[channel])
    got = decode_question(encode_question(sent))
    assert (got.study, got.round, got.start, got.end) == (sent.study, sent.round, sent.start, sent.end)
    assert type(got.channel) is type(sent.channel)
    assert got.channel == sent.channel
    assert type(got.ask) is type(sent.ask)
    assert same_ask(sent.ask, got.ask)


def test_every_channel_that_travels_is_tested() -> None:
    """The table above holds all names that a reader knows, each once."""
    assert set(SOME_CHANNELS) == set(CHANNELS)
    assert all(CHANNELS[name].name == name for name in CHANNELS)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30),
    st.floats(1e-6, 16.0),
    st.floats(1e-100, 1e100),
    st.integers(1, 2**31 - 1),
)
@settings(max_examples=60)
def test_weights_and_parameters_arrive_to_the_last_bit(
    weights: list[float], epsilon: float, bound: float, number: int
) -> None:
    """Zero's sign and subnormal numbers included."""
    ask = GradientAsk(np.array(weights), "identity", False)
    sent = Question("s", number, 0.0, 1.0, ask, PrivUnit.hemisphere(epsilon, bound, len(weights)))
    got = decode_question(encode_question(sent))
    assert same_ask(ask, got.ask)
    assert got.channel == sent.channel
    assert got.round == number


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40), st.text(min_size=1, max_size=128))
@settings(max_examples=60)
def test_answers_arrive_exactly(values: list[int], user: str) -> None:
    """Whole numbers of 32 bits, whoever says them."""
    got = decode_answer(encode_answer(Answer("s", 1, user, np.array(values))), len(values))
    assert (got.study, got.round, got.user) == ("s", 1, user)
    assert got.values.dtype == np.int64
    assert got.values.tolist() == values


@pytest.mark.parametrize("letter", ["a", "é", "😀"])
@pytest.mark.parametrize("numbers", [1, 1000])
def test_no_proper_answer_is_longer_than_the_limit(letter: str, numbers: int) -> None:
    """Names of 128 letters that JSON writes as up to twelve bytes each: a user's only answer is not too long."""
    raw = encode_answer(Answer(letter * 128, 2**31 - 1, letter * 128, np.full(numbers, -1)))
    assert len(raw) <= answer_bytes(numbers)
    assert decode_answer(raw, numbers).user == letter * 128


# --- nothing else is read: any message --------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [None, 4], ids=["question", "answer"])
class TestEnvelope:
    """What is wrong with a message of either kind."""

    @staticmethod
    def proper(numbers: int | None) -> dict[str, Any]:
        return written() if numbers is None else answered()

    def test_proper_messages_are_read(self, numbers: int | None) -> None:
        """The messages that are spoilt below are fine before."""
        raw = dumped(self.proper(numbers))
        assert (decode_question(raw) if numbers is None else decode_answer(raw, numbers)).round == 3

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"{",
            b"\xff\xfe",
            b"\xef\xbb\xbf{}",
            b"null",
            b"[]",
            b"3",
            b'"question"',
            b"{}",
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"1" * 5000,
            b"{}{}",
            b"\x00",
        ],
        ids=lambda raw: repr(raw[:12]),
    )
    def test_what_is_no_message_is_malformed(self, numbers: int | None, raw: bytes) -> None:
        """Cut off, not UTF-8, not an object, nested without end, a number of thousands of digits."""
        reason = refusal(raw, numbers)
        assert reason == ("oversized" if numbers is not None and len(raw) > answer_bytes(numbers) else "malformed")

    @pytest.mark.parametrize("version", [0, 2, "1", None, True, [1], 1.5, {}])
    def test_another_version_is_told(self, numbers: int | None, version: Any) -> None:
        """`true` equals 1 in Python, and is another version all the same."""
        assert refusal(changed(self.proper(numbers), "tulle", version), numbers) == "other version"

    def test_a_missing_version_is_another_version(self, numbers: int | None) -> None:
        """Nobody guesses which."""
        message = self.proper(numbers)
        del message["tulle"]
        assert refusal(dumped(message), numbers) == "other version"

    def test_a_message_of_the_other_kind_is_malformed(self, numbers: int | None) -> None:
        """A user answers no answer, and a server takes no question."""
        other = dumped(self.proper(4 if numbers is None else None))
        assert refusal(other[:400] if numbers is None else other, 100 if numbers is not None else None) == "malformed"

    def test_each_field_is_needed(self, numbers: int | None) -> None:
        """None has a default."""
        for name in set(self.proper(numbers)) - {"tulle", "message"}:
            message = self.proper(numbers)
            del message[name]
            assert refusal(dumped(message), numbers) == "malformed", name

    def test_no_further_field_is_taken(self, numbers: int | None) -> None:
        """Not even one that says nothing: it could say whose message it is."""
        assert refusal(changed(self.proper(numbers), "note", None), numbers) == "malformed"

    def test_no_field_occurs_twice(self, numbers: int | None) -> None:
        """Which of them would count? The same value twice is refused too."""
        raw = dumped(self.proper(numbers))
        assert refusal(raw[:-1] + b', "round": 3}', numbers) == "malformed"
        assert refusal(raw[:-1] + b', "round": 4}', numbers) == "malformed"

    @pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
    def test_words_for_numbers_that_are_not_finite_are_told(self, numbers: int | None, word: str) -> None:
        """Python's reader of JSON would take them."""
        assert refusal(changed(self.proper(numbers), "round", float(word)), numbers) == "not finite"

    @pytest.mark.parametrize("number", [0, -1, 2**31, 3.0, True, "3", None, 1e300, [3]])
    def test_a_round_is_a_whole_number_from_one(self, numbers: int | None, number: Any) -> None:
        """Neither `true` nor 3.0 is."""
        assert refusal(changed(self.proper(numbers), "round", number), numbers) == "malformed"

    @pytest.mark.parametrize("name", ["", "x" * 129, 3, None, ["anna"], True])
    def test_a_name_is_a_short_text(self, numbers: int | None, name: Any) -> None:
        """Of 1 to 128 characters."""
        for field in {"study", "user"} & set(self.proper(numbers)):
            assert refusal(changed(self.proper(numbers), field, name), numbers) == "malformed"


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("from", -0.1),
        ("to", 1.1),
        ("to", 0.2),  # before `from`
        ("from", "0"),
        ("from", True),
        ("ask", None),
        ("ask", []),
        ("ask.kind", "row"),
        ("ask.kind", ["gradient"]),
        ("ask.kind", "label"),  # with the fields of another kind
        ("ask.weights", [0.1, 0.2]),
        ("ask.weights", "not base64!"),
        ("ask.weights", "AAAA\n" + "AAAA" * 3),
        ("ask.weights", "ÄÄÄÄ"),
        ("ask.weights", base64.b64encode(b"seven b").decode()),
        ("ask.weights", ""),
        ("ask.response", ""),
        ("ask.response", None),
        ("ask.response", "x" * 129),
        ("ask.intercept", 1),
        ("ask.intercept", "true"),
        ("ask.note", 1),
        ("channel", None),
        ("channel", ["priv_unit"]),
        ("channel.name", "unrandomised"),
        ("channel.name", "identity"),
        ("channel.name", ["priv_unit"]),
        ("channel.name", "two_point"),  # with the fields of another
        ("channel.note", 1),
        ("channel.epsilon", 0),
        ("channel.epsilon", -1.0),
        ("channel.epsilon", 9e-7),
        ("channel.epsilon", 5e-324),
        ("channel.epsilon", 16.001),
        ("channel.epsilon", 51),
        ("channel.epsilon", "1"),
        ("channel.epsilon", True),
        ("channel.epsilon", None),
        ("channel.bound", 0.0),
        ("channel.bound", -1.0),
        ("channel.bound", 1e-300),
        ("channel.bound", 1e300),
        ("channel.dimension", 0),
        ("channel.dimension", -4),
        ("channel.dimension", 4.0),
        ("channel.dimension", True),
        ("channel.dimension", "4"),
        ("channel.dimension", [4]),
        ("channel.dimension", {}),
        ("channel.dimension", None),
        ("channel.dimension", MOST_NUMBERS + 1),
        ("channel.dimension", 10**4000),
        ("channel.cap", 1),
        ("channel.cap", -0.1),
        ("channel.cap", 1.5),
    ],
)
def test_a_question_that_is_none_is_malformed(path: str, value: Any) -> None:
    """Groups beyond [0, 1), unknown kinds and channels, and parameters that a channel cannot have."""
    assert refusal(changed(written(), path, value)) == "malformed"


@pytest.mark.parametrize(
    ("channel", "path", "value"),
    [
        ("randomised_response", "n_classes", 1),
        ("randomised_response", "n_classes", 2.0),
        ("randomised_response", "n_classes", 10**9),
        ("randomised_response", "n_classes", 10**400),
        ("randomised_response", "n_classes", True),
        ("randomised_response", "bound", 2.0),
        ("gaussian", "gaussian_delta", 0),
        ("gaussian", "gaussian_delta", 1),
        ("gaussian", "gaussian_delta", -0.5),
        ("gaussian", "gaussian_delta", "1e-5"),
        ("two_point", "epsilon", 0.0),
        ("laplace", "bound", 0),
    ],
)
def test_a_channel_that_cannot_be_is_malformed(channel: str, path: str, value: Any) -> None:
    """Also those that ask for one number."""
    question = Question("s", 1, 0.0, 1.0, LabelAsk(), SOME_CHANNELS[channel])
    assert refusal(changed(written(question), f"channel.{path}", value)) == "malformed"


def test_each_field_of_ask_and_channel_is_needed() -> None:
    """No channel has a default epsilon."""
    for part in ("ask", "channel"):
        for name in written()[part]:
            message = written()
            del message[part][name]
            assert refusal(dumped(message)) == "malformed", name


def test_fields_of_ask_and_channel_occur_once() -> None:
    """A second epsilon, further in, is refused like one in front."""
    raw = encode_question(QUESTION)
    assert refusal(raw.replace(b'"epsilon":', b'"epsilon":0.1,"epsilon":')) == "malformed"
    assert refusal(raw.replace(b'"kind":', b'"kind":"gradient","kind":')) == "malformed"


@pytest.mark.parametrize("path", ["from", "to", "channel.epsilon", "channel.bound", "channel.cap"])
@pytest.mark.parametrize("text", ["1e999", "-1e999", "1" + "0" * 400, "NaN", "Infinity"])
def test_numbers_too_large_for_a_float_are_not_finite(path: str, text: str) -> None:
    """1e999 is JSON, and would be read as infinity."""
    raw = changed(written(), path, "HERE").replace(b'"HERE"', text.encode())
    assert refusal(raw) == "not finite"


def test_a_threshold_is_a_finite_number() -> None:
    """And its quantity is one of two."""
    question = Question("s", 1, 0.0, 1.0, ASKS["exceeds"], SOME_CHANNELS["randomised_response"])
    raw = changed(written(question), "ask.threshold", "HERE").replace(b'"HERE"', b"1e999")
    assert refusal(raw) == "not finite"
    assert refusal(changed(written(question), "ask.threshold", None)) == "malformed"
    for quantity in ("column", ["row"], None):
        assert refusal(changed(written(question), "ask.quantity", quantity)) == "malformed"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_told(number: float) -> None:
    """Base64 hides them from the reader of JSON, not from ours: a gradient at NaN would be a constant."""
    weights = base64.b64encode(np.array([1.0, number, 2.0, 3.0]).tobytes()).decode()
    assert refusal(changed(written(), "ask.weights", weights)) == "not finite"


def test_a_digit_too_many_is_malformed() -> None:
    """Python refuses to read whole numbers of more than 4300 digits; so do we, with the same error as ever."""
    raw = changed(written(), "channel.epsilon", "HERE").replace(b'"HERE"', b"1" * 5000)
    assert refusal(raw) == "malformed"


def test_too_long_a_question_is_not_read() -> None:
    """One byte more than the limit, and it is not even looked at."""
    assert refusal(b" " * (MOST_QUESTION_BYTES + 1)) == "oversized"


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        base64.b64encode(bytes(12)).decode(),
        base64.b64encode(bytes(20)).decode(),
        base64.b64encode(bytes(15)).decode(),
        "",
        "AAAA",
        "*" * 24,
        "A" * 23,
        " " + base64.b64encode(bytes(16)).decode(),
        [0, 0, 0, 0],
        None,
        0,
        {},
    ],
    ids=str,
)
def test_answers_of_another_length_or_no_numbers_are_malformed(values: Any) -> None:
    """The number of numbers is the channel's, neither more nor fewer."""
    assert refusal(changed(answered(), "values", values), 4) == "malformed"


def test_too_long_an_answer_is_not_read() -> None:
    """The limit is the one that is told, and it does not grow with what was sent."""
    raw = dumped(answered())
    fits = raw + b" " * (answer_bytes(4) - len(raw))
    assert decode_answer(fits, 4).user == "anna"
    assert refusal(fits + b" ", 4) == "oversized"


# --- what cannot travel -----------------------------------------------------------------------------------------------


def test_the_channel_without_privacy_cannot_travel() -> None:
    """Its epsilon is no number in JSON, and no reader knows its name, whatever epsilon is written for it."""
    question = Question("s", 1, 0.0, 1.0, LabelAsk(), Unrandomised(math.inf, 1.0, 1))
    with pytest.raises(ValueError, match="can only be simulated"):
        encode_question(question)
    message = written()
    message["channel"] = {"name": "unrandomised", "epsilon": 1.0, "bound": 1.0, "dimension": 4}
    assert refusal(dumped(message)) == "malformed"


# --- anything at all --------------------------------------------------------------------------------------------------


def readers(raw: bytes) -> None:
    """Both read what they can, and raise nothing but `WireError`."""
    for read in (decode_question, lambda data: decode_answer(data, 4)):
        with suppress(WireError):
            read(raw)


@given(st.binary(max_size=300))
@settings(max_examples=150)
def test_random_bytes_are_refused_and_nothing_worse(raw: bytes) -> None:
    """No other error, whatever is sent."""
    readers(raw)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from([QUESTION, Question("s", 1, 0.0, 1.0, LabelAsk(), SOME_CHANNELS["gaussian"]), None]),
    st.integers(0, 10**6),
    ANYTHING,
)
@settings(max_examples=250)
def test_a_field_of_any_content_is_refused_and_nothing_worse(question: Question | None, where: int, value: Any) -> None:
    """Any field of a proper message, set to anything that JSON can say."""
    message = answered() if question is None else written(question)
    paths = list(message)
    paths += [f"{part}.{name}" for part in ("ask", "channel") for name in message.get(part, {})]
    readers(changed(message, paths[where % len(paths)], value))


@given(
    st.sampled_from([encode_question(QUESTION), encode_answer(ANSWER)]),
    st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3), st.integers(0, 4)), min_size=1, max_size=4),
)
@settings(max_examples=250)
def test_a_spoilt_message_is_refused_and_nothing_worse(raw: bytes, changes: list[tuple[int, bytes, int]]) -> None:
    """Bytes changed, put in and left out anywhere."""
    for where, new, dropped in changes:
        at = where % (len(raw) + 1)
        raw = raw[:at] + new + raw[at + dropped :]
    readers(raw)


# --- who is asked -----------------------------------------------------------------------------------------------------


def test_places_are_uniform_and_decided_by_names_alone() -> None:
    """Kolmogorov and Smirnov find 20,000 places in [0, 1) uniform, and the same places twice as dense at 0 not."""
    places = np.array([place("a study", str(user)) for user in range(20_000)])
    assert places.tolist() == [place("a study", str(user)) for user in range(20_000)]
    assert places.min() >= 0
    assert places.max() < 1
    assert kstest(places, "uniform").pvalue > 1e-6
    assert kstest(places**1.1, "uniform").pvalue < 1e-6


def test_places_differ_between_studies() -> None:
    """Who is asked first in one study is not asked first in the next: correlation below 5/sqrt(n)."""
    one, two = ([place(study, str(user)) for user in range(5_000)] for study in ("one", "two"))
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / math.sqrt(5_000)
    assert len({*one, *two}) == 10_000


def test_names_do_not_run_into_each_other() -> None:
    """Study "ab" with user "c" is not study "a" with user "bc"."""
    assert place("ab", "c") != place("a", "bc")
    assert place('a", "b', "c") != place("a", 'b", "c')


def test_places_are_the_same_on_every_machine() -> None:
    """SHA-256 of the two names as JSON, its first 53 bits: a user's device in another language can check its group."""
    assert place("a study", "anna") == 0.08147122383979089
    assert place("größe", "😀") == 0.33042896367842545


def test_a_group_has_its_start_and_not_its_end() -> None:
    """Neighbouring groups share nobody and leave nobody out."""
    here = place("s", "anna")
    after = (math.nextafter(here, 1), 1.0, False)
    for start, end, inside in ((here, 1.0, True), (0.0, here, False), (0.0, math.nextafter(here, 1), True), after):
        question = Question("s", 1, start, end, LabelAsk(), SOME_CHANNELS["two_point"])
        assert question.is_for("anna") is inside
