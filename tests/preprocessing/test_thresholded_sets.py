"""Thresholded sets: the noise of masses, how far they move, and that what one person alone has is not released.

Statistical tests fix their seed; a false alarm has probability 1e-6 a test, were the seed drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, chi2, norm

from tulle import Schema
from tulle.methods.loss_functions import facts_without_model
from tulle.preprocessing.keyed_rows import KeyedRows, join_keyed, read_keys
from tulle.preprocessing.private_columns import PrivateCategories, PrivateColumns, PrivateVocabulary
from tulle.preprocessing.thresholded_sets import HeldMasses, KeyMasses, ThresholdedGaussian, find_threshold
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian, price_of
from tulle.trusted.rows import Rows

ALPHA = 1e-6
Array = NDArray[np.float64]
SCHEMA = {
    "job": {"categories": "private", "most": 4},
    "note": {"text": "private", "most": 6},
    "age": {"range": [0, 100]},
}
# Blanks, words of one letter (which are none), signs, other scripts, lone surrogates, and values that look alike.
CELLS = ("", " ", "a", "nurse", "Nurse", "aa bb", "bb aa bb", "ß ßß 漢字 é́", "\udcff x\udcff", "nan", "0", "x" * 300)


def public(n: int, unit: int = 1) -> PublicFacts:
    return facts_without_model(n, 3, unit)


def keyed(table: dict[str, Any]) -> KeyedRows:
    return read_keys(Schema(SCHEMA).fit(table), table)


def masses_of(rows: KeyedRows, unit: int, active: Any = None) -> dict[Any, float]:
    """The exact mass of each key."""
    n = rows.shape[0]
    held = KeyMasses(2000).evaluate(Rows(rows.keys, np.zeros(n), active), public(n, unit))
    assert isinstance(held, HeldMasses)
    return dict(zip(rows.names, held.values))


# --- masses ----------------------------------------------------------------------------------------------------------


@given(data=st.data(), unit=st.integers(1, 2))
@settings(max_examples=80)
def test_no_neighbour_moves_masses_that_others_have_further(data: st.DataObject, unit: int) -> None:
    """Of all keys that a row has which is not the unit's: by at most sqrt(2) m / n."""
    n = 5
    cells = st.sampled_from(CELLS)

    def draw(count: int) -> dict[str, list[Any]]:
        lists = st.lists(cells, min_size=count, max_size=count)
        return {"job": data.draw(lists), "note": data.draw(lists), "age": ["50"] * count}

    rest, *units = draw(n - unit), draw(unit), draw(unit)
    active = [np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n))) for _ in range(2)]
    active[1][unit:] = active[0][unit:]
    found = [
        masses_of(keyed({name: own[name] + rest[name] for name in rest}), unit, counts)
        for own, counts in zip(units, active)
    ]
    alone = masses_of(keyed(rest), unit, active[0][unit:])
    common = [key for key, mass in alone.items() if mass > 0]
    moved = math.dist([found[0][key] for key in common], [found[1][key] for key in common])
    assert moved <= KeyMasses(2000).sensitivity(public(n, unit)).l2
    # What the unit alone has: its mass is not less than the threshold counts on.
    for masses in found:
        own = np.array([mass for key, mass in masses.items() if mass > 0 and key not in common])
        assert (own >= (1 - 1e-8) / math.sqrt(2 * 1000) / n).all()
        assert np.linalg.norm(own) <= unit / n


@pytest.mark.parametrize("unit", [1, 2])
def test_some_neighbour_moves_masses_so_far(unit: int) -> None:
    rest = ["c", "d", "e"]
    schema = Schema({"job": {"categories": "private"}})
    tables = [{"job": [own] * unit + rest + ["c", "d"]} for own in ("c", "d")]
    n = len(tables[0]["job"])
    found = [
        KeyMasses(1).evaluate(Rows(read_keys(schema.fit(one), one).keys, np.zeros(n)), public(n, unit))
        for one in tables
    ]
    keys = [read_keys(schema, one).names for one in tables]
    moved = [dict(zip(names, held.values)) for names, held in zip(keys, found)]
    change = math.dist([moved[0][key] for key in keys[0]], [moved[1][key] for key in keys[0]])
    assert change == pytest.approx(KeyMasses(1).sensitivity(public(n, unit)).l2, rel=0.01)


