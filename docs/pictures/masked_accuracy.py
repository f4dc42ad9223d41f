"""Accuracy against the number of clients, for each trust model: `python docs/pictures/masked_accuracy.py`.

Draws what `benchmarks/masked_federated.py clients` measured: docs/pictures/masked_federated.jsonl.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from draw import BLUE, GREEN, GREY, INK, ORANGE

MEASURED = Path(__file__).with_name("masked_federated.jsonl")
EPSILONS, CLIENTS = (0.25, 1.0, 4.0), (3, 10, 30)
SETS = {"rcv1": "RCV1 subset, 47,236 features", "a9a": "a9a, 123 features"}
LINES: dict[str, dict[str, Any]] = {
    "central default": {"color": INK, "ls": ":"},
    "central, same method": {"color": GREY, "ls": "--"},
    "masked, t = 0": {"color": BLUE, "marker": "o"},
    "masked, t = N/3": {"color": GREEN, "marker": "s"},
    "curious server": {"color": ORANGE, "marker": "D"},
}


def mean_accuracy(name: str, column: str, epsilon: float, clients: int) -> float:
    """Over seeds; central fits do not depend on the number of clients."""
    lines = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    count = CLIENTS[0] if column.startswith("central") else clients
    return float(
        np.mean(
            [one["accuracy"] for one in lines if one["cell"][:3] + one["cell"][4:] == [name, column, epsilon, count]]
        )
    )


def main() -> None:
    figure, panels = plt.subplots(2, 3, figsize=(9.4, 5.6), sharex=True, sharey="row", layout="constrained")
    for row, (name, title) in enumerate(SETS.items()):
        for column, epsilon in enumerate(EPSILONS):
            panel = panels[row][column]
            for line, style in LINES.items():
                values = [mean_accuracy(name, line, epsilon, clients) for clients in CLIENTS]
                panel.plot(CLIENTS, values, ms=5, label=line, **style)
            panel.set(xscale="log", title=f"ε = {epsilon:g}")
            panel.set_xticks(CLIENTS, [str(count) for count in CLIENTS])
            panel.minorticks_off()
        panels[row][0].set_ylabel(f"{title}\naccuracy")
    for panel in panels[1]:
        panel.set_xlabel("clients")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9.5)
    figure.savefig(MEASURED.with_name("masked_accuracy.svg"), metadata={"Date": None})
    figure.savefig(MEASURED.with_name("masked_accuracy.png"))


if __name__ == "__main__":
    main()
