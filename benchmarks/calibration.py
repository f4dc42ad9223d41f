"""How long `calibrate` takes for the plans of every method, as a part of a second."""

from __future__ import annotations

import time
from collections.abc import Iterator

from timing import Line, print_lines

from tulle.accounting.calibration import calibrate
from tulle.methods import HardThresholding
from tulle.methods.loss_functions import Logistic
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Budget


def measure() -> Iterator[Line]:
    for noise in ("gaussian", "selection"):
        slowest = 0.0
        for epsilon in (0.01, 1.0, 50.0):
            for n_iter in (1, 50, 1000):
                budget = Budget(epsilon, 1e-6)
                public = PublicFacts(20_242, 47_236, 1000, Logistic(), budget, 1.0, 1.0, 1.0, True)
                releases = HardThresholding(noise=noise, n_iter=n_iter).releases(public)
                start = time.perf_counter()
                calibrate(releases, budget)
                slowest = max(slowest, time.perf_counter() - start)
        yield f"calibrate, slowest of 9 plans with {noise} noise, seconds", slowest, "< 1"


if __name__ == "__main__":
    print_lines(measure())
