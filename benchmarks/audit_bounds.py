"""How close audits come to the claims: each method and case on the pair that is worst for it, at four epsilons.

    python benchmarks/audit_bounds.py bounds        # audited bounds
    python benchmarks/audit_bounds.py sound         # how often 200 sound audits are refuted, for each judge
    python benchmarks/audit_bounds.py published     # noise of papers, before and after

Each writes one line of JSON for each cell to docs/pictures/audit_bounds.jsonl, with its runs and the CPU seconds that
it took, and goes on where it stopped. One process; about half an hour for all. A cell is made once, with a seed of its
own, and not again.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tulle import Bounds, PrivatePipeline, SparseClassifier, SparseRegressor
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import (
    AuditResult,
    Pair,
    audit_channel,
    audit_function,
    audit_model,
    audit_sequentially,
    worst_case_pairs,
)
from tulle.audit.attacks import counted_verdict, strongest_verdict
from tulle.audit.claimed_curves import GaussianClaim
from tulle.audit.judges import ANY_LAW, GaussianCurve, WholeCurve
from tulle.audit.runner import Schedule, collect
from tulle.audit.targets import _ModelRuns
from tulle.federated import Terms, linear_terms, simulate
from tulle.local.user_side.ball import PrivUnit
from tulle.local.user_side.label_randomisers import (
    GaussianLabel,
    Hybrid,
    LaplaceLabel,
    Piecewise,
    RandomisedResponse,
    TwoPoint,
)
from tulle.methods import (
    CoordinateDescent,
    FrankWolfe,
    HardThresholding,
    KnowledgeTransfer,
    ScreenRefine,
    StochasticHardThresholding,
    TwoStage,
)
from tulle.methods.loss_functions import Squared, resolve_loss
from tulle.preprocessing import PrivateScaler

RESULTS = Path(__file__).parents[1] / "docs" / "pictures" / "audit_bounds.jsonl"
DELTA = 1e-5
# Runs on each data set: a smaller claim needs more.
RUNS = {4.0: 1_500, 1.0: 5_000, 2.0: 3_000, 0.5: 12_000}

HELD = "a row at the bound with either label, others hold its weight"
LIFTED = "a row that raises one score and lowers all others, others hold weights"
OPPOSITE = "opposite labels on a row at the bound"


@dataclass(frozen=True)
class Case:
    """A model for each epsilon, and the pair that is worst for it."""

    model: Callable[[float], Any]
    pair: str
    n_rows: int = 6
    n_features: int = 1
    judge: str = "gaussian"
    part: float = 1.0  # of RUNS, for fits that take long


def classifier(method: Any, **settings: Any) -> Callable[[float], Any]:
    given: dict[str, Any] = {"n_nonzero": 1, "bounds": Bounds(row_linf=1.0), "fit_intercept": False}
    given |= settings
    return lambda epsilon: SparseClassifier(epsilon, DELTA, method=method, **given)


def regressor(method: Any, **settings: Any) -> Callable[[float], Any]:
    given: dict[str, Any] = {"n_nonzero": 1, "bounds": Bounds(row_linf=1.0, label=1.0), "fit_intercept": False}
    given |= settings
    return lambda epsilon: SparseRegressor(epsilon, DELTA, method=method, **given)


ONE_STEP = HardThresholding(noise="gaussian", n_iter=1, damping=0.0)
ONE_CHOICE = HardThresholding(noise="selection", n_iter=1, damping=0.0)

CASES: dict[str, Case] = {
    "the default: fit, keep, fit again": Case(
        lambda epsilon: SparseClassifier(epsilon, DELTA, bounds=Bounds(row_l2=1.0)), HELD, 200, part=0.5
    ),
    'HardThresholding("gaussian")': Case(regressor(HardThresholding(noise="gaussian")), OPPOSITE),
    'HardThresholding("selection"), one step': Case(classifier(ONE_CHOICE), LIFTED, 40, 2),
    'ScreenRefine("gaussian")': Case(classifier(ScreenRefine(noise="gaussian")), HELD, 1000, part=0.5),
    'ScreenRefine("selection")': Case(classifier(ScreenRefine(noise="selection")), LIFTED, 40, 2, part=0.5),
    'ScreenRefine, refinement="statistics"': Case(
        regressor(ScreenRefine(noise="gaussian", refinement="statistics")), OPPOSITE, part=0.5
    ),
    'ScreenRefine, refinement="steps"': Case(regressor(ScreenRefine(refinement="steps")), OPPOSITE, part=0.5),
    "TwoStage": Case(classifier(TwoStage()), LIFTED, 40, 2),
    "FrankWolfe, one choice": Case(
        regressor(FrankWolfe(1.0, n_iter=1, noise="selection")), OPPOSITE, judge="bounded_range"
    ),
    'FrankWolfe("gaussian"), one step': Case(regressor(FrankWolfe(1.0, n_iter=1, noise="gaussian")), OPPOSITE),
    "CoordinateDescent, one gradient": Case(regressor(CoordinateDescent(1)), OPPOSITE),
    'CoordinateDescent("selection"), one step': Case(regressor(CoordinateDescent(1, noise="selection")), LIFTED, 40, 2),
    'KnowledgeTransfer("dense")': Case(classifier(KnowledgeTransfer("dense")), HELD, 40),
    'KnowledgeTransfer("dense", perturbation="output")': Case(
        regressor(KnowledgeTransfer("dense", perturbation="output")), OPPOSITE
    ),
    'KnowledgeTransfer("sparse")': Case(classifier(KnowledgeTransfer("sparse")), LIFTED, 40, 2),
    "StochasticHardThresholding, Poisson batches": Case(
        regressor(StochasticHardThresholding(batch=2, passes=0.6, sampling="poisson", step=1.0)), OPPOSITE, 3, part=0.25
    ),
    "the same without replacement": Case(
        regressor(StochasticHardThresholding(batch=2, passes=0.6, sampling="without_replacement", step=1.0)),
        OPPOSITE,
        3,
        part=0.25,
    ),
    "the same, a shuffled epoch": Case(
        regressor(StochasticHardThresholding(batch=2, passes=1.0, sampling="shuffled", step=1.0)),
        OPPOSITE,
        3,
        part=0.25,
    ),
    "intervals, inference=True": Case(regressor("auto", inference=True, n_nonzero=None), OPPOSITE),
    "three rows of a person": Case(
        regressor(ONE_STEP, bounds=Bounds(row_linf=1.0, label=1.0, rows_per_person=3)), OPPOSITE, 8
    ),
    "bounds that are estimated": Case(
        regressor(ONE_STEP, bounds=None), "a row far beyond the bounds, or empty", 6, 1, "any", 0.25
    ),
    "screening 1 of 20 features, 95 % of the cost": Case(
        classifier(ScreenRefine(1, "selection", screening_share=0.95, start_share=0.0, rescale_share=0.0)),
        LIFTED,
        40,
        20,
        "any",
        0.5,
    ),
}


def pair_of(case: Case, model: Any) -> Pair:
    """The ready pair of that name, as `audit_model` makes it."""
    loss = resolve_loss(model.loss, "classification" if hasattr(model, "decision_function") else "regression")
    bounds = model.bounds or Bounds()
    made = worst_case_pairs(
        loss, bounds.known(case.n_features), case.n_rows, case.n_features, rows_per_person=bounds.rows_per_person
    )
    (pair,) = [one for one in made if one.name == case.pair]
    return pair


def seed_of(cell: list[Any]) -> int:
    """Another one for each cell: luck is not to repeat itself."""
    return zlib.crc32(json.dumps(cell).encode())


def audit_case(case: Case, epsilon: float, seed: int) -> AuditResult:
    model = case.model(epsilon)
    return audit_model(
        model,
        pairs=[pair_of(case, model)],
        judge=case.judge,
        runs=int(case.part * RUNS[epsilon]),
        attack="chosen" if case.judge == "any" else "likelihood_ratio",
        seed=seed,
    )


# --- what audit_model does not take ----------------------------------------------------------------------------------


def one_label() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Rows of which half are 1 and half -1; one label is 1 or -1, all others are 0."""
    X, y = np.ones((40, 1)), np.zeros(40)
    X[1::2] = -1.0
    first, second = y.copy(), y.copy()
    first[0], second[0] = 1.0, -1.0
    return (X, first), (X, second)


