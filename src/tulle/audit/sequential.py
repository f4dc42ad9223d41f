"""Audits that stop when they are sure: a test by betting, which may be looked at after every run.

The runs come in rounds. Before each round an attack, its threshold and a bet are chosen on all runs so far, and then
the runs of the round multiply the capital. A true claim lets it reach 1 / (1 - confidence) at any time with probability
1 - confidence at most (Ville), so that it may be looked at all the time. Proof: docs/proofs/audit.md, theorem 7.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from tulle.audit.attacks import ATTACKS, Score, orient
from tulle.audit.betting import FRACTIONS, NO_BET, Bet, best_bet, growth, smoothed_rates
from tulle.audit.claimed_curves import ClaimedCurve, FunctionClaim, read_claim
from tulle.audit.first_runs import check_first_runs
from tulle.audit.judged_runs import check_levels
from tulle.audit.judges import count_above
from tulle.audit.runner import Schedule, Store, Subject, join_runs, run_batches
from tulle.audit.targets import function_runs
from tulle.files.durable_writes import write_durably
from tulle.files.number_text import finite
from tulle.trusted.events import FloatArray
from tulle.trusted.plan import is_number

_LEARNT_FIRST = 16
_SHORTEST, _LONGEST, _PARTS = 8, 1000, 4


@dataclass(frozen=True)
class SequentialResult:
    """What an audit by betting found, so far or in the end.

    Attributes
    ----------
    claim : str
        What was tested.
    capital : float
        The largest capital so far, from 1 at the start: the evidence against the claim.
    confidence : float
    runs : int
        Runs on each data set that were made.
    decided_after : int or None
        Runs on each data set after which the claim was refuted; None where it is not.
    most_runs : int
        Runs on each data set after which the audit gives up.
    attack : str
        The last one on which was bet.
    pair : str
        The two data sets.
    seconds : float
    history : tuple of (int, float)
        Runs and capital after each round.
    """

    claim: str
    capital: float
    confidence: float
    runs: int
    decided_after: int | None
    most_runs: int
    attack: str
    pair: str
    seconds: float
    history: tuple[tuple[int, float], ...]

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, at the stated confidence."""
        return self.decided_after is not None

    @property
    def p_value(self) -> float:
        """One that is valid at any time: the claim, if true, lets it fall to x or below with probability x at most."""
        return min(1.0, 1 / self.capital)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python values."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return plain | {
            "history": [list(step) for step in self.history],
            "refuted": self.refuted,
            "p_value": self.p_value,
        }

    def to_json(self, indent: int | None = 2) -> str:
        """The result as JSON."""
        return json.dumps(finite(self.to_dict()), indent=indent, allow_nan=False)

    def save_page(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Write the result as one self-contained HTML page: the verdict, the evidence over the runs, and what an audit
        does not say.

        Parameters
        ----------
        path : path
        title : str, default=""
            The heading; "" is "Privacy audit by betting".
        """
        from tulle.reports.pages.sequential_page import sequential_page

        write_durably(path, sequential_page(self.to_dict(), title).encode())

    def __str__(self) -> str:
        wanted = 1 / (1 - self.confidence)
        verdict = f"no violation was found in {self.runs:,} runs on each data set"
        if self.refuted:
            verdict = f"THE CLAIM IS FALSE, decided after {self.decided_after:,} runs on each data set"
        rows = (
            ("claim", self.claim),
            ("verdict", verdict),
            ("evidence", f"{self.capital:.4g}; {wanted:.4g} refutes, at confidence {self.confidence:g}"),
            ("attack", self.attack),
            ("worlds", self.pair),
            ("runs", f"{self.runs:,} on each data set were made, {self.most_runs:,} at most"),
            ("time", f"{self.seconds:.1f} s"),
        )
        return "\n".join(["Privacy audit by betting", "=" * 24, *(f"{name:<9} {text}" for name, text in rows)])


def audit_sequentially(
    fit: Callable[[Any, Any, np.random.Generator], Any],
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    *,
    claimed: float | None = None,
    delta: float | None = None,
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    confidence: float = 0.95,
    most_runs: int = 20_000,
    max_differing_rows: int = 1,
    seed: int | None = None,
    n_jobs: int = 1,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> SequentialResult:
    """Audit any function on two neighbouring data sets, and stop as soon as the claim is refuted.

    It may be looked at at any time, stopped, resumed, and given more runs: the confidence holds all the same. It tests
    one claim and bounds nothing; `audit_function` gives a bound.

    Parameters
    ----------
    fit : callable
        fit(X, y, rng) -> array (or number): everything that would be published, always of the same size. A few runs
        that are not counted raise `TargetError` as in `audit_function`.
    first, second : tuple (X, y)
        Two data sets of the same shape that differ in at most `max_differing_rows` rows.
    claimed : float or None, default=None
        The epsilon that is claimed at `delta`. Pass one claim: this or one of the three below.
    delta : float or None, default=None
        In [0, 1), with `claimed`.
    claimed_mu, claimed_range, claimed_curve
        As in `audit_function`; a curve must be a list of pairs (epsilon, delta).
    confidence : float, default=0.95
        In (0, 1). A true claim is refuted with probability 1 - confidence at most, however often the audit is looked
        at.
    most_runs : int, default=20_000
        Runs on each data set after which the audit gives up, at least 24; the first 16 choose the first attack. A
        folder may be resumed with a larger number.
    max_differing_rows : int, default=1
        What counts as neighbouring.
    seed, n_jobs, folder
        As in `audit_function`.
    seconds : float or None, default=None
        No round of runs is begun that would end later; the first one, of 16 runs, is always made.
    verbose : int, default=0
        1 shows the capital after each round on standard error.

    Returns
    -------
    SequentialResult
    """
    claim = read_bet(claimed, delta, claimed_mu, claimed_range, claimed_curve)
    subject, what = function_runs(fit, first, second, max_differing_rows)
    check_bets(claim, confidence, most_runs)
    check_first_runs(
        fit, subject.worlds, Schedule(int(most_runs), 1, seed, n_jobs, seconds, folder, verbose), until_sure=True
    )
    return bet_on_runs(
        subject,
        claim,
        what,
        confidence=confidence,
        most_runs=most_runs,
        seed=seed,
        n_jobs=n_jobs,
        seconds=seconds,
        folder=folder,
        verbose=verbose,
    )


def bet_on_runs(
    subject: Subject,
    claim: ClaimedCurve,
    what: str,
    *,
    confidence: float = 0.95,
    most_runs: int = 20_000,
    seed: int | None = None,
    n_jobs: int = 1,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> SequentialResult:
    """Run a subject in two worlds and bet against a claim until it is refuted or the runs are used up."""
    check_bets(claim, confidence, most_runs)
    start = time.monotonic()
    # No number of runs: it may be raised later. The claim: bets against another one are another test.
    kept = {"subject": f"{subject.fingerprint()}, bets against {claim.text}", "batch": "rounds", "runs": "until sure"}
    store = Store(folder, seed, kept)
    gambler, made, begun = _Gambler(claim, confidence), 0, time.monotonic()
    for number, size in enumerate(_rounds(int(most_runs))):
        is_new = not (store.has(0, number) and store.has(1, number))
        # A round is not stopped halfway: none is begun that would take too long at the speed of those before.
        if is_new and made and seconds is not None:
            now = time.monotonic()
            if now - start + size * (now - begun) / made > seconds:
                break
        if is_new and not made:
            begun = time.monotonic()
        gambler.add(*_run_round(subject, store, number, size, n_jobs))
        made += size if is_new else 0
        if verbose:
            text = f"\r{what}: {gambler.runs} runs, evidence {gambler.largest:.3g} of {1 / (1 - confidence):.3g} "
            print(text, end="", file=sys.stderr, flush=True)
        if gambler.decided_after is not None:
            break
    if verbose:
        print(file=sys.stderr)
    return SequentialResult(
        claim=claim.text,
        capital=gambler.largest,
        confidence=confidence,
        runs=gambler.runs,
        decided_after=gambler.decided_after,
        most_runs=int(most_runs),
        attack=gambler.attack,
        pair=what,
        seconds=time.monotonic() - start,
        history=tuple(gambler.history),
    )


def read_bet(
    claimed: float | None, delta: float | None, mu: float | None, span: float | None, curve: Any
) -> ClaimedCurve:
    """The one claim that was passed, where a delta belongs to an epsilon alone."""
    claim = read_claim(claimed=claimed, delta=delta, claimed_mu=mu, claimed_range=span, claimed_curve=curve)
    if claimed is None and delta is not None:
        raise ValueError("delta belongs to claimed, an epsilon; a mu, a range or a curve has none: omit delta")
    return claim


def check_bets(claim: ClaimedCurve, confidence: float, most_runs: int) -> None:
    """Raise, before any run, for a claim that cannot be bet against, a confidence or a number of runs out of range."""
    check_levels(confidence, 0.0)
    if isinstance(claim, FunctionClaim):
        raise ValueError(
            "a bet needs lines that touch the claimed curve, and a function does not say them: pass claimed_curve as a "
            "list of (epsilon, delta), or use audit_function with judge='curve'"
        )
    if not (is_number(most_runs) and _LEARNT_FIRST + _SHORTEST <= most_runs < math.inf):
        raise ValueError(f"most_runs must be at least {_LEARNT_FIRST + _SHORTEST}, got {most_runs!r}")


def _rounds(most_runs: int) -> Iterator[int]:
    """The sizes of the rounds: a quarter of the runs so far. None is cut short: more runs can be added later."""
    made, size = 0, _LEARNT_FIRST
    while made + size <= most_runs:
        yield size
        made += size
        size = _PARTS * (min(max(made // 4, _SHORTEST), _LONGEST) // _PARTS)


def _run_round(subject: Subject, store: Store, number: int, size: int, n_jobs: int) -> tuple[FloatArray, FloatArray]:
    """What one round released in the two worlds, from the folder where it is there."""
    missing = [world for world in (0, 1) if not store.has(world, number)]
    parts = [(world, size // _PARTS, (2, world, number, part)) for world in missing for part in range(_PARTS)]
    answers = run_batches(subject, parts, store.seed, n_jobs)
    found: dict[int, FloatArray] = {}
    for place, world in enumerate(missing):
        found[world] = join_runs(answers[place * _PARTS : (place + 1) * _PARTS])
        store.save(world, number, found[world])
    first, second = (found[world] if world in found else store.load(world, number) for world in (0, 1))
    return first, second


class _Gambler:
    """The capital, and everything that the next bet is chosen on: the runs so far."""

    def __init__(self, claim: ClaimedCurve, confidence: float) -> None:
        self.claim = claim
        self.target = -math.log(1 - confidence)
        self.decided_after: int | None = None
        self.attack = "none yet"
        self.history: list[tuple[int, float]] = []
        self.largest = 1.0
        self._logs = np.zeros(len(FRACTIONS))
        self._rounds: list[tuple[FloatArray, FloatArray]] = []

    @property
    def runs(self) -> int:
        return sum(len(first) for first, _ in self._rounds)

    def add(self, first: FloatArray, second: FloatArray) -> None:
        """Bet on the event that looked best on earlier rounds, and then show the new round."""
        before = self.runs
        join_runs([first[:1], second[:1], *(one[:1] for one, _ in self._rounds[-1:])])  # checks the sizes
        score, threshold, swapped, bet = self._choose_bet()
        if bet.size > 0:
            scores, other = orient(score, first, second, swapped)
            logs = self._logs[:, None] + np.cumsum(bet.log_factors(scores >= threshold, other >= threshold), axis=1)
            capitals = logsumexp(logs, axis=0) - math.log(len(FRACTIONS))
            self._logs = logs[:, -1]
            self.largest = max(self.largest, math.exp(min(float(capitals.max()), 700.0)))
            reached = np.flatnonzero(capitals >= self.target)
            if len(reached) and self.decided_after is None:
                self.decided_after = before + int(reached[0]) + 1
        self._rounds.append((first, second))
        capital = float(logsumexp(self._logs)) - math.log(len(FRACTIONS))
        self.history.append((self.runs, math.exp(min(capital, 700.0))))

    def _choose_bet(self) -> tuple[Score, float, bool, Bet]:
        """The event whose bet would have grown fastest: fitted on every other run so far, chosen on the rest."""
        nothing: tuple[Score, float, bool, Bet] = (lambda runs: runs[:, 0], 0.0, False, NO_BET)
        if not self._rounds:
            return nothing
        past = [np.concatenate(world) for world in zip(*self._rounds)]
        clean = _cleaner(past[0], past[1])
        first, second = (clean(world) for world in past)
        best, chosen = 0.0, nothing
        for name, fit in ATTACKS.items():
            fitted = fit(first[::2], second[::2])
            for swapped in (False, True):
                scores, other = orient(fitted, first[1::2], second[1::2], swapped)
                thresholds = np.unique(np.quantile(np.concatenate([scores, other]), _QUANTILES, method="higher"))
                hit_rates, false_rates = (
                    smoothed_rates(count_above(world, thresholds), len(world)) for world in (scores, other)
                )
                speeds = growth(self.claim, hit_rates, false_rates)
                place = int(np.argmax(speeds))
                if speeds[place] > best:
                    best, self.attack = float(speeds[place]), name
                    bet = best_bet(self.claim, float(hit_rates[place]), float(false_rates[place]))
                    chosen = (_after(clean, fitted), float(thresholds[place]), swapped, bet)
        return chosen


_QUANTILES = np.unique(np.concatenate([np.linspace(0, 1, 41), 1 - np.geomspace(1e-3, 0.1, 10)]))


def _after(clean: Score, score: Score) -> Score:
    return lambda runs: score(clean(runs))


def _cleaner(first: FloatArray, second: FloatArray) -> Score:
    """Zeros for numbers that are not finite, and a column that marks them where one was met: they can be the leak."""
    met = ~(np.isfinite(first).all(axis=0) & np.isfinite(second).all(axis=0))

    def clean(runs: FloatArray) -> FloatArray:
        usable = np.isfinite(runs)
        return np.hstack([np.where(usable, runs, 0.0), ~usable[:, met]])

    return clean
