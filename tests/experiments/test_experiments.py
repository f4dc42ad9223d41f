"""Experiments: cells that are run once each whatever happens, seeds by axis, and comparisons of methods."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from copied_sources import copied, edited

import tulle
from tulle import Bounds, Budget, Ledger
from tulle.experiments import cell_runner as runner
from tulle.experiments.cell_runner import Folder, LostWorkerError, OtherSettingsError, run_cells
from tulle.experiments.cells import Cell, Finished, data_seed, noise_seed, seed_from
from tulle.experiments.comparison import (
    NOT_FOR_RELEASE,
    Comparison,
    Examples,
    compare,
    mean_and_error,
    summarised_warnings,
    table,
)
from tulle.experiments.dependencies import sources
from tulle.experiments.run_progress import progress_line

AXES = [
    Cell("a", method, epsilon, trial) for method in ("x", "y") for epsilon in (None, 1.0, 2.0) for trial in range(3)
]


@dataclass(frozen=True)
class Squares:
    """A task without models: the value of a cell is its trial squared."""

    trials: int = 4
    changed: tuple[int, ...] = ()  # trials whose data is no longer what it was
    fails: int | None = None
    kills: int | None = None
    spares: int = 0  # the process that is not killed
    version: int = 1

    def cells(self) -> Sequence[Cell]:
        return [Cell("numbers", "square", 1.0, trial) for trial in range(self.trials)]

    def run(self, cell: Cell) -> Mapping[str, Any]:
        if cell.trial == self.fails:
            raise RuntimeError("no square\nfor this one")
        if cell.trial == self.kills and os.getpid() != self.spares:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"square": cell.trial**2, "share": cell.trial / 3, "list": [1, 2]}

    def fingerprint(self) -> Mapping[str, Any]:
        return {"version": self.version, "seed": 0}

    def depends(self, cell: Cell) -> Mapping[str, Any]:
        return {"data": "new" if cell.trial in self.changed else "old"}

    def files_digest(self, cell: Cell) -> str:
        return ""

    def sources(self, cell: Cell) -> Sequence[str]:
        """Trials 0 and 1 of one module, the others of another."""
        return ("tulle.files.durable_writes",) if cell.trial < 2 else ("tulle.trusted.events",)


@dataclass(frozen=True)
class Codes:
    """Stands for the source of the package: a version for each module."""

    durable_writes: str = "1" * 64
    events: str = "2" * 64

    def digest(self, modules: Sequence[str] | None = None) -> str:
        return "all" if modules is None else str(getattr(self, modules[0].rpartition(".")[2]))


def started(folder: Path) -> list[int]:
    """The trials of the cells that were started, in order."""
    return [json.loads(line)["started"]["trial"] for line in (folder / "log.jsonl").read_text().splitlines()]


def cell_file(folder: Path, trial: int) -> Path:
    """The file of one finished cell of `Squares`."""
    [found] = [path for path in (folder / "cells").iterdir() if json.loads(path.read_text())["cell"]["trial"] == trial]
    return found


# --- seeds -----------------------------------------------------------------------------------------------------------


def test_a_trial_has_the_same_rows_for_every_method_and_budget() -> None:
    """The seed of the rows depends on the data and the trial alone: methods are compared in pairs."""
    for trial in range(3):
        seeds = {data_seed(7, cell) for cell in AXES if cell.trial == trial}
        assert len(seeds) == 1
    assert len({data_seed(7, cell) for cell in AXES}) == 3
    assert data_seed(7, AXES[0]) != data_seed(8, AXES[0])
    assert data_seed(7, AXES[0]) != data_seed(7, replace(AXES[0], data="b"))


def test_every_cell_has_noise_of_its_own() -> None:
    """No two cells share the seed of their noise, and none shares it with rows; 1 and 1.0 are one budget."""
    seeds = {noise_seed(7, cell) for cell in AXES}
    assert len(seeds) == len(AXES)
    assert seeds.isdisjoint({data_seed(7, cell) for cell in AXES})
    assert noise_seed(7, Cell("a", "x", 1, 0)) == noise_seed(7, Cell("a", "x", 1.0, 0))
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_axes_are_told_apart() -> None:
    """Words that run together, and a number and its text, give different seeds."""
    assert len({seed_from(0, "ab", "c"), seed_from(0, "a", "bc"), seed_from(0, 1), seed_from(0, "1")}) == 4


# --- the folder ------------------------------------------------------------------------------------------------------


def test_finished_cells_are_not_run_again(tmp_path: Path) -> None:
    """A second call runs nothing and returns the same; more trials run only what is new."""
    first = run_cells(Squares(), tmp_path, jobs=1)
    assert [one.values["square"] for one in first] == [0, 1, 4, 9]
    assert run_cells(Squares(), tmp_path, jobs=1) == first
    assert started(tmp_path) == [0, 1, 2, 3]
    assert len(run_cells(Squares(trials=6), tmp_path, jobs=1)) == 6
    assert started(tmp_path) == [0, 1, 2, 3, 4, 5]
    assert list((tmp_path / "runs").iterdir()) == []


def test_results_are_tables(tmp_path: Path) -> None:
    """results.csv has a line a cell with every plain value to the last digit, and times and machine stand elsewhere."""
    run_cells(Squares(), tmp_path, jobs=1)
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == ["0", "1", "2", "3"]
    assert list(rows[0]) == ["data", "method", "epsilon", "trial", "square", "share", "failed", "code"]
    assert {row["code"] for row in rows} == {
        sources().digest([name])[:12] for name in ("tulle.files.durable_writes", "tulle.trusted.events")
    }
    assert [float(row["share"]) for row in rows] == [0, 1 / 3, 2 / 3, 1]
    with (tmp_path / "times.csv").open(newline="") as file:
        assert all(float(row["seconds"]) >= 0 for row in csv.DictReader(file))
    machine = json.loads((tmp_path / "machine.json").read_text())
    assert machine["tulle"] == tulle.__version__
    assert machine["numpy"] == np.__version__
    assert machine["cores"] == os.cpu_count()


@pytest.mark.parametrize("damage", ["", '{"cell": {"data"', '{"cell": 3}', "[]", "\x00\x01"])
def test_a_damaged_cell_is_run_again(tmp_path: Path, damage: str) -> None:
    """A file that is empty, cut short or something else counts as not there, and nothing else is run."""
    before = run_cells(Squares(), tmp_path, jobs=1)
    cell_file(tmp_path, 2).write_text(damage)
    after = run_cells(Squares(), tmp_path, jobs=1)
    assert [one.values for one in after] == [one.values for one in before]
    assert started(tmp_path) == [0, 1, 2, 3, 2]


def test_a_cell_in_the_file_of_another_is_run_again(tmp_path: Path) -> None:
    """A result is believed for the cell that it names only."""
    run_cells(Squares(), tmp_path, jobs=1)
    cell_file(tmp_path, 2).write_text(cell_file(tmp_path, 3).read_text())
    assert [one.values["square"] for one in run_cells(Squares(), tmp_path, jobs=1)] == [0, 1, 4, 9]
    assert started(tmp_path)[4:] == [2]


def test_a_failed_cell_stops_no_other_and_is_tried_again(tmp_path: Path) -> None:
    """The type and place of the error are kept in one line, not words that may quote a row; the next run tries that
    cell alone."""
    finished = run_cells(Squares(fails=1), tmp_path, jobs=1)
    failed = [one.failed for one in finished]
    assert failed[1].startswith("RuntimeError (test_experiments.py, line ")
    assert failed[:1] + failed[2:] == ["", "", ""]
    assert failed[1] in (tmp_path / "results.csv").read_text()
    assert "no square for this one" not in (tmp_path / "results.csv").read_text()
    assert [one.values["square"] for one in run_cells(Squares(), tmp_path, jobs=1)] == [0, 1, 4, 9]
    assert started(tmp_path) == [0, 1, 2, 3, 1]


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    """The message names what differs, what it was and is, and what to do; --restart begins afresh."""
    run_cells(Squares(), tmp_path, jobs=1)
    with pytest.raises(OtherSettingsError, match=r"\(version was 1, now 2\); choose another folder, or pass --restart"):
        run_cells(Squares(version=2), tmp_path, jobs=1)
    assert started(tmp_path) == [0, 1, 2, 3]
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="jobs must be"):
        run_cells(Squares(version=2), tmp_path, jobs=0, restart=True)
    assert (tmp_path / "results.csv").exists()
    finished = run_cells(Squares(version=2), tmp_path, jobs=1, restart=True)
    assert len(finished) == 4
    assert started(tmp_path) == [0, 1, 2, 3]  # of a new log
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(OtherSettingsError, match="version was 2, now 1"):
        run_cells(Squares(version=1), tmp_path, jobs=1)


def test_a_deleted_result_is_found_again_and_nothing_else_is_run(tmp_path: Path) -> None:
    before = run_cells(Squares(), tmp_path, jobs=1)
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    gone = cell_file(tmp_path, 1)
    gone.unlink()
    after = run_cells(Squares(), tmp_path, jobs=1)
    assert started(tmp_path) == [0, 1, 2, 3, 1]
    assert [one.values for one in after] == [one.values for one in before]
    kept.pop(gone.name)
    assert all((tmp_path / "cells" / name).stat().st_mtime_ns == at for name, at in kept.items())
    assert gone.exists()


def test_changed_data_is_measured_again_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How many results no longer hold is said where progress is shown, and where it is not nothing is."""
    run_cells(Squares(), tmp_path, jobs=1, progress=True)
    assert "run again" not in capsys.readouterr().err
    run_cells(Squares(changed=(1, 3)), tmp_path, jobs=1, progress=True)
    assert started(tmp_path)[4:] == [1, 3]
    told = capsys.readouterr()
    assert "2 cells are run again: the code, data or settings that they depend on changed" in told.err
    assert told.out == ""
    run_cells(Squares(changed=(1,)), tmp_path, jobs=1)
    assert started(tmp_path)[6:] == [3]  # what holds is that of the last run
    assert capsys.readouterr().err == ""


