"""The methods, by name. A method holds no rows: it has `ask` and the public facts."""

from __future__ import annotations

from tulle.fast.install import install
from tulle.files.error_messages import show_setting
from tulle.methods.auto import Auto
from tulle.methods.base import Method
from tulle.methods.coordinate_descent import CoordinateDescent
from tulle.methods.fit_again import FitAgain
from tulle.methods.frank_wolfe import FrankWolfe
from tulle.methods.hard_thresholding import HardThresholding
from tulle.methods.knowledge_transfer import KnowledgeTransfer
from tulle.methods.parameter_checks import with_python_numbers
from tulle.methods.screen_refine import ScreenRefine
from tulle.methods.stochastic_hard_thresholding import StochasticHardThresholding
from tulle.methods.two_stage import TwoStage

install()

_RESULTS_DEPEND_ON = "code and names"

install()

__all__ = [
    "METHODS",
    "Auto",
    "CoordinateDescent",
    "FitAgain",
    "FrankWolfe",
    "HardThresholding",
    "KnowledgeTransfer",
    "Method",
    "ScreenRefine",
    "StochasticHardThresholding",
    "TwoStage",
    "resolve_method",
]


METHODS: dict[str, type[Method]] = {
    "auto": Auto,
    "fit_again": FitAgain,
    "screen_refine": ScreenRefine,
    "two_stage": TwoStage,
    "hard_thresholding": HardThresholding,
    "stochastic_hard_thresholding": StochasticHardThresholding,
    "frank_wolfe": FrankWolfe,
    "coordinate_descent": CoordinateDescent,
    "knowledge_transfer": KnowledgeTransfer,
}


_REQUIRED = tuple(name for name in dir(Method) if not name.startswith("_"))


def resolve_method(method: str | Method) -> Method:
    """The method object behind a name, or the object itself; a copy where parameters are numbers of numpy."""
    if isinstance(method, str):
        if method not in METHODS:
            raise ValueError(
                f"method={show_setting(method)} is unknown; choose one of {list(METHODS)}, or pass an object"
            )
        return METHODS[method]()
    missing = [name for name in _REQUIRED if not hasattr(method, name)]
    if missing:
        raise TypeError(
            f"method={method!r} is not a method: it lacks {', '.join(missing)}; derive it from "
            "tulle.methods.base.MethodBase"
        )
    return with_python_numbers(method)
