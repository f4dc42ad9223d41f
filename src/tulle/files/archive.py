"""One file that holds arrays and a JSON header, without pickles: the format of `save` and `load`.

A numpy .npz whose member `header` is JSON: the format's name and version, the SHA-256 of every array, and the
writer's own entries. Reading checks all of it before anything is used; a file that is cut short, changed, or of another
program is refused.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tulle import __version__
from tulle.files.durable_writes import write_durably
from tulle.files.number_text import finite

Arrays = dict[str, npt.NDArray[Any]]

# A file may unpack to this many bytes, or to this many times its own size, so that a small file cannot fill the memory.
# Deflate reaches a factor of a thousand; arrays that would pass the limit are written without it.
_ALWAYS_ALLOWED = 2**26
_LARGEST_RATIO = 100


# Types that are written and read: truth values, numbers and text.
_KINDS = "biufU"


class ArchiveError(ValueError):
    """The file is not what it should be: damaged, changed, of another program or of a newer version."""


class UnknownPartError(ValueError):
    """A file has a setting or another part that this version of tulle does not know."""


def write_archive(
    path: str | os.PathLike[str], kind: str, version: int, header: Mapping[str, Any], arrays: Arrays
) -> None:
    """Write arrays and a header; the file appears whole or not at all.

    Parameters
    ----------
    path : path
        The file; an older one is replaced.
    kind : str
        What the file holds, such as "tulle model".
    version : int
        Of the layout, at least 1.
    header : mapping
        Plain values, as JSON has them; infinite numbers become strings.
    arrays : dict of arrays
        Of numbers, booleans or strings; no objects.
    """
    for name, array in arrays.items():
        if np.asarray(array).dtype.kind not in _KINDS:
            raise ValueError(f"{name} has type {np.asarray(array).dtype}, which is neither numeric nor text")
    written = {
        **header,
        "format": f"{kind} {version}",
        "arrays": {name: _digest(np.asarray(array)) for name, array in arrays.items()},
    }
    text = json.dumps(finite(written), ensure_ascii=False, allow_nan=False)
    write_durably(path, _pack({"header": np.array(text), **arrays}))


def _pack(arrays: Arrays) -> bytes:
    """The file's bytes: compressed, unless by so much that no reader would believe it."""
    for write in (np.savez_compressed, np.savez):
        file = io.BytesIO()
        write(file, **arrays)  # type: ignore[arg-type]
        content = file.getvalue()
        with zipfile.ZipFile(file) as members:
            if not _is_bomb(members, len(content)):
                break
    return content


def _is_bomb(members: zipfile.ZipFile, size: int) -> bool:
    """Whether a file of this size claims to unpack to more than such a file holds."""
    unpacked = sum(member.file_size for member in members.infolist())
    return unpacked > max(_ALWAYS_ALLOWED, _LARGEST_RATIO * size)


def read_archive(path: str | os.PathLike[str], kind: str, version: int) -> tuple[dict[str, Any], Arrays]:
    """The header and the arrays of a file that `write_archive` wrote.

    Parameters
    ----------
    path : path
    kind : str
        What the file must hold.
    version : int
        The newest layout that is understood.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        try:
            header, arrays = _read(file)
        except ArchiveError as error:
            raise ArchiveError(f"{name} is not a {kind} file: {error}") from None
        except Exception as error:  # zip, zlib, numpy and JSON each have their own
            raise ArchiveError(f"{name} is not a {kind} file, or is damaged: {error}") from error
    found, _, number = str(header.get("format", "")).rpartition(" ")
    if found != kind or not re.fullmatch("[0-9]{1,9}", number):
        raise ArchiveError(f"{name} is not a {kind} file: its format is {str(header.get('format'))[:60]!r}")
    if not 1 <= int(number) <= version:
        raise ArchiveError(
            f"{name} was made by {describe_writer(header)} and is a {kind} of version {number}; this is tulle "
            f"{__version__}, which reads up to version {version}: upgrade tulle"
        )
    sums = header.pop("arrays", None)
    if sums != {member: _digest(array) for member, array in arrays.items()}:
        raise ArchiveError(f"{name} was changed after it was written: its checksums do not match; get another copy")
    return header, arrays


def describe_writer(header: Mapping[str, Any]) -> str:
    """The version of tulle that wrote a file, as its header names it."""
    version = header.get("tulle")
    named = isinstance(version, str) and re.fullmatch(r"[0-9A-Za-z.+!_-]{1,40}", version)
    return f"tulle {version}" if named else "a version of tulle that it does not name"


def make_from_file(make: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """What a class or function makes of settings from a file; `UnknownPartError` where it does not have one of them."""
    if unknown := sorted(set(settings) - set(inspect.signature(make).parameters)):
        plural = "setting" if len(unknown) == 1 else "settings"
        raise UnknownPartError(f"{make.__name__} has no {plural} {', '.join(map(repr, unknown))}")
    return make(**settings)


def _read(file: BinaryIO) -> tuple[dict[str, Any], Arrays]:
    with zipfile.ZipFile(file) as members:
        names = [member.filename for member in members.infolist()]
        if "header.npy" not in names or not all(name.endswith(".npy") for name in names):
            raise ArchiveError("it has no header, or contains something other than arrays")
        if len(set(names)) < len(names):
            raise ArchiveError("two of its arrays have the same name")
        # Sizes are declared in the directory and enforced while reading: a bomb is refused before it is unpacked.
        if _is_bomb(members, file.seek(0, os.SEEK_END)):
            raise ArchiveError("it would unpack to far more data than such a file can have")
        arrays = {name.removesuffix(".npy"): _array(members, name) for name in names}
    text = arrays.pop("header")
    if text.dtype.kind != "U" or text.shape != ():
        raise ArchiveError("its header is not text")
    header = json.loads(str(text))
    if not isinstance(header, dict):
        raise ArchiveError("its header is not an object")
    return header, arrays


def _array(members: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with members.open(name) as member:
        array: npt.NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):
            raise ArchiveError(f"{name} is longer than its array")
        # Text of no letters takes no bytes, and so as many places as a forger likes.
        if array.dtype.kind not in _KINDS or (array.dtype.itemsize == 0 and array.size > 1):
            raise ArchiveError(f"{name} is of type {array.dtype}, which tulle files never contain")
    return array


def _digest(array: npt.NDArray[Any]) -> str:
    """A checksum of type, shape and values."""
    content = np.ascontiguousarray(array)
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(content.tobytes())
    return digest.hexdigest()
