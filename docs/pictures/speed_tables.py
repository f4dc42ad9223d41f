"""Writes the tables of docs/speed.md from docs/speed/*.csv: `python docs/pictures/speed_tables.py`.

A table stands between ``<!-- table: name -->`` and ``<!-- end of table -->``; a table whose file is not there is left
as it is.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

PAGE = Path(__file__).resolve().parent.parent / "speed.md"
SPEED = PAGE.parent / "speed"

# --- growth -----------------------------------------------------------------------------------------------------------

METHODS = {
    "fit_again": "the default",
    "hard_thresholding": "hard thresholding",
    "screen_refine": "screen and refine",
    "frank_wolfe": "Frank-Wolfe",
    "stochastic_hard_thresholding": "stochastic hard thresholding",
}
# Fits over rows that are in several places.
SPREAD = {
    "clients": {
        "curious_server": "federated, clients add their own noise",
        "masked_sums": "federated, masked sums",
    },
    "partitions": {"blocks": "a folder of blocks", "dask": "Dask"},
}
AXES = {"n": "rows n", "d": "features d", "per_row": "non-zeros a row", "s": "weights kept s", "t": "T"}
MEASURES = {"seconds": "time", "megabytes": "memory"}
# Above this, a size counts as one that a fit grows faster than linearly in.
MOST = 1.2
Points = list[tuple[float, float]]


def table_of(name: str) -> list[dict[str, str]]:
    with (SPEED / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def lines() -> dict[tuple[str, str, str], Points]:
    """(axis, method, measure) with its points, in order."""
    found: dict[tuple[str, str, str], Points] = {}
    for row in table_of("growth"):
        varied = "parts" if row["axis"] in SPREAD else row["axis"]
        for measure in MEASURES:
            place = (row["axis"], row["method"], measure)
            found.setdefault(place, []).append((float(row[varied]), float(row[measure])))
    return {place: sorted(points) for place, points in found.items()}


def exponent(points: Points) -> float:
    """The slope of the upper half of a line on logarithmic scales, the middle point included."""
    x, y = np.log(np.array(points[len(points) // 2 :])).T
    return float(np.polyfit(x, y, 1)[0])


def shown_exponent(points: Points) -> str:
    """Rounded before it is printed: no "-0.00"."""
    return f"{round(exponent(points), 2) + 0.0:.2f}"


def growth() -> list[list[str]]:
    measured = lines()
    rows = [["size", "of", *METHODS.values()]]
    for axis, words in AXES.items():
        for measure, of in MEASURES.items():
            rows.append([words, of, *(shown_exponent(measured[axis, method, measure]) for method in METHODS)])
    return rows


def growth_of_parts() -> list[list[str]]:
    """The same for clients and partitions, with the least and the most of them."""
    measured = lines()
    rows = [["number of", "way", "from", "to", "time, from (s)", "time, to (s)", "exponent of time", "of memory"]]
    for axis, ways in SPREAD.items():
        for way, words in ways.items():
            if (axis, way, "seconds") not in measured:
                continue
            seconds, megabytes = (measured[axis, way, measure] for measure in MEASURES)
            (least, first), (most, last) = seconds[0], seconds[-1]
            counts = [f"{least:.0f}", f"{most:.0f}", f"{first:.2g}", f"{last:.2g}"]
            rows.append([axis, words, *counts, shown_exponent(seconds), shown_exponent(megabytes)])
    return rows


def above_linear() -> dict[tuple[str, str, str], float]:
    """The exponents above 1.2, by axis, method and measure."""
    found = {place: exponent(points) for place, points in lines().items()}
    return {place: slope for place, slope in found.items() if slope > MOST}


def growth_above() -> list[list[str]]:
    names = METHODS | SPREAD["clients"] | SPREAD["partitions"]
    rows = [["size", "fit", "of", "exponent"]]
    for (axis, method, measure), slope in above_linear().items():
        rows.append([AXES.get(axis, axis), names[method], MEASURES[measure], f"{slope:.2f}"])
    return rows if len(rows) > 1 else [*rows, ["none", "", "", ""]]


# --- scale ------------------------------------------------------------------------------------------------------------


def scale(part: str) -> list[list[str]]:
    head = ["fit", "limit", "seconds (CPU)", "passes", "seconds a pass", "GB/s", "of plain reading", "from disk"]
    rows = [[*head, "peak memory", "weights found", "test error"]]
    for row in table_of("scale"):
        if row["part"] != part:
            continue
        fit = f"{METHODS[row['method']]}, {'on blocks' if row['way'] == 'blocks' else 'rows in memory'}"
        limit = f"{int(row['limit_megabytes']):,} MB" if row["limit_megabytes"] else "none"
        if row["outcome"] != "fitted":
            rows.append([fit, limit, f"fails: `{row['outcome']}`", *[""] * 8])
            continue
        cpu = f" ({float(row['cpu_seconds']):.0f})" if row["cpu_seconds"] else ""
        rows.append(
            [
                *(fit, limit, f"{float(row['seconds']):.0f}{cpu}", row["passes"]),
                f"{float(row['seconds_per_pass']):.1f}",
                f"{float(row['megabytes_per_second']) / 1e3:.2f}",
                f"{float(row['of_bandwidth']):.2f}",
                f"{float(row['disk_gigabytes']):.1f} GB",
                f"{float(row['peak_megabytes']):,.0f} MB",
                f"{100 * float(row['found']):.0f} %",
                f"{float(row['error']):.4f} (best {float(row['best_error']):.4f})",
            ]
        )
    return rows


# --- other libraries --------------------------------------------------------------------------------------------------


def libraries() -> list[list[str]]:
    """CPU time over that of tulle, seconds and memory: a line for each library, a column for each data set."""
    rows = table_of("libraries")
    data = list(dict.fromkeys(row["data"] for row in rows))
    table = [["library", "private", *data]]
    for library in dict.fromkeys(row["library"] for row in rows):
        found = {row["data"]: row for row in rows if row["library"] == library}
        line = [library, "yes" if next(iter(found.values()))["private"] == "True" else "no"]
        for name in data:
            row = found.get(name)
            if row is None:
                line.append("not run")
            elif not row["seconds"]:
                line.append(f"not run: {float(row['needed_megabytes']) / 1e3:.1f} GB as dense rows")
            else:
                line.append(f"{times(float(row['ratio']))} ({row['seconds']} s, {int(row['megabytes']):,} MB)")
        table.append(line)
    return table


def times(ratio: float) -> str:
    return f"{ratio:.2g} ×" if ratio < 99.5 else f"{ratio:.0f} ×"


# --- targets ----------------------------------------------------------------------------------------------------------


def targets() -> list[list[str]]:
    """The lines that have a target; the file has all."""
    rows = [["what", "measured", "target", "met"]]
    return rows + [[row[column] for column in rows[0]] for row in table_of("targets") if row["met"]]


def whole_jobs() -> list[list[str]]:
    """Whole jobs of users, next to the same by other programs."""
    rows = [["job", "rows", "next to", "times", "seconds", "memory", "target", "met"]]
    for row in table_of("whole_jobs"):
        about = [row["job"], f"{int(row['rows']):,}", row["next_to"]]
        if not row["times"]:
            rows.append([*about, row["note"], "", "", "", ""])
            continue
        factor = times(float(row["times"])) + (f" ({row['note']})" if row["note"] else "")
        seconds = f"{float(row['seconds']):.2g} / {float(row['other_seconds']):.2g}"
        sizes = [f"{float(row[name]):,.0f} MB" for name in ("megabytes", "other_megabytes") if row[name]]
        limit = re.fullmatch(r"<= ([0-9.]+)", row["target"])
        met = "" if limit is None else "yes" if float(row["times"]) <= float(limit[1]) else "no"
        rows.append([*about, factor, seconds, " / ".join(sizes), limit[0] if limit else "", met])
    return rows


# The targets of prototypes: a pattern of their lines in targets.csv, and a whole job of those who use what was sped up:
# the table and the line with its ratio.
REVISITED: dict[str, tuple[str, tuple[str, str] | None]] = {
    "gradient with sparse weights": (
        "gradient, .*scipy's two products",
        ("targets", "DP-IHT, 200,000 × 1,000,000, 2 threads: usual loop, times an iteration"),
    ),
    "iteration of DP-IHT": (
        "DP-IHT, .*usual loop",
        ("whole_jobs", "fit with epsilon=None, 20,000 rows, times liblinear"),
    ),
    "mini-batches of 256 rows": (
        "batch of 256, .*usual loop",
        ("targets", "batch of 256, 200,000 × 1,000,000: usual loop, times a step of DP-SGD-HT"),
    ),
    "noise that can matter": (
        "d = .*touched.*full draw",
        ("targets", "batch of 256, 200,000 × 1,000,000: dense noise, times noise that can matter"),
    ),
    "steps of Frank-Wolfe": (
        ".*(scipy loop's|plain engine's) step, times a followed one",
        ("targets", "RCV1 subset, eps 1: 4000 scipy steps, times the whole fit"),
    ),
    "private fit next to liblinear": (
        ".*private fit at epsilon .*liblinear's l1 fit",
        ("whole_jobs", "default fit, 20,000 rows, times liblinear"),
    ),
    "keyed noise": ("Gaussian draws from the keyed stream, times SFC64", None),
    "dense gradient": (
        "dense gradient, .*of the read bandwidth",
        ("whole_jobs", "default fit of a regression, 500 dense features, 20,000 rows, times Lasso"),
    ),
    "memory of a fit": ("memory of .*vectors of length d", None),
}


def whole_job(table: str, line: str) -> str:
    """A line of `targets`, or of `whole_jobs` by its first words, with its ratio."""
    if table == "targets":
        found = [(row["what"], row["measured"]) for row in table_of(table) if row["what"] == line]
    else:
        rows = [(f"{row['job']}, {int(row['rows']):,} rows, times {row['next_to']}", row) for row in table_of(table)]
        found = [(what, f"{float(row['times']):.2g}") for what, row in rows if what.startswith(line) and row["times"]]
    return f"{line}: {found[0][1]}" if found else f"{line}: not measured"


def revisited() -> list[list[str]]:
    rows = [["target set for", "limit", "measured", "met", "a whole job of those who use it"]]
    for name, (pattern, job) in REVISITED.items():
        lines_met = [row for row in table_of("targets") if row["met"] and re.match(pattern, row["what"])]
        measured = sorted((float(row["measured"]), row["measured"]) for row in lines_met)
        limits = list(dict.fromkeys(row["target"] for row in lines_met))
        spread = " to ".join(dict.fromkeys([measured[0][1], measured[-1][1]])) if measured else "not measured"
        met = f"{sum(row['met'] == 'yes' for row in lines_met)} of {len(lines_met)}"
        rows.append([name, ", ".join(limits), spread, met, whole_job(*job) if job else ""])
    return rows


def machine() -> list[list[str]]:
    return [["machine", ""], *([row["what"], row["value"]] for row in table_of("machine"))]


# --- the page ---------------------------------------------------------------------------------------------------------

TABLES: dict[str, tuple[str, Callable[[], list[list[str]]]]] = {
    "targets": ("targets", targets),
    "revisited": ("targets", revisited),
    "machine": ("machine", machine),
    "whole_jobs": ("whole_jobs", whole_jobs),
    "growth": ("growth", growth),
    "growth_of_parts": ("growth", growth_of_parts),
    "growth_above": ("growth", growth_above),
    "out_of_core": ("scale", lambda: scale("out_of_core")),
    "million": ("scale", lambda: scale("million")),
    "libraries": ("libraries", libraries),
}


def markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body))


def with_tables(text: str) -> str:
    """The page with its tables made anew."""

    def made(match: re.Match[str]) -> str:
        file, rows = TABLES[match["name"]]
        if not (SPEED / f"{file}.csv").exists():
            return match[0]
        return f"{match['start']}\n{markdown(rows())}\n{match['end']}"

    pattern = r"(?P<start><!-- table: (?P<name>\w+) -->)\n.*?(?P<end><!-- end of table -->)"
    return re.sub(pattern, made, text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
