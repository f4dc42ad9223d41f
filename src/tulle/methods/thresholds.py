"""Hard thresholds: the largest magnitudes of noisy weights are kept, the others become zero."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tulle.fast.sparse_weights import SparseWeights
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts

# Where there are more lines, a sample of so many says which ones can be among the largest.
_SAMPLED_LINES = 8192
_PART_LINES = 4096


@dataclass(frozen=True)
class HardThreshold:
    """Keep the `keep` largest magnitudes of each column; lines from `free_from` on are always kept.

    Post-processing. A curator may be given it with a question: noise that cannot pass it is then not drawn
    (`tulle.fast.thresholded_noise`).
    """

    keep: int
    free_from: int

    # Whether `keep` and `free_from` define it, so that noise which cannot pass the border may stay undrawn.
    one_border: ClassVar[bool] = True

    def __call__(self, values: FloatArray) -> FloatArray:
        return keep_largest(values, self.keep, self.free_from)

    def to_sparse(self, values: FloatArray) -> SparseWeights:
        """The kept values, as the lines that are not zero."""
        return keep_largest_sparsely(values, self.keep, self.free_from)

    def sparsely(self, weights: SparseWeights) -> SparseWeights:
        """The same of weights that are zero outside of some lines."""
        features = int(np.searchsorted(weights.lines, self.free_from))
        kept = HardThreshold(self.keep, features)(weights.values)
        return SparseWeights(weights.lines, kept, weights.n_lines).pruned()


@dataclass(frozen=True)
class ThresholdByLayer(HardThreshold):
    """Keep the largest magnitudes of each layer, its share of `keep` being proportional to its size.

    Parameters
    ----------
    keep : int
        Of all layers together, at least one each.
    free_from : int
        Where the layers end; lines from there on are always kept.
    layers : tuple of int
        The lines of each layer, in their order; each at least 1, `free_from` in all.
    """

    layers: tuple[int, ...]

    one_border: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.layers or min(self.layers) < 1 or sum(self.layers) != self.free_from:
            raise ValueError(f"layers of {self.layers} lines do not make {self.free_from} lines")
        if self.keep < len(self.layers):
            raise ValueError(f"keep={self.keep} is too few for {len(self.layers)} layers; keep at least one of each")

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """How many lines each layer keeps."""
        keep = min(self.keep, self.free_from)
        shares = [max(1, keep * size // self.free_from) for size in self.layers]

        def missing(layer: int) -> int:
            """By how much its share falls short of the exact one; in whole numbers, so that all machines agree."""
            return keep * self.layers[layer] - shares[layer] * self.free_from

        while sum(shares) < keep:
            shares[max((k for k, size in enumerate(self.layers) if shares[k] < size), key=missing)] += 1
        while sum(shares) > keep:
            shares[min((k for k in range(len(shares)) if shares[k] > 1), key=missing)] -= 1
        return tuple(shares)

    def _by_layer(self, values: FloatArray, ends: npt.NDArray[np.intp]) -> FloatArray:
        """The largest between each end and the next, and all that comes after the last."""
        parts = np.split(values, ends)
        kept = [HardThreshold(share, len(part))(part) for share, part in zip(self.shares, parts)]
        return np.concatenate([*kept, parts[-1]])

    def __call__(self, values: FloatArray) -> FloatArray:
        return self._by_layer(values, np.cumsum(self.layers))

    def to_sparse(self, values: FloatArray) -> SparseWeights:
        return SparseWeights.from_dense(self(values))

    def sparsely(self, weights: SparseWeights) -> SparseWeights:
        kept = self._by_layer(weights.values, np.searchsorted(weights.lines, np.cumsum(self.layers)))
        return SparseWeights(weights.lines, kept, weights.n_lines).pruned()


@dataclass(frozen=True, eq=False)
class GroupThreshold(HardThreshold):
    """Keep the `keep` groups of lines with the largest ℓ2 norm, of each column, each group as a whole.

    Parameters
    ----------
    keep : int
        Groups, at least 1.
    free_from : int
        Where the grouped lines end; lines from there on are always kept.
    groups : int array of shape (free_from,)
        The number of each line's group, from 0. Public.
    always : tuple of int, default=()
        Groups that are kept in any case, at most `keep`. Public.
    """

    groups: npt.NDArray[np.intp]
    always: tuple[int, ...] = ()

    one_border: ClassVar[bool] = False  # small weights of a group are kept with large ones: all noise must be drawn

    def _by_group(self, values: FloatArray, groups: npt.NDArray[np.intp]) -> FloatArray:
        """The best groups of the first lines, whose groups these are, and all other lines."""
        kept, count = values.copy(), int(self.groups.max(initial=-1)) + 1
        for column in range(values.shape[1]):
            mine = values[: len(groups), column]
            squares = np.bincount(groups, mine**2, minlength=count).astype(np.float64)
            squares[list(self.always)] = np.inf
            kept[: len(groups), column] = np.where(np.isin(groups, largest(squares, self.keep)), mine, 0.0)
        return kept

    def __call__(self, values: FloatArray) -> FloatArray:
        return self._by_group(values, self.groups)

    def to_sparse(self, values: FloatArray) -> SparseWeights:
        return SparseWeights.from_dense(self(values))

    def sparsely(self, weights: SparseWeights) -> SparseWeights:
        features = int(np.searchsorted(weights.lines, self.free_from))
        kept = self._by_group(weights.values, self.groups[weights.lines[:features]])
        return SparseWeights(weights.lines, kept, weights.n_lines).pruned()


def make_threshold(keep: int, n_features: int, groups: npt.NDArray[np.intp] | None) -> HardThreshold:
    """The threshold that keeps so many features, or so many groups of features where they are grouped."""
    return HardThreshold(keep, n_features) if groups is None else GroupThreshold(keep, n_features, groups)


def count_features(keep: int, groups: npt.NDArray[np.intp] | None) -> int:
    """How many features such a threshold keeps, at most."""
    return keep if groups is None else int(np.sort(np.bincount(groups))[::-1][:keep].sum())


def count_groups(features: int, groups: npt.NDArray[np.intp] | None) -> int:
    """How many groups have about so many features, at least one."""
    return features if groups is None else max(round(features * (int(groups.max()) + 1) / len(groups)), 1)


def kept_words(public: PublicFacts, groups: npt.NDArray[np.intp] | None) -> str:
    """Of a threshold, for the report."""
    if groups is None:
        return f"{public.n_nonzero:,} of {public.n_features:,} weights"
    count = int(groups.max()) + 1
    return f"{min(public.n_nonzero, count):,} of {count:,} groups of {public.n_features:,} weights"


def project_on_ball(weights: FloatArray, radius: float) -> FloatArray:
    """The nearest weights of Euclidean norm `radius` at most. Post-processing."""
    return weights * min(1.0, radius / max(float(np.linalg.norm(weights)), 1e-300))


def largest(scores: FloatArray, k: int) -> npt.NDArray[np.intp]:
    """The indices of the k largest scores, in increasing order of index."""
    if k >= len(scores):
        return np.arange(len(scores))
    if k == 0:
        return np.arange(0)
    return np.sort(np.argpartition(scores, len(scores) - k)[len(scores) - k :])


def keep_largest(values: FloatArray, keep: int, free_from: int) -> FloatArray:
    """The `keep` largest magnitudes of each column and all lines from `free_from` on; zero elsewhere."""
    kept = np.zeros_like(values)
    kept[free_from:] = values[free_from:]
    for column, top in enumerate(_largest_of_columns(values[:free_from], keep)):
        kept[top, column] = values[top, column]
    return kept


def keep_largest_sparsely(values: FloatArray, keep: int, free_from: int) -> SparseWeights:
    """The same, as the lines that are not zero: no second array of the size of `values` is made."""
    tops = _largest_of_columns(values[:free_from], keep)
    lines = np.unique(np.concatenate([*tops, np.arange(free_from, len(values))]))
    kept = np.zeros((len(lines), values.shape[1]))
    for column, top in enumerate(tops):
        kept[np.searchsorted(lines, top), column] = values[top, column]
    free = np.searchsorted(lines, free_from)
    kept[free:] = values[free_from:]
    return SparseWeights(lines, kept, len(values)).pruned()


def _largest_of_columns(values: FloatArray, keep: int) -> list[npt.NDArray[np.intp]]:
    """The lines of the `keep` largest magnitudes of each column; fewer where fewer are not zero."""
    candidates = _candidates(values, keep) if 4 * keep < len(values) and len(values) > _SAMPLED_LINES else {}
    found = []
    for column in range(values.shape[1]):
        filled = candidates.get(column)
        if filled is None or len(filled) < keep:
            # Among the non-zeros: numpy's partition is slow on many equal values.
            filled = np.flatnonzero(values[:, column])
        found.append(filled[largest(np.abs(values[filled, column]), keep)])
    return found


def _candidates(values: FloatArray, keep: int) -> dict[int, npt.NDArray[np.intp]]:
    """The lines of each column with a magnitude above a cut, which a sample of the lines says; in most cases at least
    `keep` of them, and then the `keep` largest are among them. One pass over the lines in place of one for each column.
    """
    sample = np.abs(values[:: -(-len(values) // _SAMPLED_LINES)])
    expected = keep * len(sample) / len(values)
    rank = len(sample) - int(expected + 4 * math.sqrt(expected) + 8)
    if rank <= 0:
        return {}
    cut = np.partition(sample, rank, axis=0)[rank]
    usable = np.flatnonzero(cut > 0)  # a cut of 0, or one that is not a number, is none
    cut = np.where(cut > 0, cut, np.inf)
    parts = []
    for start in range(0, len(values), _PART_LINES):  # in parts that a cache holds
        above = np.abs(values[start : start + _PART_LINES]) >= cut
        parts.append(np.flatnonzero(above) + start * values.shape[1])
    lines, columns = np.divmod(np.concatenate(parts), values.shape[1])
    order = np.argsort(columns, kind="stable")
    borders = np.searchsorted(columns[order], np.arange(values.shape[1] + 1))
    split = np.split(lines[order], borders[1:-1])
    return {int(column): split[column] for column in usable}