def scaled_step(X: Any, y: Any, rng: np.random.Generator, epsilon: float) -> Any:
    """A scale that is learnt with noise, then one noisy step."""
    model = SparseRegressor(n_nonzero=1, method=ONE_STEP, bounds=Bounds(label=1.0), fit_intercept=False)
    steps = [("scale", PrivateScaler()), ("model", model)]
    both = PrivatePipeline(steps, epsilon=epsilon, delta=DELTA, random_state=int(rng.integers(2**62))).fit(X, y)
    scaler = both.steps_[0][1]
    return np.r_[both.model_.coef_, scaler.low_, scaler.high_]


def answers_to_server(X: Any, y: Any, rng: np.random.Generator, epsilon: float) -> Any:
    """What a curious server makes of the answer of one client in one round; it knows everything but the noise."""
    model = linear_terms(1, step=1.0, fit_intercept=False, loss="squared", row_linf=1.0, label=1.0)
    terms = Terms("audit", model, 1, 1, 1, 1.0, 0.25, None, epsilon, DELTA)
    return simulate(terms, {"client": (X, y)}, seed=int(rng.integers(2**62))).weights.to_dense()


def audit_whole(fit: Callable[..., Any], epsilon: float, seed: int, part: float) -> AuditResult:
    """By the public interface. All noise is Gaussian, and the claim of all of it is a mu."""
    return audit_function(
        partial(fit, epsilon=epsilon),
        *one_label(),
        delta=DELTA,
        judge="gaussian",
        claimed_mu=gaussian_mu(epsilon, DELTA),
        runs=int(part * RUNS[epsilon]),
        seed=seed,
    )


