"""Published tables and figures: what is run again when something changes, what the catalogue says, the command."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copied_sources import copied, edited
from small_tables import MIXED, TINY, forget_rows, log
from tiny_data import write_images

from tulle import Bounds, Budget, Ledger, SparseRegressor, datasets
from tulle.cli import main
from tulle.datasets import dp_ight_figure1
from tulle.experiments import catalogue, problems, reproduction, trial
from tulle.experiments import cell_runner as runner
from tulle.experiments import printed_noise as noise
from tulle.experiments.cells import Cell, Finished, data_seed, noise_seed
from tulle.experiments.examples import Examples
from tulle.experiments.fits import Fits, Tuning, settings_of
from tulle.methods import METHODS, HardThresholding
from tulle.methods.published_noise import true_epsilon_table
from tulle.reports.series import from_dict

PUBLISHED = Path(__file__).parents[3] / "shared" / "published"


def kept_file(folder: Path, part: str, cell: Cell) -> Path:
    """Where the result of a cell is kept."""
    [found] = [
        path
        for path in (folder / "run" / part / "cells").iterdir()
        if Cell(**json.loads(path.read_text())["cell"]) == cell
    ]
    return found


# --- cells that are run again ----------------------------------------------------------------------------------------


def test_a_deleted_result_is_found_again_and_nothing_else_is_run(data: Path, tmp_path: Path) -> None:
    """One of the trials, then one of the fits that settings were chosen by; what is written is the same again."""
    of, out = catalogue.stated("mixed", MIXED), tmp_path / "out"
    before = reproduction.reproduce(of, out, jobs=1)
    assert before["failed"] == []
    counts = {"trials": 4, "tuning": 12}  # 2 data × 2 lines; 2 data × (2 settings and the defaults) × 2 folds
    assert {part: len(log(out, part)) for part in counts} == counts
    assert reproduction.reproduce(of, out, jobs=1) == before
    assert {part: len(log(out, part)) for part in counts} == counts
    for part in counts:
        gone = log(out, part)[3]
        kept_file(out, part, gone).unlink()
        after = reproduction.reproduce(of, out, jobs=1)
        counts[part] += 1
        assert {part: len(log(out, part)) for part in counts} == counts
        assert log(out, part)[-1] == gone
        assert after["table"] == before["table"]


def test_a_restart_measures_everything_again(data: Path, tmp_path: Path) -> None:
    of, out = catalogue.stated("mixed", MIXED), tmp_path / "out"
    before = reproduction.reproduce(of, out, jobs=1)
    kept = [kept_file(out, part, log(out, part)[0]) for part in ("trials", "tuning")]
    for path in kept:
        path.write_text(path.read_text().replace('"failed": ""', '"failed": "", "old": 1'))
    assert all('"old"' in path.read_text() for path in kept)
    assert reproduction.reproduce(of, out, jobs=1, restart=True)["table"] == before["table"]
    assert not any('"old"' in path.read_text() for path in kept)
    assert (len(log(out)), len(log(out, "tuning"))) == (4, 12)  # of new logs


def test_changed_files_are_measured_again_and_nothing_else(data: Path, tmp_path: Path) -> None:
    """One pixel of one test row: everything on that data, and nothing on data that is drawn."""
    of, out = catalogue.stated("mixed", MIXED), tmp_path / "out"
    reproduction.reproduce(of, out, jobs=1)
    write_images(data, moved=1)
    forget_rows()
    reproduction.reproduce(of, out, jobs=1)
    assert [cell.data for cell in log(out)[4:]] == ["images"] * 2
    assert [cell.data for cell in log(out, "tuning")[12:]] == ["images"] * 6


def test_a_changed_method_is_measured_again_and_no_other(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own lines on all data; lines of other methods, and what was chosen for them, stay."""
    of, out = catalogue.stated("mixed", MIXED), tmp_path / "out"
    reproduction.reproduce(of, out, jobs=1)
    with edited(copied(tmp_path), "methods/frank_wolfe.py") as code:
        monkeypatch.setattr(runner, "sources", lambda: code)
        reproduction.reproduce(of, out, jobs=1)
    assert log(out)[4:] == [Cell(name, "Frank-Wolfe", 50.0, 0) for name in ("images", "drawn")]
    assert len(log(out, "tuning")) == 12


