"""Arguments that several commands share: which rows to read, and what model to fit to them."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Literal, cast

from tulle.cli.logs import is_silent
from tulle.cli.outcome import UserError
from tulle.cli.schema_input import add_schema_arguments, read_encoded, schema_of

if TYPE_CHECKING:
    from tulle.estimators.bounds import Bounds
    from tulle.files.tables import Table
    from tulle.reports.report import PrivacyReport
    from tulle.schema.declared_schema import Schema

Task = Literal["classification", "regression"]

# How a file is written, as against which of its columns are what.
_HOW_WRITTEN = ("format", "header", "delimiter", "encoding", "zero_based")


def add_data_arguments(
    parser: argparse.ArgumentParser,
    *,
    target: bool = True,
    blocks: bool = False,
    option: bool = False,
    schema: bool = False,
    several: bool = False,
) -> None:
    """Which file, and how to read it; `blocks` as in `read_data`. The file is an option or a positional argument.
    `schema`: whether raw tables can be read. `several`: whether files can be appended."""
    or_blocks = ", or a folder written by tulle convert" if blocks else ""
    words = f"a file of rows: CSV, Parquet, svmlight (also .gz, .bz2) or npz{or_blocks}"
    if several:
        more = "; or a folder of Parquet files, a glob, an address such as s3://bucket/table.parquet"
        parser.add_argument("data", metavar="DATA", nargs="+", help=words + more)
    elif option:
        parser.add_argument("--data", required=True, metavar="FILE", help=words)
    else:
        parser.add_argument("data", metavar="DATA", help=words)
    group = parser.add_argument_group("reading the file")
    if target:
        group.add_argument(
            "--target", metavar="COLUMN", help="the column to predict (svmlight and npz files define theirs)"
        )
        group.add_argument(
            "--groups", metavar="COLUMN", help="a column of person ids, if a person may have several rows"
        )
    group.add_argument(
        "--ignore",
        metavar="COLUMN",
        action="append",
        default=[],
        help="a column to leave out, or several separated by commas (a name with a comma in double quotes); may be "
        "repeated",
    )
    add_file_arguments(group)
    group.add_argument("--zero-based", action="store_true", help="svmlight: indices count from 0, not from 1")
    if schema:
        add_schema_arguments(parser)
    if target:
        group.add_argument(
            "--n-features",
            type=int,
            metavar="D",
            help="svmlight: the number of features. Default: the largest index in the file, which then counts as "
            "public",
        )


def add_file_arguments(group: argparse._ActionsContainer) -> None:
    """How a file is written."""
    group.add_argument("--format", choices=("csv", "parquet", "svmlight", "npz"), help="default: by the file's suffix")
    group.add_argument(
        "--no-header",
        dest="header",
        action="store_false",
        help="CSV: the first line holds values; columns are 0, 1, ...",
    )
    group.add_argument("--delimiter", metavar="C", help="CSV: default: the comma, semicolon or tab of the first line")
    group.add_argument("--encoding", default="utf-8", metavar="NAME", help="CSV: default utf-8; cp1252 for old Windows")


def add_public_argument(group: argparse._ActionsContainer) -> None:
    """Rows that may be looked at for nothing."""
    group.add_argument(
        "--public",
        metavar="FILE",
        help="public rows without labels, for auto, fit_again and knowledge_transfer: a file with the features of DATA "
        "by name (without names: in the same places), other columns are left out. They are not protected, and must not "
        "be chosen by looking at the private rows",
    )


def reading_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parameters of `tulle.files.tables.read_table` that `add_data_arguments` holds."""
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
        "missing": getattr(arguments, "missing", False),
        "progress": not is_silent(arguments),
    }


def read_data(
    arguments: argparse.Namespace,
    *,
    path: str | None = None,
    need_target: bool = True,
    features: Any = None,
    blocks: bool = False,
    private: bool = False,
) -> Table:
    """The rows that the arguments name, or those of another file read in the same way. `private`: the command takes
    rows with values that are to be found.

    Where `blocks` says that the command can use them, a folder of blocks is opened in place of a file: `X` is then
    a `tulle.backends.block_folder.BlockMatrix`, with all the columns of the folder in its own order;
    `features` is ignored.
    """
    from tulle.files.tables import read_table

    source = path or arguments.data
    if (schema := schema_of(arguments)) is not None:
        if is_folder_of_blocks(source):
            raise UserError(f"{source} is a folder of blocks, whose rows are encoded already; omit the schema")
        return read_encoded(
            arguments, schema, source, labelled=need_target, private=private, progress=not is_silent(arguments)
        )
    if is_folder_of_blocks(source):
        if not blocks:
            raise UserError(f"{source} is a folder of blocks; this command needs all rows in memory, so pass a file")
        settings = reading_settings(arguments)
        if getattr(arguments, "public", None) is not None:  # these say how to read that file
            settings = {name: given for name, given in settings.items() if name not in _HOW_WRITTEN}
        table = _open_table(source, settings, features)
        if table.schema is not None and getattr(arguments, "classes", None) is not None:
            raise UserError(f"{source} was converted with a schema, which declares the classes; omit --classes")
    else:
        table = read_table(source, features=features, need_target=need_target, **reading_settings(arguments))
    if need_target and table.y is None:
        how = "convert the rows again" if is_folder_of_blocks(source) else "name it"
        raise UserError(f"{table.source} has no column to predict; {how} with --target COLUMN")
    return table


