"""Hints: whether the same rows were billed under another name.

A hint is a keyed hash of the rows. It is only a hint: a data set is its name, and one changed row must not reset a
budget. Hints lie in a folder of their own, outside the chain of entries, as names of empty files. They are not for
release: someone who knows all rows but one could test guesses about the last against them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tulle.ledgers.chain import HINTS, Chain, entry_name, hint_key
from tulle.ledgers.entries import Opening, from_json


def hint_of(chain: Chain, rows: Any) -> str:
    """A keyed hash of rows. The key keeps hints of different ledgers apart."""
    digest = hmac.new(hint_key(chain.root), digestmod=hashlib.sha256)
    for part in rows if isinstance(rows, tuple) else (rows,):
        if isinstance(part, str):
            digest.update(part.encode())
            continue
        arrays = (part.data, part.indices, part.indptr) if hasattr(part, "indptr") else (np.asarray(part),)
        for array in arrays:
            # Objects (words, dates) have no bytes of their own but those of their text.
            plain = array.astype(np.str_) if array.dtype == object else array
            digest.update(f"{plain.dtype.str}{plain.shape}".encode())
            digest.update(np.ascontiguousarray(plain).tobytes())
    return digest.hexdigest()[:16]


def leave_hint(chain: Chain, hint: str) -> None:
    """Note that rows were billed to this data set. A disk that refuses costs a warning later, and no budget."""
    folder = chain.root / HINTS
    with suppress(OSError):
        folder.mkdir(mode=chain.root.stat().st_mode & 0o777, exist_ok=True)
        (folder / f"{hint}.{chain.folder.name}").touch(mode=chain.root.stat().st_mode & 0o666)


def other_names(chain: Chain, hint: str) -> Iterator[str]:
    """The names of other data sets that were billed with the same rows."""
    for path in sorted((chain.root / HINTS).glob(f"{hint}.*")):
        folder: Path = chain.root / path.name.partition(".")[2]
        if folder != chain.folder:
            opening = from_json((folder / entry_name(0)).read_bytes())
            assert isinstance(opening, Opening)
            yield opening.dataset
