"""`tulle.Schema`: errors of headers, tables of every library, scikit-learn, targets and people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from odd_cells import KINDS, OBJECTS, TABLES, TEXTS, dense, in_silence, objects
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from tulle import Bounds, Schema, SparseClassifier, SparseRegressor, check_pipeline
from tulle.schema.schema_format import SchemaError

AGE, JOB = {"range": [20, 100]}, {"categories": ["clerk", "nurse"]}
PEOPLE = Schema({"age": AGE, "job": JOB}, target={"column": "y", "classes": ["no", "yes"]}, person="id")

# --- headers ---------------------------------------------------------------------------------------------------------


def refusal(schema: Schema, header: Sequence[str], **given: Any) -> str:
    with pytest.raises(SchemaError) as raised:
        schema.choose(header, **given)
    return str(raised.value)


def test_everything_that_is_wrong_with_a_header_is_in_one_message() -> None:
    """By place where a declared column is missing: the first line may then be somebody's row."""
    message = refusal(PEOPLE, ["age", "age", "income", "height", "y"])
    assert message == (
        "columns of the schema that are not in the table: 'job', 'id'; columns that occur more than once: number 1, 2; "
        'columns that the schema does not declare (declare them, or add "*" = "ignore"): number 3, 4'
    )
    assert "'income', 'height'" in refusal(PEOPLE, ["age", "job", "id", "income", "height", "y"])
    row = refusal(PEOPLE, [f"cell {number}" for number in range(25)])
    assert "19, 20 and 5 more; if the first line of the file is a row, pass --no-header" in row
    assert "cell" not in row


def test_target_and_person_need_not_be_there_to_predict() -> None:
    assert "'y', 'id'" in refusal(PEOPLE, ["age", "job"])
    assert list(PEOPLE.choose(["job", "age"], labelled=False)) == ["job", "age"]
    ignored = Schema({"age": AGE, "y": "ignore"}, target={"column": "y", "classes": [0, 1]})
    assert list(ignored.choose(["age"], labelled=False)) == ["age"]


def test_patterns() -> None:
    """Names before patterns, and of these the first that fits."""
    columns = {"q_*": {"range": [1, 5]}, "*_note": "text", "q_9": JOB, "*": "ignore"}
    chosen = Schema(columns).choose(["q_1", "q_9", "x_note", "q_note", "else"])
    assert {name: kind.word for name, kind in chosen.items()} == {
        **{"q_1": "range", "q_9": "categories", "x_note": "text", "q_note": "range"}
    }
    assert list(Schema({"a.*": "text", "*": "ignore"}).choose(["a.b", "axb", "a.\n"])) == ["a.b", "a.\n"]
    assert refusal(Schema({"*": "ignore"}), ["a"]) == "no column is left for features"


def test_a_column_whose_name_has_a_star() -> None:
    """What a column counts as does not depend on which others there are."""
    schema = Schema({"a*": "ignore", "*": AGE}).fit({"a*": [1], "ab": [1], "b": [60]})
    assert schema.get_feature_names_out().tolist() == ["b"]


@pytest.mark.parametrize("rows", [np.zeros((2, 2)), [[1, 2]], "age", 7, None])
def test_rows_without_names(rows: Any) -> None:
    with pytest.raises(SchemaError, match="a schema reads columns by name"):
        Schema({"age": AGE}).fit(rows)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        *[({"job": ["x"]}, "not in the table: 'age'"), ({"age": [1, 2], "job": ["x"]}, "different lengths")],
        *[
            ({"age": "secret", "job": ["x"]}, "'age' is no list"),
            ({"age": None, "job": ["x"]}, "more than once: 'age'"),
        ],
        *[
            ({"age": np.zeros((2, 2)), "job": ["x"]}, "'age' is no list"),
            ({"age": 7, "job": ["x"]}, "'age' is no list"),
        ],
    ],
)
def test_tables_that_do_not_fit(rows: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said) as raised:
        Schema({"age": AGE, "job": JOB}).fit({"age": [], "job": []}).transform(rows)
    assert "secret" not in str(raised.value)


