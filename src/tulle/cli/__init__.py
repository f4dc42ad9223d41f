"""The command line: one file a command. Here is what they share: parsing, messages, exit codes, JSON.

Exit codes: 0 done; 1 done, and the answer is bad news; 2 wrong input; 3 a ledger refused; 4 spent without a result;
130 interrupted; 143 terminated; 70 a bug.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, NoReturn, TextIO

from tulle.cli.outcome import (
    BUG,
    INTERRUPTED,
    REFUSED,
    SPENT,
    TERMINATED,
    WRONG_INPUT,
    Outcome,
    SpentError,
    UserError,
)

COMMANDS = {
    "fit": "fit a private model to a file and write it with its report into a folder",
    "convert": "put the rows of a file into blocks on disk, to fit what does not fit into memory",
    "predict": "predict for the rows of a file with a saved model",
    "compare": "compare methods and budgets on one data set (for your eyes, not for release)",
    "account": "what a plan costs, what noise a budget needs, what published noise really proves",
    "audit": "attack a method, or your own function, and say what it gives away at least",
    "federated": "fit a model to rows that stay with those who hold them: server, clients, simulation",
    "ledger": "open and read ledgers: what was spent on a data set, and its cap",
    "report": "write the HTML report of a saved model or of a comparison",
    "reproduce": "run a table or figure of a paper beside the sound version",
}


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would exit, so that --json holds for wrong usage too."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see: {self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    from tulle import __version__

    root = _Parser(
        prog="tulle",
        description="Differentially private sparse learning: linear and logistic models with few non-zero weights.",
        epilog="tulle COMMAND --help says more. Exit codes: 0 done, 1 done with bad news (a refuted claim, a failed "
        "cell), 2 wrong input (nothing was spent), 3 a ledger refused (nothing was released), 4 the budget is spent "
        "and the result could not be written, 130 interrupted, 143 terminated.",
    )
    root.add_argument("--version", action="version", version=f"tulle {__version__}")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"tulle.cli.{name}")
        command = commands.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        for leaf in _leaves(command):
            common = leaf.add_argument_group("output")
            common.add_argument("--json", action="store_true", help="print one JSON object instead of text")
            common.add_argument("--quiet", action="store_true", help="no progress on standard error")
            common.add_argument("--debug", action="store_true", help="show a traceback where something fails")
            leaf.set_defaults(run=leaf.get_default("run") or module.run)
    return root


def _leaves(command: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parsers of a command's subcommands, or its own."""
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices.values())
    return [command]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    command = next((name for name in given if name in COMMANDS), "")
    as_json = "--json" in given
    told: list[str] = []
    ended: list[int] = []
    try:
        try:
            parsed = parser().parse_args(given)
        except SystemExit as stop:  # --help and --version
            return int(stop.code or 0)
        as_json = parsed.json
        # Standard output is for the outcome alone, whatever a library or an audited function prints.
        with _terminated_like_interrupted(ended), redirect_stdout(sys.stderr), _warnings_told(told, quietly=as_json):
            outcome: Outcome = parsed.run(parsed)
    except KeyboardInterrupt as stop:
        kind, code = ("terminated", TERMINATED) if ended else ("interrupted", INTERRUPTED)
        return _failed(command, as_json, told, stop, (kind, str(stop) or kind, code))
    except Exception as error:
        if "--debug" in given:
            from tulle.failures import traced

            _say(traced(error), sys.stderr)
        if isinstance(error, SpentError) and isinstance(error.__cause__, Exception):
            kind, message, code = _explained(error.__cause__)
            spent = ("spent", message, SPENT) if code == WRONG_INPUT else (kind, message, code)
            return _failed(command, as_json, told, error.__cause__, spent)
        return _failed(command, as_json, told, error, _explained(error))
    _say(_json({**outcome.values, **({"warnings": told} if told else {})}) if as_json else outcome.text, sys.stdout)
    return outcome.code


@contextmanager
def _terminated_like_interrupted(ended: list[int]) -> Iterator[None]:
    """SIGTERM stops a command as Ctrl-C does: what it has half written goes, what was billed is told."""

    def stop(number: int, frame: Any) -> NoReturn:
        ended.append(number)
        raise KeyboardInterrupt

    # Only where nobody else decides over it: not in a thread of another program, not where it is ignored on purpose.
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _explained(error: Exception) -> tuple[str, str, int]:
    """What kind of failure it is, what to say, and the exit code. What a library says may quote a cell: it is not
    repeated."""
    from tulle.failures import own_words, said_of

    words = own_words(error)
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return "input", f"{place}{error.strerror}", WRONG_INPUT
    if isinstance(error, OSError):
        return "input", said_of(error) if words is None else words, WRONG_INPUT
    if isinstance(error, MemoryError):
        return "input", "not enough memory; use fewer rows or columns, or a sparse format", WRONG_INPUT
    if isinstance(error, ImportError):
        return "input", str(error), WRONG_INPUT
    if isinstance(error, ValueError):
        refused = f"a library refused its input: {said_of(error)}. What it said may quote a row and is not repeated"
        return "input", refused if words is None else words, WRONG_INPUT
    from tulle.privacy import BudgetExceededError

    if isinstance(error, BudgetExceededError):
        return "refused", str(error), REFUSED
    return "bug", f"{said_of(error)}. This should not happen; run again with --debug and report it", BUG


def _failed(command: str, as_json: bool, told: list[str], error: BaseException, explained: tuple[str, str, int]) -> int:
    kind, message, code = explained
    notes = getattr(error, "__notes__", ())
    # Which row of a file cannot be read is for the screen alone: JSON is kept, and passed on.
    kept = getattr(error, "without_rows", message)
    if as_json:
        failure = {"error": {"kind": kind, "message": " ".join([kept, *notes]), "exit_code": code}}
        _say(_json({**failure, **({"warnings": told} if told else {})}), sys.stdout)
    if not as_json or kept != message:
        _say(f"{f'tulle {command}'.rstrip()}: {' '.join([message, *notes])}", sys.stderr)
    return code


def _say(text: str, stream: TextIO) -> None:
    """Print, where somebody still listens, in characters that the stream has."""
    try:
        shown = text.encode(stream.encoding or "utf-8", "backslashreplace").decode(stream.encoding or "utf-8")
        print(shown, file=stream, flush=True)
    except BrokenPipeError:  # tulle ... | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _json(values: Any) -> str:
    from tulle.report import finite

    return json.dumps(finite(values), indent=2, allow_nan=False)


@contextmanager
def _warnings_told(told: list[str], *, quietly: bool) -> Iterator[None]:
    """Warnings as lines for people; each once. Those of other libraries, with categories of their own, can quote rows
    and are not told."""

    def tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        text = str(message)
        ours = category is UserWarning or category.__module__.startswith("tulle.")
        if ours and issubclass(category, UserWarning) and text not in told:
            told.append(text)
            if not quietly:
                print(f"tulle: warning: {text}", file=sys.stderr, flush=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = tell  # restored by catch_warnings
        yield
