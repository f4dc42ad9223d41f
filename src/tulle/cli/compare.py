"""Compare methods and budgets on one data set: test errors, with the fit without privacy and the null model.

The result is not for release: scores are computed on the rows themselves. Run the same command again to resume a
comparison that was stopped; with more methods, budgets or trials in the same folder only the new cells run.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from tulle.cli.data import (
    add_data_arguments,
    add_model_arguments,
    add_public_argument,
    model_settings,
    read_data,
    read_public_rows,
    task_of,
)
from tulle.cli.logs import is_silent
from tulle.cli.outcome import BAD_NEWS, DONE, Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser, schema=True)
    add_model_arguments(parser)
    group = parser.add_argument_group("what to compare")
    group.add_argument("--test", metavar="FILE", help="rows to test on (default: a random share, new in each trial)")
    group.add_argument("--test-share", type=float, default=0.3, metavar="P", help="share of test rows (default 0.3)")
    add_public_argument(group)
    group.add_argument(
        "--methods", type=names, metavar="A,B,...", help="default: all methods that can fit such a model"
    )
    group.add_argument(
        "--epsilons", type=numbers, metavar="E,E,...", help="privacy losses to compare (default 0.5,1,2,4,8)"
    )
    group.add_argument(
        "--metrics",
        type=names,
        default=(),
        metavar="A,B,...",
        help="scores besides the error: accuracy, auc, log_loss for classes, r2 for numbers (default: none)",
    )
    group.add_argument("--delta", type=float, metavar="D", help="default: min(1e-5, 1 / (10 training rows))")
    group.add_argument(
        "--trials", type=int, default=5, metavar="N", help="splits and noise draws per value (default 5)"
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="splits and noise derive from it (default 0)")
    add_run_arguments(parser)
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FOLDER", help="folder of the results")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """How cells are run."""
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    parser.add_argument("--restart", action="store_true", help="delete the results in the folder and start again")


def names(text: str) -> tuple[str, ...]:
    """Words with commas between them."""
    return tuple(word.strip() for word in text.split(","))


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(float(word) for word in text.split(","))


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.experiments.comparison import Comparison, compare
    from tulle.experiments.comparison_metrics import read_metrics
    from tulle.experiments.comparison_table import table
    from tulle.experiments.examples import Examples

    rows = read_data(arguments)
    assert rows.y is not None
    task = task_of(arguments, rows)
    comparison = Comparison(
        name=Path(rows.source).name,
        rows=Examples(rows.X, rows.y, rows.groups),
        task=task,
        trials=arguments.trials,
        delta=arguments.delta,
        settings=model_settings(arguments, rows.schema),
        test_share=arguments.test_share,
        seed=arguments.seed,
        public=read_public_rows(arguments, rows),
        metrics=read_metrics(arguments.metrics, task),
    )
    if arguments.test is not None:
        held_out = read_data(arguments, path=arguments.test, features=rows.feature_names)
        assert held_out.y is not None
        comparison = replace(comparison, test=Examples(held_out.X, held_out.y, held_out.groups))
    if arguments.epsilons is not None:
        comparison = replace(comparison, epsilons=arguments.epsilons)
    left_out: dict[str, str] = {}
    if arguments.methods is not None:
        comparison = replace(comparison, methods=arguments.methods)
    else:
        comparison, left_out = comparison.able()
    folder: Path = arguments.output
    summary = compare(
        comparison, folder, jobs=arguments.jobs, restart=arguments.restart, progress=not is_silent(arguments)
    )
    omitted = "".join(f"Left out: {name} ({reason}).\n" for name, reason in left_out.items())
    text = f"{table(summary)}\n{omitted}Written to {folder}: report.html, table.md, results.csv, comparison.json"
    values = {**summary, "left_out": left_out, "folder": str(folder)}
    return Outcome(text, values, BAD_NEWS if summary["failed"] else DONE)