def read_public_rows(arguments: argparse.Namespace, table: Table) -> Any:
    """The rows of --public, with the columns of a table of private rows; None where there are none.

    They are read like DATA, except for columns that are no features: those are left out by name, and may be absent.
    """
    if arguments.public is None:
        return None
    from tulle.files.tables import read_table

    if is_folder_of_blocks(arguments.public):
        raise UserError(f"{arguments.public} is a folder of blocks; public rows are held in memory, so pass a file")
    # By the name alone: a comparison of contents would be an unbilled answer about private rows.
    if os.path.exists(arguments.public) and os.path.samefile(arguments.public, table.source):
        raise UserError(f"--public {arguments.public} is the file of private rows itself; pass a file of public rows")
    if table.schema is not None:
        return read_encoded(arguments, table.schema, arguments.public, labelled=False, progress=False).X
    settings = reading_settings(arguments) | {"target": None, "groups": None, "ignore": [], "labels": False}
    settings["n_features"] = table.X.shape[1]
    return read_table(arguments.public, features=table.feature_names, **settings).X


def is_folder_of_blocks(path: str) -> bool:
    """Whether a path is a folder written by tulle convert, or the remains of one."""
    if not os.path.isdir(path):  # no need to load numpy
        return False
    from tulle.backends.block_folder import is_block_folder

    return is_block_folder(path)


def _open_table(path: str, settings: dict[str, Any], features: Any) -> Table:
    """A folder of blocks as a table. How to read the file was decided when it was converted."""
    from tulle.backends.block_folder import open_blocks
    from tulle.files.tables import Table

    usual = {"ignore": [], "header": True, "encoding": "utf-8", "zero_based": False}
    for name, given in settings.items():
        if name not in ("n_features", "progress", "labels", "missing") and given != usual.get(name):
            option = "--no-header" if name == "header" else f"--{name.replace('_', '-')}"
            raise UserError(f"{path} is a folder of blocks: omit {option} here, and pass it to tulle convert")
    folder = open_blocks(path)
    picked = features is not None and folder.feature_names is not None  # by name, where the rows are used
    if settings["n_features"] not in (None, folder.shape[1]) and not picked:
        raise UserError(f"{path} has {folder.shape[1]:,} features, expected {settings['n_features']:,}")
    return Table(
        folder.X,
        folder.y,
        folder.feature_names,
        folder.groups,
        source=path,
        content=folder.content,
        width_from_rows=folder.width_from_rows,
        schema=folder.schema,
    )


def state_width(report: PrivacyReport, table: Table) -> PrivacyReport:
    """The report of a fit to a table, which says where the number of features is nothing that was known before."""
    if not table.width_from_rows:
        return report
    from dataclasses import replace

    from tulle.reports.report import WIDTH_PUBLISHED

    line = (
        f"{WIDTH_PUBLISHED}{table.X.shape[1]:,}, was published: it is the largest index in the rows, and one "
        "person's row may determine it (declare it beforehand with --n-features)."
    )
    return replace(report, assumptions=(*report.assumptions, line))


def state_origins(report: PrivacyReport, arguments: argparse.Namespace, schema: Schema | None) -> PrivacyReport:
    """The report of a fit, which says which of its bounds a schema declared."""
    if schema is None:
        return report
    from dataclasses import replace

    own, whole = bounds_of(arguments), bounds_of(arguments, schema)
    bounds = tuple(
        replace(line, origin="schema")
        if line.origin == "declared" and getattr(own, line.what) is None and getattr(whole, line.what) is not None
        else line
        for line in report.bounds
    )
    return replace(report, bounds=bounds)


def name_features(model: Any, table: Table, private: list[tuple[str, Any]]) -> Any:
    """Give a fitted model the names of its features; as a pipeline where a schema or private steps come first."""
    import numpy as np

    steps = list(private)
    if table.schema is not None:
        if not table.schema.is_private:  # then the first of the steps holds it
            model.privacy_ = state_schema(model.privacy_, table.schema)
            steps.insert(0, ("schema", table.schema))
    elif table.feature_names is not None:
        model.feature_names_in_ = np.asarray(table.feature_names, dtype=object)
    from tulle.estimators.saved_steps import make_pipeline

    return make_pipeline(steps, "model", model)


