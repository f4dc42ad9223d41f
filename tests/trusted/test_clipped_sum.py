"""`ClippedSum`: whatever a row function returns, no neighbour moves the sum by more than its sensitivity.

And every row function of the package treats each row by itself: rows in another order, in parts and one at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.fast.coordinate_path import CoordinatePath
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods.loss_functions import Logistic
from tulle.methods.row_functions import (
    Features,
    FeaturesAndTarget,
    LossSlopes,
    RootsOfMoments,
    RowWeights,
    SlopeChanges,
    SquaredMargins,
)
from tulle.preprocessing.class_balance import ClassIndicators
from tulle.preprocessing.private_scaler import Below
from tulle.preprocessing.private_step import Ones
from tulle.trusted.clipped_sum import ClippedSum, RowFunction, SeenRows, SignedScores
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.queries import Affine, Magnitudes, VertexScores, is_answered
from tulle.trusted.rows import Rows, make_block

ROUNDING = 1 + 1e-9
D, OUTPUTS = 3, 2
HOSTILE = (0.0, 1.0, -1.0, 0.3, 1e-300, 5e-324, 1e9, -1e30, 1e160, -1.7e308, math.inf, -math.inf, math.nan)


def facts(n_rows: int, rows_per_unit: int = 1, intercept: bool = False) -> PublicFacts:
    return PublicFacts(n_rows, D, 2, Logistic(), None, 1.5, 1.0, 1.0, intercept, rows_per_unit)


@dataclass(frozen=True, eq=False)
class FromTargets(RowFunction):
    """Any values at all: the target of a row is the number of its line in a table."""

    table: FloatArray

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        return self.table[targets.astype(int)]


CASES: dict[str, dict[str, Any]] = {
    "l2": {},
    "l2, intercept": {"intercept_value": 0.7},
    "linf": {"norm": "linf", "intercept_value": 0.7},
    "support": {"support": np.array([[True, False], [False, True], [True, True]])},
    "support, intercept": {
        "support": np.array([[True, False], [False, True], [True, True], [False, False]]),
        "intercept_value": 0.7,
    },
    "each": {"norm": "each"},
    "units": {"norm": "each", "units": np.array([0.2, 1.0, 7.0, 0.5]), "intercept_value": 0.7},
    "coordinates": {"norm": "each", "units": np.array([0.2, 1.0, 7.0]), "coordinates": np.array([2, 0])},
    "one, l2": {"times": "one"},
    "one, linf": {"times": "one", "norm": "linf"},
    "one, each": {"times": "one", "norm": "each"},
    "one, not negative": {"times": "one", "norm": "each", "non_negative": True},
    "one, l2, not negative": {"times": "one", "non_negative": True},
    "itself": {"times": "itself"},
}


def clipped_sum(case: str, table: FloatArray, level: float) -> ClippedSum:
    times = CASES[case].get("times", "rows")
    lines = D + bool(CASES[case].get("intercept_value"))
    shape = {"rows": (lines, OUTPUTS), "one": (OUTPUTS, 1), "itself": (OUTPUTS * (OUTPUTS + 1) // 2, 1)}[times]
    return ClippedSum(FromTargets(table), shape, level, **CASES[case])


def moved(query: Any, X: FloatArray, unit: int, others: FloatArray, public: PublicFacts, sparse: bool) -> FloatArray:
    """How far the answer moves when the first unit's rows and values are replaced by others."""
    n = len(X)
    first, second = np.arange(float(n)), np.arange(float(n))
    second[:unit] = n + np.arange(unit)
    other = np.vstack([others, X[unit:]])
    kind = sp.csr_array if sparse else np.array
    with np.errstate(all="ignore"):
        answers = [query.evaluate(Rows(kind(M), y), public) for M, y in ((X, first), (other, second))]
    return np.asarray(answers[0] - answers[1])


def norms(change: FloatArray) -> dict[str, float]:
    largest = float(np.abs(change).max())
    l2 = largest * float(np.linalg.norm(change / largest)) if largest else 0.0
    return {"l1": float(np.abs(change).sum()), "l2": l2, "linf": largest}


