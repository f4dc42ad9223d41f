"""Ledgers of older versions, which were one JSON file: read, checked and written as a folder of entries."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tulle.ledgers.chain import Chain, find_root, make_root, old_format
from tulle.ledgers.entries import Charge, LedgerFileError, Record, currency_from_plain
from tulle.trusted.plan import Budget

# Entries of files of this format do not hold in their delta what finite precision adds to it.
_WITHOUT_FINITE_PRECISION = "tulle ledger 1"


def convert(old: str | os.PathLike[str], new: str | os.PathLike[str]) -> tuple[Path, dict[str, int]]:
    """Write the ledgers of an old file as a folder, and rename the old file, so that it is not billed again.

    Entries keep their time, cost, currency and delta.

    Parameters
    ----------
    old : path
        A file of tulle ledger 1 or 2.
    new : path
        A folder that is not there yet.

    Returns
    -------
    folder : Path
    imprecise : dict
        For each data set, how many entries leave the effect of finite precision out of their delta.
    """
    source, target = Path(os.path.realpath(old)), Path(os.path.realpath(new))
    if not source.is_file() or not old_format(source):
        raise LedgerFileError(f"{source.name} is not a ledger of an older tulle, which was one JSON file")
    if target.exists():
        raise LedgerFileError(f"{target.name} exists already; choose the name of a new folder")
    values = _read(source)
    with tempfile.TemporaryDirectory(prefix=".converting-", dir=target.parent) as place:
        made = make_root(Path(place) / "ledger")
        imprecise = {name: _convert_account(made, name, account) for name, account in values["datasets"].items()}
        os.replace(made, target)
    shutil.move(source, source.with_name(source.name + ".converted"))
    return find_root(target), imprecise


def _convert_account(root: Path, name: str, account: dict[str, Any]) -> int:
    """Write the entries of one data set; how many have no finite precision in their delta."""
    chain = Chain.create(root, name, Budget(**account["cap"]))
    cap = chain.opening.cap
    last: Record = chain.opening
    for line in account["entries"]:
        charge = Charge(
            what=line["what"],
            analyst="",
            purpose="",
            note=line["note"],
            epsilon=float(line["epsilon"]),
            delta=float(line["delta"]),
            share=float(line["share"]),
            currency=currency_from_plain(account["currency"], cap),
            rows_per_unit=account["rows_per_unit"] or 1,
            plan=tuple(line["plan"]),
            request="",
            time=line["time"],
            version="",
            finite_precision=line["finite_precision"],
        )
        last = chain.append(lambda _, charge=charge: charge, last)  # type: ignore[misc]
    return last.totals.imprecise


def _read(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(path.read_bytes())
        said = values.pop("check")
        text = json.dumps(values, sort_keys=True, ensure_ascii=False)
        if said != hashlib.sha256(text.encode()).hexdigest():
            raise ValueError("its checksum does not match: it was edited or damaged")
        for account in values["datasets"].values():
            for line in account["entries"]:
                line.setdefault("finite_precision", values["format"] != _WITHOUT_FINITE_PRECISION)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerFileError(f"{path.name} is not a valid tulle ledger: {error}; nothing was converted") from error
    return values
