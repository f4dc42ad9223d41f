"""One fit, as data sees it: plan, bill, estimate bounds, clip, run, settle, report.

Trusted: this is where rows are handed to curators. No algorithm is in here, and no scikit-learn.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.backends import Spread
from tulle.bounds import Bounds, KnownBounds, estimate_quantiles, quantile_releases, reliable
from tulle.curator import Curator, Witness
from tulle.events import FloatArray
from tulle.intake import LABELS_DECLARED, LABELS_PUBLISHED, counted, first_rows_of_each_person
from tulle.losses import Loss
from tulle.methods import Method
from tulle.privacy import (
    MOST_ARITHMETIC,
    Budget,
    Entry,
    Plan,
    PrivacyReport,
    PrivacyWarning,
    Release,
    arithmetic_delta,
    bill_lines,
    bill_open_ledgers,
    calibrate,
    can_be_repeated,
    confirm_entries,
    epsilon,
    is_being_taught_on,
    is_number,
    proof,
    stream_of,
)
from tulle.public import PublicFacts
from tulle.randomness import fixed_nonce_told, keyed_generator
from tulle.report import arithmetic_line
from tulle.rows import Rows

# Frames between a warning in here and the line of the user that called fit.
_USER = 5


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
    # What was done before and around the fit, for the report: lines that depend on no row.
    preparation: tuple[str, ...] = ()

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
    def published(self) -> bool:
        """Whether the noise is the paper's: asked for, or all that the method has."""
        return self.calibration == "published" or _only_published(self.method)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The bounds that must be estimated: needed, and neither declared nor implied."""
        if self.budget is None:
            return ()
        # A loss whose slopes are bounded by themselves needs no bound on labels.
        label = ("label",) if math.isinf(self.loss.slope_bound(0.0, math.inf)) else ()
        return self.bounds.missing((*self.method.bounds_wanted(), *label))

    @property
    def spent_on_bounds(self) -> float:
        """The pure epsilon that the estimated bounds cost."""
        return self.bounds.estimate_share * self.budget.epsilon if self.budget is not None and self.wanted else 0.0

    def preliminary(self) -> tuple[Release, ...]:
        return quantile_releases(self.wanted, self.spent_on_bounds)

    def public(self, shape: tuple[int, int], known: KnownBounds) -> PublicFacts:
        """The public facts, given the bounds."""
        n_rows, n_features = shape
        public = PublicFacts(
            n_rows=n_rows,
            n_features=n_features,
            n_nonzero=1,
            loss=self.loss,
            budget=None if self.budget is None else self.budget.after(self.spent_on_bounds),
            row_l2=known.row_l2,
            row_linf=known.row_linf,
            label=known.label,
            fit_intercept=self.fit_intercept,
            rows_per_unit=self.bounds.rows_per_person,
            as_published=self.published,
            estimated=bool(self.wanted),
            normalised=known.normalise,
            spent=self.spent_on_bounds,
            exact_only=self.exact_only,
        )
        return replace(public, n_nonzero=min(self.n_nonzero or self.method.default_nonzero(public), n_features))

    def plan(self, public: PublicFacts) -> Plan:
        """The plan with its noise: calibrated, the paper's, or none."""
        if public.budget is None:
            releases = tuple(release.scaled(0.0) for release in self.method.releases(public))
        elif self.published:
            releases = self.method.published(public, public.budget)
        else:
            releases = self._calibrated(self.method.releases(public), public.budget)
        return Plan(releases, self.preliminary())

    def _calibrated(self, releases: tuple[Release, ...], budget: Budget) -> tuple[Release, ...]:
        """The least noise within the budget, of which finite precision takes its part."""
        if Plan(releases).inexact == 0:
            return calibrate(releases, budget)
        calibrated = calibrate(releases, replace(budget, delta=(1 - MOST_ARITHMETIC) * budget.delta))
        needed = (1 + math.exp(min(budget.epsilon + self.spent_on_bounds, 700))) * Plan(calibrated).inexact
        if needed > MOST_ARITHMETIC * budget.delta:
            raise ValueError(
                f"finite precision would take {needed:.2g} of delta = {budget.delta:g}, and a tenth of it is allowed; "
                "use engine='plain', fewer iterations or a smaller epsilon"
            )
        return calibrated


