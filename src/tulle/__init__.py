"""tulle: differentially private sparse learning.

>>> from tulle import Bounds, SparseClassifier
>>> model = SparseClassifier(epsilon=1.0, n_nonzero=100, bounds=Bounds(row_l2=1.0))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Bounds",
    "Budget",
    "FileLedger",
    "Ledger",
    "PrivateSearch",
    "SparseClassifier",
    "SparseRegressor",
    "__version__",
    "check_pipeline",
    "load",
    "private_score",
    "save",
]

if TYPE_CHECKING:
    from tulle.bounds import Bounds
    from tulle.estimators import SparseClassifier, SparseRegressor
    from tulle.ledger_file import FileLedger
    from tulle.pipelines import check_pipeline
    from tulle.privacy import Budget, Ledger
    from tulle.saving import load, save
    from tulle.scores import private_score
    from tulle.tuning import PrivateSearch

# The rooms are opened on first use: importing tulle costs no more than this file.
_ROOMS = {
    "Bounds": "tulle.bounds",
    "Budget": "tulle.privacy",
    "FileLedger": "tulle.ledger_file",
    "Ledger": "tulle.privacy",
    "PrivateSearch": "tulle.tuning",
    "SparseClassifier": "tulle.estimators",
    "SparseRegressor": "tulle.estimators",
    "check_pipeline": "tulle.pipelines",
    "load": "tulle.saving",
    "private_score": "tulle.scores",
    "save": "tulle.saving",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'tulle' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_ROOMS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
