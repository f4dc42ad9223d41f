"""A `tulle.Schema` on a Dask DataFrame of raw cells: workers encode partitions, and the fit is that of memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from sklearn.preprocessing import Normalizer

from tulle import Bounds, Budget, Ledger, PrivatePipeline, Schema, SparseClassifier, SparseRegressor
from tulle.preprocessing import PrivateWeights
from tulle.schema.schema_format import SchemaError

pytestmark = [
    pytest.mark.usefixtures("client"),
    pytest.mark.filterwarnings("ignore:.*rows of .*:UserWarning"),  # of few rows
]

N = 1_500
FEATURES: dict[str, Any] = {
    "age": {"range": [20, 80]},
    "job": {"categories": ["clerk", "nurse"]},
    "joined": {"date": ["2015-01-01", "2026-12-31"]},
    "note": {"text": 5},
}
PERSON = {"column": "who", "rows": 2}
SCHEMAS: dict[str, tuple[Schema, Any]] = {
    "classes": (
        Schema(FEATURES | {"cost": "ignore"}, target={"column": "outcome", "classes": ["no", "yes"]}, person=PERSON),
        SparseClassifier(n_nonzero=6),
    ),
    "numbers": (
        Schema(FEATURES | {"outcome": "ignore"}, target={"column": "cost", "range": [-2, 2]}, person=PERSON),
        SparseRegressor(n_nonzero=6),
    ),
}


def table() -> pd.DataFrame:
    """Blanks, words among numbers, dates as text, people without an id and rows without a target."""
    rng = np.random.default_rng(0)
    age = rng.integers(15, 90, N).astype(str).astype(object)
    age[::97], age[5] = "", "unknown"
    ids = [f"p{k}" if k % 40 else None for k in rng.integers(0, 900, N)]
    outcome = np.where(rng.uniform(size=N) < 0.1, "?", np.where(age > "50", "yes", "no"))
    return pd.DataFrame(
        {
            "age": age,
            "job": rng.choice(["clerk", "nurse", "", "pilot"], N),
            "joined": rng.choice(["2016-02-03", "2020-12-31", "soon", None], N),
            "note": rng.choice(["late again", "never late", None], N),
            "outcome": outcome,
            "cost": np.where(np.arange(N) % 13 == 0, np.nan, rng.normal(size=N)),
            "who": ids,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("raw")
    for k, numbers in enumerate(np.array_split(np.arange(N), 9)):
        table().iloc[numbers].to_parquet(path / f"{k}.parquet")
    return path


def pipeline(what: str, *steps: Any, **settings: Any) -> PrivatePipeline:
    schema, model = SCHEMAS[what]
    named = [(f"step {k}", step) for k, step in enumerate((schema, *steps))]
    return PrivatePipeline([*named, ("model", model.set_params(**settings))], 20.0, 1e-6, random_state=3)


@pytest.mark.parametrize("what", SCHEMAS)
@pytest.mark.parametrize("steps", [(), (PrivateWeights(),)], ids=["schema", "schema and private weights"])
def test_the_fit_of_the_same_table_in_memory(what: str, steps: tuple[Any, ...], folder: Path) -> None:
    """To the last bit, with the schema's own targets and people; and as where these are passed by hand."""
    here, there = pd.read_parquet(folder), dd.read_parquet(folder)
    one, other = pipeline(what, *steps).fit(here), pipeline(what, *steps).fit(there)
    assert np.any(one.model_.coef_)
    np.testing.assert_array_equal(other.model_.coef_, one.model_.coef_)
    np.testing.assert_array_equal(other.model_.intercept_, one.model_.intercept_)
    assert other.privacy_.bill == one.privacy_.bill
    assert "at most 2 rows" in other.privacy_.unit
    assert other.privacy_.unit == one.privacy_.unit
    assert vars(other).keys() == vars(one).keys()
    np.testing.assert_array_equal(other.predict(there).compute(), one.predict(here))
    schema = SCHEMAS[what][0]
    by_hand = pipeline(what, *steps)
    declared = Bounds(label=schema.label_bound, rows_per_person=2)
    classes = {"classes": schema.classes} if schema.classes else {}
    by_hand.set_params(model=type(one.model_)(n_nonzero=6, bounds=declared, **classes))
    by_hand.fit(here, schema.labels(here), schema.people(here))
    np.testing.assert_array_equal(by_hand.model_.coef_, one.model_.coef_)


def test_people_and_blanks_matter(folder: Path) -> None:
    """The test above would see rows of nobody, or all rows of a person: with them the weights are others."""
    there = dd.read_parquet(folder)
    found = pipeline("classes").fit(there).model_.coef_
    everyone = pipeline("classes").fit(there, there["outcome"]).model_.coef_
    assert np.any(found != everyone)


