"""`tulle compare` as a command: killed, interrupted, run twice at once, and asked for JSON."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tulle.cli import main
from tulle.experiments.comparison import Comparison, compare
from tulle.experiments.examples import Examples

# What an interrupted comparison must have in common with one that was not.
SAME = ("results.csv", "table.md", "comparison.json")
AXES = ["--methods", "auto,frank_wolfe,coordinate_descent", "--epsilons", "1,4", "--trials", "8"]
CELLS = 8 * (2 + 3 * 2)


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 200 rows with 10 features, a label and a number to predict."""
    return write_rows(tmp_path_factory.mktemp("data") / "visits.csv", 200, seed=0)


def write_rows(path: Path, n: int, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 10))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{i}" for i in range(10)), "back", "days"])
        for row in X:
            writer.writerow(
                [*map(repr, row.tolist()), "yes" if row[0] > row[1] else "no", repr(float(row[0] - row[2]))]
            )
    return path


def arguments(data: Path, folder: Path, *more: str) -> list[str]:
    known = ["--target", "back", "--ignore", "days", "--row-linf", "1"]
    return ["compare", str(data), *known, *AXES, "-o", str(folder), *more]


def start(*words: str) -> subprocess.Popen[str]:
    """The command in a process group of its own, as a terminal would start it."""
    return subprocess.Popen(
        [sys.executable, "-m", "tulle", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell starts what runs in its background with SIGINT ignored, and so would this process's children be.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def starts(folder: Path) -> list[str]:
    """The cells that were started, in order."""
    log = folder / "log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.dumps(json.loads(line)["started"], sort_keys=True) for line in lines]


def finished(folder: Path) -> set[str]:
    """The cells that have a result."""
    files = (folder / "cells").glob("*.json") if (folder / "cells").exists() else []
    return {json.dumps(json.loads(path.read_text())["cell"], sort_keys=True) for path in files}


def wait_for_cells(folder: Path, count: int, running: subprocess.Popen[str]) -> None:
    """Wait until a run that goes on has finished this many cells."""
    until = time.monotonic() + 120
    while len(finished(folder)) < count:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.01)


def wait_until_gone(group: int) -> None:
    """Wait until no process of a group runs any more; workers end by themselves within seconds."""
    until = time.monotonic() + 30
    while left := living(group):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def living(group: int) -> list[str]:
    """The processes of a group that still run."""
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat=,pid=,args="], capture_output=True, text=True, check=True)
    lines = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    return [words[-1] for words in lines if words[0] == str(group) and not words[1].startswith("Z")]


@pytest.fixture(scope="module")
def undisturbed(visits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "out"
    assert main([*arguments(visits, folder), "--jobs", "1", "--quiet"]) == 0
    assert len(starts(folder)) == CELLS
    return folder


def same(folder: Path, other: Path) -> bool:
    return all((folder / name).read_bytes() == (other / name).read_bytes() for name in SAME)


def test_a_killed_comparison_goes_on(visits: Path, undisturbed: Path, tmp_path: Path) -> None:
    """SIGKILL after some cells: what is done is not run again, no process is left, results are equal."""
    folder = tmp_path / "out"
    running = start(*arguments(visits, folder, "--jobs", "2"))
    wait_for_cells(folder, 3, running)
    running.kill()
    running.communicate(timeout=30)
    assert running.returncode == -signal.SIGKILL
    wait_until_gone(running.pid)
    done, before = finished(folder), len(starts(folder))
    assert 3 <= len(done) < CELLS
    assert main([*arguments(visits, folder), "--jobs", "1", "--quiet"]) == 0
    assert set(starts(folder)[before:]).isdisjoint(done)
    assert len(starts(folder)) - before == CELLS - len(done)
    # Two workers had at most two cells in hand.
    assert len(starts(folder)) <= CELLS + 2
    assert same(folder, undisturbed)


def test_an_interrupted_comparison_says_what_is_kept(visits: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches all processes: one line, exit code 130, no traceback; the same command goes on."""
    folder = tmp_path / "out"
    running = start(*arguments(visits, folder, "--jobs", "2"))
    wait_for_cells(folder, 2, running)
    os.killpg(running.pid, signal.SIGINT)
    output, errors = running.communicate(timeout=120)
    assert running.returncode == 130
    assert output == ""
    last = errors.splitlines()[-1]
    assert last.startswith("tulle compare: interrupted; ")
    assert f" of {CELLS} cells are saved" in last
    assert last.endswith("the same command resumes from there")
    assert "Traceback" not in errors
    wait_until_gone(running.pid)
    # Four cells, two for each worker, are handed out at a time: no more can follow the ones that were counted.
    assert 2 <= int(last.split()[3]) <= len(finished(folder)) <= int(last.split()[3]) + 4
    assert main([*arguments(visits, folder), "--jobs", "1", "--quiet"]) == 0
    assert same(folder, undisturbed)


def test_two_runs_in_one_folder_share_the_work(visits: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Started at the same moment, both end well with the same results, and no cell was run twice."""
    folder = tmp_path / "out"
    both = [start(*arguments(visits, folder, "--jobs", "1")) for _ in range(2)]
    for running in both:
        _, errors = running.communicate(timeout=120)
        assert running.returncode == 0, errors
    assert set(Counter(starts(folder)).values()) == {1}
    assert len(starts(folder)) == CELLS
    processes = {json.loads(line)["process"] for line in (folder / "log.jsonl").read_text().splitlines()}
    assert processes == {running.pid for running in both}
    assert same(folder, undisturbed)


def answer(capsys: pytest.CaptureFixture[str], words: Sequence[str]) -> tuple[int, Any, str]:
    """The exit code, the JSON object on standard output, and what was said on standard error."""
    code = main([*words, "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_json_is_one_object(visits: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints comparison.json with the folder, and nothing else, on standard output."""
    before = len(starts(undisturbed))
    code, values, _ = answer(capsys, arguments(visits, undisturbed, "--jobs", "1"))
    assert code == 0
    kept = json.loads((undisturbed / "comparison.json").read_text())
    assert {name: values[name] for name in kept} == kept
    assert values["format"] == "tulle comparison 1"
    assert values["data"] == "visits.csv"
    assert values["folder"] == str(undisturbed)
    assert len(values["rows"]) == 6
    assert len(starts(undisturbed)) == before  # all of it was there


def test_the_text_is_the_table(visits: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json the table is printed with its note, and where the files are."""
    assert main([*arguments(visits, undisturbed), "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith((undisturbed / "table.md").read_text())
    assert "Not for release: scores were computed on the rows themselves, without noise." in captured.out
    assert f"Written to {undisturbed}: report.html" in captured.out
    assert captured.err == ""


def test_metrics_are_in_every_file(visits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--metrics adds columns, means and tables; one for another task is refused."""
    words = ["compare", str(visits), "--target", "back", "--ignore", "days", "--row-linf", "1", "--methods", "auto"]
    words += ["--epsilons", "4", "--trials", "1", "--jobs", "1", "-o", str(tmp_path / "o")]
    code, values, _ = answer(capsys, [*words, "--metrics", "auc,log_loss"])
    assert code == 0
    assert values["metrics"] == ["auc", "log_loss"]
    assert 0.5 < values["rows"][0]["metrics"]["auc"]["mean"] <= 1
    assert values["null_model"]["metrics"]["auc"]["mean"] == 0.5
    assert "auc,log_loss" in (tmp_path / "o" / "results.csv").read_text().splitlines()[0]
    assert "log_loss, on the same rows:" in (tmp_path / "o" / "table.md").read_text()
    code, values, _ = answer(capsys, [*words, "--metrics", "r2"])
    assert code == 2
    assert "'r2' is for regression" in values["error"]["message"]


def test_other_settings_exit_with_2(visits: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another seed or bound in the same folder is refused by name, and nothing is lost."""
    code, values, _ = answer(capsys, arguments(visits, undisturbed, "--seed", "1", "--row-linf", "2"))
    assert code == 2
    message = values["error"]["message"]
    assert "seed was 0, now 1" in message
    assert "bounds.row_linf was 1.0, now 2.0" in message
    assert "--restart" in message
    assert len(finished(undisturbed)) == CELLS


def test_more_of_an_axis_goes_into_the_same_folder(
    visits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second budget and trial run what is new; --restart runs all of it."""
    words = [
        "compare",
        str(visits),
        "--target",
        "back",
        "--ignore",
        "days",
        "--row-linf",
        "1",
        "-o",
        str(tmp_path / "o"),
    ]
    words += ["--methods", "auto", "--jobs", "1"]
    assert answer(capsys, [*words, "--epsilons", "4", "--trials", "1"])[0] == 0
    assert len(starts(tmp_path / "o")) == 3
    assert answer(capsys, [*words, "--epsilons", "2,4", "--trials", "2"])[0] == 0
    assert set(Counter(starts(tmp_path / "o")).values()) == {1}
    assert len(starts(tmp_path / "o")) == 8
    assert answer(capsys, [*words, "--epsilons", "4", "--trials", "1", "--restart"])[0] == 0
    assert len(starts(tmp_path / "o")) == 3


def test_test_rows_of_their_own(visits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--test trains on all rows of one file and scores all rows of the other, for numbers too."""
    test = write_rows(tmp_path / "test.csv", 50, seed=1)
    words = ["compare", str(visits), "--target", "days", "--ignore", "back", "--task", "regression"]
    words += ["--row-linf", "1", "--label-bound", "2", "--test", str(test), "--methods", "auto", "--epsilons", "8"]
    code, values, _ = answer(capsys, [*words, "--trials", "2", "--jobs", "1", "-o", str(tmp_path / "o")])
    assert code == 0
    assert (values["n_train"], values["n_test"], values["metric"]) == (200, 50, "1 − R²")
    assert values["no_privacy"]["mean"] < 0.1
    assert values["no_privacy"]["standard_error"] == 0  # one split, no noise
    assert values["null_model"]["mean"] == pytest.approx(1, abs=0.1)


def test_a_failed_cell_exits_with_1(visits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A method that cannot fit such a model, asked for by name, is told in its place; the others are compared."""
    rows = visits.read_text().splitlines()
    three = tmp_path / "three.csv"
    labels = ("red", "green", "blue")
    body = [f"{row.rsplit(',', 2)[0]},{labels[i % 3]}" for i, row in enumerate(rows[1:])]
    three.write_text("\n".join([f"{rows[0].rsplit(',', 2)[0]},colour", *body]) + "\n")
    words = ["compare", str(three), "--target", "colour", "--row-linf", "1", "--epsilons", "4", "--trials", "1"]
    words += ["--jobs", "1", "-o", str(tmp_path / "o")]
    code, values, _ = answer(capsys, [*words, "--methods", "auto,screen_refine"])
    assert code == 1
    assert [(cell["method"], cell["trial"]) for cell in values["failed"]] == [("screen_refine", 0)]
    assert f"failed ({values['failed'][0]['reason']})" in (tmp_path / "o" / "table.md").read_text()
    # Without names it is left out, with the reason.
    code, values, _ = answer(capsys, words)
    assert code == 0
    assert "screen_refine" in values["left_out"]
    assert "auto" in {row["method"] for row in values["rows"]}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--methods", "auto,magic"], "method 'magic' is unknown"),
        (["--epsilons", "1,0"], "epsilon"),
        (["--trials", "0"], "trials must be at least 1"),
        (["--jobs", "0"], "jobs must be at least 1"),
        (["--target", "nothing"], "nothing"),
    ],
)
def test_wrong_input_exits_with_2(
    visits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    """One line that says what is wrong, and no results."""
    code, values, _ = answer(capsys, arguments(visits, tmp_path / "o", *more))
    assert code == 2
    assert message in values["error"]["message"]
    assert not finished(tmp_path / "o")


def test_numbers_that_are_none_are_usage_errors(
    visits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Budgets that are words are refused by the parser."""
    assert main(arguments(visits, tmp_path / "o", "--epsilons", "small")) == 2
    assert "--epsilons" in capsys.readouterr().err


def test_public_rows_go_to_the_methods_that_can_use_them(
    visits: Path, undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other lines are as without them, the files say which is which, and other public rows need another folder."""
    public, others = (write_rows(tmp_path / f"{seed}.csv", 60, seed) for seed in (7, 8))
    folder = tmp_path / "out"
    words = arguments(visits, folder, "--jobs", "1", "--quiet", "--public")
    assert main([*words, str(public), "--trials", "2"]) == 0
    note = "60 public rows, given to auto and to no other method"
    assert note in capsys.readouterr().out
    assert note in (folder / "table.md").read_text()
    assert note in (folder / "report.html").read_text()
    summary = json.loads((folder / "comparison.json").read_text())
    assert summary["public"] == {"n_rows": 60, "methods": ["auto"]}
    assert json.loads((undisturbed / "comparison.json").read_text())["public"] is None
    with_rows, without = scores(folder), scores(undisturbed)
    for place, score in with_rows.items():
        used = place[0] == "auto" and place[1] != ""
        assert (score != without[place]) == used, place
    before = starts(folder)
    for more in ([*words, str(others)], words[:-1]):
        assert main(more) == 2
        assert "public rows was" in capsys.readouterr().err
    assert main([*words, str(public), "--trials", "2"]) == 0
    assert starts(folder) == before


def scores(folder: Path) -> dict[tuple[str, ...], float]:
    with (folder / "results.csv").open(newline="") as file:
        return {(line["method"], line["epsilon"], line["trial"]): float(line["score"]) for line in csv.DictReader(file)}


def test_public_rows_that_no_method_can_use(visits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = arguments(visits, tmp_path / "out", "--public", str(write_rows(tmp_path / "public.csv", 60, 7)))
    assert main([*words, "--methods", "frank_wolfe"]) == 2
    assert "none of the methods frank_wolfe can use public rows" in capsys.readouterr().err
    assert main([*words, "--test", str(visits), "--public", str(visits)]) == 2
    assert "is the file of private rows itself" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_method_that_cannot_use_public_rows_for_such_a_model_runs_without(tmp_path: Path) -> None:
    """For three classes and the logistic loss auto has no use for them; with the squared hinge loss it has."""
    rng = np.random.default_rng(0)
    X, public = rng.uniform(-1, 1, (200, 10)), rng.uniform(-1, 1, (60, 10))
    rows = Examples(X, np.digitize(X[:, 0], [-0.3, 0.3]))
    asked = Comparison("rows", rows, "classification", methods=("auto", "frank_wolfe"), epsilons=(4.0,), trials=1)
    without = replace(asked, public=public)
    with pytest.raises(ValueError, match="none of the methods auto, frank_wolfe can use public rows for such a model"):
        compare(without, tmp_path / "out", jobs=1)
    summary = compare(replace(without, settings={"loss": "squared_hinge"}), tmp_path / "out", jobs=1)
    assert summary["public"]["methods"] == ["auto"]
    assert not summary["failed"]
