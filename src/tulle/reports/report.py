"""The privacy report of a fit: what a privacy officer reads and signs."""

from __future__ import annotations

import itertools
import json
import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tulle import __version__
from tulle.accounting.mechanism_words import THRESHOLDED, describe_mechanism
from tulle.files.archive import make_from_file
from tulle.files.notebook_html import html_details, html_facts, html_table
from tulle.files.number_text import finite, rounded_up
from tulle.ledgers.nonces import FIXED_NONCE, nonce_is_fixed
from tulle.trusted.accountants import proof
from tulle.trusted.plan import Release

_WIDTH = 100
_CURVE = "Rényi curve: the divergence ε(α) of all releases at order α"

# Who stated a bound, in words.
ORIGINS = {
    "declared": "declared by the user",
    "estimated": "estimated privately, on the bill",
    "implied": "follows from another bound",
    "schema": "from the declared schema",
    "step": "set by a private step that transforms the rows",
}

# For a report of which an epsilon alone is proved, made from one of a part of it.
NOTHING_ELSE_PROVED: dict[str, Any] = {"rho": None, "renyi": (), "mu": None, "zero_out": None}

# How a line begins that says that the number of features depends on the rows.
WIDTH_PUBLISHED = "The number of features, "

# How a line begins that names what was learnt from private rows without noise.
NOT_COVERED = "The guarantee does not cover"


@dataclass(frozen=True)
class About:
    """Who requested the fit, why, when and on which data. All public, and entered by the user; "" means not stated.

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
    target : str
        The column that the model predicts.
    ignored : str
        Columns of the table that were left out, as text.
    """

    title: str = ""
    asked_by: str = ""
    purpose: str = ""
    made: str = ""
    data: str = ""
    ledger: str = ""
    target: str = ""
    ignored: str = ""

    def default_title(self) -> str:
        """The title where none was given: target, data and purpose, as far as they are stated."""
        of, on, purpose = self.target.strip(), self.data.strip(), self.purpose.strip()
        words = (f"Model of {of}" if of else "Private model") + (f" on {on}" if on else "")
        title = f"{words}: {purpose}" if purpose else words if of or on else ""
        return "".join(one for one in title if one.isprintable())  # a ledger takes no other note


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
class BoundLine:
    """One bound that noise was scaled by.

    Attributes
    ----------
    what : {"row_l2", "row_linf", "label"}
        The Euclidean norm of rows, the magnitude of their entries, the magnitude of the target.
    value : float
        Above 0.
    origin : {"declared", "estimated", "implied", "schema", "step"}
        By the user, by a private estimate on the bill, by another bound, by a declared schema, or by a private step
        that transforms the rows.
    """

    what: str
    value: float
    origin: str