def dependent(text: str) -> dict[Cell, str]:
    """What each cell of a table depends on besides the code."""
    task = Fits(catalogue.stated("tiny", text))
    return {cell: json.dumps(task.depends(cell), sort_keys=True) for cell in task.cells()}


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [
        ("delta = 1e-5", "delta = 1e-6", "all"),
        ("bounds = { row_l2 = 4.0", "bounds = { row_l2 = 4.5", "all"),
        ('metric = "relative error"', 'metric = "squared error"', "all"),
        ("n_nonzero = 2", "n_nonzero = 3", "all"),
        ("n = 400", "n = 500", "all"),
        ("epsilons = [4, 8]", "epsilons = [4, 8]\nfit_intercept = true", "all"),
        ("epsilons = [4, 8]", "epsilons = [4, 8]\nrows = 5", "all"),
        ("epsilons = [4, 8]", "epsilons = [4, 8]\ndelta = 1e-3", "all"),
        ("epsilons = [4, 8]", 'epsilons = [4, 8]\nmetric = "squared error"', "all"),
        ('name = "sound"\nmethod = "hard_thresholding"', 'name = "sound"\nmethod = "frank_wolfe"', "sound"),
        ('parameters = { noise = "gaussian" }', 'parameters = { noise = "gaussian", n_iter = 3 }', "sound"),
        ('calibration = "published"', 'calibration = "rigorous"', "as published"),
        # Words about results, or additions to them.
        ("A tiny table", "A small table", ""),
        ("Nobody (never)", "Somebody", ""),
        ('notes = ["Tiny."]', 'notes = ["Small."]\nsubstitute = "Other rows."', ""),
        ("epsilons = [4, 8]", "epsilons = [2, 4, 8, 16]", ""),
        ("epsilons = [4, 8]", 'epsilons = [4, 8]\nprinted = "dp-ight-table3.csv"\nprinted_apart = "Apart"', ""),
        ("trials = 2", "trials = 3", ""),
        ("[fast]\ntrials = 1", "[fast]\ntrials = 2", ""),
        ('name = "sound"', 'name = "sound"\nprinted = "DP-IGHT"', ""),
        ('name = "sound"', 'name = "sound"\nonly = "regression"', ""),
        ('name = "sound"', 'name = "new"\nmethod = "auto"\n\n[[lines]]\nname = "sound"', ""),
        ("trials = 2", "trials = 2\ntuning_folds = 3", ""),
    ],
)
def test_what_a_file_says_is_measured_again_where_it_matters(old: str, new: str, again: str) -> None:
    before, after = dependent(TINY), dependent(TINY.replace(old, new, 1))
    assert set(before) <= set(after)
    changed = {cell for cell in before if before[cell] != after[cell]}
    assert changed == {cell for cell in before if again in ("all", cell.method)}


def test_a_line_may_have_fewer_budgets_and_trials_than_its_table() -> None:
    """What is left of it are the same cells; a budget that no data has is refused."""
    whole = dependent(TINY)
    fewer = dependent(TINY.replace('name = "sound"', 'name = "sound"\nepsilons = [8]\ntrials = 1'))
    assert fewer.items() <= whole.items()
    assert set(whole) - set(fewer) == {
        Cell("linear", "sound", 4.0, 0), Cell("linear", "sound", 4.0, 1), Cell("linear", "sound", 8.0, 1),
    }  # fmt: skip
    with pytest.raises(ValueError, match="tiny: sound is fitted at ε = 3, which no data has"):
        catalogue.stated("tiny", TINY.replace('name = "sound"', 'name = "sound"\nepsilons = [3]'))


def test_the_order_of_lines_does_not_matter() -> None:
    head, *lines = TINY.split("[[lines]]")
    assert dependent("[[lines]]".join([head, *lines[::-1]])) == dependent(TINY)


def test_a_changed_line_is_measured_again_and_nothing_else(tmp_path: Path) -> None:
    """To the end: two trials at two budgets of the one line; an added budget is run once."""
    reproduction.reproduce(catalogue.stated("tiny", TINY), tmp_path, jobs=1)
    assert len(log(tmp_path)) == 10
    other = TINY.replace('{ noise = "gaussian" }', '{ noise = "gaussian", n_iter = 3 }')
    reproduction.reproduce(catalogue.stated("tiny", other), tmp_path, jobs=1)
    assert log(tmp_path)[10:] == [Cell("linear", "sound", epsilon, trial) for trial in (0, 1) for epsilon in (4, 8)]
    more = other.replace("[4, 8]", "[4, 8, 16]").replace("A tiny table", "Another title")
    values = reproduction.reproduce(catalogue.stated("tiny", more), tmp_path, jobs=1)
    assert {cell.epsilon for cell in log(tmp_path)[14:]} == {16.0}
    assert len(log(tmp_path)) == 14 + 4
    assert values["title"] == "Another title"


def test_another_choice_is_measured_again_where_it_was_made(data: Path, tmp_path: Path) -> None:
    """A larger grid runs what is new in it; trials follow only where the choice is another."""
    out = tmp_path / "out"
    choices = []
    for grid in ("[2]", "[1, 2]"):
        of = catalogue.stated("mixed", MIXED.replace("[1, 2]", grid))
        tuned = reproduction.reproduce(of, out, jobs=1)["tuned"]
        assert {one["line"] for one in tuned} == {of.lines[0].name}
        choices.append({one["data"]: one["settings"] for one in tuned})
    assert len(log(out, "tuning")) == 8 + 4
    assert [name for name in choices[0] if choices[0][name] != choices[1][name]] == ["drawn"]
    assert log(out)[4:] == [Cell("drawn", of.lines[0].name, 50.0, 0)]


