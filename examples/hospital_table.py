"""A raw table of hospital visits: words, dates, booleans, blanks and free text, fitted with a declared schema.

The table is synthetic: 50,000 visits of 60 columns. Readmission depends on words in the note, the date of admission,
two categories, the income and a few answers. The schema says what a data dictionary says; nothing is learnt from rows.
The table, the schema, the model and its report are written to build/hospital_table/. The same steps as commands:
docs/raw_tables.md.
"""

from __future__ import annotations

import argparse
import csv
import math
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tulle import Bounds, Schema, SparseClassifier

BUILD = Path(__file__).resolve().parent.parent / "build"

WARDS = ["surgery", "medicine", "Gynäkologie", "maternity", "intensive care", "psychiatry", "eye, ear", "other ward"]
INSURERS = ["state", "private", "mutual", "self-paying", "none"]
LANGUAGES = ["en", "de", "fr", "es", "tr", "ar"]
NOTES = (
    "patient reports mild stable routine follow up after visit normal results no change clear chest advised rest "
    "fluids medication taken daily review again next week family present discussed plan agreed comfortable walking "
    "eating sleeping well temperature pulse pressure within limits blood sample taken sent letter phone call"
)
COMMON = NOTES.split()
GOOD, BAD = ["recovered", "discharged", "healing", "improved"], ["sepsis", "readmit", "fever", "confused", "fall"]
SINCE, UNTIL = date(2018, 1, 1), date(2025, 12, 31)
ANSWERS = [f"answer_{number:02d}" for number in range(1, 46)]
HEADER = [
    *("patient", "admitted", "born", "ward", "insurer", "language", "income", "smoker", "lives alone", "emergency"),
    *("previous visits", "weight", "note", "postcode", *ANSWERS, "readmitted"),
]

SCHEMA = """\
[columns]
admitted = { date = ["2018-01-01", "2025-12-31"], unit = "year" }
born = { date = ["1925-01-01", "2007-12-31"], unit = "year", format = "%d.%m.%Y" }
ward = { categories = ["surgery", "medicine", "Gynäkologie", "maternity", "intensive care", "psychiatry", "eye, ear"], \
other = true }
insurer = { categories = ["state", "private", "mutual", "self-paying", "none"], indicator = true }
language = { categories = ["en", "de", "fr", "es", "tr", "ar"], other = true }
income = { range = [0, 150000], missing = 30000, indicator = true }
smoker = { boolean = ["yes", "no"] }
"lives alone" = "boolean"
emergency = "boolean"
"previous visits" = { number = 20 }
weight = { range = [35, 180], indicator = true }
note = { text = 12 }
"answer_*" = { range = [1, 5] }
postcode = "ignore"
patient = "ignore"  # each patient has one row; otherwise: [person] with column = "patient" and rows = 3

[target]
column = "readmitted"
classes = ["no", "yes"]
"""


