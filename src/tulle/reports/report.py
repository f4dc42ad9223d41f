"""The privacy report of a fit: what a privacy officer reads and signs."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_DOWN, ROUND_UP, Context
from typing import Any

_WIDTH = 100


@dataclass(frozen=True)
class About:
    """Who asked what, when and of which data. All of it is public and typed in by people; "" is left unsaid.

    Attributes
    ----------
    title : str
    asked_by : str
        The person or office that asked for the fit.
    purpose : str
        What the model is for.
    made : str
        Date and time in ISO 8601.
    data : str
        The name of the data set.
    ledger : str
        What the ledger says after the fit; shown in internal reports only.
    """

    title: str = ""
    asked_by: str = ""
    purpose: str = ""
    made: str = ""
    data: str = ""
    ledger: str = ""


@dataclass(frozen=True)
class BillLine:
    """One kind of release on the bill.

    Attributes
    ----------
    release : str
        The name the method uses for it.
    mechanism : str
        What draws the noise.
    count : int
        How often it was used.
    noise_per_sensitivity : float
        Noise scale divided by the replace-one sensitivity; one figure for all uses of the line.
    epsilon_alone : float
        What these uses would cost if they were all that was released, at the report's delta.
    """

    release: str
    mechanism: str
    count: int
    noise_per_sensitivity: float
    epsilon_alone: float


@dataclass(frozen=True)
class PrivacyReport:
    """What was asked, what is proved for the noise really drawn, and under which assumptions.

    Attributes
    ----------
    epsilon : float
        The epsilon that is proved. inf means that nothing is promised.
    delta : float
        The delta at which `epsilon` is proved: all of it, what finite precision takes included.
    asked : tuple of (float, float) or None
        The (epsilon, delta) that was asked for; None for a fit without privacy.
    method : str
        The algorithm and its public settings.
    calibration : str
        "rigorous", "published" or "none".
    accountant : str
        Which argument proves `epsilon`.
    unit : str
        Whose data one promise covers.
    bill : tuple of BillLine
    assumptions : tuple of str
    who_saw_what : tuple of str
    seeded : bool
        Whether the noise came from a seed of the user's.
    floating_point_slack : float
        The part of `delta` that is there for finite precision; 0 where arithmetic is exact.
    """

    epsilon: float
    delta: float
    asked: tuple[float, float] | None
    method: str
    calibration: str
    accountant: str
    unit: str
    bill: tuple[BillLine, ...]
    assumptions: tuple[str, ...]
    who_saw_what: tuple[str, ...]
    seeded: bool
    floating_point_slack: float

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PrivacyReport:
        """The report of what `to_dict` or `to_json` gave; an error where anything is missing or unknown."""
        plain = dict(values)
        for name in ("epsilon", "delta", "floating_point_slack"):
            plain[name] = float(plain[name])
        plain["asked"] = None if plain["asked"] is None else tuple(float(figure) for figure in plain["asked"])
        plain["bill"] = tuple(
            BillLine(
                str(line["release"]),
                str(line["mechanism"]),
                int(line["count"]),
                float(line["noise_per_sensitivity"]),
                float(line["epsilon_alone"]),
            )
            for line in plain["bill"]
        )
        for name in ("assumptions", "who_saw_what"):
            plain[name] = tuple(str(text) for text in plain[name])
        report = cls(**plain)
        report._check()
        return report

    def _check(self) -> None:
        """Raise where a figure is none that a fit can have: a file may say anything."""
        figures = [(self.epsilon, self.delta, self.floating_point_slack)]
        figures += [] if self.asked is None else [(*self.asked, 0.0)]
        for epsilon, delta, slack in figures:
            if not (epsilon >= 0 and 0 <= delta < 1 and slack >= 0):
                raise ValueError(f"no promise is (epsilon, delta) = ({epsilon}, {delta})")
        if any(
            line.count < 0 or not line.noise_per_sensitivity >= 0 or not line.epsilon_alone >= 0 for line in self.bill
        ):
            raise ValueError("a line of the bill has a figure that none can have")
        words = (self.method, self.calibration, self.accountant, self.unit)
        if not all(isinstance(text, str) for text in words) or not isinstance(self.seeded, bool):
            raise ValueError("a report's words are not text")

    def to_json(self, indent: int | None = 2) -> str:
        """The report as JSON. Infinite figures are written as the string "inf"."""
        return json.dumps(finite(self.to_dict()), indent=indent, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        sections = [
            ("Promise", self._promise()),
            ("Unit", self.unit),
            ("Method", self.method),
            ("Proof", f"{self.accountant}; calibration: {self.calibration}"),
        ]
        lines = ["Privacy report", "=" * 14]
        for title, text in sections:
            lines += textwrap.wrap(
                text, _WIDTH, initial_indent=f"{title:<10}", subsequent_indent=" " * 10, break_long_words=False
            )
        lines += ["", "The bill", *self._table()]
        for title, items in (("Assumptions", self.assumptions), ("Who saw what", self.who_saw_what)):
            lines += ["", title]
            for item in items:
                lines += textwrap.wrap(item, _WIDTH, initial_indent="  - ", subsequent_indent="    ")
        return "\n".join(lines)

    def _promise(self) -> str:
        if self.asked is None:
            return "none. This fit used no noise (epsilon=None); the model may reveal any row it was trained on."
        asked = f"ε = {self.asked[0]:g}, δ = {rounded_up(self.asked[1])} was asked for; "
        if math.isinf(self.epsilon):
            return asked + "nothing is proved for the noise that was drawn."
        whole = f"δ = {rounded_up(self.delta)}{of_which(self.delta, self.floating_point_slack)}"
        proved = f"ε = {rounded_up(self.epsilon)}, {whole} is proved for the noise that was drawn."
        if self.epsilon > self.asked[0] * (1 + 1e-9):
            proved += " That is MORE than was asked for: the published noise is too small for its claim."
        odds = rounded_up(math.exp(self.epsilon), 4) if self.epsilon <= 700 else f"e^{rounded_up(self.epsilon)}"
        # Of somebody who does not know the others, a model of all of them may teach more: about people in general.
        return (
            f"{asked}{proved} Whoever sees the model, even knowing everybody else's data, can change the odds that "
            f"they give to any statement about one unit by a factor of at most {odds}, except with probability of the "
            "order of δ."
        )

    def _table(self) -> list[str]:
        head = ("release", "mechanism", "times", "noise / sensitivity", "ε if alone")
        body = [
            (
                line.release,
                line.mechanism,
                f"{line.count:,}",
                f"{line.noise_per_sensitivity:.5g}",
                rounded_up(line.epsilon_alone, 4),
            )
            for line in self.bill
        ]
        widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]
        return [
            "  "
            + "  ".join(f"{cell:<{w}}" if i < 2 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths)))
            for row in (head, *body)
        ]


def of_which(delta: float, slack: float) -> str:
    """What is said after a delta of which a part is there for finite precision; nothing where there is none.

    A slack above delta is no part of it: reports of earlier versions left it out of their delta.
    """
    if not 0 < slack <= delta:
        return ""
    return (
        " (for finite precision)" if slack == delta else f" (of which {rounded_up(slack, 2)} is for finite precision)"
    )


def arithmetic_line(slack: float) -> str:
    """What a report says of finite precision."""
    if slack == 0:
        return "Noise was drawn and added, and choices were made, without rounding errors: they take no part of δ."
    return f"Finite precision takes {rounded_up(slack, 2)} of δ, which is counted in the δ that is stated."


def rounded_up(value: float, digits: int = 5) -> str:
    """A few significant digits, never below the value: a printed promise must not be smaller than the proof."""
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    text = f"{value:.{digits}g}"
    if float(text) >= value:
        return text
    # No float in between: what is above the value in decimal digits is not below it as a float.
    up = Context(prec=digits, rounding=ROUND_UP).create_decimal_from_float(value)
    return f"{float(up):.{digits}g}"


def rounded_down(value: float, digits: int = 4) -> str:
    """A few significant digits, never above the value: an audit must not print more than it has shown."""
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    text = f"{value:.{digits}g}"
    if float(text) <= value:
        return text
    return f"{float(Context(prec=digits, rounding=ROUND_DOWN).create_decimal_from_float(value)):.{digits}g}"


def finite(value: Any) -> Any:
    """The value with infinite numbers written as strings, as JSON needs it."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
