"""Arguments that several commands share: which rows to read, and what model to fit to them."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Literal, cast

from tulle.cli.outcome import UserError

if TYPE_CHECKING:
    from tulle.bounds import Bounds
    from tulle.report import PrivacyReport
    from tulle.tables import Table

Task = Literal["classification", "regression"]


def add_data_arguments(
    parser: argparse.ArgumentParser, *, target: bool = True, blocks: bool = False, option: bool = False
) -> None:
    """Which file, and how to read it; `blocks` as in `read_data`. The file is an option, or stands by itself."""
    or_blocks = ", or a folder that tulle convert made" if blocks else ""
    words = f"a file of rows: CSV, Parquet, svmlight (also .gz, .bz2) or npz{or_blocks}"
    if option:
        parser.add_argument("--data", required=True, metavar="FILE", help=words)
    else:
        parser.add_argument("data", metavar="DATA", help=words)
    group = parser.add_argument_group("reading the file")
    if target:
        group.add_argument("--target", metavar="COLUMN", help="the column to predict (svmlight and npz know theirs)")
        group.add_argument(
            "--groups", metavar="COLUMN", help="a column of person ids, where a person may have several rows"
        )
    group.add_argument(
        "--ignore", metavar="COLUMN", action="append", default=[], help="a column to leave out; may be repeated"
    )
    group.add_argument("--format", choices=("csv", "parquet", "svmlight", "npz"), help="default: by the file's suffix")
    group.add_argument(
        "--no-header",
        dest="header",
        action="store_false",
        help="CSV: the first line holds values; columns are 0, 1, ...",
    )
    group.add_argument("--delimiter", metavar="C", help="CSV: default: the comma, semicolon or tab of the first line")
    group.add_argument("--zero-based", action="store_true", help="svmlight: indices count from 0, not from 1")
    group.add_argument("--encoding", default="utf-8", metavar="NAME", help="CSV: default utf-8; cp1252 for old Windows")
    if target:
        group.add_argument(
            "--n-features",
            type=int,
            metavar="D",
            help="svmlight: how many features there are. Without it the largest index in the file decides, which is "
            "then taken as public",
        )


def reading_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parameters of `tulle.tables.read_table` that `add_data_arguments` holds."""
    return {
        "target": getattr(arguments, "target", None),
        "groups": getattr(arguments, "groups", None),
        "ignore": arguments.ignore,
        "format": arguments.format,
        "header": arguments.header,
        "delimiter": arguments.delimiter,
        "encoding": arguments.encoding,
        "n_features": getattr(arguments, "n_features", None),
        "zero_based": arguments.zero_based,
        "labels": getattr(arguments, "classes", None) is not None,
        "progress": not getattr(arguments, "quiet", False),
    }


def read_data(
    arguments: argparse.Namespace,
    *,
    path: str | None = None,
    need_target: bool = True,
    features: Any = None,
    blocks: bool = False,
) -> Table:
    """The rows that the arguments name, or those of another file read in the same way.

    Where `blocks` says that the command can do with them, a folder of blocks is opened in place of a file: `X` is then
    a `tulle.blocks.BlockMatrix`, with all the columns of the folder in its own order, whatever `features` says.
    """
    from tulle.tables import read_table

    source = path or arguments.data
    if _is_block_folder(source):
        if not blocks:
            raise UserError(f"{source} is a folder of blocks; this command holds all rows in memory, so give it a file")
        table = _open_table(source, reading_settings(arguments), features)
    else:
        table = read_table(source, features=features, **reading_settings(arguments))
    if need_target and table.y is None:
        how = "convert the rows again" if _is_block_folder(source) else "name it"
        raise UserError(f"{table.source} has no column to predict; {how} with --target COLUMN")
    return table


def _is_block_folder(path: str) -> bool:
    if not os.path.isdir(path):  # before numpy is loaded for nothing
        return False
    from tulle.blocks import is_block_folder

    return is_block_folder(path)


