"""The base class of what methods ask: a query of the trusted package, chosen in view of public facts."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Sensitivity
from tulle.trusted.queries import Query


class Recipe(Query):
    """A query that follows from public facts: `resolve` gives one of the trusted package, which answers the rest."""

    @abstractmethod
    def resolve(self, public: PublicFacts) -> Query: ...

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return self.resolve(public).sensitivity(public)

    def one_unit(self, public: PublicFacts) -> float:
        return self.resolve(public).one_unit(public)

    def size(self, public: PublicFacts) -> float:
        return self.resolve(public).size(public)

    def largest(self, public: PublicFacts) -> float:
        return self.resolve(public).largest(public)

    def evaluate(self, rows: Any, public: PublicFacts) -> Any:
        return self.resolve(public).evaluate(rows, public)
