"""Generalised responses: y = f(<x, w>) + noise with a known, smooth, increasing f.

The user's gradient is that of (f(<x, w>) - y)²/2, which is (f(<x, w>) - y) f'(<x, w>) x (Wang and Xu 2019, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from tulle.local.uniforms import FloatArray

Function = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Response:
    """A response function that the server and its users both know by name.

    Parameters
    ----------
    name : str
    value : callable
        f, on arrays of margins.
    slope : callable
        f', on arrays of margins; positive at 0, never negative.
    """

    name: str
    value: Function
    slope: Function

    def __post_init__(self) -> None:
        steepness = float(np.asarray(self.slope(np.zeros(1)))[0])
        if not 0 < steepness < math.inf:
            raise ValueError(f"the response {self.name!r} must have a finite slope > 0 at 0, but it is {steepness}")

    @property
    def steepness(self) -> float:
        """The slope at 0: the scale that steps and radii are set by."""
        return float(np.asarray(self.slope(np.zeros(1)))[0])

    def gradient_slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        """What each row is multiplied by in the gradient of the squared error."""
        return np.asarray((self.value(margins) - targets) * self.slope(margins))


IDENTITY = Response("identity", lambda margins: margins, np.ones_like)
LOGISTIC = Response("logistic", expit, lambda margins: expit(margins) * expit(-margins))
TANH = Response("tanh", np.tanh, lambda margins: 1 / np.cosh(np.clip(margins, -300, 300)) ** 2)

RESPONSES: Mapping[str, Response] = {response.name: response for response in (IDENTITY, LOGISTIC, TANH)}


def resolve_response(response: Any) -> Response:
    """The response behind a name, or a user's own."""
    if isinstance(response, Response):
        return response
    if not isinstance(response, str) or response not in RESPONSES:
        raise ValueError(f"response={response!r} is unknown; choose one of {sorted(RESPONSES)} or pass a Response")
    return RESPONSES[response]
