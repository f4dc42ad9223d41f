"""The protocol of methods, and what they have in common. A method holds no rows: it has `ask` and the public facts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from sklearn.base import BaseEstimator

from tulle.methods.column_rules import ColumnRules
from tulle.transfer.public_knowledge import PublicKnowledge
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Budget, Release


@dataclass(frozen=True)
class RowSplit:
    """Rows that some releases use alone, and no other release does; drawn at random, without looking at them.

    Attributes
    ----------
    names : tuple of str
        Those releases.
    share : float
        In (0, 1): the part of the rows.
    """

    names: tuple[str, ...]
    share: float

    def count(self, n_rows: int) -> int:
        """How many of so many rows: at least one, and not all."""
        return min(max(round(self.share * n_rows), 1), n_rows - 1)


class Method(Protocol):
    """What a fit needs of a method. `MethodBase` has defaults for all but `releases` and `run`."""

    @property
    def only_published(self) -> bool:
        """Whether there is no noise but the paper's."""

    @property
    def takes_offsets(self) -> bool:
        """Whether it can fit to rows with offsets that are added to margins."""

    @property
    def publishes_rho(self) -> bool:
        """Whether its paper prints noise for a budget in rho."""

    def resolve(self, public: PublicFacts) -> Method:
        """The method for these facts: itself, or the one that it chooses."""

    def with_public(self, knowledge: PublicKnowledge) -> Method:
        """The same method with public knowledge about the features; raises where it makes no use of it."""

    def with_columns(self, rules: ColumnRules) -> Method:
        """The same method with features that are always kept and groups of columns; raises where it has neither."""

    def bounds_wanted(self) -> tuple[str, ...]:
        """Which row bounds ("row_l2", "row_linf") its noise is scaled by."""

    def default_nonzero(self, public: PublicFacts) -> int:
        """How many weights to keep where the user does not say, in [1, features]; it replaces `public.n_nonzero`."""

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        """What it will ask; noises are relative to each other until they are calibrated."""

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        """The same list with the noise that the paper prints for this budget."""

    def failed_conditions(self, public: PublicFacts, budget: Budget) -> tuple[str, ...]:
        """Conditions of the paper's theorem that fail."""

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        """The weights, of shape (features + 1, outputs); the last line is the intercept (0 without one)."""

    def teach(self, weights: FloatArray, public: PublicFacts) -> tuple[FloatArray | None, FloatArray]:
        """Of the weights that `run` returned: those of a teacher, if there is one to release, and the model's."""

    def split(self, public: PublicFacts) -> RowSplit | None:
        """Rows for some releases alone; None where every release is about all rows."""

    def infer(self, released: Any, public: PublicFacts, releases: tuple[Release, ...]) -> Any:
        """What `run` returned as `tulle.inference.Evidence`, given the noise that was drawn; None for other methods."""

    def doubt(self, public: PublicFacts, releases: tuple[Release, ...]) -> str:
        """Why, by public quantities, the result is worth little; "" where there is no reason."""

    def describe(self, public: PublicFacts) -> str:
        """One line for the report: the algorithm and its public settings."""

    def assumptions(self, public: PublicFacts) -> tuple[str, ...]:
        """What the report must say besides."""

    def n_iterations(self, public: PublicFacts) -> int:
        """Iterations of its loop."""

    def n_passes(self, public: PublicFacts) -> float:
        """How often it reads all rows."""

    def n_thresholds(self, public: PublicFacts) -> int:
        """How often it thresholds weights."""

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        """How far the best that a feature can do stands out of the noise; see `tulle.methods.noise_scales`."""


# Of all methods of tulle, as measured; for methods that do not say it.
MOST_DENSE_VECTORS = 17


class MethodBase(BaseEstimator):
    """Parameters as in scikit-learn, and a default for everything but `releases` and `run`."""

    @property
    def only_published(self) -> bool:
        """Whether there is no noise but the paper's."""
        return False

    @property
    def takes_offsets(self) -> bool:
        """Whether it can fit to rows with offsets that are added to margins."""
        return True

    @property
    def publishes_rho(self) -> bool:
        """Its paper, if it has one, prints noise for epsilon and delta."""
        return False

    def resolve(self, public: PublicFacts) -> Any:
        """The method itself."""
        return self

    def with_public(self, knowledge: PublicKnowledge) -> Any:
        """No use is made of it."""
        raise ValueError(
            f"{type(self).__name__} makes no use of public rows; use method='auto', 'fit_again' or "
            "'knowledge_transfer', or omit public="
        )

    def with_columns(self, rules: ColumnRules) -> Any:
        """It has no place for them."""
        raise ValueError(
            f"{type(self).__name__} takes no always= and no feature_groups=; use method='auto', 'fit_again', "
            "'screen_refine' or 'hard_thresholding', or omit them"
        )

    def bounds_wanted(self) -> tuple[str, ...]:
        """Bounds in both norms."""
        return ("row_l2", "row_linf")

    def default_nonzero(self, public: PublicFacts) -> int:
        """As many weights as there are features."""
        return public.n_features

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        """No paper, no noise."""
        raise ValueError(f"{type(self).__name__} has no published noise; use calibration='rigorous'")

    def failed_conditions(self, public: PublicFacts, budget: Budget) -> tuple[str, ...]:
        """None."""
        return ()

    def teach(self, weights: FloatArray, public: PublicFacts) -> tuple[FloatArray | None, FloatArray]:
        """The model is what was released, without a teacher."""
        return None, weights

    def split(self, public: PublicFacts) -> RowSplit | None:
        """Every release is about all rows."""
        return None

    def infer(self, released: Any, public: PublicFacts, releases: tuple[Release, ...]) -> Any:
        """Nothing is known about the weights' errors."""
        return None

    def doubt(self, public: PublicFacts, releases: tuple[Release, ...]) -> str:
        """None."""
        return ""

    def describe(self, public: PublicFacts) -> str:
        """The name of the class."""
        return type(self).__name__

    def assumptions(self, public: PublicFacts) -> tuple[str, ...]:
        """None."""
        return ()

    def n_iterations(self, public: PublicFacts) -> int:
        """One."""
        return 1

    def n_passes(self, public: PublicFacts) -> float:
        """As many as iterations."""
        return float(self.n_iterations(public))

    def n_thresholds(self, public: PublicFacts) -> int:
        """None."""
        return 0

    def n_dense_vectors(self) -> int:
        """How many dense vectors, as long as there are columns, are held at a time for each output, by `run`, queries
        and noise. By it a fit that would run out of memory is refused before the bill."""
        return MOST_DENSE_VECTORS

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        """Not known, and so no warning."""
        return math.inf