# --- a table from one file -------------------------------------------------------------------------------------------


def test_a_table_is_one_toml(tmp_path: Path) -> None:
    """Published noise is shown with its true epsilon, above the claim, sound noise with none; fast goes on to full."""
    of = catalogue.stated("tiny", TINY)
    reproduction.reproduce(of.faster(), tmp_path, jobs=1)
    assert len(log(tmp_path)) == 3
    values = reproduction.reproduce(of, tmp_path, jobs=1, command="tulle reproduce tiny --trials 2")
    assert len(log(tmp_path)) == len(set(log(tmp_path))) == 10
    text = (tmp_path / "table.md").read_text()
    assert text == values["table"]
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert all(float(row["proved"]) > float(row["epsilon"]) for row in rows if row["method"] == "as published")
    assert all(float(row["proved"]) <= float(row["epsilon"]) for row in rows if row["method"] == "sound")
    assert lines["as published"].count("true ε") == 2
    assert "true ε" not in lines["sound"] + lines["no noise"]
    assert "- Tiny." in text
    assert "tulle reproduce tiny --trials 2" in text
    assert (tmp_path / "figure.svg").read_text().lstrip().startswith("<svg")
    assert (tmp_path / "page.html").read_text().lstrip().lower().startswith("<!doctype html")
    assert json.loads((tmp_path / "reproduction.json").read_text()) == values
    assert from_dict(values).panels[0].series[1].name == "sound"
    assert json.loads((tmp_path / "machine.json").read_text())["numpy"] == np.__version__
    with (tmp_path / "times.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 10


def test_a_cell_of_a_table_is_an_ordinary_fit() -> None:
    """The relative error is that of the estimator on the data of the trial's seed."""
    cell = Cell("linear", "sound", 8.0, 1)
    problem = dp_ight_figure1(400, 20, 2, seed=data_seed(0, cell))
    model = SparseRegressor(
        8.0,
        1e-5,
        n_nonzero=2,
        method=HardThresholding(noise="gaussian"),
        bounds=Bounds(4.0, 2.0, 4.0),
        fit_intercept=False,
        random_state=noise_seed(0, cell),
    ).fit(problem.X, problem.y)
    error = np.linalg.norm(model.coef_ - problem.weights) / np.linalg.norm(problem.weights)
    assert Fits(catalogue.stated("tiny", TINY)).run(cell)["score"] == pytest.approx(error, rel=1e-12)


def test_what_a_line_says_of_its_cells_and_of_the_model() -> None:
    """Its data, budgets and number of trials; how many weights are kept; the norm of the weights that were drawn."""
    text = TINY.replace(
        'name = "as published"',
        'name = "as published"\ndata = ["linear"]\nepsilons = [8]\ntrials = 1\ngrid = "printed"',
    ).replace(
        'published_rule = "corollary_5.8" }',
        'n_nonzero = "2 s", published_rule = "corollary_5.6", weight_norm = "true", label_noise = 0.3 }'
        "\ntune = { n_iter = [2] }",
    )
    fits = Fits(replace(catalogue.stated("tiny", text), trials=3))
    (cell,) = (cell for cell in fits.cells() if cell.method == "as published")
    assert (cell.epsilon, cell.trial) == (8.0, 0)
    (tried,) = {cell.method for cell in Tuning(fits).cells()}
    assert tried == 'as published | {"n_iter": 2}'
    assert fits.run(cell)["nonzero"] == 4
    panel, line = fits._place(cell)
    problem = fits.problem(panel, cell)
    method = trial._method(panel, line, {}, problem.held_out(0))
    assert method.weight_norm == np.linalg.norm(problem.weights)
    scaled = replace(line, parameters={"step": "10 / row_l2²"})
    assert trial._method(panel, scaled, {}, problem).step == pytest.approx(10 / 4.0**2)  # row_l2 of the data
    everything = replace(line, parameters={**line.parameters, "n_nonzero": "all"})
    assert trial._n_nonzero(panel, everything, {}, 20) == 20
    with pytest.raises(ValueError, match="unknown name 'quadratic'"):
        catalogue.stated("tiny", text.replace('data = ["linear"]', 'data = ["quadratic"]'))


OTHERS = """
title = "Two sets"
paper = "None"
kind = "fits"
metric = "1 − R²"
trials = 1
[[data]]
name = "a"
source = "dp_ight_figure1"
task = "regression"
epsilons = [1]
[[data]]
name = "b"
source = "dp_ight_figure1"
task = "regression"
epsilons = [1]
[[data]]
name = "c"
source = "dp_ight_figure1"
task = "classification"
epsilons = [1]
[[lines]]
name = "tuned"
method = "hard_thresholding"
tuned_on = "other data"
tune = { n_iter = [1, 2, 3] }
"""


def test_settings_from_other_data_look_at_no_row_of_their_own() -> None:
    """The best on the other set of the task, by ratios to the best there; another task does not count."""
    fits = Fits(catalogue.stated("others", OTHERS))
    assert fits.of.lines[0].role == "honest"
    scores = {"a": (9.0, 0.1, 0.3, 0.2), "b": (9.0, 0.3, 0.2, 0.1), "c": (9.0, 0.1, 0.5, 0.5)}
    names = [json.dumps(tried) for tried in settings_of(fits.of.lines[0])]
    found = [
        Finished(Cell(data, f"tuned | {name}", 1.0, 0), {"score": score}, 0.0)
        for data, values in scores.items()
        for name, score in zip(names, values, strict=True)
        if data != "c"
    ]
    assert Tuning(fits).best(found) == {("a", "tuned", 1.0): {"n_iter": 3}, ("b", "tuned", 1.0): {"n_iter": 1}}
    with pytest.raises(ValueError, match="tuned has no other data to be tuned on at ε = 1"):
        Tuning(fits).best([one for one in found if one.cell.data == "a"])


def test_other_scores_have_panels_of_their_own(tmp_path: Path) -> None:
    """AUC and log-loss of classifiers on test rows; lines without them are left out; a data set can name its lines."""
    text = """
title = "Census"
paper = "None"
kind = "fits"
metric = "test error"
measures = ["auc", "log_loss"]
trials = 1
[[data]]
name = "census"
source = "load_a9a"
task = "classification"
bounds = { row_l2 = 4.0 }
epsilons = [4]
lines = ["sound", "null model"]
[[lines]]
name = "sound"
method = "auto"
[[lines]]
name = "left out"
method = "two_stage"
[[lines]]
name = "null model"
method = "null model"
private = false
"""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 4)) / 3
    train, test = (Examples(part, np.where(part[:, 0] > 0, 1.0, -1.0)) for part in (rows[:200], rows[200:]))
    of = catalogue.stated("census", text)
    fits = Fits(of)
    cells = fits.cells()
    assert {cell.method for cell in cells} == {"sound", "null model"}
    done = []
    for cell in cells:
        panel, line = fits._place(cell)
        values = trial.run_trial(
            panel,
            line,
            {},
            problems.Problem(train, test),
            epsilon=cell.epsilon,
            delta=1e-5,
            metric="test error",
            seed=0,
            measures=of.measures,
        )
        done.append(Finished(cell, values, 0.0))
    names = {panel.name: [series.name for series in panel.series] for panel in fits.panels(done)}
    assert names == {"census": ["sound", "null model"], "census: AUC": ["sound"], "census: log-loss": ["sound"]}
    with pytest.raises(ValueError, match="measures = 'f1' is unknown; choose among accuracy, auc, log_loss"):
        catalogue.stated("census", text.replace('"auc"', '"f1"'))
    with pytest.raises(ValueError, match='AdaSSP is for regression; add only = "regression"'):
        catalogue.stated("census", text + '[[lines]]\nname = "AdaSSP"\nmethod = "adassp"\n')


