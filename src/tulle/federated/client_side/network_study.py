"""Neural networks of a study: any `torch.nn.Module` whose code is installed at the client; only its name travels.

A row's part of the answer is the gradient of its own loss with respect to all weights together, clipped in ℓ2. The
sensitivity relies on the clip level alone, so it holds for any network. Adjacency is replace-one.

Floating point needs more care than for linear models. Kernels of a batch round a row's numbers in ways that depend on
the shape of the batch and on the row's place in it, and at the kink of a relu a change in the last bit turns a whole
gradient around: if one row's presence moved all others to new places, they could all change. Hence

- everything is computed in float64, in chunks of one public shape, with empty places where there is no row;
- a row has a place in its chunk that is fixed by its number (`network_rows`). Which other rows there are decides at
  most in which of the equal chunks it is looked at, never where in it.

No operation mixes rows of a chunk, so what a row adds to the sum is a function of that row, its place and public
quantities: the same numbers to the last bit in any company. Sums of what rows add are the curator's to allow for
(`tulle.trusted.curator.summation_slack`), and `NetworkGradient` adds a margin of its own.
"""

from __future__ import annotations

from tulle.federated.client_side.network_registry import NETWORKS, Network, RowLoss, make_network

# First: its message says what to install where PyTorch is missing.
from tulle.methods.loss_functions import facts_without_model

# isort: split
import copy
import math
import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tulle.fast.install import install
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.terms import ModelTerms, Task
from tulle.methods.thresholds import HardThreshold, ThresholdByLayer
from tulle.trusted import intake
from tulle.trusted.clipped_sum import LEAST_FACTOR, bound_change
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Sensitivity
from tulle.trusted.queries import Query, vouch_for_query
from tulle.trusted.rows import Block, Rows

install()

# "cpu" or "cuda": where gradients are computed.
DEVICE_VARIABLE = "TULLE_TORCH_DEVICE"

# Places are numbered below this, a multiple of every chunk's length.
_PLACES = 2048

# Of the clip level: what the part of any other row is allowed to change by in other company. By construction it does
# not; in float64 it would be about 2^-50 where no kink is near, also in batches that are far larger than expected.
_COMPANY = 2.0**-40