def test_no_raw_row_comes_to_the_process_that_fits(client: Client, folder: Path) -> None:
    """Ids do, and nothing else of the rows."""
    fetched: list[Any] = []
    gather = Client.gather

    def noted(*given: Any, **settings: Any) -> Any:
        fetched.append(gather(*given, **settings))
        return fetched[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "gather", noted)
        pipeline("classes").fit(dd.read_parquet(folder))
    packed = pickle.dumps(fetched)
    assert b"p777" in packed
    for cell in (b"nurse", b"late again", b"2016-02-03"):
        assert cell not in packed
        assert cell in pickle.dumps(table())


def test_predictions_are_lazy_and_check_columns_at_once(folder: Path) -> None:
    there = dd.read_parquet(folder)
    fitted = pipeline("classes").fit(there)
    assert fitted.predict(there).npartitions == there.npartitions
    assert fitted.predict_proba(there).columns.tolist() == ["no", "yes"]
    # Targets and people need not be there.
    rows = there[list(FEATURES)]
    np.testing.assert_array_equal(fitted.predict(rows).compute(), fitted.predict(pd.read_parquet(folder)))
    with pytest.raises(SchemaError, match="not in the table: 'note'"):
        fitted.predict(there[["age", "job", "joined"]])


def test_what_cannot_be_fitted_is_refused_before_anything_is_billed(folder: Path) -> None:
    there = dd.read_parquet(folder)
    without = Schema(FEATURES | dict.fromkeys(("outcome", "cost", "who"), "ignore"))
    private = Schema(FEATURES | {"cost": "ignore", "note": {"text": "private"}}, target=SCHEMAS["classes"][0].target)
    last = ("model", SparseClassifier())
    cases: list[tuple[list[Any], Any, str]] = [
        ([("schema", without), last], there, "the schema declares no target"),
        ([("schema", SCHEMAS["classes"][0]), last], there[["age", "outcome"]], "not in the table"),
        ([("schema", SCHEMAS["classes"][0]), last], da.ones((9, 3)), "pass a Dask DataFrame"),
        ([("schema", SCHEMAS["classes"][0]), ("unit", Normalizer()), last], there, "public steps take rows in memory"),
        ([("schema", private), last], there, "categories and words are found in rows in memory"),
    ]
    for steps, rows, message in cases:
        with Ledger(Budget(100.0, 1e-2)) as ledger, pytest.raises((ValueError, SchemaError), match=message):
            PrivatePipeline(steps, 1.0, 1e-6).fit(rows)
        assert ledger.fits == []
    with pytest.raises(SchemaError, match=r"fit a tulle\.PrivatePipeline"):
        SCHEMAS["classes"][0].fit(there)


def test_a_column_missing_in_one_file_is_refused_before_anything_is_billed(tmp_path: Path) -> None:
    for k, numbers in enumerate(np.array_split(np.arange(N), 5)):
        part = table().iloc[numbers]
        (part.drop(columns="note") if k == 3 else part).to_parquet(tmp_path / f"{k}.parquet")
    with Ledger(Budget(100.0, 1e-2)) as ledger, pytest.raises(ValueError, match=r"partition . of the rows"):
        pipeline("classes").fit(dd.read_parquet(tmp_path))
    assert ledger.fits == []


@pytest.mark.parametrize("first", [1, 2**53 + 1])
def test_an_id_is_one_person_whatever_type_a_partition_has(first: int, tmp_path: Path) -> None:
    """Of a file with an empty cell pandas reads integers as floats: the fit is still that of memory, or refused."""
    ids = pd.array(first + np.arange(N) % 300, dtype="Int64")
    ids[5] = pd.NA
    for k, numbers in enumerate(np.array_split(np.arange(N), 4)):
        part = table().assign(who=ids).iloc[numbers]
        part.assign(who=part["who"].astype("float64" if k == 0 else "int64")).to_parquet(tmp_path / f"{k}.parquet")
    there = dd.from_map(pd.read_parquet, sorted(tmp_path.glob("*.parquet")))
    here = pd.concat(pd.read_parquet(path) for path in sorted(tmp_path.glob("*.parquet")))
    if first > 1:
        with pytest.raises(ValueError, match="large whole numbers as floats"):
            pipeline("classes").fit(there)
        return
    one, other = pipeline("classes").fit(here), pipeline("classes").fit(there)
    np.testing.assert_array_equal(other.model_.coef_, one.model_.coef_)
