"""Fingerprints: which subject the runs in a folder are of."""

from __future__ import annotations

import hashlib
from types import CodeType
from typing import Any

import numpy as np
import scipy.sparse as sp


def code_text(code: Any) -> str:
    """What a function does, as text that is the same in every process: inner functions by their code, not address."""
    if not isinstance(code, CodeType):
        return repr(code)
    return repr((code.co_code, code.co_names, [code_text(constant) for constant in code.co_consts]))


def function_text(fit: Any) -> tuple[str, str]:
    """Which function it is, and what it does."""
    name = (getattr(fit, "__module__", ""), getattr(fit, "__qualname__", type(fit).__qualname__))
    return repr(name), code_text(getattr(fit, "__code__", None))


def digest(*parts: Any) -> str:
    """A hash of texts and arrays, dense or sparse."""
    digest = hashlib.sha256()
    for part in parts:
        pieces = [part]
        if sp.issparse(part):
            entries = part.tocoo()
            pieces = [entries.row, entries.col, entries.data]
        for piece in pieces:
            array = np.asarray(piece)
            digest.update(repr((array.shape, array.dtype)).encode())
            digest.update(array.tobytes() if array.dtype != object else repr(array.tolist()).encode())
    return digest.hexdigest()
