"""Whether a client's machine can take part in a study: looked at before the bill, so that nothing is billed in vain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tulle.estimators.memory_check import TooLargeError, check_width
from tulle.federated.messages import RefusedError
from tulle.federated.terms import Terms
from tulle.files.reserved_room import check_room

# What a state and a report take besides weights and rounds.
_STATE_BYTES = 1 << 17


def check_machine(terms: Terms, state: Path, tell: Callable[[str], None]) -> None:
    """Raise where memory or disk are too small for a study, by its terms alone.

    Parameters
    ----------
    terms : Terms
    state : path
        The folder for files that must outlive the process.
    tell : callable
        Is told which resource is too small; the server learns only that one is.
    """
    lines, outputs = terms.model.shape
    try:
        check_width(lines, outputs)
        check_room(state, _STATE_BYTES + 32 * terms.remembered * outputs + 8 * terms.rounds)
    except (TooLargeError, OSError) as error:
        tell(f"{terms.study!r} cannot be taken part in here: {error}")
        raise RefusedError("failed", "this client's machine is too small for the study") from None