def test_changed_code_is_measured_again_by_whom_it_concerns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result names the code that it was found with, in its own file and in results.csv."""
    monkeypatch.setattr(runner, "sources", Codes)
    run_cells(Squares(), tmp_path, jobs=1)
    monkeypatch.setattr(runner, "sources", lambda: Codes(events="3" * 64))
    finished = run_cells(Squares(), tmp_path, jobs=1)
    assert started(tmp_path)[4:] == [2, 3]
    assert [one.code[0] for one in finished] == ["1", "1", "3", "3"]
    with (tmp_path / "results.csv").open(newline="") as file:
        assert [row["code"] for row in csv.DictReader(file)] == ["1" * 12] * 2 + ["3" * 12] * 2
    assert json.loads(cell_file(tmp_path, 3).read_text())["code"] == "3" * 64
    run_cells(Squares(), tmp_path, jobs=1)
    assert len(started(tmp_path)) == 6


def test_a_failure_is_tried_again_though_nothing_changed(tmp_path: Path) -> None:
    """And a result of the past that then fails does not come back."""
    run_cells(Squares(), tmp_path, jobs=1)
    failed = run_cells(Squares(fails=1, changed=(1,)), tmp_path, jobs=1)
    assert failed[1].failed
    assert failed[1].values == {}
    assert run_cells(Squares(changed=(1,)), tmp_path, jobs=1)[1].values["square"] == 1
    assert started(tmp_path)[4:] == [1, 1]


def test_a_task_may_say_how_long_a_cell_took(tmp_path: Path) -> None:
    """`seconds` among the values is the time of the cell, and no value: it may differ from run to run."""

    class Timed(Squares):
        def run(self, cell: Cell) -> Mapping[str, Any]:
            return {**super().run(cell), "seconds": 12.5}

    finished = run_cells(Timed(), tmp_path, jobs=1)
    assert all(one.seconds == 12.5 and "seconds" not in one.values for one in finished)
    assert "seconds" not in (tmp_path / "results.csv").read_text()
    with (tmp_path / "times.csv").open(newline="") as file:
        assert [row["seconds"] for row in csv.DictReader(file)] == ["12.5"] * 4


def test_a_cell_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    class Twice(Squares):
        def cells(self) -> Sequence[Cell]:
            return [*super().cells(), super().cells()[0]]

    with pytest.raises(ValueError, match="lists a cell twice"):
        run_cells(Twice(), tmp_path / "o", jobs=1)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("text", ["{", '{"format": "something else"}', '{"format": "tulle experiment 2"}', "3"])
def test_settings_that_cannot_be_read_are_refused(tmp_path: Path, text: str) -> None:
    """A damaged or foreign settings.json is not guessed at."""
    run_cells(Squares(), tmp_path, jobs=1)
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(OtherSettingsError, match="has a format that this version cannot read"):
        run_cells(Squares(), tmp_path, jobs=1)


def test_a_folder_of_an_older_version_is_refused_with_advice(tmp_path: Path) -> None:
    """Its results do not say what they depend on; --restart begins it afresh."""
    run_cells(Squares(), tmp_path, jobs=1)
    settings = {"format": "tulle experiment 1", "settings": {**Squares().fingerprint(), "code": "0"}}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(OtherSettingsError, match="this version cannot read; choose another folder, or pass --restart"):
        run_cells(Squares(), tmp_path, jobs=1)
    run_cells(Squares(), tmp_path, jobs=1, restart=True)
    assert started(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("restart", [False, True])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, restart: bool) -> None:
    """A folder with files of other kinds is refused, and nothing in it is touched."""
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(OtherSettingsError, match=r"thesis\.txt"):
        run_cells(Squares(), tmp_path, jobs=1, restart=restart)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_cell_that_another_process_runs_is_waited_for(tmp_path: Path) -> None:
    """While a claim is held elsewhere the cell is not run; once it is free, a result that has appeared is taken."""
    run_cells(Squares(trials=1), tmp_path, jobs=1)
    run_cells(Squares(), tmp_path / "other", jobs=1)
    appearing = cell_file(tmp_path / "other", 2)
    folder, cell = Folder(tmp_path, Squares().fingerprint()), Squares().cells()[2]
    found: list[list[Finished]] = []
    thread = threading.Thread(target=lambda: found.append(run_cells(Squares(), tmp_path, jobs=1)))
    with folder.claim(cell) as ours:
        assert ours
        with folder.claim(cell) as twice:
            assert not twice
        thread.start()
        until = time.monotonic() + 30
        while started(tmp_path) != [0, 1, 3]:
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(0.5)
        assert not found  # it waits
        text = appearing.read_text().replace('"square": 4', '"square": -1')
        (tmp_path / "cells" / appearing.name).write_text(text)
    thread.join(30)
    assert [one.values["square"] for one in found[0]] == [0, 1, -1, 9]
    assert started(tmp_path) == [0, 1, 3]


def test_a_cell_whose_process_went_away_is_taken_over(tmp_path: Path) -> None:
    """A claim that is given back without a result is taken by whoever waits."""
    run_cells(Squares(trials=1), tmp_path, jobs=1)
    folder = Folder(tmp_path, Squares().fingerprint())
    thread = threading.Thread(target=lambda: run_cells(Squares(), tmp_path, jobs=1))
    with folder.claim(Squares().cells()[2]):
        thread.start()
        time.sleep(0.5)
    thread.join(30)
    assert started(tmp_path) == [0, 1, 3, 2]


def test_no_restart_under_a_run_that_works(tmp_path: Path) -> None:
    """--restart is refused while another run is open, and works once it is closed."""
    run_cells(Squares(), tmp_path, jobs=1)
    folder = Folder(tmp_path, Squares().fingerprint())
    with folder.opened(restart=False):
        with pytest.raises(OtherSettingsError, match="another run is using"):
            run_cells(Squares(), tmp_path, jobs=1, restart=True)
        assert len(list((tmp_path / "cells").iterdir())) == 4
    run_cells(Squares(), tmp_path, jobs=1, restart=True)


def test_a_killed_worker_is_told_and_costs_nothing_that_is_done(tmp_path: Path) -> None:
    """Where the system kills a worker the message says so and how to go on; finished cells stay."""
    with pytest.raises(LostWorkerError, match=r"was killed, perhaps for lack of memory.*fewer --jobs"):
        run_cells(Squares(trials=30, kills=29, spares=os.getpid()), tmp_path, jobs=2)
    done = len(list((tmp_path / "cells").iterdir()))
    assert done >= 20
    run_cells(Squares(trials=30), tmp_path, jobs=1)
    assert len(started(tmp_path)) <= 30 + (30 - done)


@pytest.mark.parametrize("jobs", [0, -1])
def test_jobs_are_at_least_one(tmp_path: Path, jobs: int) -> None:
    """A number of processes below 1 is refused."""
    with pytest.raises(ValueError, match=f"jobs must be at least 1, got {jobs}"):
        run_cells(Squares(), tmp_path, jobs=jobs)


def test_the_time_left_is_that_of_the_same_method() -> None:
    """What is left of a slow method is counted as slow; methods without times count as the mean; jobs share."""
    cells = [Cell("a", method, None, trial) for method in ("slow", "fast", "new") for trial in range(2)]
    finished = [Finished(cells[0], {}, 70.0), Finished(cells[2], {}, 10.0, "ValueError: no")]
    # 70 for the slow one, 10 for the fast one, and twice the mean of 40.
    assert progress_line(cells, finished, 1) == "2/6 cells, 1 failed, about 3 min left"
    assert progress_line(cells, finished, 2) == "2/6 cells, 1 failed, about 80 s left"
    assert progress_line(cells, [], 2) == "0/6 cells"
    assert progress_line(cells, [Finished(cell, {}, 1.0) for cell in cells], 2) == "6/6 cells"


# --- comparisons -----------------------------------------------------------------------------------------------------


def rows(n: int = 200, d: int = 10, *, regression: bool = False, seed: int = 0) -> Examples:
    """Rows whose target hangs on two features."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    margins = X[:, 0] - X[:, 1]
    return Examples(X, margins + 0.1 * rng.normal(size=n) if regression else np.where(margins > 0, "yes", "no"))


