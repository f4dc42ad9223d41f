"""What `import tulle` costs next to `import sklearn.base`, each in fresh interpreters, taken in turn."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

from timing import Line, print_lines

_TIMED = "import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"


def _seconds(module: str) -> float:
    code = _TIMED.format(module=module)
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def measure(rounds: int = 7) -> Iterator[Line]:
    for module in ("tulle", "tulle.estimators.sparse"):
        pairs = [(_seconds(module), _seconds("sklearn.base")) for _ in range(rounds)]
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        target = "<= 1.15" if module == "tulle" else "(first use; no target)"
        yield f"import {module}, times the cost of import sklearn.base", ratio, target


if __name__ == "__main__":
    print_lines(measure())
