"""tulle: differentially private sparse learning.

>>> from tulle import Bounds, SparseClassifier
>>> model = SparseClassifier(epsilon=1.0, n_nonzero=100, bounds=Bounds(row_l2=1.0))
"""

from __future__ import annotations

from tulle.files.saved_models import register_models

_RESULTS_DEPEND_ON = "names"

__version__ = "0.2.0"

__all__ = [
    "Bounds",
    "Budget",
    "FileLedger",
    "Ledger",
    "PrivatePipeline",
    "PrivateSearch",
    "PublicFrequencies",
    "Schema",
    "SparseClassifier",
    "SparseRegressor",
    "__version__",
    "check_pipeline",
    "compare",
    "load",
    "private_score",
    "save",
]

TYPE_CHECKING = False  # as in `tulle.cli`
if TYPE_CHECKING:
    from typing import Any

    from tulle.accounting.zcdp import Budget
    from tulle.estimators.bounds import Bounds
    from tulle.estimators.pipeline_checks import check_pipeline
    from tulle.estimators.private_pipeline import PrivatePipeline
    from tulle.estimators.saving import load, save
    from tulle.estimators.sparse import SparseClassifier, SparseRegressor
    from tulle.experiments.compared import compare
    from tulle.ledgers.ledger import Ledger
    from tulle.ledgers.on_disk import FileLedger
    from tulle.schema.declared_schema import Schema
    from tulle.transfer.public_knowledge import PublicFrequencies
    from tulle.tuning.private_score import private_score
    from tulle.tuning.search import PrivateSearch

# Modules are imported on first use: importing tulle costs little more than this file.
_MODULES = {
    "Bounds": "tulle.estimators.bounds",
    "Budget": "tulle.accounting.zcdp",
    "FileLedger": "tulle.ledgers.on_disk",
    "Ledger": "tulle.ledgers.ledger",
    "PrivatePipeline": "tulle.estimators.private_pipeline",
    "PrivateSearch": "tulle.tuning.search",
    "PublicFrequencies": "tulle.transfer.public_knowledge",
    "Schema": "tulle.schema.declared_schema",
    "SparseClassifier": "tulle.estimators.sparse",
    "SparseRegressor": "tulle.estimators.sparse",
    "check_pipeline": "tulle.estimators.pipeline_checks",
    "compare": "tulle.experiments.compared",
    "load": "tulle.estimators.saving",
    "private_score": "tulle.tuning.private_score",
    "save": "tulle.estimators.saving",
}

register_models("tulle.estimators.sparse", "SparseClassifier", "SparseRegressor")
register_models("tulle.local.estimators.label_private", "LabelPrivateSparseClassifier", "LabelPrivateSparseRegressor")
register_models(
    "tulle.local.estimators.whole_rows", "LocalSparseClassifier", "LocalSparseRegressor", "OneRoundSparseRegressor"
)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tulle' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
