"""The report of a study with a curious server: what each client stated of its own releases."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tulle.federated.client_side.client_reports import assumptions, describe_curious_server
from tulle.federated.client_side.study_plan import SNAPSHOT, STEP
from tulle.federated.messages import Enrolled
from tulle.federated.terms import Terms
from tulle.reports.report import BillLine, PrivacyReport


def study_report(terms: Terms, clients: Sequence[Enrolled]) -> PrivacyReport:
    """The promise of a study to everybody in it.

    A row lies at one client, and what the others send does not depend on it but through what was already released: the
    promise is that of its own client, and the largest of them holds for all (docs/proofs/federated.md).
    """
    budget = terms.budget
    seeded = any(client.seeded for client in clients)
    proved = max((client.epsilon or math.inf for client in clients), default=math.inf)
    total = sum(client.n_rows for client in clients)
    units = sorted({client.unit for client in clients})
    bill = tuple(line for client in clients for line in _lines(terms, client))
    return PrivacyReport(
        epsilon=proved,
        delta=0.0 if budget is None else budget.delta,
        asked=None if budget is None else (budget.epsilon, budget.delta),
        method=f"{terms.describe()}; {len(clients)} clients with {total:,} rows in all",
        calibration="none" if budget is None else "rigorous",
        accountant="none" if budget is None else "each client's own, of its own steps; the largest of them",
        unit=f"{' or '.join(units) or 'one row'} at one client; replace-one adjacency: the number of rows of every "
        "client is public",
        bill=bill,
        assumptions=(
            *assumptions(terms, seeded),
            *(("Each client proved its own promise; the server has its word for it.",) if budget is not None else ()),
        ),
        who_saw_what=describe_curious_server(terms),
        seeded=seeded,
        floating_point_slack=0.0,
    )


def _lines(terms: Terms, client: Enrolled) -> tuple[BillLine, ...]:
    """What one client released: its steps and, in studies with snapshots, these."""
    whole = client.epsilon or math.inf
    # Each alone costs no more than both: the figure for a client that did not state its own two.
    steps, snapshots = client.epsilons_alone or (whole, whole)
    step = BillLine(f"{client.client}: {STEP}", _mechanism(client, client.batch), terms.steps, client.noise, steps)
    if terms.snapshot_batch is None:
        return (step,)
    rows = _mechanism(client, terms.count_snapshot_rows(client.n_rows))
    return step, BillLine(f"{client.client}: {SNAPSHOT}", rows, terms.rounds, client.snapshot_noise, snapshots)


def _mechanism(client: Enrolled, rows: int) -> str:
    if rows == client.n_rows:
        return "Gaussian, all rows"
    return f"Gaussian, Poisson batches of about {rows:,} of {client.n_rows:,}"