@given(rows=st.lists(st.tuples(st.sampled_from(CELLS), st.sampled_from(CELLS)), min_size=1, max_size=6))
@settings(max_examples=60)
def test_a_row_is_read_by_itself(rows: list[tuple[str, str]]) -> None:
    """Read together, alone, or in blocks: the same keys with the same masses, of length at most 1."""
    table = {"job": [job for job, _ in rows], "note": [note for _, note in rows], "age": ["7"] * len(rows)}
    whole = keyed(table)
    parts = [keyed({name: [cells[i]] for name, cells in table.items()}) for i in range(len(rows))]
    for joined in (whole, join_keyed(parts)):
        dense = joined.keys.toarray()
        assert (np.linalg.norm(dense, axis=1) <= 1).all()
        for i, part in enumerate(parts):
            own = {joined.names[k]: dense[i, k] for k in np.flatnonzero(dense[i])}
            assert own == {part.names[k]: part.keys.toarray()[0, k] for k in part.keys.indices}
        np.testing.assert_array_equal(joined.plain.toarray(), whole.plain.toarray())


def test_words_beyond_the_first_thousand_of_a_text_count_nothing_but_are_features() -> None:
    text = " ".join(f"w{k}" for k in range(1200))
    rows = read_keys(Schema({"note": {"text": "private"}}).fit({"note": []}), {"note": [text]})
    counted = rows.keys.toarray()[0]
    assert rows.keys.nnz == 1200  # the others are stored
    assert np.count_nonzero(counted) == 1000
    assert counted[:1000] == pytest.approx(1 / math.sqrt(1000))
    assert np.linalg.norm(counted) <= 1


def test_a_row_that_is_none_of_keys_counts_as_nothing() -> None:
    """Too long, below 0, or with entries that are too small: the query does not rest on what reads the rows."""
    keys = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.5], [0.0, -0.5], [0.6, 0.49], [0.0, 0.49], [2.0, 0.0]])
    for rows in (keys, sp.csr_array(keys)):
        held = KeyMasses(4).evaluate(Rows(rows, np.zeros(7)), public(7))
        np.testing.assert_allclose(held.values, [1 / 7, 0.5 / 7])


@given(data=st.data(), unit=st.integers(1, 2), sparse=st.booleans())
@settings(max_examples=100)
def test_no_rows_of_any_kind_move_masses_further(data: st.DataObject, unit: int, sparse: bool) -> None:
    """Signed, long, tiny and infinite entries: of keys that others have, at most by what is declared."""
    n, d, most = 5, 3, 4
    cells = st.sampled_from((0.0, 0.5, 1.0, 0.49999999, -0.5, -1.0, 0.7, 1e-300, 1e300, math.inf, math.nan, 1 + 1e-16))

    def draw(count: int) -> Array:
        return np.array(data.draw(st.lists(cells, min_size=count * d, max_size=count * d))).reshape(count, d)

    rest, *units = draw(n - unit), draw(unit), draw(unit)

    def masses(X: Array) -> Array:
        held = KeyMasses(most).evaluate(Rows(sp.csr_array(X) if sparse else X, np.zeros(len(X))), public(n, unit))
        return np.asarray(held.values)

    with np.errstate(all="ignore"):
        common = masses(rest) > 0
        found = [masses(np.vstack([own, rest])) for own in units]
    assert np.linalg.norm((found[0] - found[1])[common]) <= KeyMasses(most).sensitivity(public(n, unit)).l2
    for one in found:
        own = one[~common & (one > 0)]
        assert (own >= (1 - 1e-8) / math.sqrt(most) / n).all()
        assert np.linalg.norm(own) <= unit / n * (1 + 1e-12)


# --- the release -----------------------------------------------------------------------------------------------------


