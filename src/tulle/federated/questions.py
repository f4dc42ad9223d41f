"""What a trusted aggregator asks of clients, and what they answer: data, never code.

A question is a method of a query (or of the solver's terms) with its keywords. `tulle.federated.question_data` lists
every one that a client answers, with the shape that its answer has; the method that is run is the one that is installed
at the client. Own classes (losses, queries, mechanisms) cannot travel, and are refused before anything is sent.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.accounting.zcdp import AnyBudget
from tulle.backends.rows_elsewhere import NoTargets
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.encoding import encode
from tulle.federated.messages import Refused, check_name
from tulle.federated.question_data import (
    DERIVED,
    OF_PARTS,
    OF_ROWS,
    ROW_FUNCTIONS,
    Allowed,
    Expected,
    Question,
    Scattered,
    pack,
)
from tulle.methods import loss_functions
from tulle.methods.loss_functions import Loss
from tulle.methods.published_noise import NoiseWithoutProof
from tulle.trusted import mechanisms
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.intake import AsNumbers, ClassCodes
from tulle.trusted.losses import CONVEX
from tulle.trusted.plan import Budget, Plan, Release, is_number
from tulle.trusted.sampling import Sampling

_MOST_PLANS = 16
_MOST_CLIPS = 8

# How the sums of blocks, and of clients, are put together.
COMBINED: dict[str, Callable[[Any, Any], Any]] = {"sum": operator.add, "largest": max}


# --- questions -------------------------------------------------------------------------------------------------------


def question_of(function: Callable[..., Any], allowed: Mapping[tuple[type, str], Allowed]) -> tuple[Question, Expected]:
    """A function of blocks or parts as data, and the shape of its answer.

    Raises
    ------
    TypeError
        Where clients would not answer it. Nothing was sent.
    """
    asked = function if isinstance(function, partial) else partial(function)
    keywords = asked.keywords
    of, method = getattr(asked.func, "__self__", None), getattr(asked.func, "__name__", "")
    entry = allowed.get((type(of), method))
    if entry is None or set(keywords) != set(entry.keywords) or asked.args:
        raise TypeError(
            f"clients are sent no code, and have none for {type(of).__name__}.{method}; use one of tulle's own methods"
        )
    question = Question(pack(of), method, tuple(sorted(keywords.items())))
    check_can_travel(question)
    return question, entry.expected(of, **keywords)


# --- messages: the server's ------------------------------------------------------------------------------------------


def _check_id(fit: Any) -> None:
    if not (isinstance(fit, str) and re.fullmatch("[0-9a-f]{32}", fit)):
        raise ValueError("a fit is known by 32 hexadecimal digits")


def _check_whole(least: int, *numbers: Any) -> None:
    if not all(type(number) is int and least <= number < 2**53 for number in numbers):
        raise ValueError("a whole number is out of its range")


def check_plan(plan: Any, rows_per_unit: int) -> None:
    """Raise unless a plan is one that prices can be worked out for.

    Its classes do not look at all of this: what they are made of in a fit comes from methods, and here from a server.
    """
    if not (isinstance(plan, Plan) and isinstance(plan.releases, tuple) and isinstance(plan.preliminary, tuple)):
        raise ValueError("no plan")
    if type(plan.together) is not bool:
        raise ValueError("a plan says by True or False how its parts are composed")
    for release in plan:
        if not (
            isinstance(release, Release) and isinstance(release.name, str) and type(release.mechanism) in MECHANISMS
        ):
            raise ValueError("a plan holds releases by tulle's own mechanisms")
        if not (isinstance(release.name, str) and len(release.name) <= 100):
            raise ValueError("a release has a short name")
        _check_whole(0, release.count)
        mechanism = release.mechanism
        if not (isinstance(mechanism.noise, NoisePerSensitivity) and is_number(mechanism.noise.value)):
            raise ValueError("noise is a number")
        for name in ("k", "columns"):
            _check_whole(1, getattr(mechanism, name, 1))
        for name in ("candidates", "rows"):
            _check_whole(0, getattr(mechanism, name, 0))
        if not getattr(mechanism, "log_determinant", 0.0) >= 0:
            raise ValueError("a log-determinant is a number >= 0")
        sampling = mechanism.sampling
        if sampling is not None:
            if not isinstance(sampling, Sampling):
                raise ValueError("batches are drawn by a Sampling")
            _check_whole(1, sampling.n_rows, sampling.batch, sampling.rows_per_unit)
        unit = getattr(mechanism if sampling is None else sampling, "rows_per_unit", rows_per_unit)
        if unit != rows_per_unit:
            raise ValueError("a plan for other units than the fit's")
    if not any(release.count for release in plan):
        raise ValueError("a plan that releases nothing needs no sums")


@dataclass(frozen=True)
class Opening:
    """A fit: everything that it can release, and about whom.

    Attributes
    ----------
    nonce : str
        Drawn for this fit: the same fit run again is another one.
    what : str
        Words for the clients' ledgers.
    plans : tuple of Plan
        Those that the answers to preliminary questions can lead to; the dearest is billed.
    delta : float
    rows_per_unit : int
    """

    nonce: str
    what: str
    plans: tuple[Plan, ...]
    delta: float
    rows_per_unit: int

    def __post_init__(self) -> None:
        _check_id(self.nonce)
        if not (isinstance(self.what, str) and self.what.isprintable() and 0 < len(self.what) <= 100):
            raise ValueError("the name of the fit must have 1 to 100 printable characters")
        _check_whole(1, self.rows_per_unit)
        if not (isinstance(self.plans, tuple) and 0 < len(self.plans) <= _MOST_PLANS):
            raise ValueError(f"a fit has 1 to {_MOST_PLANS} plans")
        for plan in self.plans:
            check_plan(plan, self.rows_per_unit)
        if not (is_number(self.delta) and 0 <= self.delta < 1):
            raise ValueError("delta lies in [0, 1)")

    @property
    def fit(self) -> str:
        """Its name: a digest of all of it, so that one name cannot stand for two plans."""
        return hashlib.sha256(encode(self)).hexdigest()[:32]


@dataclass(frozen=True)
class AskShape:
    """How many rows and features have you?"""


@dataclass(frozen=True)
class AskLabels:
    """Which class labels have you?"""


@dataclass(frozen=True)
class AskSign:
    """Is any of your targets below zero?"""


@dataclass(frozen=True)
class AskPrice:
    """Would you bill this fit?"""

    opening: Opening


@dataclass(frozen=True)
class OpenFit:
    """Bill this fit, and answer its questions from now on."""

    opening: Opening


@dataclass(frozen=True)
class SettleFit:
    """This is the plan that the fit settled on in view of its preliminary answers."""

    fit: str
    plan: Plan


@dataclass(frozen=True)
class CloseFit:
    """The fit is over. Answer nothing more of it, ever."""

    fit: str

    def __post_init__(self) -> None:
        _check_id(self.fit)


@dataclass(frozen=True)
class Clip:
    """One step of making rows obey their bounds: a method of `tulle.trusted.rows.Rows`, and what it is called with."""

    how: str
    bounds: tuple[Any, ...]

    def __post_init__(self) -> None:
        count = {"clip_entries": 1, "clip_rows": 3, "clip_targets": 2}.get(self.how)
        if count != len(self.bounds) or not all(isinstance(bound, (bool, int, float)) for bound in self.bounds):
            raise ValueError("rows are clipped by tulle's own means only")


@dataclass(frozen=True, eq=False)
class Clipped:
    """Which rows a question is about: targets by a code, clipped step by step, and of these some or all."""

    code: ClassCodes | AsNumbers | NoTargets
    clips: tuple[Clip, ...]
    numbers: npt.NDArray[np.intp] | None

    def __post_init__(self) -> None:
        if not isinstance(self.code, (ClassCodes, AsNumbers, NoTargets)):
            raise ValueError("targets are coded by tulle's own means only")
        if len(self.clips) > _MOST_CLIPS or not all(isinstance(clip, Clip) for clip in self.clips):
            raise ValueError("rows are clipped by tulle's own means only")


@dataclass(frozen=True, eq=False)
class _Asked:
    """A question of a fit. Its number comes back with the answer."""

    fit: str
    number: int
    question: Question

    def __post_init__(self) -> None:
        _check_id(self.fit)
        _check_whole(0, self.number)
        if not (isinstance(self.question, Question) and isinstance(self.question.method, str)):
            raise ValueError("no question")


@dataclass(frozen=True, eq=False)
class AskRows(_Asked):
    """A sum over rows, or the largest of something."""

    rows: Clipped
    combined: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.combined not in COMBINED or not isinstance(self.rows, Clipped):
            raise ValueError("no question about rows")


@dataclass(frozen=True, eq=False)
class MakeParts(_Asked):
    """Make something of your rows and keep it, under this number, for sums over it."""

    rows: Clipped

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.rows, Clipped):
            raise ValueError("no question about rows")


@dataclass(frozen=True, eq=False)
class AskParts(_Asked):
    """A sum over the parts that were made under a number."""

    parts: int


# --- messages: the clients' ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Said:
    """Said by a client."""

    client: str

    def __post_init__(self) -> None:
        check_name(self.client)


@dataclass(frozen=True)
class Shape(_Said):
    n_rows: int
    n_features: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_whole(1, self.n_rows, self.n_features)


@dataclass(frozen=True, eq=False)
class Labels(_Said):
    """The distinct labels: numbers, or words."""

    labels: npt.NDArray[Any] | tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        words = isinstance(self.labels, tuple) and all(isinstance(label, str) for label in self.labels)
        if not words and not (isinstance(self.labels, np.ndarray) and self.labels.ndim == 1):
            raise ValueError("labels are numbers or words")
        if not len(self.labels):
            raise ValueError("there are no labels")


@dataclass(frozen=True)
class Sign(_Said):
    """Whether any target is below zero; None where targets are words."""

    negative: bool | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.negative is None or isinstance(self.negative, bool)):
            raise ValueError("a sign is true or false")


@dataclass(frozen=True)
class Done(_Said):
    """Yes: the fit is accepted, billed, settled or closed."""

    fit: str


@dataclass(frozen=True, eq=False)
class Summed(_Said):
    """The answer to the question of this number; None where something was made and kept."""

    fit: str
    number: int
    value: Any


@dataclass(frozen=True)
class NotOpen(_Said):
    """No such fit is open here: it was never opened, or the client was started again."""

    fit: str


@dataclass(frozen=True)
class Forgotten(_Said):
    """The parts of this number are not held here any more."""

    fit: str
    parts: int


# --- what may be in messages -----------------------------------------------------------------------------------------

MECHANISMS: tuple[type, ...] = (
    mechanisms.Gaussian,
    mechanisms.SampledGaussian,
    mechanisms.Laplace,
    mechanisms.TopK,
    mechanisms.GumbelMax,
    GumbelOnDemand,
    mechanisms.LaplaceMax,
    mechanisms.PermuteAndFlip,
    mechanisms.ObjectivePerturbation,
    mechanisms.Exact,
    NoiseWithoutProof,
)
LOSSES: tuple[type, ...] = (*loss_functions.LOSSES.values(), loss_functions.Softmax, loss_functions.OneVsRest)

# What a client understands.
MESSAGES: tuple[type, ...] = (
    AskShape,
    AskLabels,
    AskSign,
    AskPrice,
    OpenFit,
    SettleFit,
    CloseFit,
    AskRows,
    MakeParts,
    AskParts,
)
# What a client says.
REPLIES: tuple[type, ...] = (Shape, Labels, Sign, Done, Summed, NotOpen, Forgotten, Refused)

_ASKED = {cls for cls, _ in (*OF_ROWS, *DERIVED, *OF_PARTS)}
_PARTS: tuple[type, ...] = (
    Opening,
    Plan,
    Release,
    NoisePerSensitivity,
    Sampling,
    AnyBudget,  # of a fit within a rho, which does not travel: clients need the epsilon and delta alone
    Budget,
    PublicFacts,
    SparseWeights,
    *MECHANISMS,
    *LOSSES,
)
_CODES: tuple[type, ...] = (ClassCodes, AsNumbers, NoTargets, Clip, Clipped, Question, Scattered, *ROW_FUNCTIONS)

# What may be in a message to a client, and in its reply.
CLASSES: tuple[type, ...] = (
    *MESSAGES,
    *_PARTS,
    *MECHANISMS,
    *LOSSES,
    *CONVEX,
    *_CODES,
    *sorted(_ASKED, key=lambda cls: cls.__name__),
)
REPLY_CLASSES: tuple[type, ...] = (*REPLIES, SparseWeights)


def check_can_travel(value: Any) -> None:
    """Raise unless everything in a message is of a class that clients know; nothing has been sent then.

    By class, not by name: a class of somebody's own can have a name that clients know.
    """
    if isinstance(value, tuple):
        for item in value:
            check_can_travel(item)
    elif isinstance(value, Loss) and type(value) not in LOSSES:
        raise TypeError(
            f"the loss {value!r} is not one of tulle's own, and clients run only code that is installed there; use "
            f"one of {sorted(loss_functions.LOSSES)}"
        )
    elif is_dataclass(value):
        if type(value) not in CLASSES:
            raise TypeError(
                f"{type(value).__name__} is not one of tulle's own classes that clients know, and they run only code "
                "that is installed there"
            )
        for part in fields(value):
            check_can_travel(getattr(value, part.name))
    elif value is not None and not isinstance(value, (bool, int, float, str, np.generic, np.ndarray)):
        raise TypeError(f"{value!r} cannot be sent to clients, which run only code that is installed there")


def portable(code: ClassCodes | AsNumbers | NoTargets | None) -> ClassCodes | AsNumbers | NoTargets:
    """How targets are coded, as data.

    Raises
    ------
    TypeError
        Where it is code.
    """
    if code is None:
        return AsNumbers()
    if isinstance(code, ClassCodes):
        classes = np.asarray(code.classes)
        return code if classes.dtype.kind in "biuf" else ClassCodes(tuple(map(str, classes.tolist())), code.numbers)
    if isinstance(code, (AsNumbers, NoTargets)):
        return code
    raise TypeError(f"clients are sent no code, and {code!r} is code")
