"""Sign a model, a report, a receipt, or any other file or folder.

  tulle keygen office.key                            # once: a pair of keys
  tulle sign models/readmission --key office.key     # all files of a folder; writes models/readmission.sig
  tulle sign report.html --key office.key --by "Privacy office" --purpose "release to clinics"
  tulle verify models/readmission --key office.key.pub

The signature is a separate file with the name, size and SHA-256 of every file. It says that no byte has changed since
the holder of the key signed; not that an epsilon is right. Sign a folder last: a file that is added to it later, such
as the signature of a report in it, makes tulle verify refuse the folder.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from tulle.cli.keygen import VARIABLE, add_passphrase_argument, prompt_passphrase, read_passphrase
from tulle.cli.model_folder import check_words
from tulle.cli.outcome import Outcome, UserError, output_file

if TYPE_CHECKING:
    from tulle.files.signatures import Statement


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a file or a folder")
    parser.add_argument("--key", required=True, metavar="KEY", help="the private key, as tulle keygen writes it")
    add_passphrase_argument(parser)
    parser.add_argument("--by", default="", metavar="NAME", help="who signs; stated in the signature")
    parser.add_argument("--purpose", default="", metavar="TEXT", help="what for; stated in the signature")
    parser.add_argument("-o", "--output", metavar="FILE", help="the signature file; default: PATH.sig, next to PATH")


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.files.signatures import default_signature, sign
    from tulle.files.signing_keys import PassphraseError

    check_words({"--by": arguments.by, "--purpose": arguments.purpose})
    target = output_file(arguments.output or default_signature(arguments.path), arguments.path, arguments.key)
    told = {"output": target, "signer": arguments.by, "purpose": arguments.purpose}
    passphrase = read_passphrase(arguments.passphrase_file)
    try:
        statement = sign(arguments.path, arguments.key, passphrase=passphrase, **told)
    except PassphraseError:
        if passphrase is not None:
            raise
        if (typed := prompt_passphrase(f"Passphrase of {arguments.key}")) is None:
            raise UserError(f"{arguments.key} is encrypted; pass --passphrase-file, or set {VARIABLE}") from None
        statement = sign(arguments.path, arguments.key, passphrase=typed, **told)
    text = f"Signed: {describe_files(statement)} by the key {statement.key}\nWritten: {target}"
    return Outcome(text, {"signature": str(target), **asdict(statement)})


def describe_files(statement: Statement) -> str:
    """What was signed, in a few words."""
    count = len(statement.files)
    return f"{statement.kind}, {count:,} {'file' if count == 1 else 'files'}"
