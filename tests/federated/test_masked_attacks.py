"""What a malicious server and colluding clients try on one honest client of a masked study, and must not get."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from masked_house import D, Hospitals, answer, join_all, make_study, question, refused, said, seat_of

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side import masked_query
from tulle.federated.client_side.linear_study import linear_terms
from tulle.federated.masked_terms import Accepted, Begin, EndStudy
from tulle.federated.question_data import ROW_FUNCTIONS, pack
from tulle.methods.row_functions import (
    FeaturesAndTarget,
    LossSlopes,
    RootsOfMoments,
    RowWeights,
    SlopeChanges,
    SquaredMargins,
)
from tulle.trusted.clipped_sum import ClippedSum

pytestmark = pytest.mark.usefixtures("no_power_cuts")


@pytest.fixture
def hospitals(tmp_path: Path) -> Hospitals:
    return Hospitals(tmp_path)


def test_a_key_that_is_a_twin_of_an_honest_ones_takes_no_mask_away(hospitals: Hospitals) -> None:
    """Ada colludes, and signs Cyd's key with its highest bit changed, which X25519 does not read. Ben's secrets with
    both would be the same, and of Ben's two streams one is added and one is subtracted."""
    clients = {name: hospitals.start(name) for name in ("ada", "ben", "cyd")}
    terms = hospitals.terms()
    seats = {name: seat_of(client, terms) for name, client in clients.items()}
    key = bytearray.fromhex(seats["cyd"].key)
    key[31] ^= 0x80
    unsigned = replace(seats["ada"], key=key.hex())
    seats["ada"] = replace(unsigned, signature=hospitals.identity("ada").sign(unsigned.statement).hex())
    study = make_study(terms, list(seats.values()))
    for name in ("ben", "cyd"):
        assert isinstance(said(clients[name], Begin(study)), Accepted)
    alone = answer(clients["ben"], question(study))
    assert np.abs(alone.values.astype(float)).max() > 2.0**55


def test_a_client_that_was_started_again_forgets_its_key_at_the_end_too(hospitals: Hospitals) -> None:
    study = join_all(hospitals.start_all(), hospitals.terms())
    key = hospitals.folder / "ada" / "state" / f"{study.terms.digest}.mask-key"
    assert key.exists()
    again = hospitals.start("ada")
    said(again, EndStudy(study.digest))
    assert not key.exists()
    refused(said(again, question(study)), "not enrolled")


def test_the_end_of_a_study_that_a_client_does_not_know_leaves_nothing_behind(hospitals: Hospitals) -> None:
    client = hospitals.start("ada")
    said(client, EndStudy("0" * 64))
    assert not list((hospitals.folder / "ada" / "state").glob("*"))


# --- queries of odd types --------------------------------------------------------------------------------------------

LINES = D + 1
WEIGHTS = np.zeros((LINES, 1))
GRADIENT = ClippedSum(LossSlopes(WEIGHTS), (LINES, 1), 0.5, intercept_value=1.0)
EACH = replace(GRADIENT, norm="each")
MOMENTS = RootsOfMoments(np.arange(2), 1.0, np.zeros(3), "slope", 1.0)


def wrapping_units() -> np.ndarray:
    """Squares of all but one of these wrap around to zero: noise for 1, and entries of up to 2^32 times the level."""
    units = np.full(LINES, 2**32, dtype=np.int64)
    units[0] = 1
    return units


def unchecked(**fields: Any) -> ClippedSum:
    """A sum that refuses to be made here, as a server could write its bytes."""
    query = copy.copy(EACH)
    for name, value in fields.items():
        object.__setattr__(query, name, value)
    return query


