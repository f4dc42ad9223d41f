"""Convert the rows of files into a folder of blocks on disk, for data larger than memory.

  tulle convert claims.svm.gz claims.blocks --n-features 1000000
  tulle fit claims.blocks --epsilon 1 --normalise --task classification -o models/claims
  tulle convert january.csv february.csv "march/*.parquet" visits.blocks --target readmitted
  tulle convert raw_visits.csv visits.blocks --schema columns.toml

Several files, which need the same columns by name, are appended in the order given. They are read with the memory of a
few blocks for each job regardless of their size (npz files are read as a whole). The folder gets its name when all rows
are written. A conversion that was killed, interrupted or stopped by a full disk is continued by the same command, with
the same bytes in the end. The folder contains private rows, and only its owner may read it: store it where the files
are stored, and delete it when the work is done.
"""

from __future__ import annotations

import argparse
import sys

from tulle.cli.data import add_data_arguments, reading_settings
from tulle.cli.logs import is_silent
from tulle.cli.outcome import Outcome, UserError
from tulle.cli.schema_input import reading_of_raw, schema_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser, several=True)
    parser.add_argument("folder", metavar="FOLDER", help="the folder to create, such as claims.blocks")
    parser.add_argument(
        "--schema",
        metavar="FILE",
        help="a TOML file that declares raw columns, the target and the person (CSV and Parquet); the folder stores it",
    )
    parser.add_argument(
        "--missing",
        action="store_true",
        help="cells of dense features may have no value; such a folder is fitted with --private-scaler",
    )
    parser.add_argument(
        "--rows-per-block",
        type=int,
        metavar="N",
        help="default: 64 MB of dense rows, 32768 sparse rows; choose it without looking at the rows",
    )
    parser.add_argument("--replace", action="store_true", help="replace an existing folder of blocks")
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="threads that parse, hash and write (default: all processors); the result does not depend on it",
    )
    parser.add_argument(
        "--restart",
        action="store_true",
        help="delete the finished blocks of an interrupted conversion to FOLDER. Default: continue it, if the input "
        "and the options are the same",
    )


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.backends.table_conversion import convert_table
    from tulle.files.tables.free_memory import shown_size

    resumed: list[int] = []

    def on_resume(n_rows: int) -> None:
        resumed.append(n_rows)
        if not is_silent(arguments):
            print(f"{arguments.folder}: continuing at row {n_rows + 1:,}", file=sys.stderr, flush=True)

    reading = reading_settings(arguments)
    schema = schema_of(arguments)
    if schema is not None:
        if arguments.missing or arguments.n_features is not None:
            raise UserError(
                "--schema declares all columns, and what blank cells count as; omit --missing, --n-features"
            )
        reading = {**reading_of_raw(arguments), "progress": reading["progress"]}
    folder = convert_table(
        arguments.data,
        arguments.folder,
        schema=schema,
        rows_per_block=arguments.rows_per_block,
        replace=arguments.replace,
        restart=arguments.restart,
        jobs=arguments.jobs,
        on_resume=on_resume,
        **reading,
    )
    n, d = folder.shape
    blocks = folder.X.n_blocks
    with_target = "with a target" if folder.y is not None else "without a target"
    text = (
        f"Wrote {n:,} rows of {d:,} features, {with_target}, in {blocks:,} block{'s' if blocks > 1 else ''} of "
        f"{shown_size(folder.X.nbytes)} in all: {folder.path}\n"
        + (f"Continued an interrupted conversion at row {resumed[0] + 1:,}.\n" if resumed else "")
        + "It contains private rows: protect it like the original file, and delete it when it is no longer needed."
    )
    values = {
        "folder": folder.path,
        "n_rows": n,
        "n_features": d,
        "n_blocks": blocks,
        "bytes": folder.X.nbytes,
        "target": folder.y is not None,
        "groups": folder.groups is not None,
        "missing": folder.X.missing,
        "schema": folder.schema is not None,
        "resumed_rows": resumed[0] if resumed else 0,
        "content": folder.content,
    }
    return Outcome(text, values)