def comparison(**changes: Any) -> Comparison:
    """A small comparison."""
    settings: dict[str, Any] = {
        "name": "small",
        "rows": rows(),
        "task": "classification",
        "methods": ("auto", "frank_wolfe"),
        "epsilons": (1.0, 4.0),
        "trials": 2,
        "settings": {"bounds": Bounds(row_linf=1.0)},
    }
    return Comparison(**(settings | changes))


def test_one_job_and_two_find_the_same(tmp_path: Path) -> None:
    """Results do not depend on how many processes share the work, for large shared arrays too."""
    large = rows(20_000, 20)  # beyond the size from which arrays are shared, not copied
    for name, examples in (("dense", large), ("sparse", replace(large, X=sp.csr_array(large.X)))):
        for jobs in (1, 2):
            compare(comparison(rows=examples, methods=("auto",), trials=1), tmp_path / f"{name}{jobs}", jobs=jobs)
        for file in ("results.csv", "table.md", "comparison.json"):
            assert (tmp_path / f"{name}1" / file).read_bytes() == (tmp_path / f"{name}2" / file).read_bytes()


def test_more_methods_and_budgets_change_no_other_cell(tmp_path: Path) -> None:
    """A cell's value is the same in a larger comparison, and a folder takes what is new without running the old."""
    few = run_cells(comparison(), tmp_path, jobs=1)
    more = comparison(methods=("two_stage", "auto", "frank_wolfe"), epsilons=(1.0, 2.0, 4.0), trials=3)
    after = {one.cell: one.values for one in run_cells(more, tmp_path / "other", jobs=1)}
    assert all(after[one.cell] == one.values for one in few)
    run_cells(more, tmp_path, jobs=1)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == len(after) == 3 * (2 + 9)