ODD: list[Any] = [
    unchecked(units=wrapping_units()),
    unchecked(units=np.full(LINES, 1e-170), level=1e120),
    unchecked(units=np.full(LINES, 1e101)),
    unchecked(coordinates=np.array([True])),
    replace(EACH, coordinates=np.array([1, 2])),
    replace(EACH, coordinates=np.array([[1]])),
    replace(GRADIENT, support=np.ones((LINES, 1))),
    replace(GRADIENT, level=np.array([1], dtype=np.int64)),
    replace(GRADIENT, level=True),
    replace(GRADIENT, level=float("inf")),
    replace(GRADIENT, intercept_value=True),
    unchecked(shape=(float(LINES), 1)),
    unchecked(shape=(LINES, 1, 1)),
    unchecked(shape=np.array([LINES, 1])),
    replace(GRADIENT, norm="L2"),
    replace(GRADIENT, times="twice"),
    replace(GRADIENT, in_batches=1),
    replace(GRADIENT, times="one", non_negative=1),
    replace(GRADIENT, path=1.0),
    replace(GRADIENT, row_function=LossSlopes(np.zeros(LINES))),
    replace(GRADIENT, row_function=LossSlopes(np.zeros((LINES, 40)))),
    replace(GRADIENT, row_function=LossSlopes(np.zeros((LINES, 1), dtype=np.int64))),
    replace(GRADIENT, row_function=LossSlopes(SparseWeights.zeros(LINES, 2))),
    replace(GRADIENT, row_function=LossSlopes(WEIGHTS + 1e20)),
    replace(GRADIENT, row_function=LossSlopes(WEIGHTS + np.nan)),
    replace(GRADIENT, row_function=LossSlopes(SparseWeights.from_dense(WEIGHTS + 1e20))),
    replace(GRADIENT, row_function=SlopeChanges(WEIGHTS, WEIGHTS + 1e20, (1.0, 1.0))),
    replace(GRADIENT, row_function=SlopeChanges(WEIGHTS, WEIGHTS[:-1], (1.0, 1.0))),
    replace(GRADIENT, row_function=SlopeChanges(WEIGHTS, WEIGHTS, (1.0,))),
    replace(GRADIENT, row_function=SquaredMargins(np.ones(LINES))),
    replace(GRADIENT, row_function=SquaredMargins(WEIGHTS, 1)),
    replace(GRADIENT, row_function=FeaturesAndTarget(np.array([-1]), 1.0, 1.0)),
    replace(GRADIENT, row_function=FeaturesAndTarget(np.array([0]), 1.0, np.ones(40))),
    replace(GRADIENT, row_function=FeaturesAndTarget(np.array([True]), 1.0, 1.0)),
    # No masked method asks for them, and they have margins of their own.
    replace(GRADIENT, row_function=MOMENTS, shape=(6, 1), times="itself"),
]


def test_queries_of_odd_types_are_refused_before_any_row_is_looked_at(hospitals: Hospitals) -> None:
    clients = hospitals.start_all()
    study = join_all(clients, hospitals.terms())
    asked = question(study)
    for odd in ODD:
        refused(said(clients["ada"], replace(asked, query=odd)), "malformed")
    assert not clients["ada"].masked.answered(study.digest)


def test_a_constant_column_needs_a_line_of_the_weights() -> None:
    """Blocks in memory would take the last feature's weight for it, and batches none: a row's slope would depend on
    whether its batch holds all rows."""
    without = linear_terms(D, step=1.0, classes=("a", "b"), row_l2=2.0, fit_intercept=False)
    query = ClippedSum(LossSlopes(np.zeros((D, 1))), (D, 1), 0.5)
    assert masked_query.is_query(query, without)
    assert not masked_query.is_query(replace(query, shape=(LINES, 1), intercept_value=1.0), without)


def test_queries_of_the_right_types_are_answered(hospitals: Hospitals) -> None:
    model = hospitals.terms().model
    some = np.ones((LINES, 1), dtype=bool)
    right = [
        GRADIENT,
        EACH,
        replace(GRADIENT, level=1, support=some),
        replace(EACH, units=np.ones(LINES), coordinates=np.array([2])),
        replace(GRADIENT, row_function=LossSlopes(SparseWeights.zeros(LINES, 1)), in_batches=True),
        replace(GRADIENT, row_function=RowWeights()),
        replace(GRADIENT, row_function=SlopeChanges(WEIGHTS, WEIGHTS, (1.0, 1.0))),
        replace(GRADIENT, row_function=SquaredMargins(WEIGHTS), shape=(1, 1), times="one", non_negative=True),
        replace(GRADIENT, row_function=FeaturesAndTarget(np.arange(2), 1.0, 1.0), shape=(10, 1), times="itself"),
    ]
    assert all(masked_query.is_query(query, model) for query in right)
    assert {type(query.row_function) for query in right} == set(ROW_FUNCTIONS) - {RootsOfMoments}
    study = join_all(clients := hospitals.start_all(), hospitals.terms(), count=len(right))
    for number, query in enumerate(right, start=1):
        answer(clients["ada"], replace(question(study, number), query=pack(query)))
