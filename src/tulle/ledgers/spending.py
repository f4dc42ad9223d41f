"""How many private releases this process has begun, so that a command that fails later does not say that nothing was
spent. Counted where an account was opened: by then every ledger is billed, and noise may be drawn."""

from __future__ import annotations

import threading

_lock = threading.Lock()
_begun = 0


def note_release() -> None:
    """Count a release that is billed, and whose noise may be drawn from now on."""
    global _begun
    with _lock:
        _begun += 1


def count_releases() -> int:
    """How many were begun in this process. They stay spent, even if they fail."""
    return _begun
