"""What newcomers meet: a forgotten --target, lists of columns, Ctrl-C while modules are imported, rounded budgets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands_and_files import fit_words, one_line


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_a_forgotten_target_is_asked_for(run: Any, place: Path, tmp_path: Path, command: str) -> None:
    """By name, with the columns to choose from; nothing about columns to leave out, and no row is read."""
    data = tmp_path / "rows.csv"
    data.write_text("a,b,sick\n1,private,yes\n")
    needed = ["--epsilon", "1"] if command == "fit" else []
    ran = run(command, data, "--row-linf", "1", "--quiet", *needed, "-o", tmp_path / "m")
    said = one_line(ran, command)
    assert "Name it with --target COLUMN; the columns are 'a', 'b', 'sick'" in said
    assert "--ignore" not in said


def test_a_header_that_may_be_a_row_is_not_quoted(run: Any, tmp_path: Path) -> None:
    """A file without a header: its first row stays private."""
    data = tmp_path / "rows.csv"
    data.write_text("17,secret\n18,other\n")
    said = one_line(run("fit", data, "--epsilon", "1", "--quiet", "-o", tmp_path / "m"), "fit")
    assert "--target COLUMN" in said
    assert "--no-header" in said
    assert "secret" not in said


COMMAS = ("x,y", "x", "y", "age")


@pytest.fixture
def commas(tmp_path: Path) -> Path:
    """A table of which one column's name contains a comma."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (600, 4)), columns=COMMAS)
    frame["outcome"] = np.where(frame["age"] > 0, "home", "ward")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


@pytest.mark.parametrize("schema", [False, True], ids=["numbers", "short options"])
@pytest.mark.parametrize(
    ("given", "left"),
    [
        (["x,y"], ["x", "y", "age"]),  # a column's name first of all
        (["x", "y"], ["x,y", "age"]),
        (["y, x"], ["x,y", "age"]),
        (['"x,y",x'], ["y", "age"]),
        (['y,x,"x,y"'], ["age"]),
    ],
)
def test_columns_to_leave_out_may_be_a_list(
    run: Any, commas: Path, tmp_path: Path, given: list[str], left: list[str], schema: bool
) -> None:
    """Separated by commas; a comma that belongs to a name is found by the header, or said by quotes."""
    ignored = [word for item in given for word in ("--ignore", item)]
    ranges = [word for name in left for word in ("--range", f"{name}=-1:1")]
    declared = [*ranges, "--classes", "home,ward"] if schema else ["--row-linf", "1"]
    words = ["--target", "outcome", "--epsilon", "5", "--quiet", *declared, *ignored, "-o", tmp_path / "m"]
    ran = run("fit", commas, *words, "--json")
    assert ran.code == 0, ran.out
    assert pd.read_csv(tmp_path / "m" / "weights.csv")["feature"].isin([*left, "(intercept)"]).all()
    assert ran.values["n_features"] == len(left)


def test_a_list_with_a_wrong_name_says_which(run: Any, commas: Path, tmp_path: Path) -> None:
    ran = run(
        "fit", commas, "--target", "outcome", "--epsilon", "1", "--quiet", "--ignore", "x,z", "-o", tmp_path / "m"
    )
    assert "--ignore: no column is named 'z'" in one_line(ran, "fit")


@pytest.mark.parametrize("epsilon", ["0.3333333", "1"])
def test_what_is_proved_is_not_printed_above_what_was_asked(
    run: Any, place: Path, tmp_path: Path, epsilon: str
) -> None:
    """Where it is not above it in truth; and never below what is proved."""
    words = fit_words(place, tmp_path / "m", "--delta", "3.33333333e-7")
    words[words.index("--epsilon") + 1] = epsilon
    (line,) = (line for line in run(*words).out.splitlines() if line.startswith("Proved"))
    proved, asked = line.removesuffix(").").split(" (asked: ")
    epsilons = float(proved.split("ε = ")[1].split(" at")[0]), float(asked.split(", ")[0])
    deltas = float(proved.split("δ = ")[1]), float(asked.split(", ")[1])
    privacy = json.loads((tmp_path / "m" / "privacy.json").read_text())
    assert privacy["epsilon"] <= epsilons[0] <= epsilons[1] <= 1.0001 * float(epsilon)
    assert privacy["delta"] <= deltas[0] <= deltas[1] <= 1.0001 * 3.33333333e-7


def test_a_ledger_prints_no_entry_above_its_cap(run: Any, place: Path, tmp_path: Path) -> None:
    budget = tmp_path / "budget"
    opened = ["--dataset", "d", "--epsilon", "0.3333333", "--delta", "3.33333333e-7"]
    assert run("ledger", "open", budget, *opened).code == 0
    words = fit_words(place, tmp_path / "m", "--delta", "3.33333333e-7", "--ledger", budget, "--dataset", "d")
    words[words.index("--epsilon") + 1] = 0.3333333
    assert run(*words).code == 0
    cap, entry, left = run("ledger", "show", budget).out.splitlines()
    assert "cap epsilon = 0.33334, delta = 3.3334e-07" in cap
    printed = re.search(r"ε = ([\d.]+), δ = (\S+)", entry)
    assert printed is not None
    assert float(printed[1]) <= 0.33334
    assert printed[2] == "3.3334e-07"
    assert "delta = 3.3333e-07" in left  # what may be spent is rounded down


# Interrupts the import of the first module that is not the interpreter's own.
_INTERRUPTED = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
for known in [name for name in sys.modules if name.split(".")[0] == {name!r}.split(".")[0]]:
    del sys.modules[known]
from tulle.cli import main
sys.exit(main(["fit", "rows.csv", *{more!r}]))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["argparse", "tulle.cli.command_runner", "tulle.cli.fit"])
@pytest.mark.parametrize("json_output", [False, True])
def test_ctrl_c_during_imports_is_one_line(name: str, json_output: bool) -> None:
    """Exit code 130, no traceback, and one JSON object if that was asked for."""
    code = _INTERRUPTED.format(name=name, more=["--json"] if json_output else [])
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 130
    if json_output:
        assert json.loads(ran.stdout)["error"]["kind"] == "interrupted"
        assert ran.stderr == ""
    else:
        assert ran.stdout == ""
        assert ran.stderr.strip() in ("tulle: interrupted", "tulle fit: interrupted")


def test_the_way_in_imports_nothing_else() -> None:
    """Before it can answer Ctrl-C: every module more is time in which an interruption ends in a traceback."""
    code = "import sys\nbefore = set(sys.modules)\nimport tulle.cli\nprint(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(ran.stdout.split()) <= {"__future__", "tulle", "tulle.cli", "tulle.files", "tulle.files.saved_models"}
