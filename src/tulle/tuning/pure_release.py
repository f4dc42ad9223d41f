"""One query answered with Laplace noise and nothing else: the scale of its noise, and its report.

Scores and Kaplan-Meier curves are such releases.
"""

from __future__ import annotations

import math

from tulle.accounting.mechanism_words import describe_mechanism
from tulle.reports.report import BillLine, PrivacyReport, arithmetic_line, describe_fixed_nonce
from tulle.trusted.curator import summation_slack
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Laplace
from tulle.trusted.plan import is_number
from tulle.trusted.queries import Query

# Noise of more steps of its grid is no exact float, and trusted code refuses to draw it: then it is billed already.
_MOST_STEPS = 2.0**45


def check_epsilon(epsilon: float) -> None:
    """Raise unless it is one."""
    if not (is_number(epsilon) and 0 < epsilon < math.inf):
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon!r}")


def check_confidence(confidence: float) -> None:
    """Raise unless it is one."""
    if not (is_number(confidence) and 0 < confidence < 1):
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")


def find_scale(query: Query, answers: int, epsilon: float, public: PublicFacts) -> float:
    """The scale of the noise as `Curator.ask` draws it, with room for its grid.

    Raises, before anything is billed, where floats cannot hold such noise.
    """
    noise, sensitivity = 1 / float(epsilon), query.sensitivity(public)
    try:
        if not 1e-100 < noise * sensitivity.l1 < 1e100:
            raise ValueError
        widened = sensitivity.times(summation_slack(public.n_rows)).with_errors(2.0**-49 * query.size(public), answers)
        grid, scale = Laplace(NoisePerSensitivity(noise)).grid_and_scale(widened, answers)
        if not scale < _MOST_STEPS * grid:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"epsilon = {epsilon:g} needs noise outside the range of float64; choose another epsilon"
        ) from None
    # The answer and the noise are rounded by half a unit each. A whole unit more of noise covers both at every
    # confidence above 1 - 1/e, and at the others by far within what intervals leave.
    return scale + grid


def report_release(
    what: str,
    name: str,
    unit: str,
    epsilon: float,
    seeded: bool,
    assumptions: tuple[str, ...],
    who_saw_what: tuple[str, ...],
) -> PrivacyReport:
    """The report of a release called `name` on the bill."""
    return PrivacyReport(
        epsilon=epsilon,
        delta=0.0,
        asked=(epsilon, 0.0),
        method=what,
        calibration="rigorous",
        accountant="pure composition",
        unit=unit,
        bill=(BillLine(name, describe_mechanism(Laplace()), 1, 1 / epsilon, epsilon),),
        assumptions=(
            *assumptions,
            f"{arithmetic_line(0.0)} Running time is not protected.",
            "The noise came from a seed: not private against anyone who knows or guesses the seed, or sees another "
            "release with the same seed."
            if seeded
            else "The noise came from AES-128 in counter mode, keyed by the operating system.",
            *describe_fixed_nonce(),
        ),
        who_saw_what=who_saw_what,
        seeded=seeded,
        floating_point_slack=0.0,
    )
