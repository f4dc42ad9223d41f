"""Accounting from public values only: no rows are read.

  tulle account cost --delta 1e-5 gaussian:8x10 laplace:20        # the total cost of these releases
  tulle account noise --epsilon 1 --delta 1e-5 gaussian:1x50      # the noise that fifty answers need
  tulle account noise --rho 0.1 --delta 1e-5 gaussian:1x50        # the same within a rho (zCDP)
  tulle account plan --rows 20000 --features 47236 --epsilon 1 --row-l2 1 --task classification
  tulle account published dp-ight --epsilon 4 --delta 1e-5        # the epsilon that a paper's noise proves

A release is MECHANISM:NOISE, with xCOUNT if it happens several times. NOISE is the noise scale divided by the largest
change of the exact answer when one row is replaced. Mechanisms: gaussian, laplace, topK (K noisy maxima by Gumbel
noise, such as top1 or top50), and poisson or fixed (Gaussian noise on random batches, as poisson:NOISE:RATE, RATE the
share of the rows in a batch).
"""

from __future__ import annotations

import argparse
import math
import re
from typing import TYPE_CHECKING, Any

from tulle.cli.data import add_model_arguments, estimator_class, model_settings
from tulle.cli.outcome import Outcome, UserError

if TYPE_CHECKING:
    from tulle.trusted.plan import Budget, Plan, Release

# Each paper's method with the settings that run its printed noise, and the task that its theorem is for.
PAPERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "dp-ight": ("hard_thresholding", "DP-IGHT (Wang and Gu 2019), remark 5.3", {"noise": "gaussian"}, "classification"),
    "dp-ight-corollary": (
        "hard_thresholding",
        "DP-IGHT (Wang and Gu 2019), corollary 5.8",
        {"noise": "gaussian", "published_rule": "corollary_5.8"},
        "classification",
    ),
    "dp-iht": (
        "hard_thresholding",
        "DP-IHT (Wang and Xu 2019), algorithm 3 with constant 1",
        {"noise": "gaussian", "published_rule": "ldp"},
        "classification",
    ),
    "dp-sgd-ht": (
        "stochastic_hard_thresholding",
        "DP-SGD-HT (Liang et al.), theorem 4.1",
        {"variant": "sgd"},
        "classification",
    ),
    "dp-scsg-ht": (
        "stochastic_hard_thresholding",
        "DP-SCSG-HT (Liang et al.), theorem 5.1",
        {"variant": "scsg"},
        "classification",
    ),
    "frank-wolfe": (
        "frank_wolfe",
        "private Frank-Wolfe LASSO (Talwar, Thakurta and Zhang 2015)",
        {"noise": "selection", "radius": 1.0},
        "regression",
    ),
    "two-stage": ("two_stage", "two stage (Kifer, Smith and Thakurta 2012)", {}, "classification"),
    "dpsl-kt": ("knowledge_transfer", "DPSL-KT (Wang and Gu 2020)", {"variant": "published"}, "regression"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="account_command", metavar="cost|noise|plan|published", required=True)
    cost = commands.add_parser("cost", help="the epsilon of a list of releases")
    cost.add_argument("releases", nargs="+", metavar="RELEASE", help="such as gaussian:8x10")
    cost.add_argument("--delta", required=True, type=float, metavar="D", help="of the guarantee, in [0, 1)")
    cost.set_defaults(run=_cost)
    noise = commands.add_parser("noise", help="the smallest noise that meets a budget")
    noise.add_argument("releases", nargs="+", metavar="RELEASE", help="only the ratios of their noises matter")
    _add_budget(noise, "the privacy loss allowed")
    noise.add_argument("--delta", required=True, type=float, metavar="D", help="of the guarantee, in [0, 1)")
    noise.set_defaults(run=_noise)
    plan = commands.add_parser("plan", help="the releases of a fit and their noise")
    _add_shape(plan)
    _add_budget(plan, "the privacy loss allowed")
    plan.add_argument("--delta", type=float, metavar="D", help="default: min(1e-5, 1 / (10 rows))")
    plan.add_argument("--method", default="auto", metavar="NAME", help="default auto")
    plan.add_argument(
        "--calibration", choices=("rigorous", "published"), default="rigorous", help="published: the paper's noise"
    )
    add_model_arguments(plan)
    plan.set_defaults(run=_plan)
    published = commands.add_parser("published", help="the epsilon that the printed noise of a paper proves")
    published.add_argument("paper", choices=sorted(PAPERS), help="the paper with the printed noise")
    _add_budget(published, "the epsilon that the paper claims")
    published.add_argument("--delta", required=True, type=float, metavar="D", help="of the guarantee, in [0, 1)")
    _add_shape(published, rows=20_242, features=47_236)
    published.add_argument("--n-nonzero", type=int, default=500, metavar="S", help="weights kept (default 500)")
    published.add_argument("--steps", type=int, metavar="T", help="iterations, if the method has them")
    published.add_argument("--passes", type=float, metavar="P", help="passes over the rows: dp-sgd-ht, dp-scsg-ht")
    published.add_argument("--batch", type=int, metavar="B", help="rows in a batch: dp-sgd-ht, dp-scsg-ht")
    published.set_defaults(run=_published)


