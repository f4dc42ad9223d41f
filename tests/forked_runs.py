"""A process that runs pytest again and again, each time in a fork that has the slow packages imported already.

It reads one JSON list a line: a folder with a copy of tulle in it, and the arguments of pytest. It answers each with a
line, pytest's exit status; what pytest printed is in the folder's file `output.txt`. The process itself never imports
tulle: every fork imports the copy in its own folder.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = "output.txt"
# What most tests import, directly or through tulle. None starts a thread (but the allocator of
# pyarrow, which pandas imports and which is made for forks): a fork would lose it.
_SLOW = (
    "dp_accounting.pld.privacy_loss_distribution",
    "dp_accounting.rdp",
    "hypothesis.extra.numpy",
    "numba",
    "numpy",
    "pytest",
    "randomgen",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.special",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "sklearn.pipeline",
    "sklearn.utils.estimator_checks",
)


class ForkedRuns:
    """Starts the process, and stops it where used in a `with` statement."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment |= {"OMP_NUM_THREADS": "1", "COLUMNS": "1000", "PYTHONIOENCODING": "utf-8"}
        # Test modules are rewritten by pytest and compiled once, not once for every run.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> ForkedRuns:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate()

    def run(self, folder: Path, arguments: Sequence[str]) -> tuple[int, str]:
        """Run pytest on the copy of tulle in `folder`: its exit status, and what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(folder), list(arguments)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process that runs the tests has ended")
        return int(answer), (folder / OUTPUT).read_text(encoding="utf-8", errors="replace")


def _run_pytest(folder: str, arguments: list[str]) -> int:
    """In a fork: pytest, as `python -m pytest` with PYTHONPATH set to the folder would run it."""
    with open(os.path.join(folder, OUTPUT), "wb") as output, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.path[:1] = [str(ROOT), folder]
    sys.argv = ["pytest", *arguments]
    os.environ["PYTHONPATH"] = folder  # for processes that tests start
    import pytest

    return int(pytest.main(arguments))


def _serve() -> int:
    for name in _SLOW:
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    if "tulle" in sys.modules:
        raise RuntimeError("tulle was imported before the fork")
    gc.freeze()
    while line := sys.stdin.readline():
        folder, arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            return _run_pytest(folder, arguments)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(_serve())
