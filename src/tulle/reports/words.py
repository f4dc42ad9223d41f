"""The words of a fit's warnings and of its privacy report: from public quantities and the receipt alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

from tulle.accounting.mechanism_words import describe_mechanism
from tulle.accounting.zcdp import Curve, reported_curve, rho_of, straight_curve, total_mu
from tulle.accounting.zero_out import zero_out_epsilon
from tulle.files.error_messages import PrivacyWarning
from tulle.files.number_text import rounded_up
from tulle.methods.base import Method
from tulle.methods.loss_functions import Loss, is_built_in, of_one_output
from tulle.methods.zero_out_releases import zero_out_shares
from tulle.reports.report import (
    BoundLine,
    PrivacyReport,
    arithmetic_line,
    bill_lines,
    describe_fixed_nonce,
    slack_words,
)
from tulle.trusted import hooks
from tulle.trusted.accountants import epsilon
from tulle.trusted.facts import PublicFacts
from tulle.trusted.fit import Receipt
from tulle.trusted.plan import Budget, Plan

# Frames between a warning in here and the line of the user that called fit.
USER = 7

# What reports say of the set of class labels.
LABELS_DECLARED = "The class labels were declared beforehand; rows with another label count as nothing."
LABELS_PUBLISHED = "The set of class labels was taken from the rows, and the fit published it (no classes= declared)."

# Above this, odds about a person may change by a factor of more than e^20 = 4.8e8: hardly a guarantee.
LARGE_EPSILON = 20.0

# Declared bounds outside of these limits are taken for mistakes: noise is proportional to a bound, and clips drown rows
# that are far shorter. Rows up to the largest bound that can be estimated are within them.
REASONABLE_BOUNDS = {"row_l2": (1e-6, 1e6), "row_linf": (1e-6, 1e6), "label": (1e-6, 1e9)}

# The unit of a fit with person ids and one row of each person.
ONE_ROW_OF_A_PERSON = "one person, of whom one row is used (how many rows they have is not protected)"

# Of a released model without weights, in a warning and in its report: post-processing.
CONSTANT_MODEL = "all weights are zero: the model predicts a constant"

SEEN_BY_THIS_PROCESS = (
    "The process that ran fit held the rows and the exact sums over them; nothing but the answers on the bill left the "
    "part of the code that saw them."
)


class AskedOfFit(Protocol):
    """What a report says of a request (`tulle.estimators.request.FitRequest`)."""

    @property
    def budget(self) -> Budget | None: ...
    @property
    def delta(self) -> float: ...
    @property
    def published(self) -> bool: ...
    @property
    def loss(self) -> Loss: ...
    @property
    def bounds(self) -> Any: ...
    @property
    def grouped(self) -> bool: ...
    @property
    def classes_declared(self) -> bool: ...
    @property
    def preparation(self) -> tuple[str, ...]: ...
    @property
    def steps(self) -> tuple[Any, ...]: ...


def warn_of_published_noise(
    budget: Budget, promise: float, failed: tuple[str, ...], only_published: bool, rho: float | None
) -> None:
    """Warn where a paper's noise proves less than it claims, or where its theorem does not apply. `rho` is proved."""
    if (asked := rho_of(budget)) is not None:
        if rho is None or rho > asked * (1 + 1e-9):
            found = "no rho" if rho is None else f"only rho = {rounded_up(rho)}"
            warnings.warn(
                f"the published noise for rho = {asked:g} proves {found}; use calibration='rigorous' for noise that "
                "meets the requested rho.",
                PrivacyWarning,
                stacklevel=USER,
            )
        return
    if not failed and promise <= budget.epsilon * (1 + 1e-9):
        return
    conditions = f" Its theorem does not apply here: {'; '.join(failed)}." if failed else ""
    only = "only " if promise > budget.epsilon else ""
    proves = f"proves {only}epsilon = {rounded_up(promise, 4)} at delta = {rounded_up(budget.delta)}"
    if math.isinf(promise):
        proves = "proves nothing: the fit is not private"
    if not only_published:
        proves += "; use calibration='rigorous' for noise that meets the requested epsilon"
    warnings.warn(
        f"the published noise for epsilon = {budget.epsilon:g} {proves}.{conditions}", PrivacyWarning, stacklevel=USER
    )


def warn_of_doubt(doubt: str) -> None:
    """Warn that what a private step, or a method, learns is expected to be of no use."""
    warnings.warn(doubt, UserWarning, stacklevel=USER)