@pytest.mark.parametrize("case", CASES)
@given(data=st.data(), unit=st.integers(1, 2), sparse=st.booleans())
@settings(max_examples=40)
def test_no_neighbour_moves_it_further_whatever_the_row_function_returns(
    case: str, data: st.DataObject, unit: int, sparse: bool
) -> None:
    """Values that are huge, tiny or no numbers, of rows that were never clipped."""
    n = 4
    value = st.sampled_from(HOSTILE) | st.floats(-3, 3)
    entry = st.sampled_from([0.0, 1.0, -1.5, 1e-160, 1e20, -1e100]) | st.floats(-2, 2)

    def draw(lines: int, columns: int, of: st.SearchStrategy[float]) -> FloatArray:
        size = lines * columns
        return np.array(data.draw(st.lists(of, min_size=size, max_size=size))).reshape(lines, columns)

    level = data.draw(st.sampled_from([0.0, 1e-200, 0.01, 0.5, 2.0, 100.0]))
    query = clipped_sum(case, draw(n + unit, OUTPUTS, value), level)
    public = facts(n, unit, bool(query.intercept_value))
    change = moved(query, draw(n, D, entry), unit, draw(unit, D, entry), public, sparse)
    assert np.isfinite(change).all()
    declared = query.sensitivity(public)
    assert min(declared.l1, declared.l2, declared.linf) < math.inf
    for norm, distance in norms(change).items():
        assert distance <= getattr(declared, norm) * ROUNDING


def worst(case: str, unit: int) -> tuple[Any, FloatArray, FloatArray]:
    """Values, and the rows of the replaced unit before and after, that move a sum as far as it can move."""
    n = 4
    X, others = np.zeros((n, D)), np.zeros((unit, D))
    X[:unit, 0], others[:, 0] = 1.0, 1.0
    table = np.zeros((n + unit, OUTPUTS))
    table[:unit], table[n:] = 1e9, -1e9
    if case.startswith(("one, l2", "support")):
        table[:, 1] = 0.0
    if "not negative" in case or case == "itself":
        table[n:] = 0.0
        if "l2" in case or case == "itself":
            table[:unit], table[n:] = (1e9, 0.0), (0.0, 1e9)
    if case == "coordinates":
        X[:unit], others[:] = (0.2, 0.0, 7.0), (0.2, 0.0, 7.0)
    return table, X, others


@pytest.mark.parametrize("unit", [1, 2])
@pytest.mark.parametrize("case", sorted(set(CASES) - {"units", "each"}))
def test_some_neighbour_moves_it_so_far(case: str, unit: int) -> None:
    """Within 1 % of the sensitivity in the norm that is clipped."""
    table, X, others = worst(case, unit)
    query = clipped_sum(case, table, 4.0)
    public = facts(4, unit, bool(query.intercept_value))
    found, declared = norms(moved(query, X, unit, others, public, False)), query.sensitivity(public)
    clipped = ("l2",) if query.norm == "l2" else found  # of ℓ1, which follows from ℓ2, below
    for norm in clipped:
        if getattr(declared, norm) == math.inf:
            continue
        assert 0.99 < found[norm] / getattr(declared, norm) <= ROUNDING


@pytest.mark.parametrize(
    ("support", "constant", "moving"),
    [
        pytest.param(None, 0.0, 3, id="all"),
        pytest.param(None, 1.0, 4, id="all, intercept"),
        pytest.param([True, False, True, False], 1.0, 3, id="support, intercept"),
        pytest.param([True, False, True], 0.0, 2, id="support"),
    ],
)
def test_equal_entries_move_an_l2_clip_so_far_in_l1(support: Any, constant: float, moving: int) -> None:
    """2 C sqrt(entries that can move) / n."""
    X, others = np.ones((4, D)), np.ones((1, D))
    chosen = None if support is None else np.array(support)[:, None]
    table = np.array([[1e9]] + 3 * [[0.0]] + [[-1e9]])
    lines = D + bool(constant)
    query = ClippedSum(FromTargets(table), (lines, 1), 4.0, intercept_value=constant, support=chosen)
    public = facts(4, intercept=bool(constant))
    found, declared = norms(moved(query, X, 1, others, public, False)), query.sensitivity(public).l1
    assert found["l1"] == pytest.approx(2 * 4.0 * math.sqrt(moving) / 4, rel=1e-9)
    assert declared == pytest.approx(found["l1"], rel=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"level": -1.0},
        {"level": math.nan},
        {"norm": "linf", "support": np.ones((D, OUTPUTS), dtype=bool)},
        {"units": np.ones(D)},
        {"norm": "each", "units": np.array([1.0, 0.0, 1.0])},
        {"norm": "each", "coordinates": np.array([0, D])},
        {"non_negative": True},
        {"times": "one", "units": np.ones(D), "norm": "each"},
        {"times": "itself", "norm": "each"},
        {"intercept_value": -1e6},
        {"intercept_value": math.nan},
        {"intercept_value": math.inf},
        {"support": np.ones((D, OUTPUTS), dtype=bool), "coordinates": np.array([0, 1])},
        {"support": np.ones((D, OUTPUTS), dtype=bool), "in_batches": True},
        {"support": np.ones((D + 1, OUTPUTS), dtype=bool)},
        {"norm": "each", "coordinates": np.array([0, 1]), "in_batches": True},
        {"norm": "each", "units": np.ones(1)},
        {"norm": "each", "units": np.ones(D + 1)},
        # Units whose squares are none: whole numbers wrap around, and small ones vanish. Noise would be for nothing.
        {"norm": "each", "units": np.full(D, 2**32)},
        {"norm": "each", "units": np.full(D, 1.0, dtype=np.float32)},
        {"norm": "each", "units": np.full(D, 1e-170)},
        {"norm": "each", "units": np.full(D, 1e160)},
        {"norm": "each", "units": np.array([1.0, np.nan, 1.0])},
        {"norm": "each", "units": np.array([1.0, 7.0, 1.0]), "coordinates": np.array([True, False])},
        # Shapes whose product, or whose number of lines, is not that of the answer.
        {"shape": (D, 0)},
        {"shape": (D, OUTPUTS, 0)},
        {"shape": [np.int8(16), np.int8(16)]},
        {"shape": (D, 2), "times": "itself"},
    ],
    ids=str,
)
def test_a_combination_without_a_proof_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no clip is known|has no coordinates"):
        ClippedSum(**{"row_function": FromTargets(np.zeros((1, 1))), "shape": (D, OUTPUTS), "level": 1.0, **wrong})


