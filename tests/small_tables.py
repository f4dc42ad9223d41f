"""Tables of a few fits, as TOML files state them, and which of their cells were started."""

from __future__ import annotations

import json
from pathlib import Path

from tulle.experiments import problems
from tulle.experiments.cells import Cell

TINY = """
title = "A tiny table"
paper = "Nobody (never)"
kind = "fits"
metric = "relative error"
delta = 1e-5
trials = 2
notes = ["Tiny."]

[fast]
trials = 1
epsilons = [8]

[[data]]
name = "linear"
source = "dp_ight_figure1"
arguments = { n = 400, d = 20, s = 2 }
task = "regression"
n_nonzero = 2
bounds = { row_l2 = 4.0, row_linf = 2.0, label = 4.0 }
epsilons = [4, 8]

[[lines]]
name = "as published"
method = "hard_thresholding"
parameters = { noise = "gaussian", published_rule = "corollary_5.8" }
calibration = "published"

[[lines]]
name = "sound"
method = "hard_thresholding"
parameters = { noise = "gaussian" }

[[lines]]
name = "no noise"
method = "hard_thresholding"
private = false
"""
# Two data sets, one of them in a file; one line that is tuned, one that is not.
MIXED = """
title = "Files and seeds"
paper = "Nobody (never)"
kind = "fits"
metric = "test error"
trials = 1

[[data]]
name = "images"
source = "load_pneumonia"
task = "classification"
n_nonzero = 2
bounds = { row_l2 = 3.0, row_linf = 1.0 }
epsilons = [50]

[[data]]
name = "drawn"
source = "dp_ight_figure1"
arguments = { n = 60, d = 6, s = 2, logistic = true }
task = "classification"
metric = "relative error"
n_nonzero = 2
bounds = { row_l2 = 5.0, row_linf = 2.0 }
epsilons = [50]

[[lines]]
name = "tuned (oracle-tuned, not private)"
method = "hard_thresholding"
tune = { n_iter = [1, 2] }

[[lines]]
name = "Frank-Wolfe"
method = "frank_wolfe"
"""


def forget_rows() -> None:
    """Read files anew."""
    for kept in (problems._loaded, problems._divided):
        kept.cache_clear()


def log(folder: Path, part: str = "trials") -> list[Cell]:
    """The cells that were started, in order."""
    lines = (folder / "run" / part / "log.jsonl").read_text().splitlines()
    return [Cell(**json.loads(line)["started"]) for line in lines]
