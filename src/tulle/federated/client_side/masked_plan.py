"""The plan of a study of masked sums: what clients check of it, and its remaining part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tulle.accounting.calibration import calibrate
from tulle.accounting.row_limit import check_row_count
from tulle.federated.client_side.noise_share import GaussianShare
from tulle.federated.masked_terms import MaskedTerms, Study
from tulle.federated.messages import RefusedError
from tulle.trusted.accountants import epsilon
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.plan import Plan, Release, is_number
from tulle.trusted.sampling import Sampling

_MOST_RELEASES, _MOST_ANSWERS = 100, 10**7


def check_masked_plan(study: Study) -> float:
    """The epsilon that the plan proves at the study's delta.

    Raises
    ------
    RefusedError
        Unless every answer has a share of noise for the smallest set of honest clients, is about the rows of all
        clients, and all together prove no more than the terms promise.
    """
    terms, plan = study.terms, study.plan
    if plan.preliminary or plan.together or not 0 < len(plan.releases) <= _MOST_RELEASES:
        raise RefusedError("terms", "the plan is none of a masked study")
    for release in plan.releases:
        _check_release(release, terms, study.n_rows)
    proved = epsilon(plan, terms.delta)
    if not proved <= terms.epsilon * (1 + 1e-9):
        raise RefusedError("terms", f"the plan proves epsilon = {proved:.6g}, more than the terms promise")
    return proved


def _check_release(release: Release, terms: MaskedTerms, n_rows: int) -> None:
    share = release.mechanism if isinstance(release, Release) else None
    # By exact type: another mechanism would answer without a mask, or with another price.
    if type(share) is not GaussianShare or not (isinstance(release.name, str) and len(release.name) <= 100):
        raise RefusedError("terms", "the plan holds an answer that is no share of a masked sum")
    noise = share.noise
    if not (isinstance(noise, NoisePerSensitivity) and is_number(noise.value) and 0 < noise.value < 1e100):
        raise RefusedError("terms", "the plan holds an answer without noise")
    if not (type(release.count) is int and 1 <= release.count <= _MOST_ANSWERS):
        raise RefusedError("terms", "the plan holds an answer that is asked for no number of times")
    if type(share.shares) is not int or share.shares != terms.shares:
        raise RefusedError(
            "terms", f"the noise is for {share.shares!r} shares, and {terms.shares} of the smallest set are honest"
        )
    if type(share.rows) is not int or share.rows != n_rows:
        raise RefusedError("terms", "the plan is for another number of rows than the clients have together")
    batches = share.batches
    if batches is not None:
        whole = isinstance(batches, Sampling) and type(batches.batch) is int
        if not whole or (batches.n_rows, batches.rows_per_unit) != (n_rows, terms.rows_per_person):
            raise RefusedError("terms", "the plan has batches of other rows, or of another unit, than the study")
    try:
        check_row_count(n_rows)
    except ValueError as error:
        raise RefusedError("terms", str(error)) from None


def plan_left(plan: Plan, used: Mapping[str, int]) -> Plan:
    """The answers of a plan that are left when so many of each release were given."""
    return Plan(tuple(replace(release, count=release.count - used.get(release.name, 0)) for release in plan.releases))


def guess_plan(terms: MaskedTerms, n_rows: int) -> Plan:
    """One answer for the whole budget: what a study costs a ledger before its plan is known."""
    share = GaussianShare(NoisePerSensitivity(1.0), shares=terms.shares, rows=n_rows)
    return Plan(calibrate((Release("sum", share, 1),), terms.budget))


def plan_shares(releases: tuple[Release, ...], terms: MaskedTerms, n_rows: int) -> Plan:
    """The releases of a method as masked sums, retries included, with the least noise within the terms' budget.

    Raises
    ------
    ValueError
        Where a release cannot be a masked sum.
    """
    from tulle.trusted.mechanisms import Gaussian, SampledGaussian

    planned = []
    for release in releases:
        mechanism = release.mechanism
        if type(mechanism) not in (Gaussian, SampledGaussian):
            raise ValueError(
                f"the release {release.name!r} is no sum with Gaussian noise; use HardThresholding(noise='gaussian'), "
                "StochasticHardThresholding or ScreenRefine(noise='gaussian', refinement='steps')"
            )
        batches = mechanism.sampling
        if batches is not None and batches.scheme != "poisson":
            raise ValueError("clients draw their batches by themselves: use sampling='poisson'")
        if batches is not None and batches.unit_rate == 1:
            batches = None
        share = GaussianShare(mechanism.noise, shares=terms.shares, rows=n_rows, batches=batches)
        planned.append(Release(release.name, share, release.count + terms.retries))
    return Plan(calibrate(planned, terms.budget))
