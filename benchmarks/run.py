"""Runs every benchmark and prints one table of ratios: `make bench`.

Each script measures two things side by side in one process and yields lines (what, ratio, target); lone times mean
nothing on a shared machine.
"""

from __future__ import annotations

import calibration
import fit_against_liblinear
import frank_wolfe
import import_time
import knowledge_transfer
import local
import noise
import order_statistics
import reading
import stochastic

BENCHMARKS = (
    import_time,
    calibration,
    noise,
    order_statistics,
    fit_against_liblinear,
    stochastic,
    frank_wolfe,
    knowledge_transfer,
    local,
    reading,
)


def main() -> None:
    print(f"{'what':<78} {'measured':>10}  target")
    for benchmark in BENCHMARKS:
        for what, measured, target in benchmark.measure():
            print(f"{what:<78} {measured:>10.3g}  {target}", flush=True)


if __name__ == "__main__":
    main()
