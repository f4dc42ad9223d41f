"""Plots with matplotlib, which is imported on use: comparisons, weights with intervals, a privacy bill, a ledger.

Each function draws into `ax`, or into a new figure, and returns the Axes: save with ``ax.figure.savefig("plot.png")``.
Plots show the values that the object holds: a comparison on private rows is not for release, nor is a picture of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tulle.files.install_hints import import_pyplot
from tulle.files.number_text import rounded_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RESULTS_DEPEND_ON = "nothing"

# Two-sided 95 % of the normal law; the trials are few, and the caption of a figure should say how many.
_Z = 1.96
# The colours of Okabe and Ito, which most colour-blind people can tell apart, and a marker for each line.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    if ax is not None:
        return ax
    drawn: Axes = import_pyplot().subplots(figsize=(width, height), layout="constrained")[1]
    return drawn


def _mean(row: Mapping[str, Any], metric: str | None) -> tuple[float, float]:
    """The mean of a score over trials and half of its 95 % interval; 0 where there is one trial."""
    found = row if metric is None else row["metrics"][metric]
    mean, error = float(found["mean"]), float(found["standard_error"])
    return mean, _Z * error if math.isfinite(error) else 0.0


def plot_comparison(summary: Mapping[str, Any], metric: str | None = None, *, ax: Axes | None = None) -> Axes:
    """A score against epsilon, a line for each method; bars are 95 % intervals of the means over trials.

    Parameters
    ----------
    summary : mapping
        What comparison.json of `tulle compare` holds, or `ComparisonResult.summary`.
    metric : str or None, default=None
        One of its further metrics; None: the error.
    ax : matplotlib Axes or None, default=None
    """
    ax = _axes(ax, 8.0, 4.2)
    rows = [row for row in summary["rows"] if math.isfinite(_mean(row, metric)[0])]
    for k, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        own = sorted((row["epsilon"], *_mean(row, metric)) for row in rows if row["method"] == method)
        epsilons, means, spread = zip(*own)
        style: dict[str, Any] = {"color": _COLOURS[k % len(_COLOURS)], "marker": _MARKERS[k % len(_MARKERS)]}
        ax.errorbar(epsilons, means, yerr=spread, capsize=3, markersize=5, label=method, **style)
    references = [(f"{row['method']} (not private)", row) for row in summary.get("references", ())]
    references += [("no privacy", summary["no_privacy"]), ("null model", summary["null_model"])]
    for (name, row), dashes in zip(references, ("-.", "--", ":") * len(references)):
        if row is not None and math.isfinite(_mean(row, metric)[0]):
            ax.axhline(_mean(row, metric)[0], color="#666666", linestyle=dashes, linewidth=1, label=name)
    if rows:
        budgets = sorted({row["epsilon"] for row in rows})
        ax.set_xscale("log")
        ax.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
        ax.minorticks_off()
    ax.set_xlabel("ε")
    ax.set_ylabel(summary["metric"] if metric is None else metric)
    ax.set_title(f"{summary['data']}: means of {summary['trials']} trials, 95 % intervals", fontsize=10)
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))  # outside: the lines may be anywhere
    return ax


def plot_weights(model: Any, *, names: Any = None, of: Any = None, largest: int = 30, ax: Axes | None = None) -> Axes:
    """The weights of a fitted model, a line for each feature: with intervals where it was fitted with inference.

    A function of what the fit released. An interval that is open to a side has an arrow there.

    Parameters
    ----------
    model : fitted linear model, or the result of its `summary()`
    names : sequence of str or None, default=None
        The names of all features; as in `named_weights`.
    of : class label or None, default=None
        As in `named_weights`.
    largest : int, default=30
        At least 1: how many weights are shown, by magnitude; of a summary the first ones.
    ax : matplotlib Axes or None, default=None
    """
    if largest < 1:
        raise ValueError(f"largest must be at least 1, got {largest}")
    summary = model if hasattr(model, "lines") else None
    if summary is None and getattr(model, "inference", False):
        summary = model.summary() if names is None else model.summary(names=names)
    if summary is None:
        weights = [(name, value, math.nan, math.nan) for name, value in model.named_weights(names, of=of)]
        label, null = "weight", 0.0
    else:
        weights = [(line.name, line.estimate, line.low, line.high) for line in summary.lines]
        label, null = f"{summary.scale}, {100 * summary.level:g} % intervals", summary.null_value
    shown = weights[:largest]
    ax = _axes(ax, 6.4, 1.2 + 0.24 * max(len(shown), 1))
    least, most = _ends(shown, null)
    for k, (_, value, low, high) in enumerate(shown):
        if not (math.isnan(low) or math.isnan(high)):
            ax.plot([max(low, least), min(high, most)], [k, k], "-", color=_COLOURS[0], linewidth=1.5)
            for end, is_open, marker in ((least, low < least, "<"), (most, high > most, ">")):
                if is_open:
                    ax.plot([end], [k], marker, color=_COLOURS[0], markersize=6)
        ax.plot([value], [k], "o", color=_COLOURS[0], markersize=5)
    ax.axvline(null, color="#666666", linewidth=1)
    if null == 1.0:
        ax.set_xscale("log")
    ax.set_yticks(range(len(shown)), [name for name, *_ in shown])
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_xlabel(label if len(shown) == len(weights) else f"{label}; {len(shown)} of {len(weights):,} are shown")
    return ax


def _ends(weights: Sequence[tuple[str, float, float, float]], null: float) -> tuple[float, float]:
    """Where intervals that are open end in the picture: beyond all other figures."""
    figures = [figure for _, *line in weights for figure in line if math.isfinite(figure) and (not null or figure > 0)]
    low, high = min(figures, default=null), max(figures, default=null)
    if null:  # ratios, on a logarithmic scale
        return low / 1.3, high * 1.3
    room = 0.08 * max(high - low, 1e-12)
    return low - room, high + room


def plot_bill(report: Any, *, ax: Axes | None = None) -> Axes:
    """What each kind of release of a fit would cost alone, compared with the epsilon that is proved for all of them.

    Costs compose to less than their sum, so the bars add up to more than the line.

    Parameters
    ----------
    report : PrivacyReport, or a fitted model that has one
    ax : matplotlib Axes or None, default=None
    """
    report = getattr(report, "privacy_", report)
    if not math.isfinite(report.epsilon):
        raise ValueError("no epsilon is proved for this fit, so there is no bill to plot")
    ax = _axes(ax, 6.4, 1.4 + 0.4 * len(report.bill))
    labels = [f"{line.release} ({line.count:,} ×)" for line in report.bill]
    costs = [line.epsilon_alone for line in report.bill]
    finite = [cost if math.isfinite(cost) else 0.0 for cost in costs]
    ax.barh(range(len(costs)), finite, color=_COLOURS[0], height=0.6)
    for k, cost in enumerate(costs):
        if not math.isfinite(cost):
            ax.text(0, k, " none is proved alone", va="center", fontsize=8)
    ax.axvline(report.epsilon, color=_COLOURS[1], linestyle="--", label=f"all together: ε = {_up(report.epsilon)}")
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_xlabel(f"ε of these releases alone, at δ = {_up(report.delta)}")
    ax.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    return ax


def plot_ledger(ledger: Any, *, ax: Axes | None = None) -> Axes:
    """The share of a ledger's cap that is spent, release by release; by time for ledgers on disk.

    Parameters
    ----------
    ledger : Ledger or FileLedger
    ax : matplotlib Axes or None, default=None
    """
    ax = _axes(ax, 6.4, 3.6)
    entries: Sequence[Any] = getattr(ledger, "entries", ())
    shares = [share for _, share in ledger.fits]
    spent = [100 * sum(shares[: k + 1]) for k in range(len(shares))]
    if entries:
        from matplotlib.dates import ConciseDateFormatter

        times: Any = [datetime.fromisoformat(entry.time) for entry in entries]
        ax.step(times, spent, where="post", color=_COLOURS[0], marker="o", markersize=4)
        formatter: Any = ConciseDateFormatter
        ax.xaxis.set_major_formatter(formatter(ax.xaxis.get_major_locator()))
        ax.set_xlabel("time (UTC)")
    else:
        ax.step(range(len(spent) + 1), [0, *spent], where="post", color=_COLOURS[0], marker="o", markersize=4)
        ax.set_xticks(range(len(spent) + 1))
        ax.set_xlabel("releases")
    ax.axhline(
        100,
        color=_COLOURS[1],
        linestyle="--",
        label=f"cap: ε = {rounded_up(ledger.cap.epsilon)}, δ = {rounded_up(ledger.cap.delta)}",
    )
    ax.set_ylim(0, 108)
    ax.set_ylabel("spent, % of the cap")
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.0, 0.9))
    return ax


def _up(figure: float) -> str:
    return rounded_up(figure, 4)