def test_scores_are_of_sums_that_are_clipped_entry_by_entry() -> None:
    with pytest.raises(ValueError, match="clipped entry by entry"):
        SignedScores(clipped_sum("l2", np.zeros((1, 1)), 1.0), "vertices", 1.0)


def test_values_of_another_shape_are_refused() -> None:
    query = clipped_sum("l2", np.zeros((4, OUTPUTS + 1)), 1.0)
    with pytest.raises(ValueError, match="do not fit"):
        query.evaluate(Rows(np.ones((4, D)), np.arange(4.0)), facts(4))


@pytest.mark.parametrize("kind", [np.array, sp.csr_array])
def test_a_row_function_sees_no_target_of_a_row_that_does_not_count(kind: Any) -> None:
    block = make_block(kind(np.ones((2, D))), np.array([3.0, 4.0]), np.array([True, False]))
    assert block.targets.tolist() == [3.0, 0.0]


# --- each row by itself ---


def all_row_functions() -> dict[str, tuple[RowFunction, float]]:
    """Every row function of the package, with the intercept's value."""
    rng = np.random.default_rng(3)
    weights, other = rng.normal(size=(D + 1, 1)), rng.normal(size=(D + 1, 1))
    walk = CoordinatePath(weights.copy())
    walk.move(0.5, np.array([1]), np.array([0.7]))
    sparse, anchor = SparseWeights.from_dense(weights), SparseWeights.from_dense(other)
    return {
        "slopes": (LossSlopes(weights), 0.5),
        "slopes of sparse weights": (LossSlopes(sparse), 0.5),
        "slopes on a path": (LossSlopes(walk.point), 0.5),
        "weights of rows": (RowWeights(), 0.5),
        "changes": (SlopeChanges(sparse, anchor, (0.3, 0.2)), 0.5),
        "squared margins": (SquaredMargins(weights), 0.5),
        "no direction": (SquaredMargins(np.zeros((D + 1, 1))), 0.5),
        "features and target": (FeaturesAndTarget(np.array([0, 2]), 0.8, 2.0), 0.5),
        "rows by curvature": (RootsOfMoments(np.array([0, 2]), 0.8, np.array([0.3, -1.0, 0.4]), "curvature", 0.2), 0.5),
        "rows by slope": (RootsOfMoments(np.array([0, 2]), 0.8, np.array([0.3, -1.0, 0.4]), "slope", 0.7), 0.5),
        "features": (Features(D), 0.0),
        "ones": (Ones(), 0.0),
        "classes": (ClassIndicators(2), 0.0),
        "below": (Below(rng.normal(size=(2, D))), 0.0),
    }


def test_no_row_function_is_left_out() -> None:
    ours = {type(function) for function, _ in all_row_functions().values()}
    assert {kind for kind in RowFunction.__subclasses__() if kind.__module__.startswith("tulle.")} == ours


