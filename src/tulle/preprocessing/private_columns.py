"""Categories and words that are found in private rows: those that enough people have, released with noise.

    found     keys (values of a column) whose noisy mass is above a public threshold: thresholded_sets.py
    features  1 for a category; a word's weight mass^(-power), all words of a text scaled to length 1

The masses that were released to find words also weight them, so no second release is needed. Proof:
docs/proofs/thresholded_sets.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.extmath import row_norms

from tulle.preprocessing.keyed_rows import Key, KeyedRows, read_keys, spread_keys
from tulle.preprocessing.private_step import PrivateStep, RowBounds, scale_rows
from tulle.preprocessing.thresholded_sets import KeyMasses, ThresholdedGaussian
from tulle.schema.declared_schema import Schema
from tulle.schema.found_kinds import FoundCategories, FoundKind, FoundWords
from tulle.schema.schema_format import SchemaError
from tulle.trusted.accountants import MOST_ARITHMETIC
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Then
from tulle.trusted.plan import Release
from tulle.trusted.queries import Query

_NAME = "categories and words"

# Words of an ordinary text, for the expectation alone: each has so many different ones, of so many in all.
_WORDS_OF_A_TEXT, _WORDS = 100, 100_000


class FindsKeys(PrivateStep):
    """A first step that takes raw rows and finds the values of columns."""

    power: float

    @abstractmethod
    def _declared(self) -> Schema:
        """The schema that says in which columns values are to be found."""

    def read(self, X: Any) -> KeyedRows:
        """Raw rows, each by its own cells. At the first call the columns of the table are matched."""
        if isinstance(X, KeyedRows):
            self._match(X.columns)
            return X
        table = self._table(X)
        if not hasattr(self, "schema_"):
            self._match(list(clone(self._declared()).fit(table).feature_names_in_))
        return read_keys(self.schema_, table)

    def _match(self, columns: Sequence[str]) -> None:
        if not hasattr(self, "schema_"):
            schema = clone(self._declared()).restore(columns)
            if not any(isinstance(kind, FoundKind) for kind in schema.fitted_kinds().values()):
                raise SchemaError("no column of the table is one whose values are to be found; declare one as private")
            self.schema_ = schema

    def _table(self, X: Any) -> Any:
        return X

    def check(self, X: Any) -> None:
        """Raise where settings are out of range."""
        if not (isinstance(self.power, (int, float)) and 0 <= self.power <= 2):
            raise ValueError(f"{type(self).__name__}(power=...) must lie in [0, 2], got {self.power!r}")

    # --- learning ---

    @property
    def _found_kinds(self) -> dict[str, FoundKind]:
        kinds = self.schema_.fitted_kinds()
        return {column: kind for column, kind in kinds.items() if isinstance(kind, FoundKind)}

    @property
    def _most_keys(self) -> int:
        """1 / the square of the least that a key counts in a row (`read_keys`)."""
        kinds = self._found_kinds.values()
        return len(kinds) * max(kind.most_keys for kind in kinds)

    def default_share(self, public: PublicFacts) -> float:
        return 0.1

    def releases(self, square: float, public: PublicFacts) -> tuple[Release, ...]:
        noise = NoisePerSensitivity(1 / math.sqrt(square))
        return (Release(_NAME, self._mechanism(noise, public), 1),)

    def _mechanism(self, noise: NoisePerSensitivity, public: PublicFacts) -> ThresholdedGaussian:
        left = 1e-12
        if public.budget is not None:
            # The part of delta that inexactness may use, for answers within so much of a law of this epsilon.
            left = 0.999 * MOST_ARITHMETIC * public.budget.delta / (1 + math.exp(min(public.budget.epsilon, 300)))
        return ThresholdedGaussian(noise, left, self._most_keys, public.rows_per_unit)

    def prepare(self, X: Any) -> Any:
        """What each key of a row counts."""
        return X.keys

    def name_answers(self, ask: Ask, X: Any) -> Ask:
        """`ask`, which answers with the names of keys that were released, and with nothing about others."""
        names = X.names

        def name_released(noisy: FloatArray) -> dict[Key, float]:
            found = {names[place]: float(noisy[place]) for place in np.flatnonzero(noisy > 0)}
            return dict(sorted(found.items()))  # keys are numbered in the order of the rows

        def ask_for_names(name: str, query: Query, then: Then | None = None) -> Any:
            return ask(name, query, then=name_released)

        return ask_for_names

    def learn(self, ask: Ask, public: PublicFacts, mu: float) -> None:
        released: dict[Key, float] = ask(_NAME, KeyMasses(self._most_keys))
        self.found_: dict[str, tuple[str, ...]] = {}
        self.masses_: dict[str, FloatArray] = {}
        for column, kind in self._found_kinds.items():
            own = {value: mass for (of, value), mass in released.items() if of == column}
            largest = sorted(own, key=lambda value: (-own[value], value))[: kind.most]
            self.found_[column] = tuple(sorted(largest))
            self.masses_[column] = np.array([own[value] for value in self.found_[column]])

    def learnt_values(self) -> dict[str, Any]:
        """What `restore` makes a fitted step of: plain values."""
        return {
            "columns": self.schema_.needed(),
            "found": {column: list(values) for column, values in self.found_.items()},
            "masses": {column: masses.tolist() for column, masses in self.masses_.items()},
        }

    def restore(self, columns: Sequence[str], found: Mapping[str, Sequence[str]], masses: Mapping[str, Any]) -> Any:
        """The fitted step that found these values in a table of these columns, as `tulle.load` makes it."""
        self._match(columns)
        kinds = self._found_kinds
        numbers = {name: np.asarray(values, dtype=np.float64) for name, values in masses.items()}
        fits = set(found) == set(numbers) == set(kinds) and all(
            numbers[name].shape == (len(found[name]),)
            and len(found[name]) <= kind.most
            and all(isinstance(value, str) for value in found[name])
            and bool(np.all(np.isfinite(numbers[name]) & (numbers[name] > 0)))
            for name, kind in kinds.items()
        )
        if not fits:
            raise ValueError(f"a step of the kind {type(self).__name__} does not have what it learnt")
        self.found_ = {name: tuple(found[name]) for name in kinds}
        self.masses_ = numbers
        return self

    # --- expectations ---

    def least_mass(self, public: PublicFacts, mu: float) -> float:
        """The threshold, as a part of the rows: one key in a row of one key must be in so many of them."""
        mechanism = self._mechanism(NoisePerSensitivity(1 / mu), public)
        query = KeyMasses(self._most_keys)
        return mechanism.threshold(query.sensitivity(public), self._most_keys * public.n_rows)

    def expect(self, public: PublicFacts, mu: float) -> str | None:
        """What the step expects to find, from public quantities."""
        if math.isinf(mu):
            return None
        lines = []
        if share := self._least_share(FoundCategories, public, mu):
            most = math.floor(1 / share)
            lines.append(
                f"categories that at least {_count(share, public):,} of {public.n_rows:,} rows have: at most {most:,} "
                "in a column"
            )
        if share := self._least_share(FoundWords, public, mu):
            lines.append(
                f"words that at least {_count(share, public):,} of {public.n_rows:,} texts of {_WORDS_OF_A_TEXT} "
                f"words have: about {_words_above(share):,} where words follow Zipf's law"
            )
        return f"{type(self).__name__} expects to find " + " and ".join(lines) + "."

    def _least_share(self, kind: type[FoundKind], public: PublicFacts, mu: float) -> float:
        """The part of the rows that a value must be in to be found; 0 where no column is of this kind."""
        kinds = self._found_kinds.values()
        if not any(isinstance(one, kind) for one in kinds):
            return 0.0
        sharing = len(kinds) * (_WORDS_OF_A_TEXT if kind is FoundWords else 1)
        return self.least_mass(public, mu) * math.sqrt(sharing)

    def doubt(self, public: PublicFacts, mu: float) -> str | None:
        share = max(self._least_share(kind, public, mu) for kind in (FoundCategories, FoundWords))
        if share <= 0.25:
            return None
        return (
            f"{type(self).__name__}: of {public.n_rows:,} rows, a category or word must be in "
            f"{'more than all' if share > 1 else f'about {_count(share, public):,}'} to be found, so that hardly any "
            "is; declare categories in a tulle.Schema, use hashed columns, or use more rows or a larger epsilon"
        )

    # --- rows ---

    def transform(self, X: Any) -> Any:
        """Features of raw rows: declared ones, and those of the values that were found."""
        if not hasattr(self, "found_"):
            raise NotFittedError(f"this {type(self).__name__} has learnt nothing yet; fit the pipeline it stands in")
        rows = self.read(X)
        kinds = self.schema_.fitted_kinds()
        features: dict[Key, tuple[int, float]] = {}
        other: dict[str, int] = {}
        texts = []
        start = 0
        for column, kind in kinds.items():
            if isinstance(kind, FoundKind):
                weights = self._weights(column, kind)
                places = range(start, start + len(weights))
                features |= {
                    (column, value): (place, float(weight))
                    for value, place, weight in zip(self.found_[column], places, weights)
                }
                if isinstance(kind, FoundCategories):
                    other[column] = start + kind.most
                else:
                    texts.append((start, start + kind.width))
            start += kind.width
        encoded = spread_keys(rows, features, other)
        for first, last in texts:
            encoded = _scale_text(encoded, first, last)
        return sp.csr_array(rows.plain + encoded)

    def _weights(self, column: str, kind: FoundKind) -> FloatArray:
        masses = self.masses_[column]
        if isinstance(kind, FoundCategories) or not len(masses):
            return np.ones(len(masses))
        weights = masses**-self.power
        return np.asarray(weights / weights.max())

    def unused(self) -> npt.NDArray[np.bool_]:
        """Which features stand for no value that was found: they are 0 in every row."""
        marks = []
        for column, kind in self.schema_.fitted_kinds().items():
            free = np.zeros(kind.width, dtype=bool)
            if isinstance(kind, FoundKind):
                free[len(self.found_[column]) : kind.most] = True
            marks.append(free)
        return np.concatenate(marks)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """The names of features: values that were found, as "job = nurse" or "note: fever"; the rest is not used."""
        names: list[str] = []
        for column, kind in self.schema_.fitted_kinds().items():
            own = kind.names(column, self.schema_.words) if hasattr(kind, "bits") else kind.names(column)
            if isinstance(kind, FoundKind):
                found = [self._name(column, value, kind) for value in self.found_[column]]
                own = [*found, *own[len(found) :]]
            names += own
        return np.array(names, dtype=object)

    def _name(self, column: str, value: str, kind: FoundKind) -> str:
        return f"{column} = {value}" if isinstance(kind, FoundCategories) else f"{column}: {value}"

    def bounds(self, n_features: int) -> RowBounds:
        return RowBounds(self.schema_.row_l2 * (1 + 1e-9), 1.0 + 1e-9)

    def describe(self) -> str:
        return (
            f"{type(self).__name__} released the categories or words of columns whose noisy mass is above a public "
            "threshold; delta includes the chance that one is among them which a single person has."
        )


def _scale_text(encoded: sp.csr_array, first: int, last: int) -> sp.csr_array:
    """The entries of each row in the columns of one text scaled to length 1."""
    inside = (encoded.indices >= first) & (encoded.indices < last)
    own = encoded.copy()
    own.data = np.where(inside, encoded.data, 0.0)
    lengths = np.asarray(row_norms(own))
    scaled = scale_rows(own, np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1.0), 0.0))
    others = encoded.copy()
    others.data = np.where(inside, 0.0, encoded.data)
    total = sp.csr_array(scaled + others)
    total.eliminate_zeros()
    return total


def _count(share: float, public: PublicFacts) -> int:
    return math.ceil(share * public.n_rows)


def _words_above(share: float) -> int:
    """How many words are in more than a share of the texts, if the word of rank r is in min(1, c / r) of them."""
    c = 1.0
    for _ in range(100):  # c (1 + log(words / c)) different words in a text
        c = _WORDS_OF_A_TEXT / (1 + math.log(_WORDS / c))
    return 0 if share >= 1 else int(c / share)


class PrivateColumns(FindsKeys):
    """Find the categories and words that a schema declares as private.

    Parameters
    ----------
    schema : Schema
        With columns of ``{"categories": "private"}`` or ``{"text": "private"}``, and any others.
    power : float, default=0.5
        In [0, 2]: words are weighted by mass^(-power).

    Attributes
    ----------
    found_ : dict from str to tuple of str
        The values of each of these columns that were found.
    masses_ : dict from str to array
        Their masses, released with noise.

    Notes
    -----
    `tulle.PrivatePipeline` makes one of a `Schema` with such columns, which must be its first step.
    """

    def __init__(self, schema: Schema, power: float = 0.5) -> None:
        self.schema = schema
        self.power = power

    def _declared(self) -> Schema:
        return self.schema


class PrivateCategories(FindsKeys):
    """Find the categories of columns that enough people have, as `OneHotEncoder` finds all of them.

    Parameters
    ----------
    columns : sequence of str
        Columns of a table; others are not read. For tables with other columns, say "private" in a `tulle.Schema`.
    most : int, default=100
        From 1 to 100,000: how many categories of a column at most get a feature. One more is for all others.

    Attributes
    ----------
    found_ : dict from str to tuple of str
        The categories of each column that were found.
    masses_ : dict from str to array
        Their masses, released with noise: parts of the rows, divided by the root of the number of columns.

    Notes
    -----
    A first step of `tulle.PrivatePipeline`, which bills it.
    """

    power = 0.0

    def __init__(self, columns: Sequence[str], most: int = 100) -> None:
        self.columns = columns
        self.most = most

    def _declared(self) -> Schema:
        if isinstance(self.columns, str):
            raise ValueError(f"PrivateCategories(columns=...) must be a list of columns, as [{self.columns!r}]")
        found = {name: {"categories": "private", "most": self.most} for name in self.columns}
        return Schema({**found, "*": "ignore"})


class PrivateVocabulary(FindsKeys):
    """Find the words that enough people's texts have, as `CountVectorizer` finds all of them, and weight them.

    Parameters
    ----------
    most : int, default=4096
        From 1 to 1,000,000: how many words at most get a feature.
    ngrams : int, default=1
        From 1 to 5: also sequences of up to so many words.
    power : float, default=0.5
        In [0, 2]: words are weighted by mass^(-power); 0 leaves them equal.

    Attributes
    ----------
    found_ : dict from str to tuple of str
        The words, under the key "text".
    masses_ : dict from str to array
        Their masses, released with noise.

    Notes
    -----
    X is a sequence of texts. A first step of `tulle.PrivatePipeline`, which bills it. A text has length 1, so that long
    texts do not count more than short ones.
    """

    def __init__(self, most: int = 4096, ngrams: int = 1, power: float = 0.5) -> None:
        self.most = most
        self.ngrams = ngrams
        self.power = power

    def _declared(self) -> Schema:
        return Schema({"text": {"text": "private", "most": self.most, "ngrams": self.ngrams}})

    def _table(self, X: Any) -> Any:
        is_table = isinstance(X, Mapping) or any(hasattr(X, of) for of in ("columns", "column_names"))
        if isinstance(X, str) or getattr(X, "ndim", 1) != 1 or is_table:
            raise ValueError(
                "PrivateVocabulary takes a sequence of texts: pass one column, as in table['note']; for a table with "
                'other columns, declare {"text": "private"} in a tulle.Schema'
            )
        return {"text": X}

    def _name(self, column: str, value: str, kind: FoundKind) -> str:
        return value
