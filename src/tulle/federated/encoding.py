"""What travels between a server and its clients, as bytes: a closed set of messages, no pickles, no code.

    b"tulle federated 2\\n", the length of the head (8 bytes, little-endian), the head as JSON, and arrays as raw bytes.

A value of the head is plain JSON, or one of {"float": "inf"}, {"tuple": [...]}, {"array": number} and
{"is": class, "of": {field: value}} with one of the classes that the reader expects. Readers refuse another
version, unknown classes or fields, the same field twice, arrays that do not fit their bytes, and messages longer than
they allow. A field that was added later (`ADDED_LATER`) may be missing, and is not sent where it has its default value:
then older states and messages can be read, and readers that do not know the field can read new ones. Classes check
their own values when they are made: nothing that was read is run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC = b"tulle federated 2\n"

# Studies of version 1 stated a delta that left out what finite precision took.
_BEFORE = b"tulle federated 1\n"

# No message is longer unless a reader says so: a dense vector of a million weights is 8 MB.
MOST_BYTES = 256 * 2**20
# Nested values of honest messages are a handful deep.
_DEEPEST = 32

_KINDS: dict[str, np.dtype[Any]] = {
    "<f8": np.dtype("<f8"),
    "<i8": np.dtype("<i8"),
    "<i4": np.dtype("<i4"),
    "|b1": np.dtype("|b1"),
}

Array = npt.NDArray[Any]

# The metadata of a dataclass's field that earlier messages and states of the same version do not have.
ADDED_LATER = {"added later": True}


class WireError(ValueError):
    """Bytes that are no message."""


class OlderVersionError(WireError):
    """A message of an earlier version."""


def encode(message: Any) -> bytes:
    """The bytes of a message: a frozen dataclass of plain values, arrays and other such dataclasses."""
    arrays: list[Array] = []
    head = {"message": _plain(message, arrays), "arrays": [[array.dtype.str, list(array.shape)] for array in arrays]}
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([MAGIC, len(text).to_bytes(8, "little"), text, *(array.tobytes() for array in arrays)])


def _plain(value: Any, arrays: list[Array]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, np.ndarray):
        arrays.append(_writable(value))
        return {"array": len(arrays) - 1}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    if is_dataclass(value) and not isinstance(value, type):
        sent = [part for part in fields(value) if part.init and not _is_left_out(part, getattr(value, part.name))]
        parts = {part.name: _plain(getattr(value, part.name), arrays) for part in sent}
        return {"is": type(value).__name__, "of": parts}
    raise TypeError(f"a message cannot hold {type(value).__name__}")


def _is_left_out(part: Field[Any], value: Any) -> bool:
    return _was_added_later(part) and type(value) is type(part.default) and value == part.default


def _was_added_later(part: Field[Any]) -> bool:
    return bool(part.metadata.get("added later"))


def _writable(array: Array) -> Array:
    """The array in one of the few kinds that travel, in the order of its rows."""
    kind = {"f": "<f8", "i": "<i8", "b": "|b1"}.get(array.dtype.kind)
    if kind is None or array.ndim not in (1, 2):
        raise TypeError(f"a message cannot hold an array of {array.dtype} with {array.ndim} dimensions")
    return np.ascontiguousarray(array, dtype=array.dtype if array.dtype.str in _KINDS else kind)


@dataclass
class _Reader:
    classes: Mapping[str, type]
    arrays: list[Array] = field(default_factory=list)

    def value(self, plain: Any, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise WireError("its values are nested too deeply")
        if plain is None or isinstance(plain, (bool, int, float, str)):
            return plain
        if not isinstance(plain, dict):
            raise WireError("it holds a bare list")
        if set(plain) == {"float"} and plain["float"] in ("inf", "-inf", "nan"):
            return float(plain["float"])
        if set(plain) == {"tuple"} and isinstance(plain["tuple"], list):
            return tuple(self.value(item, depth + 1) for item in plain["tuple"])
        if set(plain) == {"array"} and type(plain["array"]) is int and 0 <= plain["array"] < len(self.arrays):
            return self.arrays[plain["array"]]
        if set(plain) == {"is", "of"} and isinstance(plain["is"], str) and isinstance(plain["of"], dict):
            return self._make(plain["is"], plain["of"], depth)
        raise WireError("it holds a value of no known kind")

    def _make(self, name: str, parts: dict[str, Any], depth: int) -> Any:
        cls = self.classes.get(name)
        if cls is None:
            raise WireError(f"{name[:50]!r} is not expected here")
        expected = {part.name for part in fields(cls) if part.init}
        needed = {part.name for part in fields(cls) if part.init and not _was_added_later(part)}
        if not needed <= set(parts) <= expected:
            raise WireError(f"{name} has other fields than it should")
        values = {key: self.value(item, depth + 1) for key, item in parts.items()}
        try:
            return cls(**values)
        except Exception as error:  # any error of a class about values that it does not allow
            raise WireError(f"no {name}: {error}") from None


def decode(raw: bytes, classes: Iterable[type], most_bytes: int = MOST_BYTES) -> Any:
    """The message in some bytes.

    Parameters
    ----------
    raw : bytes
    classes : iterable of type
        The dataclasses that may be in it.
    most_bytes : int
        Longer ones are refused unread.

    Raises
    ------
    WireError
        Where they are none.
    """
    if len(raw) > most_bytes:
        raise WireError(f"a message of {len(raw):,} bytes, where at most {most_bytes:,} are read")
    if raw.startswith(_BEFORE):
        raise OlderVersionError(
            "written by an earlier version of tulle, whose delta leaves the finite-precision part out; it cannot be "
            "gone on with"
        )
    if not raw.startswith(MAGIC):
        raise WireError("no message of this version of tulle")
    start = len(MAGIC) + 8
    end = start + int.from_bytes(raw[len(MAGIC) : start], "little")
    if len(raw) < start or end > len(raw):
        raise WireError("the message is cut short")
    try:
        head = json.loads(raw[start:end].decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"its head cannot be read: {error}") from None
    if not isinstance(head, dict) or set(head) != {"message", "arrays"} or not isinstance(head["arrays"], list):
        raise WireError("its head is none")
    reader = _Reader({cls.__name__: cls for cls in classes})
    for about in head["arrays"]:
        array, end = _array(about, raw, end)
        reader.arrays.append(array)
    if end != len(raw):
        raise WireError("it has more bytes than it says")
    return reader.value(head["message"])


def _array(about: Any, raw: bytes, start: int) -> tuple[Array, int]:
    if not (isinstance(about, list) and len(about) == 2 and isinstance(about[0], str) and about[0] in _KINDS):
        raise WireError("it has an array of no known kind")
    shape = about[1]
    known = isinstance(shape, list) and len(shape) <= 2
    if not known or not all(type(length) is int and 0 <= length < 2**40 for length in shape):
        raise WireError("it has an array of no known shape")
    kind = _KINDS[about[0]]
    count = math.prod(shape)
    end = start + count * kind.itemsize
    if end > len(raw):
        raise WireError("an array is cut short")
    return np.frombuffer(raw, kind, count, start).reshape(shape), end


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise WireError("it has a field twice")
    return found


def _no_constant(name: str) -> float:
    raise WireError(f"it holds {name}")