def release(values: Array, mechanism: ThresholdedGaussian, n: int, seed: Any = 0) -> Array:
    """Noisy masses of what was released, 0 elsewhere."""
    facts = public(n, mechanism.rows_per_unit)
    held = HeldMasses(values, (mechanism.most_keys * n, 1), mechanism.most_keys, mechanism.rows_per_unit)
    sensitivity = KeyMasses(mechanism.most_keys).sensitivity(facts)
    answer = mechanism.release(held, sensitivity, np.random.default_rng(seed), lambda noisy: noisy)
    assert isinstance(answer, np.ndarray)
    return answer


@pytest.mark.parametrize("unit", [1, 3])
@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_masses_have_the_noise_of_their_mechanism(factor: float, accepted: bool, unit: int) -> None:
    mechanism = ThresholdedGaussian(NoisePerSensitivity(2.0), 1e-9, 10, unit)
    values = np.full(2000, 0.9)
    noise = (release(values, mechanism, 1000) - values) / (2.0 * math.sqrt(2) * unit / 1000)
    p_value = float(chi2(len(noise)).cdf(np.square(factor * noise).sum()))
    assert (ALPHA / 2 < p_value < 1 - ALPHA / 2) == accepted


@pytest.mark.parametrize(("most_keys", "unit", "sigma"), [(1, 1, 1.0), (50, 1, 3.0), (1000, 1, 20.0), (40, 3, 0.4)])
def test_the_threshold_is_for_the_worst_that_one_unit_can_have(most_keys: int, unit: int, sigma: float) -> None:
    """Of any number of keys and any masses of them the chance is at most `left`, and of some nearly that."""
    left = 1e-6
    threshold = find_threshold(sigma, left, most_keys, unit)
    chances = []
    rng = np.random.default_rng(0)
    for count in np.unique(np.geomspace(1, most_keys * unit**2, 40).astype(int)):
        equal = np.full(count, unit / math.sqrt(count))
        drawn = np.maximum(rng.exponential(size=count), 1e-9)
        drawn *= unit / np.linalg.norm(drawn)
        for masses in (equal, drawn[drawn >= 1 / math.sqrt(most_keys)]):
            passed = norm.logsf((threshold - masses) / sigma)
            chances.append(float(-np.expm1(np.log1p(-np.exp(passed)).sum())))
    assert max(chances) <= left
    assert max(chances) > 0.98 * left


@pytest.mark.parametrize("unit", [1, 2])
def test_what_one_unit_alone_has_is_released_as_rarely_as_is_said(unit: int) -> None:
    """An attack: a row, or those of a person, with keys of its own, counted in 20,000 releases."""
    mechanism = ThresholdedGaussian(NoisePerSensitivity(1.0), 0.02, 4, unit)
    runs, n = 20_000, 100
    worst = 0
    for count in (1, 2, 4, 4 * unit**2):
        values = np.tile(np.full(count, unit / math.sqrt(count) / n), runs)
        seen = (release(values, mechanism, n, count) > 0).reshape(runs, count).any(axis=1).sum()
        assert binom.sf(seen - 1, runs, 0.02) > ALPHA
        worst = max(worst, int(seen))
    assert worst > 0.01 * runs  # the attack is no idle one


def test_keys_that_only_rows_have_which_do_not_count_are_never_released() -> None:
    """However many: a person's surplus rows, and rows without a label."""
    mechanism = ThresholdedGaussian(NoisePerSensitivity(1.0), 0.02, 4, 1)
    assert not release(np.zeros(200_000), mechanism, 100).any()


