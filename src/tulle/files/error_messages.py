"""What may be repeated of an error that came while private rows were in memory.

A library's message can quote a cell ("could not convert string to float: 'Jane Doe'"), and so can the interpreter's (a
`KeyError` is its key). The message of a raise statement of tulle does not, and is repeated. Of other errors the type
and the place in the code are reported.
"""

from __future__ import annotations

import dis
import os
import traceback
from types import TracebackType
from typing import Any

_RAISE = dis.opmap["RAISE_VARARGS"]


class PrivacyWarning(UserWarning):
    """A guarantee that is weaker than it looks."""


def show_setting(value: Any) -> str:
    """A setting as a message quotes it: as Python's own types, 'yes' and not np.str_('yes'). Never a cell."""
    return repr(_as_plain(value))


def _as_plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_as_plain(item) for item in value]) if type(value) in (list, tuple) else value
    return _as_plain(value.tolist()) if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def get_own_message(error: BaseException) -> str | None:
    """The message of an error that a raise statement of tulle raised; None where a library or the interpreter did."""
    last = _find_last_frame(error)
    if last is None:
        return None
    code = last.tb_frame.f_code.co_code
    module = str(last.tb_frame.f_globals.get("__name__", ""))
    ours = module.partition(".")[0] == "tulle" and code[last.tb_lasti] == _RAISE
    return str(error) if ours else None


def describe_error(error: BaseException) -> str:
    """The type of an error, with its message if that is of tulle, or else the place that it came from."""
    message, kind = get_own_message(error), type(error).__name__
    if message is not None:
        return f"{kind}: {message}" if message else kind
    last = _find_last_frame(error)
    if last is None:
        return kind
    return f"{kind} ({os.path.basename(last.tb_frame.f_code.co_filename)}, line {last.tb_lineno})"


def format_trace(error: BaseException) -> str:
    """The traceback of an error and of its causes, each described by `describe_error`."""
    chain, seen = [], set()
    behind: BaseException | None = error
    while behind is not None and id(behind) not in seen:
        seen.add(id(behind))
        chain.append("".join([*traceback.format_tb(behind.__traceback__), describe_error(behind), "\n"]))
        behind = behind.__cause__ or (None if behind.__suppress_context__ else behind.__context__)
    return "\n".join(["Traceback (most recent call last):", "\ncaused by:\n".join(chain)])


def _find_last_frame(error: BaseException) -> TracebackType | None:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last
