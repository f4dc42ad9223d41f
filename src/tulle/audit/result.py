"""What an audit says: a table, JSON, and a picture of the attack against what the claim allows."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tulle.accounting.bounds_from_counts import allowed_hit_rate, clopper_pearson, gaussian_hit_rate
from tulle.files.durable_writes import name_file
from tulle.files.number_text import finite, rounded_down
from tulle.trusted.events import FloatArray

JUDGES = ("any", "gaussian")


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on epsilon, and how it was found.

    Attributes
    ----------
    epsilon : float
        With judge "any", at least this much is given away, with probability `confidence` over the audit's own
        randomness. With judge "gaussian" this is the epsilon at `delta` of the bound `mu`: what every true claim of
        mu-GDP has to print, and no bound on the epsilon of other claims.
    delta : float
    confidence : float
    claimed : float or None
        The epsilon that the subject claims at `delta`; with judge "gaussian" the one of `claimed_mu`.
    attack : str
    pair : str
        The two data sets.
    runs : int
        Runs that were counted in each world, or canaries of a single run.
    best_possible : float
        The largest epsilon that this many runs could ever show.
    seconds : float
    judge : str
        "any", which assumes nothing, or "gaussian", which tests a claim of mu-GDP.
    mu, claimed_mu : float or None
        With judge "gaussian": no smaller mu is true, with probability `confidence`; and the mu that is claimed.
    epsilon_any : float or None
        With judge "gaussian": the bound on epsilon that judge "any" gives on the same runs. It has the stated
        confidence by itself, not together with `mu`, and refutes nothing here.
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
    false_rates: FloatArray = field(repr=False, compare=False, default_factory=lambda: np.zeros(0))
    hit_rates: FloatArray = field(repr=False, compare=False, default_factory=lambda: np.zeros(0))

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, at the stated confidence."""
        if self.mu is not None and self.claimed_mu is not None:
            return self.mu > self.claimed_mu
        return self.claimed is not None and self.epsilon > self.claimed

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python values, the curve of the attack included."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain |= {"false_rates": self.false_rates.tolist(), "hit_rates": self.hit_rates.tolist()}
        return plain | {"refuted": self.refuted}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AuditResult:
        """The result of what `to_dict` or `to_json` gave; an error where no audit can have found it."""
        values = {"judge": "any", "mu": None, "claimed_mu": None, "epsilon_any": None} | dict(values)
        plain = {name: values[name] for name in cls.__dataclass_fields__}
        for name in ("epsilon", "delta", "confidence", "best_possible", "seconds"):
            plain[name] = float(plain[name])
        for name in ("claimed", "mu", "claimed_mu", "epsilon_any"):
            plain[name] = None if plain[name] is None else float(plain[name])
        plain["runs"] = int(plain["runs"])
        for name in ("false_rates", "hit_rates"):
            plain[name] = np.asarray(plain[name], dtype=np.float64)
        found = cls(**plain)
        curves = (found.false_rates, found.hit_rates)
        of_gaussian = (found.mu, found.claimed_mu, found.epsilon_any)
        if not (
            0 <= found.epsilon < math.inf
            and 0 <= found.delta < 1
            and 0 < found.confidence < 1
            and found.runs >= 1
            and (found.claimed is None or found.claimed >= 0)
            and isinstance(found.attack, str)
            and isinstance(found.pair, str)
            and found.judge in JUDGES
            and all((value is not None) == (found.judge == "gaussian") for value in of_gaussian)
            and all(value is None or 0 <= value < math.inf for value in of_gaussian)
            and curves[0].shape == curves[1].shape
            and all(curve.ndim == 1 and np.all((curve >= 0) & (curve <= 1)) for curve in curves)
        ):
            raise ValueError("no audit can have these values")
        return found

    def to_json(self, indent: int | None = 2) -> str:
        """The result as JSON."""
        return json.dumps(finite(self.to_dict()), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        claim = "nothing was claimed" if self.claimed is None else f"claimed ε = {self.claimed:g}"
        found = f"ε >= {rounded_down(self.epsilon)} at δ = {self.delta:g}, confidence {self.confidence:g}"
        judges = [("judge", "any: nothing is assumed about the release")]
        if self.mu is not None and self.epsilon_any is not None:
            claim = f"claimed μ = {self.claimed_mu:g} (ε = {self.claimed:g} at this δ)"
            found = f"μ >= {rounded_down(self.mu)}, that is {found}"
            free = f"ε >= {rounded_down(self.epsilon_any)}, confidence {self.confidence:g} by itself"
            judges = [
                ("judge", "gaussian: bounds the μ of a claim of μ-GDP, and no ε of another claim"),
                ("", f"judge any on the same runs, which assumes nothing: {free}"),
            ]
        verdict = "" if self.claimed is None else ": THE CLAIM IS FALSE" if self.refuted else ": no violation was found"
        rows = (
            ("audited", found),
            *judges,
            ("verdict", claim + verdict),
            ("attack", self.attack),
            ("worlds", self.pair),
            ("runs", f"{self.runs:,} on each data set; the largest ε they could show is {self.best_possible:.3f}"),
            ("time", f"{self.seconds:.1f} s"),
        )
        return "\n".join(["Privacy audit", "=" * 13, *(f"{name:<9}{text}" for name, text in rows)])

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the attack's curve against what the claim allows; the suffix of the path sets the format.

        The band holds, at each point, the true hit rate with 95 % confidence.
        """
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
            axes.plot(grid, edge, color="#d1600a", label=f"allowed by {claim}")
            axes.fill_between(grid, edge, 1.0, color="#d1600a", alpha=0.08, linewidth=0)
        smallest = max(100 / max(self.runs, 1000), 1e-6)  # rates of few hits are mostly luck
        axes.set(xscale="log", yscale="log", xlim=(smallest, 1), ylim=(smallest, 1.3))
        for axis in (axes.xaxis, axes.yaxis):  # over a single decade the labels between would overlap
            axis.set_minor_formatter("")
        axes.set(xlabel="false-hit rate (the other data set)", ylabel="hit rate")
        bound = f"ε >= {rounded_down(self.epsilon, 3)}" if self.mu is None else f"μ >= {rounded_down(self.mu, 3)}"
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