def test_a_column_twice() -> None:
    schema = Schema({"age": AGE}).fit({"age": []})
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    for table in (pd.DataFrame([[1, 2]], columns=["age", "age"]), pa.table([[1], [2]], names=["age", "age"])):
        for use in (schema.fit, schema.transform):
            with pytest.raises(SchemaError, match="more than once: 'age'"):
                use(table)
        with pytest.raises(SchemaError, match="more than once"):
            Schema({"job": JOB}, target={"column": "age", "range": [0, 9]}).labels(table)


def test_names_that_are_attributes_of_tables_or_no_text() -> None:
    """pandas has columns as attributes: a header would have been read from the cells of one with such a name."""
    pd = pytest.importorskip("pandas")
    names = ["column_names", "num_rows", "columns", "schema", "iloc", "chunks", "7"]
    table = pd.DataFrame({name: ["secret", "60"] for name in [*names[:-1], 7]})
    features = Schema(dict.fromkeys(names, AGE)).fit(table).transform(table)
    assert dense(features).tolist() == [[0.0] * 7, [0.0] * 7]
    assert dense(Schema({"7": AGE}).fit_transform({7: [100]})).tolist() == [[1.0]]


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed() -> dict[str, Any]:
    """A column of odd cells for each kind."""
    given = objects([*TEXTS, *OBJECTS])
    return {name: np.roll(given, place) for place, name in enumerate(KINDS)}


def test_a_row_is_encoded_by_its_own_cells(mixed: dict[str, Any]) -> None:
    """Rows of odd cells of all kinds: the same alone and among others, no longer than `row_l2`, without a warning."""
    schema = Schema(dict(KINDS)).fit(mixed)
    with in_silence():
        whole = schema.transform(mixed)
        alone = [schema.transform({name: [cells[row]] for name, cells in mixed.items()}) for row in range(0, 100, 9)]
    assert np.array_equal(dense(whole)[:100:9], np.vstack([dense(row) for row in alone]))
    assert np.sqrt((dense(whole) ** 2).sum(axis=1).max()) <= schema.row_l2 + 1e-12
    assert whole.dtype == alone[0].dtype == np.float64
    assert whole.indices.dtype == alone[0].indices.dtype


@pytest.mark.parametrize("table", TABLES)
def test_a_blank_changes_no_id(table: str) -> None:
    """numpy, pandas and polars would make floats of whole numbers: different people would become one."""
    ids = [2**53 + 1, 2**53, None, 7]
    rows = TABLES[table](ids)
    schema = Schema({"*": "text"}, person="x")
    assert list(schema.ids(rows)) == ["9007199254740993", "9007199254740992", None, "7"]
    assert list(schema.people(rows)) == ["id 9007199254740993", "id 9007199254740992", "row 2", "id 7"]


def test_what_is_under_a_mask_is_not_read() -> None:
    column = np.ma.MaskedArray([60.0, 100.0, 1e9], mask=[False, True, False])
    assert dense(Schema({"age": AGE}).fit_transform({"age": column})).tolist() == [[0.0], [0.0], [1.0]]