def _add_budget(parser: argparse.ArgumentParser, words: str) -> None:
    measure = parser.add_mutually_exclusive_group(required=True)
    measure.add_argument("--epsilon", type=float, metavar="E", help=words)
    measure.add_argument("--rho", type=float, metavar="R", help="the same in zero-concentrated differential privacy")


def _measure(arguments: argparse.Namespace) -> dict[str, float]:
    """The epsilon or the rho of the command line, as estimators and budgets take it."""
    return {"epsilon": arguments.epsilon} if arguments.rho is None else {"rho": arguments.rho}


def _add_shape(parser: argparse.ArgumentParser, rows: int | None = None, features: int | None = None) -> None:
    for name, metavar, default in (("--rows", "N", rows), ("--features", "D", features)):
        words = f"number of {name[2:]}" + ("" if default is None else f" (default {default:,})")
        parser.add_argument(name, type=int, required=default is None, default=default, metavar=metavar, help=words)


def run(arguments: argparse.Namespace) -> Outcome:
    raise UserError("choose a command: cost, noise, plan or published")  # argparse has said so before


# --- lists of releases -----------------------------------------------------------------------------------------------

_RELEASE = re.compile(r"(?P<name>[a-z]+)(?P<k>\d*):(?P<noise>[^:x]+)(?::(?P<rate>[^:x]+))?(?:x(?P<count>\d+))?")


def read_release(text: str, number: int) -> Release:
    """A release as it is written on the command line."""
    from tulle.trusted.events import NoisePerSensitivity
    from tulle.trusted.mechanisms import Gaussian, Laplace, SampledGaussian, TopK
    from tulle.trusted.plan import Release
    from tulle.trusted.sampling import Sampling

    found = _RELEASE.fullmatch(text)
    if found is None:
        raise UserError(
            f"{text!r} is not a release; write for example gaussian:8x10, laplace:20, top50:9, poisson:2:0.01x300"
        )
    name, k = found["name"], found["k"]
    try:
        noise = NoisePerSensitivity(float(found["noise"]))
        rate = None if found["rate"] is None else float(found["rate"])
    except ValueError as error:
        raise UserError(f"{text!r}: {error}") from None
    count = int(found["count"] or 1)
    if not 1e-9 <= noise.value <= 1e9 or not 1 <= count <= 10**9:
        raise UserError(f"{text!r}: the noise must lie in [1e-9, 1e9], and a count in [1, 1e9]")
    sampled = name in ("poisson", "fixed")
    if sampled != (rate is not None) or (rate is not None and not 0 < rate <= 1):
        raise UserError(f"{text!r}: only poisson and fixed have a RATE, in (0, 1]: poisson:NOISE:RATE")
    if (name == "top") != bool(k) or (k and int(k) < 1):
        raise UserError(f"{text!r}: write top and a number, such as top50:9")
    if sampled and rate is not None:
        # The accountant reads the chance of being in a batch: that of a very large number of rows, rounded up.
        rows = 10**9
        scheme: Any = "poisson" if name == "poisson" else "without_replacement"
        mechanism: Any = SampledGaussian(noise, Sampling(scheme, rows, min(rows, math.ceil(rate * rows))))
    elif name == "top":
        mechanism = TopK(noise, int(k))
    elif name in ("gaussian", "laplace"):
        mechanism = {"gaussian": Gaussian, "laplace": Laplace}[name](noise)
    else:
        raise UserError(f"{text!r}: unknown mechanism {name!r}; choose gaussian, laplace, topK, poisson or fixed")
    written = text.removesuffix(f"x{found['count']}")
    return Release(f"{number}: {written}", mechanism, count)


def _cost(arguments: argparse.Namespace) -> Outcome:
    from tulle.trusted.plan import Plan

    _check_delta(arguments.delta)
    plan = Plan(tuple(read_release(text, number) for number, text in enumerate(arguments.releases, 1)))
    return _price_plan(plan, arguments.delta, None)


def _noise(arguments: argparse.Namespace) -> Outcome:
    from tulle.accounting.calibration import calibrate
    from tulle.accounting.zcdp import Budget
    from tulle.trusted.plan import Plan

    releases = [read_release(text, number) for number, text in enumerate(arguments.releases, 1)]
    budget = Budget(delta=arguments.delta, **_measure(arguments))
    return _price_plan(Plan(calibrate(releases, budget)), budget.delta, budget)


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise UserError(f"--delta must lie in [0, 1), got {delta:g}")


# --- plans of fits ---------------------------------------------------------------------------------------------------


def _plan(arguments: argparse.Namespace) -> Outcome:
    from tulle.methods.loss_functions import resolve_loss

    if arguments.task is None:
        raise UserError("pass --task classification or --task regression")
    _check_shape(arguments)
    model = estimator_class(arguments.task)(
        delta=arguments.delta,
        **_measure(arguments),
        method=arguments.method,
        calibration=arguments.calibration,
        **model_settings(arguments),
    )
    loss = resolve_loss(model.loss, arguments.task)
    request = model._request(loss, arguments.rows)
    return _price_fit(request, arguments)


