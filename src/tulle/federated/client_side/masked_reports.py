"""Reports of studies of masked sums: the promise, who makes it, and its assumptions."""

from __future__ import annotations

from tulle.federated.masked_terms import Study
from tulle.reports.report import PrivacyReport, arithmetic_line, bill_lines, describe_fixed_nonce
from tulle.trusted.accountants import proof


def masked_report(
    study: Study, unit: str, method: str, seeded: bool, billed: tuple[str, ...] = (), more: tuple[str, ...] = ()
) -> PrivacyReport:
    """What a study promises. All clients check the same plan: the promise of each is that of all."""
    terms = study.terms
    proved, accountant = proof(study.plan, terms.delta)
    return PrivacyReport(
        epsilon=proved,
        delta=terms.delta,
        asked=(terms.epsilon, terms.delta),
        method=method,
        calibration="rigorous",
        accountant=accountant,
        unit=unit,
        bill=bill_lines(study.plan, terms.delta),
        assumptions=(*masked_assumptions(study, seeded), *more),
        who_saw_what=describe_masked(study),
        seeded=seeded,
        floating_point_slack=0.0,
        billed=billed,
    )


def masked_client_report(study: Study, client: str, seeded: bool, billed: tuple[str, ...]) -> PrivacyReport:
    """What one client promises its own people."""
    own = next(seat for seat in study.seats if seat.client == client)
    return masked_report(
        study,
        f"{describe_unit(study)}; this client has {own.n_rows:,}",
        study.terms.describe(),
        seeded,
        billed,
    )


def describe_unit(study: Study) -> str:
    k = study.terms.rows_per_person
    whom = "one row" if k == 1 else f"one person with at most {k} rows (how many is not protected)"
    return f"{whom} at one client; replace-one adjacency: the number of rows of every client is public"


def describe_masked(study: Study) -> tuple[str, ...]:
    """Who saw what."""
    return (
        "Trust model: masked sums. Every client added its share of the noise to its own sums and hid the result under "
        "masks, which cancel only in the sum over all members of a set of clients. Rows and exact sums never left it.",
        "The server saw masked answers, which tell nothing one by one, and their sums with the noise of all shares; it "
        "told clients where sums are taken, which are functions of earlier sums.",
    )


def masked_assumptions(study: Study, seeded: bool) -> tuple[str, ...]:
    """What the promise rests on."""
    terms, n = study.terms, len(study.seats)
    return (
        f"At most {terms.colluding:,} of the {n:,} clients tell the server what they know: at least "
        f"{n - terms.colluding:,} hospitals are honest, and at least {terms.shares:,} in every sum. With more that "
        "collude there is less noise than stated.",
        f"The study's certificate authority (SHA-256 {terms.authority[:16]}…) certified no false clients. Anyone who "
        "can make certificates can invent clients, and count as many colluding ones.",
        "Against the server the guarantee is computational: it rests on X25519, HKDF with SHA-256 and AES-256, and on "
        "clients keeping their keys secret. Against everyone who sees the model and the sums alone it rests on no "
        "cryptography.",
        "A dishonest client can spoil the result of the study; it cannot weaken the privacy of the others, except as "
        "one of the colluding clients.",
        "Shares of the noise, masks, and which question is answered when are the work of tulle.federated.client_side, "
        "outside the trusted package (proof: masked_sums). Sensitivities, noise and bills are the trusted package's.",
        f"{terms.retries:,} retries are paid for, whether or not they were used. The whole study was billed.",
        "A person with rows at several clients is protected as so many people, not as one.",
        "Every client's number of rows, the terms (features, classes, bounds, settings) and who took part when are "
        "public. What was done to rows before, and how the terms were chosen, is not covered.",
        f"{arithmetic_line(0.0)} Running time is not protected.",
        "The noise came from a seed: it is not private against anyone who knows or guesses the seed."
        if seeded
        else "The noise came from AES-128 in counter mode, keyed by each client's operating system.",
        *describe_fixed_nonce(),
    )
