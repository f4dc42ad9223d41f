"""How far the default is from the best of all methods: every development set, five budgets, paired seeds.

    python benchmarks/default_evidence.py run --seeds 3 -o build/evidence.jsonl
    python benchmarks/default_evidence.py race --seeds 20 -o build/evidence.jsonl
    python benchmarks/default_evidence.py table build/evidence.jsonl

`run` appends one line for each fit and resumes after an interruption. `race` runs more seeds of the default and of the
best method in the cells where another one is ahead. `table` counts cells (set × epsilon) in which the default is within
5 % of the best method or within two standard errors of the paired difference, and those in which it is more than 15 %
and two standard errors behind. The best method of a cell is chosen by its mean on the same seeds. "Peers" are plain
noisy gradient methods on all features; their settings are chosen for each set on the other sets.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from development_sets import SETS, DevelopmentSet
from sklearn.metrics import log_loss, roc_auc_score

from tulle import SparseClassifier, SparseRegressor
from tulle.methods import HardThresholding

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DEFAULT = "auto"
METHODS = (
    DEFAULT,
    "fit_again",
    "screen_refine",
    "hard_thresholding",
    "stochastic_hard_thresholding",
    "frank_wolfe",
    "coordinate_descent",
    "knowledge_transfer",
    "two_stage",
)
# Without several classes by softmax: these refuse it.
_ONE_MARGIN = {"fit_again", "screen_refine", "knowledge_transfer", "two_stage", "frank_wolfe", "coordinate_descent"}

# Noisy gradient descent on all features, as DP-SGD is run with full batches: steps, clip of a row's slopes, step size
# in units of 1 / row_l2².
PEERS = {
    f"dp_gd_{steps}_{clip}_{step}": (steps, clip, step)
    for steps in (10, 40)
    for clip in (0.1, 0.5)
    for step in (2, 10, 50)
}
# The same, cut to as many weights as the default has: those with the largest weights are kept, which is free.
CUT = {f"{peer}_cut": peer for peer in PEERS}
Cell = tuple[str, float, str, int]


def model_of(one: DevelopmentSet, method: Any, epsilon: float | None, seed: int, **settings: Any) -> Any:
    """An unfitted estimator for a set."""
    estimator = SparseClassifier if one.task == "classification" else SparseRegressor
    return estimator(epsilon, one.delta, method=method, bounds=one.bounds, random_state=seed, **settings)


def measures(one: DevelopmentSet, model: Any, X: Any, y: Any) -> dict[str, float]:
    """Error, AUC and log-loss of a classifier; 1 - R² of a regressor."""
    if one.task == "regression":
        return {"error": float(np.mean((model.predict(X) - y) ** 2) / np.var(y))}
    found = {"error": float(np.mean(model.predict(X) != y))}
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(X)
        found["log_loss"] = float(log_loss(y, np.clip(probabilities, 1e-12, 1), labels=model.classes_))
        if not one.several:
            found["auc"] = float(roc_auc_score(y, model.decision_function(X)))
    return found


def constant_error(one: DevelopmentSet, data: Any) -> float:
    """The error of the constant model that the training rows choose."""
    if one.task == "regression":
        return float(np.mean((data.y_test - data.y_train.mean()) ** 2) / np.var(data.y_test))
    values, counts = np.unique(data.y_train, return_counts=True)
    return float(np.mean(data.y_test != values[counts.argmax()]))


def run_cell(cell: Cell) -> dict[str, Any]:
    """Fit and measure one cell."""
    name, epsilon, method, seed = cell
    one = SETS[name]
    data = one.split(seed)
    found: dict[str, Any] = dict(zip(("set", "epsilon", "method", "seed"), cell))
    chosen: Any = method
    settings: dict[str, Any] = {}
    if method in PEERS or method in CUT:
        steps, clip, size = PEERS[CUT.get(method, method)]
        bound = one.bounds.known(data.X_train.shape[1]).row_l2
        chosen = HardThresholding(steps, size / bound**2, clip=clip, noise="gaussian")
        settings["n_nonzero"] = data.X_train.shape[1]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = model_of(one, chosen, epsilon, seed, **settings).fit(data.X_train, data.y_train)
            if method in CUT:
                default = model_of(one, DEFAULT, epsilon, seed).fit(data.X_train, data.y_train)
                cut(model, int(np.count_nonzero(default.coef_)))
            found |= measures(one, model, data.X_test, data.y_test)
            found["weights"] = int(np.count_nonzero(model.coef_))
        except (ValueError, ArithmeticError) as error:
            found["failed"] = str(error)[:200]
    found["warned"] = any("no better than" in str(warning.message) for warning in caught)
    found["constant"] = constant_error(one, data)
    return found


def cut(model: Any, count: int) -> None:
    """Set all but the `count` largest weights of a fitted model to 0."""
    sizes = np.abs(model.coef_).ravel()
    small = np.argsort(-sizes, kind="stable")[count:]
    weights = model.coef_.ravel()
    weights[small] = 0.0
    model.coef_ = weights.reshape(model.coef_.shape)


def cells_of(sets: Sequence[str], methods: Sequence[str], seeds: int, epsilons: Sequence[float]) -> Iterator[Cell]:
    for name in sets:
        for method in methods:
            if SETS[name].several and method in _ONE_MARGIN:
                continue
            few = max(seeds // 4, 3) if SETS[name].several else seeds
            for epsilon in epsilons:
                yield from ((name, epsilon, method, seed) for seed in range(few))


def contenders(lines: Sequence[dict[str, Any]], seeds: int) -> Iterator[Cell]:
    """The cells of a race: the default and the method that is ahead of it, where there is one."""
    for (name, epsilon), methods in sorted(collect(lines, "error").items()):
        means = {m: float(np.mean([found[seed] for seed in range(3) if seed in found])) for m, found in methods.items()}
        own = {method: mean for method, mean in means.items() if method in METHODS}
        ahead = min(own, key=own.__getitem__)
        # A method that gave the default's errors is what the default chose.
        if DEFAULT not in own or ahead == DEFAULT or own[ahead] == own[DEFAULT]:
            continue
        few = max(seeds // 4, 3) if SETS[name].several else seeds
        for method in (DEFAULT, ahead):
            yield from ((name, epsilon, method, seed) for seed in range(few))


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run(path: Path, cells: Sequence[Cell], jobs: int) -> None:
    """Run the cells that are not in the file yet, and append them to it."""
    done = {(line["set"], line["epsilon"], line["method"], line["seed"]) for line in read(path)}
    left = [cell for cell in cells if cell not in done]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file, ProcessPoolExecutor(jobs) as workers:
        waiting = [workers.submit(run_cell, cell) for cell in left]
        for count, future in enumerate(as_completed(waiting), 1):
            file.write(json.dumps(future.result()) + "\n")
            file.flush()
            if count % 50 == 0 or count == len(left):
                print(f"{count} of {len(left)} fits", file=sys.stderr, flush=True)


Values = dict[tuple[str, float], dict[str, dict[int, float]]]


def collect(lines: Sequence[dict[str, Any]], measure: str) -> Values:
    """Values by cell, method and seed."""
    values: Values = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        if measure in line:
            values[line["set"], line["epsilon"]][line["method"]][line["seed"]] = line[measure]
    return values


def behind(first: dict[int, float], second: dict[int, float]) -> tuple[float, float]:
    """By how much of the second's mean the first is above it, and the standard error of that."""
    seeds = sorted(set(first) & set(second))
    difference = np.array([first[seed] - second[seed] for seed in seeds])
    mean = float(np.mean([second[seed] for seed in seeds]))
    error = float(difference.std(ddof=1) / np.sqrt(len(seeds))) if len(seeds) > 1 else 0.0
    return float(difference.mean()) / mean, error / mean


