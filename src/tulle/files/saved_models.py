"""Which classes of models files may hold, by name. Their modules are imported when such a file is read or written.

`tulle/__init__.py` registers them: it knows all packages, while the code that reads files stands below some of them.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `tulle.cli`
if TYPE_CHECKING:
    from typing import Any

_MODULES: dict[str, str] = {}


def register_models(module: str, *classes: str) -> None:
    """Register classes of models, and the module that defines them."""
    _MODULES.update(dict.fromkeys(classes, module))


def saved_models() -> frozenset[str]:
    """The names of all models that files may hold."""
    return frozenset(_MODULES)


def model_class(name: str) -> Any:
    """The class of a model; None for names that are no models."""
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name) if name in _MODULES else None
