"""Local privacy: no party is trusted with the rows.

- `LocalSparseRegressor`, `OneRoundSparseRegressor`: whole rows are private (LDP-IHT, theorem 1).
- `LocalSparseClassifier`: the same for two classes, with the logistic loss.
- `LabelPrivateSparseRegressor`, `LabelPrivateSparseClassifier`: labels are private, features are known.
- `User` and `Server`: the two sides of a real study, with `HttpStudy` between them. `tulle.local.user_side.user` needs
  numpy and scipy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tulle.local.estimators.label_private import LabelPrivateSparseClassifier, LabelPrivateSparseRegressor
    from tulle.local.estimators.whole_rows import LocalSparseClassifier, LocalSparseRegressor, OneRoundSparseRegressor
    from tulle.local.server_side.http_server import HttpStudy
    from tulle.local.server_side.protocols import LabelCollection, LdpIht
    from tulle.local.server_side.study_server import Server
    from tulle.local.user_side.http_client import HttpUserClient, answer_for
    from tulle.local.user_side.responses import Response
    from tulle.local.user_side.user import FileRecord, User

_RESULTS_DEPEND_ON = "names"

# Opened on first use: a user's device loads the user's side and nothing else.
_MODULES = {
    "FileRecord": "tulle.local.user_side.user",
    "HttpStudy": "tulle.local.server_side.http_server",
    "HttpUserClient": "tulle.local.user_side.http_client",
    "LabelCollection": "tulle.local.server_side.protocols",
    "LabelPrivateSparseClassifier": "tulle.local.estimators.label_private",
    "LabelPrivateSparseRegressor": "tulle.local.estimators.label_private",
    "LdpIht": "tulle.local.server_side.protocols",
    "LocalSparseClassifier": "tulle.local.estimators.whole_rows",
    "LocalSparseRegressor": "tulle.local.estimators.whole_rows",
    "OneRoundSparseRegressor": "tulle.local.estimators.whole_rows",
    "Response": "tulle.local.user_side.responses",
    "Server": "tulle.local.server_side.study_server",
    "User": "tulle.local.user_side.user",
    "answer_for": "tulle.local.user_side.http_client",
}

__all__ = [
    "FileRecord",
    "HttpStudy",
    "HttpUserClient",
    "LabelCollection",
    "LabelPrivateSparseClassifier",
    "LabelPrivateSparseRegressor",
    "LdpIht",
    "LocalSparseClassifier",
    "LocalSparseRegressor",
    "OneRoundSparseRegressor",
    "Response",
    "Server",
    "User",
    "answer_for",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tulle.local' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
