"""What a client reports to its own people, and what its promise rests on."""

from __future__ import annotations

from tulle.federated.messages import Enrolled
from tulle.federated.terms import Terms
from tulle.reports.report import PrivacyReport, arithmetic_line, bill_lines, describe_fixed_nonce
from tulle.trusted.accountants import proof
from tulle.trusted.plan import Plan


def client_report(terms: Terms, enrolled: Enrolled, plan: Plan, billed: tuple[str, ...] = ()) -> PrivacyReport:
    """The promise of one client to its own people; `billed`: the place of the study in its ledger."""
    budget = terms.budget
    delta = 0.0 if budget is None else budget.delta
    proved, accountant = proof(plan, delta)
    return PrivacyReport(
        epsilon=proved,
        delta=delta,
        asked=None if budget is None else (budget.epsilon, budget.delta),
        method=terms.describe(),
        calibration="none" if budget is None else "rigorous",
        accountant="none" if budget is None else accountant,
        unit=f"{enrolled.unit} of this client; replace-one adjacency: the number of its rows, {enrolled.n_rows:,}, is "
        "public",
        bill=bill_lines(plan, delta),
        assumptions=assumptions(terms, enrolled.seeded),
        who_saw_what=describe_curious_server(terms),
        seeded=enrolled.seeded,
        floating_point_slack=0.0,
        billed=billed,
    )


def describe_curious_server(terms: Terms) -> tuple[str, ...]:
    """Who saw what, for reports."""
    if terms.budget is None:
        return ("Trust model: none. Clients sent models without noise, which may reveal any of their rows.",)
    return (
        "Trust model: curious server. Every client drew its own noise; rows and exact sums over them never left it.",
        "The server, and anyone who listens on the way to it, saw each client's noisy models after each of its rounds; "
        "the promise covers all of them, and everything computed from them.",
    )


def assumptions(terms: Terms, seeded: bool) -> tuple[str, ...]:
    """What the promise of a client, or of all of them, rests on."""
    if terms.budget is None:
        return ("There is no promise: the study was run without noise.",)
    return (
        "A person with rows at several clients is promised what these clients promise, added up.",
        "Every client's number of rows, the terms of the study (features, classes, bounds, settings) and who took part "
        "when are public. What was done to rows before, and how the terms were chosen, is not covered.",
        "Steps are on random batches, which each client drew and kept secret."
        if terms.batch is not None
        else "Every step is on all rows of a client.",
        "The whole study was billed, whether or not a client took part in all of its rounds.",
        f"{arithmetic_line(0.0)} This holds for any weights that the server sends. Running time is not protected.",
        "The noise came from a seed: it is not private against anyone who knows or guesses the seed."
        if seeded
        else "The noise came from AES-128 in counter mode, keyed by each client's operating system.",
        *describe_fixed_nonce(),
    )
