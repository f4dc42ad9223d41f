"""Replay: run a fit on some rows, give the same noisy answers to the fit of other rows, and compare.

A private fit is a conversation: the next question depends on the noisy answers so far. Given the answers of the first
data set, a sound fit asks the same questions about the second one and shows the same result, errors, warnings and log
lines: a difference did not come through a billed answer. And on neighbouring data sets each exact answer may differ by
the stated sensitivity at most. No statistics are involved: one replay takes two fits, and what it finds is certain.

>>> import numpy as np
>>> from tulle.audit import replay
>>> def fit(X, y, ask):  # the stated sensitivity is that of a sum over rows in [0, 1], but rows are not clipped
...     return ask("sum", X.sum(axis=0), sensitivity=1.0, noise=lambda exact, rng: exact + rng.normal(size=exact.shape))
>>> X, y = np.array([[0.5], [0.25]]), np.zeros(2)
>>> result = replay(fit, (X, y), (np.array([[9.0], [0.25]]), y))
>>> result.sound, [round(change.ratio, 6) for change in result.changes]
(False, [8.5])
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tulle.audit.neighbours import differing_rows
from tulle.audit.visible import ReplayError, differences, watch
from tulle.fast.scores_on_demand import FollowedScores
from tulle.fast.thresholded_noise import SparseAnswer
from tulle.trusted.clipped_sum import compute_scores
from tulle.trusted.curator import Curator
from tulle.trusted.events import FloatArray
from tulle.trusted.mechanisms import (
    Exact,
    Gaussian,
    Laplace,
    Mechanism,
    NoisyMax,
    ObjectivePerturbation,
    Sensitivity,
    TopK,
)
from tulle.trusted.objectives import PenalisedSum
from tulle.trusted.sampling import Sampler

Norm = Literal["l1", "l2", "linf"]

NOT_FOR_RELEASE = "Not for release: exact answers about the rows are shown here, for the holder of the rows alone."

# Answers are sums with public weights that may be much longer; the rounding of that sum is billed elsewhere.
_ROUNDING = 2.0**-50


# --- what was found --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Change:
    """How far one exact answer moved from the first data set to the second.

    Attributes
    ----------
    name : str
        The mechanism, or the name that was passed to `ask`.
    moved, allowed : float
        The distance, and the stated sensitivity, in the norm that the noise is scaled by.
    norm : {"l1", "l2", "linf"}
    exact, other : array or None
        The exact answers, which are not private. None where a gradient of an objective was compared.
    """

    name: str
    moved: float
    allowed: float
    norm: Norm
    exact: FloatArray | None = None
    other: FloatArray | None = None

    @property
    def ratio(self) -> float:
        """The distance in units of the sensitivity; more than 1 is a violation."""
        if self.allowed > 0:
            return self.moved / self.allowed
        return math.inf if self.moved else 0.0

    def __str__(self) -> str:
        text = f"{self.name}: moved by {self.moved:.6g} in {self.norm}, sensitivity {self.allowed:.6g}"
        if self.exact is None or self.other is None:
            return text
        shown = [np.array2string(answer.ravel(), precision=6, threshold=6) for answer in (self.exact, self.other)]
        return f"{text}; exact answers {shown[0]} and {shown[1]}"


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """What a replay found. It holds exact answers: it is for the holder of the rows, and must not be published.

    Attributes
    ----------
    changes : tuple of Change
        One for each answer; empty where the data sets are not compared as neighbours.
    differences : tuple of str
        What a caller sees of one fit and not of the other, with the same noisy answers.
    answers : int
        Noisy answers of the first fit.
    """

    changes: tuple[Change, ...]
    differences: tuple[str, ...]
    answers: int

    @property
    def sound(self) -> bool:
        """Whether nothing differed and no answer moved by more than its sensitivity. It is no proof of privacy: other
        rows may show a difference, and that the noise suffices is not tested."""
        return not self.differences and all(change.ratio <= 1 for change in self.changes)

    @property
    def worst(self) -> float:
        """The largest change of an exact answer, in units of its sensitivity."""
        return max((change.ratio for change in self.changes), default=0.0)

    def __str__(self) -> str:
        wrong = [change for change in self.changes if not change.ratio <= 1]
        lines = ["Replay", "======", NOT_FOR_RELEASE, f"{self.answers} answers; worst change {self.worst:.6g} of 1"]
        lines += [f"VIOLATION: {change}" for change in wrong]
        lines += [f"VISIBLE DIFFERENCE: {text}" for text in self.differences]
        if self.sound:
            lines.append("no difference was found on these two data sets; this does not prove privacy")
        return "\n".join(lines)


# --- recording and playing -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Answer:
    """What a mechanism was given, and what it released."""

    key: tuple[str, Any]
    exact: Any
    sensitivity: Any
    released: Any


class Ask(Protocol):
    """How code without mechanisms of tulle asks for a noisy answer."""

    rng: np.random.Generator

    def __call__(
        self,
        name: str,
        exact: npt.ArrayLike,
        *,
        sensitivity: float,
        noise: Callable[[FloatArray, np.random.Generator], Any],
        norm: Norm = "l2",
    ) -> Any: ...


# Hooks are set in classes: of two replays at once, each would take the hooks of the other for the originals, and one
# would leave its own in place, with known noise for all later fits of the process.
ONE_AT_A_TIME = threading.RLock()


def threads_before() -> frozenset[threading.Thread]:
    """All threads that run now, except this one: their fits keep their own noise while hooks are set."""
    return frozenset(threading.enumerate()) - {threading.current_thread()}


class Recording:
    """The answers of one fit: recorded in `record`, given again in `play`.

    Hooks are set for the whole process, by one thread at a time. They leave threads alone that ran before.

    Parameters
    ----------
    note : callable or None
        Called with each change of an exact answer. None: the rows are unrelated and exact answers are not compared.
        Noise is then also drawn in `play`, and not used: drawing it must show nothing either.
    noise : Generator or None
        The source of the noise of `record`. None: always the same.
    """

    def __init__(self, note: Callable[[Change], None] | None = None, noise: np.random.Generator | None = None) -> None:
        self._note, self._noise = note, noise
        self._answers: list[_Answer] = []
        self._played: int | None = None
        self._inside = False
        self._asked = ""  # the release of the plan that is asked for
        self.mismatch: ReplayError | None = None

    def __len__(self) -> int:
        return len(self._answers)

    @contextlib.contextmanager
    def record(self) -> Iterator[Ask]:
        with self._hooks() as ask:
            yield ask

    @contextlib.contextmanager
    def play(self) -> Iterator[Ask]:
        self._played = 0
        with self._hooks() as ask:
            yield ask

    def finish(self) -> None:
        """Raise unless all answers were played, also where the fit went on after a mismatch."""
        if self.mismatch is not None:
            raise self.mismatch
        if self._played != len(self._answers):
            raise ReplayError(f"{self._played} answers were asked for, and {len(self._answers)} on the first rows")

    @contextlib.contextmanager
    def _hooks(self) -> Iterator[Ask]:
        # How much randomness an answer takes may depend on rows: noise is drawn from a source of its own, and so are
        # batches, which are the same in both fits.
        noise = np.random.default_rng(5) if self._noise is None else self._noise
        batches = np.random.default_rng(7)
        with ONE_AT_A_TIME:
            kinds = list(_with_own_release(Mechanism))  # type: ignore[type-abstract]
            releases, draw, ask = [kind.release for kind in kinds], Sampler.draw, Curator.ask
            others = threads_before()
            for kind, release in zip(kinds, releases):
                kind.release = except_in(others, release, self._in_place_of(release, noise))  # type: ignore[method-assign]
            drawn = lambda sampler, generator: draw(sampler, batches)  # noqa: E731
            Sampler.draw = except_in(others, draw, drawn)  # type: ignore[method-assign]
            Curator.ask = except_in(others, ask, self._naming(ask))  # type: ignore[method-assign]
            try:
                yield _OwnAnswers(self, noise)
            finally:
                for kind, release in zip(kinds, releases):
                    kind.release = release  # type: ignore[method-assign]
                Sampler.draw, Curator.ask = draw, ask  # type: ignore[method-assign]

    def _naming(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        def named(curator: Curator, name: str, query: Any, then: Any = None) -> Any:
            before, self._asked = self._asked, name
            try:
                return ask(curator, name, query, then)
            finally:
                self._asked = before

        return named

    def _in_place_of(self, release: Callable[..., Any], noise: np.random.Generator) -> Callable[..., Any]:
        def answer(mechanism: Mechanism, exact: Any, sensitivity: Sensitivity, generator: Any, then: Any) -> Any:
            if self._inside:  # one mechanism calls another
                return release(mechanism, exact, sensitivity, generator, then)
            copied = None if self._note is None else copy_exact(exact, mechanism)
            compare = partial(self._compare, mechanism)
            draw = partial(release, mechanism, exact, sensitivity, noise, then)
            name = f"{self._asked} ({type(mechanism).__name__})"
            return self.answer((name, mechanism), copied, sensitivity, draw, compare)

        return answer

    def answer(
        self,
        key: tuple[str, Any],
        exact: Any,
        sensitivity: Any,
        draw: Callable[[], Any],
        compare: Callable[[Any, Any, Any], Iterator[Change]],
    ) -> Any:
        """A new answer, or the one that was recorded in its place."""
        self._inside = True
        try:
            if self._played is None:
                self._answers.append(_Answer(key, exact, sensitivity, draw()))
                return copy.deepcopy(self._answers[-1].released)
            if self._note is None:
                draw()
            known = self._next(key)
            if self._note is not None:
                if known.sensitivity != sensitivity:
                    raise self._mismatch(f"the sensitivity of {key[0]} depends on rows")
                for change in compare(known.exact, exact, sensitivity):
                    self._note(change)
            return copy.deepcopy(known.released)
        finally:
            self._inside = False

    def _next(self, key: tuple[str, Any]) -> _Answer:
        assert self._played is not None
        if self._played == len(self._answers):
            raise self._mismatch(f"more was asked than on the first rows: {key[0]}")
        known = self._answers[self._played]
        if known.key != key:
            raise self._mismatch(f"{key[0]} was asked in the place of {known.key[0]}")
        self._played += 1
        return known

    def _mismatch(self, text: str) -> ReplayError:
        self.mismatch = self.mismatch or ReplayError(text)
        return self.mismatch

    def _compare(self, mechanism: Mechanism, known: Any, exact: Any, sensitivity: Sensitivity) -> Iterator[Change]:
        if isinstance(mechanism, Exact):  # no promise
            return
        if isinstance(mechanism, ObjectivePerturbation):
            yield from _compare_objectives(known, exact, sensitivity)
            return
        norm: Norm = "l2" if isinstance(mechanism, Gaussian) else "l1" if isinstance(mechanism, Laplace) else "linf"
        if norm == "linf" and not isinstance(mechanism, (TopK, NoisyMax)):
            raise self._mismatch(f"the norm of {mechanism} is not known")
        yield self.compare_arrays(type(mechanism).__name__, norm, known, exact, getattr(sensitivity, norm))

    def compare_arrays(self, name: str, norm: Norm, known: Any, exact: Any, allowed: float) -> Change:
        if known.shape != exact.shape:
            raise self._mismatch(f"the shape of {name} depends on rows")
        if not (np.isfinite(known).all() and np.isfinite(exact).all()):
            raise self._mismatch(f"{name} is not finite")
        length = _NORMS[norm]
        moved = length(known - exact) - _ROUNDING * max(length(known), length(exact))
        return Change(name, max(0.0, moved), allowed, norm, known, exact)


class _OwnAnswers:
    """The `ask` of code that has mechanisms of its own."""

    def __init__(self, recording: Recording, noise: np.random.Generator) -> None:
        self._recording, self._noise = recording, noise
        self.rng = np.random.default_rng(11)  # for randomness that is no noise: the same in both fits

    def __call__(
        self,
        name: str,
        exact: npt.ArrayLike,
        *,
        sensitivity: float,
        noise: Callable[[FloatArray, np.random.Generator], Any],
        norm: Norm = "l2",
    ) -> Any:
        if norm not in _NORMS:
            raise ValueError(f"norm must be one of {', '.join(_NORMS)}, got {norm!r}")
        values = np.array(exact, dtype=float)

        def compare(known: Any, other: Any, allowed: float) -> Iterator[Change]:
            yield self._recording.compare_arrays(name, norm, known, other, allowed)

        return self._recording.answer(
            (name, norm), values, float(sensitivity), lambda: noise(values.copy(), self._noise), compare
        )


def except_in(others: frozenset[threading.Thread], original: Callable[..., Any], hook: Callable[..., Any]) -> Any:
    """The hook, and the original in these threads."""

    def called(*arguments: Any, **named: Any) -> Any:
        return (original if threading.current_thread() in others else hook)(*arguments, **named)

    return called


def _with_own_release(mechanism: type[Mechanism]) -> Iterator[type[Mechanism]]:
    if "release" in vars(mechanism):
        yield mechanism
    for kind in mechanism.__subclasses__():
        yield from _with_own_release(kind)


def copy_exact(answer: Any, mechanism: Mechanism) -> Any:
    """The exact answer as an array of its own, or an objective that the mechanism perturbs."""
    if isinstance(answer, PenalisedSum):
        return answer if isinstance(mechanism, ObjectivePerturbation) else answer.to_dense()
    if isinstance(answer, FollowedScores):
        return compute_scores(answer._follower.sums(), answer._kind)[:, None] * answer._reach
    return np.array(answer.to_dense() if isinstance(answer, SparseAnswer) else answer)


def _compare_objectives(one: PenalisedSum, other: PenalisedSum, sensitivity: Sensitivity) -> Iterator[Change]:
    """Gradients of both at some points, and whether both minimisers are as exact as they are said to be."""
    rng, none = np.random.default_rng(0), np.zeros(one.shape)
    assert sensitivity.objective is not None
    for far in (0.0, 1e-3, 1.0, 1e3):
        theta = one.centre + far * rng.standard_normal(one.shape)
        # Without the penalty, which is the same for both and so large far out that its rounding would hide rows.
        sums = [of.parts.sum(partial(of.terms.gradient, theta=theta), none) for of in (one, other)]
        # Both gradients are rounded, by an eighth of the tolerance at most.
        yield Change("gradient", _length(sums[0] - sums[1]), sensitivity.objective.gradient + one.tolerance, "l2")
    for objective in (one, other):
        left = _length(objective._gradient(objective.minimise(none), none))
        yield Change("certificate", left, 1.25 * objective.tolerance, "l2")


def _length(vector: Any) -> float:
    """The ℓ2 norm, also of numbers so small or large that their squares are none."""
    largest = float(np.abs(vector).max(initial=0.0))
    return largest * float(np.linalg.norm(np.asarray(vector).ravel() / largest)) if largest else 0.0


_NORMS: dict[str, Callable[[Any], float]] = {
    "l1": lambda change: float(np.abs(change).sum()),
    "l2": _length,
    "linf": lambda change: float(np.abs(change).max(initial=0.0)),
}


# --- the tool --------------------------------------------------------------------------------------------------------


def replay(
    fit: Callable[[Any, Any, Ask], Any],
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    *,
    show: Callable[[Any], Mapping[str, Any]] | None = None,
    max_differing_rows: int | None = 1,
    seconds: float | None = 60.0,
) -> ReplayResult:
    """Run a fit on two data sets with the same noisy answers, and compare questions and everything visible.

    For the holder of the rows: the result shows exact answers about both data sets.

    Parameters
    ----------
    fit : callable
        fit(X, y, ask) -> everything that would be published. Either it uses estimators or mechanisms of tulle, whose
        answers are recorded without further ado, and ignores `ask`; or it asks for every noisy answer by
        ``ask(name, exact, sensitivity=..., noise=..., norm="l2")``, where ``noise(exact, rng)`` returns the noisy
        answer and `norm` ("l1", "l2" or "linf") is that of the sensitivity. Random numbers that are no noise, such as
        who is in a batch, come from ``ask.rng``, or from a seed that is the same in both calls.
    first, second : tuple (X, y)
        Two data sets of the same shape.
    show : callable or None, default=None
        show(what fit returned) -> dict of what a caller sees, by name. None: a dict is taken as it is, of an object
        with get_params() its attributes are compared, and anything else is one value.
    max_differing_rows : int or None, default=1
        At most so many rows may differ. None is for unrelated rows: exact answers are not compared then.
    seconds : float or None, default=60
        A fit that takes longer has failed: one row must not decide whether a fit ends. None is no limit. The limit
        needs a POSIX system and the main thread.

    Returns
    -------
    ReplayResult
    """
    if max_differing_rows is not None:
        differing = len(differing_rows(first, second))
        if differing > max_differing_rows:
            raise ValueError(
                f"the data sets differ in {differing} rows and are not neighbours; at most {max_differing_rows} may. "
                "Pass max_differing_rows=None to compare everything visible of unrelated rows"
            )
    changes: list[Change] = []
    recording = Recording(None if max_differing_rows is None else changes.append)
    with recording.record() as ask:
        one = watch(partial(fit, *first, ask), show or _attributes, seconds=seconds)
    found = []
    try:
        with recording.play() as ask:
            other = watch(partial(fit, *second, ask), show or _attributes, seconds=seconds)
        found = differences(one, other)
        recording.finish()
    except ReplayError as mismatch:
        found.append(str(mismatch))
    return ReplayResult(tuple(changes), tuple(found), len(recording))


def _attributes(result: Any) -> Mapping[str, Any]:
    if isinstance(result, Mapping):
        return result
    return vars(result) if hasattr(result, "get_params") else {"result": result}