def warn_of_guessing(public: PublicFacts, budget: Budget) -> None:
    """Warn that noise will drown every feature."""
    rho = rho_of(budget)
    measure, value = ("epsilon", budget.epsilon) if rho is None else ("rho", rho)
    warnings.warn(
        f"{public.n_rows:,} rows of {public.n_features:,} features at {measure} = {value:g}: the model is "
        "expected to be no better than guessing, since even a feature that explains every label would drown in the "
        f"noise; use more rows, fewer features or a larger {measure}",
        UserWarning,
        stacklevel=USER,
    )


def warn_of_constant_model() -> None:
    """Warn, after a fit, that nothing was learnt but perhaps the intercept."""
    warnings.warn(
        f"{CONSTANT_MODEL} for all rows; use more rows, fewer features or a larger budget",
        UserWarning,
        stacklevel=USER - 2,
    )


def warn_of_bounds(n_rows: int, wanted: Sequence[str], each: float) -> None:
    """Warn that rows are too few to estimate bounds from."""
    warnings.warn(
        f"{n_rows} rows are too few to estimate {', '.join(wanted)} reliably at epsilon = {each:.3g} each, and a "
        "bad bound drowns the model in noise; declare what you know with bounds=Bounds(...)",
        UserWarning,
        stacklevel=USER,
    )


def warn_of_units() -> None:
    """Warn that one column may outweigh all others, by the form of the rows alone."""
    warnings.warn(
        "rows are dense and no bound on them is declared: a column in large units would outweigh all others, and the "
        "model be useless; declare ranges with a tulle.Schema, or Bounds(row_linf=...) for columns in equal units, or "
        "use tulle.PrivatePipeline with tulle.preprocessing.PrivateScaler",
        UserWarning,
        stacklevel=USER,
    )


def warn_of_large_epsilon(epsilon: float, stacklevel: int = 3) -> None:
    """Warn of a guarantee that hardly is one."""
    if epsilon > LARGE_EPSILON:
        warnings.warn(
            f"epsilon = {epsilon:g} is above {LARGE_EPSILON:g}: odds about a person may change by a factor of "
            f"e^{epsilon:g}, which is hardly a guarantee; use a smaller epsilon",
            PrivacyWarning,
            stacklevel=stacklevel,
        )


def warn_of_unreasonable_bounds(bounds: Any) -> None:
    """Warn of declared bounds that look like mistakes, by public limits: no row is looked at."""
    for name, (low, high) in REASONABLE_BOUNDS.items():
        value = getattr(bounds, name)
        if value is not None and not low <= value <= high:
            reason = "noise is proportional to it" if value > high else "rows or labels are cut down to it"
            warnings.warn(
                f"Bounds({name}={value:g}) is outside of [{low:g}, {high:g}], and {reason}; declare the bound that "
                "is known of the data, or rescale the data by a constant that was chosen without looking at it",
                UserWarning,
                stacklevel=USER,
            )


def warn_of_one_row_each() -> None:
    """Warn that of each person one row is used."""
    warnings.warn(
        "groups are given and rows_per_person is 1: one row of each person is used, the first, and all others are left "
        "out; declare Bounds(rows_per_person=K) to use up to K rows of each person, or one row each beforehand",
        UserWarning,
        stacklevel=USER,
    )


def fit_report(
    request: AskedOfFit,
    method: Method,
    public: PublicFacts,
    found: dict[str, float],
    receipt: Receipt,
    seen_by: tuple[str, ...],
    rho: float | None,
) -> PrivacyReport:
    """The report of a fit. `found` are the bounds that were estimated, `rho` that of all plans they can lead to."""
    budget, delta = request.budget, request.delta
    plan, promise, accountant = receipt.plan, receipt.promise, receipt.accountant
    if plan.preliminary and not plan.together:
        accountant += (
            f", after {rounded_up(epsilon(Plan((), plan.preliminary), 0.0), 4)} of pure ε for the bounds (added up)"
        )
    person = f"one person with at most {public.rows_per_unit} rows (how many is not protected)"
    unit = person if public.rows_per_unit > 1 else ONE_ROW_OF_A_PERSON if request.grouped else "one row"
    return PrivacyReport(
        epsilon=promise.epsilon,
        delta=delta,
        asked=None if budget is None else (budget.epsilon, budget.delta),
        method=method.describe(public),
        calibration="none" if budget is None else "published" if request.published else "rigorous",
        accountant="none" if budget is None else accountant,
        unit=f"{unit}; replace-one adjacency: the number of rows, {public.n_rows:,}, is public",
        bill=bill_lines(plan, delta),
        assumptions=tuple(_assumptions(request, method, public, found, receipt)),
        who_saw_what=(
            *(seen_by or (SEEN_BY_THIS_PROCESS,)),
            *_faster_code(),
            "The method (the algorithm itself) saw the answers on the bill and public quantities.",
            "Recipients of the fitted model see coef_, intercept_, those of a teacher if there is one, "
            + ("what private steps learnt, " if request.steps else "")
            + "and this report"
            + ("." if budget is None else "; the guarantee covers all of it."),
        ),
        seeded=receipt.seeded,
        floating_point_slack=promise.arithmetic,
        rho=rho,
        asked_rho=rho_of(budget),
        renyi=_curve(budget, plan, rho),
        n_rows=public.n_rows,
        mu=None if budget is None else total_mu(plan),
        zero_out=None if budget is None or seen_by else _zero_out(method, public, plan, delta, promise.epsilon),
        bounds=() if budget is None else _bounds(request, public, found),
    )


