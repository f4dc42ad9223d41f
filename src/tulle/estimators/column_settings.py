"""Features that stay in and groups of columns, as a user names them: read before anything is billed.

Names of columns are public, and so is all that is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.files.error_messages import show_setting
from tulle.methods.column_rules import ColumnRules


@dataclass(frozen=True)
class ColumnNames:
    """What features are called: by themselves, and by the column of a table that a schema makes them from."""

    features: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def find(self, name: str) -> list[int]:
        """The features of a name: the one that has it, or all those of a column."""
        found = [place for place, known in enumerate(self.columns) if known == name]
        return found or [place for place, known in enumerate(self.features) if known == name]


NO_NAMES = ColumnNames()

# For the report.
RULES_DECLARED = "Features that stay in, or groups of columns, were declared; they must be known without the rows."


def read_rules(always: Any, feature_groups: Any, n_features: int, names: ColumnNames) -> ColumnRules:
    """The rules for so many features. Raises where a feature is unknown or in two groups."""
    groups = _read_groups(feature_groups, n_features, names)
    chosen = [] if always is None else _read_features(always, n_features, names, "always")
    units = chosen if groups is None else groups[chosen].tolist()
    return ColumnRules(groups, tuple(sorted(set(units))))


def _read_features(given: Any, n_features: int, names: ColumnNames, what: str) -> list[int]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{what} must be a sequence of features, by place or by name, got {show_setting(given)}")
    found: list[int] = []
    for feature in given:
        if isinstance(feature, str):
            places = names.find(feature)
            if not places:
                known = "" if names.features or names.columns else "; the columns of X have no names, pass places"
                raise ValueError(f"{what} names {show_setting(feature)}, which is no column of X{known}")
            found += places
        elif isinstance(feature, (int, np.integer)) and not isinstance(feature, bool):
            if not 0 <= feature < n_features:
                raise ValueError(f"{what} names the feature {feature}, and there are {n_features:,}, counted from 0")
            found.append(int(feature))
        else:
            raise TypeError(f"{what} must hold whole numbers or names, got {show_setting(feature)}")
    return sorted(set(found))


def _read_groups(given: Any, n_features: int, names: ColumnNames) -> npt.NDArray[np.intp] | None:
    """The number of each feature's group, from 0; None where every feature is one by itself."""
    if given is None:
        return None
    if isinstance(given, str):
        if given != "schema" or not names.columns:
            raise ValueError(
                f"feature_groups must be labels, a dict, or 'schema' in a pipeline that begins with a tulle.Schema; "
                f"got {show_setting(given)}"
            )
        labels: Sequence[Any] = names.columns
    elif isinstance(given, Mapping):
        taken: dict[int, Any] = {}
        for name, features in given.items():
            for feature in _read_features(features, n_features, names, f"feature_groups[{name!r}]"):
                if feature in taken:
                    raise ValueError(f"feature_groups puts the feature {feature} into {taken[feature]!r} and {name!r}")
                taken[feature] = name
        labels = [f"group {taken[place]!r}" if place in taken else f"{place}" for place in range(n_features)]
    else:
        labels = list(given)
        whole = all(isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in labels)
        if len(labels) != n_features or not (whole or all(isinstance(label, str) for label in labels)):
            raise ValueError(
                f"feature_groups must hold one label for each of the {n_features:,} features, all whole numbers or all "
                f"strings, got {len(labels):,} labels"
            )
    return np.asarray(np.unique(np.asarray(labels), return_inverse=True)[1], dtype=np.intp)


def pack_columns(value: Any) -> Any:
    """`always` or `feature_groups` as plain JSON."""
    if isinstance(value, Mapping):
        return {"groups": {str(name): pack_columns(features) for name, features in value.items()}}
    return [item.item() if isinstance(item, np.generic) else item for item in value]
