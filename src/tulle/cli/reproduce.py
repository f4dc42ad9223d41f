"""Run a table or figure of a paper again: what it prints, its own noise with its true ε, and sound noise beside it.

Without a name: lists what there is. A run that was stopped goes on when the same command is given again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from tulle.cli.compare import add_run_arguments
from tulle.cli.outcome import BAD_NEWS, DONE, Outcome, UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="of a table or figure; without it they are listed")
    parser.add_argument("--trials", type=int, metavar="N", help="default: as many as the paper has")
    parser.add_argument("--fast", action="store_true", help="the smallest settings and few trials")
    add_run_arguments(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER", help="where results are kept (default: reproduced/NAME)"
    )


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.experiments.catalogue import MissingDataError, names, published, reproduce

    if arguments.name is None:
        titles = {name: published(name).title for name in names()}
        width = max(map(len, titles))
        return Outcome("\n".join(f"{name:<{width}}  {title}" for name, title in titles.items()), {"tables": titles})
    chosen = published(arguments.name)
    if arguments.fast:
        chosen = chosen.faster()
    if arguments.trials is not None:
        if arguments.trials < 1:
            raise UserError(f"--trials must be at least 1, got {arguments.trials}")
        chosen = replace(chosen, trials=arguments.trials)
    folder: Path = arguments.output or Path("reproduced") / arguments.name
    try:
        values = reproduce(chosen, folder, jobs=arguments.jobs, restart=arguments.restart, progress=not arguments.quiet)
    except MissingDataError as error:
        raise UserError(str(error)) from None
    text = f"{values['table']}\nWritten to {folder}: table.md, results.csv, reproduction.json"
    return Outcome(text, {**values, "folder": str(folder)}, BAD_NEWS if values["failed"] else DONE)
