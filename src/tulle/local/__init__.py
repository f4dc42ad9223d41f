"""Local privacy: nobody is trusted with the rows.

- `LocalSparseRegressor`, `OneRoundSparseRegressor`: whole rows are private (LDP-IHT, theorem 1).
- `LabelPrivateSparseRegressor`, `LabelPrivateSparseClassifier`: labels are private, features are known.
- `User` and `Server`: the two sides of a real study, with `HttpStudy` between them. `tulle.local.user` needs numpy and
  scipy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tulle.local.client import HttpUserClient, answer_for
    from tulle.local.http import HttpStudy
    from tulle.local.label_private import LabelPrivateSparseClassifier, LabelPrivateSparseRegressor
    from tulle.local.protocols import LabelCollection, LdpIht
    from tulle.local.responses import Response
    from tulle.local.server import Server
    from tulle.local.user import FileRecord, User
    from tulle.local.whole_rows import LocalSparseRegressor, OneRoundSparseRegressor

# Opened on first use: a user's device loads the user's side and nothing else.
_ROOMS = {
    "FileRecord": "user",
    "HttpStudy": "http",
    "HttpUserClient": "client",
    "LabelCollection": "protocols",
    "LabelPrivateSparseClassifier": "label_private",
    "LabelPrivateSparseRegressor": "label_private",
    "LdpIht": "protocols",
    "LocalSparseRegressor": "whole_rows",
    "OneRoundSparseRegressor": "whole_rows",
    "Response": "responses",
    "Server": "server",
    "User": "user",
    "answer_for": "client",
}

__all__ = [
    "FileRecord",
    "HttpStudy",
    "HttpUserClient",
    "LabelCollection",
    "LabelPrivateSparseClassifier",
    "LabelPrivateSparseRegressor",
    "LdpIht",
    "LocalSparseRegressor",
    "OneRoundSparseRegressor",
    "Response",
    "Server",
    "User",
    "answer_for",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'tulle.local' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tulle.local.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
