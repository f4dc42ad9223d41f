"""Files converted into a folder of blocks: several, by several threads, continued where it was interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict
from dataclasses import replace as replace_fields
from functools import partial
from typing import Any, Protocol

from tulle import __version__
from tulle.backends.block_files import WriteError
from tulle.backends.block_folder import BlockFolder, open_blocks
from tulle.backends.block_writer import BlockWriter
from tulle.backends.encoded_rows import EncodedInput, pack_schema
from tulle.backends.partial_folder import Place
from tulle.files.tables import open_batches
from tulle.files.tables.columns import Layout, Parts, Wanted
from tulle.files.tables.input_files import BatchStart, Source
from tulle.files.tables.input_list import (
    InputFile,
    check_unchanged,
    find_numeric_layout,
    fingerprint_all,
    join_contents,
    list_files,
    open_all,
    unchanged,
)
from tulle.monitoring.log_events import log_event
from tulle.schema.declared_schema import Schema

Batches = Generator[tuple[Parts, BatchStart | None], None, None]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class _Input(Protocol):
    """How files are read."""

    def find_layout(self, source: Source) -> tuple[str, Layout]: ...

    def read(
        self, file: InputFile, first_row: int, jobs: int, start: BatchStart | None, *, progress: bool
    ) -> Batches: ...


class _NumericInput:
    """Files of numbers, as `tulle.files.tables.read_table` reads them."""

    def __init__(self, wanted: Wanted, format: str | None) -> None:
        self._wanted, self._format = wanted, format
        self._features: tuple[str, ...] = ()
        self.width_from_rows = False

    def find_layout(self, source: Source) -> tuple[str, Layout]:
        format, layout = find_numeric_layout(source, self._wanted, self._format)
        self._features = self._features or layout.features
        self.width_from_rows = source.width_from_rows
        return format, layout

    def read(self, file: InputFile, first_row: int, jobs: int, start: BatchStart | None, *, progress: bool) -> Batches:
        wanted = self._wanted
        if file.layout.features != self._features:  # the same columns in another order
            wanted = replace_fields(wanted, features=self._features)
        with open_batches(file.path, wanted, format=self._format, progress=progress, jobs=jobs, start=start) as (
            source,
            batches,
        ):
            for batch in batches:
                yield batch, source.batch_start


def convert_table(
    paths: Paths,
    folder: str | os.PathLike[str],
    *,
    schema: Schema | None = None,
    rows_per_block: int | None = None,
    replace: bool = False,
    restart: bool = False,
    jobs: int | None = None,
    format: str | None = None,
    progress: bool = False,
    on_resume: Callable[[int], None] | None = None,
    **reading: Any,
) -> BlockFolder:
    """Put the rows of files into a folder of blocks; ``tulle convert`` does this.

    CSV, svmlight and Parquet files are read a few megabytes at a time, however long they are. npz files are read whole.
    The bytes of the folder do not depend on `jobs`, nor on whether the conversion was interrupted: a process that was
    killed, interrupted or stopped by a full disk leaves finished blocks in a hidden folder, and the same call goes on
    with them if tulle's version, the settings and the bytes of the input are the same.

    Parameters
    ----------
    paths : path or sequence of paths
        Files that `tulle.files.tables.read_table` reads, with the same columns by name; globs, folders of Parquet files
        and addresses such as s3://bucket/table.parquet (extra package: fsspec). Rows are appended in the order given,
        and by name in a folder and for a glob. What `read_table` refuses is refused here, with the same words.
    folder : path
        The folder to make.
    schema : Schema or None, default=None
        Declares raw columns, target and people (CSV and Parquet): rows are encoded by it, and the folder contains it.
    rows_per_block, replace
        As in `BlockWriter`.
    restart : bool, default=False
        Whether to delete the finished blocks of an interrupted conversion to the same folder. Without it, one of other
        input or with other settings is refused, and one of the same is continued.
    jobs : int or None, default=None
        At least 1: threads that parse, hash and write. None: all processors. Each holds about two blocks.
    on_resume : callable or None, default=None
        Called with the number of rows that an interrupted conversion had converted, if it is continued.
    format, progress, **reading
        As in `tulle.files.tables.read_table`: `target`, `groups`, `ignore`, `n_features`, `missing` and so on. With a
        schema: `header`, `delimiter` and `encoding`.

    Returns
    -------
    BlockFolder
        With the arrays that `read_table` would give, and the file's own fingerprint as its `content`.

    Raises
    ------
    TableError
        Where files cannot be read, or do not have the same columns: before anything is written.
    """
    jobs = _count_processors() if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    reading = {name: tuple(of) if isinstance(of, list) else of for name, of in reading.items()}
    log_event(__name__, "convert.begin")
    rows: _Input
    if schema is not None:
        rows, missing = EncodedInput(schema, {"format": format, **reading}), False
    else:
        rows, missing = _NumericInput(wanted := Wanted(**reading), format), wanted.missing
    files = open_all(list_files(given), rows.find_layout)
    files = fingerprint_all(files, jobs, progress=progress)
    packed = None if schema is None else pack_schema(schema)
    identity = {
        "input": [file.content for file in files],
        "suffixes": [file.suffix for file in files],
        "options": {"format": format, **(reading if schema is not None else asdict(wanted))},
        "rows per block": rows_per_block,
        "schema": packed,
        "tulle version": __version__,
    }
    writer = BlockWriter(
        folder,
        rows_per_block=rows_per_block,
        replace=replace,
        missing=missing,
        jobs=jobs,
        restart=restart,
        identity=_as_json(identity),
    )
    resumed = sum(block.n_rows for block in writer.finished)
    if resumed and on_resume is not None:
        on_resume(resumed)
    try:
        writer.schema, writer.content = packed, join_contents(files)
        writer.width_from_rows = getattr(rows, "width_from_rows", False)
        _write(writer, rows, files, resumed, jobs, progress=progress)
        writer.finish()
    except (KeyboardInterrupt, WriteError) as stopped:
        if place := writer.leave():
            stopped.add_note(
                f"Finished blocks are in {place}, which contains private rows: run the same command again to continue, "
                "or delete it."
            )
        raise
    except BaseException:
        writer.discard()
        raise
    return open_blocks(folder)


def _write(
    writer: BlockWriter, rows: _Input, files: Sequence[InputFile], resumed: int, jobs: int, *, progress: bool
) -> None:
    """Append the rows of all files, except those that are in blocks already."""
    at = writer.finished[-1].place if writer.finished else Place(0, 0)
    assert at is not None
    before = resumed - at.taken  # rows of the files before this one
    for number in range(at.input, len(files)):
        start = BatchStart(at.row, at.offset) if at.offset >= 0 else None
        read = 0 if start is None else start.row
        skip = at.taken - read
        # A process that is killed after the file has changed must not leave blocks of both states.
        writer.check_input = partial(check_unchanged, files[number])
        batches = rows.read(files[number], before + read, jobs, start, progress=progress)
        with unchanged(files[number]), closing(batches):
            for batch, begin in batches:
                n = batch.X.shape[0]
                drop = min(skip, n)
                skip -= drop
                place = Place(number, read + drop, *((0, -1) if begin is None else begin))
                read += n
                writer.feature_names = batch.feature_names
                if drop < n:
                    y, groups = (None if part is None else part[drop:] for part in (batch.y, batch.groups))
                    writer.take(batch.X[drop:], y, groups, place)
        before += read
        at = Place(number + 1, 0)


def _as_json(values: dict[str, Any]) -> Any:
    """As they are read from a journal."""
    return json.loads(json.dumps(values))


def _count_processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