@pytest.mark.parametrize("name", all_row_functions())
@given(data=st.data(), sparse=st.booleans())
@settings(max_examples=15)
def test_a_row_function_treats_each_row_by_itself(name: str, data: st.DataObject, sparse: bool) -> None:
    """Permuted, in two parts, and alone, a row has the same values up to rounding."""
    function, a = all_row_functions()[name]
    n = data.draw(st.integers(2, 6))
    number = st.sampled_from([0.0, 1.0, -2.0, 1e-9, 50.0]) | st.floats(-3, 3)
    X = np.array(data.draw(st.lists(number, min_size=n * D, max_size=n * D))).reshape(n, D)
    y = np.array(data.draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=n, max_size=n)))
    public = replace(facts(n, intercept=a > 0), row_l2=4.0)

    def values(numbers: Any) -> FloatArray:
        block = make_block(sp.csr_array(X[numbers]) if sparse else X[numbers], y[numbers])
        return function.values(SeenRows(block, a), block.targets, public)

    whole, order = values(np.arange(n)), np.array(data.draw(st.permutations(range(n))))
    cut = data.draw(st.integers(1, n - 1))
    parts = np.vstack([values(np.arange(cut)), values(np.arange(cut, n))])
    alone = np.vstack([values(np.array([i])) for i in range(n)])
    for same in (values(order)[np.argsort(order)], parts, alone):
        np.testing.assert_allclose(same, whole, rtol=1e-9, atol=1e-12)


@dataclass(frozen=True, eq=False)
class Constant(RowFunction):
    """The same values for every row."""

    columns: int
    dtype: str = "float64"

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        return np.ones((len(targets), self.columns), dtype=self.dtype)


@pytest.mark.parametrize(
    ("columns", "shape", "more"),
    [
        (1000, (1, 1), {"norm": "each", "times": "one"}),
        (1, (1, 1), {"norm": "each"}),
        (1, (D, 1), {"intercept_value": 1.0}),
        (1, (D + 2, 1), {"norm": "each"}),
        (2, (D, 1), {}),
        (2, (1, 1), {"times": "itself"}),
        (3, (3, 1), {"times": "itself"}),
    ],
    ids=str,
)
def test_an_answer_of_another_shape_than_its_sensitivity_is_of_is_refused(
    columns: int, shape: tuple[int, int], more: dict[str, Any]
) -> None:
    """The sensitivity counts the entries of `shape`; more of them would move further."""
    query = ClippedSum(Constant(columns), shape, 1.0, **more)
    with pytest.raises(ValueError, match="do not fit"):
        query.evaluate(Rows(np.ones((4, D)), np.ones(4)), facts(4, intercept="intercept_value" in more))


def test_values_are_added_up_in_float64() -> None:
    """65,520 ones in float16 are infinity, which would count as nothing."""
    n = 65_520
    query = ClippedSum(Constant(1, "float16"), (1, 1), 1.0, "each", "one")
    assert query.evaluate(Rows(np.ones((n, D), dtype=np.float32), np.ones(n)), facts(n)) == 1.0


@pytest.mark.parametrize(
    "narrow",
    [
        {"level": np.float16(1)},
        {"level": np.float32(1)},
        {"level": np.int8(64)},
        {"level": np.int64(2)},
        {"shape": (np.int8(D), np.int8(OUTPUTS))},
        {"intercept_value": np.float32(1)},
        {"level": np.array(1.0)[()].astype(np.float16)},
        {"level": np.array(1.0, dtype=np.float16)},
        {"level": np.array([1.0], dtype=np.float16)},
        {"level": np.array(64, dtype=np.int8)},
        {"level": np.array(1.0, dtype=object)},
        {"norm": "each", "units": np.ma.array([1.0, 5.0, 50.0], mask=[0, 0, 1])},
        {"support": np.ma.array(np.ones((D, OUTPUTS), dtype=bool))},
        {"support": np.ones((D, OUTPUTS), dtype=object)},
    ],
    ids=str,
)
def test_numbers_of_few_bits_and_arrays_of_other_kinds_are_not_answered_with_noise(narrow: dict[str, Any]) -> None:
    """64 × 4 in int8 is 0, 1e5 in float16 is inf, and sums leave masked lines out: sensitivities would be too small."""
    plain = {"row_function": FromTargets(np.zeros((1, 1))), "shape": (D, OUTPUTS), "level": 1.0}
    assert is_answered(ClippedSum(**plain))
    query = ClippedSum(**{**plain, **narrow})
    assert not is_answered(query)
    assert not is_answered(Affine(query, np.zeros((D, OUTPUTS)), 1.0))