def _open_table(path: str, settings: dict[str, Any], features: Any) -> Table:
    """A folder of blocks as a table. How to read the file was said when it was converted."""
    from tulle.blocks import open_blocks
    from tulle.tables import Table

    usual = {"ignore": [], "header": True, "encoding": "utf-8", "zero_based": False}
    for name, given in settings.items():
        if name not in ("n_features", "progress", "labels") and given != usual.get(name):
            option = "--no-header" if name == "header" else f"--{name.replace('_', '-')}"
            raise UserError(f"{path} is a folder of blocks: leave {option} out here, and pass it to tulle convert")
    folder = open_blocks(path)
    picked = features is not None and folder.feature_names is not None  # by name, where the rows are used
    if settings["n_features"] not in (None, folder.shape[1]) and not picked:
        raise UserError(f"{path} has {folder.shape[1]:,} features, where {settings['n_features']:,} are wanted")
    parts = (folder.X, folder.y, folder.feature_names, folder.groups)
    return Table(*parts, source=path, content=folder.content, width_from_rows=folder.width_from_rows)


def told_width(report: PrivacyReport, table: Table) -> PrivacyReport:
    """The report of a fit to a table, which says where the number of features is nothing that was known before."""
    if not table.width_from_rows:
        return report
    from dataclasses import replace

    line = (
        f"The number of features, {table.X.shape[1]:,}, was published: it is the largest index among the rows, and one "
        "person's row may decide it (--n-features declares it beforehand)."
    )
    return replace(report, assumptions=(*report.assumptions, line))


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """What is known of the rows beforehand, and what model is wanted; budget and method apart."""
    add_people_argument(add_bound_arguments(parser))
    group = parser.add_argument_group("the model")
    group.add_argument(
        "--task",
        choices=("classification", "regression"),
        help="default: classification where the target holds words or two values, else you must say",
    )
    group.add_argument("--n-nonzero", type=int, metavar="S", help="how many weights to keep (default: by n and d)")
    add_loss_arguments(group)


def add_bound_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """What bounds rows and targets, and the group that it is in."""
    group = parser.add_argument_group("what you know without looking at the rows")
    group.add_argument("--row-l2", type=float, metavar="R", help="no row is longer than this; longer ones are cut")
    group.add_argument("--row-linf", type=float, metavar="R", help="no entry is larger than this; larger ones are cut")
    group.add_argument("--label-bound", type=float, metavar="B", help="regression: no target is larger than this")
    group.add_argument("--normalise", action="store_true", help="scale every row to length --row-l2 (1 without it)")
    return group


def add_people_argument(group: argparse._ArgumentGroup) -> None:
    """Whom a promise covers."""
    group.add_argument(
        "--rows-per-person", type=int, default=1, metavar="K", help="protect people with up to K rows (default 1)"
    )


def add_loss_arguments(group: argparse._ArgumentGroup) -> None:
    """What is minimised."""
    group.add_argument("--loss", metavar="NAME", help="logistic, squared_hinge; squared, huber, poisson")
    group.add_argument("--no-intercept", dest="fit_intercept", action="store_false", help="no constant column")


def bounds_of(arguments: argparse.Namespace) -> Bounds:
    """The bounds that the arguments declare."""
    from tulle.bounds import Bounds

    return Bounds(
        row_l2=arguments.row_l2,
        row_linf=arguments.row_linf,
        label=arguments.label_bound,
        normalise=arguments.normalise,
        rows_per_person=arguments.rows_per_person,
    )


def task_of(arguments: argparse.Namespace, table: Table) -> Task:
    """Classification or regression. Declared classes decide by themselves. Without them the set of class labels is
    published in any case, so that two values may decide; more may not."""
    import numpy as np

    if getattr(arguments, "classes", None) is not None:
        if arguments.task == "regression":
            raise UserError("--classes is for classification; leave it out, or --task regression")
        return "classification"
    if arguments.task is not None:
        if arguments.task == "regression" and table.y is not None and table.y.dtype.kind not in "fiub":
            raise UserError(f"the target of {table.source} holds words; --task regression needs numbers")
        return cast(Task, arguments.task)
    assert table.y is not None
    if table.y.dtype.kind in "US" or len(np.unique(table.y)) == 2:
        return "classification"
    raise UserError(
        "the target holds numbers: say --task regression, or --task classification if they are names of classes"
    )


def estimator_class(task: Task) -> Any:
    """The estimator of a task."""
    from tulle.estimators import SparseClassifier, SparseRegressor

    return SparseClassifier if task == "classification" else SparseRegressor


def model_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The estimator's parameters that `add_model_arguments` holds."""
    settings: dict[str, Any] = {
        "n_nonzero": arguments.n_nonzero,
        "bounds": bounds_of(arguments),
        "fit_intercept": arguments.fit_intercept,
    }
    return settings | ({} if arguments.loss is None else {"loss": arguments.loss})
