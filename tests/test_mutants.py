"""The tests have teeth: each planted privacy bug is caught by the tests named for it, and sound code passes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked_runs import ForkedRuns
from mutants import (
    MUTANTS,
    ROOT,
    SOURCE,
    WITH_THE_TESTS,
    Mutant,
    is_within,
    patched_copy,
    run_tests,
)
from planted import texts_of


@pytest.fixture(scope="module")
def runs() -> Iterator[ForkedRuns]:
    with ForkedRuns() as started:
        yield started


def test_sound_code_passes_the_named_tests(tmp_path: Path, runs: ForkedRuns) -> None:
    """On a copy without a patch. The others are run on the package itself, as all tests are."""
    named = sorted({test for mutant in WITH_THE_TESTS for test in mutant.tests})
    outcome = run_tests(named, None, tmp_path, runs)
    assert outcome.code == 0, outcome.output[-3000:]


@pytest.mark.parametrize("mutant", WITH_THE_TESTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant, tmp_path: Path, runs: ForkedRuns) -> None:
    """By a statement that is false or an error that does not come; a crash or a test that is not there is no catch."""
    outcome = run_tests(mutant.tests, mutant, tmp_path, runs)
    assert outcome.code == 1, f"pytest's exit status is {outcome.code}\n{outcome.output[-3000:]}"
    assert outcome.caught_by is not None, outcome.output[-3000:]
    assert any(is_within(outcome.caught_by, test) for test in mutant.tests)


def test_there_are_enough_and_they_are_told_apart() -> None:
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.at, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


def fault_of(mutant: Mutant, texts: dict[Path, str]) -> str:
    """Why a bug cannot be planted in a package with these texts, or has no test; "" where all is well."""
    try:
        path, place = mutant.find_in(texts)
        compile(texts[path][:place] + mutant.new + texts[path][place + len(mutant.old) :], path, "exec")
    except (ValueError, SyntaxError) as error:
        return f"{mutant.name!r}: {error}"
    if not mutant.history or not mutant.tests:
        return f"{mutant.name!r} has no history or no tests"
    missing = [test for test in mutant.tests if not (ROOT / test.partition("::")[0]).is_file()]
    return f"{mutant.name!r}: no such files: {missing}" if missing else ""


def test_a_patch_fits_the_code_in_one_place() -> None:
    """All patches in one test: the package is read once, not once for each."""
    texts = texts_of(SOURCE)
    assert [fault for mutant in MUTANTS if (fault := fault_of(mutant, texts))] == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"old": "no such line"}, "occurs 0 times"),
        ({"old": "import"}, "occurs [0-9]+ times"),
        ({"new": "return ("}, "was never closed"),
        ({"history": ""}, "no history"),
        ({"tests": ()}, "no tests"),
        ({"tests": ("tests/test_gone.py::test_it",)}, "no such files"),
    ],
)
def test_a_patch_with_a_fault_is_noticed(change: dict[str, Any], fault: str) -> None:
    texts = texts_of(SOURCE)
    sound = MUTANTS[0]
    assert fault_of(sound, texts) == ""
    assert re.search(fault, fault_of(replace(sound, **change), texts))


def test_a_patch_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    stale = Mutant("stale", "none", "no such line", "another", ("tests/trusted/test_queries.py",))
    with pytest.raises(ValueError, match="occurs 0 times"):
        patched_copy(stale, tmp_path)


def test_a_crash_is_not_a_catch(tmp_path: Path, runs: ForkedRuns) -> None:
    """A patch that raises makes the tests fail, and is not counted."""
    old, new = "return grid_and_scale(self.noise.value, moved, self.ROUNDINGS * ones)", "raise NotImplementedError"
    crash = Mutant("crash", "none", old, new, ("tests/trusted/test_mechanisms.py::TestAdditiveNoise::test_law",))
    outcome = run_tests(crash.tests, crash, tmp_path, runs)
    assert outcome.code == 1
    assert outcome.caught_by is None


def test_a_place_is_found_by_its_text_or_by_the_definition_around_it(tmp_path: Path) -> None:
    """In whatever file it stands; a text that stands twice needs `at`."""
    (tmp_path / "deep").mkdir()
    for name in ("one", "two"):
        (tmp_path / "deep" / f"{name}.py").write_text(f"class {name.title()}:\n    def half(self):\n        return 2\n")
    with pytest.raises(ValueError, match="occurs 2 times"):
        Mutant("twice", "none", "return 2", "return 3", ("tests/test_mutants.py",)).find(tmp_path)
    planted = Mutant("once", "none", "return 2", "return 3", ("tests/test_mutants.py",), at="Two.half").plant(tmp_path)
    assert planted.read_text() == "class Two:\n    def half(self):\n        return 3\n"
    with pytest.raises(ValueError, match=r"occurs 0 times in Three\.half"):
        Mutant("none", "none", "return 2", "return 3", ("tests/test_mutants.py",), at="Three.half").find(tmp_path)
