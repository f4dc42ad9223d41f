"""Whether the compiled loops are loaded: asking must not load them, since importing numba takes a second."""

from __future__ import annotations

_loaded = False


def mark_loaded() -> None:
    """Called by the module of compiled loops when it has been imported."""
    global _loaded
    _loaded = True


def is_loaded() -> bool:
    """Whether the compiled loops were imported in this process."""
    return _loaded