def test_a_changed_method_is_compared_again_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frank-Wolfe at its budgets, and auto, which uses it, with and without privacy; not the null model."""
    small = comparison(methods=("auto", "frank_wolfe", "hard_thresholding"), epsilons=(4.0,), trials=1)
    before = compare(small, tmp_path / "o", jobs=1)
    with edited(copied(tmp_path), "methods/frank_wolfe.py") as code:
        monkeypatch.setattr(runner, "sources", lambda: code)
        after = compare(small, tmp_path / "o", jobs=1, progress=True)
    assert "3 cells are run again" in capsys.readouterr().err
    log = [json.loads(line)["started"] for line in (tmp_path / "o" / "log.jsonl").read_text().splitlines()]
    assert len(log) == 5 + 3
    assert {(one["method"], one["epsilon"]) for one in log[5:]} == {("auto", 4.0), ("auto", None), ("frank_wolfe", 4.0)}
    assert after == before


def test_trials_split_the_rows_anew_and_methods_share_the_split() -> None:
    """Each trial has other test rows, of the promised number and disjoint from the training rows."""
    small = comparison(rows=Examples(np.arange(50.0)[:, None], np.arange(50) % 2), test_share=0.2)
    tests = []
    for trial in range(3):
        splits = [small.split(Cell("table", method, epsilon, trial)) for method, epsilon in (("a", None), ("b", 2.0))]
        assert np.array_equal(splits[0][1].X, splits[1][1].X)
        train, test = splits[0]
        assert (len(train), len(test)) == (40, 10) == (small.n_train, small.n_test)
        assert sorted([*train.X[:, 0], *test.X[:, 0]]) == list(range(50))
        tests.append(tuple(test.X[:, 0]))
    assert len(set(tests)) == 3


def test_a_person_is_on_one_side() -> None:
    """With person ids nobody has rows in both parts, and rows keep their ids."""
    people = np.random.default_rng(1).integers(0, 30, 200)
    split = comparison(rows=replace(rows(), groups=people)).split(Cell("table", "auto", 1.0, 0))
    train, test = (set(part.groups.tolist()) for part in split if part.groups is not None)
    assert train
    assert test
    assert train.isdisjoint(test)
    assert train | test == set(people.tolist())


def test_scores_are_those_of_the_estimators() -> None:
    """A cell's score is 1 - score of the same fit on the same rows; the proved epsilon is the report's."""
    for regression in (False, True):
        task = "regression" if regression else "classification"
        settings = {"bounds": Bounds(row_linf=1.0, label=2.0)}
        one = comparison(rows=rows(400, regression=regression), task=task, settings=settings)
        cell = Cell("table", "auto", 4.0, 1)
        train, test = one.split(cell)
        estimator = tulle.SparseRegressor if regression else tulle.SparseClassifier
        model = estimator(4.0, 1e-5, random_state=noise_seed(0, cell), **settings).fit(train.X, train.y)
        values = one.run(cell)
        assert values["score"] == pytest.approx(1 - model.score(test.X, test.y), rel=1e-12)
        assert values["proved"] == model.privacy_.epsilon <= 4.0
        assert values["nonzero"] == len(model.support_)


def test_the_null_model_knows_the_commonest_class_or_the_mean() -> None:
    """Its error is the share of other classes among test rows, or about 1 in 1 − R²."""
    y = np.where(np.arange(100) < 80, "common", "rare")
    null = Cell("table", "null model", None, 0)
    one = comparison(rows=Examples(np.zeros((100, 1)), y))
    assert one.run(null) == {"score": np.mean(one.split(null)[1].y == "rare")}
    numbers = comparison(rows=rows(regression=True), task="regression")
    train, test = numbers.split(null)
    assert numbers.run(null)["score"] == pytest.approx(1 + ((train.y.mean() - test.y.mean()) / test.y.std()) ** 2)


def test_the_summary_is_means_and_standard_errors(tmp_path: Path) -> None:
    """Figures of comparison.json follow from results.csv, and the note that nothing is for release is everywhere."""
    one = comparison(trials=3)
    summary = compare(one, tmp_path, jobs=1)
    with (tmp_path / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    scores = [float(x["score"]) for x in lines if (x["method"], x["epsilon"]) == ("frank_wolfe", "4.0")]
    [row] = [x for x in summary["rows"] if (x["method"], x["epsilon"]) == ("frank_wolfe", 4.0)]
    assert row["mean"] == pytest.approx(np.mean(scores))
    assert row["standard_error"] == pytest.approx(np.std(scores, ddof=1) / math.sqrt(3))
    assert row["trials"] == 3
    assert row["proved"] == max(
        float(x["proved"]) for x in lines if (x["method"], x["epsilon"]) == ("frank_wolfe", "4.0")
    )
    without = [float(x["score"]) for x in lines if (x["method"], x["epsilon"]) == ("auto", "")]
    assert summary["no_privacy"]["mean"] == pytest.approx(np.mean(without))
    assert json.loads((tmp_path / "comparison.json").read_text()) == summary
    assert summary["note"] == NOT_FOR_RELEASE
    assert NOT_FOR_RELEASE in (tmp_path / "table.md").read_text()
    assert (tmp_path / "report.html").read_text().lstrip().lower().startswith("<!doctype html")
    assert (summary["n_train"], summary["n_test"], summary["n_features"], summary["delta"]) == (140, 60, 10, 1e-5)


def test_one_trial_has_no_standard_error() -> None:
    """The error of one value is 0, not nan."""
    assert mean_and_error([3.0]) == (3.0, 0.0)
    assert mean_and_error([1.0, 3.0]) == pytest.approx((2.0, 1.0))


def test_delta_follows_the_training_rows() -> None:
    """Without a delta it is min(1e-5, 1 / (10 training rows)), and it is part of what results depend on."""
    many = comparison(rows=Examples(sp.csr_array((50_000, 2)), np.arange(50_000) % 2))
    assert many.fingerprint()["delta"] == pytest.approx(1 / 350_000)
    assert comparison().fingerprint()["delta"] == 1e-5
    assert comparison(delta=1e-3).fingerprint()["delta"] == 1e-3


def test_whatever_changes_a_result_changes_the_fingerprint() -> None:
    """Rows, targets, ids, test rows, task, share, seed and settings do; methods, budgets and trials do not."""
    base, other = comparison().fingerprint(), rows(seed=1)
    changed: list[dict[str, Any]] = [
        {"rows": replace(rows(), X=other.X)},
        {"rows": replace(rows(), y=other.y)},
        {"rows": replace(rows(), groups=np.arange(200))},
        {"rows": replace(rows(), X=sp.csr_array(rows().X))},
        {"test": other},
        {"test_share": 0.4},
        {"seed": 1},
        {"delta": 1e-6},
        {"settings": {"bounds": Bounds(row_linf=2.0)}},
        {"settings": {"bounds": Bounds(row_linf=1.0), "n_nonzero": 3}},
    ]
    prints = [json.dumps(comparison(**change).fingerprint(), sort_keys=True) for change in changed]
    assert len({json.dumps(base, sort_keys=True), *prints}) == len(changed) + 1
    assert comparison(methods=("two_stage",), epsilons=(3.0,), trials=9).fingerprint() == base


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("auto", "magic")}, "method 'magic' is unknown; choose among auto,"),
        ({"methods": ("auto", "auto")}, "methods must be listed at least once and each only once"),
        ({"epsilons": ()}, "epsilons must be listed at least once"),
        ({"epsilons": (0.0,)}, "epsilon"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"test_share": 1.0}, "share of test rows must lie strictly between 0 and 1"),
        ({"test": rows(20, 3)}, "the test rows have 3 features and the rows of small have 10"),
        ({"rows": rows(2)}, "2 rows are too few"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    """Each message says what to change."""
    with pytest.raises(ValueError, match=message):
        comparison(**changes)


def test_methods_that_cannot_are_left_out_with_the_reason(tmp_path: Path) -> None:
    """Three classes: methods that need a loss convex in one margin are left out; two classes leave out none."""
    labels = np.arange(200) % 3
    able, left_out = comparison(rows=replace(rows(), y=labels), methods=Comparison.methods, trials=1).able()
    assert "screen_refine" in left_out
    assert left_out["screen_refine"]
    assert not set(able.methods) & set(left_out)
    assert all(not one.failed for one in run_cells(replace(able, epsilons=(4.0,)), tmp_path, jobs=1))
    assert comparison(methods=Comparison.methods).able()[1] == {}
    with pytest.raises(ValueError, match="n_nonzero"):
        comparison(settings={"n_nonzero": 0}).able()


def test_failures_are_in_the_table(tmp_path: Path) -> None:
    """A method that raises leaves 'failed (reason)' in its cells, and the rest of the table as it is."""
    one = comparison(rows=replace(rows(), y=np.arange(200) % 3), methods=("auto", "screen_refine"))
    summary = compare(one, tmp_path, jobs=1)
    assert {(cell["method"], cell["trial"]) for cell in summary["failed"]} == {
        ("screen_refine", 0),
        ("screen_refine", 1),
    }
    line = next(line for line in table(summary).splitlines() if line.startswith("| screen_refine"))
    assert line.count("failed (") == 2
    assert {row["method"] for row in summary["rows"]} == {"auto"}


def test_warnings_are_kept_once_each(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """What fits warn of reaches the summary once, with whom it was for, and not the screen."""
    summary = compare(comparison(rows=rows(40), epsilons=(0.01, 0.02), trials=3), tmp_path, jobs=1)
    guessing = [text for text in summary["warnings"] if "no better than guessing" in text]
    assert len(guessing) == 1
    assert guessing[0].startswith(
        "auto (ε = 0.01, ε = 0.02); frank_wolfe (ε = 0.01, ε = 0.02): for example, 28 rows of 10 features"
    )
    assert not [warning for warning in recwarn if issubclass(warning.category, UserWarning)]
    cell = Cell("table", "x", 1.0, 0)
    told = [Finished(cell, {"warnings": ["all rows", "other"]}, 0.0), Finished(cell, {"warnings": ["all rows"]}, 0.0)]
    assert summarised_warnings(told) == ["x (ε = 1): all rows", "x (ε = 1): other"]


def test_no_comparison_inside_a_ledger(tmp_path: Path) -> None:
    """Its fits cannot be billed, so an open ledger refuses it with the reason, before anything is run."""
    with Ledger(Budget(1.0, 1e-5)) as ledger, pytest.raises(ValueError, match="no ledger can bill it"):
        compare(comparison(), tmp_path / "folder", jobs=1)
    assert ledger.fits == []
    assert not (tmp_path / "folder").exists()
