"""A comparison as Markdown tables: methods down, budgets across, one table for each score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tulle.reports.comparison_format import describe_public_rows
from tulle.reports.markdown_tables import markdown_table

_RESULTS_DEPEND_ON = "nothing"


def table(summary: Mapping[str, Any]) -> str:
    """The comparison as Markdown.

    Parameters
    ----------
    summary : mapping
        What comparison.json holds.
    """
    metric = summary["metric"]
    text = [
        f"# Comparison of methods on {summary['data']}",
        f"**{summary['note']}**",
        f"{metric[0].upper()}{metric[1:]} (less is better) on {summary['n_test']:,} test rows after training on "
        f"{summary['n_train']:,} rows of {summary['n_features']:,} features: mean ± standard error of "
        f"{summary['trials']} trials, δ = {summary['delta']:g}.",
        markdown_table(*figures(summary)),
    ]
    for name in summary.get("metrics", ()):
        text += [f"{name}, on the same rows:", markdown_table(*figures(summary, name))]
    if public := describe_public_rows(summary):
        text.append(f"{public}.")
    if summary["failed"]:
        text.append("\n".join(["Failed:", "", *(f"- {_place(one)}: {one['reason']}" for one in summary["failed"])]))
    if summary["warnings"]:
        text.append("\n".join(["Warnings of the fits:", "", *(f"- {warning}" for warning in summary["warnings"])]))
    return "\n\n".join(text) + "\n"


def figures(summary: Mapping[str, Any], metric: str | None = None) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of a table of one score; None: of the error."""
    budgets = list(dict.fromkeys(row["epsilon"] for row in (*summary["rows"], *summary["failed"]) if row["epsilon"]))
    trials = summary["trials"]

    def figure(row: Mapping[str, Any] | None) -> str:
        return _figure(row if metric is None or row is None else row["metrics"][metric], trials)

    cells = {(row["method"], row["epsilon"]): figure(row) for row in summary["rows"]}
    methods = list(dict.fromkeys(row["method"] for row in summary["rows"]))
    for one in summary["failed"]:
        place = one["method"], one["epsilon"]
        if place not in cells and one["epsilon"] is not None:
            cells[place] = f"failed ({one['reason']})"
            methods += [] if one["method"] in methods else [one["method"]]
    lines = [[name, *(cells.get((name, epsilon), "") for epsilon in sorted(budgets))] for name in methods]
    blank = [""] * (len(budgets) - 1)
    lines += [[f"{row['method']} (not private)", figure(row), *blank] for row in summary.get("references", ())]
    lines.append(["no privacy", figure(summary["no_privacy"]), *blank])
    lines.append(["null model", figure(summary["null_model"]), *blank])
    return ["method", *(f"ε = {epsilon:g}" for epsilon in sorted(budgets))], lines


def budget_words(epsilon: float | None) -> str:
    """A budget, or that there is none."""
    return "no privacy" if epsilon is None else f"ε = {epsilon:g}"


def _figure(row: Mapping[str, Any] | None, trials: int) -> str:
    if row is None:
        return "failed"
    few = f" ({row['trials']} of {trials})" if row["trials"] < trials else ""
    return f"{row['mean']:.4f} ± {row['standard_error']:.4f}{few}"


def _place(one: Mapping[str, Any]) -> str:
    return f"{one['method']} ({budget_words(one['epsilon'])}), trial {one['trial']}"
