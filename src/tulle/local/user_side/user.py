"""The user's side of a local study: one row, one answer, and a record that it was given.

No party is trusted, the server least of all. A user gives one answer. For any request it is randomised here, at an
epsilon that the user allows. Imports numpy, scipy and the standard library.

Proof that one answer costs no more than the channel's epsilon: docs/proofs/local_protocol.md.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from tulle import __version__
from tulle.files.durable_writes import name_file, sync_folder
from tulle.local.user_side.answer_format import (
    Answer,
    ExceedsAsk,
    GradientAsk,
    LabelAsk,
    Question,
    check_name,
    decode_question,
    encode_answer,
)
from tulle.local.user_side.channel import IntArray, check_positive
from tulle.local.user_side.label_randomisers import RandomisedResponse
from tulle.local.user_side.responses import KNOWN_TO_USERS, Response
from tulle.local.user_side.uniforms import FloatArray, SystemUniforms, Uniforms
from tulle.trusted.intake import read_cells, read_numbers


class RefusedError(RuntimeError):
    """The user does not answer: the question asks for more than it allows, or for what it does not have."""


class AlreadyAnsweredError(RefusedError):
    """The user has answered before. One row, one answer."""


class Record(Protocol):
    """Remembers that a user has answered."""

    def claim(self, question: Question) -> None:
        """Write down that the answer is given now, or raise `AlreadyAnsweredError`."""


class MemoryRecord:
    """A record that lasts as long as the process."""

    def __init__(self) -> None:
        self._unused = threading.Lock()  # taken once, by one of however many threads, and never released

    def claim(self, question: Question) -> None:
        if not self._unused.acquire(blocking=False):
            raise AlreadyAnsweredError("this user has answered before")


class FileRecord:
    """A record on disk, written before the answer is drawn: after a crash a user may stay silent, never speak twice.

    Parameters
    ----------
    path : path
        A file that does not exist yet. Anyone who deletes it lets the user answer again, at a further epsilon.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def claim(self, question: Question) -> None:
        try:
            # One of several processes makes the file, however close they are.
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            raise AlreadyAnsweredError(f"{os.fspath(self.path)} records that this user has answered before") from None
        said = {
            "study": question.study,
            "round": question.round,
            "epsilon": question.channel.epsilon,
            "delta": question.channel.delta,
            "tulle": __version__,
        }
        with name_file(self.path):
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(said) + "\n")
                file.flush()
                os.fsync(file.fileno())
            sync_folder(os.path.dirname(os.path.abspath(self.path)))


class User:
    """One user with one row.

    Parameters
    ----------
    name : str
        The name by which the server knows the user; better a random one.
    x : array of shape (d,)
        Finite features.
    y : float
        A finite label, or the number of a class; -1 or 1 where the loss is logistic.
    max_epsilon : float
        The most that an answer may cost, in (0, inf). A question that asks for more is refused.
    max_delta : float, default=1e-6
        In [0, 1). What finite precision takes is counted: 0 admits channels that are purely private as computed, of
        one number or one class.
    record : Record or None, default=None
        Where it is written down that the user has answered; None: in memory. Give a `FileRecord` to a user that
        outlives a process.
    uniforms : Uniforms or None, default=None
        None draws from the operating system.
    responses : mapping of str to Response, optional
        The response functions that the user knows, by name.

    Examples
    --------
    >>> from tulle.local.user_side.label_randomisers import TwoPoint
    >>> from tulle.local.user_side.user import User
    >>> from tulle.local.user_side.answer_format import LabelAsk, Question, encode_question
    >>> user = User("anna", [0.2, 0.4], 1.5, max_epsilon=1.0)
    >>> question = encode_question(Question("a study", 1, 0.0, 1.0, LabelAsk(), TwoPoint(1.0, 2.0)))
    >>> answer = user.answer(question)
    >>> user.answer(question)
    Traceback (most recent call last):
        ...
    tulle.local.user_side.user.AlreadyAnsweredError: this user has answered before
    """

    def __init__(
        self,
        name: str,
        x: Any,
        y: float,
        *,
        max_epsilon: float,
        max_delta: float = 1e-6,
        record: Record | None = None,
        uniforms: Uniforms | None = None,
        responses: Mapping[str, Response] = KNOWN_TO_USERS,
    ) -> None:
        check_positive("max_epsilon", max_epsilon)
        if not (isinstance(max_delta, (int, float)) and 0 <= max_delta < 1):
            raise ValueError(f"max_delta must lie in [0, 1), got {max_delta!r}")
        self.name = check_name(name)
        if np.ndim(x) != 1:
            raise ValueError(f"a user has one row of features, not an array of {np.ndim(x)} dimensions")
        self._row = read_numbers(read_cells(x, "x")).reshape(1, -1)
        self._label = read_numbers(read_cells([y], "y"))
        if not (np.all(np.isfinite(self._row)) and np.all(np.isfinite(self._label))):
            raise ValueError("a user's row and label must be finite numbers")
        self._max_epsilon, self._max_delta = float(max_epsilon), float(max_delta)
        self._record = MemoryRecord() if record is None else record
        self._uniforms = SystemUniforms() if uniforms is None else uniforms
        self._responses = responses

    def answer(self, question: bytes) -> bytes:
        """The answer to a server's question, the first and the last time.

        Parameters
        ----------
        question : bytes
            As the server sent it.

        Returns
        -------
        bytes
            To be sent as it is. Where sending fails, send the same bytes again: a new answer would cost again.

        Raises
        ------
        WireError
            Where the question cannot be read.
        RefusedError
            Where it asks for more than this user allows, or for another user.
        AlreadyAnsweredError
            Where the user has answered before.
        """
        asked = decode_question(question)
        if not asked.is_for(self.name):
            raise RefusedError(f"round {asked.round} is for other users")
        check_question(asked, self._row.shape[1], self._max_epsilon, self._max_delta, self._responses)
        self._record.claim(asked)
        values = respond(asked, self._row, self._label, self._uniforms, self._responses)
        return encode_answer(Answer(asked.study, asked.round, self.name, values[0]))

    def __repr__(self) -> str:
        return f"User({self.name!r})"  # never the row


