"""Private Kaplan-Meier curves: how many of each group are still without an event, from one noisy histogram.

    cells   each person is in one of them: group × period of the event, or group × periods lived through
    answer  counts of the cells + noise: each person moves two of them by 1
    curve   at risk in period k = all who leave in it or later, less half of those whose observation ends in it;
            survival = product of 1 - events / at risk (the actuarial estimate)

Curves and intervals are computed from the answer. Proof: docs/proofs/survival.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tulle.files.class_labels import check_classes
from tulle.files.install_hints import import_pandas
from tulle.files.number_text import rounded_up
from tulle.ledgers.ledger import describe_entries
from tulle.ledgers.spending import note_release
from tulle.methods.loss_functions import facts_without_model
from tulle.monitoring.logged_account import open_logged_account
from tulle.reports.report import PrivacyReport
from tulle.reports.words import warn_of_large_epsilon
from tulle.survival.person_periods import check_edges, find_periods, read_outcomes
from tulle.survival.simulated_counts import draw_counts
from tulle.trusted import intake
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.fit import Order
from tulle.trusted.mechanisms import Laplace
from tulle.trusted.plan import Budget, Plan, Release
from tulle.trusted.randomness import seed_of
from tulle.trusted.rows import Rows
from tulle.tuning.metrics import CellCounts
from tulle.tuning.pure_release import check_confidence, check_epsilon, find_scale, report_release

_DRAWS = 2000


@dataclass(frozen=True, eq=False)
class KaplanMeier:
    """Survival curves of groups.

    Attributes
    ----------
    groups : tuple
        Declared ones; ("all",) where there are none.
    edges : array of shape (K + 1,)
    survival, low, high : array of shape (groups, K + 1)
        The part without an event at each edge, 1 at the first, and an interval for it: sampling and noise are both in
        it, up to what simulations from the released counts tell.
    at_risk, events : array of shape (groups, K)
        Noisy counts, not rounded; negative ones are possible.
    confidence : float
    privacy : PrivacyReport
    """

    groups: tuple[Any, ...]
    edges: FloatArray
    survival: FloatArray
    low: FloatArray
    high: FloatArray
    at_risk: FloatArray
    events: FloatArray
    confidence: float
    privacy: PrivacyReport

    def __str__(self) -> str:
        lines = [f"Survival, {100 * self.confidence:g} % intervals (ε = {rounded_up(self.privacy.epsilon)}, δ = 0)"]
        for number, group in enumerate(self.groups):
            for k in range(1, len(self.edges)):
                values = (one[number, k] for one in (self.survival, self.low, self.high))
                lines.append("{:<16} {:>10g}  {:.3f}  [{:.3f}, {:.3f}]".format(str(group), self.edges[k], *values))
        return "\n".join(lines)

    def to_frame(self) -> Any:
        """A line for each group and edge, as a DataFrame of pandas."""
        pd = import_pandas()
        n_groups, n_edges = self.survival.shape
        return pd.DataFrame(
            {
                "group": np.repeat(np.array(self.groups, dtype=object), n_edges),
                "time": np.tile(self.edges, n_groups),
                "survival": self.survival.ravel(),
                "low": self.low.ravel(),
                "high": self.high.ravel(),
            }
        )


@np.errstate(all="ignore")  # a warning about somebody's extreme time would be a release
def private_kaplan_meier(
    y: Any,
    edges: Any,
    *,
    epsilon: float,
    groups: Any = None,
    values: Sequence[Any] | None = None,
    confidence: float = 0.95,
    random_state: Any = None,
) -> KaplanMeier:
    """Kaplan-Meier curves of private times, purely `epsilon`-privately, billed to every open `Ledger`.

    Parameters
    ----------
    y : array of shape (n, 2), DataFrame of two columns, or structured array
        Times, and 1 for an event or 0 for the end of observation. One row for each person.
    edges : sequence of float
        The ends of the periods: 2 to 1,001 rising numbers, declared without looking at the times.
    epsilon : float
        In (0, inf). Each count gets Laplace noise of scale 2 / epsilon.
    groups : array of shape (n,) or None, default=None
        The group of each person.
    values : sequence or None, default=None
        The groups, declared: at least two. People of another one count as nothing. Needed with `groups`.
    confidence : float, default=0.95
        In (0, 1): of the intervals, each edge by itself.
    random_state : int, RandomState, Generator or None, default=None
        As in `tulle.private_score`.

    Returns
    -------
    KaplanMeier

    Examples
    --------
    >>> import numpy as np
    >>> from tulle.survival import private_kaplan_meier
    >>> rng = np.random.default_rng(0)
    >>> times, ends = rng.exponential(100, 5000), rng.uniform(50, 400, 5000)
    >>> y = np.column_stack([np.minimum(times, ends), times <= ends])
    >>> curve = private_kaplan_meier(y, [0, 30, 60, 90, 120], epsilon=1.0, random_state=0)
    >>> np.round(curve.survival[0], 2).tolist()
    [1.0, 0.74, 0.55, 0.41, 0.3]
    """
    check_epsilon(epsilon)
    check_confidence(confidence)
    if (groups is None) != (values is None):
        raise ValueError("pass groups and values together: which groups there are must not be read off the rows")
    warn_of_large_epsilon(epsilon, 4)
    ends = check_edges(edges)
    through, happens = find_periods(*read_outcomes(y), ends)
    n_periods, n_rows = len(ends) - 1, len(through)
    if n_rows < 2:
        raise ValueError(f"{n_rows} rows are too few; at least two people are needed")
    names: tuple[Any, ...] = ("all",)
    place = np.zeros(n_rows, dtype=np.intp)
    if groups is not None:
        declared = check_classes(values)
        cells = intake.read_cells(groups, "groups")
        if len(cells) != n_rows:
            raise ValueError(f"groups has {len(cells)} cells for {n_rows} rows")
        names, place = tuple(declared.tolist()), intake.encode_labels(cells, declared)
    width = 2 * n_periods + 1  # events of each period, and ends of observation after 0, ..., K periods
    cell = np.where(happens, through, n_periods + through) + width * place
    query = CellCounts(width * len(names))
    public = facts_without_model(n_rows, 1, 1)
    scale = find_scale(query, query.cells, epsilon, public)
    plan = Plan((Release("exits", Laplace(NoisePerSensitivity(1 / float(epsilon))), 1),))
    order = Order("private_kaplan_meier", (plan,), 0.0, 1, seed_of(random_state), Budget(epsilon))
    rows = Rows(np.where(place < 0, -1, cell).astype(np.float64)[:, None], np.zeros(n_rows), place >= 0)
    with open_logged_account(order, __name__, {"n_rows": n_rows}) as account:
        note_release()
        answer = account.ask(rows, public, plan, lambda ask: ask("exits", query))
    # From here on, a function of the answer.
    exits = np.asarray(answer).reshape(len(names), width)
    survival, at_risk, events = _curves(exits, n_periods)
    low, high = _intervals(exits, n_periods, scale, 1 - confidence)
    report = report_release(
        f"private_kaplan_meier: {len(names)} curve{'s' * (len(names) > 1)}",
        "exits",
        f"one person; replace-one adjacency: the number of people, {n_rows:,}, is public",
        float(epsilon),
        account.seeded,
        ("Each person has one row. The edges of periods and the groups were declared without looking at the rows.",),
        (
            "The process held the times and the exact counts.",
            "Recipients of the result see the noisy counts, the curves and this report; the guarantee covers all of "
            "it.",
        ),
    )
    return KaplanMeier(
        groups=names,
        edges=ends,
        survival=survival,
        low=np.minimum(low, survival),
        high=np.maximum(high, survival),
        at_risk=at_risk,
        events=events,
        confidence=float(confidence),
        privacy=replace(report, billed=describe_entries(account.entries)),
    )


def _curves(exits: FloatArray, n_periods: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Survival at each edge, people at risk and events in each period, of counts in the last axis."""
    events, ends = exits[..., :n_periods], exits[..., n_periods:]
    # Those who leave after k periods are at risk in the periods before; the last have lived through all.
    left = np.concatenate([events + ends[..., :-1], ends[..., -1:]], axis=-1)
    from_here = np.flip(np.cumsum(np.flip(left, -1), axis=-1), -1)[..., :-1]
    # Those whose observation ends within a period are at risk for half of it.
    at_risk = from_here - ends[..., :-1] / 2
    with np.errstate(all="ignore"):
        hazard = np.clip(np.where(at_risk > 0, events / at_risk, 1.0), 0.0, 1.0)
    hazard = np.where((at_risk <= 0) & (events <= 0), 0.0, hazard)
    survival = np.concatenate([np.ones((*hazard.shape[:-1], 1)), np.cumprod(1 - hazard, axis=-1)], axis=-1)
    return survival, at_risk, events


def _intervals(exits: FloatArray, n_periods: int, scale: float, error: float) -> tuple[FloatArray, FloatArray]:
    """Where survival lies: its released value, less how far sampling and noise move it in draws like the release."""
    counts = np.maximum(exits, 0.0)
    drawn = draw_counts(counts, scale, _DRAWS)
    # The curve that draws are about: that of the counts they are drawn from.
    centre = _curves(counts, n_periods)[0]
    moved = _curves(drawn, n_periods)[0] - centre
    released = _curves(exits, n_periods)[0]
    low, high = np.quantile(moved, [error / 2, 1 - error / 2], axis=0)
    return np.clip(released - high, 0.0, 1.0), np.clip(released - low, 0.0, 1.0)
