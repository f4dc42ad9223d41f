"""Front replay: a computation on rows D, and the same on unrelated rows with the answers of D in place of its own.

Everything that leaves a private computation follows from its settings, from the shape of the rows and from the answers
of the curator. So whatever differs between the two has passed the curator by. See `tulle.audit.replay`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tulle.audit.replay import Recording
from tulle.audit.visible import ReplayError, Seen, differences, watch

__all__ = ["Seen", "differences", "replayed"]

# A fit that never ends is a difference too. All of these take a fraction of a second.
SECONDS = 60.0


def replayed(
    first: Callable[[], Any], second: Callable[[], Any], told: Callable[[Any], dict[str, Any]]
) -> tuple[Seen, Seen]:
    """What is seen of a computation, and of the same on other rows with the answers of the first."""
    recording = Recording()
    try:
        with recording.record():
            one = watch(first, told, seconds=SECONDS, refusals=(ValueError,))
        with recording.play():
            other = watch(second, told, seconds=SECONDS, refusals=(ValueError,))
        if not one.error:
            recording.finish()
    except ReplayError as mismatch:
        raise AssertionError(str(mismatch)) from mismatch  # by its own name, as tests/mutants.py looks for it
    return one, other