CHANNELS: dict[str, Callable[[float], Any]] = {
    "PrivUnit, 20 dimensions": lambda epsilon: PrivUnit.best(epsilon, 1.0, 20),
    "TwoPoint": lambda epsilon: TwoPoint(epsilon, 1.0),
    "Piecewise": lambda epsilon: Piecewise(epsilon, 1.0),
    "Hybrid": lambda epsilon: Hybrid(epsilon, 1.0),
    "LaplaceLabel": lambda epsilon: LaplaceLabel(epsilon, 1.0),
    "GaussianLabel": lambda epsilon: GaussianLabel(epsilon, 1.0, DELTA),
    "RandomisedResponse, 4 classes": lambda epsilon: RandomisedResponse(epsilon, 1.0, 4),
}


def audit_local(channel: Any, seed: int) -> AuditResult:
    if isinstance(channel, GaussianLabel):
        mu = gaussian_mu(channel.epsilon, channel.delta)
        return audit_channel(channel, judge="gaussian", claimed_mu=mu, runs=200_000, seed=seed)
    return audit_channel(channel, runs=200_000, seed=seed)


Cells = Iterator[tuple[list[Any], Callable[[int], dict[str, Any]]]]


def bounds() -> Cells:
    for epsilon in RUNS:
        for name, channel in CHANNELS.items():
            yield [name, epsilon], partial(_bound, partial(audit_local, channel(epsilon)), epsilon)
        for name, case in CASES.items():
            yield [name, epsilon], partial(_bound, partial(audit_case, case, epsilon), epsilon)
        for name, fit, part in (
            ("PrivatePipeline with PrivateScaler", scaled_step, 0.25),
            ("a client's answer to a curious server", answers_to_server, 0.125),
        ):
            yield [name, epsilon], partial(_bound, partial(audit_whole, fit, epsilon, part=part), epsilon)


