"""Several files whose rows are appended: which they are, that they have the same columns, and their contents.

Everything here is found before a row is used: a column that one file lacks is refused before anything is written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tulle.files.tables import check_wanted
from tulle.files.tables.addresses import files_at, open_address, stamp_of
from tulle.files.tables.columns import Layout, Wanted
from tulle.files.tables.in_order import map_in_order
from tulle.files.tables.input_files import Progress, Source, TableError

FindLayout = Callable[[Source], tuple[str, Layout]]


@dataclass(frozen=True)
class InputFile:
    """A file of which the header was read.

    Attributes
    ----------
    path : str
    format : str
    layout : Layout
    stamp : str
        Size and time of the last change, or what a storage says of it.
    suffix : str
        What its name says about how it is read, such as ".tsv.gz".
    content : str
        "sha256:" and the hash of its bytes; "" where it was not read yet.
    """

    path: str
    format: str
    layout: Layout
    stamp: str
    suffix: str
    content: str = ""


def list_files(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The files of paths, globs, folders of Parquet files and addresses: in the order given, and by name within each.

    Raises
    ------
    TableError
        Where one cannot be found, or is named twice: its rows would count twice.
    """
    found = [file for path in paths for file in files_at(os.fsdecode(path))[0]]
    if not found:
        raise TableError("no input: name a file")
    seen: dict[str, str] = {}
    for file in found:
        key = file if "://" in file else os.path.realpath(file)
        if key in seen:
            raise TableError(f"{file}: named twice (also as {seen[key]}), so its rows would count twice; name it once")
        seen[key] = file
    return found


def open_all(files: Sequence[str], find_layout: FindLayout) -> list[InputFile]:
    """Read the headers of all files; refused where one does not match the first."""
    found: list[InputFile] = []
    for path in files:
        with open_address(path) as source:
            format, layout = find_layout(source)
            if len(files) > 1 and format == "npz":
                raise source.refusal("npz files are read whole, so each is converted alone; pass one file")
            if found:
                layout.check_same(source, found[0].path, found[0].layout)
            found.append(InputFile(path, format, layout, stamp_of(source), source.suffix + source.packing))
    return found


@contextmanager
def unchanged(file: InputFile) -> Iterator[None]:
    """Around a later reading of a file: refused where it has changed since its header was read."""
    check_unchanged(file)
    yield
    check_unchanged(file)


def check_unchanged(file: InputFile) -> None:
    """Refuse a file that has changed since its header was read."""
    with open_address(file.path) as source:
        if stamp_of(source) != file.stamp:
            raise source.refusal("changed while it was being read; wait until it is complete and read it again")


def fingerprint_all(files: Sequence[InputFile], jobs: int, *, progress: bool = False) -> list[InputFile]:
    """The same files with the hashes of their bytes, some at a time."""

    def fingerprint(file: InputFile) -> InputFile:
        with unchanged(file), open_address(file.path) as source:
            said = Progress(file.path, shown=progress and len(files) == 1, verb="checked")
            try:
                return replace(file, content=source.fingerprint(said))
            finally:
                said.close()

    return list(map_in_order(fingerprint, files, jobs))


def join_contents(files: Sequence[InputFile]) -> str:
    """The hash of one file, or of the hashes of several in order."""
    if len(files) == 1:
        return files[0].content
    return f"sha256:{hashlib.sha256(' '.join(file.content for file in files).encode()).hexdigest()}"


def find_numeric_layout(source: Source, wanted: Wanted, format: str | None) -> tuple[str, Layout]:
    """The format and the layout of a table of numbers (`tulle.files.tables.read_table`)."""
    chosen = check_wanted(source, wanted, format)
    if chosen == "svmlight":
        return chosen, Layout((), "numbers", "numbers" if wanted.groups else "", sparse=True)
    if chosen == "npz":  # a single file, which is refused for its content when it is read
        return chosen, Layout((), "", "")
    from tulle.files.tables.numeric_rows import find_csv_layout, find_parquet_layout

    return chosen, (find_csv_layout if chosen == "csv" else find_parquet_layout)(source, wanted)
