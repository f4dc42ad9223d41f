"""One fit: the request, the plans that it can lead to, and the call of `tulle.trusted.fit`.

Untrusted, except for the rows that it passes on: its plans are proved and billed there, and queries clip rows again.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.accounting.calibration import calibrate
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.accounting.row_limit import check_row_count
from tulle.accounting.zcdp import budget_after, confirm_rho, epsilon_left, rho_of, total_rho
from tulle.backends.known_bounds import KnownBounds
from tulle.backends.rows_elsewhere import Spread
from tulle.backends.weighted_rows import CarriedNumbers, WeightedRows
from tulle.estimators.beforehand import warn_beforehand
from tulle.estimators.bounds import Bounds, estimate_quantiles, quantile_releases
from tulle.estimators.memory_check import rehearse_copy
from tulle.estimators.method_run import run_method
from tulle.estimators.progress import Witness, show_answers
from tulle.fast.rows_in_memory import RowsInMemory
from tulle.ledgers.ledger import describe_entries
from tulle.ledgers.spending import note_release
from tulle.methods.base import Method
from tulle.methods.loss_functions import Loss
from tulle.monitoring.logged_account import log_answers, open_logged_account
from tulle.preprocessing.class_balance import ClassBalance
from tulle.preprocessing.keyed_rows import KeyedRows
from tulle.preprocessing.private_step import PrivateStep
from tulle.reports.report import PrivacyReport
from tulle.reports.words import (
    fit_report,
)
from tulle.trusted.accountants import MOST_ARITHMETIC
from tulle.trusted.billing import BillingLedger
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray, GaussianEvent, ObjectivePerturbationEvent
from tulle.trusted.facts import PublicFacts
from tulle.trusted.fit import Order
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.intake import mask_unlabelled, select_first_rows
from tulle.trusted.plan import Budget, Plan, Release, compose, is_number
from tulle.trusted.rows import Rows


@dataclass(frozen=True)
class PlannedFit:
    """A fit under some bounds: the public facts, the resolved method, and its plan."""

    public: PublicFacts
    method: Method
    plan: Plan
    # How many of the plan's releases are those of private steps, which come first.
    of_steps: int = 0


@dataclass(frozen=True)
class FitRequest:
    """Everything that is asked of a fit, before any row is looked at."""

    what: str
    budget: Budget | None
    n_nonzero: int | None
    method: Method
    loss: Loss
    bounds: Bounds
    calibration: str
    fit_intercept: bool
    seed: int | None
    # Whether no answer may have a part of delta for finite precision, as where many fits share one bill.
    exact_only: bool = False
    classes_declared: bool = False
    # Whether person ids are given: the unit is then a person, where one row of each is used, too.
    grouped: bool = False
    # Whether rows are dense, of more than one column: these may be in different units.
    dense: bool = False
    # What was done before and around the fit, for the report: lines that depend on no row.
    preparation: tuple[str, ...] = ()
    # Steps that learn from the rows first, and the part of the cost (of the squared mu) of each; None: its own default.
    steps: tuple[tuple[PrivateStep, float | None], ...] = ()
    # Class weights that are learnt from noisy counts, first of all.
    balance: ClassBalance | None = None
    # How many weights, or groups of weights, are kept at least where the method chooses how many.
    least_nonzero: int = 1

    def __post_init__(self) -> None:
        if self.calibration not in ("rigorous", "published"):
            raise ValueError(f"calibration must be 'rigorous' or 'published', got {self.calibration!r}")
        if not isinstance(self.bounds, Bounds):
            raise TypeError(f"bounds must be a tulle.Bounds or None, got {self.bounds!r}")
        s = self.n_nonzero
        if s is not None and not (isinstance(s, numbers.Integral) and is_number(s) and s >= 1):
            raise ValueError(f"n_nonzero must be an integer >= 1 or None, got {s!r}")

    @property
    def delta(self) -> float:
        return 0.0 if self.budget is None else self.budget.delta

    @property
    def rho(self) -> float | None:
        """The rho that was asked for; None where the budget is in epsilon."""
        return rho_of(self.budget)

    @property
    def published(self) -> bool:
        """Whether the noise is the paper's: asked for, or all that the method has."""
        return self.calibration == "published" or self.method.only_published

    @property
    def wanted(self) -> tuple[str, ...]:
        """The bounds that must be estimated: needed, and neither declared nor implied."""
        if self.budget is None:
            return ()
        # A loss whose slopes are bounded by themselves needs no bound on labels.
        label = ("label",) if math.isinf(self.loss.slope_bound(0.0, math.inf)) else ()
        return self.bounds.missing((*self.method.bounds_wanted(), *label))

    def step_shares(self, public: PublicFacts) -> tuple[float, ...]:
        """The part of the cost that each private step takes."""
        whole = replace(public, budget=self.budget)
        shares = tuple(step.default_share(whole) if share is None else share for step, share in self.steps)
        if self.balance is not None:
            shares = (*shares, self.balance.default_share(whole))
        if sum(shares) >= 1:
            raise ValueError(
                f"private steps take {sum(shares):g} of the cost, and the model needs a part; lower shares"
            )
        return shares

    @property
    def _learns_first(self) -> bool:
        """Whether something is learnt from the rows before the method is asked."""
        return bool(self.steps) or self.balance is not None

    @property
    def spent_on_bounds(self) -> float:
        """The pure epsilon that the estimated bounds cost."""
        return self.bounds.estimate_share * self.budget.epsilon if self.budget is not None and self.wanted else 0.0

    def preliminary(self) -> tuple[Release, ...]:
        return quantile_releases(self.wanted, self.spent_on_bounds)

    def public(self, shape: tuple[int, int], known: KnownBounds, together: bool = False) -> PublicFacts:
        """The public facts, given the bounds and how their cost is composed with that of the rest."""
        n_rows, n_features = shape
        if self.budget is not None:
            check_row_count(n_rows)
        public = PublicFacts(
            n_rows=n_rows,
            n_features=n_features,
            n_nonzero=1,
            loss=self.loss,
            budget=self.budget and budget_after(self.budget, self.preliminary(), self.spent_on_bounds, together),
            row_l2=known.row_l2,
            row_linf=known.row_linf,
            label=known.label,
            fit_intercept=self.fit_intercept,
            rows_per_unit=self.bounds.rows_per_person,
            as_published=self.published,
            estimated=bool(self.wanted),
            normalised=known.normalise,
            spent=self.spent_on_bounds,
            exact_only=self.exact_only or self.rho is not None or together,
        )
        if self._learns_first and public.budget is not None:
            whole, delta = public.budget.epsilon, public.budget.delta
            left = gaussian_mu(whole, delta) * math.sqrt(1 - sum(self.step_shares(public)))
            # A mu that delta alone pays for has an epsilon of 0.
            public = replace(public, budget=Budget(max(gaussian_epsilon(left, delta), 1e-3 * whole), delta))
        chosen = self.n_nonzero or max(self.method.default_nonzero(public), self.least_nonzero)
        return replace(public, n_nonzero=min(chosen, n_features))

    def plan(self, shape: tuple[int, int], known: KnownBounds, together: bool = False) -> PlannedFit:
        """The plan under these bounds, with its noise: calibrated, the paper's, or none. `together`: with the cost of
        estimated bounds composed with the rest, not added to it."""
        if self._learns_first:
            self._check_steps()
        public = self.public(shape, known, together)
        method = self.method.resolve(public)
        if getattr(self.loss, "offset_bound", 0.0) and not getattr(method, "takes_offsets", False):
            raise ValueError(
                f"{type(method).__name__} takes no offsets with this loss; use method='auto', 'fit_again', "
                "'screen_refine' or 'hard_thresholding'"
            )
        of_steps = self._step_releases(public)
        if public.budget is None:
            releases = tuple(release.scaled(0.0) for release in (*of_steps, *method.releases(public)))
        elif self.published:
            if self.rho is not None and not method.publishes_rho:
                raise ValueError(
                    f"the paper of {type(method).__name__} prints no noise for rho; use epsilon=..., or "
                    "method='hard_thresholding', whose paper (DP-IGHT) does"
                )
            releases = method.published(public, public.budget)
        elif self._learns_first:
            # First the method by itself, to the budget that is left for it: how its noise compares with that of steps
            # is then known, for any mechanisms.
            own = self._calibrated(method.releases(public), public.budget, together=False)
            assert self.budget is not None
            left = budget_after(self.budget, self.preliminary(), self.spent_on_bounds, together)
            # The inexactness of steps does not depend on their noise: `calibrate` counts it, and no part of delta has
            # to be kept for it.
            inexact = Plan(of_steps).inexact > 0
            together_with = calibrate if inexact else partial(self._calibrated, together=together)
            releases = together_with((*of_steps, *own), left)
        else:
            releases = self._calibrated(method.releases(public), public.budget, together)
        return PlannedFit(public, method, Plan(releases, self.preliminary(), together), len(of_steps))

    def _step_releases(self, public: PublicFacts) -> tuple[Release, ...]:
        """What private steps release, each for its share of the squared mu."""
        if not self._learns_first:
            return ()
        total = 1.0 if self.budget is None else gaussian_mu(self.budget.epsilon, self.budget.delta)
        shares = self.step_shares(public)
        whole, of_each = replace(public, budget=self.budget), zip(self.steps, shares)
        releases = [release for (step, _), share in of_each for release in step.releases(total**2 * share, whole)]
        if self.balance is not None:
            releases += self.balance.releases(total**2 * shares[-1])
        names = [release.name for release in releases]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"two private steps learn {', '.join(twice)}; one is enough: PrivateScaler takes missing numbers, too"
            )
        return tuple(releases)

    def _check_steps(self) -> None:
        """Raise where steps that learn first cannot be billed together with the fit."""
        if self.steps and self.wanted:
            raise ValueError(
                f"with private steps, declare {', '.join(self.wanted)} in Bounds(...): bounds of transformed rows are "
                "not estimated"
            )
        if self.published or self.rho is not None or (self.budget is not None and self.delta == 0):
            what = "private steps need" if self.steps else "class_weight='balanced' needs"
            raise ValueError(f"{what} a budget in epsilon and delta > 0, and calibration='rigorous'")

    def plan_all(self, shape: tuple[int, int]) -> tuple[PlannedFit, ...]:
        """Under every extreme shape that estimated bounds can take: rows with one large entry, and flat rows.

        One plan where no bound has to be estimated.
        """
        extremes = ((1.0, 1.0, 1.0), (math.sqrt(shape[1]), 1.0, 1.0))[: 2 if self.wanted else 1]
        guesses = [dict(zip(("row_l2", "row_linf", "label"), extreme)) for extreme in extremes]
        found = [{of: guess[of] for of in self.wanted} for guess in guesses]
        known = [self.bounds.known(shape[1], guess) for guess in found]
        planned = tuple(self.plan(shape, one) for one in known)
        if not self.wanted or self.published or self.delta == 0 or self.rho is not None:
            return planned
        # The choice is made here, from public quantities, for every plan that the estimates can lead to.
        assert self.budget is not None
        sharper = epsilon_left(self.budget, self.preliminary()) > self.budget.epsilon - self.spent_on_bounds
        if not (sharper and all(_is_gaussian(one.plan) for one in planned)):
            return planned
        return tuple(self.plan(shape, one, together=True) for one in known)

    def _calibrated(self, releases: tuple[Release, ...], budget: Budget, together: bool) -> tuple[Release, ...]:
        """The least noise within the budget, of which finite precision takes its part."""
        if together and self.budget is not None:
            return calibrate(releases, self.budget, self.preliminary())
        if Plan(releases).inexact == 0 or self.rho is not None:  # within a rho nothing may be inexact
            return calibrate(releases, budget)
        calibrated = calibrate(releases, replace(budget, delta=(1 - MOST_ARITHMETIC) * budget.delta))
        needed = (1 + math.exp(min(budget.epsilon + self.spent_on_bounds, 700))) * Plan(calibrated).inexact
        if needed > MOST_ARITHMETIC * budget.delta:
            raise ValueError(
                f"finite precision would use {needed:.2g} of delta = {budget.delta:g}, and at most a tenth of delta "
                "is allowed; use engine='plain', fewer iterations or a smaller epsilon"
            )
        return calibrated

    def order(self, planned: Sequence[PlannedFit]) -> Order:
        """What trusted code is to prove and to bill."""
        return Order(
            what=self.what,
            plans=tuple(one.plan for one in planned),
            delta=self.delta,
            rows_per_unit=self.bounds.rows_per_person,
            seed=self.seed,
            budget=None if self.published else self._budget_to_prove(planned),
            loss=self.loss,
        )

    def _budget_to_prove(self, planned: Sequence[PlannedFit]) -> Budget | None:
        """The epsilon and delta that plans must keep to; for a budget in rho those that it implies, bounds added up."""
        left = planned[0].public.budget
        if self.rho is None or left is None:
            return self.budget
        return Budget(self.spent_on_bounds + left.epsilon, self.delta)

    def promised_rho(self, planned: Sequence[PlannedFit]) -> float | None:
        """A rho that holds for every plan that the fit may settle on; None where none is proved for all of them.

        Which one that is may depend on estimated bounds. All plans of a budget in rho are calibrated to it, including
        those that are not made yet; plans of one epsilon have no rho in common.
        """
        most = max(total_rho(one.plan) for one in planned)
        if self.budget is None or math.isinf(most) or (self.wanted and self.rho is None):
            return None
        return max(most, self.rho) if self.rho is not None and self.wanted and not self.published else most


