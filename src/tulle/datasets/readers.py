"""Readers for real files in a folder that the user names.

The folder is the one that the environment variable ``TULLE_DATA`` names, or the one passed in.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tulle.datasets.locations import find
from tulle.trusted.events import FloatArray


class Split(NamedTuple):
    """Training and test rows."""

    X_train: Any
    y_train: FloatArray
    X_test: Any
    y_test: FloatArray


def load_rcv1_subset(folder: str | os.PathLike[str] | None = None) -> Split:
    """The RCV1 subset (23,808 × 47,236, labels ±1) in its fixed split of 20,242 training and 3,566 test rows.

    Read from ``rcv1_subset.svm.bz2`` in LIBSVM format. Other documents than LIBSVM's rcv1_train.binary.
    """
    (path,) = find("load_rcv1_subset", folder)
    return fixed_split(*_read_svmlight(path, 47_236), 20_242)


def load_imdb_ratings(folder: str | os.PathLike[str] | None = None) -> Split:
    """Film reviews (25,000 + 25,000 × 74,849) and their ratings, (stars - 5.5) / 4.5 in [-1, 1].

    Word counts c become 1 + log c, and rows are normalised: both row by row, looking at no other row. Read from
    ``imdb_train.svm.bz2`` and ``imdb_test.svm.bz2`` (Maas et al. 2011).
    """
    parts: list[Any] = []
    for path in find("load_imdb_ratings", folder):
        X, y = _read_svmlight(path, 74_849)
        X.data = 1.0 + np.log(X.data)
        norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        values = X.data / np.repeat(np.maximum(norms, 1e-300), np.diff(X.indptr))
        # Indices of 32 bits: liblinear takes no others.
        places = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        parts += [sp.csr_array((values, *places), shape=X.shape), (y - 5.5) / 4.5]
    return Split(*parts)


def load_imdb_sentiment(folder: str | os.PathLike[str] | None = None) -> Split:
    """The rows of `load_imdb_ratings`, labelled 1 where the rating is above the middle and 0 below."""
    data = load_imdb_ratings(folder)
    return data._replace(y_train=(data.y_train > 0).astype(float), y_test=(data.y_test > 0).astype(float))


def load_a9a(folder: str | os.PathLike[str] | None = None) -> Split:
    """Adult census (32,561 + 16,281 × 123 indicators, labels ±1); ``a9a_train.svm.bz2`` and ``a9a_test.svm.bz2``."""
    train, test = (_read_svmlight(path, 123) for path in find("load_a9a", folder))
    return Split(*train, *test)


def load_pneumonia(
    folder: str | os.PathLike[str] | None = None, *, validation: bool = False, centred: bool = False
) -> Split:
    """Chest X-rays of 28 × 28 pixels in [0, 1], labels 0 and 1: training and test part of ``pneumoniamnist.npz``.

    With `validation` the training part holds the validation part too: 5,232 images instead of 4,708. With `centred`
    pixels lie in [-1, 1]: their range is public, and its middle a better origin.
    """
    parts = {"train": ["train", "val"] if validation else ["train"], "test": ["test"]}
    (path,) = find("load_pneumonia", folder)
    with np.load(path) as file:
        images, labels = (
            [np.concatenate([file[f"{name}_{what}"] for name in names]) for names in parts.values()]
            for what in ("images", "labels")
        )
    rows = [part.reshape(len(part), -1) / 255.0 for part in images]
    rows = [2 * part - 1 for part in rows] if centred else rows
    return Split(rows[0], labels[0].ravel().astype(float), rows[1], labels[1].ravel().astype(float))


# Round numbers above the largest value of each of Covertype's ten measurements, in UCI's order of columns.
_COVERTYPE_RANGES = np.array([4000, 360, 90, 1500, 800, 7500, 255, 255, 255, 7500])


def load_covertype(folder: str | os.PathLike[str] | None = None, *, elevation: bool = False) -> Split:
    """Covertype (464,809 + 116,203 × 54): class 2 (1) against the rest (0), in a fixed random split.

    The ten measurements are divided by public round numbers, so that all entries lie in about [-1, 1]. Read from
    ``covtype.data.gz`` in UCI's layout. With `elevation` the target is the first measurement, (metres - 2900) / 1100 in
    about [-1, 1], and the other 53 columns are the features.
    """
    (path,) = find("load_covertype", folder)
    with gzip.open(path) as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    X, y = table[:, :54].astype(np.float64), (table[:, 54] == 2).astype(float)
    X[:, :10] /= _COVERTYPE_RANGES
    if elevation:
        X, y = X[:, 1:], (X[:, 0] * _COVERTYPE_RANGES[0] - 2900) / 1100
    return fixed_split(X, y, int(0.8 * len(y)))


def load_golub(folder: str | os.PathLike[str] | None = None) -> Split:
    """Leukaemia gene expression (48 + 24 × 7,129), ALL (0) against AML (1), in a fixed random split.

    Values become sign(v) log(1 + |v|), entry by entry. Read from ``golub.csv.gz``.
    """
    (path,) = find("load_golub", folder)
    with gzip.open(path, "rt") as file:
        next(file)
        lines = [line.rstrip().split(",") for line in file]
    values = np.array([line[1:] for line in lines], dtype=float)
    X, y = np.sign(values) * np.log1p(np.abs(values)), np.array([line[0] == "AML" for line in lines], dtype=float)
    return fixed_split(X, y, 48)


def load_w8a(folder: str | os.PathLike[str] | None = None) -> Split:
    """Web pages (40,000 + 9,749 × 300 binary features, labels ±1, 3 % positive) in a fixed random split.

    Read from ``w8a.svm.bz2`` in LIBSVM format.
    """
    (path,) = find("load_w8a", folder)
    return fixed_split(*_read_svmlight(path, 300), 40_000)


def load_reuters_acq(folder: str | os.PathLike[str] | None = None) -> Split:
    """Reuters articles on acquisitions against others (2,000 + 600 × 9,947, unit rows, labels ±1).

    Read from ``reuters_acq_train.svm.bz2`` and ``reuters_acq_test.svm.bz2`` in LIBSVM format.
    """
    train, test = (_read_svmlight(path, 9_947) for path in find("load_reuters_acq", folder))
    return Split(*train, *test)


def load_news20(folder: str | os.PathLike[str] | None = None, *, n_features: int = 2**15, positive: str = "") -> Split:
    """20 newsgroups by date (11,314 + 7,532 posts): which words a post has, hashed, in unit rows; 20 group names.

    The hash of a word is public, and each row is computed from its own post alone. Read from
    ``news20_text_train.csv.bz2`` and ``news20_text_test.csv.bz2`` with the columns `group` and `text`. With `positive`
    labels are 1 for the groups whose names begin with it ("comp.") and -1 for the others.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    csv.field_size_limit(sys.maxsize)  # single posts are longer than the csv module allows
    hashing = HashingVectorizer(n_features=n_features, binary=True, norm="l2", alternate_sign=False)
    parts: list[Any] = []
    for path in find("load_news20", folder):
        with bz2.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        parts += [
            sp.csr_array(hashing.transform(row["text"] for row in rows)),
            np.array([row["group"] for row in rows]),
        ]
    if positive:
        parts[1::2] = [np.where(np.char.startswith(groups, positive), 1.0, -1.0) for groups in parts[1::2]]
    return Split(*parts)


def load_riboflavin(folder: str | os.PathLike[str] | None = None) -> Split:
    """Gene expression and the log production rate of riboflavin (50 + 21 × 4,088) in a fixed random split.

    Expressions lie about 7 and rates about -7: both are moved to 0 by round numbers, and rates divided by 3. Read from
    ``riboflavin.csv.gz``, whose first column is the rate.
    """
    (path,) = find("load_riboflavin", folder)
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", skiprows=1)
    return fixed_split(table[:, 1:] - 7.0, (table[:, 0] + 7.0) / 3.0, 50)


def fixed_split(X: Any, y: FloatArray, train_rows: int) -> Split:
    """A random split that is the same in every call."""
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:train_rows], order[train_rows:]
    return Split(X[train], y[train], X[test], y[test])


def _read_svmlight(path: Path, n_features: int) -> tuple[Any, FloatArray]:
    from sklearn.datasets import load_svmlight_file

    with bz2.open(path) as file:
        X, y = load_svmlight_file(file, n_features=n_features)
    return X, y
