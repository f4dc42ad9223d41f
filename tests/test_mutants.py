"""The tests have teeth: each planted privacy bug is caught by the tests named for it, and sound code passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants import (
    MUTANTS,
    ROOT,
    SOURCE,
    WITH_THE_TESTS,
    WITHOUT_EXTRAS,
    Mutant,
    is_within,
    patched_copy,
    run_tests,
)


def test_sound_code_passes_the_named_tests(tmp_path: Path) -> None:
    """All of them, on a copy without a patch: what catches a bug does not cry wolf."""
    named = sorted({test for mutant in WITHOUT_EXTRAS for test in mutant.tests})
    outcome = run_tests(named, None, tmp_path)
    assert outcome.code == 0, outcome.output[-3000:]


@pytest.mark.parametrize("mutant", WITH_THE_TESTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    """By a statement that is false or an error that does not come; a crash or a test that is not there is no catch."""
    outcome = run_tests(mutant.tests, mutant, tmp_path)
    assert outcome.code == 1, f"pytest's exit status is {outcome.code}\n{outcome.output[-3000:]}"
    assert outcome.caught_by is not None, outcome.output[-3000:]
    assert any(is_within(outcome.caught_by, test) for test in mutant.tests)


def test_there_are_enough_and_they_are_told_apart() -> None:
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_patch_fits_the_code_in_one_place(mutant: Mutant) -> None:
    text = (SOURCE / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    assert mutant.old != mutant.new
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    assert mutant.history
    assert mutant.tests
    assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)


def test_a_patch_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    stale = Mutant("stale", "none", "queries.py", "no such line", "another", ("tests/test_queries.py",))
    with pytest.raises(ValueError, match="occurs 0 times"):
        patched_copy(stale, tmp_path)


def test_a_crash_is_not_a_catch(tmp_path: Path) -> None:
    """A patch that raises makes the tests fail, and is not counted."""
    old, new = "return sensitivity.l1", "raise NotImplementedError"
    crash = Mutant(
        "crash", "none", "mechanisms.py", old, new, ("tests/test_mechanisms.py::TestAdditiveNoise::test_law",)
    )
    outcome = run_tests(crash.tests, crash, tmp_path)
    assert outcome.code == 1
    assert outcome.caught_by is None