def _zero_out(method: Method, public: PublicFacts, plan: Plan, delta: float, replaced: float) -> float | None:
    """The epsilon of zero-out adjacency, of rows in this process; None where it is not proved to be smaller."""
    n_entries = (public.n_features + 1) * public.loss.n_outputs
    found = zero_out_epsilon(plan, zero_out_shares(method), n_entries, delta)
    return found if found is not None and found < replaced else None


def _bounds(request: AskedOfFit, public: PublicFacts, found: dict[str, float]) -> tuple[BoundLine, ...]:
    """Who stated which bound."""
    values = {"row_l2": public.row_l2, "row_linf": public.row_linf, "label": public.label}
    return tuple(
        BoundLine(name, value, _origin(request, found, name)) for name, value in values.items() if value < math.inf
    )


def _origin(request: AskedOfFit, found: dict[str, float], name: str) -> str:
    """Who stated a bound: a key of `tulle.reports.report.ORIGINS`."""
    if name in found:
        return "estimated"
    if getattr(request.bounds, name) is None:
        return "implied"
    return "step" if request.steps and name != "label" else "declared"


def _curve(budget: Budget | None, plan: Plan, rho: float | None) -> Curve:
    """The Rényi curve of everything released. Where bounds were estimated, the plan is one of several."""
    if budget is None:
        return ()
    if plan.preliminary:
        return () if rho is None else straight_curve(rho)
    return reported_curve(plan)


def _assumptions(
    request: AskedOfFit, method: Method, public: PublicFacts, found: dict[str, float], receipt: Receipt
) -> list[str]:
    def origin(name: str) -> str:
        short = {"estimated": "estimated privately", "step": "set by a private step"}
        return short.get(found_by := _origin(request, found, name), found_by)

    private = request.budget is not None
    failed: tuple[str, ...] = ()
    if request.budget is not None and request.published:
        failed = method.failed_conditions(public, request.budget)
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
        "The numbers of rows and features, the settings and the bounds are public. Processing of the rows before fit "
        "(scaling, word weights, choosing features or settings by looking at them) is not covered."
    )
    schemes = {release.mechanism.sampling.scheme for release in receipt.plan if release.mechanism.sampling is not None}
    if private and schemes - {"shuffled"}:
        lines.append(
            "Answers are about random batches of rows. Which rows a batch held, and how many, was kept secret; the "
            "guarantee depends on that."
        )
    if private:
        lines += method.assumptions(public)
        what = slack_words(describe_mechanism(release.mechanism) for release in receipt.plan)
        lines.append(f"{arithmetic_line(receipt.promise.arithmetic, what)} Running time is not protected.")
        lines.append(
            "The noise came from a seed: the fit is reproducible, and not private against anyone who knows or guesses "
            "the seed, or who sees another fit with the same seed."
            if receipt.seeded
            else "The noise came from AES-128 in counter mode, keyed by the operating system."
        )
        lines += describe_fixed_nonce()
        if not is_built_in(request.loss):
            lines.append(
                f"The loss {of_one_output(request.loss)!r} is the user's own: its slope must treat each row by itself."
            )
    return [*lines, *request.preparation]


def _faster_code() -> tuple[str, ...]:
    """The statement of a report on code outside the trusted package that may have seen rows in this process."""
    found = hooks.installed()
    words = f"Faster code was installed ({'; '.join(found)}) and used where it applies; TULLE_PLAIN=1 disables it."
    return (words,) if found else ()
