"""Working hours and income: two private regressions on a synthetic survey, under one cap.

A survey of mixed types, answered by each person in up to two waves: categories and ranges are those of the
questionnaire, not those found in the answers; the unit of privacy is a person; two fits and two scores share one
`Ledger`, which refuses a fit that would exceed its cap. The privacy report is written to build/survey.html.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from tulle import Bounds, Budget, Ledger, SparseRegressor, check_pipeline, private_score, save
from tulle.ledgers.ledger import BudgetExceededError
from tulle.reports.pages import fit_page
from tulle.reports.report import About

BUILD = Path(__file__).resolve().parent.parent / "build"
N_PEOPLE, WAVES = 20_000, 2

# The questionnaire: the boxes that can be ticked, and the ranges of numeric answers. It is public.
TICKED = {
    "sector": [
        "farming",
        "industry",
        "building",
        "trade",
        "transport",
        "hospitality",
        "care",
        "teaching",
        "office",
        "other",
    ],
    "schooling": ["none", "primary", "secondary", "vocational", "college", "university"],
    "contract": ["permanent", "fixed term", "agency", "self-employed", "none"],
    "region": ["north", "east", "south", "west", "capital", "islands"],
    "household": ["alone", "couple", "couple with children", "single parent", "shared", "other"],
    "transport": ["foot", "bicycle", "car", "bus", "train"],
}
NUMBERS = {"age": (16, 75), "children": (0, 8), "commute minutes": (0, 180), "years in job": (0, 50), "rooms": (1, 12)}


# The targets, and the ranges to which answers are clipped.
TARGETS = {"weekly hours": (10.0, 60.0), "monthly income": (500.0, 5_500.0)}


@dataclass(frozen=True, eq=False)
class Survey:
    """One row for each answered questionnaire."""

    table: Any
    targets: dict[str, npt.NDArray[np.float64]]
    person: npt.NDArray[np.intp]
    wave: npt.NDArray[np.intp]


def make_survey(rng: np.random.Generator) -> Survey:
    """Most people answer twice. A few answer a third time, unasked."""
    person = np.repeat(np.arange(N_PEOPLE), WAVES + (rng.uniform(size=N_PEOPLE) < 0.02))
    wave = np.arange(len(person)) - np.searchsorted(person, person)
    # Ticked boxes stay the same from wave to wave.
    ticked = {
        name: np.array(choices, dtype=object)[rng.integers(0, len(choices), N_PEOPLE)[person]]
        for name, choices in TICKED.items()
    }
    numbers = {name: rng.integers(low, high + 1, N_PEOPLE)[person] for name, (low, high) in NUMBERS.items()}
    noise = rng.standard_normal((2, len(person)))
    hours = 36.0 + 4.0 * noise[0] - 1.5 * numbers["children"]
    hours += 10.0 * (ticked["contract"] == "self-employed") - 10.0 * (ticked["contract"] == "agency")
    hours += 14.0 * (ticked["sector"] == "hospitality") - 8.0 * (ticked["household"] == "single parent")
    income = 1_700.0 + 300.0 * noise[1] + 30.0 * numbers["years in job"]
    income += 1_300.0 * (ticked["schooling"] == "university") - 600.0 * (ticked["contract"] == "agency")
    income += 1_000.0 * (ticked["region"] == "capital")
    table = np.column_stack([*ticked.values(), *numbers.values()]).astype(object)
    return Survey(table, {"weekly hours": hours, "monthly income": income}, person, wave)


def as_features(numbers: Any) -> ColumnTransformer:
    """Answers as features: one for each box to tick, and one for each number."""
    boxes = OneHotEncoder(categories=list(TICKED.values()), handle_unknown="ignore")
    return ColumnTransformer(
        [
            ("box", boxes, list(range(len(TICKED)))),
            ("number", numbers, list(range(len(TICKED), len(TICKED) + len(NUMBERS)))),
        ],
        verbose_feature_names_out=False,
    )


def main() -> None:
    survey = make_survey(np.random.default_rng(0))
    questions = f"{len(TICKED)} questions with boxes to tick and {len(NUMBERS)} with numbers"
    print(f"{N_PEOPLE:,} people gave {len(survey.person):,} answers to a questionnaire of {questions}.")

    print("\nScales found in the answers are a release of their own:\n")
    # No feature is above 1 in size: a box of each question, and the numbers. A third answer is not used.
    longest = float(np.sqrt(len(TICKED) + len(NUMBERS)))
    bounds = Bounds(row_linf=1.0, row_l2=longest, label=1.0, rows_per_person=WAVES)
    model = SparseRegressor(epsilon=1.0, delta=1e-7, n_nonzero=8, bounds=bounds)
    for peek in check_pipeline(Pipeline([("answers", as_features(StandardScaler())), ("model", model)])):
        print(f"  {peek}")
    ranges = MinMaxScaler(feature_range=(-1, 1)).fit(np.array(list(NUMBERS.values()), dtype=float).T)
    pipeline = Pipeline([("answers", as_features(FrozenEstimator(ranges))), ("model", model)])
    print("\nInstead: the boxes and ranges of the questionnaire, which are public.")
    print(f"Steps that peek: {len(check_pipeline(pipeline))}")

    training = survey.person < 0.75 * N_PEOPLE  # no person is in both parts
    scoring = ~training & (survey.wave < WAVES)
    fitted = {}
    with Ledger(Budget(3.0, 1e-6)) as ledger:
        for question, (low, high) in TARGETS.items():
            half = (high - low) / 2
            y = (survey.targets[question] - low) / half - 1  # the declared range becomes [-1, 1]
            fitted[question] = clone(pipeline).fit(
                survey.table[training], y[training], model__groups=survey.person[training]
            )
            print(f"\n{question}, from {low:,.0f} to {high:,.0f}: a tick, or half the range of a number, moves it by")
            names = fitted[question][0].get_feature_names_out([*TICKED, *NUMBERS])
            for name, weight in fitted[question][-1].named_weights(names):
                print(f"  {name:<26} {half * weight:+9.1f}")
            print("(Boxes of one question are read against each other: what they share may be in the intercept.)")
            score = private_score(
                fitted[question],
                survey.table[scoring],
                y[scoring],
                epsilon=0.2,
                metric="absolute_error",
                label=1.0,
                rows_per_person=WAVES,
            )
            best, worst = (1 - score.high) * half, (1 - score.low) * half
            print(
                f"Mean error on {scoring.sum():,} answers of other people: {best:,.2f} to {worst:,.2f} (ε = 0.2)",
                flush=True,
            )
        try:
            clone(pipeline).set_params(model__epsilon=2.9).fit(survey.table[training], y[training])
        except BudgetExceededError as refusal:
            print(f"\nOne more fit, at ε = 2.9: {refusal}")
    print(f"\n{ledger}")

    first = fitted["weekly hours"][-1]
    print(f"\nUnit of each promise: {first.privacy_.unit}.")
    BUILD.mkdir(exist_ok=True)
    about = About(
        title="Weekly hours",
        purpose="A table of what goes with long hours",
        made=datetime.now().isoformat(timespec="minutes"),
        data=f"a generated survey of {N_PEOPLE:,} people",
        ledger=str(ledger).splitlines()[0],
    )
    save(first, BUILD / "survey.npz", about)
    # An array has no feature names, so they are passed to the page.
    with_names = copy.copy(first)
    with_names.feature_names_in_ = names
    (BUILD / "survey.html").write_text(fit_page(with_names, about), encoding="utf-8")
    print("The whole report of the first fit is in build/survey.html, its model in build/survey.npz.")


if __name__ == "__main__":
    main()
