"""Check that a file or folder is, to the last byte, what the holder of a trusted key signed.

  tulle verify models/readmission --key office.key.pub                  # with models/readmission.sig
  tulle verify report.html --key trusted_keys/ --kind report            # a folder of public keys
  tulle verify report.html --key office.key.pub --signature other.sig

Exit code 0: every file is as it was signed, none was added or removed, and the key is trusted. 1: not so, and the
message says why. 2: there is no such file, signature or key.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import get_args

from tulle.cli.outcome import BAD_NEWS, Outcome
from tulle.cli.sign import describe_files
from tulle.files.signatures import Kind, SignatureError, verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a file or a folder")
    parser.add_argument(
        "--key",
        required=True,
        action="append",
        metavar="PUBLIC",
        help="a trusted public key, a file with several, or a folder of *.pub and *.pem files; may be repeated",
    )
    parser.add_argument("--signature", metavar="FILE", help="the signature file; default: PATH.sig, next to PATH")
    parser.add_argument("--kind", choices=get_args(Kind), help="refuse signatures of anything else")


def run(arguments: argparse.Namespace) -> Outcome:
    try:
        statement = verify(arguments.path, arguments.key, signature=arguments.signature, kind=arguments.kind)
    except SignatureError as error:
        return Outcome(
            f"NOT verified: {error}", {"path": arguments.path, "verified": False, "why": str(error)}, BAD_NEWS
        )
    lines = [
        f"Verified: {arguments.path} ({describe_files(statement)}) is unchanged since it was signed.",
        f"Signed by the key {statement.key} at {statement.signed}.",
    ]
    lines += [f"Signer: {statement.signer}"] if statement.signer else []
    lines += [f"Purpose: {statement.purpose}"] if statement.purpose else []
    lines.append("This says nothing about whether an epsilon in it is right.")
    return Outcome("\n".join(lines), {"path": arguments.path, "verified": True, **asdict(statement)})
