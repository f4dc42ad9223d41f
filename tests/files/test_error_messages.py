"""What is said of errors: tulle's own words, and of others their type and place, since theirs may quote a cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tulle import Budget, tables
from tulle.failures import own_words, said_of, traced

SECRET = "Jane Doe 12 Elm St"


def caught(call: Any) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_tulle_raises_is_told() -> None:
    error = caught(lambda: Budget(-1.0, 0.1))
    assert own_words(error) == str(error)
    assert said_of(error) == f"ValueError: {error}"
    assert (
        own_words(caught(lambda: tables.read_table("nowhere.csv")))
        == "nowhere.csv: there is no such file; check the path"
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
    assert own_words(error) is None

    def wrapped() -> None:
        try:
            call()
        except Exception as behind:
            raise RuntimeError("an error of ours") from behind

    for text in (said_of(error), traced(error), traced(caught(wrapped))):
        assert SECRET not in text
        assert type(error).__name__ in text


def test_compiled_code_that_tulle_calls_is_not_tulle() -> None:
    """The last frame is tulle's, and it did not raise."""
    code = compile(
        f"def cast():\n    float({SECRET!r})\ndef refuse():\n    raise ValueError('ours')\n", "cast.py", "exec"
    )
    module: dict[str, Any] = {"__name__": "tulle.made_up"}
    exec(code, module)
    assert own_words(caught(module["cast"])) is None
    assert own_words(caught(module["refuse"])) == "ours"


def test_an_error_that_was_never_raised_has_no_words() -> None:
    assert own_words(ValueError(SECRET)) is None
    assert said_of(ValueError(SECRET)) == "ValueError"
