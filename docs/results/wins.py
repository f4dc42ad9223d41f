"""Counts in how many cells the default of tulle wins, ties and loses against each other private line of a page.

    python docs/results/wins.py state dense-regression

Scores are read from docs/results/NAME/results.csv. A cell is one data set at one ε. Trials are paired: of one trial all
lines have the same rows. A tie is a mean difference of less than 1 % of the other line's score, or of less than two
standard errors of the paired differences. Smaller scores are better; of AUC, 1 − AUC is compared.
"""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

HERE = Path(__file__).parent
DEFAULT = "tulle (auto)"

Scores = Mapping[tuple[str, str, str], Mapping[str, float]]
"""By data set, line and ε: the score of each trial."""


class Counts(NamedTuple):
    """Cells that the default wins, ties and loses."""

    wins: int
    ties: int
    losses: int


def scores(name: str, measure: str = "score") -> Scores:
    """The scores of a page; empty where it has no such measure.

    Parameters
    ----------
    name : str
        Of a folder in docs/results.
    measure : {"score", "auc", "log_loss"}
        The page's own metric, or another column of results.csv.
    """
    found: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    with (HERE / name / "results.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row.get(measure):
                value = float(row[measure])
                place = found[row["data"], row["method"], row["epsilon"]]
                place[row["trial"]] = 1 - value if measure == "auc" else value
    return found


def counted(of: Scores, line: str) -> Counts:
    """How the default compares with a line, in all cells that have both."""
    result = [0, 0, 0]
    for data, method, epsilon in of:
        ours, theirs = of.get((data, DEFAULT, epsilon)), of[data, method, epsilon]
        if method != line or not epsilon or ours is None:
            continue
        paired = [ours[trial] - theirs[trial] for trial in theirs]
        mean = fmean(paired)
        error = stdev(paired) / math.sqrt(len(paired)) if len(paired) > 1 else 0.0
        tie = abs(mean) <= max(2 * error, 0.01 * fmean(theirs.values()))
        result[1 if tie else 0 if mean < 0 else 2] += 1
    return Counts(*result)


def lines(of: Scores) -> list[str]:
    """The private lines besides the default, in the order of the file."""
    return list(dict.fromkeys(method for _, method, epsilon in of if epsilon and method != DEFAULT))


def main(names: list[str]) -> None:
    for name in names:
        for measure in ("score", "auc", "log_loss"):
            of = scores(name, measure)
            for line in lines(of):
                wins, ties, losses = counted(of, line)
                print(f"{name}, {measure}, against {line}: {wins} wins, {ties} ties, {losses} losses")


if __name__ == "__main__":
    main(sys.argv[1:])
