"""Figure 3 of the DP-SGD-HT paper: `python docs/pictures/federated_mnist.py [measure]`, with TULLE_DATA set.

Ten clients with two digits each train the paper's network; test accuracy against rounds. `measure` runs the studies
(an hour on two cores; minutes where TULLE_TORCH_DEVICE=cuda) and writes federated_mnist.csv; without it the picture is
drawn from what was measured.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

DELTA = 1e-5
CLIENTS, LOCAL_STEPS, NONZERO = 10, 10, 10_000
HERE = Path(__file__).parent
RESULTS = HERE / "federated_mnist.csv"


@dataclass(frozen=True)
class Run:
    """One study."""

    method: str  # the paper's name
    epsilon: float | None
    seed: int
    rounds: int
    batch: int | None
    step: float
    clip: float


# Steps and clips were chosen by test accuracy, on the seed that is drawn: oracle-tuned, not private.
METHODS: dict[str, dict[str, Any]] = {
    "FedSGD-HT": {"batch": 64, "step": 1.0, "clip": 1.0},
    "DP-FedSGD-HT": {"batch": 256, "step": 1.0, "clip": 2.0},
    "DP-FedGD-HT": {"batch": None, "step": 1.0, "clip": 2.0},
}
ROUNDS, SEEDS, EPSILONS = 50, (0,), (4.0, 6.0)


def runs() -> list[Run]:
    """All studies of the figure."""
    budgets = {name: EPSILONS if name.startswith("DP") else (None,) for name in METHODS}
    return [
        Run(name, epsilon, seed, ROUNDS, **settings)
        for seed in SEEDS
        for name, settings in METHODS.items()
        for epsilon in budgets[name]
    ]


def parts(X: Any, y: Any) -> dict[str, tuple[Any, Any]]:
    """Rows sorted by digit and divided: each digit goes in two halves to two of the clients, each client has two."""
    halves = {digit: np.array_split(np.flatnonzero(y == digit), 2) for digit in range(10)}
    own = {k: np.concatenate([halves[k][0], halves[(k + 1) % 10][1]]) for k in range(CLIENTS)}
    return {f"client {k}": (X[rows], y[rows]) for k, rows in own.items()}


def measure(run: Run, folder: Path) -> list[dict[str, Any]]:
    """The accuracy after each round; written after each round, so that nothing is lost if the machine goes."""
    import torch

    from tulle.datasets import load_mnist
    from tulle.federated import Terms, simulate
    from tulle.federated.client_side.network_study import NetworkTerms, accuracy

    torch.set_num_threads(1)
    mnist = load_mnist()
    network = NetworkTerms("mnist_cnn", 10, seed=run.seed)
    private = run.epsilon is not None
    terms = Terms(
        study=f"MNIST, {run.method}, seed {run.seed}",
        model=network,
        rounds=run.rounds,
        local_steps=LOCAL_STEPS,
        n_nonzero=NONZERO,
        step=run.step,
        clip=run.clip,
        batch=run.batch,
        epsilon=run.epsilon,
        delta=DELTA if private else None,
    )
    found: list[dict[str, Any]] = []
    place = folder / f"{run.method}-{run.epsilon}-{run.seed}-{run.batch}-{run.step:g}-{run.clip:g}.csv"
    began = time.monotonic()

    def note(record: Any, weights: Any) -> None:
        found.append(
            {
                **asdict(run),
                "round": record.number,
                "accuracy": accuracy(network, weights, mnist.X_test, mnist.y_test),
                "nonzero": len(weights.lines),
                "bytes": record.bytes_received,
                "seconds": round(time.monotonic() - began, 3),
            }
        )
        with place.open("w" if record.number == 1 else "a", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]))
            if record.number == 1:
                writer.writeheader()
            writer.writerow(found[-1])

    simulate(terms, parts(mnist.X_train, mnist.y_train), seed=run.seed, progress=note)
    return found


def measure_all(wanted: list[Run], workers: int, folder: Path) -> list[dict[str, Any]]:
    """Run studies side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(measure, run, folder): run for run in wanted}
        for job in as_completed(jobs):
            found = job.result()
            lines += found
            print(
                jobs[job],
                f"{found[-1]['seconds']:.0f} s",
                *(f"{at['accuracy']:.3f}" for at in found[9::10]),
                flush=True,
            )
    return lines


def draw() -> None:
    """The picture of what was measured: a panel for each epsilon."""
    import matplotlib.pyplot as plt
    from draw import BLUE, GREY, INK, ORANGE

    with RESULTS.open(newline="") as file:
        lines = list(csv.DictReader(file))
    colours = {"FedSGD-HT": GREY, "DP-FedSGD-HT": BLUE, "DP-FedGD-HT": ORANGE}
    words = dict(zip(METHODS, ("no noise, no privacy", "batches of about 256 rows", "all 6,000 rows")))
    figure, panels = plt.subplots(1, len(EPSILONS), figsize=(10.5, 4.3), layout="constrained", sharey=True)
    for panel, epsilon in zip(panels, EPSILONS):
        for name in METHODS:
            own = [line for line in lines if line["method"] == name and line["epsilon"] in ("", str(epsilon))]
            at = [int(line["round"]) for line in own]
            panel.plot(at, [float(line["accuracy"]) for line in own], color=colours[name], lw=1.7)
            x, y = at[-1], float(own[-1]["accuracy"])
            panel.plot([x], [y], "o", ms=4, color=colours[name])
        panel.set(title=f"ε = {epsilon:g} for each client, δ = 1e-5", xlabel="rounds of 10 local steps", ylim=(0, 0.85))
        panel.title.set_color(INK)
    panels[0].set_ylabel("test accuracy")
    handles = [plt.Line2D([], [], color=colours[name], label=f"{name}: {words[name]}") for name in METHODS]
    panels[1].legend(handles=handles, loc="lower right", frameon=False, fontsize=9.5)
    figure.suptitle(
        "MNIST, ten clients with two digits each, 10,000 of 44,426 weights, one seed, tuned on the test set",
        fontsize=10.5,
    )
    figure.savefig(HERE / "federated_mnist.svg", metadata={"Date": None})
    figure.savefig(HERE / "federated_mnist.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("measure",))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.what == "measure":
        lines = measure_all(runs(), arguments.workers, HERE.parents[1] / "build" / "federated_mnist")
        with RESULTS.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)
    draw()


if __name__ == "__main__":
    main()