def test_cells_that_polars_and_pandas_cannot_convert() -> None:
    """Dates beyond Python's, bytes that are no text: one such cell makes conversions of a whole column fail."""
    pl, pd, pa = (pytest.importorskip(name) for name in ("polars", "pandas", "pyarrow"))
    dates = Schema({"x": {"date": ["2020-01-01", "2020-01-11"], "indicator": True}})
    far = pl.DataFrame({"x": pl.Series([10**8, 18267, None], dtype=pl.Int32).cast(pl.Date)})
    for table in (far, pd.DataFrame({"x": far["x"].to_numpy()}), pa.table({"x": far["x"].to_arrow()})):
        assert dense(dates.fit_transform(table)).tolist() == [[1, 0], [0, 0], [0, 1]]
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"7\xff", b"60"]).buffers())
    text = pd.StringDtype("pyarrow", na_value=np.nan)  # "str" of pandas 3
    of_pandas = [pd.array(pa.chunked_array([bad]), dtype=kind) for kind in (pd.ArrowDtype(pa.string()), text)]
    for table in (pl.DataFrame({"x": pl.from_arrow(bad)}), *(pd.DataFrame({"x": column}) for column in of_pandas)):
        assert dense(Schema({"x": {**AGE, "missing": 20}}).fit_transform(table)).tolist() == [[-1], [0]]


# --- scikit-learn ----------------------------------------------------------------------------------------------------


def test_it_is_a_transformer() -> None:
    schema = Schema({"age": AGE, "note": {"text": 4}}, words=["good"])
    for use in (schema.transform, lambda _: schema.get_feature_names_out(), lambda _: schema.row_l2):
        with pytest.raises(NotFittedError):
            use({"age": [1], "note": [""]})
    assert schema.fit({"note": [], "age": []}) is schema
    check_is_fitted(schema)
    assert schema.n_features_in_ == 2
    assert list(schema.feature_names_in_) == ["note", "age"]
    assert schema.get_params() == {"columns": schema.columns, "target": None, "person": None, "words": ["good"]}
    again = clone(schema)
    assert not hasattr(again, "n_features_in_")
    assert again.to_dict() == schema.to_dict()


def test_widths_names_and_units_agree(mixed: dict[str, Any]) -> None:
    schema = Schema(dict(KINDS))
    width = schema.fit_transform(mixed).shape[1]
    names = schema.get_feature_names_out()
    middles, halves = schema.units()
    assert len(names) == len(set(names)) == len(middles) == len(halves) == width
    place = list(names).index("range, all settings")
    assert (middles[place], halves[place], middles[place + 1], halves[place + 1]) == (5, 5, 0, 1)


def test_features_follow_the_columns_of_fit() -> None:
    """Not of the rows that are transformed, nor of columns that came later."""
    schema = Schema({"age": AGE, "job": JOB, "*": "ignore"}).fit({"age": [], "job": [], "more": []})
    rows = {"late": ["x"], "job": ["nurse"], "age": ["100"]}
    assert dense(schema.transform(rows)).tolist() == [[1, 0, 1]]
    assert dense(schema.transform(MappingProxyType(rows))).tolist() == [[1, 0, 1]]
    assert schema.transform({"age": [], "job": []}).shape == (0, 3)


# --- models ----------------------------------------------------------------------------------------------------------


def hospital(n_rows: int) -> dict[str, list[Any]]:
    """Rows whose target depends on age and job, a tenth of them odd."""
    random = np.random.default_rng(0)
    age, job = random.integers(10, 110, n_rows), random.choice(["clerk", "nurse", "pilot", ""], n_rows)
    sick = (age + 30 * (job == "nurse") > 75) ^ (random.random(n_rows) < 0.1)
    rows: dict[str, list[Any]] = {"age": [str(number) for number in age], "job": list(job)}
    rows["y"] = ["yes" if one else "no" for one in sick]
    rows["id"] = [str(number) for number in range(n_rows)]
    for name, cells in rows.items():
        for place in range(len(name), n_rows, 40):
            cells[place] = "unknown" if name != "id" else None
    return rows


def test_a_pipeline_from_raw_rows_to_predictions() -> None:
    rows, schema = hospital(3000), clone(PEOPLE)
    bounds = Bounds(row_l2=schema.fit(rows).row_l2, rows_per_person=2)
    model = make_pipeline(schema, SparseClassifier(1.0, bounds=bounds, classes=schema.classes, random_state=0))
    assert check_pipeline(model) == ()
    with in_silence():
        model.fit(rows, schema.labels(rows), sparseclassifier__groups=schema.people(rows))
        found = model.predict(rows)
        new = model.predict({"job": ["astronaut", None, "nurse"], "age": ["?", b"\xff", "100"]})
    assert (found == np.array(rows["y"])).mean() > 0.75
    assert set(new) <= {"no", "yes"}
    assert new[2] == "yes"


