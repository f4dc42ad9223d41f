"""Audits of local randomisers: two values of one user, told apart by the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tulle.audit.fingerprints import digest
from tulle.audit.judged_runs import judge_runs
from tulle.audit.judges import choose_judge
from tulle.audit.result import AuditResult
from tulle.audit.runner import Schedule
from tulle.local.user_side.channel import Channel
from tulle.local.user_side.label_randomisers import RandomisedResponse
from tulle.local.user_side.uniforms import open_interval
from tulle.trusted.events import FloatArray


@dataclass(frozen=True, eq=False)
class _ChannelRuns:
    """Answers of many users with one of two values."""

    channel: Channel
    values: tuple[FloatArray, FloatArray]

    def fingerprint(self) -> str:
        return digest(repr(self.channel), *self.values)

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        words = generator.integers(0, 2**64, (count, self.channel.n_uniforms), dtype=np.uint64)
        value = np.tile(self.values[world], (count, 1))
        return self.channel.answer(value, open_interval(words)).astype(float)


def channel_runs(channel: Channel, first: Any, second: Any) -> tuple[_ChannelRuns, str]:
    """The answers for two values, and their name; None is the value at an end, or a class."""
    for value in (first, second):
        if value is not None and np.size(value) != channel.width:
            raise ValueError(f"first and second must have {channel.width} numbers, got {np.size(value)}")
        if value is not None and not np.isfinite(np.asarray(value, dtype=float)).all():
            raise ValueError("first and second must be finite")
    opposite = np.r_[channel.bound, np.zeros(channel.width - 1)]
    classes = isinstance(channel, RandomisedResponse)
    values = [
        default if value is None else np.asarray(value, dtype=float).reshape(channel.width)
        for value, default in ((first, opposite), (second, 0.0 * opposite if classes else -opposite))
    ]
    return _ChannelRuns(channel, (values[0], values[1])), f"{channel.name}, two values of one user"


def audit_channel(
    channel: Channel,
    first: Any = None,
    second: Any = None,
    *,
    claimed: float | None = None,
    judge: str = "any",
    claimed_mu: float | None = None,
    runs: int = 200_000,
    confidence: float = 0.95,
    seed: int | None = None,
    n_jobs: int = 1,
    verbose: int = 0,
) -> AuditResult:
    """Audit a local randomiser: tell two values of one user apart by the answer.

    Parameters
    ----------
    channel : Channel
        Of `tulle.local`.
    first, second : array of shape (width,) or None, default=None
        The two values. None: opposite ends of the ball or the interval, or two classes.
    claimed : float or None, default=None
        None is the channel's own epsilon. The delta is the channel's.
    judge, claimed_mu
        As in `audit_function`: judge="gaussian" tests a claim of mu-GDP, as `GaussianLabel` has one.
    runs : int, default=200_000
        Answers in each world; half of them choose the attack.
    confidence : float, default=0.95
        In (0, 1).
    seed, n_jobs, verbose
        As in `audit_mechanism`.

    Returns
    -------
    AuditResult
    """
    if claimed is None and claimed_mu is None:
        claimed = channel.epsilon
    chosen = choose_judge(judge, delta=channel.delta, claimed=claimed, claimed_mu=claimed_mu)
    subject, what = channel_runs(channel, first, second)
    schedule = Schedule(runs, max(1, min(runs // 8, 2_000_000 // channel.n_uniforms)), seed, n_jobs, verbose=verbose)
    return judge_runs(
        subject,
        schedule,
        what,
        delta=channel.delta,
        confidence=confidence,
        claimed=claimed,
        judge=chosen,
    )
