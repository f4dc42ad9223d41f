"""What pages say of docs/results/state is what a script makes of the results."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, ROOT, loaded

TEXT = loaded("docs/results/state_text.py")
WINS = loaded("docs/results/wins.py")


@pytest.mark.parametrize("page", TEXT.PAGES)
def test_pages_have_the_figures_of_the_results(page: str) -> None:
    """As `python docs/results/state_text.py` writes them."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert TEXT.filled(page, text) == text


def test_every_block_is_of_a_page_that_is_written_and_is_known() -> None:
    used = {
        (path.relative_to(ROOT / "docs").as_posix(), name)
        for path in PAGES
        for name in re.findall(r"<!-- state: (\w+) -->", path.read_text(encoding="utf-8"))
    }
    assert {page for page, _ in used} <= set(TEXT.PAGES)
    assert {name for _, name in used} <= set(TEXT.BLOCKS)


def test_a_sentence_that_is_gone_is_told() -> None:
    with pytest.raises(ValueError, match=r"docs/local\.md does not say: which hides"):
        TEXT.filled("local.md", "nothing")


def test_figures_and_tables_of_another_measurement_are_replaced() -> None:
    """A stale page becomes the present one."""
    stale = (ROOT / "docs/local.md").read_text(encoding="utf-8")
    match = re.search(TEXT.SENTENCES[0][1], stale)
    assert match is not None
    other = stale[: match.start(1)] + "0.999" + stale[match.end(1) :]
    assert TEXT.filled("local.md", other) == stale


def test_the_picture_of_the_readme_has_the_measured_and_the_printed_figures() -> None:
    script = loaded("docs/pictures/headline.py")
    with (ROOT / "docs/pictures/headline.csv").open(newline="", encoding="utf-8") as file:
        drawn = [tuple(row) for row in csv.reader(file)]
    assert drawn == [("source", "line", "epsilon", "test_error"), *script.rows()]
    assert {row[0] for row in script.rows()} == {"state", *script.PAPERS}
    assert "docs/pictures/headline.svg" in (ROOT / "README.md").read_text(encoding="utf-8")


# --- counting --------------------------------------------------------------------------------------------------------

HEADER = "data,method,epsilon,trial,score,auc\n"


def scores(lines: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: str) -> Any:
    (tmp_path / "made").mkdir()
    rows = "".join(",".join(map(str, line)) + "\n" for line in lines)
    (tmp_path / "made" / "results.csv").write_text(HEADER + rows)
    monkeypatch.setattr(WINS, "HERE", tmp_path)
    return WINS.scores("made", measure)


def test_wins_ties_and_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference within 1 %, or within two standard errors of pairs, is a tie."""
    cells = {  # error of the default and of the peer, in two trials
        "win": ((0.10, 0.11), (0.20, 0.21)),
        "loss": ((0.30, 0.31), (0.20, 0.21)),
        "near": ((0.2, 0.2), (0.2001, 0.2001)),
        "noisy": ((0.10, 0.30), (0.20, 0.22)),
        "paired": ((0.10, 0.30), (0.12, 0.32)),  # far apart, and always by as much
    }
    lines = [
        (data, method, 1.0, trial, errors[trial], "")
        for data, both in cells.items()
        for method, errors in zip((WINS.DEFAULT, "peer"), both)
        for trial in (0, 1)
    ]
    lines += [("win", "plain", "", 0, 0.01, ""), ("lone", "peer", 1.0, 0, 0.2, "")]
    of = scores(lines, tmp_path, monkeypatch, "score")
    assert WINS.lines(of) == ["peer"]
    assert WINS.counted(of, "peer") == (2, 2, 1)


def test_of_auc_more_is_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [("data", WINS.DEFAULT, 1.0, 0, 0.2, 0.95), ("data", "peer", 1.0, 0, 0.1, 0.90)]
    of = scores(lines, tmp_path, monkeypatch, "auc")
    assert WINS.counted(of, "peer") == (1, 0, 0)


def test_what_is_said_of_points_that_are_behind() -> None:
    others = [name for name in TEXT.METHODS if name != "auto"]
    found = {
        ("one", 1.0): {"auto": 0.10, **dict.fromkeys(others, 0.30)},
        ("two", 2.0): {"auto": 0.22, **dict.fromkeys(others, 0.25), "two_stage": 0.20},
    }
    said = TEXT.behind(found)
    assert "within 5 % of the best at 1 of 2 points, and at most 10 % behind" in said
    assert "at least 3.0 times the error" in said
    assert said.endswith("The other points are: two at ε = 2.")