def chosen_peer(values: Values, name: str, several: bool) -> str:
    """The peer with the best mean log error over all other sets of the kind."""
    totals: dict[str, list[float]] = defaultdict(list)
    for (other, _), methods in values.items():
        if other == name or SETS[other].several != several or SETS[other].task != SETS[name].task:
            continue
        peers = {peer: float(np.mean(list(seeds.values()))) for peer, seeds in methods.items() if peer in PEERS}
        best = float(min(peers.values(), default=1.0))
        for peer, value in peers.items():
            totals[peer].append(float(np.log(min(max(value, 1e-6), 1e3) / max(best, 1e-6))))
    return min(totals, key=lambda peer: float(np.mean(totals[peer]))) if totals else ""


def table(lines: Sequence[dict[str, Any]]) -> None:
    """Print where the default stands."""
    values = collect(lines, "error")
    constants = collect(lines, "constant")
    near = far = counted = hopeless = 0
    print("| set | epsilon | default | best | which | behind | constant model |\n|" + " --- |" * 7)
    for (name, epsilon), methods in sorted(values.items()):
        own = {method: seeds for method, seeds in methods.items() if method in METHODS and len(seeds) > 1}
        if DEFAULT not in own:
            continue
        means = {method: float(np.mean(list(seeds.values()))) for method, seeds in own.items()}
        best = min(means, key=means.__getitem__)
        constant = float(np.mean(list(constants[name, epsilon][DEFAULT].values())))
        gap, error = behind(own[DEFAULT], own[best])
        learnt = means[best] < constant * 0.98
        hopeless += not learnt
        counted += learnt
        near += learnt and (gap <= 0.05 or gap <= 2 * error)
        far += learnt and gap > 0.15 and gap > 2 * error
        mark = "" if learnt else "(none learns)"
        print(
            f"| {name} | {epsilon:g} | {means[DEFAULT]:.4f} | {means[best]:.4f} | {best} | {100 * gap:.0f} ± "
            f"{100 * error:.0f} % {mark} | {constant:.4f} |"
        )
    print(
        f"\n{counted} cells in which some method learns: within 5 % or two standard errors {near} "
        f"({100 * near / max(counted, 1):.0f} %), more than 15 % and two standard errors behind {far} "
        f"({100 * far / max(counted, 1):.0f} %). No method beats the constant model in {hopeless} cells."
    )
    print_warnings(lines)
    print_peers(lines)


