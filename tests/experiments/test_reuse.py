"""Finished cells in cells.jsonl: taken over by later runs where they still hold, and checked without any fit."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from copied_sources import copied, edited
from small_tables import MIXED, TINY, forget_rows, log
from tiny_data import write_images

from tulle.cli import main
from tulle.experiments import catalogue, fits, reproduction_check, stored_cells
from tulle.experiments import cell_runner as runner
from tulle.experiments.cell_runner import InterruptedRun
from tulle.experiments.cells import Cell, Finished
from tulle.experiments.reproduction import reproduce
from tulle.experiments.reproduction_check import PageState, check
from tulle.experiments.stored_cells import (
    FILE,
    CellFile,
    CellFileError,
    StoredCell,
    differing_parts,
    joined_checksum,
    read_cell_file,
)

MIXED_CELLS = {"tuning": 12, "trials": 4}
WRITTEN = ("results.csv", "times.csv", "table.md", "reproduction.json", FILE)


def reproduced(folder: Path, text: str = MIXED, reuse: Path | None = None, **more: Any) -> dict[str, Any]:
    """The table in a subfolder of its name."""
    return reproduce(catalogue.stated("mixed", text), folder / "mixed", jobs=1, reuse=reuse, **more)


def begun(folder: Path) -> dict[str, list[Cell]]:
    """The cells that were started, by part."""
    parts = [path.parent.name for path in (folder / "mixed" / "run").glob("*/log.jsonl")]
    return {part: log(folder / "mixed", part) for part in parts}


def counted(state: PageState) -> dict[str, int]:
    return {name: count for name, count in state.states.items() if count}


def checked(folder: Path, text: str = MIXED, trials: int | None = None) -> PageState:
    return check(catalogue.stated("mixed", text), folder, trials=trials)


# --- the file --------------------------------------------------------------------------------------------------------


def example_file(path: Path) -> CellFile:
    file = CellFile(path, "mixed", 2)
    values = {"score": 0.1 + 0.2, "tiny": 5e-324, "lost": math.inf, "count": 3, "none": None, "words": ["=1", "ü\n"]}
    first = Finished(Cell("d", "m", 0.1, 0), values, 0.123457)
    second = Finished(Cell("d", "m | {}", None, 1), {}, 2.0, "ValueError: no")
    checksum = joined_checksum("1" * 64, "2" * 64, "3" * 64)
    file.parts["trials"] = {one.cell: StoredCell(one, checksum, {"numpy": "1"}) for one in (first, second)}
    return file


def test_values_come_back_to_the_last_digit(tmp_path: Path) -> None:
    """Infinite values as a cell's own file has them; written again the file is the same."""
    file = example_file(tmp_path / FILE)
    file.finish(["trials"])
    text = file.path.read_text(encoding="utf-8")
    back = read_cell_file(file.path, "mixed")
    first, second = back.parts["trials"].values()
    assert first.finished.values == {
        "score": 0.30000000000000004, "tiny": 5e-324, "lost": "inf", "count": 3, "none": None, "words": ["=1", "ü\n"]
    }  # fmt: skip
    assert (first.finished.cell, first.finished.seconds) == (Cell("d", "m", 0.1, 0), 0.123457)
    assert (second.finished.failed, second.finished.cell.epsilon) == ("ValueError: no", None)
    assert (back.trials, back.complete, first.machine) == (2, True, {"numpy": "1"})
    back.write()
    assert back.path.read_text(encoding="utf-8") == text
    assert len(text.splitlines()) == 1 + 2 + 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.30000000000000004", "0.30000000000000001", "is damaged"),
        ('"trials":2', '"trials":3', "is damaged"),
        ('"complete":true', '"complete":false', "is damaged"),
        ('"data":"d"', '"data":"e"', "is damaged"),
        ('"tulle cells 1"', '"tulle cells 0"', "has a format that this version cannot read"),
        ('{"format"', '{"format', "cannot be read"),
        ("{", "[]\n{", "has a format that this version cannot read"),
    ],
)
def test_a_damaged_file_is_refused_as_a_whole(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = example_file(tmp_path / FILE)
    file.finish(["trials"])
    text = file.path.read_text(encoding="utf-8")
    assert old in text
    file.path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(CellFileError, match=message):
        read_cell_file(file.path, "mixed")
    file.path.write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(CellFileError, match="is damaged"):
        read_cell_file(file.path, "mixed")
    file.path.write_text(text, encoding="utf-8")
    with pytest.raises(CellFileError, match=r"cells\.jsonl is of mixed, not of tiny"):
        read_cell_file(file.path, "tiny")
    file.path.write_bytes(b"\xff\xfe")
    with pytest.raises(CellFileError, match="cannot be read"):
        read_cell_file(file.path, "mixed")


def test_a_file_with_lines_that_say_too_little_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its checksum is right: a value without a name, a cell twice, a machine that is not there."""
    lines = [
        (['{"part":"trials","data":"d","method":"m","checksum":"c","machine":0,"values":[]}', "[1.0,0,1.0,0,3.0]"], ""),
        (['{"part":"trials","data":"d","method":"m","checksum":"c","machine":1,"values":[]}', "[1.0,0,1.0,0]"], ""),
        (["[1.0,0,1.0,0]"], ""),
        (
            ['{"part":"t","data":"d","method":"m","checksum":"c","machine":0,"values":[]}', *["[1.0,0,1,0]"] * 2],
            "twice",
        ),
    ]
    for written, message in lines:
        monkeypatch.setattr(CellFile, "_lines", lambda *_, said=written: map(json.loads, said))
        monkeypatch.setattr(stored_cells, "_dumped", lambda value: json.dumps(value))
        header = {"format": "tulle cells 1", "experiment": "mixed", "trials": 1, "complete": True, "machines": [{}]}
        body = "".join(f"{line}\n" for line in written)
        checksum = stored_cells._file_checksum(header, body)
        (tmp_path / FILE).write_text(f"{json.dumps({**header, 'sha256': checksum})}\n{body}")
        with pytest.raises(CellFileError, match=message or "cannot be read"):
            read_cell_file(tmp_path / FILE, "mixed")


def test_each_part_of_a_checksum_is_told_apart() -> None:
    one = joined_checksum("a" * 64, "b" * 64, "c" * 64)
    assert differing_parts(one, one) == ()
    assert differing_parts(one, joined_checksum("d" * 64, "b" * 64, "c" * 64)) == ("code",)
    assert differing_parts(one, joined_checksum("a" * 64, "d" * 64, "e" * 64)) == ("settings", "data")
    assert differing_parts(one, "") == ("code", "settings", "data")


# --- taken over ------------------------------------------------------------------------------------------------------


def test_another_session_takes_over_all_cells_and_writes_the_same(data: Path, tmp_path: Path) -> None:
    """Nothing is run, the search included; the file that a run without an earlier one writes is the same."""
    before = reproduced(tmp_path / "one")
    file = read_cell_file(tmp_path / "one" / "mixed" / FILE, "mixed")
    assert {part: len(cells) for part, cells in file.parts.items()} == MIXED_CELLS
    assert file.complete
    after = reproduced(tmp_path / "two", reuse=tmp_path / "one")
    assert begun(tmp_path / "two") == {}
    assert after == before
    for name in WRITTEN:
        assert (tmp_path / "two" / "mixed" / name).read_bytes() == (tmp_path / "one" / "mixed" / name).read_bytes()
    reproduced(tmp_path / "two")  # the folder has them now
    assert begun(tmp_path / "two") == {}


def test_what_changed_is_run_and_the_rest_taken_over(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code of one method, then a pixel of a test row, then a line of the table."""
    reproduced(tmp_path / "one")
    with edited(copied(tmp_path), "methods/frank_wolfe.py") as code:
        monkeypatch.setattr(runner, "sources", lambda: code)
        reproduced(tmp_path / "two", reuse=tmp_path / "one")
        monkeypatch.undo()
    assert begun(tmp_path / "two") == {"trials": [Cell(name, "Frank-Wolfe", 50.0, 0) for name in ("images", "drawn")]}
    monkeypatch.setenv("TULLE_DATA", str(data))
    write_images(data, moved=1)
    forget_rows()
    reproduced(tmp_path / "three", reuse=tmp_path / "one")
    assert {part: {cell.data for cell in cells} for part, cells in begun(tmp_path / "three").items()} == {
        "tuning": {"images"}, "trials": {"images"},
    }  # fmt: skip
    other = MIXED.replace('method = "frank_wolfe"', 'method = "frank_wolfe"\nparameters = { n_iter = 3 }')
    reproduced(tmp_path / "four", other, tmp_path / "three")
    assert [cell.method for cell in begun(tmp_path / "four")["trials"]] == ["Frank-Wolfe"] * 2
    assert set(begun(tmp_path / "four")) == {"trials"}


def test_a_damaged_or_foreign_file_is_ignored_with_a_message(data: Path, tmp_path: Path) -> None:
    """One digit of one value; then the file of another table. Without a file there is nothing to say."""
    reproduced(tmp_path / "one")
    place = tmp_path / "one" / "mixed" / FILE
    text = place.read_text(encoding="utf-8")
    place.write_text(text.replace("50.0,0,", "50.0,1,", 1), encoding="utf-8")
    with pytest.warns(UserWarning, match=r"cells\.jsonl is damaged.*; nothing is taken over from it"):
        reproduced(tmp_path / "two", reuse=tmp_path / "one")
    assert {part: len(cells) for part, cells in begun(tmp_path / "two").items()} == MIXED_CELLS
    tiny = catalogue.stated("tiny", TINY).faster()
    reproduce(tiny, tmp_path / "one" / "mixed", jobs=1, restart=True)
    with pytest.warns(UserWarning, match=r"cells\.jsonl is of tiny, not of mixed; nothing is taken over from it"):
        reproduced(tmp_path / "three", reuse=tmp_path / "one")
    place.unlink()
    reproduced(tmp_path / "four", reuse=tmp_path / "one")
    assert {part: len(cells) for part, cells in begun(tmp_path / "four").items()} == MIXED_CELLS


def stopping(at: int) -> Any:
    """A fit that is interrupted when it is begun for the time of that number."""
    count = 0

    @functools.wraps(fits.run_trial)
    def run_trial(*arguments: Any, **named: Any) -> Mapping[str, Any]:
        nonlocal count
        count += 1
        if count == at:
            raise KeyboardInterrupt
        return _RUN_TRIAL(*arguments, **named)

    return run_trial


_RUN_TRIAL = fits.run_trial


def test_a_page_that_was_stopped_is_continued_elsewhere(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the search, then of the trials: each session runs what those before it did not."""
    whole = reproduced(tmp_path / "whole")
    for k, at in enumerate((6, 10)):  # 5 cells of the search; the other 7 and 2 trials
        with monkeypatch.context() as patched:
            patched.setattr(fits, "run_trial", stopping(at))
            with pytest.raises(InterruptedRun):
                reproduced(tmp_path / str(k), reuse=tmp_path / str(k - 1) if k else None)
        file = read_cell_file(tmp_path / str(k) / "mixed" / FILE, "mixed")
        assert not file.complete
        assert {part: len(cells) for part, cells in file.parts.items()} == [{"tuning": 5}, {"tuning": 12, "trials": 2}][
            k
        ]
        assert not (tmp_path / str(k) / "mixed" / "results.csv").exists()
    last = reproduced(tmp_path / "2", reuse=tmp_path / "1")
    assert {part: len(cells) for part, cells in begun(tmp_path / "2").items()} == {"trials": 2}
    assert last["table"] == whole["table"]
    assert (tmp_path / "2/mixed/results.csv").read_bytes() == (tmp_path / "whole/mixed/results.csv").read_bytes()
    assert read_cell_file(tmp_path / "2" / "mixed" / FILE, "mixed").complete


def test_a_stop_in_the_search_loses_no_trials_of_an_earlier_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With results written over those that are taken over: a larger grid is searched, and stopped."""
    reproduced(tmp_path)
    larger = MIXED.replace("[1, 2]", "[1, 2, 3]")
    monkeypatch.setattr(fits, "run_trial", stopping(2))
    with pytest.raises(InterruptedRun):
        reproduced(tmp_path, larger, tmp_path)
    file = read_cell_file(tmp_path / "mixed" / FILE, "mixed")
    assert {part: len(cells) for part, cells in file.parts.items()} == {"tuning": 13, "trials": 4}
    assert counted(checked(tmp_path, larger)) == {"current": 13 + 2, "missing": 3, "undecided": 2}


def test_finished_cells_are_written_while_others_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a process that is killed."""
    seen = []
    monkeypatch.setattr(stored_cells, "_INTERVAL", -1.0)
    run_trial = stopping(0)

    @functools.wraps(run_trial)
    def looking(*arguments: Any, **named: Any) -> Mapping[str, Any]:
        place = tmp_path / "mixed" / FILE
        parts = read_cell_file(place, "mixed").parts if place.exists() else {}
        seen.append(sum(map(len, parts.values())))
        return run_trial(*arguments, **named)  # type: ignore[no-any-return]

    monkeypatch.setattr(fits, "run_trial", looking)
    reproduced(tmp_path)
    assert seen == list(range(16))


def test_a_failure_is_not_taken_over(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept, since a search passes over it, and run again."""

    @functools.wraps(_RUN_TRIAL)
    def failing(panel: Any, line: Any, *arguments: Any, **named: Any) -> Mapping[str, Any]:
        if line.method == "frank_wolfe":
            raise ValueError("lost")
        return _RUN_TRIAL(panel, line, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(fits, "run_trial", failing)
        assert len(reproduced(tmp_path / "one")["failed"]) == 2
    state = checked(tmp_path / "one")
    assert counted(state) == {"current": 14, "failed": 2}
    assert state.needs_run
    assert reproduced(tmp_path / "two", reuse=tmp_path / "one")["failed"] == []
    assert [cell.method for cell in begun(tmp_path / "two")["trials"]] == ["Frank-Wolfe"] * 2


def test_other_versions_are_named_below_the_table(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as cells of them are in use, through further sessions too."""
    now = stored_cells.versions()
    with monkeypatch.context() as patched:
        patched.setattr(stored_cells, "versions", lambda: {**now, "numpy": "1.0"})
        assert not any("earlier run" in note for note in reproduced(tmp_path / "one")["notes"])
    with edited(copied(tmp_path), "methods/frank_wolfe.py") as code:
        monkeypatch.setattr(runner, "sources", lambda: code)
        reproduced(tmp_path / "two", reuse=tmp_path / "one")
        last = reproduced(tmp_path / "three", reuse=tmp_path / "two")
    [note] = [note for note in last["notes"] if "earlier run" in note]
    assert note.startswith(
        "14 of 16 cells, those of the search for settings among them, were measured in an earlier run"
    )
    assert "numpy 1.0" in note


# --- checked ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def measured(data: Path, tmp_path: Path) -> Path:
    """A folder with the results of `MIXED`, of today."""
    reproduced(tmp_path / "results")
    return tmp_path / "results"


def test_a_check_runs_nothing_and_finds_everything_up_to_date(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "run_trial", stopping(1))
    state = checked(measured)
    assert (counted(state), state.cells, state.needs_run) == ({"current": 16}, 16, False)
    assert state.text() == "mixed: 16 cells, 1 trial: 16 current."


def test_a_check_names_the_part_that_changed(
    measured: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code, settings, data; more trials are missing; a larger grid leaves trials undecided until it was searched."""
    with edited(copied(tmp_path), "methods/frank_wolfe.py") as code, monkeypatch.context() as patched:
        patched.setattr(runner, "sources", lambda: code)
        state = checked(measured)
    assert counted(state) == {"current": 14, "out of date": 2}
    assert state.parts == {"code": 2, "settings": 0, "data": 0}
    assert state.text() == "mixed: 16 cells, 1 trial: 14 current, 2 out of date; changed: code of 2."
    state = checked(measured, MIXED.replace('method = "frank_wolfe"', 'method = "frank_wolfe"\nprivate = false'))
    assert counted(state) == {"current": 14, "missing": 2}
    changed = MIXED.replace('method = "frank_wolfe"', 'method = "frank_wolfe"\nparameters = { n_iter = 3 }')
    state = checked(measured, changed)
    assert (counted(state), state.parts["settings"]) == ({"current": 14, "out of date": 2}, 2)
    assert counted(checked(measured, trials=2)) == {"current": 16, "missing": 4}
    state = checked(measured, MIXED.replace("[1, 2]", "[1, 2, 3]"))
    assert counted(state) == {"current": 12 + 2, "missing": 4, "undecided": 2}
    write_images(data, moved=1)
    state = checked(measured)
    assert (counted(state), state.parts) == (
        {"current": 6 + 2, "out of date": 6 + 2}, {"code": 0, "settings": 0, "data": 8}
    )  # fmt: skip


def test_a_check_without_data_says_what_it_could_not_check(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code and settings are compared all the same."""
    monkeypatch.delenv("TULLE_DATA")
    state = checked(measured)
    assert counted(state) == {"current": 8, "not checked": 8}
    assert not state.needs_run
    assert state.text() == (
        "mixed: 16 cells, 1 trial: 8 current, 8 not checked; code and settings are of today. "
        "Not checked, since files of its data were not found: 8 cells."
    )
    with edited(copied(tmp_path), "methods/frank_wolfe.py") as code:
        monkeypatch.setattr(runner, "sources", lambda: code)
        assert counted(checked(measured)) == {"current": 7, "out of date": 2, "not checked": 7}


def test_results_of_the_papers_own_data_are_not_compared_with_a_substitute(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its files are not there: the stored cells have its name."""
    images = "n_nonzero = 2\nbounds = { row_l2 = 3.0"
    substituted = MIXED.replace('name = "images"\nsource = "load_pneumonia"', 'name = "other"\nsource = "load_a9a"')
    own = 'real = { name = "images", source = "load_pneumonia" }'
    substituted = substituted.replace(images, f"{own}\n{images}")
    assert counted(checked(measured, substituted)) == {"current": 16}
    monkeypatch.delenv("TULLE_DATA")
    assert counted(checked(measured, substituted)) == {"current": 8, "not checked": 8}


def test_a_check_of_no_file_or_a_damaged_one_misses_every_cell(measured: Path) -> None:
    place = measured / "mixed" / FILE
    place.write_text(place.read_text(encoding="utf-8")[:-30], encoding="utf-8")
    state = checked(measured)
    assert (counted(state), state.needs_run) == ({"missing": 16}, True)
    assert "is damaged" in state.message
    place.unlink()
    assert checked(measured).message == f"There is no {place}."


def test_cells_without_tables_need_a_run(measured: Path) -> None:
    """The run was stopped after its last cell."""
    file = read_cell_file(measured / "mixed" / FILE, "mixed")
    file.complete = False
    file.write()
    state = checked(measured)
    assert (counted(state), state.needs_run) == ({"current": 16}, True)
    assert "tables are not written of these cells yet" in state.text()


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "catalogue"
    folder.mkdir()
    (folder / "tiny.toml").write_text(TINY)
    (folder / "mixed.toml").write_text(MIXED)
    monkeypatch.setattr(catalogue, "_FOLDER", folder)
    return folder


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main(["reproduce", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_command_checks_and_takes_over(
    small_catalogue: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check fails until every page is up to date; a run with --reuse runs what is missing."""
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(["reproduce", "tiny", "--fast", "--jobs", "1", "-o", str(one)]) == 0
    capsys.readouterr()
    code, values = answer(capsys, "all", "--check", str(one))
    assert code == 1
    assert values["to_run"] == ["mixed", "tiny"]  # the whole of tiny has more budgets
    assert values["pages"]["tiny"]["states"] == {
        "current": 3, "out of date": 0, "missing": 2, "failed": 0, "undecided": 0, "not checked": 0,
    }  # fmt: skip
    assert answer(capsys, "tiny", "--check", str(one), "--fast")[0] == 0
    assert answer(capsys, "tiny", "--check", str(one), "--fast", "--trials", "2")[0] == 1
    code, values = answer(capsys, "all", "--jobs", "1", "--trials", "1", "--reuse", str(one), "-o", str(two))
    assert code == 0
    assert len(log(two / "tiny")) == 2
    assert main(["reproduce", "all", "--check", str(two)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 pages, 0 need a run: 21 current."
    (two / "tiny" / FILE).write_text("{}")
    code, values = answer(capsys, "tiny", "--jobs", "1", "--fast", "--reuse", str(two), "-o", str(tmp_path / "three"))
    assert code == 0
    assert "has a format that this version cannot read; nothing is taken over" in json.dumps(values["warnings"])
    assert len(log(tmp_path / "three" / "tiny")) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tiny", "--check", "nowhere"], "--check: nowhere is not a folder"),
        (["tiny", "--reuse", "nowhere"], "--reuse: nowhere is not a folder"),
        (["--check", "."], "--check needs the name of a table or figure, or all"),
        (["--reuse", "."], "--reuse needs the name of a table or figure, or all"),
        (["tiny", "--check", ".", "--reuse", "."], "--check runs nothing; leave out --reuse and --restart"),
        (["tiny", "--check", ".", "--restart"], "--check runs nothing; leave out --reuse and --restart"),
        (["unheard-of", "--check", "."], "unknown table or figure"),
    ],
)
def test_the_command_refuses_what_is_unclear(
    words: list[str], message: str, small_catalogue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, values = answer(capsys, *words)
    assert code == 2
    assert message in values["error"]["message"]


def test_every_table_of_the_catalogue_can_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without data and without results: every kind of experiment lists its cells."""
    monkeypatch.delenv("TULLE_DATA", raising=False)
    for name in catalogue.names():
        of = replace(catalogue.published(name).faster(), trials=1)
        state = reproduction_check.check(of, tmp_path)
        assert state.states["missing"] == state.cells > 0
