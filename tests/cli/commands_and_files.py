"""Commands run as a user runs them, and the files that they are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

N, NAMES = 600, ("age", "dose", "sodium", "weight")

DATASET = "visits 2026"


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def values(self) -> Any:
        """The one JSON object on standard output."""
        return json.loads(self.out, parse_constant=pytest.fail)


def table(seed: int = 0, n: int = N) -> pd.DataFrame:
    """Rows that depend on dose and weight."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform(-1, 1, (n, 4)), columns=NAMES)
    frame["cost"] = frame["dose"] - 2 * frame["weight"] + 0.1 * rng.standard_normal(n)
    frame["outcome"] = np.where(frame["cost"] > 0, "home", "ward")
    frame["triage"] = np.array(["green", "yellow", "red"])[np.digitize(frame["cost"], (-0.8, 0.8))]
    return frame


def fit_words(place: Path, output: Path, *more: Any, data: str = "outcome.csv", target: bool = True) -> list[Any]:
    named = ["--target", "outcome"] if target else []
    options = ["--epsilon", 1, "--row-linf", 1, "--n-nonzero", 2, "--quiet"]
    return ["fit", place / data, *named, *options, "-o", output, *more]


def files_of(ledger: Path) -> dict[Path, bytes]:
    """The content of every file of a ledger, which is a folder."""
    found = {file: file.read_bytes() for file in ledger.rglob("*") if file.is_file()}
    assert found, f"no files in {ledger}"
    return found


def one_line(ran: Ran, command: str, code: int = 2) -> str:
    """The one line that says what is wrong; no traceback, nothing on standard output."""
    assert ran.code == code
    assert ran.out == ""
    assert "Traceback" not in ran.err
    (line,) = ran.err.splitlines()
    name, _, message = line.partition(": ")
    assert name == f"tulle {command}".rstrip()
    return message


def numbers(target: str) -> tuple[Any, Any]:
    frame = table(1)
    return frame[[*NAMES]], frame[target]