def test_failures_are_told_and_stop_no_other_line(tmp_path: Path) -> None:
    text = TINY.replace('parameters = { noise = "gaussian" }', 'parameters = { noise = "loud" }')
    values = reproduction.reproduce(catalogue.stated("tiny", text), tmp_path, jobs=1)
    assert len(values["failed"]) == 4
    assert all("linear, sound, ε = " in line and "loud" in line for line in values["failed"])
    assert [series["name"] for series in values["panels"][0]["series"]] == ["as published", "no noise"]
    assert "Failed:" in values["table"]


def test_no_table_inside_a_ledger(tmp_path: Path) -> None:
    """Its fits cannot be billed: nothing is run and nothing is written."""
    with Ledger(Budget(1.0, 1e-5)), pytest.raises(ValueError, match=r"an experiment cannot run while a Ledger is open"):
        reproduction.reproduce(catalogue.stated("tiny", TINY), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_missing_data_is_told_with_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the folder or the file the message names the file, its origin and the folder; nothing is written."""
    of = catalogue.published("dp-ight-table3").faster()
    monkeypatch.delenv("TULLE_DATA", raising=False)
    with pytest.raises(
        reproduction.MissingDataError, match=r"dp-ight-table3 needs .*TULLE_DATA.*rcv1_subset\.svm\.bz2"
    ):
        reproduction.reproduce(of, tmp_path / "out", jobs=1)
    monkeypatch.setenv("TULLE_DATA", str(tmp_path))
    with pytest.raises(reproduction.MissingDataError, match=r"no rcv1_subset\.svm\.bz2 in .*mldr\.datasets"):
        reproduction.reproduce(of, tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


# --- the catalogue ---------------------------------------------------------------------------------------------------

ALL = {name: catalogue.published(name) for name in catalogue.names()}
FITS = {name: of for name, of in ALL.items() if of.kind in ("fits", "curves")}
LINES = [pytest.param(line, id=f"{name}: {line.name}") for name, of in FITS.items() for line in of.lines]
# Every table and figure of the five papers.
EXPECTED = {
    "dp-ight-table2",
    "dp-ight-table3",
    "dp-ight-figure1",
    "dpsl-kt-table2",
    "dpsl-kt-table3",
    "dpsl-kt-figure2",
    "dp-sgd-ht-table3",
    "dp-sgd-ht-table4",
    "dp-sgd-ht-table5",
    "dp-sgd-ht-figures",
    "dp-sgd-ht-figure3",
    "ldp-iht-figure1",
    "ldp-iht-figure2",
}
TABLES = {
    "dp-ight-table2": "dp_ight_table2_e2006",
    "dp-ight-table3": "dp_ight_table3_rcv1",
    "dpsl-kt-table2": "dpsl_kt_table2_e2006",
    "dpsl-kt-table3": "dpsl_kt_table3_rcv1",
    "dp-sgd-ht-table3": "dp_scsg_ht_table3_e2006",
    "dp-sgd-ht-table4": "dp_scsg_ht_table4_rcv1",
    "dp-sgd-ht-table5": "dp_scsg_ht_table5_xray",
}


def test_every_table_and_figure_of_the_papers_is_there() -> None:
    assert set(ALL) >= EXPECTED | {"state", "dp-sgd-ht-noise"}


@pytest.mark.parametrize("name", TABLES)
def test_printed_numbers_are_those_of_the_paper(name: str) -> None:
    """Number by number; skipped where the collection of them is not at hand."""
    if not PUBLISHED.is_dir():
        pytest.skip("the collection of printed numbers is not here")

    def numbers(text: str) -> set[tuple[str, float, float, str]]:
        rows = csv.DictReader(io.StringIO(text))
        return {(row["method"], float(row["epsilon"]), float(row["mean"]), row["std"]) for row in rows}

    (file,) = {panel.printed for panel in ALL[name].data}
    ours = numbers((catalogue._FOLDER / file).read_text(encoding="utf-8"))
    assert ours == numbers((PUBLISHED / f"{TABLES[name]}.csv").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TABLES)
def test_every_printed_number_is_shown(name: str) -> None:
    """At the paper's budgets, and every method that the paper prints has a line to stand beside, without doubles."""
    of = ALL[name]
    for panel in of.data:
        printed = panel.printed_series()
        assert set(printed) == {line.printed for line in of.lines if line.printed}
        assert len([line for line in of.lines if line.printed]) == len(printed)
        for series in printed.values():
            assert series.role == "paper"
            assert series.name.endswith(", printed")
            assert {point.x for point in series.points} <= set(panel.epsilons)


@pytest.mark.parametrize("name", ALL)
def test_the_fast_form_is_a_part_of_the_whole(name: str) -> None:
    """So that a full run goes on from a fast one."""
    of = ALL[name]
    if of.kind == "noise":
        return
    fast, whole = (set(reproduction.experiment(one).cells()) for one in (of.faster(), of))
    assert set() < fast < whole
    if name in FITS:
        # What it tunes, too.
        fast, whole = (set(Tuning(Fits(one)).cells()) for one in (of.faster(), of))
        assert fast <= whole
        assert bool(fast) == any(line.tune for line in of.faster().lines)


@pytest.mark.parametrize("name", FITS)
def test_every_table_of_fits_is_complete(name: str) -> None:
    """Data, bounds, the methods and a reference; nothing in a file that nothing reads."""
    of = FITS[name]
    assert of.title
    assert of.paper
    for panel in of.data:
        for one in (panel, *([replace(panel, **panel.real)] if panel.real else [])):
            assert callable(getattr(datasets, one.source))
            assert Bounds(**one.bounds)
            assert one.split in ("given", "random", "folds")
    assert len({line.name for line in of.lines}) == len(of.lines)
    assert any(line.role == "reference" for line in of.lines)
    if name.endswith("-evidence"):  # settings by hand, to find where printed figures come from
        assert not any(line.tune for line in of.lines)
        assert any(line.role == "unsound" for line in of.lines)
        return
    assert any(line.role == "honest" for line in of.lines)
    if of.kind == "fits":
        assert any(line.method == "auto" for line in of.lines)
        assert any(line.method == "null model" for line in of.lines)
    else:
        assert all(line.curve and not line.tune for line in of.lines)
    if of.times:
        assert any(line.method == "scikit-learn" for line in of.lines)


@pytest.mark.parametrize("line", LINES)
def test_lines_are_called_what_they_are(line: catalogue.Line) -> None:
    """Settings chosen on private rows are called so, and noise that proves more than it claims the paper's."""
    assert ("(oracle-tuned, not private)" in line.name) == (bool(line.tune) and line.tuned_on == "own data")
    printed_noise = "published" in (line.calibration, line.parameters.get("variant"))
    assert printed_noise == (line.role == "unsound")
    assert printed_noise == ("paper's noise" in line.name or "as printed" in line.name)
    if line.method in METHODS:
        for settings in settings_of(line) or [{}]:
            parameters = {**line.parameters, **settings}
            for name in ("features", "n_nonzero"):  # of the trial, not of the method
                parameters.pop(name, None)
            if isinstance(parameters.get("step"), str) and "row_l2" in parameters["step"]:
                parameters["step"] = 1.0  # the trial divides it by the bound of a row
            METHODS[line.method](**parameters)
    if line.role == "honest":
        assert line.calibration == "rigorous"
        assert not line.tune or line.tuned_on == "other data"
    assert (line.role == "reference") == (not line.private)


def test_the_role_of_a_line_follows_from_what_it_does() -> None:
    def role(**says: Any) -> str:
        return catalogue.Line("line", "hard_thresholding", **says).role

    assert role() == "honest"
    assert role(tune={"n_iter": [1]}) == "oracle"
    assert role(calibration="published", tune={"n_iter": [1]}) == "unsound"
    assert role(parameters={"variant": "published"}) == "unsound"
    assert role(private=False) == "reference"
    with pytest.raises(ValueError, match="only private lines are tuned"):
        role(private=False, tune={"n_iter": [1]})
    with pytest.raises(ValueError, match=r"cannot hold ' \| '"):
        catalogue.Line("a | b", "auto")


@pytest.mark.parametrize("name", FITS)
def test_a_substitute_is_named_as_one_and_gives_way_to_the_papers_data(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its files are there; then nothing speaks of a substitute any more."""
    of = FITS[name]
    assert bool(of.substitute) == any(panel.real for panel in of.data)
    monkeypatch.setattr(catalogue, "available", lambda loader: False)
    assert of.with_real_data() == of
    if not of.substitute:
        return
    assert "substitute" in of.substitute
    wanted = {panel.real["source"] for panel in of.data if panel.real}
    monkeypatch.setattr(catalogue, "available", lambda loader: loader in wanted)
    real = of.with_real_data()
    assert real.substitute == ""
    assert {panel.source for panel in real.data} >= wanted
    for panel in real.data:
        assert panel.printed_apart == ""
        assert "in place of" not in panel.name
        assert "subset" not in panel.name
    assert {panel.name for panel in real.data if panel.source in wanted}.isdisjoint(panel.name for panel in of.data)


def test_a_fast_form_speaks_of_a_substitute_only_where_it_has_one() -> None:
    """Chest X-rays are the paper's own rows, and the fast form has no others; tables of other papers have theirs."""
    assert FITS["dp-sgd-ht-figures"].substitute
    assert FITS["dp-sgd-ht-figures"].faster().with_real_data().substitute == ""
    assert FITS["dp-ight-table3"].faster().substitute == FITS["dp-ight-table3"].substitute


def test_one_substitute_of_two_is_still_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the paper's data is there for one panel alone, the sentence stays."""
    of = FITS["dp-ight-table3"]
    second = replace(of.data[0], name="other", real={"source": "load_e2006", "name": "E2006"})
    monkeypatch.setattr(catalogue, "available", lambda loader: loader == "load_rcv1")
    mixed = replace(of, data=(*of.data, second)).with_real_data()
    assert [panel.source for panel in mixed.data] == ["load_rcv1", "load_rcv1_subset"]
    assert mixed.substitute == of.substitute


def test_numbers_of_other_data_stand_apart() -> None:
    """E2006 is not run: its printed numbers have a panel of their own, and none of them stands beside the fits."""
    for name in ("dp-ight-table2", "dpsl-kt-table2", "dp-sgd-ht-table3"):
        task = Fits(FITS[name])
        apart, ours = task.panels([])
        assert {series.role for series in apart.series} == {"paper"}
        assert ours.series == ()
        assert apart.name == FITS[name].data[0].printed_apart
        assert "not run here" in apart.name
    beside = Fits(FITS["dp-sgd-ht-table5"]).panels([])
    assert len(beside) == 1
    assert [series.name for series in beside[0].series][:2] == ["SCSG-HT, printed", "DP-GD-HT, printed"]
    of = FITS["dp-ight-table3"]
    (panel,) = Fits(replace(of, data=(replace(of.data[0], epsilons=(2.0,)),))).panels([])
    [series] = [series for series in panel.series if series.name == "DP-IGHT, printed"]
    assert [(point.x, point.mean, point.note) for point in series.points] == [(2.0, 0.1168, "sd 0.0038")]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("calibration =", "calibrations =", "calibrations"),
        ("notes =", "notess =", "tiny: notess is unknown; choose among"),
        ("n_nonzero =", "n_nonzeros =", "n_nonzeros"),
        ("[fast]\ntrials", "[fast]\ntrails", "tiny: trails of fast is unknown"),
        ("epsilons = [8]", "epsilons = [9]", "tiny: fast leaves linear without a budget"),
        ("epsilons = [8]", 'epsilons = [8]\nlines = ["sounds"]', "unknown name 'sounds'"),
        ("epsilons = [8]", 'epsilons = [8]\ndata = ["linea"]', "unknown name 'linea'"),
        ('kind = "fits"', 'kind = "fit"', "tiny: kind = 'fit' is unknown; choose among fits"),
        ('"relative error"', '"relative eror"', "tiny: metric = 'relative eror' is unknown"),
        ("epsilons = [4, 8]", 'epsilons = [4, 8]\nmetric = "R²"', "tiny: metric = 'R²' is unknown"),
        ("epsilons = [4, 8]", 'epsilons = [4, 8]\nsplit = "fold"', "tiny: split = 'fold' is unknown"),
        ('task = "regression"', 'task = "regresion"', "tiny: task = 'regresion' is unknown"),
        ('"dp_ight_figure1"', '"dp_ight_figure7"', "tiny: there is no dp_ight_figure7"),
        ("epsilons = [4, 8]", 'epsilons = [4, 8]\nreal = { sorce = "load_rcv1" }', "sorce"),
        ("epsilons = [4, 8]", 'epsilons = [4, 8]\nreal = { name = "RCV1" }', "real of linear has no source"),
        ('name = "sound"\nmethod = "hard_thresholding"', 'name = "sound"\nmethod = "magic"', "method = 'magic' is"),
        ('name = "sound"', 'name = "sound"\nonly = "regressions"', "only = 'regressions' is unknown"),
    ],
)
def test_what_a_file_misspells_is_refused(old: str, new: str, message: str) -> None:
    """Nothing in a TOML file is ignored in silence, or taken for something else."""
    assert old in TINY
    with pytest.raises((TypeError, ValueError), match=message):
        catalogue.stated("tiny", TINY.replace(old, new, 1))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="unknown table or figure 'unheard-of'; choose among dense-regression, dp-ight-figure1"
    ):
        catalogue.published("unheard-of")