def print_warnings(lines: Sequence[dict[str, Any]]) -> None:
    """How often the warning before a hopeless fit is right."""
    warned = collect([line | {"warned": float(line["warned"])} for line in lines], "warned")
    values, constants = collect(lines, "error"), collect(lines, "constant")
    aucs = collect(lines, "auc")
    missed, false_alarms, right = [], [], 0
    for cell, methods in values.items():
        if DEFAULT not in methods:
            continue
        said = any(warned[cell][DEFAULT].values())
        best = min(float(np.mean(list(seeds.values()))) for m, seeds in methods.items() if m in METHODS)
        constant = float(np.mean(list(constants[cell][DEFAULT].values())))
        auc = float(np.mean(list(aucs[cell][DEFAULT].values()))) if DEFAULT in aucs[cell] else 0.0
        learns = best < 0.98 * constant or auc > 0.6
        right += said != learns
        if learns and said:
            false_alarms.append(cell)
        if not learns and not said:
            missed.append(cell)
    print(f"\nwarning before the fit: right in {right} cells, missed {missed}, false alarms {false_alarms}")


def print_peers(lines: Sequence[dict[str, Any]]) -> None:
    """Wins, ties and losses against noisy gradient descent with settings from the other sets."""
    errors = collect(lines, "error")
    for measure, suffix in product(("error", "auc", "log_loss"), ("", "_cut")):
        values, counts, rows = collect(lines, measure), [0, 0, 0], []
        for (name, epsilon), methods in sorted(values.items()):
            peer = chosen_peer(errors, name, SETS[name].several) + suffix
            if peer not in methods or DEFAULT not in methods:
                continue
            gap, error = behind(methods[DEFAULT], methods[peer])
            gap = -gap if measure == "auc" else gap
            counts[1 if abs(gap) <= max(2 * error, 0.005) else 0 if gap < 0 else 2] += 1
            rows.append(f"{name} {epsilon:g} ({peer}): {100 * gap:+.0f} %")
        what = f"noisy gradient descent{', cut to as many weights' if suffix else ''}, {measure}"
        print(f"\nagainst {what}: wins {counts[0]}, ties {counts[1]}, losses {counts[2]}")
        print("; ".join(row for row in rows if "+" in row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running, racing = commands.add_parser("run"), commands.add_parser("race")
    for one in (running, racing):
        one.add_argument("--seeds", type=int, default=20)
        one.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
        one.add_argument("-o", "--output", type=Path, required=True)
    running.add_argument("--sets", nargs="*", default=list(SETS))
    # Of the cut peers only the chosen ones are of interest: name them.
    running.add_argument("--methods", nargs="*", default=[*METHODS, *PEERS])
    running.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    showing = commands.add_parser("table")
    showing.add_argument("input", type=Path)
    given = parser.parse_args()
    if given.command == "table":
        return table(read(given.input))
    if given.command == "race":
        return run(given.output, list(contenders(read(given.output), given.seeds)), given.jobs)
    run(given.output, list(cells_of(given.sets, given.methods, given.seeds, given.epsilons)), given.jobs)


if __name__ == "__main__":
    main()
