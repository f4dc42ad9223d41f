"""Synthetic hospital visits to practise on, as CSV files: which patients return within a month?

    python examples/visits.py [FOLDER]

Writes visits.csv (12,000 rows in the role of the private ones), new_visits.csv (500 patients to predict for) and
practice.csv (12,000 public rows of the same shape). Every column is between 0 and 1: diagnoses are 0 or 1,
and age, days in the ward and earlier visits are divided by 100 years, 60 days and 20 visits.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

NAMES = ["age", "days_in_ward", "earlier_visits", "lives_alone", "emergency"]
NAMES += [f"diagnosis_{number:02}" for number in range(1, 41)]


def write(path: Path, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["patient", *NAMES, "readmitted"])
        for patient in range(n):
            age, days, visits = rng.beta(3, 2), rng.beta(1, 6), rng.beta(1, 4)
            flags = rng.random(42) < np.r_[0.3, 0.4, 0.02 + 0.2 / np.arange(1, 41)]
            risk = -3.2 + 2.5 * age + 3 * visits + 1.5 * flags[0] + 1.2 * flags[2] + 1.5 * flags[4] - flags[3]
            label = "yes" if rng.random() < 1 / (1 + np.exp(-2 * risk)) else "no"
            numbers = [f"{value:.3f}" for value in (age, days, visits)]
            table.writerow([f"P{patient:05}", *numbers, *flags.astype(int), label])


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, n, seed in (("practice.csv", 12_000, 1), ("visits.csv", 12_000, 2), ("new_visits.csv", 500, 3)):
        write(folder / name, n, seed)
        print(f"{folder / name}: {n:,} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
