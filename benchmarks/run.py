"""Runs benchmarks and prints one table of ratios: `make bench`; with names, those alone: `run.py gradient noise`.

Each script measures two things side by side and yields lines (what, figure, target), in a process of its own: what one
of them imports, compiles or leaves in memory is nothing to the others. The table is also written to build/bench.csv,
and with --save to docs/speed/targets.csv, with the machine next to it in machine.csv.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import numpy as np

BENCHMARKS = (
    "import_time",
    "calibration",
    "noise",
    "lazy_noise",
    "gradient",
    "dense_gradient",
    "hard_thresholding",
    "stochastic",
    "frank_wolfe",
    "fit_against_liblinear",
    "no_privacy_many_classes",
    "memory",
    "knowledge_transfer",
    "local",
    "reading",
    "conversion",
    "raw_tables",
    "cluster",
    "parquet_on_dask",
    "federated",
    "masked_sums",
    "ledger",
    "whole_jobs",
)
ROOT = Path(__file__).resolve().parents[1]


def met(measured: float, target: str) -> str:
    """Whether a figure meets a target such as ">= 2.4"; empty for targets that are no limits."""
    limit = re.fullmatch(r"(<=|>=|<|>) ([0-9.]+)", target)
    if limit is None:
        return ""
    bound = float(limit[2])
    return (
        "yes"
        if {"<=": measured <= bound, ">=": measured >= bound, "<": measured < bound, ">": measured > bound}[limit[1]]
        else "no"
    )


def lines_of(name: str) -> Iterator[tuple[str, float, str]]:
    """The lines of one script, one after another."""
    command = [sys.executable, __file__, "--lines", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent) as child:
        assert child.stdout is not None
        for what, measured, target in csv.reader(child.stdout):
            yield what, float(measured), target
    if child.returncode:
        raise RuntimeError(f"{name} failed; see above")


def machine() -> Iterator[tuple[str, str]]:
    """What the figures depend on, and nothing that tells whose machine it is."""
    from timing import read_seconds

    described = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", described.read_text()) if described.exists() else []
    yield "processor", names[0] if names else platform.machine()
    yield "cores", str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    array = np.ones(1 << 26)
    for count in (1, 2):
        speeds = [array.nbytes / read_seconds(array, count) / 1e9 for _ in range(9)]
        yield f"read bandwidth, {count} thread{'s' * (count > 1)}, GB/s", f"{np.median(speeds):.3g}"
    yield "Python", platform.python_version()
    yield "numpy", np.__version__
    yield "scipy", import_module("scipy").__version__


def write(path: Path, header: Iterable[str], lines: Iterable[Iterable[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(BENCHMARKS)}; all without any")
    parser.add_argument("--save", action="store_true", help="write docs/speed/targets.csv and machine.csv as well")
    parser.add_argument("--lines", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    if options.lines:
        output = csv.writer(sys.stdout, lineterminator="\n")
        for what, measured, target in import_module(options.names[0]).measure():
            output.writerow([what, repr(float(measured)), target])
            sys.stdout.flush()
        return
    if options.save and options.names:
        parser.error("--save writes the whole table; run it without names")

    table: list[tuple[str, str, str, str]] = []
    failed = []
    print(f"{'what':<100} {'measured':>10}  target")
    for name in options.names or BENCHMARKS:
        start = time.perf_counter()
        try:
            for what, measured, target in lines_of(name):
                table.append((what, f"{measured:.3g}", target, met(measured, target)))
                short = "  (missed)" if table[-1][3] == "no" else ""
                print(f"{what:<100} {measured:>10.3g}  {target}{short}", flush=True)
        except RuntimeError as failure:
            failed.append(name)
            print(failure, file=sys.stderr)
        print(f"  {name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    header = ("what", "measured", "target", "met")
    write(ROOT / "build" / "bench.csv", header, table)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if options.save:
        write(ROOT / "docs" / "speed" / "targets.csv", header, table)
        write(ROOT / "docs" / "speed" / "machine.csv", ("what", "value"), machine())


if __name__ == "__main__":
    main()
