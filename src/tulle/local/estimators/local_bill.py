"""What a local study costs each user, and the report that says so.

A user is in one group and answers one question, so the study costs a user what the dearest channel costs
(docs/proofs/local_protocol.md, theorem 1). The figures come from the channels' events through the same accountants as
everywhere else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tulle.accounting.mechanism_words import describe_mechanism
from tulle.files.number_text import rounded_up
from tulle.ledgers.spending import note_release
from tulle.local.server_side.protocols import LabelCollection, LdpIht, Protocol
from tulle.local.user_side.channel import Channel, Unrandomised
from tulle.local.user_side.label_randomisers import GaussianLabel
from tulle.local.user_side.uniforms import open_interval
from tulle.methods.public_start import START_ASSUMPTION
from tulle.monitoring.log_events import log_event
from tulle.reports.report import PrivacyReport, arithmetic_line, bill_lines, describe_fixed_nonce
from tulle.reports.words import LABELS_PUBLISHED
from tulle.trusted.accountants import proof, prove
from tulle.trusted.billing import Entry, bill_open_ledgers
from tulle.trusted.events import Event, ExposedEvent, FloatArray, GaussianEvent, NoisePerSensitivity, PureEvent
from tulle.trusted.mechanisms import PRICES, Exact, Mechanism, Sensitivity, Then
from tulle.trusted.plan import Plan, Release


@dataclass(frozen=True)
class LocalAnswer(Mechanism):
    """One user's answer through a channel. `noise` is its worst standard deviation over twice the bound.

    Parameters
    ----------
    noise : NoisePerSensitivity
    channel : Channel
    """

    channel: Channel = field(default_factory=lambda: Unrandomised(math.inf, 1.0, 1))

    @classmethod
    def through(cls, channel: Channel) -> LocalAnswer:
        return cls(NoisePerSensitivity(math.sqrt(channel.worst_variance) / (2 * channel.bound)), channel)

    @property
    def inexact(self) -> float:
        return self.channel.rounding

    def release(
        self, exact: FloatArray, sensitivity: Sensitivity, generator: np.random.Generator, then: Then | None
    ) -> Any:
        """The channel's answers times its unit, one line a user; class numbers where it answers with classes."""
        words = generator.integers(0, 2**64, (len(exact), self.channel.n_uniforms), dtype=np.uint64)
        return self.channel.unit * self.channel.answer(exact, open_interval(words))


def _price(answer: LocalAnswer) -> tuple[Event, int]:
    if isinstance(answer.channel, GaussianLabel):
        return GaussianEvent(NoisePerSensitivity(answer.channel.scale / 2)), 1
    if isinstance(answer.channel, Unrandomised):
        return ExposedEvent(), 1
    return PureEvent(answer.channel.epsilon), 1


PRICES[LocalAnswer] = _price


@describe_mechanism.register
def _(mechanism: LocalAnswer) -> str:
    return f"{mechanism.channel.name.replace('_', ' ')}, one answer"


def releases(protocol: Protocol) -> tuple[Release, ...]:
    """The releases about the users of each kind of group; every user is in one."""
    lines = []
    if protocol.n_searching:
        lines.append(Release("bounds", LocalAnswer.through(protocol.yes_or_no), 1))
    # What a channel costs does not depend on its bound, which may be searched for yet.
    kind = "gradient" if isinstance(protocol, LdpIht) else "label"
    lines.append(Release(kind, LocalAnswer.through(protocol.make_channel(1.0)), 1))
    return tuple(lines)


def promise(protocol: Protocol) -> float:
    """The epsilon that is proved for every user, at the protocol's delta."""
    if protocol.budget is None:
        return math.inf
    return max(proof([release], protocol.delta)[0] for release in releases(protocol))


def bill(what: str, protocol: Protocol) -> tuple[Entry, ...]:
    """Bill a simulated study to every open ledger, before anybody answers. A ledger speaks of whole rows."""
    dearest = max(releases(protocol), key=lambda release: proof([release], protocol.delta)[0])
    plan, proved = Plan((dearest,)), promise(protocol)
    if isinstance(protocol, LabelCollection) or protocol.budget is None:
        plan, proved = Plan((dearest, Release("rows", Exact(), 1))), math.inf
    entries = bill_open_ledgers(what, [plan], (proved, protocol.delta), 1)
    if protocol.budget is not None:
        note_release()
    price = {"proved_epsilon": float(promise(protocol)), "proved_delta": float(protocol.delta)}
    names = tuple(release.name for release in releases(protocol))
    log_event(__name__, "release.billed", what=what, releases=names, n_ledgers=len(entries), **price)
    return entries