def state_schema(report: PrivacyReport, schema: Schema) -> PrivacyReport:
    """The report of a fit to rows that a schema encoded, which says what was declared."""
    from dataclasses import replace

    return replace(report, assumptions=(*report.assumptions, *schema.describe()))


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Bounds known before reading the rows, and the model; without budget and method."""
    add_people_argument(add_bound_arguments(parser))
    group = parser.add_argument_group("the model")
    group.add_argument(
        "--task",
        choices=("classification", "regression"),
        help="default: classification if the target is text or has two values; otherwise required",
    )
    group.add_argument("--n-nonzero", type=int, metavar="S", help="the number of weights to keep (default: by n and d)")
    add_loss_arguments(group)


def add_bound_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """What bounds rows and targets, and the group that it is in."""
    group = parser.add_argument_group("bounds that you know without looking at the rows")
    group.add_argument(
        "--row-l2", type=float, metavar="R", help="no row has a larger norm than this; longer rows are clipped"
    )
    group.add_argument(
        "--row-linf", type=float, metavar="R", help="no entry is larger than this; larger entries are clipped"
    )
    group.add_argument("--label-bound", type=float, metavar="B", help="regression: no target is larger than this")
    group.add_argument("--normalise", action="store_true", help="scale every row to length --row-l2 (1 without it)")
    return group


def add_people_argument(group: argparse._ArgumentGroup) -> None:
    """Whom the guarantee protects."""
    group.add_argument(
        "--rows-per-person", type=int, default=1, metavar="K", help="protect people with up to K rows (default 1)"
    )


def add_ledger_arguments(group: argparse._ArgumentGroup, help_text: str) -> None:
    group.add_argument("--ledger", metavar="FOLDER", help=help_text)
    group.add_argument("--dataset", metavar="NAME", help="the data set's name in the ledger")
    group.add_argument("--witness", metavar="FILE", help="a second file with the heads of the ledger, compared first")
    for name, words in (
        ("certificate", "this client's certificate"),
        ("key", "the key of this certificate"),
        ("authority", "the certificate of the authority that signed the server's"),
    ):
        group.add_argument(f"--ledger-{name}", metavar="PEM", help=f"for a ledger on a server: {words}")


def ledger_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """How to reach a ledger, as `FileLedger` takes it."""
    paths = (arguments.ledger_certificate, arguments.ledger_key, arguments.ledger_authority)
    given = [path is not None for path in paths]
    if any(given) and not all(given):
        raise UserError("pass all of --ledger-certificate, --ledger-key and --ledger-authority")
    return {"witness": arguments.witness, "credentials": paths if all(given) else None}


def add_loss_arguments(group: argparse._ArgumentGroup) -> None:
    """The options of the objective."""
    group.add_argument("--loss", metavar="NAME", help="logistic, squared_hinge; squared, huber, poisson")
    group.add_argument("--no-intercept", dest="fit_intercept", action="store_false", help="no constant column")


def bounds_of(arguments: argparse.Namespace, schema: Schema | None = None) -> Bounds:
    """The bounds that the arguments declare, and those that a schema implies where they are silent."""
    from tulle.estimators.bounds import Bounds

    row_l2, label, rows = arguments.row_l2, arguments.label_bound, arguments.rows_per_person
    if schema is not None:
        if row_l2 is None and arguments.row_linf is None and not arguments.normalise:
            row_l2 = schema.row_l2
        label = schema.label_bound if label is None else label
        rows = schema.rows_per_person if schema.person_column is not None else rows
    return Bounds(
        row_l2=row_l2,
        row_linf=arguments.row_linf,
        label=label,
        normalise=arguments.normalise,
        rows_per_person=rows,
        offset=getattr(arguments, "offset_bound", None),
    )


def task_of(arguments: argparse.Namespace, table: Table) -> Task:
    """Classification or regression. Declared classes decide by themselves. Without them the set of class labels is
    published in any case, so that two values may decide; more may not."""
    import numpy as np

    if table.schema is not None:
        declared: Task = "regression" if table.schema.classes is None else "classification"
        if arguments.task not in (None, declared):
            raise UserError(f"the schema declares the target of a {declared}; omit --task {arguments.task}")
        return declared
    if getattr(arguments, "classes", None) is not None:
        if arguments.task == "regression":
            raise UserError("--classes is for classification; omit it, or omit --task regression")
        return "classification"
    if arguments.task is not None:
        if arguments.task == "regression" and table.y is not None and table.y.dtype.kind not in "fiub":
            raise UserError(f"the target of {table.source} contains text; --task regression needs numbers")
        return cast(Task, arguments.task)
    assert table.y is not None
    if table.y.dtype.kind in "US" or len(np.unique(table.y)) == 2:
        return "classification"
    raise UserError(
        "the target contains numbers: pass --task regression, or --task classification if they are class labels"
    )


def estimator_class(task: Task) -> Any:
    """The estimator of a task."""
    from tulle.estimators.sparse import SparseClassifier, SparseRegressor

    return SparseClassifier if task == "classification" else SparseRegressor


def model_settings(arguments: argparse.Namespace, schema: Schema | None = None) -> dict[str, Any]:
    """The estimator's parameters that `add_model_arguments` holds, or that a schema implies."""
    settings: dict[str, Any] = {
        "n_nonzero": arguments.n_nonzero,
        "bounds": bounds_of(arguments, schema),
        "fit_intercept": arguments.fit_intercept,
    }
    if schema is not None and schema.classes is not None:
        settings["classes"] = schema.classes
    return settings | ({} if arguments.loss is None else {"loss": arguments.loss})
