"""The likelihood ratio of everything that a function asked of mechanisms of tulle: pipelines, clients, whole fits.

A run on one data set is recorded, and played with the same answers on the other one. By that the exact answers on both
are known, as to an attacker who knows both data sets, and the densities of the released ones. Only answers and the
two data sets enter, so that a bound that is counted on the ratio is valid for a claim that covers every answer. That is
so if nothing else is random: each run is also played on its own data set, where the ratio must be exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tulle.audit.fingerprints import digest, function_text
from tulle.audit.first_runs import TargetError
from tulle.audit.likelihood import log_density
from tulle.audit.replay import ONE_AT_A_TIME, Change, Recording, except_in, threads_before
from tulle.audit.visible import ReplayError
from tulle.trusted.events import FloatArray
from tulle.trusted.mechanisms import Mechanism, Sensitivity
from tulle.tuning.best_of_trials import TrialCount


class RatioRecording(Recording):
    """A recording that adds up log-ratios while it is played: of the recorded data set over the one that is played.

    Parameters
    ----------
    noise : Generator
    """

    def __init__(self, noise: np.random.Generator) -> None:
        super().__init__(lambda change: None, noise)
        self.log_ratio = 0.0

    def _compare(self, mechanism: Mechanism, known: Any, exact: Any, sensitivity: Sensitivity) -> Iterator[Change]:
        if mechanism.sampling is not None and mechanism.sampling.unit_rate < 1:
            # Batches are the same in both runs here, and secret to an attacker: a ratio that knew them would refute
            # sound claims.
            raise self._mismatch("random batches are secret, and the ratio of their answers is not known")
        assert self._played is not None
        released = self._answers[self._played - 1].released
        density = log_density(mechanism, sensitivity)
        with np.errstate(all="ignore"):
            # Numbers that are 0 were set to 0 after the noise, or nearly never.
            ratio = density(known, released, True) - density(exact, released, True)
        self.log_ratio += ratio if np.isfinite(ratio) else 0.0
        yield from ()


@dataclass(frozen=True, eq=False)
class ReplayedRuns:
    """Runs of a function: each releases its log-likelihood ratio, first data set over second, and nothing else.

    Attributes
    ----------
    fit : callable
        fit(X, y, rng), whose noise is all from mechanisms of tulle. What it returns is not looked at.
    worlds : pair of tuple (X, y)
    """

    fit: Callable[[Any, Any, np.random.Generator], Any]
    worlds: tuple[tuple[Any, Any], tuple[Any, Any]]

    def fingerprint(self) -> str:
        return digest(*function_text(self.fit), *sum(self.worlds, ()), "likelihood ratios by replay")

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        return np.array([[self.log_ratio(world, generator)] for _ in range(count)])

    def log_ratio(self, world: int, generator: np.random.Generator) -> float:
        """Of one run on this data set."""
        recording = RatioRecording(np.random.default_rng(generator.integers(2**63)))
        seed = int(generator.integers(2**63))  # for randomness that is no noise: the same in all runs
        try:
            with _refused_searches():
                with recording.record():
                    self.fit(*self.worlds[world], np.random.default_rng(seed))
                on_itself = self._played(recording, world, seed)
                ratio = self._played(recording, 1 - world, seed)
            if on_itself != 0.0:
                # The recorded data set would fit its own answers better than the other one, also if both were equal.
                raise ReplayError(
                    "it is random in other ways than by noise: two runs on the same rows with the same answers differ. "
                    "Pass randomness from rng, such as random_state=int(rng.integers(2**62))"
                )
        except ReplayError as mismatch:
            raise TargetError(
                f"attack='likelihood_ratio' knows no ratio of this function: {mismatch}; use attack='chosen', or replay"
            ) from None
        if not len(recording):
            raise TargetError(
                "attack='likelihood_ratio' is for functions whose noise is from mechanisms of tulle, and this one "
                "asked none of them; use attack='chosen'"
            )
        return ratio if world == 0 else -ratio

    def _played(self, recording: RatioRecording, world: int, seed: int) -> float:
        """The log-ratio of the recorded data set over this one."""
        recording.log_ratio = 0.0
        with recording.play():
            self.fit(*self.worlds[world], np.random.default_rng(seed))
        recording.finish()
        return recording.log_ratio


@contextmanager
def _refused_searches() -> Iterator[None]:
    """The trials of a private search are secret, and its claim rests on that: a ratio of all would refute it."""

    def refuse(trials: TrialCount, generator: np.random.Generator) -> int:
        raise ReplayError("the trials of a search are secret, and the ratio of what it releases is not known")

    with ONE_AT_A_TIME:
        draw = TrialCount.draw
        TrialCount.draw = except_in(threads_before(), draw, refuse)  # type: ignore[method-assign]
        try:
            yield
        finally:
            TrialCount.draw = draw  # type: ignore[method-assign]
