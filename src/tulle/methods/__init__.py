"""The methods, by name. A method holds no rows: it has `ask` and the public facts."""

from __future__ import annotations

from typing import Protocol

from tulle.curator import Ask
from tulle.events import FloatArray
from tulle.methods.auto import Auto
from tulle.methods.coordinate_descent import CoordinateDescent
from tulle.methods.frank_wolfe import FrankWolfe
from tulle.methods.hard_thresholding import HardThresholding
from tulle.methods.knowledge_transfer import KnowledgeTransfer
from tulle.methods.screen_refine import ScreenRefine
from tulle.methods.stochastic_hard_thresholding import StochasticHardThresholding
from tulle.methods.two_stage import TwoStage
from tulle.privacy import Budget, Release
from tulle.public import PublicFacts

__all__ = [
    "METHODS",
    "Auto",
    "CoordinateDescent",
    "FrankWolfe",
    "HardThresholding",
    "KnowledgeTransfer",
    "Method",
    "ScreenRefine",
    "StochasticHardThresholding",
    "TwoStage",
    "resolve_method",
]


class Method(Protocol):
    """What the front door needs of a method.

    Hooks that a method may have besides, read by `tulle.fitting`: ``teach(weights, public)`` makes the model of the
    weights that `run` returned; ``only_published`` says that there is no noise but the paper's;
    ``failed_conditions(public, budget)`` which conditions of the paper's theorem fail; ``assumptions(public)`` what the
    report must say; ``n_thresholds(public)`` how often weights are thresholded.
    """

    def bounds_wanted(self) -> tuple[str, ...]:
        """Which row bounds ("row_l2", "row_linf") its noise is scaled by."""
        ...

    def default_nonzero(self, public: PublicFacts) -> int:
        """How many weights to keep where the user does not say, in [1, features]; it replaces `public.n_nonzero`."""
        ...

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        """What it will ask; noises are relative to each other until they are calibrated."""
        ...

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        """The same list with the noise that the paper prints for this budget."""
        ...

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        """The weights, of shape (features + 1, outputs); the last line is the intercept (0 without one)."""
        ...

    def describe(self, public: PublicFacts) -> str:
        """One line for the report: the algorithm and its public settings."""
        ...

    def n_iterations(self, public: PublicFacts) -> int:
        """Iterations of its loop."""
        ...

    def n_passes(self, public: PublicFacts) -> float:
        """How often it reads all rows."""
        ...

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        """How far the best that a feature can do stands out of the noise; see `tulle.methods.geometry`."""
        ...


METHODS: dict[str, type[Method]] = {
    "auto": Auto,
    "screen_refine": ScreenRefine,
    "two_stage": TwoStage,
    "hard_thresholding": HardThresholding,
    "stochastic_hard_thresholding": StochasticHardThresholding,
    "frank_wolfe": FrankWolfe,
    "coordinate_descent": CoordinateDescent,
    "knowledge_transfer": KnowledgeTransfer,
}


_REQUIRED = (
    "bounds_wanted",
    "default_nonzero",
    "releases",
    "published",
    "run",
    "describe",
    "n_iterations",
    "n_passes",
    "signal_to_noise",
)


def resolve_method(method: str | Method) -> Method:
    """The method object behind a name, or the object itself."""
    if isinstance(method, str):
        if method not in METHODS:
            raise ValueError(f"method={method!r} is unknown; choose one of {list(METHODS)}, or pass an object")
        return METHODS[method]()
    missing = [name for name in _REQUIRED if not callable(getattr(method, name, None))]
    if missing:
        raise TypeError(f"method={method!r} is not a method of tulle.methods: it lacks {', '.join(missing)}")
    return method
