"""Generalised responses: y = f(<x, w>) + noise with a known, smooth, increasing f.

The user's gradient is that of (f(<x, w>) - y)²/2, which is (f(<x, w>) - y) f'(<x, w>) x (Wang and Xu 2019, section 6).
That of the logistic loss with labels -1 and 1 is (f(<x, w>) - y) f'(0) x with f(m) = tanh(m/2), the mean label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from tulle.local.user_side.uniforms import FloatArray

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
    canonical : bool, default=False
        Whether the loss is the one with the slope (f - y) f'(0), which is convex for every increasing f, in place of
        the squared error: the logistic loss for f = tanh(m/2).
    """

    name: str
    value: Function
    slope: Function
    canonical: bool = False

    def __post_init__(self) -> None:
        steepness = float(np.asarray(self.slope(np.zeros(1)))[0])
        if not 0 < steepness < math.inf:
            raise ValueError(f"the response {self.name!r} must have a finite slope > 0 at 0, but it is {steepness}")

    @property
    def steepness(self) -> float:
        """The slope at 0: the scale that steps and radii are set by."""
        return float(np.asarray(self.slope(np.zeros(1)))[0])

    def gradient_slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        """What each row is multiplied by in the gradient of the loss."""
        slope = self.steepness if self.canonical else self.slope(margins)
        return np.asarray((self.value(margins) - targets) * slope)


IDENTITY = Response("identity", lambda margins: margins, np.ones_like)
LOGISTIC = Response("logistic", expit, lambda margins: expit(margins) * expit(-margins))
TANH = Response("tanh", np.tanh, lambda margins: 1 / np.cosh(np.clip(margins, -300, 300)) ** 2)

LOGISTIC_LOSS = Response(
    "logistic_loss",
    lambda margins: np.tanh(margins / 2),
    lambda margins: 0.5 / np.cosh(np.clip(margins / 2, -300, 300)) ** 2,
    canonical=True,
)

# For regressions, and all that users know.
RESPONSES: Mapping[str, Response] = {response.name: response for response in (IDENTITY, LOGISTIC, TANH)}
KNOWN_TO_USERS: Mapping[str, Response] = {**RESPONSES, LOGISTIC_LOSS.name: LOGISTIC_LOSS}


def resolve_response(response: Any) -> Response:
    """The response behind a name, or a user's own."""
    if isinstance(response, Response):
        return response
    if not isinstance(response, str) or response not in RESPONSES:
        raise ValueError(f"response={response!r} is unknown; choose one of {sorted(RESPONSES)} or pass a Response")
    return RESPONSES[response]