def _is_gaussian(plan: Plan) -> bool:
    """Whether Gaussian differential privacy is an exact account of what follows estimated bounds, or nearly."""
    kinds = (GaussianEvent, ObjectivePerturbationEvent)
    return plan.inexact == 0 and all(type(event) in kinds for event, _ in compose(plan.releases))


@dataclass(frozen=True)
class Fitted:
    """The results of a fit. `weights` has shape (features + 1, outputs); its last line is the intercept. `teacher` has
    the weights they were learnt from, where the method has any; `evidence` describes their errors, if requested."""

    weights: FloatArray
    teacher: FloatArray | None
    n_iter: int
    n_passes: float
    n_thresholds: int
    privacy: PrivacyReport
    evidence: Any = None


def run_fit(
    request: FitRequest,
    X: Any,
    targets: FloatArray | None,
    groups: Any = None,
    witness: Witness | None = None,
    planned: Sequence[PlannedFit] = (),
    *,
    ledgers: Sequence[BillingLedger] | None = None,
    numbers: CarriedNumbers | None = None,
) -> Fitted:
    """Fit privately.

    Parameters
    ----------
    request : FitRequest
    X : array, sparse array or Spread of shape (n, d)
        Finite, dense or CSR or CSC; or rows elsewhere, with their targets.
    targets : array of shape (n,) or None
        -1 and +1, class numbers or numbers, as the loss wants them; NaN for a row that counts as nothing. None where X
        is a Spread.
    groups : array of shape (n,) or None
        Person ids.
    witness : callable or None
        Called as witness(name, answer) with each answer that was released.
    planned : sequence of PlannedFit
        What `request.plan_all` gave for the shape of X; () to plan here.
    ledgers : sequence of ledgers or None
        To be billed instead of the open ones.
    numbers : CarriedNumbers or None
        Weights and offsets of rows in memory; the loss is then a `tulle.methods.weighted_loss.WeightedLoss`.
    """
    holders = X if isinstance(X, Spread) else None
    if holders is not None and (numbers is not None or request.balance is not None):
        raise ValueError("weights, offsets and balanced classes need rows in memory")
    if holders is not None:
        holders.check_groups(groups)
    active = _active_rows(groups, request.bounds, X.shape[0])
    request = replace(request, grouped=groups is not None, dense=isinstance(X, np.ndarray) and X.shape[1] > 1)
    # Every plan that the answers to the preliminary questions can lead to is billed before any noise is drawn.
    planned = planned or request.plan_all(X.shape)
    rho = request.promised_rho(planned)
    # Rows in memory are put into blocks before the bill: how much memory that takes is a matter of the rows.
    held = None
    if holders is not None:
        holders.check_reachable()
    else:
        assert targets is not None
        coded, counted = mask_unlabelled(targets, active)
        # Of rows whose features are not known yet, the numbers come with the first step.
        known = X.blank() if isinstance(X, KeyedRows) else X
        held = RowsInMemory(known, coded, counted) if numbers is None else WeightedRows(known, coded, counted, numbers)
        if any(one.method.split(one.public) is not None for one in planned):
            rehearse_copy(held)
    about = _describe_request(request, X.shape, planned)
    warn_beforehand(request, planned)
    with open_logged_account(request.order(planned), __name__, about, holders=holders, ledgers=ledgers) as account:
        if request.budget is not None:
            note_release()
        rows = holders.rows(active) if holders is not None else held
        assert rows is not None
        found: dict[str, float] = {}
        if request.wanted:
            before = request.public(X.shape, KnownBounds(math.inf, math.inf, math.inf, False))
            found = account.ask_first(
                rows,
                before,
                lambda ask: estimate_quantiles(show_answers(ask, witness), request.wanted, request.bounds.quantile),
            )
        chosen = clip_and_plan(request, rows, X.shape, found, planned)
        public, method = chosen.public, chosen.method
        if rho is not None:
            confirm_rho(chosen.plan, rho)
        logged = partial(
            log_answers, logger=__name__, what=request.what, total=sum(one.answers for one in chosen.plan.releases)
        )
        run = partial(run_method, request, chosen, X, rows, active)
        released = account.ask(rows, public, chosen.plan, partial(_run_shown, run, logged, witness))
        receipt = account.receipt()
    # No row is in reach: this is post-processing. Copies of rows are freed first: proofs for the report take memory.
    seen_by = rows.seen_by
    del rows, held, run
    evidence = method.infer(released, public, receipt.plan.releases)
    if evidence is not None:
        released = evidence.all_weights(public.n_features, public.fit_intercept)
    teacher, weights = method.teach(released, public)
    report = fit_report(request, method, public, found, receipt, seen_by, rho)
    report = replace(report, billed=describe_entries(account.entries))
    return Fitted(
        weights,
        teacher,
        method.n_iterations(public),
        method.n_passes(public),
        method.n_thresholds(public),
        report,
        evidence,
    )