def _bound(audit: Callable[..., AuditResult], epsilon: float, seed: int) -> dict[str, Any]:
    """The kept figures of an audit. The ratio is of two epsilons: the one shown, and the tested claim."""
    result = audit(seed=seed)
    kept = (
        "judge",
        "epsilon",
        "claimed",
        "mu",
        "claimed_mu",
        "range",
        "claimed_range",
        "epsilon_any",
        "delta",
        "attack",
    )
    figures = {name: getattr(result, name) for name in kept}
    claimed = float(result.claimed or epsilon)
    return {name: value for name, value in figures.items() if value is not None} | {
        "ratio": result.epsilon / claimed,
        "refuted": result.refuted,
        "counted": result.runs,
        "pair": result.pair,
    }


# --- sound audits ----------------------------------------------------------------------------------------------------

AUDITS, SOUND_RUNS, SOUND_FITS = 200, 400, 100


def normal_number(X: Any, y: Any, rng: np.random.Generator) -> Any:
    """Exactly 1-GDP for labels that are 0 or 1."""
    return y.sum() + rng.normal()


def laplace_number(X: Any, y: Any, rng: np.random.Generator) -> Any:
    """Exactly 1-DP."""
    return y.sum() + rng.laplace()


def logistic_number(X: Any, y: Any, rng: np.random.Generator) -> Any:
    """A range of exactly 1."""
    return y.sum() + rng.logistic()


def sound() -> Cells:
    X = np.zeros((4, 1))
    pair = (X, np.array([1.0, 0.0, 0.0, 0.0])), (X, np.zeros(4))
    functions: dict[str, tuple[Any, dict[str, Any]]] = {
        "any": (laplace_number, {"delta": 0.0, "claimed": 1.0}),
        "gaussian": (normal_number, {"delta": DELTA, "claimed_mu": 1.0}),
        "bounded_range": (logistic_number, {"delta": 0.0, "claimed_range": 1.0}),
        "curve": (normal_number, {"delta": DELTA, "claimed_mu": 1.0}),
    }
    for judge, (fit, claim) in functions.items():
        audit = partial(audit_function, fit, *pair, judge=judge, runs=SOUND_RUNS, **claim)
        yield ["exact noise", judge], partial(_count_refuted, audit)
    for judge in ("any", "gaussian", "curve", "likelihood_ratio"):
        yield ["HardThresholding, one step", judge], partial(_count_refuted_parts, judge)


