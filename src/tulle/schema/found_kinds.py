"""Kinds of columns whose values are found privately: categories and words that enough people have.

A schema says how many features there are at most; which values they stand for is learnt with noise, on the bill of the
model (`tulle.preprocessing.PrivateColumns`). Here are the values of each cell, by public rules.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar
from unicodedata import category

from tulle.schema.cell_rules import cells_of, map_distinct, read_text
from tulle.schema.column_kinds import ColumnKind
from tulle.schema.hashed_kinds import build_analyzer

# Longer values stand for nothing that a table of weights could print.
LONGEST_VALUE = 200

# Different words of one cell that are read: what one text takes of memory and time is bounded.
_MOST_WORDS = 10_000

# Found values are printed. Characters that move a cursor, hide text or cannot be written stand for nothing in them.
_UNPRINTABLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _clean(text: str) -> str:
    """One line of text that can be printed, of at most 200 characters."""
    line = "".join("\ufffd" if category(one) in _UNPRINTABLE else one for one in " ".join(text.split()))
    return line[:LONGEST_VALUE]


class FoundKind(ColumnKind):
    """A column with one feature for each value that is found, up to `most`."""

    most: int
    most_keys: ClassVar[int]  # of one cell

    def encode(self, column: Any) -> Any:
        raise TypeError(
            f"{self.word} of a column are to be found privately, which costs a part of the budget; make the schema the "
            "first step of tulle.PrivatePipeline"
        )

    @abstractmethod
    def keys(self, column: Any) -> list[Sequence[str]]:
        """The different values of each cell."""

    def names(self, column: str) -> list[str]:
        """The names of features for which no value was found."""
        return [f"{column}: not used {number}" for number in range(self.width)]


@dataclass(frozen=True)
class FoundCategories(FoundKind):
    """Categories that are found privately, and one feature for all others.

    Parameters
    ----------
    most : int, default=100
        From 1 to 100,000: how many categories at most get a feature of their own.
    """

    most: int = 100
    word: ClassVar[str] = "categories"
    most_keys: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if type(self.most) is not int or not 1 <= self.most <= 100_000:
            raise ValueError("most must be a whole number from 1 to 100,000")

    @property
    def width(self) -> int:
        return self.most + 1

    def keys(self, column: Any) -> list[Sequence[str]]:
        return map_distinct(column, self._key)

    def _key(self, cell: Any) -> tuple[str, ...]:
        text = read_text(cell)
        return () if text is None else (_clean(text),)

    def names(self, column: str) -> list[str]:
        return [*super().names(column)[:-1], f"{column}: any other"]


@dataclass(frozen=True)
class FoundWords(FoundKind):
    """Words of a text that are found privately; all words of a cell together have length 1.

    Parameters
    ----------
    most : int, default=4096
        From 1 to 1,000,000: how many words at most get a feature.
    ngrams : int, default=1
        From 1 to 5: also sequences of up to so many words.
    """

    most: int = 4096
    ngrams: int = 1
    word: ClassVar[str] = "text"
    # Of a longer text the first words count where words are looked for; more of them would need a higher threshold.
    most_keys: ClassVar[int] = 1000

    def __post_init__(self) -> None:
        if type(self.most) is not int or not 1 <= self.most <= 1_000_000:
            raise ValueError("most must be a whole number from 1 to 1,000,000")
        if type(self.ngrams) is not int or not 1 <= self.ngrams <= 5:
            raise ValueError("ngrams must be a whole number from 1 to 5")

    @property
    def width(self) -> int:
        return self.most

    def keys(self, column: Any) -> list[Sequence[str]]:
        words = build_analyzer(self.ngrams)
        texts = (read_text(cell) or "" for cell in cells_of(column))
        found = (dict.fromkeys(word for word in words(text) if len(word) <= LONGEST_VALUE) for text in texts)
        return [tuple(islice(one, _MOST_WORDS)) for one in found]