def _run_shown(run: Callable[[Ask], Any], logged: Callable[[Ask], Ask], witness: Witness | None, ask: Ask) -> Any:
    """What a run makes of answers that are logged and shown on their way. Not a closure, which would hold the rows."""
    return run(show_answers(logged(ask), witness))


def _describe_request(request: FitRequest, shape: tuple[int, int], planned: Sequence[PlannedFit]) -> dict[str, Any]:
    """What the log says of a fit before it is billed: its shape and its settings."""
    return {
        "method": type(planned[0].method).__name__,
        "calibration": "none" if request.budget is None else ("rigorous", "published")[request.published],
        "n_rows": int(shape[0]),
        "n_features": int(shape[1]),
        "asked_epsilon": None if request.budget is None else float(request.budget.epsilon),
        "asked_delta": float(request.delta),
        **({} if request.rho is None else {"rho": float(request.rho)}),
    }


def clip_and_plan(
    request: FitRequest,
    rows: Rows,
    shape: tuple[int, int],
    found: dict[str, float],
    planned: Sequence[PlannedFit] = (),
) -> PlannedFit:
    """Make the rows obey their bounds, and plan with these bounds: anew where they were estimated."""
    known = request.bounds.known(shape[1], found)
    if not request.steps:  # their bounds are those of transformed rows
        known.clip(rows, request.loss)
    together = bool(planned) and planned[0].plan.together
    return request.plan(shape, known, together) if found or not planned else planned[0]


def _active_rows(groups: Any, bounds: Bounds, n_rows: int) -> npt.NDArray[np.bool_] | None:
    if groups is None:
        return None
    return select_first_rows(groups, bounds.rows_per_person, n_rows)