@pytest.mark.parametrize(
    "name",
    [
        *(name for name, of in FITS.items() if any(re.match("load_(?!packaged)", p.source) for p in of.data)),
        "ldp-iht-figure2",
    ],
)
def test_without_its_data_nothing_is_begun(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even what could be run without it: half a table is none."""
    monkeypatch.setenv("TULLE_DATA", str(tmp_path))
    with pytest.raises(
        reproduction.MissingDataError,
        match=rf"^{name} needs data that was not found \(pass its folder with --data\): load_\w+ finds no \S+",
    ):
        reproduction.reproduce(ALL[name].faster(), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_without_the_package_of_its_tables_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    with pytest.raises(reproduction.MissingDataError, match=r'dense-regression needs .*pip install "\.\[evidence\]"'):
        reproduction.reproduce(ALL["dense-regression"].faster(), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_printed_noise_is_that_of_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of what printed noise proves has every row, and marks exactly those above their claim."""
    expected = list(islice(true_epsilon_table(), 20))

    def shortened() -> Iterator[Any]:
        return iter(expected)

    shortened.__module__ = true_epsilon_table.__module__  # what a result depends on
    monkeypatch.setattr(noise, "true_epsilon_table", shortened)
    values = reproduction.reproduce(ALL["dp-sgd-ht-noise"], tmp_path, jobs=1)
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(float(row["fixed size"]), float(row["Poisson"])) for row in rows] == [
        (row.without_replacement, row.poisson) for row in expected
    ]
    points = [
        (point["x"], float(point["mean"]), point["note"])
        for panel in values["panels"]
        for series in panel["series"]
        for point in series["points"]
    ]
    assert len(points) == 40
    assert {"above the claim" in note for claim, proved, note in points if proved > claim} == {True}
    assert not any("above the claim" in note for claim, proved, note in points if proved <= claim)
    assert all(series["role"] == "unsound" for panel in values["panels"] for series in panel["series"])


