"""Runs until an audit finds a planted bug: by betting, and with a number of runs that is fixed beforehand.

Fourteen bugs are in small functions. The others are patches of tests/mutants*.py on a copy of tulle; a model is audited
in a process that imports the copy, on the pair that a pilot in that process chose, and the claim is that of sound code.

    python benchmarks/audit_planted_bugs.py             # prints the table, writes docs/pictures/audit_planted_bugs.json
    python benchmarks/audit_planted_bugs.py --only TEXT  # bugs with the text in their names; writes nothing
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.audit.attacks import strongest_verdict
from tulle.audit.judges import Judge, choose_judge
from tulle.audit.runner import Schedule, Subject, collect
from tulle.audit.sequential import bet_on_runs
from tulle.audit.targets import ModelAudit, function_runs
from tulle.methods import HardThresholding, KnowledgeTransfer, ScreenRefine
from tulle.methods.loss_functions import Softmax

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "pictures" / "audit_planted_bugs.json"

DELTA, CONFIDENCE = 1e-5, 0.95
# Fixed sizes are tried in turn; the first at which this many of FIXED_SEEDS find the bug is reported.
SIZES = (50, 100, 200, 400, 800, 1600, 3200, 6400)
FIXED_SEEDS, ENOUGH = 20, 18
PILOT_RUNS = 100


@dataclass(frozen=True)
class Measured:
    """Runs on each data set that a bug took."""

    name: str
    kind: str
    claim: str
    median: float | None
    nine_of_ten: float | None
    found: int
    seeds: int
    fixed: int | None
    most: int
    seconds: float


# --- bugs in small functions -----------------------------------------------------------------------------------------

X, ONE = np.zeros((4, 1)), np.array([1.0, 0.0, 0.0, 0.0])
Fit = Callable[[Any, Any, np.random.Generator], Any]


def gaussian(scale: float) -> Fit:
    return lambda X, y, rng: y.sum() + rng.normal(scale=scale)


def laplace(scale: float) -> Fit:
    return lambda X, y, rng: y.sum() + rng.laplace(scale=scale)


def response(epsilon: float, shown: float = 0.0) -> Fit:
    def fit(X: Any, y: Any, rng: np.random.Generator) -> float:
        truth = y[0]
        if rng.random() < shown:
            return float(10 + truth)
        return float(truth if rng.random() < expit(epsilon) else 1 - truth)

    return fit


def choice(scale: float) -> Fit:
    """One row moves each score by 1: with Gumbel noise of a scale the range is 2 / scale."""
    return lambda X, y, rng: np.argmax(np.array([0.5, -0.5]) * (1 - 2 * y.sum()) + rng.gumbel(scale=scale, size=2))


def one_noise_for_two(X: Any, y: Any, rng: np.random.Generator) -> Any:
    noise = rng.normal(scale=math.sqrt(2))
    return [y.sum() + noise, -y.sum() + noise]


def steps(count: int) -> Fit:
    return lambda X, y, rng: y.sum() + rng.normal(size=count)


def label_without_bound(X: Any, y: Any, rng: np.random.Generator) -> Any:
    return 3 * y.sum() + rng.laplace(scale=1.0)


def asked_twice(X: Any, y: Any, rng: np.random.Generator) -> Any:
    once = response(1.0)
    return [once(X, y, rng), once(X, y, rng)]


FUNCTIONS: tuple[tuple[str, Fit, dict[str, float]], ...] = (
    ("Gaussian noise, 2/3 of it", gaussian(2 / 3), {"claimed_mu": 1.0}),
    ("Gaussian noise, twice the sensitivity", gaussian(1 / 2), {"claimed_mu": 1.0}),
    ("Gaussian noise, a third of it", gaussian(1 / 3), {"claimed_mu": 1.0}),
    ("Laplace noise, 2/3 of it", laplace(2 / 3), {"claimed": 1.0}),
    ("Laplace noise, twice the sensitivity", laplace(1 / 2), {"claimed": 1.0}),
    ("randomised response with ε = 2", response(2.0), {"claimed": 1.0}),
    ("the truth is shown with probability 0.05, and δ = 0 is claimed", response(1.0, 0.05), {"claimed": 1.0}),
    ("the same with probability 0.1", response(1.0, 0.1), {"claimed": 1.0}),
    ("a choice with half of the noise", choice(1.0), {"claimed_range": 1.0}),
    ("a choice with a quarter of the noise", choice(0.5), {"claimed_range": 1.0}),
    ("four answers with the noise of one", steps(4), {"claimed_mu": 1.0}),
    ("one draw of noise for two answers", one_noise_for_two, {"claimed_mu": 1.0}),
    ("a label that is not clipped", label_without_bound, {"claimed": 1.0}),
    ("randomised response asked twice", asked_twice, {"claimed": 1.0}),
)


# --- models with a bug planted in tulle ------------------------------------------------------------------------------

BOUNDS = Bounds(row_l2=1.0, row_linf=1.0, label=1.0)
ENTRIES = Bounds(row_linf=1.0, label=1.0)
EPSILON = 3.0


def regressor(method: Any, bounds: Bounds = BOUNDS, *, n_nonzero: int = 1) -> Any:
    return SparseRegressor(EPSILON, DELTA, n_nonzero=n_nonzero, bounds=bounds, method=method, fit_intercept=False)


def classifier(method: Any) -> Any:
    return SparseClassifier(
        EPSILON, DELTA, n_nonzero=1, bounds=Bounds(row_linf=1.0), method=method, fit_intercept=False
    )


ONE_STEP: dict[str, Any] = {"n_iter": 1, "damping": 0.0}
# Nearly all of the cost in one release, so that the release with the bug is what the attack sees.
NO_SCREENING: dict[str, Any] = {"screening_share": 0.02, "start_share": 0.0, "rescale_share": 0.0}
REFINING = ScreenRefine(1, "selection", **NO_SCREENING)
MODELS: dict[str, tuple[Callable[[], Any], int]] = {
    "one Gaussian step": (lambda: regressor(HardThresholding(noise="gaussian", **ONE_STEP)), 1),
    "one Gaussian step of two features": (
        lambda: regressor(HardThresholding(noise="gaussian", **ONE_STEP), ENTRIES),
        2,
    ),
    "one Gaussian step of three classes": (
        lambda: SparseClassifier(
            EPSILON,
            DELTA,
            n_nonzero=1,
            bounds=BOUNDS,
            method=HardThresholding(noise="gaussian", **ONE_STEP),
            loss=Softmax(3),
            fit_intercept=False,
        ),
        1,
    ),
    "ten Gaussian steps": (lambda: regressor(HardThresholding(noise="gaussian", n_iter=10, damping=0.0)), 1),
    "one choice of six": (
        lambda: regressor(HardThresholding(noise="selection", selection_share=0.95, **ONE_STEP), ENTRIES),
        6,
    ),
    "two choices of six": (
        lambda: regressor(HardThresholding(noise="selection", selection_share=0.95, **ONE_STEP), ENTRIES, n_nonzero=2),
        6,
    ),
    "the values of a choice": (
        lambda: regressor(HardThresholding(noise="selection", selection_share=0.05, **ONE_STEP)),
        1,
    ),
    "refinement by its objective": (lambda: classifier(REFINING), 1),
    "refinement by moments": (
        lambda: regressor(ScreenRefine(1, "gaussian", refinement="statistics", **NO_SCREENING)),
        1,
    ),
    "the objective of a teacher": (lambda: regressor(KnowledgeTransfer("dense", perturbation="objective")), 1),
}

PATCHES: tuple[tuple[str, str], ...] = (
    ("gradient sensitivity C/n, not 2 C/n", "one Gaussian step"),
    ("clipped in l-inf, claimed in l2", "one Gaussian step of two features"),
    ("the mean gradient clipped, not each row's", "one Gaussian step"),
    ("sigma squared where sigma belongs", "one Gaussian step"),
    ("support chosen before the noise", "one Gaussian step of two features"),
    ("composition forgotten", "ten Gaussian steps"),
    ("values of the selection leave without noise", "the values of a choice"),
    ("range of a choice 1 / noise, not 2 / noise", "one choice of six"),
    ("a choice of several without noise", "two choices of six"),
    ("a third of the noise in the refinement", "refinement by its objective"),
    ("objective perturbation's gradient moved by G, not 2 G", "the objective of a teacher"),
    ("the linear term lost on the way", "the objective of a teacher"),
    ("slopes not cut in the objective", "the objective of a teacher"),
    ("rows not clipped on the chosen features", "refinement by its objective"),
    ("second moments moved by R², not sqrt(2) R²", "refinement by moments"),
    ("each class clipped apart, one record's noise", "one Gaussian step of three classes"),
)


def model_audit(model: str, claimed_mu: float | None) -> ModelAudit:
    make, n_features = MODELS[model]
    claim = {"claimed": None, "claimed_mu": claimed_mu, "claimed_range": None, "claimed_curve": None}
    return ModelAudit.of(make(), 6, n_features, None, "gaussian", **claim)


# --- measuring -------------------------------------------------------------------------------------------------------


def measure(
    subject: Subject,
    judge: Judge,
    epsilon: float,
    delta: float,
    claim: str,
    most: int,
    seeds: int,
    name: str,
    kind: str,
) -> Measured:
    begun = time.process_time()
    curve = judge.curve(epsilon, delta)
    took = [
        bet_on_runs(subject, curve, name, confidence=CONFIDENCE, most_runs=most, seed=seed).decided_after or math.inf
        for seed in range(seeds)
    ]
    shares = (float(np.quantile(took, share, method="higher")) for share in (0.5, 0.9))
    median, nine = (runs if runs < math.inf else None for runs in shares)
    largest = min(most, SIZES[-1])
    fixed = fixed_size(subject, judge, epsilon, delta, largest)
    found = sum(runs < math.inf for runs in took)
    spent = time.process_time() - begun
    return Measured(name, kind, claim, median, nine, found, seeds, fixed, largest, spent)


def fixed_size(subject: Subject, judge: Judge, epsilon: float, delta: float, largest: int) -> int | None:
    """The smallest of SIZES at which a fixed audit finds the bug; None where none up to `largest` does."""
    claimed = {"any": epsilon, "gaussian": getattr(judge, "claimed_mu", 0.0)}
    limit = claimed.get(judge.name, getattr(judge, "claimed_range", 0.0))
    for size in (size for size in SIZES if size <= largest):
        missed = 0
        for seed in range(FIXED_SEEDS):
            runs = collect(subject, Schedule(size, max(1, min(250, size // 8)), 1000 + seed), "fixed")
            bound = strongest_verdict(*runs, delta, CONFIDENCE, judge, judge.splits).bound
            missed += bound <= limit
            if missed > FIXED_SEEDS - ENOUGH:
                break
        else:
            return size
    return None


def measure_function(name: str, fit: Fit, claim: dict[str, float], seeds: int) -> Measured:
    subject, _ = function_runs(fit, (X, ONE), (X, 0 * ONE), 1)
    delta = 0.0 if "claimed" in claim else DELTA
    kinds = {"claimed": "any", "claimed_mu": "gaussian", "claimed_range": "bounded_range"}
    ((what, value),) = claim.items()
    judge = choose_judge(kinds[what], delta=delta, **{"claimed": None, "claimed_mu": None} | claim)  # type: ignore[arg-type]
    text = {"claimed": "ε", "claimed_mu": "μ", "claimed_range": "range"}[what]
    stated = f"{text} = {value:g}"
    return measure(subject, judge, claim.get("claimed", 0.0), delta, stated, SIZES[-1], seeds, name, "function")


def measure_model(name: str, model: str, claimed_mu: float, most: int, seeds: int) -> Measured:
    """In a process that imports a copy of tulle with the bug."""
    audit = model_audit(model, claimed_mu)
    subject, _, _ = audit.on_worst_pair(PILOT_RUNS, CONFIDENCE, n_jobs=1, folder=None, verbose=0, seconds=None)
    text = f"μ = {claimed_mu:.3g}"
    return measure(subject, audit.judge, audit.epsilon, DELTA, text, most, seeds, name, model)


def measure_patched(name: str, model: str, most: int, seeds: int) -> Measured:
    """Plant a bug of tests/mutants*.py (none for "") and measure a model in another process."""
    sys.path.insert(0, str(ROOT / "tests"))
    mutants = import_module("mutants")
    judge = model_audit(model, None).judge
    claimed_mu = judge.claimed_mu  # type: ignore[attr-defined]
    mutant = next((one for one in mutants.MUTANTS if one.name == name), None)
    assert mutant is not None or not name, f"no planted bug is called {name!r}"
    with tempfile.TemporaryDirectory() as folder:
        mutants.patched_copy(mutant, Path(folder))
        order = json.dumps({"name": name, "model": model, "claimed_mu": claimed_mu, "most": most, "seeds": seeds})
        ran = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--worker", order],
            env=os.environ | {"PYTHONPATH": folder},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if ran.returncode:
        raise RuntimeError(f"{name}, {model}: {ran.stderr[-2000:]}")
    return Measured(**json.loads(ran.stdout.splitlines()[-1]))


def worker(order: str) -> None:
    import tulle

    # The copy in the current folder is measured.
    assert Path(tulle.__file__).resolve().parent == (Path.cwd() / "tulle").resolve()
    print(json.dumps(asdict(measure_model(**json.loads(order)))))


# --- the table -------------------------------------------------------------------------------------------------------


def show(runs: float | None, most: int) -> str:
    return f"over {most:,}" if runs is None else f"{runs:,.0f}"


def line(row: Measured) -> str:
    where = "" if row.kind == "function" else f" ({row.kind})"
    runs = (show(value, row.most) for value in (row.median, row.nine_of_ten, row.fixed))
    return f"| {row.name}{where} | {row.claim} | {' | '.join(runs)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="bugs with this text in their names; nothing is written")
    parser.add_argument("--seeds", type=int, default=40, help="of bets on functions; half of them on models")
    parser.add_argument("--most", type=int, default=800, help="largest number of runs for models")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker)
        return
    print("| bug | claim | median | 9 of 10 | fixed size |\n| --- | --- | --- | --- | --- |", flush=True)
    rows: list[Measured] = []
    for name, fit, claim in FUNCTIONS:
        if arguments.only in name:
            rows.append(measure_function(name, fit, claim, arguments.seeds))
            note(rows, arguments.only)
    for name, model in PATCHES:
        if arguments.only in name:
            rows.append(measure_patched(name, model, arguments.most, arguments.seeds // 2))
            note(rows, arguments.only)
    if arguments.only:
        return
    sound = [measure_patched("", model, 400, arguments.seeds // 2) for model in sorted({model for _, model in PATCHES})]
    alarms = {"refuted": sum(row.found for row in sound), "audits": sum(row.seeds for row in sound), "most_runs": 400}
    write(rows, alarms, arguments.only)
    seconds = sum(row.seconds for row in (*rows, *sound))
    print(f"sound code: {alarms['refuted']} of {alarms['audits']} bets refuted; {seconds:.0f} s of processor time")


def note(rows: list[Measured], only: str) -> None:
    """Print the last row, and write what there is: the whole takes half an hour."""
    print(line(rows[-1]), flush=True)
    write(rows, None, only)


def write(rows: list[Measured], sound: dict[str, int] | None, only: str) -> None:
    if not only:
        written = {"bugs": [asdict(row) for row in rows], "sound": sound}
        RESULT.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
