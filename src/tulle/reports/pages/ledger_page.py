"""The page of a ledger: the spent and the remaining budget, over time, by analyst and by purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING

from tulle.files.number_text import rounded_down, rounded_up
from tulle.reports.pages.charts import WIDE, Scale, apart, figure, path, segment, written
from tulle.reports.pages.markup import Markup, breakable, element, join_markup
from tulle.reports.pages.page import bar, notice, page, section, table

if TYPE_CHECKING:
    from tulle.ledgers.entries import LedgerEntry
    from tulle.ledgers.on_disk import FileLedger

_BANNER = "Not for release: this page is for those who keep the rows."


def ledger_page(ledgers: Sequence[FileLedger]) -> str:
    """The page of the ledgers of some data sets.

    Parameters
    ----------
    ledgers : sequence of FileLedger

    Returns
    -------
    str
        One self-contained HTML file, for those who keep the rows.
    """
    facts = [("Data sets", f"{len(ledgers):,}"), ("Entries", f"{sum(len(one.entries) for one in ledgers):,}")]
    body = join_markup(_account(number, ledger) for number, ledger in enumerate(ledgers))
    return page(about=None, kind="A privacy ledger", title="What was released", facts=facts, body=body, banner=_BANNER)


def earlier_releases(ledger: FileLedger) -> list[Markup]:
    """What was released about a data set, by whom, and the remaining budget; for internal pages."""
    return [_spent(ledger), *([_entry_table(ledger.entries)] if ledger.entries else [])]


def _spent(ledger: FileLedger) -> Markup:
    from tulle.ledgers.remaining import remaining

    cap = f"The cap is ε = {rounded_up(ledger.cap.epsilon)} at δ = {rounded_up(ledger.cap.delta)}."
    spent = f"{rounded_up(100 * ledger.share, 3)} % is spent. {_sentence(str(remaining(ledger)))}."
    return element("p", f"{cap} {spent}")


def _account(number: int, ledger: FileLedger) -> Markup:
    parts = [_spent(ledger), bar(min(1.0, ledger.share))]
    if not ledger.entries:
        return section(f"data-{number}", ledger.dataset, *parts, element("p", "Nothing was released yet."))
    proved = (
        f"If no fit was chosen after seeing the result of another, all entries together are proved to be "
        f"({rounded_up(ledger.epsilon)}, {rounded_up(ledger.cap.delta)})-private; otherwise the cap holds."
    )
    parts += [
        element("p", proved),
        _chart(number, ledger),
        _sums("By analyst", "Analyst", ledger.entries, lambda entry: entry.analyst),
        _sums("By purpose", "Purpose", ledger.entries, lambda entry: entry.purpose),
        _entries(ledger.entries),
        notice(
            "How to check this ledger",
            f"Entry {ledger.entries[-1].number:,} has the head {ledger.head}. Keep it elsewhere, and compare later: "
            f"tulle ledger verify FOLDER --head {ledger.head[:16]}",
            loud=False,
        ),
    ]
    return section(f"data-{number}", ledger.dataset, *parts)


def _chart(number: int, ledger: FileLedger) -> Markup:
    """The share of the cap that is spent, over time: a line that rises at each entry."""
    times = [datetime.fromisoformat(entry.time).timestamp() for entry in ledger.entries]
    shares = list(accumulate(entry.share for entry in ledger.entries))
    first, last = min(times), max(times)
    room = max(3600.0, 0.04 * (last - first))

    def draw(width: int) -> tuple[Markup, float]:
        x = Scale(first - room, last + room, 52.0, width - 16.0)
        y = Scale(0.0, max(1.0, shares[-1]), 220.0 if width == WIDE else 180.0, 26.0)
        parts = []
        for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
            parts.append(
                segment(x.start, y.place(tick), x.stop, y.place(tick), "grid" if tick < 1 else "reference dashed")
            )
            parts.append(written(x.start - 8, y.place(tick) + 4, f"{100 * tick:g} %", "end", "soft"))
        steps = [(x.start, y.start)]
        for at, share in zip(times, shares):
            steps += [(x.place(at), steps[-1][1]), (x.place(at), y.place(share))]
        steps.append((x.stop, steps[-1][1]))
        parts.append(path(steps, "curve series s0"))
        for at in apart(sorted({*times}), x, 110.0):
            shown = datetime.fromtimestamp(at).date().isoformat()
            parts.append(segment(x.place(at), y.start, x.place(at), y.start + 5, "frame"))
            anchor = "end" if x.place(at) > x.stop - 40 else "start" if x.place(at) < x.start + 40 else "middle"
            parts.append(written(x.place(at), y.start + 20, shown, anchor, "soft"))
        parts.append(path([(x.start, y.stop), (x.start, y.start), (x.stop, y.start)], "frame"))
        parts.append(written(2, 14, "share of the cap that is spent; dashed: the cap"))
        return join_markup(parts), y.start + 32

    words = f"{len(times):,} entries from {ledger.entries[0].time[:10]} to {ledger.entries[-1].time[:10]}."
    return figure(f"ledger-{number}", f"Spending of {ledger.dataset}", words, draw)


def _sums(title: str, name: str, entries: Sequence[LedgerEntry], of: Callable[[LedgerEntry], str]) -> Markup:
    """How much of the cap each name spent, the largest share first."""
    found: dict[str, list[float]] = {}
    for entry in entries:
        found.setdefault(of(entry) or "not stated", []).append(entry.share)
    ordered = sorted(found.items(), key=lambda one: -sum(one[1]))
    rows = [
        (element("bdi", breakable(who)), f"{len(shares):,}", f"{100 * sum(shares):.2f} %", bar(min(1.0, sum(shares))))
        for who, shares in ordered
    ]
    head = [name, "Entries", "Of the cap", ""]
    return join_markup(
        [element("h3", title), table(f"Share of the cap by {name.lower()}", head, rows, numeric={1, 2}, bars=3)]
    )


def _entries(entries: Sequence[LedgerEntry]) -> Markup:
    return element("details", element("summary", f"All {len(entries):,} entries"), _entry_table(entries))


def _entry_table(entries: Sequence[LedgerEntry]) -> Markup:
    rows: Iterable[Sequence[str]] = [
        (
            f"{entry.number:,}",
            entry.time.replace("+00:00", " UTC").replace("T", " "),
            element("bdi", breakable(entry.what)),
            element("bdi", "; ".join(text for text in (entry.analyst, entry.purpose, entry.note) if text) or "—"),
            rounded_up(entry.epsilon, 4),
            rounded_up(entry.delta, 3),
            f"{rounded_down(100 * entry.share, 3)} %",
            entry.head[:12],
        )
        for entry in reversed(entries)
    ]
    head = ["Entry", "Time", "Release", "For", "ε", "δ", "Of the cap", "Head"]
    return table("All entries, the latest first", head, list(rows), numeric={0, 4, 5, 6})


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"