def make_row(number: int, rng: np.random.Generator) -> list[str]:
    """The cells of one visit; about one in fifty of most columns is blank or misspelt."""
    ward, insurer = rng.choice(len(WARDS), p=WARD_SHARES), rng.integers(len(INSURERS))
    income = float(np.clip(rng.lognormal(10.3, 0.6), 0, 400_000))
    days = int(rng.integers((UNTIL - SINCE).days))
    answers = rng.integers(1, 6, len(ANSWERS))
    words = list(rng.choice(COMMON, rng.integers(5, 25)))
    good, bad = rng.binomial(2, 0.2), rng.binomial(2, 0.2)
    words += [*rng.choice(GOOD, good), *rng.choice(BAD, bad)]
    smoker, alone = rng.random() < 0.3, rng.random() < 0.25
    risk = 1.5 * bad - 1.4 * good + 1.2 * (ward in (4, 5)) - 1.0 * (ward == 3) + 0.9 * (insurer == 4)
    risk += 1.6 * (days / (UNTIL - SINCE).days - 0.5) - 1.4 * (min(income, 150_000) / 75_000 - 0.5) + 0.8 * alone
    risk += 0.35 * (answers[3] - 3) - 0.3 * (answers[17] - 3) - 0.1
    readmitted = rng.random() < 1 / (1 + math.exp(-1.6 * risk))
    rng.shuffle(words)
    note = ", ".join(" ".join(words[start : start + 6]) for start in range(0, len(words), 6))
    cells = [
        f"P{number:06d}",
        str(SINCE + timedelta(days=days)),
        (date(1925, 1, 1) + timedelta(days=int(rng.integers(30_000)))).strftime("%d.%m.%Y"),
        WARDS[ward],
        INSURERS[insurer],
        str(rng.choice(LANGUAGES)),
        f"{income:.2f}",
        "yes" if smoker else "no",
        str(alone),
        "1" if rng.random() < 0.2 else "0",
        str(rng.poisson(0.4)),
        f"{rng.normal(78, 15):.1f}",
        f'{note}.\nSigned "Dr. Ó Brien"' if rng.random() < 0.1 else note,
        f"{rng.integers(1000):05d}",
        *map(str, answers),
        "yes" if readmitted else "no",
    ]
    for place in np.flatnonzero(rng.random(len(cells)) < 0.02):
        if 0 < place < len(cells) - 1:
            cells[place] = str(rng.choice(["", "n/a", "unknown", "99999"]))
    return cells


WARD_SHARES = np.array([4, 5, 2, 2, 1.5, 1.5, 1, 0.5]) / 17.5


def write_table(path: Path, n_rows: int, seed: int) -> None:
    """A CSV file of visits."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(make_row(number, rng) for number in range(n_rows))


def read_columns(path: Path) -> dict[str, list[str]]:
    """The columns of a CSV file as text."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, map(list, zip(*rows))))


def compare(folder: Path, epsilon: float) -> dict[str, Any]:
    """Accuracy on new visits with privacy, and of scikit-learn without it on the same features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    schema = Schema.from_file(folder / "columns.toml")
    visits, new = read_columns(folder / "visits.csv"), read_columns(folder / "new_visits.csv")
    X, y = schema.fit_transform(visits), schema.labels(visits)
    model = SparseClassifier(epsilon, bounds=Bounds(row_l2=schema.row_l2), classes=schema.classes)
    pipeline = make_pipeline(schema, model).fit(visits, y)
    truth = np.array(new["readmitted"])
    plain = LogisticRegression(max_iter=2000).fit(X, y.astype(str))
    return {
        "features": X.shape[1],
        "accuracy": float(np.mean(pipeline.predict(new) == truth)),
        "without_privacy": float(np.mean(plain.predict(schema.transform(new)) == truth)),
        "most_frequent": float(max(np.mean(truth == "yes"), np.mean(truth == "no"))),
        "model": model,
        "schema": schema,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--only-write", action="store_true", help="write the tables and the schema, and fit nothing")
    given = parser.parse_args()
    folder = BUILD / "hospital_table"
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "visits.csv", given.rows, seed=0)
    write_table(folder / "new_visits.csv", max(given.rows // 5, 100), seed=1)
    (folder / "columns.toml").write_text(SCHEMA, encoding="utf-8")
    print(f"{folder}: {given.rows:,} visits of {len(HEADER)} columns, a schema of {len(SCHEMA.splitlines())} lines")
    if given.only_write:
        return
    found = compare(folder, given.epsilon)
    print(f"accuracy at epsilon = {given.epsilon:g}: {found['accuracy']:.3f} ({found['features']:,} features)")
    print(f"without privacy, scikit-learn on the same features: {found['without_privacy']:.3f}")
    print(f"always the more frequent answer: {found['most_frequent']:.3f}")
    names = found["schema"].get_feature_names_out()
    for name, weight in found["model"].named_weights(names)[:12]:
        print(f"  {weight:+.2f}  {name}")


if __name__ == "__main__":
    main()
