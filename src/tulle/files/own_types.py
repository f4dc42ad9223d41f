"""Which classes are tulle's own, where code treats them differently from a user's.

By exact type: a subclass does not inherit what its parent was registered for, since it may do anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

Role = Literal["model", "block matrix", "block folder", "rows elsewhere", "rows at clients", "lazy rows"]
C = TypeVar("C", bound=type)

_ROLES: dict[type, Role] = {}


def register(role: Role) -> Callable[[C], C]:
    """Decorate a class of tulle to register it for a role."""

    def add(cls: C) -> C:
        _ROLES[cls] = role
        return cls

    return add


def role_of(thing: object) -> Role | None:
    """The role of an object's class; None for all classes that are not registered, subclasses among them."""
    return _ROLES.get(type(thing))
