"""How the constants of the default for regression were chosen: the tables of docs/fit_again.md.

    python benchmarks/regression_constants.py run      # fits every setting to every set; needs the extra evidence
    python benchmarks/regression_constants.py table    # the rule that is chosen without each set, and its regret

`run` needs TULLE_DATA for Covertype, and appends to docs/pictures/regression_constants.csv the cells that are not in
it: the mean error of one fit of all features (1 - R² on test rows) over seeds. Lines "before" were measured with the
default before these constants, and are not made again.
"""

from __future__ import annotations

import csv
import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import numpy as np

from tulle.accounting.gaussian_budget import gaussian_mu

RESULTS = Path(__file__).parents[1] / "docs" / "pictures" / "regression_constants.csv"
EPSILONS, DELTA = (0.5, 1.0, 2.0, 4.0), 1e-5
CLIPS, XIS = (0.1, 0.15, 0.2, 0.3, 0.45), (0.4, 0.8, 1.6, 3.2)
# A rule: slopes are cut at the part `clip` of the label bound, and xi = factor q^-power, at most MOST_XI.
FACTORS, POWERS, RULE_CLIPS, MOST_XI = (
    (0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.3),
    (0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4),
    (0.15, 0.2, 0.25, 0.3),
    1.6,
)
Setting = tuple[str, float, float]  # whether it is rescaled ("yes", "no"; "before": the older default), clip, xi
Cell = tuple[str, float]  # set, epsilon
Rule = tuple[float, float, float]  # factor, power, clip


def read() -> tuple[dict[Cell, dict[Setting, float]], dict[str, tuple[int, int]]]:
    """Errors by cell and setting, and the numbers of rows and features of each set."""
    errors: dict[Cell, dict[Setting, float]] = defaultdict(dict)
    sizes = {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            cell = row["set"], float(row["epsilon"])
            errors[cell][row["rescaled"], float(row["clip"]), float(row["xi"])] = float(row["error"])
            sizes[row["set"]] = int(row["rows"]), int(row["features"])
    return errors, sizes


# --- the choice ------------------------------------------------------------------------------------------------------


def regret(
    rule: Rule, cell: Cell, errors: dict[Cell, dict[Setting, float]], sizes: dict[str, tuple[int, int]]
) -> float:
    """log(error of the rule / error of the best setting without rescaling); interpolated between settings."""
    factor, power, clip = rule
    rows, features = sizes[cell[0]]
    xi = min(factor * (features / (rows * gaussian_mu(cell[1], DELTA))) ** -power, MOST_XI)
    place = math.log2(min(max(xi, XIS[0]), XIS[-1]) / XIS[0])
    low = min(int(place), len(XIS) - 2)
    found = errors[cell]

    def at(clip: float) -> float:
        ends = [math.log(found["no", clip, XIS[low + step]]) for step in (0, 1)]
        return ends[0] + (place - low) * (ends[1] - ends[0])

    error = at(clip) if clip in CLIPS else (at(0.2) + at(0.3)) / 2
    return error - math.log(best(found, "no"))


def best(found: dict[Setting, float], rescaled: str) -> float:
    """The least error of all settings of one kind."""
    return min(error for setting, error in found.items() if setting[0] == rescaled)


def left_out() -> dict[str, tuple[float, float]]:
    """For each set: the regret of the rule that all others choose, and that of the older default."""
    errors, sizes = read()
    rules = [(factor, power, clip) for factor in FACTORS for power in POWERS for clip in RULE_CLIPS]
    regrets = {rule: {cell: regret(rule, cell, errors, sizes) for cell in errors} for rule in rules}
    found = {}
    for name in sizes:
        own, others = ([cell for cell in errors if (cell[0] == name) == mine] for mine in (True, False))
        rule = min(rules, key=lambda rule: fmean(regrets[rule][cell] for cell in others))
        before = fmean(math.log(errors[cell]["before", 0, 0] / best(errors[cell], "no")) for cell in own)
        found[name] = math.expm1(fmean(regrets[rule][cell] for cell in own)), math.expm1(before)
    return found


def cells_with_rescaling_ahead(margin: float = 0.01) -> list[Cell]:
    """Where the best setting with the rescaling is better than the best without, by more than `margin` of it."""
    errors, _ = read()
    return [cell for cell, found in errors.items() if best(found, "yes") < (1 - margin) * best(found, "no")]


# --- the fits --------------------------------------------------------------------------------------------------------


def run() -> None:
    """Run the fits that are missing."""
    from development_sets import SETS

    from tulle import Bounds, SparseRegressor
    from tulle.datasets.packaged import PACKAGED, load_packaged, packaged_columns
    from tulle.methods import FitAgain

    warnings.simplefilter("ignore")
    done, _ = read()
    for name in (*PACKAGED, "elevation", "synthetic_linear"):
        if name in PACKAGED:
            table = load_packaged(name)
            bounds = Bounds(row_l2=math.sqrt(packaged_columns(name)), row_linf=1.0, label=1.0)
        else:
            bounds = SETS[name].bounds
        splits = [table if name in PACKAGED else SETS[name].split(seed) for seed in range(4 if name in PACKAGED else 3)]
        assert bounds.label is not None
        for epsilon, rescaled, clip, xi in missing(name, done):
            # As the rescaling of classification is paid for.
            share = min(max(30 / (len(splits[0].y_train) * gaussian_mu(epsilon, DELTA)), 0.03), 0.06)
            share = share if rescaled == "yes" else 0.0
            method = FitAgain(slope_clip=clip * bounds.label, curvature=xi, rescale_share=share)
            errors = []
            for seed, data in enumerate(splits):
                kept = data.X_train.shape[1] if name in PACKAGED else None
                model = SparseRegressor(
                    epsilon, DELTA, n_nonzero=kept, method=method, bounds=bounds, random_state=seed
                ).fit(data.X_train, data.y_train)
                errors.append(np.mean((model.predict(data.X_test) - data.y_test) ** 2) / np.var(data.y_test))
            with RESULTS.open("a", newline="", encoding="utf-8") as file:
                line = [name, epsilon, rescaled, clip, xi, f"{fmean(map(float, errors)):.6g}", len(errors)]
                csv.writer(file).writerow([*line, *splits[0].X_train.shape])


def missing(name: str, done: dict[Cell, dict[Setting, float]]) -> Iterable[tuple[float, str, float, float]]:
    for epsilon in EPSILONS:
        for rescaled in ("no", "yes"):
            for clip in CLIPS:
                for xi in XIS:
                    if (rescaled, clip, xi) not in done.get((name, epsilon), {}):
                        yield epsilon, rescaled, clip, xi


def main() -> None:
    if sys.argv[1:] == ["run"]:
        run()
    for name, (own, before) in left_out().items():
        print(f"| {name} | {100 * own:.0f} % | {100 * before:.0f} % |")
    print("rescaling ahead by more than 1 %:", cells_with_rescaling_ahead())


if __name__ == "__main__":
    main()