# --- public settings -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NetworkTerms(ModelTerms):
    """The public settings of a network, known before anybody's rows are seen.

    Parameters
    ----------
    architecture : str
        A name in `NETWORKS`; see `register_network`.
    n_classes : int
        Outputs of the network: at least 2, or at least 1 where targets are numbers. Labels are 0 to n_classes - 1; rows
        with another one count as nothing.
    seed : int, default=0
        In [0, 2^63). Public: the random start.
    by_layer : bool, default=False
        Whether each layer (parameter tensor) keeps a share of its weights that is proportional to its size, rather than
        the largest of all layers together.
    """

    architecture: str
    n_classes: int
    seed: int = 0
    by_layer: bool = False

    def __post_init__(self) -> None:
        if self.architecture not in NETWORKS:
            raise ValueError(
                f"there is no network {self.architecture!r} here, but {sorted(NETWORKS)}; add it with register_network"
            )
        least = 2 if self.network.loss.of_labels else 1
        if not (type(self.n_classes) is int and self.n_classes >= least):
            raise ValueError(f"n_classes must be an integer >= {least}, got {self.n_classes!r}")
        if not (type(self.seed) is int and 0 <= self.seed < 2**63):
            raise ValueError(f"seed must be an integer from 0 to 2^63 - 1, got {self.seed!r}")
        if not isinstance(self.by_layer, bool):
            raise ValueError(f"by_layer is True or False, not {self.by_layer!r}")

    @property
    def network(self) -> Network:
        return NETWORKS[self.architecture]

    @property
    def module(self) -> nn.Module:
        """The module as it starts, in float64. Not to be changed."""
        return make_network(self.network, self.architecture, self.seed)

    @property
    def layers(self) -> tuple[int, ...]:
        """The number of weights of each parameter tensor, in the module's order."""
        return tuple(parameter.numel() for parameter in self.module.parameters())

    @property
    def shape(self) -> tuple[int, int]:
        return sum(self.layers), 1

    def start(self, n_nonzero: int) -> SparseWeights:
        weights = torch.cat([parameter.flatten() for parameter in self.module.parameters()])
        return self.threshold(n_nonzero).sparsely(SparseWeights.from_dense(weights.numpy()[:, None]))

    def threshold(self, keep: int) -> HardThreshold:
        total = self.shape[0]
        if self.by_layer:
            return ThresholdByLayer(min(keep, total), total, self.layers)
        return HardThreshold(min(keep, total), total)

    def level(self, clip: float) -> float:
        return clip

    def facts(self, n_rows: int, n_features: int, dense: bool, rows_per_person: int) -> PublicFacts:
        if not dense:
            raise ValueError("a network's rows are a dense array; these are sparse")
        if n_rows < 2:
            raise ValueError("at least two rows are needed")
        self._try_rows_of(n_features)
        return facts_without_model(n_rows, n_features, rows_per_person)

    def task(self, X: Any, y: Any, groups: Any, rows_per_person: int) -> NetworkTask:
        X, y = np.asarray(X), intake.read_numbers(intake.read_cells(y, "y"))
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise ValueError(f"a network's rows are a dense array of numbers of shape (n, d), got {X.dtype} {X.shape}")
        if y.shape != X.shape[:1]:
            raise ValueError(f"{len(X):,} rows need as many targets, got the shape {y.shape}")
        if not np.isfinite(X).all():
            raise ValueError("rows must be finite: there is a NaN or an infinity among them")
        public = self.facts(len(X), X.shape[1], True, rows_per_person)
        known = np.isfinite(y)
        if self.network.loss.of_labels:
            known &= (y >= 0) & (y < self.n_classes) & (y == np.floor(y))
        if groups is not None:
            known &= intake.select_first_rows(groups, rows_per_person)
        targets = np.where(known, y, 0).astype(np.float64)
        return NetworkTask(network_rows(X, targets, known), public, self)

    def _try_rows_of(self, n_features: int) -> None:
        """Raise unless the network takes such rows and has gradients of single ones; no private row is looked at."""
        rows = torch.zeros(2, n_features, dtype=torch.float64)
        targets = torch.zeros(2, dtype=torch.int64 if self.network.loss.of_labels else torch.float64)
        try:
            outputs = copy.deepcopy(self.module)(rows)
            if outputs.shape == (2, self.n_classes):
                self._gradients(torch.device("cpu"), self.start(self.shape[0]))(rows, targets)
        except Exception as error:  # any error of a module about rows that it does not take
            raise ValueError(f"{self.architecture!r} does not take rows of {n_features:,} numbers: {error}") from None
        if outputs.shape != (2, self.n_classes):
            raise ValueError(
                f"{self.architecture!r} answers 2 rows with the shape {tuple(outputs.shape)}, not (2, {self.n_classes})"
            )

    def _gradients(self, device: torch.device, weights: SparseWeights) -> Callable[[Tensor, Tensor], Tensor]:
        """A function of a chunk of rows and its targets: the gradient of each row's loss, of shape (rows, weights)."""
        if self.network.in_layers:
            return partial(_gradients_in_layers, network_of(self, weights).to(device), self.network.loss)
        module = copy.deepcopy(self.module).to(device)  # a copy: `functional_call` changes it, and there are threads
        at = _split(module, torch.from_numpy(weights.to_dense()[:, 0]).to(device))
        loss = self.network.loss.value

        def one(parameters: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
            return loss(functional_call(module, parameters, (row[None],))[0], target)

        of_all = vmap(grad(one), in_dims=(None, 0, 0))

        def gradients(rows: Tensor, targets: Tensor) -> Tensor:
            parts = of_all(at, rows, targets)
            return torch.cat([parts[name].reshape(len(rows), -1) for name in at], dim=1)

        return gradients


def _gradients_in_layers(module: nn.Module, loss: RowLoss, rows: Tensor, targets: Tensor) -> Tensor:
    """The gradient of each row's loss in a network of layers, of shape (rows, weights): slopes of the losses in what a
    layer gives, times what it takes. No product is of two rows.
    """
    taken: list[tuple[nn.Linear | nn.Conv2d, Tensor]] = []
    given: list[Tensor] = []
    at = rows
    with torch.enable_grad():
        for layer in module.children():
            before, at = at, layer(at)
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                taken.append((layer, before.detach()))
                given.append(at.requires_grad_())
        losses = vmap(loss.value)(at, targets)
        slopes = torch.autograd.grad(losses.sum(), given)
    gradients = rows.new_empty(len(rows), sum(parameter.numel() for parameter in module.parameters()))
    end = 0
    for (layer, before), slope in zip(taken, slopes):
        weight, bias = layer.weight, layer.bias
        start, middle, end = end, end + weight.numel(), end + weight.numel() + bias.numel()
        if isinstance(layer, nn.Conv2d):
            # Every patch of an image that the kernel looks at, one a line.
            patches = before.unfold(2, weight.shape[2], layer.stride[0]).unfold(3, weight.shape[3], layer.stride[1])
            patches = patches.permute(0, 2, 3, 1, 4, 5).reshape(len(rows), -1, weight[0].numel())
            slope = slope.flatten(2)
            gradients[:, start:middle] = torch.bmm(slope, patches).flatten(1)
            slope = slope.sum(dim=2)
        else:
            own = gradients[:, start:middle].unflatten(1, weight.shape)
            torch.mul(slope[:, :, None], before[:, None, :], out=own)
        gradients[:, middle:end] = slope
    return gradients


def _split(module: nn.Module, weights: Tensor) -> dict[str, Tensor]:
    """One long vector as the parameters of a module."""
    parameters = dict(module.named_parameters())
    parts = torch.split(weights, [parameter.numel() for parameter in parameters.values()])
    return {name: part.reshape(parameters[name].shape) for name, part in zip(parameters, parts)}


# --- private rows ----------------------------------------------------------------------------------------------------


def network_rows(X: npt.NDArray[Any], targets: FloatArray, active: npt.NDArray[np.bool_] | None = None) -> Rows:
    """Rows as `NetworkGradient` wants them: with the place of each, by its number, in a further column.

    Parameters
    ----------
    X : array of shape (n, d)
    targets : array of shape (n,)
    active : boolean array of shape (n,) or None, default=None
        Rows that count; None means all.
    """
    exact = np.float32 if X.dtype == np.float32 or X.dtype.itemsize == 1 else np.float64
    return Rows(np.column_stack([X.astype(exact), (np.arange(len(X)) % _PLACES).astype(exact)]), targets, active)


@dataclass(frozen=True, eq=False)
class NetworkTask(Task):
    """Rows of a network's study."""

    terms: NetworkTerms

    def gradient(self, at: SparseWeights, clip: float) -> NetworkGradient:
        return NetworkGradient(self.terms, at, clip)


def device() -> torch.device:
    """Where gradients are computed: the environment's TULLE_TORCH_DEVICE, the processor by default."""
    return torch.device(os.environ.get(DEVICE_VARIABLE, "cpu"))


def _same_algorithms(where: torch.device) -> AbstractContextManager[None]:
    """While it lasts, cuDNN takes the algorithm that it would take for any rows, and one that has no races."""
    if where.type == "cpu":
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)


