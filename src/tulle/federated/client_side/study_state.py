"""What a client writes down about a study, so that it outlives the process."""

from __future__ import annotations

from dataclasses import dataclass, field

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.encoding import ADDED_LATER


@dataclass(frozen=True, eq=False)
class StudyState:
    """What a client knows of a study after any crash.

    Attributes
    ----------
    study : str
        The digest of its terms.
    n_rows : int
        How many rows it was enrolled with.
    rows_per_person : int
        The unit that it promised.
    noise : float
        What it calibrated, per sensitivity of a step.
    answered : tuple of int
        The rounds whose answers were written down, rising. No other answer ever left.
    question : str
        The SHA-256 of the last round that was answered.
    weights : SparseWeights or None
        The last answer.
    version : str
        The version of tulle that wrote it; "" in states of before, which do not say it.
    snapshot_noise : float
        What it calibrated for snapshots, per sensitivity; 0 in studies without them.
    """

    study: str
    n_rows: int
    rows_per_person: int
    noise: float
    answered: tuple[int, ...] = ()
    question: str = ""
    weights: SparseWeights | None = None
    version: str = field(default="", metadata=ADDED_LATER)
    snapshot_noise: float = field(default=0.0, metadata=ADDED_LATER)

    def agreed(self) -> tuple[str, int, int, float, float]:
        """What must not change while a study lasts."""
        return self.study, self.n_rows, self.rows_per_person, self.noise, self.snapshot_noise
