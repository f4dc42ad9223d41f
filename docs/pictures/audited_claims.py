"""Audited bounds against claims: `python docs/pictures/audited_claims.py` draws them and prints the tables.

Draws what `benchmarks/audit_bounds.py bounds` measured: docs/pictures/audit_bounds.jsonl.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).with_name("audit_bounds.jsonl")
EPSILONS = (0.5, 1.0, 2.0, 4.0)
LOCAL = ("PrivUnit", "TwoPoint", "Piecewise", "Hybrid", "LaplaceLabel", "GaussianLabel", "RandomisedResponse")


def measured(part: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The lines of one part, by their cells."""
    lines = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    return {tuple(one["cell"]): one for one in lines if one["part"] == part}


# Subjects whose settings were changed, and with them the name.
RENAMED = {
    "StochasticHardThresholding, Poisson batches": "StochasticHardThresholding, Poisson batches, 9 of 10 rows",
    "the same, a shuffled epoch": "the same, a shuffled epoch, batches known",
}


def order() -> list[str]:
    """The subjects, in the order in which they were first measured; local randomisers last."""
    lines = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    names = [one["cell"][0] for one in lines if one["part"] in ("bounds", "replaced")]
    first = dict.fromkeys(RENAMED.get(name, name) for name in names)
    return sorted(first, key=lambda name: name.startswith(LOCAL))


def table() -> list[str]:
    """Lines of the table: for each claim, the bound shown over the claim, and the runs that were counted."""
    found = measured("bounds")
    lines = []
    for name in order():
        cells = [found.get((name, epsilon)) for epsilon in EPSILONS]
        shown = ["" if one is None else f"{one['ratio']:.2f}" for one in cells]
        some = [one for one in cells if one is not None]
        free = [one.get("epsilon_any", one["epsilon"]) / one["cell"][1] for one in some]
        curves = [one["epsilon_curve"] / one["cell"][1] for one in some if "epsilon_curve" in one]
        curve = f"{max(curves):.2f}" if curves else ""
        counts = {min(one["counted"] for one in some), max(one["counted"] for one in some)}
        runs = " to ".join(f"{count:,}" for count in sorted(counts))
        lines.append(f"| {name} | {some[0]['judge']} | {' | '.join(shown)} | {max(free):.2f} | {curve} | {runs} |")
    return lines


def replaced_table() -> list[str]:
    """Cells that were measured before with other runs, pairs or attacks: the figure then, and the one that counts."""
    found, lines = measured("bounds"), []
    for (name, epsilon), before in measured("replaced").items():
        now = found.get((RENAMED.get(name, name), epsilon))
        shown = "" if now is None else f"{now['ratio']:.2f} | {now['counted']:,}"
        lines.append(f"| {name} | {epsilon:g} | {before['ratio']:.2f} | {before['counted']:,} | {shown} |")
    return sorted(lines)


def limits_table() -> list[str]:
    """The most that any attack shows, over claims."""
    found = measured("limits")
    names = list(dict.fromkeys(name for name, _ in found))
    shown = {name: [f"{found[name, epsilon]['ratio']:.2f}" for epsilon in EPSILONS] for name in names}
    return [f"| {name} | {' | '.join(ratios)} |" for name, ratios in shown.items()]


def sound_table() -> list[str]:
    """How many of the sound audits were refuted."""
    lines = measured("sound").items()
    return [
        f"| {name} | {judge} | {one['runs']:,} | {one['refuted']} of {one['audits']} |" for (name, judge), one in lines
    ]


def published_table() -> list[str]:
    """What a fixed number of runs shows, and after how many runs a bet is won."""
    found = measured("published")
    lines = []
    for name in dict.fromkeys(name for name, _ in found):
        fixed, bet = found[name, "fixed"], found.get((name, "betting"))
        bound = f"{fixed['epsilon']:.2f}" + ("" if fixed["refuted"] else ", not refuted")
        decided = ""
        if bet is not None:
            decided = f"{bet['decided_after']:,}" if bet["refuted"] else f"not refuted in {bet['runs']:,}"
        true = f"{math.floor(10 * fixed['true_epsilon']) / 10:.1f}" if "true_epsilon" in fixed else ""
        lines.append(f"| {name} | {fixed['claimed']:g} | {true} | {fixed['runs']:,} | {bound} | {decided} |")
    return lines


def cost_table() -> list[str]:
    """What the tables cost, in CPU minutes of one thread; cells that were replaced count with the bounds."""
    lines = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    parts = {"audited bounds": ("bounds", "replaced"), "sound audits": ("sound",), "published noise": ("published",)}
    shown = []
    for name, of in parts.items():
        own = [one for one in lines if one["part"] in of]
        shown.append(f"| {name} | {len(own)} | {sum(one['cpu_seconds'] for one in own) / 60:.0f} |")
    return shown


TABLES = (table, limits_table, replaced_table, sound_table, published_table, cost_table)


def main() -> None:
    import matplotlib.pyplot as plt
    from draw import BLUE, GREEN, GREY, INK, ORANGE
    from matplotlib.lines import Line2D

    print("\n\n".join("\n".join(lines()) for lines in TABLES))
    colours = {"gaussian": BLUE, "bounded_range": GREEN, "any": ORANGE}
    found, names = measured("bounds"), order()
    figure, panels = plt.subplots(
        1, len(EPSILONS), figsize=(9.4, 0.24 * len(names) + 1.3), sharey=True, layout="constrained"
    )
    for panel, epsilon in zip(panels, EPSILONS):
        for place, name in enumerate(reversed(names)):
            one = found.get((name, epsilon))
            if one is None:
                continue
            panel.plot([0, one["ratio"]], [place, place], color=GREY, lw=0.8, zorder=1)
            panel.plot(one["ratio"], place, "o", ms=5, color=colours[one["judge"]], zorder=2)
            if "epsilon_any" in one:
                panel.plot(one["epsilon_any"] / epsilon, place, "o", ms=4, mfc="white", color=ORANGE, zorder=2)
        panel.axvline(1.0, color=INK, lw=1)
        panel.axvline(0.6 if epsilon < 1 else 0.7, color=GREY, lw=0.8, ls=":")
        panel.set(title=f"claim ε = {epsilon:g}", xlim=(0, 1.15), xticks=(0, 0.5, 1))
    panels[0].set_xlabel("audited bound / claim")
    panels[0].set_yticks(range(len(names)), list(reversed(names)), fontsize=7.5)
    handles = [
        Line2D([], [], ls="", marker="o", color=colour, label=f'judge "{judge}"') for judge, colour in colours.items()
    ]
    handles.append(Line2D([], [], ls="", marker="o", mfc="white", color=ORANGE, label='judge "any", same runs'))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    figure.savefig(MEASURED.with_name("audit_bounds.svg"), metadata={"Date": None})
    figure.savefig(MEASURED.with_name("audit_bounds.png"))


if __name__ == "__main__":
    main()
