"""What a study asks of its clients: chosen by the server, public, and fixed when a client enrols.

Paper: Liang, Tong, Ding, Pan, Bi, "Stochastic privacy-preserving methods for nonconvex sparse learning" (2023),
section 6. In every round each client starts from the server's model and takes K steps on its own rows,

    x <- H_tau( x - eta ( gradient on a batch + noise ) ),

and the server averages what comes back and thresholds it. Batches: DP-FedSGD-HT. All rows of the client in every step:
DP-FedGD-HT. No noise: FedSGD-HT. With snapshots clients take the steps of DP-SCSG-HT (section 5) instead: once a round
the gradient at the server's model on a large batch, with noise, and in each step how a batch's gradient has changed
since, with noise, added to it.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.encoding import ADDED_LATER, encode
from tulle.methods.thresholds import HardThreshold
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Budget, is_number
from tulle.trusted.queries import Query
from tulle.trusted.rows import Rows

# No study needs more steps, or more in one round; a server that asks for more wants to keep a machine busy.
_MOST = 10**7
_MOST_LOCAL_STEPS = 10_000
# Numbers of the server's choice: products of any of them with rows stay within what floats can hold.
_SMALLEST, _LARGEST = 1e-50, 1e50
_LONGEST_NAME = 100
_DIFFERENCE_CLIP = 0.2


@dataclass(frozen=True, eq=False)
class Task(ABC):
    """A client's rows, ready to be asked about. Trusted, as rows are.

    Attributes
    ----------
    rows : Rows
        Checked, coded and clipped.
    public : PublicFacts
        Of these rows: their number is public.
    """

    rows: Rows
    public: PublicFacts

    @abstractmethod
    def gradient(self, at: SparseWeights, clip: float) -> Query:
        """The mean gradient at some public weights, each row's part of it clipped: a query with a sensitivity, for
        batches too."""

    def gradient_change(self, at: SparseWeights, anchor: SparseWeights, clip: float, most: float) -> Query:
        """The mean change of the clipped gradient from public weights `anchor` to public weights `at`, each row's part
        of it clipped again, to `most`: a query with a sensitivity, for batches too. Models with `takes_snapshots`
        alone have one."""
        raise TypeError("models of this kind have no snapshots")


class ModelTerms(ABC):
    """The model to fit. Subclasses are frozen dataclasses that check themselves: they are read off the wire."""

    takes_snapshots: ClassVar[bool] = False  # whether their tasks have a `gradient_change`

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Lines and outputs of the weights."""

    @abstractmethod
    def start(self, n_nonzero: int) -> SparseWeights:
        """Where the first round starts; public."""

    @abstractmethod
    def threshold(self, keep: int) -> HardThreshold:
        """What keeps so many weights."""

    @abstractmethod
    def level(self, clip: float) -> float:
        """The most that one row adds to a gradient, wherever it is taken."""

    @abstractmethod
    def facts(self, n_rows: int, n_features: int, dense: bool, rows_per_person: int) -> PublicFacts:
        """The public facts of a client's rows, by their number and their columns alone; `dense`: whether they are kept
        in a dense array. An error says that the columns are none that such a model has."""

    @abstractmethod
    def task(self, X: Any, y: Any, groups: Any, rows_per_person: int) -> Task:
        """The rows of a client that takes part. Errors are those of `facts`; the content of columns and labels
        never causes one, because the server would learn of it."""


