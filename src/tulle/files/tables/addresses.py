"""Which files a path, a glob or an address such as s3://bucket/table means, and how they are opened."""

from __future__ import annotations

import glob
import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tulle.files.install_hints import packages_hint
from tulle.files.tables.input_files import FORMATS, Source, TableError, open_source

_Found = TypeVar("_Found")


def files_at(name: str) -> tuple[list[str], bool]:
    """The files that a path, a glob or an address means, sorted, and whether it is a folder.

    In a folder and for a glob, names that begin with a dot or an underscore are skipped (_SUCCESS, _metadata).
    """
    if "://" in name:
        return _remote_files(name)
    if os.path.isdir(name):
        try:
            entries = [(entry.path, entry.is_dir()) for entry in os.scandir(name)]
        except OSError as error:
            raise TableError(f"{name}: the folder cannot be read ({error.strerror}); check its permissions") from None
        return _parquet_files(name, entries), True
    if glob.has_magic(name) and not os.path.lexists(name):
        return _matching(name, [path for path in glob.glob(name) if not os.path.isdir(path)]), False
    return [name], False


def _remote_files(name: str) -> tuple[list[str], bool]:
    system, path = _file_system(name)

    def there() -> tuple[list[str], bool]:
        if glob.has_magic(path) and not system.exists(path):
            found = system.glob(path, detail=True)
            files = [file for file, info in found.items() if info["type"] == "file"]
            return [system.unstrip_protocol(file) for file in _matching(name, files)], False
        if system.isdir(path):
            entries = [(entry["name"], entry["type"] == "directory") for entry in system.ls(path, detail=True)]
            return [system.unstrip_protocol(file) for file in _parquet_files(name, entries)], True
        return [name], False

    return _asked(name, there)


def _parquet_files(name: str, entries: Sequence[tuple[str, bool]]) -> list[str]:
    seen = [(path, folder) for path, folder in entries if not _hidden(path)]
    folders = [path for path, folder in seen if folder]
    others = [path for path, folder in seen if not folder and not path.lower().endswith(FORMATS["parquet"])]
    parts = sorted(path for path, folder in seen if not folder and path.lower().endswith(FORMATS["parquet"]))
    if not parts:
        raise TableError(f"{name}: no Parquet files in this folder; pass the path of a file")
    if folders or others:
        counts = f"{len(folders):,} folders and {len(others):,} files that are not Parquet"
        raise TableError(
            f"{name}: {counts} in this folder; move them, or pass a glob ({posixpath.join(name, '*.parquet')})"
        )
    return parts


def _matching(name: str, files: Sequence[str]) -> list[str]:
    found = sorted(path for path in files if not _hidden(path))
    if not found:
        raise TableError(f"{name}: no file matches; check the path")
    return found


def _hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))


# --- opening -------------------------------------------------------------------------------------------------------


@contextmanager
def open_address(name: str) -> Iterator[Source]:
    """Open a file on disk or, where the name has a protocol (s3://), through fsspec."""
    if "://" not in name:
        with open_source(name) as source:
            yield source
        return
    system, path = _file_system(name)
    if not (size := _asked(name, lambda: int(system.size(path) or 0))):
        raise TableError(f"{name}: the file is empty; write the table again")
    with _asked(name, lambda: system.open(path, "rb")) as raw:
        yield Source(name, raw, size)


def stamp_of(source: Source) -> str:
    """What changes when a file is written again: its size and time of the last change, or what a storage says of it."""
    if "://" not in source.name:
        found = os.fstat(source.raw.fileno())
        return f"{found.st_size} {found.st_mtime_ns}"
    system, path = _file_system(source.name)

    def ask() -> str:
        system.invalidate_cache()
        return str(system.ukey(path))

    return _asked(source.name, ask)


def _file_system(name: str) -> tuple[Any, str]:
    """The fsspec file system of an address, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise TableError(
            f"{name}: addresses with :// need fsspec and the package for their storage: "
            f"{packages_hint('fsspec', 's3fs')} for s3://"
        ) from None
    try:
        found: tuple[Any, str] = url_to_fs(name)
    except (ImportError, ValueError):
        protocol = name.partition("://")[0]
        raise TableError(
            f"{name}: fsspec cannot open {protocol}://; install the package for this storage (s3fs for s3://, gcsfs "
            "for gs://), or check the address"
        ) from None
    return found


def _asked(name: str, ask: Callable[[], _Found]) -> _Found:
    """The answer of a storage; of its errors, only the kind is named."""
    try:
        return ask()
    except TableError:
        raise
    except FileNotFoundError:
        raise TableError(f"{name}: no such file; check the address") from None
    except Exception as error:
        raise TableError(
            f"{name}: cannot be read ({type(error).__name__}); check the address and the credentials"
        ) from None
