"""What a server of masked sums writes down: the study, the last question, and every sum.

A server that is started again runs its method from the beginning on the sums that are there, and goes on with the
question that it had asked last, of the same set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tulle.federated.client_side.masked_study import MASKED_CLASSES
from tulle.federated.encoding import WireError, decode, encode
from tulle.federated.masked_terms import AskSum, MaskedTerms, Study
from tulle.files.durable_writes import locked, write_durably
from tulle.trusted.events import FloatArray


@dataclass(frozen=True, eq=False)
class _Asked:
    """The last question that was sent, and how many retries there were with it."""

    question: AskSum
    retries: int


@dataclass(frozen=True, eq=False)
class _Answered:
    number: int
    values: FloatArray


@dataclass(frozen=True)
class _Settings:
    """How the model is fitted, in words, and whether a client draws its noise from a seed."""

    words: str
    seeded: bool


class MaskedJournal:
    """The journal of one study.

    Parameters
    ----------
    folder : path
        Made where it is missing.
    terms : MaskedTerms
        Those of the study; a journal of other terms is an error.
    """

    def __init__(self, folder: Path, terms: MaskedTerms) -> None:
        self._folder, self._terms = folder, terms
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder.name} is a file, and the journal of masked sums is a folder; name another")
        folder.mkdir(parents=True, exist_ok=True)
        self._load()

    def _load(self) -> None:
        self.study: Study | None = self._read("study")
        if self.study is not None and self.study.terms != self._terms:
            raise ValueError(
                f"{self._folder.name} is the journal of another study, or of other terms; name another folder"
            )
        self._settings: _Settings | None = self._read("settings")
        asked = self._read("asked")
        self.retries: int = 0 if asked is None else asked.retries
        # Of a question that was answered only the retries count.
        self.pending: AskSum | None = None
        if asked is not None and self.read_answer(asked.question.number) is None:
            self.pending = asked.question

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the journal alone while a study runs, and read it again: another server may have written to it since.

        Two servers on one journal would ask two questions under one number, and use up the retries that one counts.

        Raises
        ------
        ValueError
            Where another server holds it.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._folder / "server.lock", seconds=0))
            except TimeoutError:
                raise ValueError(
                    f"another server runs the study of the journal {self._folder.name}; wait until it has ended"
                ) from None
            self._load()
            yield

    @property
    def seeded(self) -> bool:
        return self._settings is not None and self._settings.seeded

    def check_settings(self, words: str) -> None:
        """Raise if the model is not fitted as when the study began: the sums were asked for on the way of one method to
        one model, and mean nothing to another."""
        if self._settings is not None and self._settings.words != words:
            raise ValueError(
                f"{self._folder.name} is the journal of a study with another method or number of weights; give those "
                f"that it began with ({self._settings.words}), or name another folder"
            )

    def begin(self, study: Study, words: str) -> None:
        self._settings = _Settings(words, seeded=False)
        self._write("settings", self._settings)
        self._write("study", study)  # last: with it the study has begun

    def note_seeded(self, seeded: bool) -> None:
        assert self._settings is not None
        self._settings = replace(self._settings, seeded=seeded)
        self._write("settings", self._settings)

    def note(self, question: AskSum, retries: int) -> None:
        self._write("asked", _Asked(question, retries))

    def read_answer(self, number: int) -> FloatArray | None:
        answered = self._read(f"{number:06d}")
        return None if answered is None else np.array(answered.values)

    def write_answer(self, number: int, values: FloatArray) -> None:
        self._write(f"{number:06d}", _Answered(number, values))

    def _read(self, name: str) -> Any:
        place = self._folder / f"{name}.bin"
        if not place.exists():
            return None
        try:
            return decode(place.read_bytes(), (*MASKED_CLASSES, _Asked, _Answered, _Settings))
        except WireError as error:
            raise ValueError(f"{self._folder.name} is no journal of a masked study: {error}") from None

    def _write(self, name: str, value: Any) -> None:
        write_durably(self._folder / f"{name}.bin", encode(value))
