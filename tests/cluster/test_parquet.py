"""A Dask DataFrame from Parquet files: X, y and groups of one frame are read together, and fitted as in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from distributed import Client
from spread_fits import METHODS, model

from tulle import Bounds, Budget, Ledger
from tulle.backends.dask import RowsOnDask
from tulle.backends.dask_partitions import GraphPartitions, Rules, check_one, find_partitions
from tulle.methods import HardThresholding
from tulle.trusted.intake import select_first_rows

pytestmark = pytest.mark.usefixtures("client")

N, D = 1_200, 12
NAMES = [f"x{k}" for k in range(D)]
QUICK = HardThresholding(n_iter=2)
PEOPLE = Bounds(row_l2=1.5, rows_per_person=2)


def table() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    rows = pd.DataFrame(rng.uniform(-1, 1, (N, D)), columns=NAMES)
    label = np.where(rows["x0"] - rows["x3"] > 0, "yes", "no")
    people = [f"person {k}" for k in rng.integers(0, 700, N)]
    # Columns that are not asked for make Dask read other shares of X, y and groups.
    return rows.assign(label=label, person=people, day=np.arange(N) % 7, note="not asked for", other=1.0)


def write(folder: Path, n_files: int, frame: pd.DataFrame | None = None, **settings: Any) -> Path:
    frame = table() if frame is None else frame
    folder.mkdir()
    for k, numbers in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame.iloc[numbers].to_parquet(folder / f"{k:04d}.parquet", **settings)
    return folder


def split(frame: Any) -> tuple[Any, Any, Any]:
    return frame[NAMES], frame["label"], frame["person"]


def assert_same_bits(one: Any, other: Any) -> None:
    assert np.any(one.coef_)
    np.testing.assert_array_equal(other.coef_, one.coef_)
    np.testing.assert_array_equal(other.intercept_, one.intercept_)
    assert other.privacy_.bill == one.privacy_.bill


SOURCES: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "8 files": lambda path: (dd.read_parquet(write(path / "rows", 8)), slice(None)),
    "100 files": lambda path: (dd.read_parquet(write(path / "rows", 100)), slice(None)),
    "row groups": lambda path: (
        dd.read_parquet(write(path / "rows", 3, row_group_size=70), split_row_groups=True),
        slice(None),
    ),
    "arrow's file system": lambda path: (dd.read_parquet(write(path / "rows", 8), filesystem="arrow"), slice(None)),
    "a filter": lambda path: (
        dd.read_parquet(write(path / "rows", 8), filters=[("day", "<", 4)]),
        np.arange(N) % 7 < 4,
    ),
    "rows left out": lambda path: (
        (lambda frame: frame[frame["day"] < 4])(dd.read_parquet(write(path / "rows", 8))),
        np.arange(N) % 7 < 4,
    ),
    "an index": lambda path: (
        dd.read_parquet(
            write(path / "rows", 8, table().set_index(pd.Index(np.arange(N) ** 2, name="key"))),
            index="key",
        ),
        slice(None),
    ),
    "persisted": lambda path: (dd.read_parquet(write(path / "rows", 8)).persist(), slice(None)),
    # Its tasks are of an older form of Dask's.
    "repartitioned": lambda path: (dd.read_parquet(write(path / "rows", 8)).repartition(npartitions=3), slice(None)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_fit_of_the_same_rows_in_memory(source: str, tmp_path: Path) -> None:
    """To the last bit, with people, who have rows in several files."""
    frame, used = SOURCES[source](tmp_path)
    # Dask reads files by this file system in an order of its own.
    here = frame.compute() if source == "arrow's file system" else table()[used]
    expected = model(METHODS["fit again"], bounds=PEOPLE).fit(*split(here))
    found = model(METHODS["fit again"], bounds=PEOPLE).fit(*split(frame))
    assert_same_bits(expected, found)
    assert found.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(found.predict(frame[NAMES]).compute(), expected.predict(here[NAMES]))
    # People count: without them the weights are others.
    assert np.any(expected.coef_ != model(METHODS["fit again"], bounds=PEOPLE).fit(*split(here)[:2]).coef_)


def test_dask_alone_would_divide_x_and_y_otherwise(tmp_path: Path) -> None:
    """What the tests above are about: optimised one by one, X and y have different numbers of partitions."""
    X, y, _ = split(dd.read_parquet(write(tmp_path / "rows", 8)))
    assert X.optimize().npartitions != y.optimize().npartitions


def test_small_files_are_read_by_the_hundred(client: Client, tmp_path: Path) -> None:
    """What the scheduler hears of hundreds of files is some tens of tasks."""
    frame = dd.read_parquet(write(tmp_path / "rows", 300))
    tasks: list[str] = []
    submit = Client.submit

    def noted(self: Client, function: Any, *more: Any, **settings: Any) -> Any:
        tasks.append(function.__name__)
        return submit(self, function, *more, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "submit", noted)
        rows = RowsOnDask(*split(frame))
    assert rows.shape == (N, D)
    assert isinstance(find_partitions(*split(frame)), GraphPartitions)
    assert tasks.count("check_graphs") <= 40
    assert len(tasks) <= 150


def read_in_any_order(part: int) -> pd.DataFrame:
    """A source that gives its rows in another order whenever it is read."""
    import os

    rng = np.random.default_rng(int.from_bytes(os.urandom(8)))
    return table()[part * 300 : (part + 1) * 300].sample(frac=1.0, random_state=rng).reset_index(drop=True)


def test_the_cells_of_a_row_come_from_one_read() -> None:
    """Of a source without an order, too, a row's target and person are its own."""
    frame = dd.from_map(read_in_any_order, range(4), meta=table()[:0])
    rows = RowsOnDask(*split(frame))
    features, targets, people = rows.map(np.asarray), [], rows.people
    for group in rows._client.gather(rows._groups):
        targets += [label for held in group for label in held.targets]
    np.testing.assert_array_equal(np.array(targets), np.where(features[:, 0] - features[:, 3] > 0, "yes", "no"))
    known = {tuple(row): person for row, person in zip(table()[NAMES].to_numpy(), table()["person"])}
    assert [known[tuple(row)] for row in features] == list(people)