def test_no_other_mechanism_answers() -> None:
    """How many keys there are depends on the rows."""
    held, sensitivity = HeldMasses(np.ones(3), (9, 1), 1, 1), KeyMasses(1).sensitivity(public(9))
    rng = np.random.default_rng(0)
    with pytest.raises(AttributeError):
        Gaussian().release(held, sensitivity, rng, None)
    with pytest.raises(TypeError, match="names of keys"):
        ThresholdedGaussian().release(held, sensitivity, rng, None)
    with pytest.raises(TypeError, match="names of keys"):
        ThresholdedGaussian().release(np.ones((3, 1)), sensitivity, rng, lambda noisy: noisy)
    for other in (HeldMasses(np.ones(3), (9, 1), 2, 1), HeldMasses(np.ones(3), (9, 1), 1, 3)):
        with pytest.raises(ValueError, match="that the threshold of the plan is not for"):
            ThresholdedGaussian().release(other, sensitivity, rng, lambda noisy: noisy)


def test_the_price_is_that_of_gaussian_noise_and_a_part_of_delta() -> None:
    mechanism = ThresholdedGaussian(NoisePerSensitivity(3.0), 1e-8, 4, 1)
    assert price_of(mechanism) == price_of(Gaussian(NoisePerSensitivity(3.0)))
    assert mechanism.inexact == 1e-8
    assert mechanism.scaled(2.0) == ThresholdedGaussian(NoisePerSensitivity(6.0), 1e-8, 4, 1)


def test_no_threshold_is_for_a_chance_of_0() -> None:
    with pytest.raises(ValueError, match="larger delta"):
        find_threshold(1.0, 0.0, 10, 1)


# --- features --------------------------------------------------------------------------------------------------------

LEARNT: tuple[tuple[Any, Any], ...] = (
    (PrivateCategories(["job"], most=2), {"job": ["a", "b", "c", ""]}),
    (PrivateVocabulary(most=3), ["aa bb", "bb cc", "", "dd"]),
    (
        PrivateColumns(Schema(SCHEMA)),
        {"job": ["a", "b", "", "z"], "note": ["aa bb", "bb", "", "dd"], "age": [1, 2, 3, 4]},
    ),
)


def taught(step: Any, rows: Any, found: dict[str, Sequence[str]]) -> Any:
    """The step, which found these values with masses 0.5, 0.25, ..."""
    step.read(rows)
    masses = {column: 0.5 ** np.arange(1, 1 + len(values)) for column, values in found.items()}
    return step.restore(step.schema_.needed(), found, masses)


def test_features_are_those_of_values_that_were_found() -> None:
    step = taught(*LEARNT[2], {"job": ["a", "b"], "note": ["aa", "bb"]})
    assert step.get_feature_names_out().tolist() == [
        *("job = a", "job = b", "job: not used 2", "job: not used 3", "job: any other"),
        *("note: aa", "note: bb", *(f"note: not used {k}" for k in range(2, 6))),
        "age",
    ]
    aa, bb = np.array([1 / math.sqrt(2), 1.0]) / math.sqrt(1.5)
    expected = np.zeros((4, 12))
    expected[0, [0, 5, 6]] = 1, aa, bb
    expected[1, [1, 6]] = 1, 1
    expected[3, 4] = 1  # another category; its words are not found
    expected[:, 11] = np.array([1, 2, 3, 4]) / 50 - 1
    np.testing.assert_allclose(step.transform(LEARNT[2][1]).toarray(), expected)
    np.testing.assert_array_equal(step.unused(), [k in (2, 3, 7, 8, 9, 10) for k in range(12)])
    bounds = step.bounds(12)
    assert np.linalg.norm(expected, axis=1).max() <= bounds.row_l2
    assert np.abs(expected).max() <= bounds.row_linf


@pytest.mark.parametrize(("step", "rows"), LEARNT, ids=["categories", "vocabulary", "columns"])
def test_a_row_is_transformed_by_itself(step: Any, rows: Any) -> None:
    """Whatever the other rows are."""
    found = {"job": ["a"], "note": ["bb"], "text": ["aa", "bb"]}
    step.read(rows)
    step = taught(step, rows, {name: found[name] for name in step._found_kinds})
    whole = step.transform(rows).toarray()
    for i in range(4):
        one = [rows[i]] if isinstance(rows, list) else {name: [cells[i]] for name, cells in rows.items()}
        np.testing.assert_array_equal(step.transform(one).toarray()[0], whole[i])
