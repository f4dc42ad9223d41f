"""How far a fit is: for scikit-learn's callbacks, for standard error, and for audits that look at answers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from tulle.estimators.fit_callbacks import FitTask
from tulle.trusted.curator import Ask
from tulle.trusted.mechanisms import Then
from tulle.trusted.queries import Query

# Called as witness(name, answer) with each answer that was released.
Witness = Callable[[str, Any], None]


def show_answers(ask: Ask, witness: Witness | None) -> Ask:
    """`ask`, with every answer shown to a witness: after it was released."""
    if witness is None:
        return ask

    def ask_and_show(name: str, query: Query, then: Then | None = None) -> Any:
        answer = ask(name, query, then=then)
        witness(name, answer)
        return answer

    return ask_and_show


class Progress:
    """Tells scikit-learn's callbacks, and standard error if asked to, how many of the planned answers were given."""

    def __init__(self, estimator: Any, totals: set[int]) -> None:
        self._estimator = estimator
        self._total = max(totals)
        self._done = 0
        self._start = time.monotonic()
        # The number of queries can depend on estimated bounds; callbacks then do not get it in advance.
        self._known = len(totals) == 1
        self._task = FitTask(estimator, self._total if self._known else None)

    def advance(self, name: str, answer: Any) -> None:
        """Counts an answer, and looks at none."""
        self._done += 1
        self._task.answered()
        self._show(self._total, end="")

    def _show(self, total: int, end: str) -> None:
        if self._estimator.verbose:
            left = (time.monotonic() - self._start) / max(self._done, 1) * (total - self._done)
            print(
                f"\r{type(self._estimator).__name__}: {self._done}/{total} answers, {left:.0f} s left ",
                end=end,
                file=sys.stderr,
                flush=True,
            )

    def finish(self) -> None:
        self._task.end()
        if self._done < self._total and self._known:  # the last epoch of shuffled batches may be left unfinished
            self._show(self._done, end="")
        if self._estimator.verbose:
            print(file=sys.stderr)
