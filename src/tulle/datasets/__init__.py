"""Data: synthetic twins of the papers' sets, and readers for real files in a folder that the user names.

Real data is looked for in the folder named by the environment variable ``TULLE_DATA``, or in the one passed in.
`available` says whether a loader's files are there, and `where_to_get` where to get them.
"""

from __future__ import annotations

from tulle.datasets.drawn import (
    LinearProblem,
    SparseProblem,
    TextProblem,
    dp_ight_figure1,
    dpsl_kt_figure2,
    lasso_domain,
    rcv1_like,
)
from tulle.datasets.files import (
    Split,
    load_a9a,
    load_covertype,
    load_golub,
    load_imdb_ratings,
    load_imdb_sentiment,
    load_pneumonia,
    load_rcv1_subset,
)
from tulle.datasets.standard import load_e2006, load_medmnist, load_mnist, load_rcv1
from tulle.datasets.where import available, data_folder, where_to_get

__all__ = [
    "LinearProblem",
    "SparseProblem",
    "Split",
    "TextProblem",
    "available",
    "data_folder",
    "dp_ight_figure1",
    "dpsl_kt_figure2",
    "lasso_domain",
    "load_a9a",
    "load_covertype",
    "load_e2006",
    "load_golub",
    "load_imdb_ratings",
    "load_imdb_sentiment",
    "load_medmnist",
    "load_mnist",
    "load_pneumonia",
    "load_rcv1",
    "load_rcv1_subset",
    "rcv1_like",
    "where_to_get",
]
