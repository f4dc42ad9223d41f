"""Run a table or figure of a paper again: the paper's values, its noise with its true ε, and correct noise.

Without a name, lists all tables and figures. `all` runs all of them, one after the other. Run the same command again
to resume a run that was stopped; after a change of code, data or settings only the dependent cells are run again.

`--reuse` takes over results of an earlier run, such as those in docs/results; `--check` says which of them are of
today's code, settings and data, and runs nothing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.cli.compare import add_run_arguments
from tulle.cli.logs import is_silent
from tulle.cli.outcome import BAD_NEWS, DONE, Outcome, UserError

if TYPE_CHECKING:
    from tulle.experiments.catalogue import Published

EVERYTHING = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="of a table or figure, or all; omit it to list them")
    parser.add_argument("--trials", type=int, metavar="N", help="default: the number in the paper")
    parser.add_argument("--fast", action="store_true", help="the smallest settings and few trials")
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="with the data sets (default: the folder that TULLE_DATA names)"
    )
    add_run_arguments(parser)
    parser.add_argument(
        "--reuse",
        type=Path,
        metavar="FOLDER",
        help="take over the cells in FOLDER/NAME/cells.jsonl that today's code, settings and data would give again",
    )
    parser.add_argument(
        "--check",
        type=Path,
        metavar="FOLDER",
        help="say which cells in FOLDER/NAME/cells.jsonl are up to date, and run nothing; exit code 1 if any is not",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("reproduced"),
        metavar="FOLDER",
        help="results go to FOLDER/NAME (default: reproduced)",
    )


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.experiments.catalogue import names, published
    from tulle.experiments.reproduction import MissingDataError

    _refuse_unclear(arguments)
    if arguments.name is None:
        titles = {name: published(name).title for name in names()}
        width = max(map(len, titles))
        return Outcome("\n".join(f"{name:<{width}}  {title}" for name, title in titles.items()), {"tables": titles})
    with _data_in(arguments.data):
        if arguments.check is not None:
            return _checked(arguments)
        if arguments.name != EVERYTHING:
            try:
                values = _reproduced(arguments.name, arguments)
            except MissingDataError as error:
                raise UserError(str(error)) from None
            text = f"{values['table']}\nWritten to {values['folder']}: {_WRITTEN}"
            return Outcome(text, values, BAD_NEWS if values["failed"] else DONE)
        return _everything(arguments)


_WRITTEN = "table.md, page.html, figure.svg, results.csv, reproduction.json, cells.jsonl"


def _refuse_unclear(arguments: argparse.Namespace) -> None:
    if arguments.trials is not None and arguments.trials < 1:
        raise UserError(f"--trials must be at least 1, got {arguments.trials}")
    for option in ("data", "reuse", "check"):
        folder: Path | None = getattr(arguments, option)
        if folder is not None and not folder.is_dir():
            raise UserError(f"--{option}: {folder} is not a folder")
        if folder is not None and option != "data" and arguments.name is None:
            raise UserError(f"--{option} needs the name of a table or figure, or {EVERYTHING}")
    if arguments.check is not None and (arguments.reuse is not None or arguments.restart):
        raise UserError("--check runs nothing; leave out --reuse and --restart")


def _checked(arguments: argparse.Namespace) -> Outcome:
    from tulle.experiments.catalogue import names
    from tulle.experiments.reproduction_check import STATES, check

    wanted = names() if arguments.name == EVERYTHING else [arguments.name]
    pages = [check(_chosen(name, arguments), arguments.check, trials=arguments.trials) for name in wanted]
    total = {state: sum(page.states[state] for page in pages) for state in STATES}
    to_run = [page.name for page in pages if page.needs_run]
    lines = [page.text() for page in pages]
    if len(pages) > 1:
        counts = ", ".join(f"{count:,} {state}" for state, count in total.items() if count)
        lines.append(f"{len(pages)} pages, {len(to_run)} need a run: {counts}.")
    return Outcome(
        "\n".join(lines),
        {"pages": {page.name: page.as_dict() for page in pages}, "states": total, "to_run": to_run},
        BAD_NEWS if to_run else DONE,
    )


def _chosen(name: str, arguments: argparse.Namespace) -> Published:
    from tulle.experiments.catalogue import published

    return published(name).faster() if arguments.fast else published(name)


def _everything(arguments: argparse.Namespace) -> Outcome:
    from tulle.experiments.catalogue import names
    from tulle.experiments.reproduction import MissingDataError

    done: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name in names():
        if not is_silent(arguments):
            print(name, file=sys.stderr)
        try:
            done[name] = _reproduced(name, arguments)
        except MissingDataError as error:
            left_out[name] = str(error)
    failed = {name: len(values["failed"]) for name, values in done.items() if values["failed"]}
    lines = [f"{name}: {values['title']}" for name, values in done.items()]
    lines += [f"Left out: {why}" for why in left_out.values()]
    lines += [f"Failed: {count} cells of {name}; see its table for the reasons" for name, count in failed.items()]
    lines.append(f"Written to {arguments.output}/NAME: {_WRITTEN}")
    return Outcome(
        "\n".join(lines), {"done": done, "left_out": left_out, "failed": failed}, BAD_NEWS if failed else DONE
    )


def _reproduced(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    from tulle.experiments.reproduction import reproduce

    chosen, command = _chosen(name, arguments), ["tulle", "reproduce", name]
    if arguments.fast:
        command.append("--fast")
    if arguments.trials is not None:
        chosen = replace(chosen, trials=arguments.trials)
        command += ["--trials", str(arguments.trials)]
    folder: Path = arguments.output / name
    values = reproduce(
        chosen,
        folder,
        command=shlex.join(command),
        jobs=arguments.jobs,
        restart=arguments.restart,
        progress=not is_silent(arguments),
        reuse=arguments.reuse,
    )
    return {**values, "folder": str(folder)}


@contextmanager
def _data_in(folder: Path | None) -> Iterator[None]:
    """Name the folder to this process and to those that it starts."""
    before = os.environ.get("TULLE_DATA")
    if folder is not None:
        os.environ["TULLE_DATA"] = str(folder.resolve())
    try:
        yield
    finally:
        if folder is not None:
            if before is None:
                del os.environ["TULLE_DATA"]
            else:
                os.environ["TULLE_DATA"] = before