def check_question(
    question: Question, n_features: int, max_epsilon: float, max_delta: float, responses: Mapping[str, Response]
) -> None:
    """Raise `RefusedError` unless the question is one that users with such rows may answer. Looks at no row."""
    ask, channel = question.ask, question.channel
    if channel.epsilon > max_epsilon or channel.delta > max_delta:
        raise RefusedError(
            f"the question costs epsilon = {channel.epsilon:g}, delta = {channel.delta:g}; this user allows at most "
            f"{max_epsilon:g} and {max_delta:g}"
        )
    if isinstance(ask, GradientAsk):
        expected = n_features + ask.intercept
        if len(ask.weights) != expected or channel.width != expected:
            raise RefusedError(
                f"the question has {len(ask.weights)} weights and answers of {channel.width} numbers, but this user's "
                f"row has {expected}"
            )
        if ask.response not in responses:
            raise RefusedError(f"this user does not know the response {ask.response!r}")
    elif channel.width != 1:
        raise RefusedError(f"one number was requested, through a channel for {channel.width}")
    if isinstance(ask, ExceedsAsk) and not (isinstance(channel, RandomisedResponse) and channel.n_classes == 2):
        raise RefusedError("a yes-or-no question needs a randomised response with two classes")


def respond(
    question: Question, X: Any, y: FloatArray, uniforms: Uniforms, responses: Mapping[str, Response]
) -> IntArray:
    """The answers of the users whose rows these are. Each depends on its own row and its own uniforms alone.

    Parameters
    ----------
    question : Question
        Checked by `check_question`.
    X : array of shape (users, features)
        Not looked at where the question is about labels.
    y : array of shape (users,)
    uniforms : Uniforms
    responses : mapping of str to Response
    """
    channel = question.channel
    with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a second answer
        values = _values(question.ask, X, y, responses)
        return channel.answer(values, uniforms.draw(len(y), channel.n_uniforms))


def _values(
    ask: GradientAsk | LabelAsk | ExceedsAsk, X: Any, y: FloatArray, responses: Mapping[str, Response]
) -> FloatArray:
    """What the channel will randomise: one line for each user."""
    if isinstance(ask, LabelAsk):
        return y[:, None]
    if isinstance(ask, ExceedsAsk):
        sizes = np.abs(y) if ask.quantity == "label" else np.linalg.norm(_with_constant(X, ask.intercept), axis=1)
        return (sizes > ask.threshold).astype(np.float64)[:, None]
    rows = _with_constant(X, ask.intercept)
    return _slopes(responses[ask.response], rows @ ask.weights, y)[:, None] * rows


def _slopes(response: Response, margins: FloatArray, y: FloatArray) -> FloatArray:
    """What each row is multiplied by; 0 where a response of the user's own fails: silence would say something."""
    try:
        return response.gradient_slope(margins, y).astype(np.float64, casting="same_kind").reshape(len(y))
    except Exception:
        if len(y) == 1:
            return np.zeros(1)
        return np.concatenate([_slopes(response, margins[[i]], y[[i]]) for i in range(len(y))])


def _with_constant(X: FloatArray, intercept: bool) -> FloatArray:
    return np.hstack([X, np.ones((len(X), 1))]) if intercept else X