def _only_published(method: Method) -> bool:
    """Whether a method has no noise but its paper's."""
    return bool(getattr(method, "only_published", False))


@dataclass(frozen=True)
class Fitted:
    """What leaves a fit. `weights` has shape (features + 1, outputs); its last line is the intercept. `teacher` is what
    they were learnt from, where the method has one."""

    weights: FloatArray
    teacher: FloatArray | None
    n_iter: int
    n_passes: float
    n_thresholds: int
    privacy: PrivacyReport


@dataclass(frozen=True)
class _Promise:
    """What a fit promises whatever its estimated bounds turn out to be: the largest figures over all its plans.

    Which plan it settles on depends on private answers, so no smaller epsilon may be stated.
    """

    epsilon: float
    arithmetic: float  # the part of delta for finite precision

    @classmethod
    def of(cls, plans: Sequence[Plan], delta: float) -> _Promise:
        return cls(max(epsilon(plan, delta) for plan in plans), max(arithmetic_delta(plan, delta) for plan in plans))


def possible_publics(request: FitRequest, shape: tuple[int, int]) -> list[PublicFacts]:
    """The facts under the extreme shapes that estimated bounds can take: rows with one large entry, and flat rows."""
    extremes = ((1.0, 1.0, 1.0), (math.sqrt(shape[1]), 1.0, 1.0))
    shapes = [dict(zip(("row_l2", "row_linf", "label"), extreme)) for extreme in extremes]
    found = [{of: guess[of] for of in request.wanted} for guess in shapes]
    return [request.public(shape, request.bounds.known(shape[1], guess)) for guess in found]


def possible_plans(request: FitRequest, shape: tuple[int, int]) -> list[Plan]:
    """The plans that the answers to the preliminary questions can lead to."""
    return [request.plan(public) for public in possible_publics(request, shape)]


