"""Kinds of columns whose values are not known: words of texts and categories, hashed into a fixed number of features.

A public hash decides the feature of a value, so nothing depends on which values occur.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tulle.schema.cell_rules import cells_of, map_distinct, read_text
from tulle.schema.column_kinds import ColumnKind


@dataclass(frozen=True)
class Text(ColumnKind):
    """Words of a text, hashed into 2^bits features; all words of a cell together have length 1.

    Parameters
    ----------
    bits : int, default=14
        From 4 to 22.
    ngrams : int, default=1
        From 1 to 5: also sequences of up to so many words.
    counts : bool, default=False
        Whether words that occur more often count more, as 1 + log(count); else each word counts once.
    """

    bits: int = 14
    ngrams: int = 1
    counts: bool = False
    word: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 4 <= self.bits <= 22:
            raise ValueError("text must be the number of bits of the hash, from 4 to 22; 14 gives 16,384 features")
        if type(self.ngrams) is not int or not 1 <= self.ngrams <= 5:
            raise ValueError("ngrams must be a whole number from 1 to 5")

    @property
    def width(self) -> int:
        return 2**self.bits

    def encode(self, column: Any) -> Any:
        texts = [read_text(cell) or "" for cell in cells_of(column)]
        if not texts:
            return sp.csr_array((0, self.width))
        found = sp.csr_array(_hasher(self.ngrams, self.width, not self.counts).transform(texts))
        if self.counts:
            found.data = 1 + np.log(found.data)
        lengths = np.sqrt(np.asarray(found.multiply(found).sum(axis=1)).ravel())
        found.data /= np.repeat(np.maximum(lengths, 1.0), np.diff(found.indptr))
        return found

    def names(self, column: str, words: Sequence[str] = ()) -> list[str]:
        """ "bucket 5121", or the public words of a list that are hashed there."""
        return _bucket_names(self.encode(list(words)), column, words)


def _hasher(ngrams: int, width: int, binary: bool) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(
        n_features=width,
        ngram_range=(1, ngrams),
        alternate_sign=False,
        binary=binary,
        norm=None,
        decode_error="replace",
    )


def build_analyzer(ngrams: int) -> Callable[[str], list[str]]:
    """The words of a text, and sequences of up to `ngrams` of them, as kinds of text have them."""
    return _hasher(ngrams, 16, True).build_analyzer()


def _bucket_names(hashed: Any, column: str, words: Sequence[str]) -> list[str]:
    """The names of buckets, given where public words are hashed to: CSR of shape (words, buckets)."""
    found: dict[int, list[str]] = {}
    for number, word in enumerate(words):
        for bucket in hashed.indices[hashed.indptr[number] : hashed.indptr[number + 1]]:
            found.setdefault(int(bucket), []).append(word)
    return [
        f"{column}: {' / '.join(found[bucket][:3])}" if bucket in found else f"{column}: bucket {bucket}"
        for bucket in range(hashed.shape[1])
    ]


@dataclass(frozen=True)
class Hashed(ColumnKind):
    """Categories that are not known: 2^bits features, 1 in the one that the whole cell is hashed to.

    Parameters
    ----------
    bits : int
        From 4 to 22. Two categories share a feature by chance; with k categories, about k² / 2^(bits + 1) pairs do.
    indicator : bool, default=False
        Whether there is one more feature, 1 where a cell holds nothing.
    """

    bits: int
    indicator: bool = False
    word: ClassVar[str] = "hashed"

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 4 <= self.bits <= 22:
            raise ValueError("hashed must be the number of bits of the hash, from 4 to 22; 10 gives 1,024 features")

    @property
    def width(self) -> int:
        return 2**self.bits + self.indicator

    def _bucket(self, cell: Any) -> int:
        from sklearn.utils import murmurhash3_32

        text = read_text(cell)
        if text is None:
            return 2**self.bits if self.indicator else -1
        return int(murmurhash3_32(text.encode("utf-8", "replace"), positive=True)) % 2**self.bits

    def encode(self, column: Any) -> Any:
        buckets = np.array(map_distinct(column, self._bucket), dtype=np.intp)
        chosen = np.flatnonzero(buckets >= 0)
        return sp.csr_array((np.ones(len(chosen)), (chosen, buckets[chosen])), shape=(len(buckets), self.width))

    def names(self, column: str, words: Sequence[str] = ()) -> list[str]:
        """ "bucket 17", or the public words of a list that are hashed there."""
        names = _bucket_names(self.encode(list(words)), column, words)
        return [*names[:-1], f"{column} is missing"] if self.indicator else names