def test_labels_may_be_made_of_a_column(tmp_path: Path) -> None:
    frame = dd.read_parquet(write(tmp_path / "rows", 8))
    here = table()
    expected = model(QUICK).fit(here[NAMES], (here["day"] > 3).astype(int))
    assert_same_bits(expected, model(QUICK).fit(frame[NAMES], (frame["day"] > 3).astype(int)))


def test_unknown_chunk_sizes(tmp_path: Path) -> None:
    """Arrays of a table, whose chunks have no known sizes; of equal partitions, and of others."""
    frame = dd.read_parquet(write(tmp_path / "rows", 8)).persist()
    expected = model(QUICK).fit(table()[NAMES].to_numpy(), table()["label"].to_numpy())
    found = model(QUICK).fit(frame[NAMES].values, frame["label"].values)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-12)
    with Ledger(Budget(300.0, 1e-5)) as ledger, pytest.raises(ValueError, match="X has 8 partitions and y has 4"):
        model(QUICK).fit(frame[NAMES].values, frame["label"].repartition(npartitions=4).values)
    assert ledger.epsilon == 0


# --- refusals before the bill ----------------------------------------------------------------------------------------


def without_a_column(path: Path) -> tuple[Any, Any, Any]:
    folder = write(path / "rows", 8)
    pd.read_parquet(folder / "0005.parquet").drop(columns="x4").to_parquet(folder / "0005.parquet")
    return split(dd.read_parquet(folder))


def with_words(path: Path) -> tuple[Any, Any, Any]:
    folder = write(path / "rows", 8)
    pd.read_parquet(folder / "0005.parquet").assign(x4="Jane Doe").to_parquet(folder / "0005.parquet")
    return split(dd.read_parquet(folder))


def with_labels_of_another_type(path: Path) -> tuple[Any, Any, Any]:
    folder = write(path / "rows", 8)
    pd.read_parquet(folder / "0005.parquet").assign(label=1.5).to_parquet(folder / "0005.parquet")
    return split(dd.read_parquet(folder))


def without_a_file(path: Path) -> tuple[Any, Any, Any]:
    frame = dd.read_parquet(write(path / "rows", 8))
    (path / "rows" / "0003.parquet").unlink()
    return split(frame)


def with_a_cut_file(path: Path) -> tuple[Any, Any, Any]:
    frame = dd.read_parquet(write(path / "rows", 8))
    file = path / "rows" / "0003.parquet"
    file.write_bytes(file.read_bytes()[:2000])
    return split(frame)


def other_partitions(path: Path) -> tuple[Any, Any, Any]:
    X, y, people = split(dd.read_parquet(write(path / "rows", 8)))
    return X.persist(), y.repartition(npartitions=3), people


def other_people(path: Path) -> tuple[Any, Any, Any]:
    X, y, _ = split(dd.read_parquet(write(path / "rows", 8)).persist())
    return X, y, dd.from_pandas(table()["person"], npartitions=5)


def people_in_another_order(path: Path) -> tuple[Any, Any, Any]:
    X, y, _ = split(dd.from_pandas(table(), npartitions=5))
    turned = table()["person"].iloc[::-1]
    return X, y, dd.from_delayed([dask.delayed(turned[k * 240 : (k + 1) * 240]) for k in range(5)], meta=turned[:0])


