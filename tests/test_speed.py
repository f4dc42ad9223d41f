"""docs/speed.md says what was measured, and the scripts that measure it do so."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import ROOT, cells

PAGE = ROOT / "docs/speed.md"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script of benchmarks/ or docs/pictures/ by its name, as it is imported by those beside it."""
    loaded_before = set(sys.modules)

    def load(folder: str, name: str) -> Any:
        monkeypatch.syspath_prepend(str(ROOT / folder))
        return import_module(name)

    yield load
    # Names such as "growth" are in both folders.
    for name in set(sys.modules) - loaded_before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")) or name == "speed_tables":
            del sys.modules[name]


# --- the page ---------------------------------------------------------------------------------------------------------


def test_tables_of_the_page_are_those_of_the_files(script: Any) -> None:
    """`python docs/pictures/speed_tables.py` was run after the last measurement."""
    text = PAGE.read_text(encoding="utf-8")
    tables = script("docs/pictures", "speed_tables")
    assert text.count("<!-- table:") == len(tables.TABLES)
    assert tables.with_tables(text) == text


def test_exponents_are_those_of_the_upper_half(script: Any) -> None:
    exponent = script("docs/pictures", "speed_tables").exponent
    x = np.array([1.0, 3.0, 10.0, 30.0, 100.0])
    assert exponent(list(zip(x, 2 * x**1.5))) == pytest.approx(1.5)
    assert exponent(list(zip(x, np.maximum(x, 10.0) ** 0.7))) == pytest.approx(0.7)


def test_what_is_said_of_growth_follows_from_the_figures(script: Any) -> None:
    tables = script("docs/pictures", "speed_tables")
    found = {place: tables.exponent(points) for place, points in tables.lines().items()}
    ways = sum(len(ways) for ways in tables.SPREAD.values())
    assert len(found) == (len(tables.AXES) * len(tables.METHODS) + ways) * len(tables.MEASURES)
    # Masks are for pairs of clients; the default needs more steps on more rows. Both are said on the page.
    assert set(tables.above_linear()) <= {("clients", "masked_sums", "seconds"), ("n", "fit_again", "seconds")}
    assert max(tables.above_linear().values()) < 2.1
    held = {place: points[-1][1] for place, points in tables.lines().items() if place[2] == "megabytes"}
    assert 2.5 < held["n", "fit_again", "megabytes"] / held["n", "hard_thresholding", "megabytes"] < 3.7
    assert 25 < held["d", "fit_again", "megabytes"] * 2**20 / 8e6 < 33
    for method in tables.METHODS:
        assert abs(found["s", method, "seconds"]) < 0.3
        assert abs(found["s", method, "megabytes"]) < 0.2
        assert abs(found["t", method, "megabytes"]) < 0.1
    assert found["d", "frank_wolfe", "seconds"] > 0.8
    assert 0.2 < found["d", "hard_thresholding", "seconds"] < 0.8
    for method in ("screen_refine", "stochastic_hard_thresholding"):
        assert found["d", method, "seconds"] < 0.5


def test_printed_ratios_are_of_two_times(script: Any) -> None:
    """A ratio in the table of libraries is that library's seconds over tulle's, measured just before it."""
    tables = script("docs/pictures", "speed_tables")
    rows = tables.table_of("libraries")
    ours = {row["data"]: float(row["seconds"]) for row in rows if row["library"] == "tulle"}
    assert len(ours) == 4
    for row in rows:
        if row["seconds"]:
            # tulle is timed again before each library, so that the two need not agree to the last digit.
            assert 0.5 < float(row["ratio"]) / (float(row["seconds"]) / ours[row["data"]]) < 2, row
        else:
            assert float(row["needed_megabytes"]) > 1_000
    assert {line[0] for line in cells("speed.md", "library")} == {row["library"] for row in rows}


def test_limited_fits_stayed_below_their_limit(script: Any) -> None:
    """8 GB of blocks under 3 GB, as the page says, where rows in memory fail; and the same model as without a limit."""
    rows = [row for row in script("docs/pictures", "speed_tables").table_of("scale") if row["part"] == "out_of_core"]
    limited = [row for row in rows if row["limit_megabytes"]]
    assert {row["limit_megabytes"] for row in limited} == {"3000"}
    for row in limited:
        assert float(row["gigabytes"]) >= 8
        assert float(row["peak_megabytes"]) < 3_000
        assert (row["outcome"] == "fitted") == (row["way"] == "blocks")
    blocks = [row for row in rows if row["way"] == "blocks"]
    for method in ("hard_thresholding", "screen_refine"):
        with_limit, without = (row for row in blocks if row["method"] == method)
        assert (with_limit["limit_megabytes"], without["limit_megabytes"]) == ("3000", "")
        assert (with_limit["found"], with_limit["error"]) == (without["found"], without["error"])