def _published(arguments: argparse.Namespace) -> Outcome:
    from tulle.estimators.bounds import Bounds
    from tulle.methods import METHODS
    from tulle.methods.loss_functions import resolve_loss

    _check_shape(arguments)
    name, paper, settings, task = PAPERS[arguments.paper]
    method: Any = METHODS[name](**settings)
    for option, parameter in (("steps", "n_iter"), ("passes", "passes"), ("batch", "batch")):
        value = getattr(arguments, option)
        if value is not None:
            if parameter not in method.get_params():
                raise UserError(f"--{option} does not apply to {arguments.paper}")
            method.set_params(**{parameter: value})
    if arguments.paper == "dpsl-kt":
        import scipy.sparse as sp

        method.set_params(features=sp.csr_array((2, arguments.features)))  # its answers' place; nothing is asked of it
    model = estimator_class(task)(  # type: ignore[arg-type]
        delta=arguments.delta,
        **_measure(arguments),
        n_nonzero=arguments.n_nonzero,
        method=method,
        calibration="published",
        bounds=Bounds(row_l2=1.0, label=1.0) if name != "frank_wolfe" else Bounds(row_linf=1.0, label=1.0),
        fit_intercept=False,
    )
    request = model._request(resolve_loss(model.loss, task), arguments.rows)
    outcome = _price_fit(request, arguments)
    proved, claim = outcome.values["epsilon"], arguments.epsilon
    if arguments.rho is not None:
        proved, claim = outcome.values["rho"], arguments.rho
    if proved is None or math.isinf(proved):
        verdict = "nothing is proved for it"
    elif proved > claim * (1 + 1e-9):
        verdict = f"that is {proved / claim:.3g} times the claim"
    else:
        verdict = "the claim holds"
        if outcome.values["failed_conditions"]:
            verdict += ", but not by the paper's theorem: its conditions fail"
    return Outcome(
        f"{paper}\n{outcome.text}\nVerdict: {verdict}.", {"paper": paper, **outcome.values, "verdict": verdict}
    )


def _check_shape(arguments: argparse.Namespace) -> None:
    if arguments.rows < 2 or arguments.features < 1:
        raise UserError("--rows must be at least 2 and --features at least 1")


def _price_fit(request: Any, arguments: argparse.Namespace) -> Outcome:
    from tulle.trusted.accountants import proof

    planned = request.plan_all((arguments.rows, arguments.features))
    dearest = max(planned, key=lambda one: proof(one.plan, request.delta)[0])
    failed = dearest.method.failed_conditions(dearest.public, request.budget)
    return _price_plan(
        dearest.plan,
        request.delta,
        request.budget,
        method=dearest.method.describe(dearest.public),
        failed=failed if request.published else (),
    )


def _price_plan(plan: Plan, delta: float, asked: Budget | None, *, method: str = "", failed: Any = ()) -> Outcome:
    import tulle.accounting.calibration  # noqa: F401 (it adds accountants to the trusted ones)
    from tulle.accounting.zcdp import reported_curve, rho_of, total_rho
    from tulle.files.number_text import rounded_up
    from tulle.reports.report import bill_lines, of_which
    from tulle.trusted.accountants import proof, prove

    proved, accountant = proof(plan, delta)
    slack = prove(plan, delta)[1]
    bill = bill_lines(plan, delta)
    rows = [("release", "mechanism", "times", "noise / sensitivity", "ε if alone")]
    rows += [
        (
            line.release,
            line.mechanism,
            f"{line.count:,}",
            f"{line.noise_per_sensitivity:.6g}",
            rounded_up(line.epsilon_alone, 4),
        )
        for line in bill
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(5)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    claim = None if asked is None or rho_of(asked) is not None else asked.epsilon
    # A plan after estimated bounds is one of several, which have no rho in common unless they were calibrated to one.
    claimed_rho, several = rho_of(asked), bool(plan.preliminary) and rho_of(asked) is None
    rho = math.inf if several else total_rho(plan)
    words = "" if claim is None else f" (asked: {rounded_up(claim)})"
    rho_words = "" if claimed_rho is None else f" (asked: {rounded_up(claimed_rho)})"
    lines = [
        *([method] if method else []),
        *table,
        f"Together: ε = {rounded_up(proved)} at δ = {rounded_up(delta)}{of_which(delta, slack)}{words}, by "
        f"{accountant}; replace-one adjacency.",
        *([f"Zero-concentrated: ρ = {rounded_up(rho)}{rho_words}."] if math.isfinite(rho) else []),
        *(f"Fails: {condition}" for condition in failed),
    ]
    values = {
        "epsilon": proved,
        "delta": delta,
        "floating_point_slack": slack,
        "asked": claim,
        "rho": rho if math.isfinite(rho) else None,
        "asked_rho": claimed_rho,
        "renyi": [] if several else [list(pair) for pair in reported_curve(plan)],
        "accountant": accountant,
        "method": method,
        "failed_conditions": [*failed],
        "bill": [vars(line) for line in bill],
    }
    return Outcome("\n".join(lines), values)
