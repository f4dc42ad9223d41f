"""Data: synthetic twins of the papers' sets, and readers for real files in a folder that the user names.

Real data is looked for in the folder named by the environment variable ``TULLE_DATA``, or in the one passed in.
`available` says whether a loader's files are there, and `where_to_get` where to get them.
"""

from __future__ import annotations

from tulle.datasets.locations import available, data_folder, where_to_get
from tulle.datasets.packaged import load_packaged
from tulle.datasets.readers import (
    Split,
    load_a9a,
    load_covertype,
    load_golub,
    load_imdb_ratings,
    load_imdb_sentiment,
    load_news20,
    load_pneumonia,
    load_rcv1_subset,
    load_reuters_acq,
    load_riboflavin,
    load_w8a,
)
from tulle.datasets.simulated import (
    LinearProblem,
    SparseProblem,
    TextProblem,
    dp_ight_figure1,
    dpsl_kt_figure2,
    lasso_domain,
    lasso_lower_bound,
    rcv1_like,
)
from tulle.datasets.standard import load_e2006, load_medmnist, load_mnist, load_rcv1

_RESULTS_DEPEND_ON = "names"

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
    "lasso_lower_bound",
    "load_a9a",
    "load_covertype",
    "load_e2006",
    "load_golub",
    "load_imdb_ratings",
    "load_imdb_sentiment",
    "load_medmnist",
    "load_mnist",
    "load_news20",
    "load_packaged",
    "load_pneumonia",
    "load_rcv1",
    "load_rcv1_subset",
    "load_reuters_acq",
    "load_riboflavin",
    "load_w8a",
    "rcv1_like",
    "where_to_get",
]
