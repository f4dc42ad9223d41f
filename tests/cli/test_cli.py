"""What all commands share: help, exit codes, one JSON object, one clear line where something is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from commands_and_files import NAMES, one_line, table

import tulle.cli
from tulle.cli import main
from tulle.cli.command_runner import COMMANDS

LEAVES = (
    [[name] for name in COMMANDS if name not in ("account", "federated", "ledger")]
    + [["account", name] for name in ("cost", "noise", "plan", "published")]
    + [["federated", name] for name in ("server", "client", "simulate")]
    + [["ledger", name] for name in ("open", "show")]
)


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS), *LEAVES], ids=" ".join)
def test_help_works_everywhere(run: Any, words: list[str]) -> None:
    """Every command and subcommand says purpose of the model, with exit code 0 and nothing on standard error."""
    ran = run(*words, "--help")
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.startswith(f"usage: {' '.join(['tulle', *words])}")
    if words in LEAVES:
        assert all(option in ran.out for option in ("--json", "--quiet", "--debug"))


def test_every_option_is_explained() -> None:
    """No option and no argument of any command stands in the help without a word."""
    for name, parser in tulle.cli.command_runner.parser()._subparsers._group_actions[0].choices.items():  # type: ignore[union-attr]
        for leaf in tulle.cli.command_runner._leaves(parser):
            silent = [action.dest for action in leaf._actions if not action.help]
            assert not silent, (name, leaf.prog, silent)


def test_the_version_is_the_packages(run: Any) -> None:
    """As `tulle.__version__` says."""
    assert run("--version") == (0, f"tulle {tulle.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: COMMAND; see: tulle --help"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["fit"], "the following arguments are required: DATA, -o/--output; see: tulle fit --help"),
        (["fit", "x.csv", "-o", "m"], "one of the arguments --epsilon --rho is required; see: tulle fit --help"),
        (["fit", "x.csv", "--epsilon", "much", "-o", "m"], "must be a number > 0, or none, not 'much'"),
        (["fit", "x.csv", "--epsilon", "1", "-o", "m", "--format", "xls"], "invalid choice: 'xls'"),
        (["predict", "m", "x.csv", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["ledger"], "the following arguments are required: open|show"),
        (["account", "published", "nobody", "--epsilon", "1", "--delta", "1e-5"], "invalid choice: 'nobody'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_wrong_usage_is_exit_code_2_in_text_and_json(run: Any, words: list[str], message: str) -> None:
    """One line, or one object; the help is named and not printed."""
    assert message in one_line(run(*words), words[0] if {*words[:1]} <= {*COMMANDS} and words else "")
    ran = run(*words, "--json")
    assert (ran.code, ran.err) == (2, "")
    assert set(ran.values) == {"error"}
    assert ran.values["error"]["kind"] == "input"
    assert ran.values["error"]["exit_code"] == 2
    assert message in ran.values["error"]["message"]


FAILURES: dict[str, tuple[BaseException, int, str, str]] = {
    "interrupted": (KeyboardInterrupt(), 130, "interrupted", "interrupted"),
    "interrupted with words": (KeyboardInterrupt("3 of 5 are kept"), 130, "interrupted", "3 of 5 are kept"),
    "a division by zero": (
        ZeroDivisionError("1 / 0"),
        70,
        "bug",
        "ZeroDivisionError (test_cli.py, line ",
    ),
    "a wrong type": (TypeError("None + 1"), 70, "bug", "run again with --debug and report it"),
    "an assertion": (AssertionError(), 70, "bug", "AssertionError (test_cli.py"),
    "a library's refusal": (ValueError("'Jane Doe' is no float"), 2, "input", "ValueError (test_cli.py, line "),
    "a full disk": (OSError(28, "No space left on device", "m/model.npz"), 2, "input", "m/model.npz: No space left"),
    "too little memory": (MemoryError(), 2, "input", "not enough memory; use fewer rows or columns"),
    "a library that is missing": (ImportError("install pyarrow"), 2, "input", "install pyarrow"),
}


@pytest.mark.parametrize("way", FAILURES)
def test_failures_have_their_exit_codes(run: Any, monkeypatch: Any, way: str) -> None:
    """Ctrl-C is 130, a bug of ours 70 with the word --debug, what the user can mend 2; in text and in JSON. What was
    not raised by tulle itself may quote a cell, and its type and place are told in place of its words."""
    error, code, kind, message = FAILURES[way]

    def failing(arguments: Any) -> Any:
        raise error

    monkeypatch.setattr("tulle.cli.predict.run", failing)
    assert message in one_line(run("predict", "m", "x.csv"), "predict", code)
    ran = run("predict", "m", "x.csv", "--json")
    assert ran.code == code
    assert ran.values["error"] | {"message": ""} == {"kind": kind, "message": "", "exit_code": code}
    assert message in ran.values["error"]["message"]


def test_debug_shows_the_traceback(run: Any, monkeypatch: Any) -> None:
    """On standard error, with the lines of code and the types of errors; what libraries say stays out."""

    def failing(arguments: Any) -> Any:
        try:
            float("Jane Doe")
        except ValueError as error:
            raise ZeroDivisionError("Jane Doe") from error

    monkeypatch.setattr("tulle.cli.predict.run", failing)
    ran = run("predict", "m", "x.csv", "--debug")
    assert ran.code == 70
    assert "Traceback (most recent call last)" in ran.err
    assert "in failing" in ran.err
    assert "ZeroDivisionError (test_cli.py" in ran.err
    assert "ValueError (test_cli.py" in ran.err
    # The traceback shows lines of code, where this test's own words stand: nothing else does.
    assert all('"Jane Doe"' in line for line in ran.err.splitlines() if "Jane" in line)


def in_a_process(*words: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tulle", *map(str, words)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=120,
    )


def test_python_m_tulle_and_the_script_are_the_same() -> None:
    """Both are `tulle.cli.main`, with its exit codes."""
    (script,) = entry_points(group="console_scripts", name="tulle")
    assert script.load() is main
    path = shutil.which("tulle", path=sysconfig.get_path("scripts"))
    assert path is not None
    words = ("account", "cost", "--delta", "1e-5", "gaussian:0")
    by_script = subprocess.run([path, *words], capture_output=True, encoding="utf-8", timeout=120)
    by_module = in_a_process(*words)
    assert (by_script.returncode, by_script.stdout, by_script.stderr) == (2, "", by_module.stderr)
    assert by_module.returncode == 2
    assert by_module.stderr.startswith("tulle account: 'gaussian:0': ")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_without_greek_letters(encoding: str) -> None:
    """What it cannot show is written as a code; JSON stays JSON."""
    words = ("account", "cost", "--delta", "1e-5", "gaussian:8")
    text = in_a_process(*words, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (text.returncode, text.stderr) == (0, "")
    assert "\\u03b5 = 0.4" in text.stdout
    values = json.loads(in_a_process(*words, "--json", PYTHONIOENCODING=encoding, PYTHONUTF8="0").stdout)
    assert values["bill"][0]["release"] == "1: gaussian:8"


@pytest.mark.skipif(os.name == "nt", reason="a pipe of a POSIX shell")
def test_a_closed_pipe_is_no_error(place: Path, tmp_path: Path) -> None:
    """`tulle predict ... | head -1` on more than a pipe holds: one line, no traceback, exit code 0."""
    table(1, 20_000)[[*NAMES]].to_csv(tmp_path / "many.csv", index=False)
    command = f"'{sys.executable}' -m tulle predict m_outcome '{tmp_path}/many.csv' --probabilities --quiet | head -1"
    ran = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, cwd=place, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "prediction,probability_home,probability_ward\n"


@pytest.mark.parametrize("statement", ["import tulle", "from tulle.cli import main; main(['--help'])"])
def test_help_and_import_load_nothing_heavy(statement: str) -> None:
    """They are fast, because neither numpy nor anything built on it is loaded for them."""
    code = f"import sys\n{statement}\nprint(*sorted(sys.modules), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.partition(".")[0] for name in ran.stderr.split()}
    assert "tulle" in loaded
    assert loaded.isdisjoint({"numpy", "scipy", "sklearn", "numba", "torch", "dp_accounting", "pandas", "matplotlib"})
