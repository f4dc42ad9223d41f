"""What all commands share: parsing, messages, exit codes, JSON.

Exit codes: 0 done; 1 done, and the answer is bad news; 2 wrong input, nothing was spent; 3 a ledger refused; 4 spent
without a result; 5 a federated client took no part; 130 interrupted; 143 terminated; 70 a bug.
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

from tulle.cli.logs import CommandLog, add_output_options
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
from tulle.ledgers.spending import count_releases

_RESULTS_DEPEND_ON = "nothing"

COMMANDS = {
    "fit": "fit a private model to a file and write it with its report into a folder",
    "convert": "convert the rows of a file into blocks on disk, for data larger than memory",
    "schema": "draft a schema of raw columns from a table's header, or check a table against one",
    "predict": "predict for the rows of a file with a saved model",
    "compare": "compare methods and budgets on one data set (internal, not for release)",
    "account": "the cost of a plan, the noise that a budget needs, the epsilon that published noise proves",
    "audit": "attack a method, or your own function, for a lower bound on its epsilon",
    "federated": "federated learning, with rows that stay at the clients: server, client, simulation",
    "ledger": "open and show ledgers: the privacy cost spent on a data set, and its cap",
    "report": "write the HTML report of a saved model or of a comparison",
    "keygen": "create a pair of keys for signatures",
    "sign": "sign a model, a report, a receipt or any other file or folder",
    "verify": "check that a file or folder is unchanged since the holder of a trusted key signed it",
    "reproduce": "run a table or figure of a paper, with the paper's noise and with correct noise",
}


# Commands whose fits are releases. The fits of others (a comparison, an audit, a table of a paper) stay internal, or
# are about made-up or public rows.
_RELEASING = ("fit", "federated")

_BEGUN = "A private release had begun: its budget is spent."


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
        epilog="See tulle COMMAND --help for details. Exit codes: 0 done, 1 done with a negative result (a refuted "
        "claim, a failed cell, a signature that does not hold), 2 wrong input (nothing was spent), 3 a ledger refused "
        "(nothing was released), 4 the budget is spent, or may be, and there is no result or it could not be "
        "written, 5 a federated client took no part (nothing was spent), 70 a bug, 130 interrupted, 143 terminated.",
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
            add_output_options(leaf)
            leaf.set_defaults(run=leaf.get_default("run") or module.run)
    return root


def _leaves(command: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parsers of a command's subcommands, or its own."""
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices.values())
    return [command]


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    with CommandLog() as log:
        code = _run(sys.argv[1:] if arguments is None else list(arguments), log)
        log.end(code)
    return code


def _run(given: Sequence[str], log: CommandLog) -> int:
    command = next((name for name in given if name in COMMANDS), "")
    as_json = "--json" in given
    told: list[str] = []
    ended: list[int] = []
    begun = count_releases()
    try:
        try:
            parsed = parser().parse_args(given)
        except SystemExit as stop:  # --help and --version
            return int(stop.code or 0)
        as_json = parsed.json
        log.begin(command, parsed)
        # Standard output is for the outcome alone; what a library or an audited function prints goes to standard error.
        with _terminated_like_interrupted(ended), redirect_stdout(sys.stderr), _report_warnings(told, log, as_json):
            outcome: Outcome = parsed.run(parsed)
    except KeyboardInterrupt as stop:
        kind, code = ("terminated", TERMINATED) if ended else ("interrupted", INTERRUPTED)
        log.kind = kind
        return _report_failure(command, as_json, told, stop, (kind, str(stop) or kind, code))
    except Exception as error:
        if "--debug" in given:
            from tulle.files.error_messages import format_trace

            _say(format_trace(error), sys.stderr)
        if isinstance(error, SpentError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
            explained = _explain_spent(error)
        elif command in _RELEASING and count_releases() > begun:  # even if the command itself does not know of it
            error.add_note(_BEGUN)
            explained = _explain_spent(error)
        else:
            explained = _explain(error)
        if ended:  # a library made another error of the interruption
            explained = ("terminated", explained[1], TERMINATED)
        log.kind = explained[0]
        return _report_failure(command, as_json, told, error, explained)
    _say(_json({**outcome.values, **({"warnings": told} if told else {})}) if as_json else outcome.text, sys.stdout)
    return outcome.code


@contextmanager
def _terminated_like_interrupted(ended: list[int]) -> Iterator[None]:
    """SIGTERM stops a command as Ctrl-C does: partial output is removed, and what was billed is reported."""

    here = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() != here:  # a fork, which has nothing of this command to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        ended.append(number)
        if len(ended) == 1:  # a second signal must not stop what the first one began to remove
            raise KeyboardInterrupt

    # Only if SIGTERM has its default handler: not in a thread of another program, not if it is ignored on purpose.
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _explain(error: Exception) -> tuple[str, str, int]:
    """The kind of failure, the message, and the exit code. A library's message may quote a cell and is not repeated."""
    from tulle.files.error_messages import describe_error, get_own_message

    words = get_own_message(error)
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return "input", f"{place}{error.strerror}", WRONG_INPUT
    if isinstance(error, OSError):
        return "input", describe_error(error) if words is None else words, WRONG_INPUT
    if isinstance(error, MemoryError):
        return "input", "not enough memory; use fewer rows or columns, or a sparse format", WRONG_INPUT
    if isinstance(error, ImportError):
        return "input", str(error), WRONG_INPUT
    if isinstance(error, ValueError):
        refused = f"a library rejected its input: {describe_error(error)}. Its message may quote a row and is not shown"
        return "input", refused if words is None else words, WRONG_INPUT
    from tulle.ledgers.ledger import BudgetExceededError

    if isinstance(error, BudgetExceededError):
        return "refused", str(error), REFUSED
    return "bug", f"{describe_error(error)}. This should not happen; run again with --debug and report it", BUG


def _explain_spent(error: Exception) -> tuple[str, str, int]:
    """The same of a failure after a spend: what would be wrong input, or a refusal, is no longer harmless."""
    kind, message, code = _explain(error)
    return ("spent", message, SPENT) if code in (WRONG_INPUT, REFUSED) else (kind, message, code)


def _report_failure(
    command: str, as_json: bool, told: list[str], error: BaseException, explained: tuple[str, str, int]
) -> int:
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
    """Print, unless the reader has closed the stream, in characters that its encoding has."""
    try:
        shown = text.encode(stream.encoding or "utf-8", "backslashreplace").decode(stream.encoding or "utf-8")
        print(shown, file=stream, flush=True)
    except BrokenPipeError:  # tulle ... | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _json(values: Any) -> str:
    from tulle.files.number_text import finite

    return json.dumps(finite(values), indent=2, allow_nan=False)


@contextmanager
def _report_warnings(told: list[str], log: CommandLog, quietly: bool) -> Iterator[None]:
    """Print warnings as plain lines, each once. Those of other libraries, with their own categories, can quote rows and
    are not shown."""

    def tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        from tulle.files.error_messages import PrivacyWarning  # on use: `tulle --help` need not load it

        text = str(message)
        if category in (UserWarning, PrivacyWarning) and text not in told:
            told.append(text)
            log.warn(category)
            if not quietly:
                print(f"tulle: warning: {text}", file=sys.stderr, flush=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = tell  # restored by catch_warnings
        yield
