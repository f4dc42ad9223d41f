"""What an audit says: a table, JSON, and a picture of the attack against what the claim allows."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tulle.accounting.bounds_from_counts import allowed_hit_rate, clopper_pearson, gaussian_hit_rate, range_hit_rate
from tulle.audit.judges import JUDGES
from tulle.audit.one_run_power import OneRunPower, one_run_power
from tulle.audit.power import JUDGES_WITH_POWER, Power, expected_power
from tulle.files.durable_writes import name_file, write_durably
from tulle.files.number_text import finite, rounded_down
from tulle.trusted.events import FloatArray

# The attack of an event that was fixed before the runs, by a likelihood ratio: all runs are counted.
KNOWN_EVENT = "likelihood ratio"
# The fields that each judge fills, besides those that all have.
FIELDS_OF_JUDGE = {
    "any": (),
    "gaussian": ("mu", "claimed_mu", "epsilon_any"),
    "bounded_range": ("range", "claimed_range", "epsilon_any"),
    "curve": ("excess", "claimed_curve"),
}
_OWN_FIELDS = ("mu", "claimed_mu", "epsilon_any", "range", "claimed_range", "excess", "claimed_curve")


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on epsilon, and how it was found.

    Attributes
    ----------
    epsilon : float
        With judge "any", at least this much is given away, with probability `confidence` over the audit's own
        randomness, and likewise with judge "curve". With judge "gaussian" this is the epsilon at `delta` of the bound
        `mu`: what every true claim of mu-GDP has to print, and no bound on the epsilon of other claims; with judge
        "bounded_range" that of `range`.
    delta : float
    confidence : float
    claimed : float or None
        The epsilon that the subject claims at `delta`; with other judges than "any" the one that its claim implies.
    attack : str
    pair : str
        The two data sets.
    runs : int
        Runs that were counted in each world, or canaries of a single run.
    best_possible : float
        The largest epsilon that this many runs could ever show.
    seconds : float
    judge : str
        "any", which assumes nothing; "gaussian", "bounded_range" and "curve" test a claim of mu-GDP, of a bounded
        range, and of a whole trade-off curve.
    mu, claimed_mu : float or None
        With judge "gaussian": no smaller mu is true, with probability `confidence`; and the mu that is claimed.
    epsilon_any : float or None
        With judge "gaussian" or "bounded_range": the bound on epsilon that judge "any" gives on the same runs. It has
        the stated confidence by itself, not together with `mu`, and refutes nothing here.
    range, claimed_range : float or None
        With judge "bounded_range": no smaller range is true, with probability `confidence`; and the claimed range.
    excess : float or None
        With judge "curve": by how much a hit rate exceeds what the claim allows, at least, with probability
        `confidence`; in one run, the part of the guesses that is right beyond the largest that does not refute the
        claim. Above 0 the claim is false.
    claimed_curve : str or None
        With judge "curve": the claim, in words.
    guesses : int or None
        Of an audit in one run: how many canaries were guessed, and `runs` is how many there were. None for others.
    plan_mu : float or None
        Of a model that was audited without power: the mu of its plan, which judge "gaussian" would test.
    splits : int
        Into how many parts the runs were split, each counted with an attack that was chosen on the others, `runs` in
        each; 1 where one part, or all runs, were counted.
    """

    epsilon: float
    delta: float
    confidence: float
    claimed: float | None
    attack: str
    pair: str
    runs: int
    best_possible: float
    seconds: float
    judge: str = "any"
    mu: float | None = None
    claimed_mu: float | None = None
    epsilon_any: float | None = None
    range: float | None = None
    claimed_range: float | None = None
    excess: float | None = None
    claimed_curve: str | None = None
    guesses: int | None = None
    plan_mu: float | None = None
    splits: int = 1
    false_rates: FloatArray = field(repr=False, compare=False, default_factory=lambda: np.zeros(0))
    hit_rates: FloatArray = field(repr=False, compare=False, default_factory=lambda: np.zeros(0))

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, at the stated confidence."""
        if self.mu is not None and self.claimed_mu is not None:
            return self.mu > self.claimed_mu
        if self.range is not None and self.claimed_range is not None:
            return self.range > self.claimed_range
        if self.excess is not None:
            return self.excess > 0
        return self.claimed is not None and self.epsilon > self.claimed

    @property
    def power(self) -> Power | OneRunPower | None:
        """How large a violation so many runs, or canaries, would have shown; None for an infinite claim, and for judges
        whose power is not known."""
        words: dict[str, Any] = {"claimed": self.claimed}
        if self.judge != "any":
            words = {"claimed_mu": self.claimed_mu, "claimed_range": self.claimed_range}
        if any(claim is not None and math.isinf(claim) for claim in words.values()):
            return None
        levels: dict[str, Any] = {"delta": self.delta, "confidence": self.confidence}
        if self.guesses is not None:
            return None if self.judge == "curve" else one_run_power(self.runs, guesses=self.guesses, **levels, **words)
        if not len(self.false_rates) or self.judge not in JUDGES_WITH_POWER:
            return None
        counted = max(8, self.runs)
        levels |= {"judge": self.judge, "splits": self.splits}
        if self.attack == KNOWN_EVENT:
            return expected_power(counted, attack="likelihood_ratio", **levels, **words)
        return expected_power(counted * max(2, self.splits), **levels, **words)

    def _power_lines(self) -> list[str]:
        power = self.power
        if power is None:
            return []
        if self.refuted or not power.shortfall:
            return [str(power)]
        return [str(power), power.shortfall + self._stronger_judge(power)]

    def _stronger_judge(self, short: Power | OneRunPower) -> str:
        """That the judge of the plan's mu needs fewer runs, where it does."""
        if isinstance(short, OneRunPower) or self.judge != "any" or self.plan_mu is None or self.delta == 0:
            return ""
        terms: dict[str, Any] = {"delta": self.delta, "confidence": self.confidence}
        needed = expected_power(8, judge="gaussian", claimed_mu=self.plan_mu, **terms).runs_needed
        if needed is None or needed >= (short.runs_needed or math.inf):
            return ""
        return f"; judge gaussian, which tests the plan's μ = {self.plan_mu:.4g}, needs {needed:,} runs"

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python values, the curve of the attack and its power in words included."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain |= {"false_rates": self.false_rates.tolist(), "hit_rates": self.hit_rates.tolist()}
        return plain | {"refuted": self.refuted, "power": self._power_lines()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AuditResult:
        """The result of what `to_dict` or `to_json` gave; an error where no audit can have found it."""
        values = (
            {"judge": "any", "guesses": None, "plan_mu": None, "splits": 1} | dict.fromkeys(_OWN_FIELDS) | dict(values)
        )
        plain: dict[str, Any] = {name: values[name] for name in cls.__dataclass_fields__}
        for name in ("epsilon", "delta", "confidence", "best_possible", "seconds"):
            plain[name] = float(plain[name])
        for name in ("claimed", "mu", "claimed_mu", "epsilon_any", "range", "claimed_range", "excess", "plan_mu"):
            plain[name] = None if plain[name] is None else float(plain[name])
        plain["runs"], plain["splits"] = int(plain["runs"]), int(plain["splits"])
        plain["guesses"] = None if plain["guesses"] is None else int(plain["guesses"])
        for name in ("false_rates", "hit_rates"):
            plain[name] = np.asarray(plain[name], dtype=np.float64)
        found = cls(**plain)
        curves = (found.false_rates, found.hit_rates)
        own = {name for name in _OWN_FIELDS if getattr(found, name) is not None}
        numbers = (
            found.mu,
            found.claimed_mu,
            found.epsilon_any,
            found.range,
            found.claimed_range,
            found.plan_mu,
        )
        if not (
            0 <= found.epsilon < math.inf
            and 0 <= found.delta < 1
            and 0 < found.confidence < 1
            and found.runs >= 1
            and found.splits >= 1
            and (found.guesses is None or 0 < found.guesses <= found.runs)
            and (found.claimed is None or found.claimed >= 0)
            and isinstance(found.attack, str)
            and isinstance(found.pair, str)
            and found.judge in JUDGES
            and own == set(FIELDS_OF_JUDGE[found.judge])
            and all(value is None or 0 <= value < math.inf for value in numbers)
            and (found.excess is None or -1.1 <= found.excess <= 1)
            and isinstance(found.claimed_curve, str | None)
            and curves[0].shape == curves[1].shape
            and all(curve.ndim == 1 and np.all((curve >= 0) & (curve <= 1)) for curve in curves)
        ):
            raise ValueError("no audit can have these values")
        return found

    def to_json(self, indent: int | None = 2) -> str:
        """The result as JSON."""
        return json.dumps(finite(self.to_dict()), indent=indent, allow_nan=False)

    def _runs_made(self) -> str:
        if self.guesses is None:
            return f"{self.runs:,} on each data set"
        return f"one, with {self.runs:,} canaries and {self.guesses:,} guesses"

    def __str__(self) -> str:
        claim = "nothing was claimed" if self.claimed is None else f"claimed ε = {self.claimed:g}"
        found = f"ε >= {rounded_down(self.epsilon)} at δ = {self.delta:g}, confidence {self.confidence:g}"
        judges = [("judge", "any: nothing is assumed about the release")]
        implied = "" if self.claimed is None else f" (ε = {self.claimed:g} at this δ)"
        if self.mu is not None:
            claim = f"claimed μ = {self.claimed_mu:g}{implied}"
            found = f"μ >= {rounded_down(self.mu)}, that is {found}"
            judges = [("judge", "gaussian: bounds the μ of a claim of μ-GDP, and no ε of another claim")]
        elif self.range is not None:
            claim = f"claimed range = {self.claimed_range:g}{implied}"
            found = f"range >= {rounded_down(self.range)}, that is {found}"
            judges = [("judge", "bounded_range: bounds the range of a selection, and no ε of another claim")]
        elif self.excess is not None:
            claim = f"claimed {self.claimed_curve}{implied}"
            judges = [("judge", "curve: tests the whole claimed curve; its ε assumes nothing")]
        if self.epsilon_any is not None:
            free = f"ε >= {rounded_down(self.epsilon_any)}, confidence {self.confidence:g} by itself"
            judges.append(("", f"judge any on the same runs, which assumes nothing: {free}"))
        verdict = "" if self.claimed is None else ": THE CLAIM IS FALSE" if self.refuted else ": no violation was found"
        exceeded = []
        if self.excess is not None and self.refuted:
            exceeded = [("", f"a hit rate is at least {rounded_down(self.excess)} above what the claim allows")]
            if self.guesses is not None:
                exceeded = [("", f"{rounded_down(self.excess)} of the guesses are right beyond the claim's limit")]
        rows = (
            ("audited", found),
            *judges,
            ("verdict", claim + verdict),
            *exceeded,
            ("attack", self.attack),
            ("worlds", self.pair),
            ("runs", f"{self._runs_made()}; the largest ε they could show is {self.best_possible:.3f}"),
            *(("power" if not k else "", text) for k, text in enumerate(self._power_lines())),
            ("time", f"{self.seconds:.1f} s"),
            *([] if self.refuted else [("note", "an audit that finds no violation does not prove privacy")]),
        )
        return "\n".join(["Privacy audit", "=" * 13, *(f"{name:<9}{text}" for name, text in rows)])

    def save_page(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Write the result as one self-contained HTML page: the verdict, the claimed and the observed trade-off curve,
        the power, and what an audit does not say.

        Parameters
        ----------
        path : path
        title : str, default=""
            The heading; "" is "Privacy audit".
        """
        from tulle.reports.pages.audit_page import audit_page

        write_durably(path, audit_page(self.to_dict(), title).encode())

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the attack's curve against what the claim allows; the suffix of the path sets the format.

        The band holds, at each point, the true hit rate with 95 % confidence. An audit in one run has no curve, and is
        refused.
        """
        if not len(self.false_rates):
            raise ValueError("an audit in one run has no curve to draw; write its page with save_page")
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        grid = np.concatenate([np.geomspace(1e-7, 1e-2, 200), np.linspace(0.01, 1, 200)])
        figure, axes = plt.subplots(figsize=(5.2, 5.0), layout="constrained")
        axes.plot(self.false_rates, self.hit_rates, color="#0b6fb8", label=f"attack: {self.attack}")
        low, high = clopper_pearson(np.round(self.hit_rates * self.runs), self.runs, 0.025)
        axes.fill_between(self.false_rates, low, high, color="#0b6fb8", alpha=0.2, linewidth=0)
        axes.plot(grid, grid, color="#8a8a8a", linestyle=":", label="guessing")
        if self.claimed is not None and math.isfinite(self.claimed):
            edge, claim = allowed_hit_rate(grid, self.claimed, self.delta), f"ε = {self.claimed:g}, δ = {self.delta:g}"
            if self.claimed_mu is not None:
                edge, claim = gaussian_hit_rate(grid, self.claimed_mu), f"μ = {self.claimed_mu:.4g}"
            elif self.claimed_range is not None:
                edge, claim = range_hit_rate(grid, self.claimed_range), f"range {self.claimed_range:.4g}"
            axes.plot(grid, edge, color="#d1600a", label=f"allowed by {claim}")
            axes.fill_between(grid, edge, 1.0, color="#d1600a", alpha=0.08, linewidth=0)
        smallest = max(100 / max(self.runs, 1000), 1e-6)  # rates of few hits are mostly luck
        axes.set(xscale="log", yscale="log", xlim=(smallest, 1), ylim=(smallest, 1.3))
        for axis in (axes.xaxis, axes.yaxis):  # over a single decade the labels between would overlap
            axis.set_minor_formatter("")
        axes.set(xlabel="false-hit rate (the other data set)", ylabel="hit rate")
        bound = f"ε >= {rounded_down(self.epsilon, 3)}" if self.mu is None else f"μ >= {rounded_down(self.mu, 3)}"
        if self.range is not None:
            bound = f"range >= {rounded_down(self.range, 3)}"
        axes.set_title(f"audited {bound} ({100 * self.confidence:g} %)", loc="left", fontsize=11)
        axes.legend(frameon=False, loc="lower right", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        with name_file(path):
            figure.savefig(path)
        plt.close(figure)


def attack_curve(scores: FloatArray, other: FloatArray, points: int = 300) -> tuple[FloatArray, FloatArray]:
    """False-hit and hit rates of all thresholds, thinned to about `points`."""
    order = np.unique(np.geomspace(1, len(other), points).astype(int))
    thresholds = np.unique(np.sort(other)[::-1][order - 1])[::-1]
    # Ties count on both sides: the event is {score >= threshold}.
    rates = [1 - np.searchsorted(np.sort(world), thresholds, side="left") / len(world) for world in (other, scores)]
    return rates[0], rates[1]
