"""`--log-json`, `--log-level` and `-q`: the log of a command, apart from its result."""

from __future__ import annotations

import json
import logging
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tulle import __version__

FIT = ("--epsilon", "1", "--row-linf", "1", "--target", "outcome", "--seed", "1")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def events_of(path: Path) -> list[str]:
    return [line["event"] for line in lines_of(path)]


def test_the_log_of_a_fit(run: Any, place: Path, tmp_path: Path) -> None:
    """One JSON object a line, for its owner alone; the result is on standard output as without a log."""
    log = tmp_path / "log.jsonl"
    ran = run("fit", place / "outcome.csv", *FIT, "-o", tmp_path / "m", "-q", "--log-json", log)
    assert (ran.code, ran.err) == (0, "")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    lines = lines_of(log)
    events = [line["event"] for line in lines]
    assert [name for name in events if name != "release.progress"] == [
        *("command.begin", "release.begin", "release.billed", "release.end", "command.end"),
    ]
    assert 1 <= events.count("release.progress") <= 10
    assert lines[0] | {"time": ""} == {
        **{"time": "", "level": "info", "logger": "tulle.cli.logs", "event": "command.begin"},
        **{"command": "fit", "version": __version__},
    }
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"]) for line in lines), "whole seconds"
    billed = lines[events.index("release.billed")]
    assert (billed["what"], billed["logger"]) == ("SparseClassifier.fit", "tulle.estimators.request")
    assert 0.99 < billed["proved_epsilon"] <= 1
    assert lines[-1]["exit_code"] == 0


def test_a_log_is_appended_to_and_outlives_a_failure(run: Any, place: Path, tmp_path: Path) -> None:
    """A refusal has its kind and its exit code; not its message, which is on standard error."""
    log = tmp_path / "log.jsonl"
    for code, data in ((2, "nowhere.csv"), (0, "outcome.csv")):
        words = ("fit", place / data, *FIT, "-o", tmp_path / "m", "--log-json", log, "-q")
        assert run(*words).code == code
    first, second = [line for line in lines_of(log) if line["event"] == "command.end"]
    assert (first["exit_code"], first["kind"], second["exit_code"]) == (2, "input", 0)
    assert "nowhere" not in log.read_text(encoding="utf-8")


def test_a_refused_fit_is_in_the_log(run: Any, place: Path, ledger: Path, tmp_path: Path) -> None:
    """With the reason, under the name of the data set that the ledger has."""
    from commands_and_files import DATASET

    log = tmp_path / "log.jsonl"
    words = ("fit", place / "outcome.csv", *FIT, "--ledger", ledger, "--dataset", DATASET, "--log-json", log, "-q")
    assert run(*words, "-o", tmp_path / "one").code == 0
    charged = next(line for line in lines_of(log) if line["event"] == "ledger.charged")
    assert (charged["dataset"], charged["entry"]) == (DATASET, 1)
    assert run(*words[:3], "9", *words[4:], "-o", tmp_path / "two").code == 3
    refused = next(line for line in lines_of(log) if line["event"] == "release.refused")
    assert (refused["level"], refused["reason"], lines_of(log)[-1]["exit_code"]) == ("warning", "cap", 3)


def test_a_file_that_is_no_log_is_left_alone(run: Any, place: Path, tmp_path: Path) -> None:
    """Such as the rows, where an option lacks its value; nothing was spent."""
    rows = tmp_path / "rows.csv"
    rows.write_bytes((place / "outcome.csv").read_bytes())
    ran = run("fit", place / "outcome.csv", *FIT, "-o", tmp_path / "m", "--log-json", rows)
    assert ran.code == 2
    assert "is no log of tulle" in ran.err
    assert rows.read_bytes() == (place / "outcome.csv").read_bytes()
    ran = run("fit", place / "outcome.csv", *FIT, "-o", tmp_path / "m", "--log-json", tmp_path / "none" / "log")
    assert (ran.code, "the log cannot be written" in ran.err) == (2, True)


def test_a_log_on_standard_error_silences_progress(run: Any, place: Path, tmp_path: Path) -> None:
    """Every line of it is JSON; progress is in the log."""
    ran = run("fit", place / "outcome.csv", *FIT, "-o", tmp_path / "m", "--log-json", "-")
    assert ran.code == 0
    events = [json.loads(line)["event"] for line in ran.err.splitlines()]
    assert "release.progress" in events


def test_levels(run: Any, place: Path, tmp_path: Path) -> None:
    """--log-level alone writes text; a higher level writes less."""
    words = ("fit", place / "outcome.csv", *FIT, "--replace", "-o", tmp_path / "m", "-q")
    text = run(*words, "--log-level", "info").err
    assert re.search(r"^\S+Z info tulle.estimators.request release.billed what=SparseClassifier.fit ", text, re.M)
    assert run(*words, "--log-level", "error").err == ""
    ran = run(*words, "--log-level", "loud")
    assert (ran.code, "--log-level" in ran.err) == (2, True)


def test_q_is_quiet(run: Any, place: Path, tmp_path: Path) -> None:
    words = ("fit", place / "outcome.csv", *FIT, "--replace", "-o", tmp_path / "m")
    assert run(*words, "-q").err == ""
    assert "answers" in run(*words).err


def test_logging_is_as_before_when_a_command_has_ended(run: Any, place: Path, tmp_path: Path) -> None:
    """A program may call `main`: its own settings stay."""
    logger = logging.getLogger("tulle")
    before = (logger.level, list(logger.handlers))
    run("fit", place / "outcome.csv", *FIT, "-o", tmp_path / "m", "--log-json", tmp_path / "log")
    assert (logger.level, list(logger.handlers)) == before


def test_records_of_other_code_are_not_written(run: Any, place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Even under a logger of tulle's: a message is free text."""

    def tell(*_: Any, **__: Any) -> Any:
        logging.getLogger("tulle.elsewhere").error("row 3 is Jane Doe")
        raise ValueError

    monkeypatch.setattr("tulle.cli.fit.read_data", tell)
    run("fit", place / "outcome.csv", *FIT, "-o", tmp_path / "m", "--log-json", tmp_path / "log")
    assert "Jane" not in (tmp_path / "log").read_text(encoding="utf-8")
    assert events_of(tmp_path / "log") == ["command.begin", "command.end"]
    ran = run("fit", place / "outcome.csv", *FIT, "-o", tmp_path / "m", "--log-level", "debug")
    assert "command.begin" in ran.err
    assert "Jane" not in ran.err


def test_a_full_disk_does_not_stop_a_command(run: Any, place: Path, tmp_path: Path) -> None:
    """A fit that is billed gives its model, whatever becomes of its log."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    ran = run("fit", place / "outcome.csv", *FIT, "-o", tmp_path / "m", "-q", "--log-json", "/dev/full")
    assert (ran.code, ran.err) == (0, "")
    assert (tmp_path / "m" / "model.npz").exists()


def test_lines_of_several_processes_do_not_mix(place: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = [
        sys.executable,
        "-m",
        "tulle",
        "account",
        "cost",
        "--delta",
        "1e-5",
        "gaussian:8x10",
        "--log-json",
        str(log),
    ]
    running = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [one.wait(60) for one in running] == [0, 0, 0]
    assert sorted(events_of(log)) == ["command.begin"] * 3 + ["command.end"] * 3