def arithmetic(protocol: Protocol) -> float:
    """The part of the protocol's delta that is there for finite precision."""
    if protocol.budget is None:
        return 0.0
    return max(prove(Plan((release,)), protocol.delta)[1] for release in releases(protocol))


def report(
    protocol: Protocol,
    method: str,
    n_users: int,
    accepted: int,
    *,
    seeded: bool = False,
    simulated: bool = False,
    labels_published: bool = False,
    preparation: tuple[str, ...] = (),
) -> PrivacyReport:
    """The privacy report of a study.

    Parameters
    ----------
    protocol : Protocol
        After its last round.
    method : str
        The algorithm and its public settings.
    n_users : int
        Who were asked.
    accepted : int
        Whose answers counted.
    seeded : bool, default=False
        Whether users' randomness came from a seed.
    simulated : bool, default=False
        Whether rows of an array played the users.
    labels_published : bool, default=False
        Whether the set of class labels was taken from users' labels.
    preparation : tuple of str, default=()
        What was done before and around the fit.
    """
    budget, proved, delta = protocol.budget, promise(protocol), protocol.delta
    lines = releases(protocol)
    labels_only = isinstance(protocol, LabelCollection)
    private = "label" if labels_only else "row"
    return PrivacyReport(
        epsilon=proved,
        delta=delta,
        asked=None if budget is None else (budget.epsilon, delta),
        method=method,
        calibration="none" if budget is None else "rigorous",
        accountant="none"
        if budget is None
        else "the most expensive of the answers, one for each user (groups are disjoint)",
        unit=f"one user's {private}, replaced by any other; {n_users:,} users were asked, {accepted:,} answered",
        bill=bill_lines(lines, delta),
        assumptions=(*_assumptions(protocol, seeded, simulated, labels_published), *preparation),
        who_saw_what=(
            f"The server saw {'features and ' if labels_only else ''}{'exact' if budget is None else 'randomised'} "
            f"{'labels' if labels_only else 'answers'}, one per user.",
            _who_saw_rows(private, simulated, budget is None),
            "Recipients of the fitted model see coef_, intercept_ and this report"
            + ("." if budget is None else "; the guarantee covers all of it."),
        ),
        seeded=seeded,
        floating_point_slack=arithmetic(protocol),
    )


def _precision(protocol: Protocol) -> str:
    taken = arithmetic(protocol)
    if taken and taken == protocol.delta:
        return f"All of δ = {rounded_up(taken)} is for finite precision: in exact arithmetic δ would be 0."
    return arithmetic_line(taken)


def _who_saw_rows(private: str, simulated: bool, exact: bool) -> str:
    if not simulated:
        return f"Only the user saw the user's {private}."
    held = "This was a simulation: the process that ran fit held all rows."
    return held if exact else f"{held} In a real study only the user sees the user's {private}."


def _assumptions(protocol: Protocol, seeded: bool, simulated: bool, labels_published: bool) -> list[str]:
    lines = []
    if isinstance(protocol, LabelCollection):
        if protocol.budget is not None:
            lines.append("Only labels are protected. The server knows users' features, and the model may reveal them.")
        if protocol.n_classes is not None:
            lines.append(LABELS_PUBLISHED if labels_published else "The set of class labels is assumed to be public.")
    if isinstance(protocol, LdpIht) and protocol.start is not None:
        lines.append(START_ASSUMPTION)
    if protocol.found:
        bounds = ", ".join(f"{name} {value:.4g}" for name, value in protocol.found.items())
        lines.append(f"Bounds were estimated from users who answered nothing else: {bounds}.")
    if protocol.budget is None:
        return lines
    towards_the_server = "holds against the server too, even if all other users collude with it."
    if simulated:
        first = "Local privacy, simulated: each answer was randomised separately, as a user's device would do it. In a "
        first += f"real study the guarantee {towards_the_server}"
        randomness = "Users' randomness came from the operating system's cryptographic source."
    else:
        first = f"Local privacy: each user randomised their own answer, so the guarantee {towards_the_server}"
        randomness = "Users run tulle.local.User, which draws from the operating system's cryptographic source unless "
        randomness += "configured otherwise; a server cannot check that."
    if seeded:
        randomness = "Users' randomness came from a seed: not private against anyone who knows or guesses it."
    return [
        first,
        "Each user answered at most one question. Groups were fixed by the users' names, before any answer.",
        *lines,
        f"{_precision(protocol)} Answers are integer multiples of a unit fixed beforehand. Who answers, and when, "
        "is not protected.",
        randomness,
        *describe_fixed_nonce(),
    ]
