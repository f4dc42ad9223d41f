"""Which files each loader reads, whether they are there, and where to get them.

Nothing here opens a file: `available` and `find` only look whether the files exist.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

_RESULTS_DEPEND_ON = "nothing"

PACKED = (".bz2", ".gz", ".xz")
"""Compression suffixes: a name without one of these stands for the plain file and these three."""

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
_MEDMNIST = "https://medmnist.com or its Zenodo record (https://doi.org/10.5281/zenodo.10519652)"


@dataclass(frozen=True)
class _Source:
    """The files of one loader, what to tell someone who has none, and the folders inside the folder to look in."""

    files: tuple[str, ...]
    get: str
    folders: tuple[str, ...] = ("",)


_IMDB = _Source(
    ("imdb_train.svm.bz2", "imdb_test.svm.bz2"),
    "Create imdb_train.svm.bz2 and imdb_test.svm.bz2 from the Large Movie Review Dataset (Maas et al. 2011, "
    "https://ai.stanford.edu/~amaas/data/sentiment/): 25,000 reviews each in LIBSVM's format, counts of the 74,849 "
    "words that scikit-learn's CountVectorizer finds in the training reviews, the stars (1 to 10) as the label.",
)

_SOURCES: Mapping[str, _Source] = MappingProxyType(
    {
        "load_rcv1": _Source(
            ("rcv1_train.binary", "rcv1_test.binary"),
            f"Get rcv1_train.binary.bz2 and rcv1_test.binary.bz2 from LIBSVM's data page ({_LIBSVM}/binary.html).",
        ),
        "load_e2006": _Source(
            ("E2006.train", "E2006.test"),
            "Get E2006.train.bz2 and E2006.test.bz2 (E2006-tfidf) from LIBSVM's data page "
            f"({_LIBSVM}/regression.html).",
        ),
        "load_mnist": _Source(
            (
                "train-images-idx3-ubyte",
                "train-labels-idx1-ubyte",
                "t10k-images-idx3-ubyte",
                "t10k-labels-idx1-ubyte",
            ),
            "Get the four idx files from http://yann.lecun.com/exdb/mnist/ or a mirror of it "
            "(https://ossci-datasets.s3.amazonaws.com/mnist/).",
            ("", "mnist"),
        ),
        "load_medmnist": _Source(("pneumoniamnist.npz",), f"Get the set's .npz file from {_MEDMNIST}."),
        "load_pneumonia": _Source(("pneumoniamnist.npz",), f"Get pneumoniamnist.npz from {_MEDMNIST}."),
        "load_covertype": _Source(
            ("covtype.data.gz",), "Get covtype.data.gz from UCI (https://archive.ics.uci.edu/dataset/31/covertype)."
        ),
        "load_rcv1_subset": _Source(
            ("rcv1_subset.svm.bz2",),
            "Create rcv1_subset.svm.bz2 from the Mulan subsets 1 to 5 of RCV1-v2 (in the R package mldr.datasets): "
            "LIBSVM's format, 23,808 rows of 47,236 features of norm 1, labels +1 for CCAT and ECAT, -1 for GCAT and "
            "MCAT, documents of both left out.",
        ),
        "load_imdb_ratings": _IMDB,
        "load_imdb_sentiment": _IMDB,
        "load_a9a": _Source(
            ("a9a_train.svm.bz2", "a9a_test.svm.bz2"),
            f"Get a9a and a9a.t from LIBSVM's data page ({_LIBSVM}/binary.html) and compress them with bzip2 as "
            "a9a_train.svm.bz2 and a9a_test.svm.bz2.",
        ),
        "load_golub": _Source(
            ("golub.csv.gz",),
            "Create golub.csv.gz from the data set golub of the R package datamicroarray: a line of names, then for "
            "each of the "
            "72 rows ALL or AML and 7,129 values, with commas between them.",
        ),
        "load_w8a": _Source(
            ("w8a.svm.bz2",),
            f"Get w8a from LIBSVM's data page ({_LIBSVM}/binary.html) and compress it with bzip2 as w8a.svm.bz2.",
        ),
        "load_reuters_acq": _Source(
            ("reuters_acq_train.svm.bz2", "reuters_acq_test.svm.bz2"),
            "Get example 1 of SVM-light (https://www.cs.cornell.edu/people/tj/svm_light/) and compress train.dat and "
            "test.dat with bzip2 as reuters_acq_train.svm.bz2 and reuters_acq_test.svm.bz2.",
        ),
        "load_news20": _Source(
            ("news20_text_train.csv.bz2", "news20_text_test.csv.bz2"),
            "Create news20_text_train.csv.bz2 and news20_text_test.csv.bz2 from 20 newsgroups by date "
            "(https://qwone.com/~jason/20Newsgroups/): columns group and text, without the headers of posts.",
        ),
        "load_riboflavin": _Source(
            ("riboflavin.csv.gz",),
            "Create riboflavin.csv.gz from the data set riboflavin of the R package hdi: a line of names, then 71 rows "
            "of the log production rate and 4,088 expressions.",
        ),
    }
)

FILES: Mapping[str, tuple[str, ...]] = MappingProxyType({name: source.files for name, source in _SOURCES.items()})
"""The files that each loader of `tulle.datasets` reads; a name without a suffix of `PACKED` may be compressed."""


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder with real data: the one passed in, or the one that TULLE_DATA names."""
    name = folder or os.environ.get("TULLE_DATA")
    if not name:
        raise FileNotFoundError("set the folder of the data sets: set TULLE_DATA or pass folder=...")
    return Path(name)