@dataclass(frozen=True)
class Terms:
    """One study.

    Parameters
    ----------
    study : str
        Its name, of 1 to 100 printable characters.
    model : ModelTerms
        The model to fit: `tulle.federated.LinearTerms`, or `tulle.federated.client_side.network_study.NetworkTerms`.
    rounds : int
        R, at least 1: how often each client may be asked.
    local_steps : int
        K, from 1 to 10,000: the steps of a client in a round.
    n_nonzero : int
        τ, at least 1: the weights that the model keeps (of each output).
    step : float
        η, in [1e-50, 1e50].
    clip : float
        In [1e-50, 1e50], or inf without privacy. Linear models: the largest slope kept for a row at its bound.
        Networks: the largest ℓ2 norm of a row's gradient.
    batch : int or None
        Rows of a local step, expected, at least 1; a client with fewer takes all. None: all rows in every step.
    epsilon, delta : float or None
        What each client promises its own people for the whole study; epsilon > 0, delta in (0, 1). None and None: no
        noise, to which no client agrees that was not told to.
    memory : int or None, default=None
        How many weights models between rounds and steps remember, at least `n_nonzero`; gradients are taken at the
        `n_nonzero` largest of them. None: `n_nonzero`, as in the paper.
    penalty : float, default=0.0
        ℓ2 penalty, in [0, 1e50]; outside clipping and noise.
    snapshot_batch : int, "all" or None, default=None
        Linear models: local steps as in DP-SCSG-HT, after a snapshot of the gradient in each round on so many rows,
        expected, at least `batch`; a client with fewer takes all. "all": all rows of a client (DP-SVRG-HT). None: no
        snapshots.
    difference_clip : float, default=0.2
        In (0, 2]: with snapshots, the largest change of a row's slope since the snapshot, in units of `clip`.
    """

    study: str
    model: ModelTerms
    rounds: int
    local_steps: int
    n_nonzero: int
    step: float
    clip: float
    batch: int | None
    epsilon: float | None
    delta: float | None
    memory: int | None = None
    penalty: float = 0.0
    snapshot_batch: int | Literal["all"] | None = field(default=None, metadata=ADDED_LATER)
    difference_clip: float = field(default=_DIFFERENCE_CLIP, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        if not (isinstance(self.study, str) and self.study.isprintable() and 0 < len(self.study) <= _LONGEST_NAME):
            raise ValueError(f"a study's name must have 1 to {_LONGEST_NAME} printable characters, got {self.study!r}")
        if not isinstance(self.model, ModelTerms):
            raise ValueError(f"a study fits linear terms or a network's, not {self.model!r}")
        whole = ("rounds", "local_steps", "n_nonzero", *(name for name in ("batch", "memory") if self._has(name)))
        for name in whole:
            value = getattr(self, name)
            if not (type(value) is int and 1 <= value <= _MOST):
                raise ValueError(f"{name} must be an integer from 1 to {_MOST:,}, got {value!r}")
        if self.local_steps > _MOST_LOCAL_STEPS or self.rounds * self.local_steps > _MOST:
            raise ValueError(f"local_steps must be at most {_MOST_LOCAL_STEPS:,}, and rounds * local_steps {_MOST:,}")
        if self.memory is not None and self.memory < self.n_nonzero:
            raise ValueError(f"memory={self.memory} must be at least n_nonzero={self.n_nonzero}")
        if not (is_number(self.step) and _SMALLEST <= self.step <= _LARGEST):
            raise ValueError(f"step must lie in [{_SMALLEST:g}, {_LARGEST:g}], got {self.step!r}")
        if not (is_number(self.penalty) and 0 <= self.penalty <= _LARGEST):
            raise ValueError(f"penalty must lie in [0, {_LARGEST:g}], got {self.penalty!r}")
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta go together; give both, or neither for a study without privacy")
        unclipped = self.epsilon is None and self.clip == math.inf
        if not (is_number(self.clip) and (unclipped or _SMALLEST <= self.clip <= _LARGEST)):
            raise ValueError(
                f"clip must lie in [{_SMALLEST:g}, {_LARGEST:g}], or be inf where there is no noise, got {self.clip!r}"
            )
        if self.budget is not None and not self.budget.delta > 0:
            raise ValueError("delta must lie strictly between 0 and 1: Gaussian noise needs one")
        self._check_snapshots()

    def _check_snapshots(self) -> None:
        most, large = self.difference_clip, self.snapshot_batch
        if not (is_number(most) and 0 < most <= 2):
            raise ValueError(f"difference_clip must lie in (0, 2], got {most!r}")
        if large is None:
            if most != _DIFFERENCE_CLIP:
                raise ValueError("difference_clip is for studies with snapshots; give snapshot_batch, or leave it out")
            return
        if not self.model.takes_snapshots:
            raise ValueError("snapshot_batch is for linear models; leave it out for a network")
        if self.batch is None:
            raise ValueError("snapshot_batch needs batches of its steps; give batch a number of rows")
        if large != "all" and not (type(large) is int and self.batch <= large <= _MOST):
            raise ValueError(
                f"snapshot_batch must be 'all' or an integer from batch={self.batch:,} to {_MOST:,}, got {large!r}"
            )

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None

    @property
    def budget(self) -> Budget | None:
        """What each client promises; None for nothing."""
        return None if self.epsilon is None or self.delta is None else Budget(self.epsilon, self.delta)

    @property
    def method(self) -> str:
        """The paper's name of it."""
        name = "FedGD-HT" if self.batch is None else "FedSGD-HT"
        if self.snapshot_batch is not None:
            name = "FedSVRG-HT" if self.snapshot_batch == "all" else "FedSCSG-HT"
        return name if self.epsilon is None else f"DP-{name}"

    @property
    def steps(self) -> int:
        """How many steps a client takes at most."""
        return self.rounds * self.local_steps

    def count_snapshot_rows(self, n_rows: int) -> int:
        """The expected rows of a snapshot at a client with so many; 0 without snapshots."""
        if self.snapshot_batch is None:
            return 0
        return n_rows if isinstance(self.snapshot_batch, str) else min(self.snapshot_batch, n_rows)

    @property
    def remembered(self) -> int:
        return self.memory or self.n_nonzero

    @property
    def digest(self) -> str:
        """The study, as clients know it: other terms are another study."""
        return hashlib.sha256(encode(self)).hexdigest()

    def describe(self) -> str:
        """In words, for reports."""
        rows = "all rows of a client" if self.batch is None else f"Poisson batches of about {self.batch:,} rows"
        snapshots = ""
        if self.snapshot_batch is not None:
            large = "all rows" if isinstance(self.snapshot_batch, str) else f"about {self.snapshot_batch:,} rows"
            snapshots = (
                f"; a snapshot on {large} in each round, changes since clipped at {self.difference_clip:.4g} of that"
            )
        return (
            f"{self.method}: {self.rounds:,} rounds of {self.local_steps:,} local steps of size {self.step:.4g} on "
            f"{rows}; {self.n_nonzero:,} weights kept, {self.remembered:,} remembered, clipped at {self.clip:.4g}"
            f"{snapshots}"
        )

    def describe_fully(self) -> str:
        """All that the digest is of, for someone who is to approve it: in words, and then every setting exactly."""
        return describe_settings(self, None if self.budget is None else (self.budget.epsilon, self.budget.delta))


def describe_settings(terms: Any, promise: tuple[float, float] | None) -> str:
    """Terms in words, and then every setting and every setting of the model exactly, one on a line."""
    promised = "there is no noise and no promise: any row may be revealed"
    if promise is not None:
        promised = f"each client promises epsilon = {promise[0]!r}, delta = {promise[1]!r} for the whole study"
    settings = [f"  {one.name} = {getattr(terms, one.name)!r}" for one in fields(terms) if one.name != "model"]
    model = [f"  {one.name} = {getattr(terms.model, one.name)!r}" for one in fields(terms.model)]
    kind = type(terms.model).__name__
    return "\n".join([f"study {terms.study!r}: {terms.describe()}; {promised}", *settings, f"model: {kind}", *model])
