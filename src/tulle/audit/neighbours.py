"""Neighbouring data sets on which a method gives away as much as it can.

They are made from the bounds and the loss of a fit alone, so a new method is audited without new code: opposite
gradients at the clip, near-tied supports, extreme rows, empty rows, flat rows, and random rows at the bounds. In some,
the other rows hold weights near 0: noise in the weights then moves no margin so far that the changed row's slope leaves
the clip, and later steps and minimisers move by their whole sensitivity too. A short pilot on each tells which to spend
the runs on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.backends.known_bounds import KnownBounds
from tulle.methods.loss_functions import Loss
from tulle.trusted.events import FloatArray

# Beyond every bound that is estimated and every scale that is learnt.
_FAR = 1e12


@dataclass(frozen=True, eq=False)
class Pair:
    """Two data sets of the same size that differ in their first row, or in the rows of one person, which come first.

    Targets are what the loss wants: numbers, -1 and +1, or class numbers.
    """

    name: str
    X: FloatArray
    y: FloatArray
    X_other: FloatArray
    y_other: FloatArray
    rows_of_person: int = 1

    def __post_init__(self) -> None:
        if differing_rows((self.X, self.y), (self.X_other, self.y_other)) - set(range(self.rows_of_person)):
            first = "first row" if self.rows_of_person == 1 else f"first {self.rows_of_person} rows"
            raise ValueError(
                f"the data sets of the pair {self.name!r} differ beyond their {first} and are not neighbours"
            )

    def kinds(self) -> list[int]:
        """A number for each row: rows of one number are equal, on both data sets."""
        cells = np.column_stack([self.X, self.y, self.X_other, self.y_other])
        return [int(kind) for kind in np.ravel(np.unique(cells, axis=0, return_inverse=True)[1])]

    def world(self, index: int) -> tuple[FloatArray, FloatArray]:
        """Rows and targets of world 0 or 1."""
        return (self.X, self.y) if index == 0 else (self.X_other, self.y_other)


def differing_rows(first: tuple[Any, Any], second: tuple[Any, Any]) -> set[int]:
    """The rows in which two data sets of the same shape differ; dense, sparse or data frames."""
    (X, y), (X_other, y_other) = (
        (rows if sp.issparse(rows) else np.asarray(rows), np.asarray(labels)) for rows, labels in (first, second)
    )
    if X.shape != X_other.shape or y.shape != y_other.shape or X.shape[0] != len(y):
        raise ValueError(
            f"the two data sets differ in shape: {X.shape}, {y.shape} and {X_other.shape}, {y_other.shape}"
        )
    if sp.issparse(X):
        rows_differ = np.asarray(abs(sp.csr_array(X) - sp.csr_array(X_other)).sum(axis=1)).ravel() != 0
    else:
        rows_differ = np.any((X_other != X).reshape(len(X), -1), axis=1)
    labels_differ = np.any((y != y_other).reshape(len(y), -1), axis=1)
    return set(np.flatnonzero(rows_differ | labels_differ).tolist())


def worst_case_pairs(
    loss: Loss,
    bounds: KnownBounds,
    n_rows: int,
    n_features: int,
    *,
    rows_per_person: int = 1,
    random: int = 2,
    seed: int = 0,
    special: bool = False,
    lead: int = 0,
) -> list[Pair]:
    """Pairs that press on one sensitivity each.

    Parameters
    ----------
    loss : Loss
        Its targets: numbers, -1 and +1, or class numbers.
    bounds : KnownBounds
        Rows are made as long and labels as large as these allow (1 where they allow anything).
    n_rows, n_features : int
        Small sizes will do (at least 3 rows): noise is scaled to the sensitivity, at any size. In the pairs whose
        other rows hold weights near 0, more rows hold them better.
    rows_per_person : int, default=1
        At least 1: this many rows, those of one person, differ, each as the one row of a person would.
    random : int, default=2
        How many pairs of random rows to add.
    seed : int, default=0
        For the random pairs.
    special : bool, default=False
        Whether to add pairs for subjects of one kind: random batches, large intercepts, estimated bounds and scales.
    lead : int, default=0
        In [0, n_rows - 4]: for a choice among many features, how many rows raise the first score, so that the first
        feature is chosen about as often as all others together (`even_lead`).
    """
    if not 0 <= lead <= max(0, n_rows - rows_per_person - 3):
        raise ValueError(f"lead must lie in [0, n_rows - 4], got {lead!r}")
    n_rows -= rows_per_person - 1  # of the first person, one row is made here and repeated
    if n_rows < 3:
        raise ValueError(f"an audit needs at least 3 rows, got {n_rows}: one that changes and two others")
    length, entry = (value if value < math.inf else 1.0 for value in (bounds.row_l2, bounds.row_linf))
    if loss.kind == "regression":
        label = bounds.label if bounds.label < math.inf else 1.0
        yes, no = label, -label
    else:
        yes, no = (0.0, 1.0) if loss.n_outputs > 1 else (1.0, -1.0)
    spike = np.zeros((2, n_features))
    spike[0, 0] = spike[1, -1] = min(length, entry)
    flat = np.full(n_features, min(entry, length / math.sqrt(n_features)))
    nothing = np.zeros(n_features)
    empty = np.zeros((n_rows - 1, n_features))
    mixed = np.where(np.arange(n_rows - 1) % 2 == 0, yes, no)  # both classes, for any first row

    k = rows_per_person

    def pair(name: str, rest: FloatArray, labels: FloatArray, *rows: tuple[FloatArray, float]) -> Pair:
        worlds = [(np.vstack([*[x] * k, rest]), np.r_[np.full(k, y), labels]) for x, y in rows]
        return Pair(name, *worlds[0], *worlds[1], k)

    tied = spike[np.arange(n_rows - 1) % 2]
    lifted = np.r_[flat[0], -flat[1:]]
    lifting = np.vstack([np.tile(flat, (n_rows - 2, 1)), nothing])
    leading = np.r_[flat[0], np.zeros(n_features - 1)]
    # Rows like the changed one pull its weights to 0: their labels are 0, or both classes alike. The last row is empty.
    held = np.vstack([np.tile(spike[0], (n_rows - 2, 1)), nothing])
    holding = np.r_[np.zeros(n_rows - 2), yes] if loss.kind == "regression" else mixed
    # Two of them pull a little one way: magnitudes of gradients then move as gradients do.
    leaning = holding.copy()
    leaning[: min(2, n_rows - 2)] = yes
    leaning[-1] = no
    ahead, ahead_labels = lifting.copy(), leaning.copy()
    ahead[-1 - lead : -1], ahead_labels[-1 - lead : -1] = leading, yes
    pairs = [
        pair(
            "a row at the bound with either label, others hold its weight",
            held,
            holding,
            (spike[0], yes),
            (spike[0], no),
        ),
        pair(
            "a row that raises one score and lowers all others, others hold weights",
            ahead,
            ahead_labels,
            (lifted, yes),
            (-lifted, yes),
        ),
        pair("opposite labels on a row at the bound", empty, mixed, (spike[0], yes), (spike[0], no)),
        pair("opposite rows at the bound", empty, mixed, (spike[0], yes), (-spike[0], yes)),
        pair(
            "one row against all others",
            np.tile(spike[0], (n_rows - 1, 1)),
            np.r_[np.full(n_rows - 2, no), yes],
            (spike[0], yes),
            (spike[0], no),
        ),
        pair(
            "one feature lifted and all others lowered",
            lifting,
            np.r_[np.full(n_rows - 2, yes), no],
            (lifted, yes),
            (-lifted, yes),
        ),
        pair("a row far beyond the bounds, or empty", empty, mixed, (1e6 * spike[0], yes), (nothing, yes)),
        pair("an empty row with either label", empty, mixed, (nothing, yes), (nothing, no)),
        pair("opposite flat rows", empty, mixed, (flat, yes), (-flat, yes)),
    ]
    if n_features > 1:
        labels = np.r_[np.full(n_rows - 2, yes), no]
        pairs.append(pair("near-tied features", tied, labels, (spike[0], yes), (spike[1], yes)))
    if special:
        # Of both signs, so that they hold weights; two more of the first. All of one class: a large intercept is right
        # for them, and wrong for the changed row, whose slope is then as large as can be, at weights near 0 as well.
        couples = (n_rows - 3) // 2
        signs = np.r_[1.0, 1.0, np.tile([1.0, -1.0], couples), np.zeros(n_rows - 3 - 2 * couples)]
        pairs += [
            pair("opposite labels, all others empty", empty, np.full(n_rows - 1, no), (spike[0], yes), (spike[0], no)),
            pair(
                "a row that raises one score and lowers all others, wrong by the intercept",
                signs[:, None] * flat,
                np.full(n_rows - 1, yes),
                (lifted, no),
                (-lifted, no),
            ),
            pair(
                "opposite rows and a label far beyond the bounds",
                empty,
                np.zeros(n_rows - 1) if loss.kind == "regression" else mixed,
                (_FAR * spike[0], _FAR * yes if loss.kind == "regression" else yes),
                (-_FAR * spike[0], _FAR * yes if loss.kind == "regression" else yes),
            ),
        ]
    rng = np.random.default_rng(seed)
    for index in range(random):
        rows = rng.choice([-1.0, 1.0], (n_rows + 1, n_features)) * flat
        labels = rng.choice([yes, no], n_rows - 1)
        labels[:2] = yes, no
        pairs.append(pair(f"random rows {index}", rows[2:], labels, (rows[0], yes), (rows[1], no)))
    return pairs


def even_lead(noise: float, n_features: int) -> int:
    """How many rows of `lead` make the first of so many features as likely as all others together.

    Parameters
    ----------
    noise : float
        The scale of the Gumbel noise over the sensitivity of the scores, > 0; 2 / noise is the range of the choice.
    n_features : int
        At least 2.
    """
    # A row at the bound adds half of the sensitivity to a score.
    return round(2 * noise * math.log(n_features - 1))