def where_to_get(loader: str) -> str:
    """Where to get a loader's files, and what they have to be.

    Parameters
    ----------
    loader : str
        A loader of `tulle.datasets`, such as "load_rcv1".

    Returns
    -------
    str
        One sentence for a message.
    """
    return _source(loader).get


def available(loader: str, folder: str | os.PathLike[str] | None = None) -> bool:
    """Whether all files of a loader are there; False where no folder is named either.

    Parameters
    ----------
    loader : str
        A loader of `tulle.datasets`, such as "load_rcv1".
    folder : path, optional
        The folder with the data; else the one that the environment variable ``TULLE_DATA`` names.

    Returns
    -------
    bool
    """
    _source(loader)
    try:
        find(loader, folder)
    except FileNotFoundError:
        return False
    return True


def find(
    loader: str, folder: str | os.PathLike[str] | None = None, *, files: tuple[str, ...] | None = None
) -> tuple[Path, ...]:
    """Where a loader's files are.

    Parameters
    ----------
    loader : str
        A loader of `tulle.datasets`, such as "load_rcv1".
    folder : path, optional
        The folder with the data; else the one that the environment variable ``TULLE_DATA`` names.
    files : tuple of str, optional
        Other names than those in `FILES`.

    Returns
    -------
    tuple of pathlib.Path
        In the order of the names.

    Raises
    ------
    FileNotFoundError
        Where no folder is named, or a file is not in it; the message says where to get it.
    """
    source = _source(loader)
    names = source.files if files is None else files
    try:
        top = data_folder(folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{loader}: {error}. {source.get}") from None
    found = [_first(top, source.folders, name) for name in names]
    missing = [name for name, path in zip(names, found, strict=True) if path is None]
    if missing:
        packed = f" (plain or compressed: {', '.join(PACKED)})" if any(map(_packable, missing)) else ""
        looked_in = " or ".join(str(top / inner) for inner in source.folders)
        raise FileNotFoundError(f"{loader} finds no {' and no '.join(missing)}{packed} in {looked_in}. {source.get}")
    return tuple(path for path in found if path is not None)


def _source(loader: str) -> _Source:
    if loader not in _SOURCES:
        raise ValueError(f"{loader!r} is not a loader of tulle.datasets; choose one of {', '.join(sorted(_SOURCES))}")
    return _SOURCES[loader]


def _packable(name: str) -> bool:
    return not name.endswith((*PACKED, ".npz"))


def _first(top: Path, folders: tuple[str, ...], name: str) -> Path | None:
    endings = ("", *PACKED) if _packable(name) else ("",)
    candidates = (top / inner / f"{name}{ending}" for inner in folders for ending in endings)
    return next((path for path in candidates if path.is_file()), None)
