"""Whether a client takes part in a study, and what that costs: by the terms, its ledger and public figures alone.

Nothing here has rows or labels. Dry runs (`AskWilling`) and enrolments go through the same checks, and the same code
works out the price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tulle.federated.client_side.approval import check_approved
from tulle.federated.client_side.client_ledger import ClientLedger, NotBilledError, QuotingLedger
from tulle.federated.client_side.machine_check import check_machine
from tulle.federated.client_side.study_plan import SNAPSHOT, STEP, check_range, get_noise, plan_study
from tulle.federated.client_side.study_state import StudyState
from tulle.federated.messages import RefusedError, check_delta
from tulle.federated.terms import Terms
from tulle.files.error_messages import describe_error, get_own_message
from tulle.ledgers.on_disk import FileLedger
from tulle.trusted.fit import Order, open_account
from tulle.trusted.plan import Budget, Plan


@dataclass(eq=False)
class Admission:
    """What a client's acceptance of studies depends on.

    Parameters
    ----------
    name : str
    n_rows, n_features : int
        Public.
    dense : bool
        Whether its rows are kept in a dense array; public.
    rows_per_person, max_epsilon, ledger, state, seed, tell :
        As in `tulle.federated.Client`.
    approved : frozenset of str or None
        From `tulle.federated.client_side.approval.read_approved`.
    """

    name: str
    n_rows: int
    n_features: int
    dense: bool
    rows_per_person: int
    max_epsilon: float | None
    ledger: FileLedger | None
    state: Path
    seed: int | None
    approved: frozenset[str] | None
    tell: Callable[[str], None]
    # The last plan and the digest of its terms: a dry run and the enrolment after it calibrate once.
    _planned: tuple[str, Plan] | None = field(default=None, init=False, repr=False)

    def plan(self, terms: Terms) -> Plan:
        """The plan of a study that this client accepts; raise for others."""
        check_approved(terms.digest, self.approved, terms.describe_fully, self.tell)
        self._check(terms)
        with refuse_other_columns(terms.study, self.tell):
            terms.model.facts(self.n_rows, self.n_features, self.dense, self.rows_per_person)
        check_machine(terms, self.state, self.tell)
        if self._planned is None or self._planned[0] != terms.digest:
            self._planned = terms.digest, plan_study(terms, self.n_rows, self.rows_per_person)
        if terms.budget is not None:
            check_range(terms, self.n_rows)
        for keep in (terms.n_nonzero, terms.remembered):
            terms.model.threshold(keep)  # an error comes before the bill
        return self._planned[1]

    def _check(self, terms: Terms) -> None:
        """Raise unless the budget and the bounds are such as this client accepts."""
        budget = terms.budget
        if budget is None:
            if self.ledger is not None:
                raise RefusedError("terms", "a study without noise; this client takes part in private ones only")
            return
        if self.ledger is None:
            raise RefusedError(
                "terms", "this client has no ledger to bill; it takes part in studies without noise only"
            )
        check_promise(budget, self.max_epsilon, self.n_rows, self.ledger)
        check = getattr(terms.model, "check_bounded", None)
        try:
            if check is not None:
                check()
        except ValueError as error:
            raise RefusedError("terms", str(error)) from None

    def first_state(self, terms: Terms, plan: Plan) -> StudyState:
        """The state of a study that is written down before its first round."""
        noises = get_noise(plan, STEP), get_noise(plan, SNAPSHOT)
        return StudyState(terms.digest, self.n_rows, self.rows_per_person, noises[0], snapshot_noise=noises[1])

    def check_state(self, state: StudyState | None, new: StudyState) -> None:
        """Raise where a study would go on with other rows, another unit or other noise than it began with."""
        if state is not None and state.agreed() != new.agreed():
            raise RefusedError("terms", "the rows, their unit or the noise are others than when this client enrolled")

    # --- the bill ---

    def order(self, terms: Terms, plan: Plan) -> Order:
        """A study, or the rest of one, as trusted code proves and bills it."""
        return Order(
            what=f"federated study {terms.study!r} ({terms.method}){self._ending(terms)}",
            plans=(plan,),
            delta=0.0 if terms.budget is None else terms.budget.delta,
            rows_per_unit=self.rows_per_person,
            seed=self.seed,
            budget=terms.budget,
        )

    def _ending(self, terms: Terms) -> str:
        return f", client {self.name!r} {terms.digest}"

    def ledgers(
        self,
        terms: Terms,
        answered: int = 0,
        *,
        bill_again: bool = False,
        number: int | None = None,
        kind: type[ClientLedger] = ClientLedger,
    ) -> tuple[ClientLedger, ...]:
        """The ledgers to bill: none without a ledger, in which case trusted code refuses all noise.

        The noise of a study differs from that of others, and from its own before a restart, by its digest and by how
        many rounds were answered.
        """
        if self.ledger is None:
            return ()
        words = (*(int(terms.digest[k : k + 8], 16) for k in range(0, 32, 8)), answered)
        return (kind(self.ledger, self._ending(terms), words, bill_again=bill_again, number=number),)

    def quote(self, terms: Terms, plan: Plan, *, bill_again: bool) -> None:
        """Raise where the ledger would refuse the study. The price is that of an enrolment: trusted code works it out,
        and stops before the bill."""
        ledgers = self.ledgers(terms, bill_again=bill_again, kind=QuotingLedger)
        with suppress(NotBilledError), open_account(self.order(terms, plan), ledgers=ledgers):
            pass  # nothing to bill without a ledger


@contextmanager
def refuse_other_columns(study: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Errors of a model about columns, as refusals; the client's own people are told what does not fit."""
    try:
        yield
    except (ValueError, TypeError) as error:
        tell(f"the rows do not go with {study!r}: {get_own_message(error) or describe_error(error)}")
        raise RefusedError("terms", "the rows here do not go with these terms") from None


def check_promise(budget: Budget, max_epsilon: float | None, n_rows: int, ledger: FileLedger) -> None:
    """Raise unless a study promises no more than a client allows, with a delta that says something about each row."""
    if max_epsilon is not None and budget.epsilon > max_epsilon:
        raise RefusedError("terms", f"epsilon = {budget.epsilon:g}; this client allows {max_epsilon:g} a study")
    check_delta(budget.delta, n_rows, ledger)
