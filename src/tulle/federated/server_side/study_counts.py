"""Counts of a study for its log and its metrics: rounds and answers, no client's name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tulle.monitoring.log_events import log_event
from tulle.monitoring.status_pages import Metric

if TYPE_CHECKING:
    from tulle.federated.server_side.federated_fit import RoundRecord


class StudyCounts:
    """Adds up the rounds of one run of a server.

    Parameters
    ----------
    n_rounds : int
        Of the study.
    """

    def __init__(self, n_rounds: int) -> None:
        self._n_rounds, self._done = n_rounds, 0
        self._answers = 0
        self._rejected: Counter[str] = Counter()

    def add(self, record: RoundRecord) -> None:
        """Count a round that is closed, and log it."""
        self._done = record.number
        self._answers += len(record.answered)
        self._rejected.update(record.rejected)
        log_event(
            __name__,
            "federated.round",
            round=record.number,
            n_rounds=self._n_rounds,
            answered=len(record.answered),
            missing=len(record.missing),
            rejected=dict(record.rejected),
        )

    def metrics(self) -> Sequence[Metric]:
        """What `/metrics` shows."""
        return (
            Metric("tulle_federated_rounds", "gauge", "Rounds of the study.", {"": self._n_rounds}),
            Metric("tulle_federated_rounds_closed", "gauge", "Rounds that are closed.", {"": self._done}),
            Metric("tulle_federated_answers_total", "counter", "Answers that counted.", {"": self._answers}),
            Metric(
                "tulle_federated_rejected_total",
                "counter",
                "Messages that did not count, by reason.",
                dict(sorted(self._rejected.items())),
                "reason",
            ),
        )