@pytest.mark.parametrize("factor", [np.float16(1), np.int8(-128), np.array(1e-6, dtype=np.float16)])
def test_narrow_factors_are_not_answered_with_noise(factor: Any) -> None:
    query = clipped_sum("each", np.zeros((1, 1)), 1.0)
    assert not is_answered(Affine(query, np.zeros((D, OUTPUTS)), factor))
    assert is_answered(Affine(query, np.zeros((D, OUTPUTS)), 1.0))
    assert not is_answered(SignedScores(query, "vertices", factor))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.longdouble, object])
def test_starts_in_other_floats_are_not_answered_with_noise(kind: Any) -> None:
    """The norm of a start says how much rounding moves: in few bits its squares vanish."""
    query = clipped_sum("l2", np.zeros((1, 1)), 1e-15)
    assert not is_answered(Affine(query, np.full((D, OUTPUTS), 1e-4).astype(kind), 1.0))
    assert is_answered(Affine(query, np.full((D, OUTPUTS), 1, dtype=np.int32), 1.0))


def test_features_that_are_passed_over_make_no_copies_of_scores() -> None:
    """An array of a larger shape would answer each score many times, with noise for one of them."""
    query = Magnitudes(clipped_sum("l2", np.ones((4, OUTPUTS)), 1.0), np.zeros((50, D, OUTPUTS), dtype=bool))
    with pytest.raises(ValueError, match="shape"):
        query.evaluate(Rows(np.ones((4, D)), np.zeros(4)), facts(4))


@pytest.mark.parametrize("kind", [np.array, sp.csr_array])
def test_the_radius_of_vertices_in_a_byte_is_that_of_their_values(kind: Any) -> None:
    """|-128| is -128 in int8. Sets of tulle convert their vertices; queries can be made without one."""
    query = clipped_sum("linf", np.zeros((1, 1)), 1.0)
    vertices = np.array([[-128, 127, 0, 0], [1, 0, 0, 0]], dtype=np.int8)
    assert VertexScores(query, kind(vertices)).largest(facts(9)) >= 255.0


def test_the_radius_of_vertices_in_a_stack_is_along_their_entries() -> None:
    query = clipped_sum("linf", np.zeros((1, 1)), 1.0)
    assert VertexScores(query, np.ones((5, 1, 4))).largest(facts(9)) >= 4.0


@pytest.mark.parametrize("sparse", [False, True])
def test_a_cut_holds_for_rows_that_were_scaled_down_far(sparse: bool) -> None:
    """A slope times the factor of its row has few digits left, and is rounded to up to twice of it: where a level is in
    small units, no row counts."""
    X = np.array([[1e139]])
    rows = Rows.of_blocks([make_block(sp.csr_array(X) if sparse else X, np.zeros(1))])
    rows.clip_rows(1e-50)
    for level in np.linspace(1e-85, 1e-83, 100).tolist():
        query = ClippedSum(FromTargets(np.array([[1e3]])), (1, 1), level, "each", units=np.array([1e-100]))
        total = query.total(rows, replace(facts(1), n_features=1))
        assert abs(float(total[0, 0])) <= level * 1e-100 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("level", "unit", "entry"),
    [(1e-20, 4.0, 5e-324), (1e-20, 1e100, 1e-224), (1e-84, 1e-100, 1e-184 / 5e-324 / 0.51), (1.0, 1e100, 1e-200)],
    ids=["an entry vanishes", "an entry in large units vanishes", "a cap has few digits", "an entry has few digits"],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_cut_holds_where_sizes_and_caps_are_below_all_normal_numbers(
    level: float, unit: float, entry: float, sparse: bool
) -> None:
    """A size of 0 made a cut of nothing, and a cap of few digits was rounded to up to twice of it."""
    query = ClippedSum(FromTargets(np.array([[1e308]])), (1, 1), level, "each", units=np.array([unit]))
    X = np.array([[entry]])
    block = make_block(sp.csr_array(X) if sparse else X, np.zeros(1))
    total = query.total(Rows.of_blocks([block]), replace(facts(1), n_features=1))
    assert abs(float(total[0, 0])) <= level * unit * (1 + 1e-12)


def test_a_cut_holds_for_a_constant_so_large_that_its_cap_has_few_digits() -> None:
    level, constant = 1e-20, 1e-20 / 5e-324 / 0.51
    query = ClippedSum(FromTargets(np.array([[1e308]])), (2, 1), level, "each", intercept_value=constant)
    total = query.total(Rows.of_blocks([make_block(np.zeros((1, 1)), np.zeros(1))]), replace(facts(1), n_features=1))
    assert abs(float(total[1, 0])) <= level * (1 + 1e-12)