def other_rows(path: Path) -> tuple[Any, Any, Any]:
    frame = dd.read_parquet(write(path / "rows", 8))
    return frame[frame["day"] < 4][NAMES], frame["label"], frame["person"]


BAD: dict[str, tuple[Callable[[Path], tuple[Any, Any, Any]], str]] = {
    "a column missing in a file": (without_a_column, "partition . of the rows: .*columns"),
    "words in a file": (with_words, "partition . of the rows: (it cannot be read|could not convert)"),
    "labels of another type": (with_labels_of_another_type, "labels must be all strings or all numbers|partition ."),
    "a file missing": (without_a_file, "partition . of the rows: it cannot be read .*every worker"),
    "a file cut off": (with_a_cut_file, "partition . of the rows: it cannot be read"),
    "other partitions": (other_partitions, "X has 8 partitions and y has 3; take both from one Dask DataFrame"),
    "people of another source": (other_people, "X has . partitions and groups has 5; take both from one"),
    "people in another order": (people_in_another_order, "X and groups have different indices"),
    "rows left out of X alone": (other_rows, "X and y have different indices"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said_before_anything_is_billed(case: str, tmp_path: Path) -> None:
    make, message = BAD[case]
    X, y, groups = make(tmp_path)
    with Ledger(Budget(300.0, 1e-5)) as ledger, pytest.raises(ValueError, match=message) as raised:
        model(QUICK, bounds=PEOPLE).fit(X, y, groups=groups)
    assert ledger.epsilon == 0
    assert "Jane" not in str(raised.value)


def read_or_fail(part: int) -> pd.DataFrame:
    if part == 2:
        raise KeyError("Jane Doe")
    return table()[part * 300 : (part + 1) * 300]


def test_a_source_that_fails_is_not_quoted() -> None:
    """What a library says of a file may quote a cell."""
    frame = dd.from_map(read_or_fail, range(4), meta=table()[:0])
    with Ledger(Budget(300.0, 1e-5)) as ledger, pytest.raises(ValueError, match="partition 2 of the rows") as raised:
        model(QUICK, bounds=PEOPLE).fit(*split(frame))
    assert "KeyError" in str(raised.value)
    assert "Jane" not in str(raised.value)
    assert ledger.epsilon == 0


@pytest.mark.parametrize("error", [ValueError, TimeoutError])
def test_a_task_of_an_array_that_fails_is_not_quoted(error: type[Exception]) -> None:
    """A task's own TimeoutError is no cluster that takes long: the fit ends."""

    def fail(block: Any, **of_dask: Any) -> Any:
        raise error("Jane Doe")

    X = da.ones((40, 3), chunks=(10, 3)).map_blocks(fail, dtype=float, meta=np.ones((0, 3)))
    with Ledger(Budget(300.0, 1e-5)) as ledger, pytest.raises(ValueError, match="it cannot be read") as raised:
        model(QUICK).fit(X, da.arange(40, chunks=10) % 2)
    assert error.__name__ in str(raised.value)
    assert "Jane" not in str(raised.value)
    assert raised.value.__context__ is None
    assert ledger.epsilon == 0


def fail_to_read(table: Any) -> Any:
    raise LookupError("Jane Doe")


def test_cells_that_cannot_be_read_are_not_quoted_whatever_the_error() -> None:
    """Of an error that leaves a task Dask logs the arguments: the rows."""
    cells = table()
    checked = check_one(Rules(reader=fail_to_read), cells[NAMES], cells["label"], None)[0]
    assert "LookupError" in checked.problem
    assert "Jane" not in checked.problem


@pytest.mark.parametrize("first", [0, 2**53 + 1])
def test_an_id_is_one_person_whatever_type_a_partition_has(first: int, tmp_path: Path) -> None:
    """A file with an empty cell has its integers as floats, also once the row is left out. Floats have 53 bits: larger
    ids are refused."""
    ids = first + 2 * (np.arange(N) % 300)
    frame = table().assign(person=pd.array(ids, dtype="Int64"))
    frame.loc[5, "person"] = pd.NA
    for k, numbers in enumerate(np.array_split(np.arange(N), 4)):
        # As other writers than pandas leave them: without a note on its types.
        cells = pyarrow.Table.from_pandas(frame.iloc[numbers], preserve_index=False).replace_schema_metadata(None)
        pyarrow.parquet.write_table(cells, tmp_path / f"{k}.parquet")
    there = dd.read_parquet(tmp_path).dropna(subset=["person"])
    kinds = {part.dtype for part in dask.compute(*there["person"].to_delayed())}
    assert len(kinds) == 2, kinds
    if first:
        with pytest.raises(ValueError, match="large whole numbers as floats"):
            RowsOnDask(*split(there))
    else:
        assert select_first_rows(RowsOnDask(*split(there)).people, 1).sum() == 300