def changed(rows: Mapping[str, list[Any]], **cells: Any) -> dict[str, list[Any]]:
    """The same rows with other cells in the first."""
    return {name: [cells.get(name, given[0]), *given[1:]] for name, given in rows.items()}


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_a_row_without_a_target_counts_as_nothing(epsilon: float | None) -> None:
    """Whatever its other cells are: the same weights to the last bit."""
    rows = hospital(500)
    schema = Schema({"job": JOB, "*": "ignore"}, target={"column": "age", "range": [20, 100]}).fit(rows)
    bounds = Bounds(row_l2=schema.row_l2, label=schema.label_bound)

    def weights(rows: dict[str, list[Any]], keep: Any = slice(None)) -> Any:
        labels = schema.labels(rows)
        model = SparseRegressor(epsilon, bounds=bounds, random_state=0)
        model.fit(schema.transform(rows)[keep], labels[keep])
        return [*model.coef_, model.intercept_]

    masked = [weights(changed(rows, age=age, job=job)) for age, job in (("", "clerk"), ("?", "nurse"), (None, None))]
    assert masked[0] == masked[1] == masked[2]
    assert masked[0] != weights(changed(rows, age="100", job="clerk"))
    if epsilon is None:
        assert masked[0] == pytest.approx(weights(changed(rows, age=""), slice(1, None)), rel=1e-3)


def test_labels() -> None:
    """A class that was declared, or None; a number within its range, or masked."""
    rows = {"y": ["yes", " no ", "Yes", "", 1, None], "id": [1, 2, 3, 4, 5, " "], "z": ["5", 20, "x", "", -1, 5]}
    assert PEOPLE.labels(rows).tolist() == ["yes", "no", None, None, None, None]
    assert PEOPLE.labels({**rows, "id": ["", None, np.nan, 4, 5, 6]}).tolist() == [None] * 6
    numbers = Schema({"age": AGE}, target={"column": "y", "classes": [0, 1]}).labels(
        {"y": ["1", 0.0, "0.0", 2, True, ""]}
    )
    assert numbers.tolist() == [1, 0, 0, None, 1, None]
    merged = Schema({"age": AGE}, target={"column": "y", "classes": {"some": [1, 2], "many": [3]}})
    assert merged.labels({"y": [3, "2", "1.0", 4]}).tolist() == ["many", "some", "some", None]
    assert (merged.classes, Schema(**merged.to_dict()).to_toml()) == (["some", "many"], merged.to_toml())
    schema = Schema({"age": AGE}, target={"column": "z", "range": [0, 10]}, person="id")
    labels = schema.labels(rows)
    assert labels.tolist() == [5, 10, None, None, 0, None]
    assert set(labels.data[labels.mask]) == {5.0}
    assert (schema.label_bound, schema.classes, PEOPLE.label_bound, PEOPLE.classes) == (10, None, None, ["no", "yes"])
    with pytest.raises(SchemaError, match="declares no target"):
        Schema({"age": AGE}).labels(rows)
    with pytest.raises(SchemaError, match="'y'"):
        PEOPLE.labels({"id": [1]})


def test_people() -> None:
    """By text: 7 and "7" are one, "007" is another; a blank is nobody else."""
    rows = {"age": [1] * 6, "id": [7, "7", 7.0, "007", "", None]}
    assert PEOPLE.people(rows).tolist() == ["id 7", "id 7", "id 7", "id 007", "row 4", "row 5"]
    nobody = Schema({"age": AGE})
    assert nobody.people(rows) is None
    assert nobody.fit({"age": []}).ids(rows).tolist() == [None] * 6
