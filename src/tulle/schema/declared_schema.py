"""`tulle.Schema`: public knowledge about the columns of a table, and rows encoded by it alone."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin

from tulle.schema.cell_rules import cells_of, numbers_of, read_text
from tulle.schema.column_kinds import ColumnKind, Ignore
from tulle.schema.found_kinds import FoundKind
from tulle.schema.hashed_kinds import Hashed, Text
from tulle.schema.raw_rows import column_of, count_rows, header_of
from tulle.schema.schema_format import (
    Person,
    SchemaError,
    Target,
    describe_kind,
    parse_columns,
    parse_person,
    parse_target,
    read_toml,
    write_toml,
)

Kinds = dict[str, ColumnKind]
T = TypeVar("T")


class Schema(TransformerMixin, BaseEstimator):
    """A declared schema: raw tables in, sparse rows of bounded length out.

    It learns nothing from rows: a row is encoded by its own cells and by these settings, at fit and at predict alike.
    Cells that hold nothing a column knows (blanks, words among numbers, unknown categories) get the column's `missing`
    value, without a word: a refusal or a count would be an answer about private rows.

    Parameters
    ----------
    columns : dict from str to dict
        The declaration of each column, by its name, or by a pattern such as "answer_*". The first that fits counts,
        names before patterns. One of

        - ``{"range": [low, high]}``: numbers, clipped to the range and mapped to [-1, 1]
        - ``{"number": bound}``: sparse numbers, clipped to [-bound, bound] and divided by it; 0 stays 0
        - ``{"categories": [...], "other": False}``: one feature for each
        - ``{"boolean": True}``, or ``{"boolean": ["yes", "no"]}``
        - ``{"date": ["2015-01-01", "2026-12-31"], "unit": "day", "format": None}``
        - ``{"text": 14, "ngrams": 1, "counts": False}``: words hashed into 2^14 features
        - ``{"categories": "private", "most": 100}`` and ``{"text": "private", "most": 4096}``: categories or words that
          are found with noise, at a part of the budget; only as the first step of `tulle.PrivatePipeline`
        - ``{"hashed": 10}``: categories that are not known, each hashed into one of 2^10 features
        - ``"ignore"``

        and ``missing`` (what a cell without a value counts as; default: the middle of a range, 0 otherwise) and
        ``indicator`` (whether a further feature says that it has none).
    target : dict or None, default=None
        ``{"column": name, "classes": [...]}`` or ``{"column": name, "range": [low, high]}``. Classes of several values
        each: ``{"sport": ["hockey", "baseball"], "other": [...]}``.
    person : str, dict or None, default=None
        The column with people's ids, or ``{"column": name, "rows": 3}``: how many rows of one person are used.
    words : sequence of str, default=()
        Public words that name the features of text and of hashed categories. They must not come from the rows.

    Attributes
    ----------
    feature_names_in_ : array of str
        The columns that are read, target and person not included.
    n_features_in_ : int

    Examples
    --------
    >>> from tulle import Schema
    >>> schema = Schema({"age": {"range": [20, 100]}, "job": {"categories": ["clerk", "nurse"]}})
    >>> rows = {"age": ["60", "20", "unknown"], "job": ["nurse", "pilot", ""]}
    >>> schema.fit_transform(rows).toarray()
    array([[ 0.,  0.,  1.],
           [-1.,  0.,  0.],
           [ 0.,  0.,  0.]])
    >>> schema.get_feature_names_out().tolist()
    ['age', 'job = clerk', 'job = nurse']
    """

    def __init__(self, columns: Any, *, target: Any = None, person: Any = None, words: Sequence[str] = ()) -> None:
        self.columns = columns
        self.target = target
        self.person = person
        self.words = words
        self._parse()

    def _parse(self) -> tuple[Kinds, Target | None, Person | None]:
        """The settings, checked. Raises `SchemaError` with everything that is wrong."""
        wrong: list[str] = []

        def parse(part: Callable[[Any], T], given: Any) -> T | None:
            try:
                return part(given)
            except SchemaError as error:
                wrong.append(str(error))
                return None

        kinds = parse(parse_columns, self.columns) or {}
        target, person = parse(parse_target, self.target), parse(parse_person, self.person)
        roles = [one.column for one in (target, person) if one is not None]
        if len(set(roles)) < len(roles):
            wrong.append(f"the column {roles[0]!r} is both target and person")
        for role in dict.fromkeys(roles):
            if role in kinds and not isinstance(kinds[role], Ignore):
                wrong.append(f"{role!r} is a feature and the target or person; remove one")
        if not isinstance(self.words, (list, tuple)) or not all(isinstance(word, str) for word in self.words):
            wrong.append("words must be a list of words")
        if wrong:
            raise SchemaError("; ".join(wrong))
        return kinds, target, person

    # --- files ---

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Schema:
        """The schema in a TOML file, see docs/schema.md."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise SchemaError(f"{os.fspath(path)} is not UTF-8 text") from None
        try:
            found = read_toml(text)
            words = found.get("words", [])
            if isinstance(words, str):
                words = read_words(Path(path).parent / words)
            return cls(found["columns"], target=found.get("target"), person=found.get("person"), words=words)
        except SchemaError as error:
            raise SchemaError(f"{os.fspath(path)}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values: the parameters of an equal schema."""
        kinds, target, person = self._parse()
        found: dict[str, Any] = {"columns": {name: describe_kind(kind) for name, kind in kinds.items()}}
        if target is not None:
            found["target"] = target.describe()
        if person is not None:
            found["person"] = {"column": person.column, "rows": person.rows}
        return found | ({"words": list(self.words)} if len(self.words) else {})

    def to_toml(self) -> str:
        """The same as the text of a file."""
        return write_toml(**self.to_dict())

    def describe(self) -> list[str]:
        """Lines for the report of a fit to rows that it encoded."""
        count = f"{self.n_features_in_:,} column{'s' * (self.n_features_in_ != 1)}"
        lines = [
            f"A declared schema of {count} encoded the rows, each by its own cells. Its ranges, categories and dates "
            "must be known without looking at the rows."
        ]
        if self.person_column is not None:
            lines.append("A row without a person's id counted as nothing.")
        return lines

    # --- public knowledge about columns ---

    @property
    def target_column(self) -> str | None:
        """The column to predict."""
        target = self._parse()[1]
        return None if target is None else target.column

    @property
    def ignored_columns(self) -> list[str]:
        """The columns, or patterns of columns, that are left out."""
        return [name for name, kind in self._parse()[0].items() if isinstance(kind, Ignore)]

    @property
    def person_column(self) -> str | None:
        """The column with people's ids."""
        person = self._parse()[2]
        return None if person is None else person.column

    @property
    def classes(self) -> list[Any] | None:
        """The declared classes; None for a regression."""
        target = self._parse()[1]
        return None if target is None or target.classes is None else list(dict.fromkeys(target.class_of_each()))

    @property
    def label_bound(self) -> float | None:
        """The largest magnitude of the target of a regression."""
        target = self._parse()[1]
        return None if target is None or target.bounds is None else max(-target.bounds.low, target.bounds.high)

    @property
    def rows_per_person(self) -> int:
        person = self._parse()[2]
        return 1 if person is None else person.rows

    def choose(self, header: Sequence[str], *, labelled: bool = True) -> dict[str, ColumnKind]:
        """The columns of a table that are features, in its order, and their kinds.

        Raises `SchemaError` with everything that the header and the schema show to be wrong, in one message.

        Parameters
        ----------
        header : sequence of str
            The names of all columns.
        labelled : bool, default=True
            Whether the target and the person must be there.
        """
        kinds, target, person = self._parse()
        roles = [one.column for one in (target, person) if one is not None]
        patterns = {name: _pattern(name) for name in kinds if "*" in name}
        there = Counter(header)
        repeated = [name for name, count in there.items() if count > 1]
        known = {*there, *patterns, *roles}
        missing = [name for name in kinds if name not in known]
        missing += [name for name in roles if labelled and name not in there]
        chosen: dict[str, ColumnKind] = {}
        undeclared = []
        for name in header:
            if name in roles:
                continue
            rule = (
                name if name in kinds else next((one for one, fits in patterns.items() if fits.fullmatch(name)), None)
            )
            if rule is None:
                undeclared.append(name)
            elif not isinstance(kinds[rule], Ignore):
                chosen[name] = kinds[rule]
        found = [f"columns of the schema that are not in the table: {_some(missing)}"] if missing else []
        # Where declared columns are missing, the first line of a file may be somebody's row: it is not quoted then.
        name_all = (lambda names: _places(names, header)) if missing else _some
        for names, what in (
            (repeated, "columns that occur more than once"),
            (undeclared, 'columns that the schema does not declare (declare them, or add "*" = "ignore")'),
        ):
            found += [f"{what}: {name_all(names)}"] if names else []
        if missing and not chosen:
            found.append("if the first line of the file is a row, pass --no-header")
        if found or not chosen:
            raise SchemaError("; ".join(found) or "no column is left for features")
        return chosen

    def needed(self) -> list[str]:
        """The columns that `transform` reads, of a fitted schema."""
        return [str(name) for name in self.feature_names_in_]

    def find(self, header: Sequence[str]) -> list[str]:
        """The same, each of which must be in the header of a table, once."""
        there = Counter(header)
        wrong = [
            ([name for name in self.needed() if there[name] > 1], "columns that occur more than once"),
            ([name for name in self.needed() if not there[name]], "columns of the schema that are not in the table"),
        ]
        if found := [f"{what}: {_some(names)}" for names, what in wrong if names]:
            raise SchemaError("; ".join(found))
        return self.needed()

    # --- scikit-learn ---

    def fit(self, X: Any, y: Any = None) -> Schema:
        """Match the schema with the names of a table's columns. Looks at no cell.

        Parameters
        ----------
        X : DataFrame of pandas or polars, Arrow table, or dict of columns
        y : ignored
        """
        return self.restore(list(self.choose(header_of(X), labelled=False)))

    def restore(self, columns: Sequence[str]) -> Schema:
        """Match the schema with the columns that were features of another table."""
        self.feature_names_in_ = np.array([*columns, None], dtype=object)[:-1]
        self.n_features_in_ = len(columns)
        self.fitted_kinds()  # raises where the schema does not declare them
        return self

    def fitted_kinds(self) -> Kinds:
        """The columns that are features and their kinds, of a fitted schema."""
        if not hasattr(self, "feature_names_in_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("this Schema is not fitted yet: call fit with a table, of which it reads the header")
        return self.choose([*self.feature_names_in_, *self._exact_names()], labelled=False)

    def _exact_names(self) -> list[str]:
        """Columns that the schema names and that are no features: ignored ones, target, person."""
        _, target, person = self._parse()
        named = {one.column for one in (target, person) if one is not None}
        named |= {name for name in self.ignored_columns if "*" not in name}
        return sorted(named - set(self.feature_names_in_))

    def transform(self, X: Any) -> sp.csr_array:
        """Encode rows, each by its own cells.

        Parameters
        ----------
        X : DataFrame of pandas or polars, Arrow table, or dict of columns
            With the columns that were there at `fit`, in any order; others are not read.

        Returns
        -------
        csr_array of shape (n, features)
            No row is longer than `row_l2`, no entry larger than 1 in magnitude.
        """
        kinds = self.fitted_kinds()
        self.find(header_of(X))
        n_rows = count_rows(X, list(kinds))
        blocks = [sp.csr_array(kind.encode(column_of(X, name))) for name, kind in kinds.items()]
        found = sp.csr_array(sp.hstack(blocks, format="csr", dtype=np.float64))
        assert found.shape[0] == n_rows
        found.eliminate_zeros()
        return found

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """The names of the features; of text "note: bucket 5121", or public words that are hashed there."""
        names: list[str] = []
        for column, kind in self.fitted_kinds().items():
            names += kind.names(column, self.words) if isinstance(kind, (Text, Hashed)) else kind.names(column)
        return np.array(names, dtype=object)

    def get_columns_of_features(self) -> list[str]:
        """The column that each feature is made from."""
        return [column for column, kind in self.fitted_kinds().items() for _ in range(kind.width)]

    @property
    def is_private(self) -> bool:
        """Whether categories or words of a column are to be found from private rows."""
        return any(isinstance(kind, FoundKind) for kind in self._parse()[0].values())

    @property
    def is_text(self) -> bool:
        """Whether all columns are text, of a fitted schema."""
        return all(isinstance(kind, Text) for kind in self.fitted_kinds().values())

    @property
    def row_l2(self) -> float:
        """The largest length of an encoded row, of a fitted schema."""
        return math.sqrt(sum(kind.largest_square for kind in self.fitted_kinds().values()))

    def units(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(middles, halves): feature = (value - middle) / half, in the unit of the user's column; (0, 1) for features
        that have no unit, as categories and words."""
        pairs = [
            pair
            for kind in self.fitted_kinds().values()
            for pair in (kind.unit(), *[(0.0, 1.0)] * kind.width)[: kind.width]
        ]
        middles, halves = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        return middles, halves

    # --- targets and people ---

    def labels(self, X: Any) -> npt.NDArray[Any]:
        """The target of each row: a declared class, or a number clipped to its range.

        A row without a target, or without a person's id where the schema declares one, counts as nothing: its label is
        None, or masked where labels are numbers. The models of tulle take both.
        """
        _, target, person = self._parse()
        if target is None:
            raise SchemaError("the schema declares no target")
        column = column_of(X, target.column)
        nobody = np.zeros(len(column), dtype=bool)
        if person is not None:
            nobody = np.array([one is None for one in self.ids(X)], dtype=bool)
        if target.bounds is not None:
            numbers = np.clip(numbers_of(column), target.bounds.low, target.bounds.high)
            nothing = np.isnan(numbers) | nobody
            return np.ma.MaskedArray(np.where(nothing, target.bounds.unit()[0], numbers), mask=nothing)
        assert target.classes is not None
        places = np.where(nobody, -2, target.classes.places(column))
        classes = np.array([*target.class_of_each(), None], dtype=object)
        return classes[np.where(places < 0, len(classes) - 1, places)]

    def ids(self, X: Any) -> npt.NDArray[Any]:
        """The id of each row's person as text, None for a cell without one; all None where no person is declared."""
        person = self._parse()[2]
        if person is None:
            return np.full(count_rows(X, self.needed()), None, dtype=object)
        return self.spell_ids(column_of(X, person.column))

    @staticmethod
    def spell_ids(column: Any) -> npt.NDArray[Any]:
        """The ids of a column as text."""
        cells = [read_text(cell) for cell in cells_of(column)]
        found = np.empty(len(cells), dtype=object)
        found[:] = cells
        return found

    def people(self, X: Any) -> npt.NDArray[Any] | None:
        """The person of each row, for `fit(..., groups=)`; None where the schema declares none.

        Pass the labels of `labels` with it: there a row without an id counts as nothing. With other labels each such
        row is a person of its own, and somebody with several of them is not protected as one person.
        """
        return None if self.person_column is None else self.people_of(self.ids(X))

    @staticmethod
    def people_of(ids: npt.NDArray[Any], first: int = 0) -> npt.NDArray[Any]:
        """The person of each row, by ids of all rows, or of those from row `first` on. A row without an id gets one of
        its own, and counts as nothing (`labels`)."""
        people = np.empty(len(ids), dtype=object)
        people[:] = [f"row {row}" if one is None else f"id {one}" for row, one in enumerate(ids, first)]
        return people


def read_words(path: Path) -> list[str]:
    """The public words of a file, one a line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        raise SchemaError(f"words: {path} cannot be read as UTF-8 text, one word a line") from None
    return [line.strip() for line in lines if line.strip()]


def _pattern(name: str) -> re.Pattern[str]:
    """What a name with stars fits: a star is any text."""
    return re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)


def _places(names: Sequence[str], header: Sequence[str], most: int = 20) -> str:
    """Columns by their places, counted from 1."""
    wanted = set(names)
    places = [place for place, name in enumerate(header, 1) if name in wanted]
    text = f"number {', '.join(map(str, places[:most]))}"
    return text if len(places) <= most else f"{text} and {len(places) - most:,} more"


def _some(names: Sequence[str], most: int = 20) -> str:
    text = ", ".join(repr(name) for name in names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most:,} more"
