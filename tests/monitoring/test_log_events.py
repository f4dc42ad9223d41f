"""The log takes events and fields from a list, and nothing that could be a cell."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logged_cells import kept_log

from tulle.monitoring import log_events
from tulle.monitoring.log_events import DROPPED, EVENTS, FIELDS, ProgressSteps, log_event, muted

NAME = "tulle.test"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("labels", 1),
        ("n_rows", np.int64(3)),
        ("n_rows", True),
        ("n_rows", -1),
        ("n_rows", 2.5),
        ("proved_epsilon", np.float64(1.0)),
        ("proved_epsilon", np.ones(2)),
        ("proved_epsilon", "1.0"),
        ("method", "two\nlines"),
        ("method", "x" * 65),
        ("method", ""),
        ("error", "could not convert string to float: 'Jane Doe'"),
        ("dataset", "x" * 201),
        ("dataset", "a\tb"),
        ("study", "simulation 1"),
        ("releases", ["fit"]),
        ("releases", (1.5,)),
        ("rejected", {"late": 1.5}),
        ("rejected", {"'Jane'": 1}),
    ],
)
def test_a_field_takes_nothing_but_what_it_is_for(field: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tests it raises, and names no value. Elsewhere the rest is logged: a fit does not fail for its log."""
    with pytest.raises(ValueError, match="use the events and fields") as told:
        log_event(NAME, "release.begin", **{field: value})
    assert "Jane" not in str(told.value)
    monkeypatch.setattr(log_events, "raises_on_misuse", False)
    with kept_log() as lines:
        log_event(NAME, "release.begin", what="fit", **{field: value})
    (line,) = lines
    assert line.startswith("release.begin what=fit dropped=")
    assert "Jane" not in line
    assert "'simulation 1'" not in line


def test_the_name_of_an_unknown_field_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_events, "raises_on_misuse", False)
    with kept_log() as lines:
        log_event(NAME, "release.begin", **{"Jane Doe": 1})
    assert "Jane" not in lines[0]


def test_an_unknown_event_raises_in_tests() -> None:
    with pytest.raises(ValueError, match="use the events and fields"):
        log_event(NAME, "release.began")


def test_events_have_the_level_and_the_fields_that_were_given() -> None:
    """Under the logger of the module, with the fields for handlers that want them apart."""
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    logger = logging.getLogger(NAME)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        log_event(NAME, "release.refused", what="fit", reason="cap")
        log_event(NAME, "service.request", outcome="read")  # DEBUG
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    (record,) = seen
    assert (record.name, record.levelno) == (NAME, logging.WARNING)
    assert record.getMessage() == "release.refused what=fit reason=cap"
    assert (record.tulle_event, record.tulle_fields) == ("release.refused", {"what": "fit", "reason": "cap"})  # type: ignore[attr-defined]


def test_nothing_is_logged_where_the_log_is_muted() -> None:
    with kept_log() as lines:
        with muted():
            log_event(NAME, "release.end", what="fit")
        log_event(NAME, "release.end", what="score")
    assert [line.split(" {")[0] for line in lines] == ["release.end what=score"]


@pytest.mark.parametrize("total", [0, 1, 3, 9, 10, 11, 63, 1000])
def test_progress_has_ten_lines_at_most_and_ends_with_the_last_step(total: int) -> None:
    steps = ProgressSteps(total)
    told = [step for step in range(1, total + 3) if steps.advance()]  # more steps than planned say nothing
    assert len(told) == min(total, 10)
    assert told[-1:] == [total] * bool(total)


def test_nothing_is_printed_unless_logging_is_configured() -> None:
    """A refused fit logs a warning, which Python would print if there were no handler."""
    code = (
        "import numpy as np, warnings; warnings.simplefilter('ignore')\n"
        "from tulle import Bounds, Budget, Ledger, SparseClassifier\n"
        "X = np.random.default_rng(0).normal(size=(50, 2))\n"
        "try:\n"
        "    with Ledger(Budget(0.1, 1e-6)):\n"
        "        SparseClassifier(1.0, 1e-6, bounds=Bounds(row_l2=1.0)).fit(X, X[:, 0] > 0)\n"
        "except RuntimeError: print('refused')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("refused\n", "")


def test_the_page_on_operations_lists_all_events_and_fields() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    for event, (level, words) in EVENTS.items():
        assert f"| `{event}` | {logging.getLevelName(level).lower()} | {words} |" in page
    for field, (_, words) in FIELDS.items():
        assert f"| `{field}` | {words} |" in page
    assert DROPPED not in FIELDS