def test_what_is_said_of_scale_follows_from_the_figures(script: Any) -> None:
    """Two million rows of a million features: little memory, and nearly the error of the true weights."""
    rows = [row for row in script("docs/pictures", "speed_tables").table_of("scale") if row["part"] == "million"]
    assert [(row["n"], row["d"], row["per_row"], row["outcome"]) for row in rows] == [
        ("2000000", "1000000", "100", "fitted")
    ] * 2
    for row in rows:
        assert float(row["peak_megabytes"]) < 1_500
        assert float(row["error"]) < float(row["best_error"]) + 0.01
        assert float(row["found"]) >= 0.75


def test_what_is_said_of_other_libraries_times_follows_from_the_figures(script: Any) -> None:
    rows = script("docs/pictures", "speed_tables").table_of("libraries")
    ratios = {(row["library"], row["data"]): float(row["ratio"] or "nan") for row in rows}
    few, every = "RCV1, 2,000 words", "RCV1, all words"
    dense = ("dense, 20 features", "dense, 200 features")
    assert all(ratios["diffprivlib", data] < 1 for data in dense)
    assert ratios["diffprivlib", few] > 2
    assert all(ratios["opacus", data] > 2 for data in (*dense, few))
    assert ratios["opacus", every] > 200
    assert all(
        ratios[library, data] > 0.8 for library in ("liblinear", "saga", "skglm") for data in (*dense, few, every)
    )
    (refused,) = (row for row in rows if (row["library"], row["data"]) == ("diffprivlib", every))
    assert refused["refusal"].startswith("TypeError")


# --- the scripts ------------------------------------------------------------------------------------------------------


