"""What travels between a server and its users: one question a round, one answer a user. Version 1, JSON.

    question  {"tulle": 1, "message": "question", "study": …, "round": 3, "from": 0.25, "to": 0.375,
               "ask": {"kind": "gradient", "weights": <base64 of float64>, "response": "identity", "intercept": true},
               "channel": {"name": "priv_unit", "epsilon": 1.0, "bound": 2.0, "dimension": 11, "cap": 0.1}}
    answer    {"tulle": 1, "message": "answer", "study": …, "round": 3, "user": …, "values": <base64 of int32>}

Numbers of a vector are little-endian. Both sides refuse what has other fields, another version, more bytes than the
message can need, numbers that are not finite, or the same field twice. A reader never runs what it reads.

This file needs numpy and scipy alone, like all of the user's side.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from tulle.local.user_side.ball import PrivUnit
from tulle.local.user_side.channel import Channel, IntArray
from tulle.local.user_side.label_randomisers import (
    GaussianLabel,
    Hybrid,
    LaplaceLabel,
    Piecewise,
    RandomisedResponse,
    TwoPoint,
)
from tulle.local.user_side.uniforms import FloatArray

VERSION = 1

# No question is longer, and no answer has more numbers: both sides say no before they allocate anything.
MOST_QUESTION_BYTES = 64 * 2**20
MOST_NUMBERS = 4 * 2**20
# All of an answer but its numbers: two names, of which JSON may write each character in twelve, and the rest.
_MOST_NAME = 128
_ENVELOPE_BYTES = 24 * _MOST_NAME + 256

CHANNELS: dict[str, type[Channel]] = {
    cls.name: cls for cls in (PrivUnit, TwoPoint, Piecewise, Hybrid, LaplaceLabel, GaussianLabel, RandomisedResponse)
}

Quantity = Literal["label", "row"]
Reason = Literal[
    "malformed",
    "oversized",
    "not finite",
    "other version",
    "other study",
    "unknown user",
    "not asked",
    "late",
    "duplicate",
    "impossible",
]


class WireError(ValueError):
    """A message that is not one. `reason` is the kind of fault, for the server's tally."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason: Reason = reason


@dataclass(frozen=True, eq=False)
class GradientAsk:
    """The gradient of the user's own loss at `weights`; the last of them is the intercept, if there is one."""

    weights: FloatArray
    response: str
    intercept: bool


@dataclass(frozen=True)
class LabelAsk:
    """The user's label: a number, or the number of a class."""


@dataclass(frozen=True)
class ExceedsAsk:
    """Whether a quantity of the user's passes a threshold: 1 or 0."""

    quantity: Quantity
    threshold: float
    intercept: bool


Ask = GradientAsk | LabelAsk | ExceedsAsk
_KINDS: dict[str, type[Ask]] = {"gradient": GradientAsk, "label": LabelAsk, "exceeds": ExceedsAsk}


@dataclass(frozen=True, eq=False)
class Question:
    """What the users of one group are asked. A user's group is where `place(study, user)` lies."""

    study: str
    round: int
    start: float
    end: float
    ask: Ask
    channel: Channel

    def is_for(self, user: str) -> bool:
        """Whether a user is in the group that is asked."""
        return self.start <= place(self.study, user) < self.end


@dataclass(frozen=True, eq=False)
class Answer:
    """What a user says, once."""

    study: str
    round: int
    user: str
    values: IntArray


