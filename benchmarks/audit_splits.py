"""One part of the runs or several, and stated power against real audits: exact noise, drawn without any fit.

    python benchmarks/audit_splits.py

Prints the tables of docs/audit.md and writes docs/pictures/audit_splits.json: one process, about three minutes. All
attacks, thresholds and ways to count are those of an audit.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import expected_power
from tulle.audit.attacks import strongest_verdict
from tulle.audit.claimed_curves import GaussianClaim, Profile, RangeClaim
from tulle.audit.judges import ANY_LAW, BoundedRange, GaussianCurve, Judge, WholeCurve
from tulle.trusted.gaussian import gaussian_epsilon

RESULT = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "audit_splits.json"
DELTA, CONFIDENCE = 1e-5, 0.95

Draw = Callable[[np.random.Generator, int, int], Any]


def gaussian(mu: float, numbers: int = 1) -> Draw:
    """`numbers` released with noise of their own, that together have a mu."""
    shift = mu / np.sqrt(numbers)
    return lambda rng, world, runs: rng.normal(shift * (1 - world), 1.0, (runs, numbers))


def response(epsilon: float) -> Draw:
    return lambda rng, world, runs: (rng.random((runs, 1)) < expit(epsilon * (1 - 2 * world))).astype(float)


def laplace(scale: float) -> Draw:
    return lambda rng, world, runs: rng.laplace(1.0 - world, scale, (runs, 1))


def logistic(span: float) -> Draw:
    return lambda rng, world, runs: rng.logistic(span * (1 - world), 1.0, (runs, 1))


@dataclass(frozen=True)
class Case:
    """A release, the judge, and the bound above which the claim is refuted."""

    words: str
    draw: Draw
    judge: Judge
    limit: float
    delta: float = DELTA
    runs: int = 2_000
    audits: int = 100
    splits: tuple[int, ...] = (1, 2)


def gdp(claimed: float, true: float, numbers: int, runs: int, audits: int) -> Case:
    words = f"{claimed:g}, {true:g}, {numbers}"
    return Case(words, gaussian(true, numbers), GaussianCurve(claimed), claimed, DELTA, runs, audits, (1, 2, 3))


FIRST = (
    gdp(0.268, 0.402, 1, 2_000, 100),
    gdp(1.0, 1.25, 1, 2_000, 100),
    gdp(1.0, 1.25, 20, 2_000, 100),
    gdp(0.268, 0.335, 1, 20_000, 30),
    gdp(1.0, 1.08, 1, 20_000, 30),
    gdp(1.0, 1.08, 20, 20_000, 30),
    Case("none, 1, 1", gaussian(1.0), ANY_LAW, np.inf, DELTA, 2_000, 100, (1, 2, 3)),
    Case("none, 1, 1", gaussian(1.0), ANY_LAW, np.inf, DELTA, 20_000, 30, (1, 2, 3)),
)
ONE = GaussianCurve(1.0)
OTHERS = (
    Case("randomised response of ε = 1.15, ε = 1", response(1.15), ANY_LAW, 1.0, 0.0),
    Case("randomised response of ε = 1.3, ε = 1", response(1.3), ANY_LAW, 1.0, 0.0),
    Case("Laplace noise, 1.4 times too small, ε = 1", laplace(1 / 1.4), ANY_LAW, 1.0, 0.0),
    Case(
        "Gaussian noise, μ = 1.5, the ε of μ = 1 at δ = 0.01",
        gaussian(1.5),
        ANY_LAW,
        gaussian_epsilon(1.0, 0.01),
        0.01,
    ),
    Case("logistic noise of range 1.3, range 1", logistic(1.3), BoundedRange(1.0), 1.0, 0.0),
    Case("the same of range 1.4", logistic(1.4), BoundedRange(1.0), 1.0, 0.0),
    Case("Gaussian noise, μ = 1.25, μ = 1", gaussian(1.25), ONE, 1.0),
    Case("Gaussian noise, μ = 1.25, μ = 1", gaussian(1.25), WholeCurve(GaussianClaim(1.0)), 0.0),
    Case("logistic noise of range 1.4, range 1", logistic(1.4), WholeCurve(RangeClaim(1.0)), 0.0, 0.0),
    Case("randomised response of ε = 1.15, (1, 0)", response(1.15), WholeCurve(Profile(((1.0, 0.0),))), 0.0, 0.0),
)


def stated_cases() -> list[Case]:
    """Violations that are just large enough for a stated power of 90 %."""
    cases = []
    for claimed, runs in ((0.268, 2_000), (1.0, 1_000), (1.0, 10_000)):
        stated = expected_power(runs, delta=DELTA, judge="gaussian", claimed_mu=claimed)
        assert stated.gaussian is not None
        words = f"μ = {claimed:g}, Gaussian noise"
        mu = gaussian_mu(stated.gaussian, DELTA)
        cases.append(Case(words, gaussian(mu), GaussianCurve(claimed), claimed, DELTA, runs, 100, (2,)))
    choice = expected_power(1_000, delta=0.0, judge="bounded_range", claimed_range=1.0).choice
    easiest = expected_power(2_000, delta=0.0, claimed=1.0).easiest
    assert choice is not None
    assert easiest is not None
    cases.append(
        Case("range = 1, a choice", response(choice / 2), BoundedRange(1.0), 1.0, 0.0, 1_000, 100, (2,)),
    )
    cases.append(Case("ε = 1, randomised response", response(easiest), ANY_LAW, 1.0, 0.0, 2_000, 100, (1,)))
    return cases


def measure(part: str, case: Case) -> dict[str, Any]:
    begun = time.process_time()
    seed = zlib.crc32(f"{part}, {case.judge.name}, {case.words}, {case.runs}".encode())
    bounds: dict[int, list[float]] = {splits: [] for splits in case.splits}
    for number in range(case.audits):
        rng = np.random.default_rng((seed, number))
        first, second = (case.draw(rng, world, case.runs) for world in (0, 1))
        for splits, found in bounds.items():  # the same runs, split in several ways
            verdict = strongest_verdict(first, second, case.delta, CONFIDENCE, case.judge, splits)
            found.append(max(verdict.bound, 0.0))
    return {
        "part": part,
        "judge": case.judge.name,
        "words": case.words,
        "runs": case.runs,
        "audits": case.audits,
        "splits": list(case.splits),
        "bounds": [float(np.mean(found)) for found in bounds.values()],
        "powers": [float(np.mean(np.array(found) > case.limit)) for found in bounds.values()],
        "cpu_seconds": round(time.process_time() - begun, 1),
    }


def line(row: dict[str, Any]) -> str:
    """The row of a table of docs/audit.md."""
    powers = " / ".join(f"{power:.2f}" for power in row["powers"])
    if row["part"] == "first":
        bounds = " / ".join(f"{bound:.3f}" for bound in row["bounds"])
        shown = "" if row["words"].startswith("none") else powers
        return f'| `"{row["judge"]}"` | {row["runs"]:,} | {row["words"]} | {bounds} | {shown} |'.replace("|  |", "| |")
    if row["part"] == "stated":
        return f'| `"{row["judge"]}"` | {row["words"]} | {row["runs"]:,} | {powers} |'
    return f'| `"{row["judge"]}"` | {row["words"]} | {powers} |'


def main() -> None:
    rows = []
    parts = {"first": FIRST, "others": OTHERS, "stated": tuple(stated_cases())}
    for part, cases in parts.items():
        for case in cases:
            rows.append(measure(part, case))
            print(line(rows[-1]), rows[-1]["cpu_seconds"], flush=True)
            RESULT.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