def test_growth_goes_over_two_decades_and_takes_up_where_it_was(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growth = script("benchmarks", "growth")
    every = list(growth.points())
    for axis in growth.AXES:
        for method in growth.STEPS:
            values = [getattr(point, axis) for of, point in every if (of, point.method) == (axis, method)]
            assert values == sorted(set(values))
            few = axis == "t" and method in ("screen_refine", "fit_again")
            assert values[-1] >= (16 if few else 90) * values[0]
    for axis, ways in growth.SPREAD.items():
        for way in ways:
            assert [point.parts for of, point in every if (of, point.method) == (axis, way)] == list(growth.PARTS[axis])
        assert growth.PARTS[axis][-1] >= 30 * growth.PARTS[axis][0]

    asked: list[str] = []

    def answer(call: list[str], **_: Any) -> Any:
        asked.append(call[-1])
        found = '{"seconds": 1.0, "megabytes": 2.0, "process_megabytes": 3.0}'
        return subprocess.CompletedProcess(call, 0, found, "")

    monkeypatch.setattr(growth.subprocess, "run", answer)
    table = tmp_path / "growth.csv"
    growth.run(table, anew=False, most_entries=None)
    assert len(asked) == len(set(asked)) == len({point for _, point in every}) < len(every)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(every)
    table.write_text("\n".join(table.read_text().splitlines()[:-3]) + "\n")
    growth.run(table, anew=False, most_entries=None)
    assert len(asked) == len({point for _, point in every}) + 3
    with table.open(newline="") as file:
        assert list(csv.DictReader(file)) == rows


def test_growth_counts_what_a_fit_takes(script: Any) -> None:
    """The peak of a fit beyond its rows: at least the transposed copy, 12 bytes an entry."""
    growth = script("benchmarks", "growth")
    found = growth.measure(growth.Point("screen_refine", 20_000, 1_000, 20, 10, 1))
    assert found["seconds"] > 0
    for memory in ("megabytes", "process_megabytes"):
        assert 12 * 20_000 * 15 / 2**20 < found[memory] < 60


def test_growth_fits_over_clients_and_partitions(script: Any) -> None:
    """Tiny fits of each way over three parts."""
    growth = script("benchmarks", "growth")
    for ways in growth.SPREAD.values():
        for point in ways.values():
            if point.method == "dask":
                pytest.importorskip("distributed")
            small = replace(point, n=300, d=50, per_row=5, s=5, t=1, parts=3)
            with growth.fit_of(small) as fit:
                assert fit(0) is not None


def test_scale_fits_on_blocks_what_it_fits_in_memory(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tiny run of all of it: the planted rows, one process under a limit, and the table."""
    scale = script("benchmarks", "scale")
    size = scale.Size(3_000, 500, 10, planted=5, block=1_000, iterations=3)
    weights = scale.planted_weights(size)
    assert np.count_nonzero(weights) == 5
    X, y = scale.draw(size, weights, 3_000, seed=1)
    assert np.linalg.norm(X.toarray(), axis=1).max() <= 1 + 1e-12
    assert abs(y.mean()) < 0.2
    in_process, limits = scale.in_process, []

    def here_but_once(call: dict[str, Any], limit: int | None) -> dict[str, Any]:
        limits.append(limit)
        if len(limits) == 1:
            return dict(in_process(call, limit))
        return dict(scale.fit(call["way"], call["method"], size, Path(call["folder"])))

    monkeypatch.setattr(scale, "in_process", here_but_once)
    rows = list(scale.run("out_of_core", size, tmp_path, 3_000))
    assert limits == [3_000, 3_000, 3_000, None, None]
    assert [row["way"] for row in rows] == ["blocks", "blocks", "memory", "blocks", "blocks"]
    assert {row["outcome"] for row in rows} == {"fitted"}
    # The same seed gives the same model, however the rows are read.
    assert len({row["error"] for row in rows if row["method"] == "hard_thresholding"}) == 1
    assert not list(tmp_path.iterdir())
    scale.save(rows, tmp_path / "scale.csv")
    assert len((tmp_path / "scale.csv").read_text().splitlines()) == 6


def test_a_limit_is_enforced(script: Any) -> None:
    limited = script("benchmarks", "scale").limited
    failed = limited([sys.executable, "-c", "bytearray(10**9)"], 800)
    assert failed.returncode == 1
    assert "MemoryError" in failed.stderr
    assert limited([sys.executable, "-c", "bytearray(10**9)"], None).returncode == 0
    assert limited([sys.executable, "-c", "bytearray(10**6)"], 800).returncode == 0


# --- whole jobs -------------------------------------------------------------------------------------------------------


def test_whole_jobs_are_ratios_of_their_two_times(script: Any) -> None:
    rows = script("docs/pictures", "speed_tables").table_of("whole_jobs")
    assert len({(row["job"], row["rows"], row["next_to"]) for row in rows}) == len(rows)
    for row in rows:
        if row["times"]:
            # The median of ratios need not be the ratio of medians.
            assert 0.5 < float(row["times"]) / (float(row["seconds"]) / float(row["other_seconds"])) < 2, row
        else:
            assert row["note"].startswith("not run: "), row


def test_revisited_targets_are_lines_that_were_measured(script: Any) -> None:
    tables = script("docs/pictures", "speed_tables")
    for line in tables.revisited()[1:]:
        assert "not measured" not in line[2], line
        assert not line[3].endswith("of 0"), line
        assert "not measured" not in line[4], line


def test_whole_jobs_run_on_few_rows(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CSV file to a report and the script next to it, a pair of fits, and a table that keeps what was not run."""
    whole_jobs = script("benchmarks", "whole_jobs")
    monkeypatch.setattr(whole_jobs, "ROUNDS", 1)
    monkeypatch.setattr(whole_jobs, "FEATURES", 200)
    monkeypatch.setattr(whole_jobs, "PER_ROW", 10)
    monkeypatch.setattr(whole_jobs, "TEST_ROWS", 50)
    (report,) = whole_jobs.report([300])
    assert report.seconds > 0
    assert report.times > 0.2
    (fit,) = whole_jobs.fits("default fit", "tulle", {"liblinear": "<= 2.0"}, [400])
    assert fit.next_to.startswith("liblinear")
    assert fit.times == fit.seconds / fit.other_seconds

    table = tmp_path / "whole_jobs.csv"
    whole_jobs.save([report, fit], table)
    whole_jobs.save([fit], table)
    with table.open(newline="") as file:
        assert [row["rows"] for row in csv.DictReader(file)] == ["300", "400"]


def test_a_library_is_left_out_where_a_fit_would_take_too_long(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_jobs = script("benchmarks", "whole_jobs")
    ran: list[str] = []

    def timed(name: str, folder: str) -> dict[str, float]:
        ran.append(name)
        return {"seconds": 40.0 if name == "saga" else 1.0, "megabytes": 100.0}

    monkeypatch.setattr(whole_jobs.other_libraries, "timed_in_process", timed)
    monkeypatch.setattr(whole_jobs, "save_rows", lambda n, folder: None)
    found = list(whole_jobs.fits("default fit", "tulle", {"saga": "<= 1.0"}, [2_000, 20_000]))
    assert ran == ["tulle", "saga"]
    assert [result.times for result in found] == [1 / 40, None]
    assert found[1].note == "not run: a fit would take 7 minutes or more"


def test_every_job_has_sizes_and_is_among_the_benchmarks(script: Any) -> None:
    whole_jobs = script("benchmarks", "whole_jobs")
    assert "whole_jobs" in script("benchmarks", "run").BENCHMARKS
    for name in whole_jobs.JOBS:
        assert set(getattr(whole_jobs.USUAL, name)) <= set(getattr(whole_jobs.LARGE, name))
    assert whole_jobs.LARGE.default == (2_000, 20_000, 200_000, 2_000_000)
