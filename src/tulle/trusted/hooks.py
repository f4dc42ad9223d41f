"""What other packages may add to trusted code: sharper bounds, and faster ways to answers of the same law.

Trusted code runs without any of them. A report names those that are installed; TULLE_PLAIN=1 keeps faster code out.
"""

from __future__ import annotations

from typing import Any, Literal

Hook = Literal["renyi", "solver", "block", "margins", "batches", "scores_on_demand", "sum_along_path", "lazy_noise"]

_HOOKS: dict[Hook, Any] = {}
_WORDS: dict[Hook, str] = {}


def install(hook: Hook, function: Any, words: str = "") -> None:
    """Use a function, or an object with several, for a hook. `words` describe it in reports."""
    _HOOKS[hook] = function
    _WORDS[hook] = words


def get(hook: Hook) -> Any:
    """The function that was installed for a hook, or None."""
    return _HOOKS.get(hook)


def installed() -> tuple[str, ...]:
    """The descriptions of all installed hooks that have one."""
    return tuple(words for words in _WORDS.values() if words)
