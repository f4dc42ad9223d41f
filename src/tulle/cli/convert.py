"""Convert the rows of a file into a folder of blocks on disk, for data larger than memory.

  tulle convert claims.svm.gz claims.blocks --n-features 1000000
  tulle fit claims.blocks --epsilon 1 --normalise --task classification -o models/claims

The file is read once, with the memory of a few blocks regardless of its size (npz files are read as a whole). The
folder gets its name when all rows are written; a conversion that fails leaves no files. It contains private rows, and
only its owner may read it: store it where the file is stored, and delete it when the work is done.
"""

from __future__ import annotations

import argparse

from tulle.cli.data import add_data_arguments, reading_settings
from tulle.cli.outcome import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    parser.add_argument("folder", metavar="FOLDER", help="the folder to create, such as claims.blocks")
    parser.add_argument(
        "--rows-per-block",
        type=int,
        metavar="N",
        help="default: 64 MB of dense rows, 32768 sparse rows; choose it without looking at the rows",
    )
    parser.add_argument("--replace", action="store_true", help="replace an existing folder of blocks")


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.backends.block_writer import convert_table
    from tulle.files.tables.free_memory import shown_size

    folder = convert_table(
        arguments.data,
        arguments.folder,
        rows_per_block=arguments.rows_per_block,
        replace=arguments.replace,
        **reading_settings(arguments),
    )
    n, d = folder.shape
    blocks = folder.X.n_blocks
    with_target = "with a target" if folder.y is not None else "without a target"
    text = (
        f"Wrote {n:,} rows of {d:,} features, {with_target}, in {blocks:,} block{'s' if blocks > 1 else ''} of "
        f"{shown_size(folder.X.nbytes)} in all: {folder.path}\n"
        "It contains private rows: protect it like the original file, and delete it when it is no longer needed."
    )
    values = {
        "folder": folder.path,
        "n_rows": n,
        "n_features": d,
        "n_blocks": blocks,
        "bytes": folder.X.nbytes,
        "target": folder.y is not None,
        "groups": folder.groups is not None,
        "content": folder.content,
    }
    return Outcome(text, values)