@dataclass(frozen=True)
class PrivacyReport:
    """The requested budget, the guarantee proved for the noise drawn, and its assumptions.

    Attributes
    ----------
    epsilon : float
        The epsilon that is proved. inf means no guarantee.
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
        The unit of data that the guarantee protects.
    bill : tuple of BillLine
    assumptions : tuple of str
    who_saw_what : tuple of str
    seeded : bool
        Whether the noise came from a seed of the user's.
    floating_point_slack : float
        The part of `delta` that is there for finite precision; 0 where arithmetic is exact.
    rho : float or None
        The rho for which everything released is proved to be rho-zCDP, at every delta; None where none is.
    asked_rho : float or None
        The rho that was asked for; None where the budget was in epsilon. `asked` then has an epsilon that it implies.
    renyi : tuple of (float, float)
        Orders > 1 and the Rényi divergence that is proved at each, rising in both; () where none is.
    billed : tuple of str
        The places of the fit in ledgers on disk, each as "entry 17, head 3fa9…".
    version : str
        The version of tulle that made the report; "" in reports of before, which do not say it.
    n_rows : int or None
        The number of rows, which is public; None where the report does not state it as a number.
    mu : float or None
        The mu for which everything released is proved to be mu-GDP (Gaussian differential privacy), at every delta.
    zero_out : float or None
        The epsilon that is proved at `delta` where one unit counts as nothing instead of being replaced; None where no
        smaller one than `epsilon` is proved for every release. Ledgers count `epsilon`.
    bounds : tuple of BoundLine
        Who stated which bound.
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
    rho: float | None = None
    asked_rho: float | None = None
    renyi: tuple[tuple[float, float], ...] = ()
    billed: tuple[str, ...] = ()
    version: str = __version__
    n_rows: int | None = None
    mu: float | None = None
    zero_out: float | None = None
    bounds: tuple[BoundLine, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PrivacyReport:
        """The report of what `to_dict` or `to_json` gave; an error where anything is missing or unknown."""
        plain = {"billed": (), "version": "", **values}  # older files do not have them
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
        for name in ("rho", "asked_rho", "mu", "zero_out"):  # not in reports of earlier versions
            plain[name] = None if plain.get(name) is None else float(plain[name])
        plain["n_rows"] = None if plain.get("n_rows") is None else int(plain["n_rows"])
        plain["bounds"] = tuple(
            BoundLine(str(line["what"]), float(line["value"]), str(line["origin"])) for line in plain.get("bounds", ())
        )
        plain["renyi"] = tuple((float(order), float(value)) for order, value in plain.get("renyi", ()))
        for name in ("assumptions", "who_saw_what", "billed"):
            plain[name] = tuple(str(text) for text in plain[name])
        report: PrivacyReport = make_from_file(cls, plain)
        report._check()
        return report

    def _check(self) -> None:
        """Raise if a value is impossible for a fit: a file may contain anything."""
        figures = [(self.epsilon, self.delta, self.floating_point_slack)]
        figures += [] if self.asked is None else [(*self.asked, 0.0)]
        for epsilon, delta, slack in figures:
            if not (epsilon >= 0 and 0 <= delta < 1 and slack >= 0):
                raise ValueError(f"not a valid privacy guarantee: (epsilon, delta) = ({epsilon}, {delta})")
        given = (self.rho, self.asked_rho, self.mu, self.zero_out, self.n_rows)
        measures = [value for value in given if value is not None] + [value for _, value in self.renyi]
        orders = [1.0, *(order for order, _ in self.renyi)]
        rising = all(before < after < math.inf for before, after in itertools.pairwise(orders))
        if not rising or not all(0 <= value < math.inf for value in measures):
            raise ValueError("rho, mu, the number of rows or the Rényi curve has an impossible value")
        if self.zero_out is not None and self.zero_out > self.epsilon:
            raise ValueError("the epsilon of zero-out adjacency is above that of replace-one adjacency")
        if not all(line.value > 0 and line.origin in ORIGINS for line in self.bounds):
            raise ValueError("a bound has an impossible value or origin")
        if any(
            line.count < 0 or not line.noise_per_sensitivity >= 0 or not line.epsilon_alone >= 0 for line in self.bill
        ):
            raise ValueError("a line of the bill has an impossible value")
        words = (self.method, self.calibration, self.accountant, self.unit, self.version)
        if not all(isinstance(text, str) for text in words) or not isinstance(self.seeded, bool):
            raise ValueError("a text field of the report is not a string")

    def to_json(self, indent: int | None = 2) -> str:
        """The report as JSON. Infinite figures are written as the string "inf"."""
        return json.dumps(finite(self.to_dict()), indent=indent, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        lines = ["Privacy report", "=" * 14]
        for title, text in self._sections():
            lines += textwrap.wrap(
                text, _WIDTH, initial_indent=f"{title:<10}", subsequent_indent=" " * 10, break_long_words=False
            )
        lines += ["", "The bill", *self._table(), *self._curve()]
        for title, items in (("Assumptions", self.assumptions), ("Who saw what", self.who_saw_what)):
            lines += ["", title]
            for item in items:
                lines += textwrap.wrap(item, _WIDTH, initial_indent="  - ", subsequent_indent="    ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The report as notebooks show it: the same words as `print` gives."""
        head, *body = self._cells()
        parts = [html_facts("Privacy report", self._sections()), html_table(head, body, "The bill")]
        if self.renyi:
            curve = [("α", *(f"{order:g}" for order, _ in self.renyi))]
            curve.append(("ε(α)", *(rounded_up(value, 3) for _, value in self.renyi)))
            parts.append(html_table(curve[0], curve[1:], _CURVE))
        parts += [html_details("Assumptions", self.assumptions), html_details("Who saw what", self.who_saw_what)]
        return "".join(parts)

    @property
    def slack_is_for(self) -> str:
        """What `floating_point_slack` is for."""
        return slack_words(line.mechanism for line in self.bill)

    def _sections(self) -> list[tuple[str, str]]:
        return [
            ("Guarantee", self._guarantee()),
            ("Unit", self.unit),
            ("Method", self.method),
            ("Proof", f"{self.accountant}; calibration: {self.calibration}"),
            *(("Ledger", text) for text in self.billed),
            *([("Library", f"tulle {self.version}")] if self.version else []),
        ]

    def _guarantee(self) -> str:
        if self.asked is None:
            return "none. This fit used no noise (epsilon=None); the model may reveal any row it was trained on."
        asked = f"{self.requested()} was requested; "
        if math.isinf(self.epsilon):
            return asked + "nothing is proved for the noise drawn."
        whole = f"δ = {rounded_up(self.delta)}{of_which(self.delta, self.floating_point_slack, self.slack_is_for)}"
        proved = f"ε = {rounded_up(self.epsilon)}, {whole} is proved for the noise drawn."
        if self.rho is not None:
            proved += f" ρ = {rounded_up(self.rho)} is proved (zero-concentrated differential privacy)."
        if self.mu is not None:
            proved += f" μ = {rounded_up(self.mu)} is proved (Gaussian differential privacy)."
        if self.zero_out is not None:
            proved += f" If one unit counts as nothing instead (zero-out), ε = {rounded_up(self.zero_out)} is proved."
        if self.is_weaker():
            proved += " That is MORE than requested: the published noise is too small for its claim."
        odds = rounded_up(math.exp(self.epsilon), 4) if self.epsilon <= 700 else f"e^{rounded_up(self.epsilon)}"
        # To someone who does not know the other data, a model may reveal more: facts about people in general.
        return (
            f"{asked}{proved} Anyone who sees the model, even knowing the data of everyone else, can change their odds "
            "for any "
            f"statement about one unit by a factor of at most {odds}, except with probability of the order of δ."
        )

    def requested(self) -> str:
        """The budget that was asked for, in its own measure."""
        if self.asked is None:
            return "no privacy"
        # Rounded like the proved value: otherwise an ε that is less than requested could look like more.
        name, value = ("ε", self.asked[0]) if self.asked_rho is None else ("ρ", self.asked_rho)
        return f"{name} = {rounded_up(value)}, δ = {rounded_up(self.asked[1])}"

    def is_weaker(self) -> bool:
        """Whether less is proved than was asked for, in the measure of the budget."""
        if self.asked is None:
            return False
        if self.asked_rho is not None:
            return self.rho is None or self.rho > self.asked_rho * (1 + 1e-9)
        return self.epsilon > self.asked[0] * (1 + 1e-9)

    def _curve(self) -> list[str]:
        """The Rényi curve in two lines."""
        if not self.renyi:
            return []
        cells = [(f"{order:g}", rounded_up(value, 3)) for order, value in self.renyi]
        widths = [max(map(len, pair)) for pair in cells]
        lines = ["  ".join(f"{pair[k]:>{width}}" for pair, width in zip(cells, widths)) for k in range(2)]
        return [
            "",
            _CURVE,
            f"  α     {lines[0]}",
            f"  ε(α)  {lines[1]}",
        ]

    def _cells(self) -> list[tuple[str, ...]]:
        """The bill, with its head."""
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
        return [head, *body]

    def _table(self) -> list[str]:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells)]
        return [
            "  "
            + "  ".join(f"{cell:<{w}}" if i < 2 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths)))
            for row in cells
        ]


