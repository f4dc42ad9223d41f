"""Run a table or figure of a paper again: the paper's values, its noise with its true ε, and correct noise.

Without a name, lists all tables and figures. `all` runs all of them, one after the other. Run the same command again
to resume a run that was stopped; after a change of code, data or settings only the dependent cells are run again.
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
from typing import Any

from tulle.cli.compare import add_run_arguments
from tulle.cli.logs import is_silent
from tulle.cli.outcome import BAD_NEWS, DONE, Outcome, UserError

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

    if arguments.name is None:
        titles = {name: published(name).title for name in names()}
        width = max(map(len, titles))
        return Outcome("\n".join(f"{name:<{width}}  {title}" for name, title in titles.items()), {"tables": titles})
    if arguments.trials is not None and arguments.trials < 1:
        raise UserError(f"--trials must be at least 1, got {arguments.trials}")
    if arguments.data is not None and not arguments.data.is_dir():
        raise UserError(f"--data: {arguments.data} is not a folder")
    with _data_in(arguments.data):
        if arguments.name != EVERYTHING:
            try:
                values = _reproduced(arguments.name, arguments)
            except MissingDataError as error:
                raise UserError(str(error)) from None
            text = f"{values['table']}\nWritten to {values['folder']}: {_WRITTEN}"
            return Outcome(text, values, BAD_NEWS if values["failed"] else DONE)
        return _everything(arguments)


_WRITTEN = "table.md, page.html, figure.svg, results.csv, reproduction.json"


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
    from tulle.experiments.catalogue import published
    from tulle.experiments.reproduction import reproduce

    chosen, command = published(name), ["tulle", "reproduce", name]
    if arguments.fast:
        chosen = chosen.faster()
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