# --- the command -----------------------------------------------------------------------------------------------------


def answer(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[int, Any]:
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def small_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue of one table that works, and one whose data may not be there."""
    folder = tmp_path / "catalogue"
    folder.mkdir()
    (folder / "tiny.toml").write_text(TINY)
    (folder / "mixed.toml").write_text(MIXED)
    monkeypatch.setattr(catalogue, "_FOLDER", folder)
    monkeypatch.delenv("TULLE_DATA", raising=False)
    return folder


def test_the_command_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name: every table with its title, as text and as JSON."""
    code, values = answer(capsys, ["reproduce"])
    assert code == 0
    assert values["tables"] == {name: of.title for name, of in ALL.items()}
    assert main(["reproduce"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed and title in listed for name, title in values["tables"].items())


def test_the_command_writes_tables_a_page_and_a_picture(
    small_catalogue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into a folder of its name; the table says which command made it."""
    words = ["reproduce", "tiny", "--fast", "--jobs", "1", "-o", str(tmp_path / "o")]
    code, values = answer(capsys, words)
    assert code == 0
    assert values["failed"] == []
    assert values["folder"] == str(tmp_path / "o" / "tiny")
    assert values["command"] == "tulle reproduce tiny --fast"
    for name in (
        "table.md",
        "page.html",
        "figure.svg",
        "results.csv",
        "times.csv",
        "machine.json",
        "reproduction.json",
    ):
        assert (tmp_path / "o" / "tiny" / name).stat().st_size > 0
    assert values["table"] == (tmp_path / "o" / "tiny" / "table.md").read_text()
    assert main([*words, "--trials", "2"]) == 0
    shown = capsys.readouterr().out
    assert "tulle reproduce tiny --fast --trials 2" in shown
    assert f"Written to {tmp_path / 'o' / 'tiny'}: table.md, page.html" in shown
    assert len(log(tmp_path / "o" / "tiny")) == 6


def test_the_command_takes_the_folder_of_the_data(
    small_catalogue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--data comes before TULLE_DATA, and is forgotten again."""
    (tmp_path / "images").mkdir()
    write_images(tmp_path / "images")
    monkeypatch.setenv("TULLE_DATA", str(tmp_path / "nowhere"))
    words = ["reproduce", "mixed", "--jobs", "1", "-o", str(tmp_path / "o")]
    forget_rows()
    code, values = answer(capsys, words)
    assert code == 2
    assert "pneumoniamnist.npz" in values["error"]["message"]
    assert not (tmp_path / "o").exists()
    code, values = answer(capsys, [*words, "--data", str(tmp_path / "images")])
    forget_rows()
    assert code == 0
    assert values["failed"] == []
    assert [panel["name"] for panel in values["panels"]] == ["images", "drawn"]
    assert answer(capsys, words)[0] == 2
    code, values = answer(capsys, [*words, "--data", str(tmp_path / "nowhere")])
    assert code == 2
    assert "is not a folder" in values["error"]["message"]


def test_everything_runs_but_what_has_no_data(
    small_catalogue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is named with where to get it, and is no failure."""
    words = ["reproduce", "all", "--fast", "--jobs", "1", "-o", str(tmp_path / "o")]
    code, values = answer(capsys, words)
    assert code == 0
    assert set(values["done"]) == {"tiny"}
    assert set(values["left_out"]) == {"mixed"}
    assert "pneumoniamnist.npz" in values["left_out"]["mixed"]
    assert values["failed"] == {}
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["tiny"]
    assert main(words) == 0
    assert "Left out: mixed needs data that was not found" in capsys.readouterr().out
    assert len(log(tmp_path / "o" / "tiny")) == 3


def test_everything_with_a_failure_exits_with_1(
    small_catalogue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are run all the same."""
    bad = TINY.replace('parameters = { noise = "gaussian" }', 'parameters = { noise = "loud" }')
    (small_catalogue / "mixed.toml").write_text(bad)
    code, values = answer(capsys, ["reproduce", "all", "--fast", "--jobs", "1", "-o", str(tmp_path / "o")])
    assert code == 1
    assert values["failed"] == {"mixed": 1}
    assert set(values["done"]) == {"mixed", "tiny"}
    assert answer(capsys, ["reproduce", "mixed", "--fast", "--jobs", "1", "-o", str(tmp_path / "o")])[0] == 1


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["unheard-of"], "dp-ight-figure1"),
        (["dp-ight-figure1", "--trials", "0"], "--trials must be at least 1, got 0"),
    ):
        code, values = answer(capsys, ["reproduce", *words, "-o", str(tmp_path / "o")])
        assert code == 2
        assert message in values["error"]["message"]
    assert not (tmp_path / "o").exists()


def test_the_command_is_refused_inside_a_ledger(
    small_catalogue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger(Budget(1.0, 1e-5)):
        code, values = answer(capsys, ["reproduce", "tiny", "--fast", "--jobs", "1", "-o", str(tmp_path / "o")])
    assert code == 2
    assert "no ledger can bill it" in values["error"]["message"]
    assert not (tmp_path / "o").exists()
