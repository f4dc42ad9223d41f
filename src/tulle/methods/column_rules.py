"""Public rules about columns: features that are always kept, and columns that are kept or dropped together.

Which features a method keeps is a function of noisy answers and of these rules: post-processing, or a choice among
fewer candidates (docs/proofs/weighted_rows.md, lemma 5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tulle.methods.thresholds import GroupThreshold, HardThreshold, count_features, count_groups, kept_words
from tulle.trusted.facts import PublicFacts
from tulle.trusted.queries import Mask

Groups = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class ColumnRules:
    """Rules about columns, set before a fit. A unit is a group of features, or a feature where there are no groups.

    Parameters
    ----------
    groups : int array of shape (features,) or None, default=None
        The number of each feature's group, from 0, none left out; None: every feature by itself.
    always : tuple of int, default=()
        Units that are never dropped, in rising order.
    """

    groups: Groups | None = None
    always: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.groups is not None or bool(self.always)

    def mask(self, n_features: int) -> Mask:
        """The features that are never dropped."""
        units = np.arange(n_features) if self.groups is None else self.groups
        return np.asarray(np.isin(units, self.always))

    def threshold(self, keep: int, n_features: int, always: bool = True) -> HardThreshold:
        """The threshold that keeps so many units, those that are never dropped among them, unless told otherwise."""
        fixed = self.always if always else ()
        if self.groups is None and not fixed:
            return HardThreshold(keep, n_features)
        groups = np.arange(n_features) if self.groups is None else self.groups
        return GroupThreshold(keep, n_features, groups, fixed)

    def whole_groups(self, chosen: Mask) -> Mask:
        """Features, of shape (features, outputs), with all others of their groups."""
        if self.groups is None:
            return chosen
        found = np.zeros((int(self.groups.max()) + 1, chosen.shape[1]), dtype=bool)
        np.logical_or.at(found, self.groups, chosen)
        return np.asarray(found[self.groups])

    def n_units(self, n_features: int) -> int:
        return n_features if self.groups is None else int(self.groups.max()) + 1

    def n_free(self, public: PublicFacts) -> int:
        """How many units are to be chosen, besides those that are never dropped."""
        return max(min(public.n_nonzero, self.n_units(public.n_features)) - len(self.always), 0)

    def n_kept(self, public: PublicFacts) -> int:
        """How many features are kept, at most."""
        return count_features(public.n_nonzero, self.groups)

    def in_features(self, public: PublicFacts) -> PublicFacts:
        """The same facts, with weights counted in features, not in groups."""
        return public if self.groups is None else replace(public, n_nonzero=self.n_kept(public))

    def to_units(self, n_features: int) -> int:
        """How many units have about so many features, and no fewer than those that are never dropped."""
        return max(count_groups(n_features, self.groups), len(self.always))

    def words(self, public: PublicFacts) -> str:
        """How many features or groups are kept, for the report."""
        stay = f", {len(self.always):,} of them in any case" if self.always else ""
        return f"{kept_words(public, self.groups)} kept{stay}"

    def check_selection(self, method: str, public: PublicFacts) -> None:
        """Raise unless single features are to be chosen, at least one."""
        if self.groups is not None or not self.n_free(public):
            raise ValueError(
                f"{method}(noise='selection') chooses single features, at least one besides those of always=; use "
                "noise='gaussian' or 'auto' with groups of columns, or where all features stay in"
            )


NO_RULES = ColumnRules()