def run_fit(
    request: FitRequest,
    X: Any,
    targets: FloatArray | None,
    groups: Any = None,
    witness: Witness | None = None,
    *,
    made_up: bool = False,
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
    made_up : bool
        Whether the rows are an audit's own, made without looking at anybody's: only then no ledger is billed.
    """
    if isinstance(X, Spread):
        X.check_groups(groups)
    active = _active_rows(groups, request.bounds, X.shape[0])
    # Every plan that the answers to the preliminary questions can lead to is billed before any noise is drawn.
    plans = possible_plans(request, X.shape)
    promise = _Promise.of(plans, request.delta)
    warn_beforehand(request, X.shape, promise.epsilon)
    price = (promise.epsilon, request.delta)
    free = made_up or is_being_taught_on(X)
    entries = () if free else bill_open_ledgers(request.what, plans, price, request.bounds.rows_per_person)
    if not isinstance(X, Spread):
        return _fit_billed(request, X, targets, active, entries, witness, promise)
    with X.billed(request.what, plans, request.loss, price, request.bounds.rows_per_person):
        return _fit_billed(request, X, targets, active, entries, witness, promise)


def _fit_billed(
    request: FitRequest,
    X: Any,
    targets: FloatArray | None,
    active: npt.NDArray[np.bool_] | None,
    entries: Sequence[Entry],
    witness: Witness | None,
    promise: _Promise,
) -> Fitted:
    """A fit that is on the bill of every open ledger: from the first draw of noise to the report."""
    generator = keyed_generator(request.seed, stream_of(entries))
    if not can_be_repeated(entries):
        request = replace(request, seed=None)  # for the report: the ledger's nonce came from the operating system
    rows = _rows(X, targets, active)
    before = request.public(X.shape, KnownBounds(math.inf, math.inf, math.inf, False))
    scout = Curator(rows, before, Plan((), request.preliminary()), generator, witness)
    found = estimate_quantiles(scout.ask, request.wanted, request.bounds.quantile)
    scout.settle()

    public, plan = clip_and_plan(request, rows, X.shape, found)
    price = (proof(plan, request.delta)[0], request.delta)
    confirm_entries(entries, plan, price)
    if isinstance(X, Spread):
        X.confirm(plan, price)
    weights = run_plan(request, public, plan, rows, generator, witness)
    teacher, weights = _taught(request, public, weights)
    report = _report(request, plan, public, found, promise, rows.seen_by)
    method = request.method
    thresholds = getattr(method, "n_thresholds", lambda public: 0)(public)
    return Fitted(weights, teacher, method.n_iterations(public), method.n_passes(public), thresholds, report)


def _rows(X: Any, targets: FloatArray | None, active: npt.NDArray[np.bool_] | None) -> Rows:
    if isinstance(X, Spread):
        return X.rows(active)
    assert targets is not None
    return Rows(X, *counted(targets, active))


def clip_and_plan(
    request: FitRequest, rows: Rows, shape: tuple[int, int], found: dict[str, float]
) -> tuple[PublicFacts, Plan]:
    """Make the rows obey their bounds, and plan with these bounds."""
    known = request.bounds.known(shape[1], found)
    known.clip(rows, request.loss)
    public = request.public(shape, known)
    return public, request.plan(public)


def run_plan(
    request: FitRequest,
    public: PublicFacts,
    plan: Plan,
    rows: Rows,
    generator: np.random.Generator,
    witness: Witness | None,
) -> FloatArray:
    """Let the method ask what its plan holds; returns its weights."""
    analyst = Curator(rows, public, Plan(plan.releases), generator, witness)
    weights = request.method.run(analyst.ask, public)
    analyst.settle()
    return weights


def _taught(request: FitRequest, public: PublicFacts, weights: FloatArray) -> tuple[FloatArray | None, FloatArray]:
    """The teacher's weights, if there is one, and the model's. No row is in reach: this is post-processing."""
    teach = getattr(request.method, "teach", None)
    if teach is None:
        return None, weights
    return None if _only_published(request.method) else weights, teach(weights, public)


def _active_rows(groups: Any, bounds: Bounds, n_rows: int) -> npt.NDArray[np.bool_] | None:
    if groups is None:
        return None
    return first_rows_of_each_person(groups, bounds.rows_per_person, n_rows)


def warn_beforehand(request: FitRequest, shape: tuple[int, int], promise: float) -> None:
    """Say what is known, from public quantities, to be weaker or worse than it looks, before anything is spent."""
    n_rows = shape[0]
    failed = _failed_conditions(request, possible_publics(request, shape)[0])
    if request.budget is not None and (failed or promise > request.budget.epsilon * (1 + 1e-9)):
        conditions = f" Its theorem does not apply here: {'; '.join(failed)}." if failed else ""
        only = "only " if promise > request.budget.epsilon else ""
        proves = f"proves {only}epsilon = {promise:.4g} at delta = {request.delta:g}"
        if math.isinf(promise):
            proves = "proves nothing: the fit is not private"
        if not _only_published(request.method):
            proves += "; use calibration='rigorous' for noise that keeps the promise"
        warnings.warn(
            f"the published noise for epsilon = {request.budget.epsilon:g} {proves}.{conditions}",
            PrivacyWarning,
            stacklevel=_USER + 1,
        )
    if request.budget is not None and _hopeless(request, shape):
        warnings.warn(
            f"{n_rows:,} rows of {shape[1]:,} features at epsilon = {request.budget.epsilon:g}: the model is expected "
            "to be no better than guessing, since even a feature that explains every label would drown in the noise; "
            "use more rows, fewer features or a larger epsilon",
            UserWarning,
            stacklevel=_USER + 1,
        )
    wanted, bounds = request.wanted, request.bounds
    each = request.spent_on_bounds / max(len(wanted), 1)
    if wanted and not reliable(n_rows, bounds.quantile, each, bounds.rows_per_person):
        warnings.warn(
            f"{n_rows} rows are too few to estimate {', '.join(wanted)} reliably at epsilon = {each:.3g} each, and a "
            "bad bound drowns the model in noise; declare what you know with bounds=Bounds(...)",
            UserWarning,
            stacklevel=_USER + 1,
        )


def _failed_conditions(request: FitRequest, public: PublicFacts) -> tuple[str, ...]:
    """Side conditions that the published noise needs and that do not hold, where its paper has any."""
    conditions = getattr(request.method, "failed_conditions", None)
    if not request.published or request.budget is None or conditions is None:
        return ()
    failed: tuple[str, ...] = conditions(public, request.budget)
    return failed


def _hopeless(request: FitRequest, shape: tuple[int, int]) -> bool:
    """Whether no common feature can be told from noise, whatever the bounds turn out to be."""
    publics = possible_publics(request, shape)
    signals = [request.method.signal_to_noise(public, request.plan(public).releases) for public in publics]
    return max(signals) < 1


def _report(
    request: FitRequest,
    plan: Plan,
    public: PublicFacts,
    found: dict[str, float],
    promise: _Promise,
    seen_by: tuple[str, ...],
) -> PrivacyReport:
    budget, delta = request.budget, request.delta
    accountant = proof(plan, delta)[1]
    if plan.preliminary:
        accountant += f", after {epsilon(Plan((), plan.preliminary), 0.0):.4g} of pure ε for the bounds (added up)"
    person = f"one person with at most {public.rows_per_unit} rows (how many is not protected)"
    unit = person if public.rows_per_unit > 1 else "one row"
    return PrivacyReport(
        epsilon=promise.epsilon,
        delta=delta,
        asked=None if budget is None else (budget.epsilon, budget.delta),
        method=request.method.describe(public),
        calibration="none" if budget is None else "published" if request.published else "rigorous",
        accountant="none" if budget is None else accountant,
        unit=f"{unit}; replace-one adjacency: the number of rows, {public.n_rows:,}, is public",
        bill=bill_lines(plan, delta),
        assumptions=tuple(_assumptions(request, public, plan, found, promise.arithmetic)),
        who_saw_what=(
            *seen_by,
            "The method (the algorithm itself) saw the answers on the bill and public quantities.",
            "Whoever gets the fitted model sees coef_, intercept_, their teacher's where there is one, and this report"
            + ("." if budget is None else "; the promise covers all of it."),
        ),
        seeded=request.seed is not None,
        floating_point_slack=promise.arithmetic,
    )


def _assumptions(
    request: FitRequest, public: PublicFacts, plan: Plan, found: dict[str, float], slack: float
) -> list[str]:
    def origin(name: str) -> str:
        if name in found:
            return "estimated privately"
        return "declared" if getattr(request.bounds, name) is not None else "implied"

    private = request.budget is not None
    failed = _failed_conditions(request, public)
    lines = [f"The theorem behind the published noise does not apply: {'; '.join(failed)}."] if failed else []
    if private:
        rows = "normalised to" if request.bounds.normalise else "clipped to"
        lines.append(
            f"Rows were {rows} Euclidean norm {public.row_l2:.4g} ({origin('row_l2')}), entries clipped to "
            f"{public.row_linf:.4g} ({origin('row_linf')})"
            + (f", labels to {public.label:.4g} ({origin('label')})." if public.label < math.inf else ".")
        )
    if request.loss.kind == "classification":
        lines.append(LABELS_DECLARED if request.classes_declared else LABELS_PUBLISHED)
    lines.append(
        "The numbers of rows and features, the settings and the bounds are public. What was done to the rows before "
        "fit (scaling, word weights, choosing features or settings by looking at them) is not covered."
    )
    schemes = {release.mechanism.sampling.scheme for release in plan if release.mechanism.sampling is not None}
    if private and schemes - {"shuffled"}:
        lines.append(
            "Answers are about random batches of rows. Which rows a batch held, and how many, was kept secret, and the "
            "promise counts on it."
        )
    if private:
        lines += getattr(request.method, "assumptions", lambda public: ())(public)
        lines.append(f"{arithmetic_line(slack)} Running time is not protected.")
        lines.append(
            "The noise came from a seed: the fit is reproducible, and not private against anyone who knows or guesses "
            "the seed, or who sees another fit with the same seed."
            if request.seed is not None
            else "The noise came from AES-128 in counter mode, keyed by the operating system."
        )
        lines += fixed_nonce_told()
        own = getattr(request.loss, "binary", request.loss)
        if not type(own).__module__.startswith("tulle."):
            lines.append(f"The loss {own!r} is the user's own: its slope must treat each row by itself.")
    return [*lines, *request.preparation]
