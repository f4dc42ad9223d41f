"""What is said of errors: tulle's own words, and of others their type and place, since theirs may quote a cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tulle import Budget
from tulle.files import tables
from tulle.files.error_messages import describe_error, format_trace, get_own_message

SECRET = "Jane Doe 12 Elm St"


def caught(call: Any) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_tulle_raises_is_told() -> None:
    error = caught(lambda: Budget(-1.0, 0.1))
    assert get_own_message(error) == str(error)
    assert describe_error(error) == f"ValueError: {error}"
    assert (
        get_own_message(caught(lambda: tables.read_table("nowhere.csv"))) == "nowhere.csv: no such file; check the path"
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: float(SECRET),
        lambda: np.array([SECRET]).astype(float),
        lambda: {}[SECRET],
        lambda: getattr(np, SECRET),
        lambda: np.loadtxt([SECRET], delimiter=","),
    ],
)
def test_what_others_say_is_not_repeated(call: Any) -> None:
    """Of the interpreter, of compiled and of other Python code; not in tracebacks and not by way of another error."""
    error = caught(call)
    assert SECRET in str(error)
    assert get_own_message(error) is None

    def wrapped() -> None:
        try:
            call()
        except Exception as behind:
            raise RuntimeError("an error of ours") from behind

    for text in (describe_error(error), format_trace(error), format_trace(caught(wrapped))):
        assert SECRET not in text
        assert type(error).__name__ in text


def test_compiled_code_that_tulle_calls_is_not_tulle() -> None:
    """The last frame is tulle's, and it did not raise."""
    code = compile(
        f"def cast():\n    float({SECRET!r})\ndef refuse():\n    raise ValueError('ours')\n", "cast.py", "exec"
    )
    module: dict[str, Any] = {"__name__": "tulle.made_up"}
    exec(code, module)
    assert get_own_message(caught(module["cast"])) is None
    assert get_own_message(caught(module["refuse"])) == "ours"


def test_an_error_that_was_never_raised_has_no_words() -> None:
    assert get_own_message(ValueError(SECRET)) is None
    assert describe_error(ValueError(SECRET)) == "ValueError"