@dataclass(frozen=True, eq=False)
class _Chunks:
    """Rows in their places.

    Attributes
    ----------
    rows : tensor of shape (chunks, length, d)
    targets, filled : tensors of shape (chunks, length)
        `filled`: where there is a row.
    """

    rows: Tensor
    targets: Tensor
    filled: Tensor


# Arrays that are already on an accelerator, of blocks that are used again and again (full batches). The block's own
# norms are kept with them: a block that was clipped since has others.
_on_device: weakref.WeakKeyDictionary[Block, tuple[FloatArray, Any, _Chunks]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class NetworkGradient(Query):
    """The mean over rows, all or a batch, of gradients of the loss at public weights, each clipped in ℓ2.

    Parameters
    ----------
    terms : NetworkTerms
    weights : SparseWeights of shape (n_parameters, 1)
        Where the gradients are taken; already public.
    clip : float
        In (0, inf]. Longer gradients (over all parameters together) are scaled down to it. A gradient that is not
        finite counts as nothing, as do rows without a label of the study.
    """

    terms: NetworkTerms
    weights: SparseWeights
    clip: float

    def __post_init__(self) -> None:
        if self.weights.shape != self.terms.shape:
            raise ValueError(f"the network has weights of the shape {self.terms.shape}, not {self.weights.shape}")
        if not self.clip > 0:
            raise ValueError(f"clip must be a number > 0, got {self.clip!r}")

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        # Replaced: rows_per_unit parts of norm <= clip become others. All other parts stay as they are (see above);
        # the factor would allow each of them to move by 2^-40 of the clip level all the same.
        return Sensitivity(l2=bound_change(self.clip, public) * (1.0 + _COMPANY * public.n_rows))

    def one_unit(self, public: PublicFacts) -> float:
        return self.sensitivity(public).l2 / 2

    def size(self, public: PublicFacts) -> float:
        return self.clip

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        total: FloatArray = rows.reduce(partial(self._contribution, public=public))
        return total / public.n_rows

    def _contribution(self, block: Block, public: PublicFacts) -> FloatArray:
        where = device()
        chunks = self._chunks(block, public, where)
        total = torch.zeros(self.terms.shape[0], dtype=torch.float64, device=where)
        gradients = self.terms._gradients(where, self.weights)
        with _same_algorithms(where):
            for rows, targets, filled in zip(chunks.rows, chunks.targets, chunks.filled):
                total += _clipped_sum(gradients(rows, targets), filled, self.clip)
        return np.asarray(total.cpu().numpy()[:, None], dtype=np.float64)

    def _chunks(self, block: Block, public: PublicFacts, where: torch.device) -> _Chunks:
        length = _chunk_length(public.n_rows, self.terms.shape[0], where)
        if where.type == "cpu":
            return self._placed(block, public, length, where)
        norms, key = block.norms("l2"), (self.terms, public.n_features, length, where)
        known = _on_device.get(block)
        if known is None or known[0] is not norms or known[1] != key:
            known = _on_device[block] = (norms, key, self._placed(block, public, length, where))
        return known[2]

    def _placed(self, block: Block, public: PublicFacts, length: int, where: torch.device) -> _Chunks:
        """The rows that count, each at its place of the first chunk in which that is free."""
        d, of_labels = public.n_features, self.terms.network.loss.of_labels
        columns, targets = block.columns(np.arange(d + 1)), block.targets
        counted = block.active & np.isfinite(targets)
        if of_labels:  # behind the checks of `task` a row with another label counts as nothing rather than raise
            counted &= (targets >= 0) & (targets < self.terms.n_classes)
        numbers = np.flatnonzero(counted)
        places = columns[numbers, d].astype(np.intp) % length
        order = np.argsort(places, kind="stable")
        numbers, places = numbers[order], places[order]
        chunk = np.arange(len(places)) - np.searchsorted(places, places)
        shape = (int(chunk.max(initial=-1)) + 1, length)
        at = tuple(torch.from_numpy(index).to(where) for index in (chunk, places))
        # Rows travel to an accelerator as they are, without the empty places between them.
        given = torch.from_numpy(np.ascontiguousarray(columns[numbers, :d])).to(where, torch.float64)
        own = torch.from_numpy(targets[numbers]).to(where, torch.int64 if of_labels else torch.float64)
        return _Chunks(*(_put(values, at, shape) for values in (given, own, torch.ones_like(own, dtype=torch.bool))))


vouch_for_query(NetworkGradient)


def _put(values: Tensor, at: tuple[Tensor, ...], shape: tuple[int, int]) -> Tensor:
    """The values in their places, zeros elsewhere."""
    return values.new_zeros((*shape, *values.shape[1:])).index_put_(at, values)


def _chunk_length(n_rows: int, n_parameters: int, where: torch.device) -> int:
    """How many places a chunk has: a power of two, from public quantities alone.

    A random batch needs as many chunks as its most wanted place has rows. A processor is quick with few rows at a time,
    so that most places can be filled; an accelerator wants fewer and longer chunks: short ones take it as long.
    """
    longer = max(n_rows / 4, min(n_rows, 256))
    wanted, most_bytes = (n_rows / 16, 2**27) if where.type == "cpu" else (longer, 2**31)
    most = min(_PLACES, max(1, most_bytes // (8 * n_parameters)))
    if where.type == "cpu":
        most = min(most, 128)
    return 1 << int(math.log2(min(most, max(16.0, wanted))))


def _clipped_sum(gradients: Tensor, filled: Tensor, clip: float) -> Tensor:
    """The sum of rows of `gradients`, each scaled down to `clip`; those that are not finite count as nothing."""
    largest = torch.linalg.vector_norm(gradients, math.inf, dim=1)  # NaN where an entry is
    counted = filled & torch.isfinite(largest)
    gradients = torch.where(counted[:, None], gradients, 0.0)
    # In units of the largest entry: squares must not vanish or overflow, so that a long gradient never looks short.
    unit = torch.where(counted & (largest > 0), largest, 1.0)
    lengths = torch.linalg.vector_norm(gradients / unit[:, None], dim=1)
    norms = unit * lengths * (1.0 + 2.0**-52 * gradients.shape[1])
    factors = torch.where(norms <= clip, 1.0, clip / norms)
    return torch.where(factors < LEAST_FACTOR, 0.0, factors) @ gradients


# --- what comes out --------------------------------------------------------------------------------------------------


def network_of(terms: NetworkTerms, weights: SparseWeights) -> nn.Module:
    """The network with these weights, in float64 and evaluation mode.

    Parameters
    ----------
    terms : NetworkTerms
    weights : SparseWeights of shape `terms.shape`
    """
    if weights.shape != terms.shape:
        raise ValueError(f"the network has weights of the shape {terms.shape}, not {weights.shape}")
    module = copy.deepcopy(terms.module)
    module.load_state_dict(_split(module, torch.from_numpy(weights.to_dense()[:, 0])), strict=False)
    return module


def predictions(terms: NetworkTerms, weights: SparseWeights, X: Any) -> FloatArray:
    """The network's outputs for some rows, of shape (n, n_classes).

    Parameters
    ----------
    terms : NetworkTerms
    weights : SparseWeights of shape `terms.shape`
    X : array of shape (n, d)
    """
    where = device()
    module = network_of(terms, weights).to(where)
    with torch.no_grad():
        parts = [
            module(torch.from_numpy(np.asarray(X[start : start + 1024], dtype=np.float64)).to(where)).cpu().numpy()
            for start in range(0, len(X), 1024)
        ]
    return np.concatenate([np.zeros((0, terms.n_classes)), *parts])


def accuracy(terms: NetworkTerms, weights: SparseWeights, X: Any, y: Any) -> float:
    """The share of rows whose class has the largest output, in [0, 1].

    Parameters
    ----------
    terms : NetworkTerms
    weights : SparseWeights of shape `terms.shape`
    X : array of shape (n, d)
    y : array of int, shape (n,)
    """
    return float(np.mean(predictions(terms, weights, X).argmax(axis=1) == np.asarray(y)))
