"""The format of comparison.json, for the code that writes it and the code that makes a page of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FORMAT = "tulle comparison 1"


def describe_public_rows(comparison: Mapping[str, Any]) -> str:
    """Which methods were given public rows; nothing where there were none."""
    public = comparison.get("public")
    if not public:
        return ""
    return f"{public['n_rows']:,} public rows, given to {', '.join(public['methods'])} and to no other method"