def place(study: str, user: str) -> float:
    """A number in [0, 1) that only the names of study and user decide: groups are fixed before anybody's row is seen,
    and every user can check its own."""
    digest = hashlib.sha256(json.dumps([study, user]).encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53


def answer_bytes(numbers: int) -> int:
    """No answer with this many numbers is longer."""
    return _ENVELOPE_BYTES + 4 * (-(-4 * numbers // 3) + 1)


# --- writing ---------------------------------------------------------------------------------------------------------


def encode_question(question: Question) -> bytes:
    """The question as it travels."""
    if question.channel.name not in CHANNELS:
        raise ValueError("a study without a budget can only be simulated: users never answer without noise")
    ask = question.ask
    kind = next(name for name, cls in _KINDS.items() if type(ask) is cls)
    said = {field.name: getattr(ask, field.name) for field in fields(ask)}
    if isinstance(ask, GradientAsk):
        said["weights"] = _pack(ask.weights, "<f8")
    channel = {field.name: getattr(question.channel, field.name) for field in fields(question.channel)}
    return _dump(
        {
            "tulle": VERSION,
            "message": "question",
            "study": question.study,
            "round": question.round,
            "from": question.start,
            "to": question.end,
            "ask": {"kind": kind, **said},
            "channel": {"name": question.channel.name, **channel},
        }
    )


def encode_answer(answer: Answer) -> bytes:
    """The answer as it travels."""
    return _dump(
        {
            "tulle": VERSION,
            "message": "answer",
            "study": answer.study,
            "round": answer.round,
            "user": answer.user,
            "values": _pack(answer.values, "<i4"),
        }
    )


def _dump(message: dict[str, Any]) -> bytes:
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode()


def _pack(numbers: Any, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, dtype=kind).tobytes()).decode()


# --- reading ---------------------------------------------------------------------------------------------------------


def decode_question(raw: bytes) -> Question:
    """The question that was sent, or a `WireError`."""
    message = _load(raw, MOST_QUESTION_BYTES, "question")
    _check_fields(message, {"tulle", "message", "study", "round", "from", "to", "ask", "channel"})
    start, end = (_number(message[name]) for name in ("from", "to"))
    if not 0 <= start <= end <= 1:
        raise WireError("malformed", f"a group must lie within [0, 1), not from {start} to {end}")
    return Question(
        check_name(message["study"]),
        _round(message["round"]),
        start,
        end,
        _ask(message["ask"]),
        _channel(message["channel"]),
    )


def decode_answer(raw: bytes, numbers: int) -> Answer:
    """The answer that was sent, if it holds `numbers` numbers, or a `WireError`."""
    message = _load(raw, answer_bytes(numbers), "answer")
    _check_fields(message, {"tulle", "message", "study", "round", "user", "values"})
    values = _unpack(message["values"], "<i4", numbers).astype(np.int64)
    return Answer(check_name(message["study"]), _round(message["round"]), check_name(message["user"]), values)


def _load(raw: bytes, limit: int, kind: str) -> dict[str, Any]:
    if len(raw) > limit:
        raise WireError("oversized", f"{len(raw):,} bytes, but a {kind} has at most {limit:,}")
    try:
        message = json.loads(raw.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_not_finite)
    except WireError:
        raise
    except (ValueError, RecursionError) as error:
        raise WireError("malformed", f"not JSON: {error}") from None
    if not isinstance(message, dict) or message.get("message") != kind:
        raise WireError("malformed", f"not a {kind}")
    if message.get("tulle") != VERSION or isinstance(message["tulle"], bool):
        raise WireError("other version", f"version {message.get('tulle')!r}, expected {VERSION}")
    return message


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise WireError("malformed", "a field occurs twice")
    return dict(pairs)


def _not_finite(word: str) -> float:
    raise WireError("not finite", f"{word} is not a number here")


def _check_fields(message: Any, expected: set[str]) -> None:
    if not isinstance(message, dict) or set(message) != expected:
        found = sorted(message) if isinstance(message, dict) else message
        raise WireError("malformed", f"fields {found!r:.200}, expected {sorted(expected)}")


def check_name(value: Any) -> str:
    """The name, or a `WireError` where it cannot travel."""
    if not (isinstance(value, str) and 0 < len(value) <= _MOST_NAME):
        raise WireError("malformed", f"a name must be a string of 1 to {_MOST_NAME} characters, got {value!r:.60}")
    return value


def _round(value: Any) -> int:
    if not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31):
        raise WireError("malformed", f"a round must be an integer >= 1, not {value!r:.50}")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise WireError("malformed", f"{value!r:.50} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):  # 1e999 is JSON, too
        raise WireError("not finite", "a number that is not finite")
    return number


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WireError("malformed", f"{value!r:.50} is neither true nor false")
    return value


def _unpack(text: Any, kind: str, numbers: int | None = None) -> Any:
    if not isinstance(text, str):
        raise WireError("malformed", "numbers must be base64 text")
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        raise WireError("malformed", "not base64") from None
    size = np.dtype(kind).itemsize
    if len(data) % size or not 1 <= len(data) // size <= MOST_NUMBERS or numbers not in (None, len(data) // size):
        raise WireError("malformed", f"{len(data)} bytes are not {numbers or 'some'} numbers of {size} bytes")
    array = np.frombuffer(data, dtype=kind)
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        raise WireError("not finite", "weights that are not finite")
    return array


def _ask(message: Any) -> Ask:
    kind = message.get("kind") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise WireError("malformed", f"an unknown kind of question: {kind!r:.50}")
    cls = _KINDS[kind]
    _check_fields(message, {"kind", *(field.name for field in fields(cls))})
    if cls is GradientAsk:
        weights = _unpack(message["weights"], "<f8").astype(np.float64)
        return GradientAsk(weights, check_name(message["response"]), _flag(message["intercept"]))
    if cls is ExceedsAsk:
        if message["quantity"] not in get_args(Quantity):
            raise WireError("malformed", f"an unknown quantity: {message['quantity']!r:.50}")
        return ExceedsAsk(message["quantity"], _number(message["threshold"]), _flag(message["intercept"]))
    return LabelAsk()


def _channel(message: Any) -> Channel:
    name = message.get("name") if isinstance(message, dict) else None
    if not isinstance(name, str) or name not in CHANNELS:
        raise WireError("malformed", f"an unknown channel: {name!r:.50}")
    cls = CHANNELS[name]
    names = [field.name for field in fields(cls)]
    _check_fields(message, {"name", *names})
    whole = {"dimension", "n_classes"}
    values = {name: message[name] if name in whole else _number(message[name]) for name in names}
    try:
        if any(isinstance(values[name], bool) or values[name] > MOST_NUMBERS for name in whole & set(names)):
            raise ValueError("too many numbers")
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise WireError("malformed", f"invalid channel: {error}") from None
