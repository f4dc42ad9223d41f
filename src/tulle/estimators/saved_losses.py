"""Losses of a user's own in saved models: the name of the class and its plain settings, never code.

A file must not decide which modules are imported: importing runs code. So the reader of the model passes the loss, and
what the file says is compared with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tulle.files.archive import ArchiveError
from tulle.methods.loss_functions import Loss

_OWN = "own loss"
_PLAIN = (bool, int, float, str, type(None))


class OtherLossError(ArchiveError):
    """The model was fitted with another loss than the one that was passed, or with one that must be passed."""


def pack_own_loss(loss: Loss) -> dict[str, Any]:
    """What a file says of a loss of a user's own, as plain JSON."""
    return {_OWN: f"{type(loss).__module__}.{type(loss).__qualname__}", "settings": _plain_settings(loss)}


def with_own_loss(settings: Mapping[str, Any], loss: Loss | None) -> dict[str, Any]:
    """The settings of a saved model with the caller's loss in its place.

    Parameters
    ----------
    settings : mapping
        Of the model, as the file has them.
    loss : Loss or None
        The caller's.

    Raises
    ------
    OtherLossError
        Where the file says another class or other settings, where it needs a loss and there is none, or needs none.
    """
    packed = settings.get("loss")
    if not (isinstance(packed, Mapping) and _OWN in packed):
        if loss is not None:
            raise OtherLossError(f"was fitted with a loss of tulle, not with {loss!r}; omit loss=")
        return dict(settings)
    name = packed[_OWN]
    if not (isinstance(name, str) and name.isprintable() and isinstance(packed.get("settings"), Mapping)):
        raise ValueError("the setting loss does not contain the name of a class and its settings")
    short = name.rpartition(".")[2]
    if loss is None:
        raise OtherLossError(
            f"was fitted with the loss {name}, which is not of tulle and is not imported from a file; import it "
            f"yourself and pass load(path, loss={short}(...))"
        )
    # By the name of the class: a module may be called otherwise where the model is used.
    if type(loss).__qualname__.rpartition(".")[2] != short:
        raise OtherLossError(f"was fitted with the loss {name}, not with {loss!r}")
    given, kept = _plain_settings(loss), dict(packed["settings"])
    if differing := sorted(key for key in {*given, *kept} if given.get(key) != kept.get(key)):
        key = differing[0]
        raise OtherLossError(
            f"was fitted with the loss {name} of {key} = {kept.get(key)!r}, not {given.get(key)!r}; pass a loss with "
            "the same settings"
        )
    return {**settings, "loss": loss}


def _plain_settings(loss: Loss) -> dict[str, Any]:
    """Its fields and attributes that JSON has words for."""
    fields: tuple[Any, ...] = dataclasses.fields(loss) if dataclasses.is_dataclass(loss) else ()
    values = {field.name: getattr(loss, field.name) for field in fields} | getattr(loss, "__dict__", {})
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
    return {name: value for name, value in plain.items() if isinstance(value, _PLAIN)}
