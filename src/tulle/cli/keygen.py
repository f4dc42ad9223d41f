"""Create a pair of Ed25519 keys for signatures.

  tulle keygen office.key      # asks for a passphrase; writes office.key (secret) and office.key.pub (to be given away)

The private key is encrypted with a passphrase, which is asked for on the terminal, or is the first line of
--passphrase-file, or the environment variable TULLE_KEY_PASSPHRASE. No existing file is overwritten. Send the public
key to those who verify by another way than the signed files, or let them compare its fingerprint.
"""

from __future__ import annotations

import argparse
import os
import sys
from getpass import getpass
from pathlib import Path

from tulle.cli.outcome import Outcome, UserError

VARIABLE = "TULLE_KEY_PASSPHRASE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="file for the private key; the public key is KEY.pub")
    ways = parser.add_mutually_exclusive_group()
    add_passphrase_argument(ways)
    ways.add_argument(
        "--no-passphrase", action="store_true", help="leave the private key unencrypted: anyone who reads it can sign"
    )


def add_passphrase_argument(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--passphrase-file",
        metavar="FILE",
        help=f"its first line is the passphrase of the key; default: the variable {VARIABLE}, or a prompt",
    )


def read_passphrase(file: str | None) -> str | None:
    """The passphrase in a file or in the environment; None if neither is given."""
    if file is None:
        return os.environ.get(VARIABLE)
    try:
        first, *_ = [*Path(file).read_text(encoding="utf-8").splitlines(), ""]
    except UnicodeDecodeError:
        raise UserError(f"{file} is not text; a passphrase file has the passphrase in its first line") from None
    if not first:
        raise UserError(f"the first line of {file} is empty; it must be the passphrase")
    return first


def prompt_passphrase(words: str) -> str | None:
    """The passphrase that a user types; None without a terminal."""
    return getpass(f"{words}: ", stream=sys.stderr) if sys.stdin is not None and sys.stdin.isatty() else None


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.files.signing_keys import PUBLIC_SUFFIX, generate_key

    passphrase = None
    if not arguments.no_passphrase:
        passphrase = read_passphrase(arguments.passphrase_file)
        if passphrase is None:
            passphrase = prompt_passphrase("Passphrase for the new key")
            if passphrase != prompt_passphrase("The same again"):
                raise UserError("the two passphrases differ; nothing was written")
        if not passphrase:
            raise UserError(f"a passphrase is needed: pass --passphrase-file, set {VARIABLE}, or pass --no-passphrase")
    fingerprint = generate_key(arguments.key, passphrase)
    public = f"{arguments.key}{PUBLIC_SUFFIX}"
    lines = [
        f"Private key: {arguments.key} ({'NOT encrypted' if passphrase is None else 'encrypted'}); keep it secret.",
        f"Public key: {public}; give it to those who verify.",
        f"Fingerprint: {fingerprint}",
    ]
    return Outcome(
        "\n".join(lines),
        {
            "private_key": arguments.key,
            "public_key": public,
            "fingerprint": fingerprint,
            "encrypted": passphrase is not None,
        },
    )
