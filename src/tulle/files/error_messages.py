"""What may be said of an error that came while private rows were at hand.

A library's words can quote a cell ("could not convert string to float: 'Jane Doe'"), and so can those of the
interpreter (a `KeyError` is its key). What a raise statement of tulle says is known not to: it is told, and of other
errors their type and the place in the code.
"""

from __future__ import annotations

import dis
import os
import traceback
from types import TracebackType

_RAISE = dis.opmap["RAISE_VARARGS"]


def own_words(error: BaseException) -> str | None:
    """What an error says, where a raise statement of tulle raised it; None where a library or the interpreter did."""
    last = _last(error)
    if last is None:
        return None
    code = last.tb_frame.f_code.co_code
    module = str(last.tb_frame.f_globals.get("__name__", ""))
    ours = module.partition(".")[0] == "tulle" and code[last.tb_lasti] == _RAISE
    return str(error) if ours else None


def said_of(error: BaseException) -> str:
    """The type of an error, with its own words or else the place that it came from."""
    words, kind = own_words(error), type(error).__name__
    if words is not None:
        return f"{kind}: {words}" if words else kind
    last = _last(error)
    if last is None:
        return kind
    return f"{kind} ({os.path.basename(last.tb_frame.f_code.co_filename)}, line {last.tb_lineno})"


def traced(error: BaseException) -> str:
    """The traceback of an error and of those behind it, in the words of `said_of`."""
    chain, seen = [], set()
    behind: BaseException | None = error
    while behind is not None and id(behind) not in seen:
        seen.add(id(behind))
        chain.append("".join([*traceback.format_tb(behind.__traceback__), said_of(behind), "\n"]))
        behind = behind.__cause__ or (None if behind.__suppress_context__ else behind.__context__)
    return "\n".join(["Traceback (most recent call last):", "\nwhich came of:\n".join(chain)])


def _last(error: BaseException) -> TracebackType | None:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last