def _count_refuted_parts(name: str, seed: int) -> dict[str, Any]:
    """Fits on the worst pair, at the boundary of the mu that is claimed, in as many parts as there are audits."""
    case = Case(regressor(ONE_STEP), OPPOSITE)
    model = case.model(4.0)
    mu = gaussian_mu(4.0, DELTA)
    subject = _ModelRuns(model._request(Squared(), case.n_rows), pair_of(case, model))
    first, second = collect(subject, Schedule(AUDITS * SOUND_FITS, 1000, seed), "sound fits")
    judges = {"any": (ANY_LAW, 4.0), "gaussian": (GaussianCurve(mu), mu), "curve": (WholeCurve(GaussianClaim(mu)), 0.0)}
    refuted = 0
    for number in range(AUDITS):
        part = slice(number * SOUND_FITS, (number + 1) * SOUND_FITS)
        if name == "likelihood_ratio":
            judge = GaussianCurve(mu, guesses=True)
            verdict = counted_verdict(name, first[part, 0], second[part, 0], 0.0, DELTA, 0.95, judge)
            refuted += verdict.bound > mu
        else:
            chosen, most = judges[name]
            refuted += strongest_verdict(first[part], second[part], DELTA, 0.95, chosen, chosen.splits).bound > most
    return {"audits": AUDITS, "refuted": int(refuted), "allowed": AUDITS // 20, "runs": SOUND_FITS}


def _count_refuted(audit: Callable[..., AuditResult], seed: int) -> dict[str, Any]:
    refuted = sum(audit(seed=seed + number).refuted for number in range(AUDITS))
    return {"audits": AUDITS, "refuted": refuted, "allowed": AUDITS // 20, "runs": audit.keywords["runs"]}  # type: ignore[attr-defined]


# --- noise of papers -------------------------------------------------------------------------------------------------


def dp_sgd_ht(X: Any, y: Any, rng: np.random.Generator, claimed: float) -> Any:
    """One step on a batch of one row, with the noise of theorem 4.1."""
    method = StochasticHardThresholding(
        batch=1, passes=1 / len(y), sampling="without_replacement", step=1.0, average=0.0
    )
    model = SparseRegressor(
        claimed,
        DELTA,
        n_nonzero=1,
        method=method,
        bounds=Bounds(row_linf=1.0, label=1.0),
        calibration="published",
        fit_intercept=False,
        random_state=int(rng.integers(2**62)),
    )
    return model.fit(X, y).coef_


def one_row_counts(n_rows: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """All rows are empty but one, whose label is 1 or -1."""
    X, y = np.zeros((n_rows, 1)), np.zeros(n_rows)
    X[0], first, second = 1.0, y.copy(), y.copy()
    first[0], second[0] = 1.0, -1.0
    return (X, first), (X, second)


def published() -> Cells:
    sys.path.append(str(Path(__file__).parents[1] / "examples"))
    import audit_dpsl_kt  # type: ignore[import-not-found, unused-ignore]

    small, smaller = (partial(dp_sgd_ht, claimed=claimed) for claimed in (2.0, 1.0))
    targets: dict[str, tuple[Any, Any, float, int]] = {
        "DPSL-KT, theorem 4.3": (audit_dpsl_kt.published, audit_dpsl_kt.neighbours(), 1.0, 500),
        "DP-SGD-HT, theorem 4.1, one row of 100": (small, one_row_counts(100), 2.0, 12_000),
        "DP-SGD-HT, theorem 4.1, one row of 200": (smaller, one_row_counts(200), 1.0, 8_000),
    }
    for name, (fit, worlds, claimed, runs) in targets.items():
        yield [name, "fixed"], partial(_fixed, fit, worlds, claimed, runs)
        yield [name, "betting"], partial(_betting, fit, worlds, claimed, runs)


def _fixed(fit: Any, worlds: Any, claimed: float, runs: int, seed: int) -> dict[str, Any]:
    result = audit_function(fit, *worlds, delta=DELTA, claimed=claimed, runs=runs, seed=seed)
    figures = {"epsilon": result.epsilon, "most": result.best_possible, "refuted": result.refuted}
    return {"claimed": claimed, "runs": runs} | figures


def _betting(fit: Any, worlds: Any, claimed: float, most_runs: int, seed: int) -> dict[str, Any]:
    result = audit_sequentially(fit, *worlds, claimed=claimed, delta=DELTA, most_runs=most_runs, seed=seed)
    figures = {"decided_after": result.decided_after, "capital": result.capital, "refuted": result.refuted}
    return {"claimed": claimed, "runs": result.runs} | figures


# --- files -----------------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[], Cells]] = {"bounds": bounds, "sound": sound, "published": published}


def main() -> None:
    part = sys.argv[1]
    RESULTS.touch()
    done = {json.dumps(json.loads(line)["cell"]) for line in RESULTS.read_text(encoding="utf-8").splitlines()}
    for cell, measure in PARTS[part]():
        if json.dumps(cell) in done:
            continue
        seed, start = seed_of(cell), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tiny data sets with any delta are what audits are made on
            figures = measure(seed)
        line: dict[str, Any] = {"part": part, "cell": cell} | figures | {"seed": seed}
        line["cpu_seconds"] = round(time.process_time() - start, 1)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