def slack_words(mechanisms: Iterable[str]) -> str:
    """What a part of delta is for that mechanisms, by their words, do not prove by their noise."""
    return "thresholds of found values and finite precision" if THRESHOLDED in mechanisms else "finite precision"


def of_which(delta: float, slack: float, what: str = "finite precision") -> str:
    """The remark after a delta that includes a part for finite precision, or for `what`; "" without such a part.

    A slack above delta is no part of it: reports of earlier versions left it out of their delta.
    """
    if not 0 < slack <= delta:
        return ""
    return f" (for {what})" if slack == delta else f" (of which {rounded_up(slack, 2)} is for {what})"


def describe_fixed_nonce() -> tuple[str, ...]:
    """What a report says of the test hook that fixes nonces, where it is there."""
    line = f"The nonce of ledgers was fixed by a test hook ({FIXED_NONCE}): this fit is not private."
    return (line,) if nonce_is_fixed() else ()


def arithmetic_line(slack: float, what: str = "finite precision") -> str:
    """The statement of a report on finite precision, or on `what` a part of delta is for."""
    if slack == 0:
        return (
            "Noise was drawn and added, and choices were made, without rounding errors: no part of δ is used for them."
        )
    verb = "use" if " and " in what else "uses"
    return f"{what.capitalize()} {verb} {rounded_up(slack, 2)} of δ, included in the stated δ."


def bill_lines(releases: Iterable[Release], delta: float) -> tuple[BillLine, ...]:
    """The line of a report for each release: its noise, and its cost alone."""
    return tuple(
        BillLine(
            release.name,
            describe_mechanism(release.mechanism),
            release.count,
            release.mechanism.noise.value,
            proof([release], delta)[0],
        )
        for release in releases
    )
