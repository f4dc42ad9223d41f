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
    "hard_thresholding": "hard thresholding",
    "screen_refine": "screen and refine",
    "frank_wolfe": "Frank-Wolfe",
    "stochastic_hard_thresholding": "stochastic hard thresholding",
}
AXES = {"n": "rows n", "d": "features d", "per_row": "non-zeros a row", "s": "weights kept s", "t": "T"}
MEASURES = {"seconds": "time", "megabytes": "memory"}
Points = list[tuple[float, float]]


def table_of(name: str) -> list[dict[str, str]]:
    with (SPEED / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def lines() -> dict[tuple[str, str, str], Points]:
    """(axis, method, measure) with its points, in order."""
    found: dict[tuple[str, str, str], Points] = {}
    for row in table_of("growth"):
        for measure in MEASURES:
            place = (row["axis"], row["method"], measure)
            found.setdefault(place, []).append((float(row[row["axis"]]), float(row[measure])))
    return {place: sorted(points) for place, points in found.items()}


def exponent(points: Points) -> float:
    """The slope of the upper half of a line on logarithmic scales, the middle point included."""
    x, y = np.log(np.array(points[len(points) // 2 :])).T
    return float(np.polyfit(x, y, 1)[0])


def growth() -> list[list[str]]:
    measured = lines()
    rows = [["size", "of", *METHODS.values()]]
    for axis, words in AXES.items():
        for measure, of in MEASURES.items():
            # Rounded before it is printed: no "-0.00".
            found = [round(exponent(measured[axis, method, measure]), 2) + 0.0 for method in METHODS]
            rows.append([words, of, *(f"{slope:.2f}" for slope in found)])
    return rows


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


def machine() -> list[list[str]]:
    return [["machine", ""], *([row["what"], row["value"]] for row in table_of("machine"))]


# --- the page ---------------------------------------------------------------------------------------------------------

TABLES: dict[str, tuple[str, Callable[[], list[list[str]]]]] = {
    "targets": ("targets", targets),
    "machine": ("machine", machine),
    "growth": ("growth", growth),
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
