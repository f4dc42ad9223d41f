"""Categories and words that a pipeline finds: what is billed, what leaves, what is refused, and files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from replayed import differences, replayed
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from test_step_replay import told_of_pipeline

from tulle import Bounds, Budget, Ledger, PrivatePipeline, Schema, SparseClassifier, SparseRegressor, load, save
from tulle.backends.block_writer import write_blocks
from tulle.cli import main
from tulle.preprocessing import PrivateCategories, PrivateColumns, PrivateVocabulary, PrivateWeights
from tulle.preprocessing.thresholded_sets import ThresholdedGaussian

N = 3000
RNG = np.random.default_rng(0)
JOBS = RNG.choice(["nurse", "clerk", "pilot", "cook"], N, p=[0.5, 0.3, 0.15, 0.05])
NOTES = [f"fever {'cough' if k % 3 else 'pain'} note{k % 7}" for k in range(N)]
TABLE = {"age": RNG.uniform(20, 90, N), "job": JOBS.tolist(), "note": NOTES}
Y = np.where((JOBS == "nurse") ^ (RNG.random(N) < 0.05), "yes", "no")
SECRET = "zanzibarpox"
SCHEMA = Schema(
    {
        "age": {"range": [20, 90]},
        "job": {"categories": "private", "most": 10},
        "note": {"text": "private", "most": 20},
    },
    target={"column": "sick", "classes": ["no", "yes"]},
)
STEPS: dict[str, tuple[Any, Any]] = {
    "schema": (SCHEMA, TABLE),
    "categories": (PrivateCategories(["job"], most=10), TABLE),
    "vocabulary": (PrivateVocabulary(most=20), NOTES),
}

pytestmark = pytest.mark.filterwarnings("ignore:.*columns that the schema does not.*")


def pipeline(step: Any, epsilon: float | None = 4.0, *more: Any, **settings: Any) -> PrivatePipeline:
    model = SparseClassifier(classes=["no", "yes"])
    steps = [("find", step), *((f"step {k}", one) for k, one in enumerate(more)), ("model", model)]
    return PrivatePipeline(steps, epsilon, **{"random_state": 0, "delta": 1e-5, **settings})


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_whole_budget_is_proved_and_on_one_bill(kind: str, epsilon: float) -> None:
    """Delta included: a tenth of it is for the threshold."""
    step, rows = STEPS[kind]
    with Ledger(Budget(100.0, 0.1)) as ledger:
        fitted = pipeline(step, epsilon).fit(rows, Y)
    report = fitted.privacy_
    assert 0.99 * epsilon < report.epsilon <= epsilon
    assert (report.delta, len(ledger.fits)) == (1e-5, 1)
    assert 0.9e-6 < report.floating_point_slack <= 1e-6
    assert next(line.release for line in report.bill) == "categories and words"
    told = " ".join(str(report).split())
    assert "thresholds of found values" in told
    assert "released the categories or words" in told


def test_values_that_many_have_are_found_and_used() -> None:
    fitted = pipeline(SCHEMA).fit(TABLE, Y)
    step = fitted.steps_[0][1]
    assert type(step) is PrivateColumns
    assert set(step.found_["job"]) >= {"nurse", "clerk", "pilot"}
    assert {"fever", "cough", "pain"} <= set(step.found_["note"])
    assert fitted.score(TABLE, Y) > 0.85
    weights = dict(zip(fitted.model_.weight_names_, fitted.model_.coef_[0]))
    assert max(weights, key=lambda name: abs(weights[name])) == "job = nurse"
    assert all(weight == 0 for name, weight in weights.items() if "not used" in name)
    assert len(fitted.model_.support_) <= 1 + len(step.found_["job"]) + 1 + len(step.found_["note"])


def test_without_noise_all_values_are_found() -> None:
    """As scikit-learn finds them."""
    fitted = pipeline(PrivateVocabulary(most=50), None).fit(NOTES, Y)
    assert fitted.steps_[0][1].found_["text"] == tuple(sorted(CountVectorizer().fit(NOTES).vocabulary_))
    fitted = pipeline(PrivateCategories(["job"]), None).fit(TABLE, Y)
    np.testing.assert_allclose(
        fitted.steps_[0][1].masses_["job"], [np.mean(job == JOBS) for job in sorted(set(JOBS))], rtol=1e-8
    )


def test_the_most_common_values_are_kept() -> None:
    fitted = pipeline(PrivateCategories(["job"], most=2), None).fit(TABLE, Y)
    assert fitted.steps_[0][1].found_["job"] == ("clerk", "nurse")


# --- what leaves -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("people", [None, 2])
def test_nothing_leaves_but_what_was_released(people: int | None, tmp_path: Path, monkeypatch: Any) -> None:
    """Rows with other words, blanks and secrets, and the answers of the first."""
    ids = None if people is None else np.arange(N) // 3

    def fit(table: Any, y: Any) -> Any:
        with Ledger(Budget(1e9, 0.1)) as ledger:
            bounds = None if people is None else Bounds(rows_per_person=people)
            model = SparseClassifier(classes=["no", "yes"], bounds=bounds, verbose=1)
            found = PrivatePipeline([("find", SCHEMA), ("model", model)], 4.0, 1e-5, random_state=1)
            return found.fit(table, y, ids), ledger.fits

    other = {"age": ["x"] * N, "job": [None, SECRET, "nurse"] * (N // 3), "note": [SECRET, "", "pain " * 3] * (N // 3)}
    one, two = replayed(lambda: fit(TABLE, Y), lambda: fit(other, np.roll(Y, 1)), told_of_pipeline(tmp_path))
    assert not one.error, one.error
    assert "expects to find" in one.err
    assert [line for line in differences(one, two) if "answers, " not in line] == []


def test_released_names_are_in_alphabetical_order() -> None:
    """What `ask` answers: keys are numbered as they occur in the rows."""
    step = PrivateVocabulary()
    rows = step.read(["zz aa", "mm"])
    ask = step.name_answers(lambda name, query, then=None: then(np.array([0.3, 0.2, 0.0])), rows)
    assert list(ask("categories and words", None).items()) == [(("text", "aa"), 0.2), (("text", "zz"), 0.3)]


def test_a_word_that_one_row_has_is_nowhere(tmp_path: Path) -> None:
    """Not in the model, its file, its pickle or its report, however often the row repeats it."""
    rows = {**TABLE, "job": [SECRET, *TABLE["job"][1:]], "note": [f"{SECRET} " * 50, *NOTES[1:]]}
    fitted = pipeline(SCHEMA).fit(rows, Y)
    save(fitted, tmp_path / "model.npz")
    text = repr(vars(fitted)) + repr(vars(fitted.steps_[0][1])) + str(fitted.privacy_)
    assert SECRET not in text
    for data in (pickle.dumps(fitted), (tmp_path / "model.npz").read_bytes()):
        assert SECRET.encode() not in data


def test_found_values_are_printed_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Line breaks, escape sequences and lone surrogates of cells stay out of files and terminals."""
    odd = "a\nProved: \x1b[2Jepsilon\u202e\udcff = 0"
    jobs = [odd if k % 2 else "(other)" for k in range(N)]
    fitted = pipeline(PrivateCategories(["job"])).fit({"job": jobs}, Y)
    clean = "a Proved: \ufffd[2Jepsilon\ufffd\ufffd = 0"
    assert fitted.steps_[0][1].found_["job"] == ("(other)", clean)
    names = fitted.model_.weight_names_.tolist()
    assert len(set(names)) == len(names)
    save(fitted, tmp_path / "model.npz")
    np.testing.assert_array_equal(load(tmp_path / "model.npz").predict({"job": jobs}), fitted.predict({"job": jobs}))


def test_a_report_says_what_a_schema_declared() -> None:
    report = " ".join(str(pipeline(SCHEMA).fit(TABLE, Y).privacy_).split())
    assert report.count("must be known without looking at the rows") == 1
    assert "Thresholds of found values and finite precision use" in report


def test_a_person_with_many_rows_is_one_person() -> None:
    """With surplus rows that hold secrets of their own; and without ids the same words would be found."""
    rows = {**TABLE, "note": [SECRET if k < 1000 else note for k, note in enumerate(NOTES)]}
    people = np.where(np.arange(N) < 1000, 0, np.arange(N))
    assert SECRET in pipeline(SCHEMA).fit(rows, Y).steps_[0][1].found_["note"]
    found = pipeline(SCHEMA).fit(rows, Y, people).steps_[0][1].found_["note"]
    assert "fever" in found
    assert SECRET not in found


# --- together with other things --------------------------------------------------------------------------------------


def test_weights_may_follow_and_regression_works() -> None:
    fitted = pipeline(SCHEMA, 4.0, PrivateWeights()).fit(TABLE, Y)
    assert [line.release for line in fitted.privacy_.bill][:2] == ["categories and words", "column masses"]
    model = SparseRegressor(bounds=Bounds(label=1.0))
    steps = [("find", PrivateCategories(["job"])), ("model", model)]
    regression = PrivatePipeline(steps, 4.0, random_state=0).fit(TABLE, np.where(JOBS == "nurse", 1.0, -1.0))
    assert regression.score(TABLE, np.where(JOBS == "nurse", 1.0, -1.0)) > 0.8


@pytest.mark.parametrize("kind", STEPS)
def test_a_saved_pipeline_predicts_the_same(kind: str, tmp_path: Path) -> None:
    step, rows = STEPS[kind]
    fitted = pipeline(step).fit(rows, Y)
    save(fitted, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(rows), fitted.predict(rows))
    assert again.steps_[0][1].found_ == fitted.steps_[0][1].found_
    assert again.steps_[0][1].get_feature_names_out().tolist() == fitted.model_.weight_names_.tolist()
    few = pd.DataFrame(TABLE).head(5)
    np.testing.assert_array_equal(again.predict(few if kind != "vocabulary" else few["note"]), fitted.predict(rows)[:5])


def test_the_command_line_finds_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a CSV file to predictions for raw rows, with names in the table of weights."""
    pd.DataFrame({**TABLE, "sick": Y}).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "columns.toml").write_text(SCHEMA.to_toml())
    rows, schema, out = (str(tmp_path / name) for name in ("rows.csv", "columns.toml", "model"))
    assert main(["fit", rows, "--schema", schema, "--epsilon", "4", "--seed", "0", "-o", out]) == 0
    told = capsys.readouterr()
    assert "expects to find categories that at least" in told.err
    assert "job = nurse" in told.out
    assert "job = nurse" in (tmp_path / "model" / "weights.csv").read_text()
    assert main(["predict", out, rows, "--quiet"]) == 0
    predicted = capsys.readouterr().out.split()[1:]
    assert np.mean(np.array(predicted) == Y) > 0.85
    assert main(["compare", rows, "--schema", schema, "--epsilon", "4", "-o", str(tmp_path / "other")]) == 2
    assert "to be found privately" in capsys.readouterr().err


# --- refusals, before anything is billed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pipeline(PrivateVocabulary(power=3.0)).fit(NOTES, Y), "power"),
        (lambda: pipeline(PrivateVocabulary(most=0)).fit(NOTES, Y), "whole number from 1"),
        (lambda: pipeline(PrivateVocabulary(ngrams=9)).fit(NOTES, Y), "ngrams"),
        (lambda: pipeline(PrivateCategories(["job"], most=True)).fit(TABLE, Y), "whole number from 1"),
        (lambda: pipeline(PrivateCategories(["ward"])).fit(TABLE, Y), "ward"),
        (lambda: pipeline(PrivateCategories([])).fit(TABLE, Y), "no column is left"),
        (lambda: pipeline(PrivateCategories("job")).fit(TABLE, Y), "list of columns"),
        (lambda: pipeline(PrivateVocabulary()).fit(pa.table({"note": NOTES}), Y), "sequence of texts"),
        (lambda: pipeline(Schema({"z*": {"text": "private"}, "*": {"hashed": 4}})).fit(TABLE, Y), "to be found"),
        (lambda: pipeline(PrivateVocabulary()).fit(TABLE, Y), "sequence of texts"),
        (lambda: pipeline(PrivateVocabulary()).fit(np.array([NOTES, NOTES]).T, Y), "sequence of texts"),
        (lambda: pipeline(PrivateVocabulary()).fit(NOTES[:-1], Y), "inconsistent"),
        (lambda: pipeline(PrivateVocabulary()).fit("a text", Y), "sequence of texts"),
        (lambda: pipeline(PrivateWeights(), 1.0, PrivateVocabulary()).fit(NOTES, Y), "must be the first step"),
        (lambda: pipeline(SCHEMA, 1.0, delta=0.0).fit(TABLE, Y), "delta > 0"),
        (lambda: make_pipeline(SCHEMA, SparseClassifier(classes=["no", "yes"])).fit(TABLE, Y), "PrivatePipeline"),
        (lambda: Schema({"a": {"categories": "private", "other": True}}), "does not take other"),
        (lambda: Schema({"a": {"text": 14, "most": 5}}), "does not take most"),
        (lambda: Schema({"a": {"categories": ["x"]}}, target={"column": "y", "classes": "private"}), "list"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, words: str) -> None:
    with Ledger(Budget(100.0, 0.1)) as ledger, pytest.raises((ValueError, TypeError), match=words):
        make()
    assert len(ledger.fits) == 0


def test_rows_in_blocks_are_refused(tmp_path: Path) -> None:
    folder = write_blocks(tmp_path / "rows", [(np.ones((9, 2)), Y[:9])])
    with Ledger(Budget(100.0, 0.1)) as ledger, pytest.raises(ValueError, match="in rows in memory"):
        pipeline(SCHEMA).fit(folder.X, folder.y)
    assert len(ledger.fits) == 0
    with pytest.raises(ValueError, match="in rows in memory"):
        pipeline(SCHEMA).fit(TABLE, Y).predict(folder.X)


def test_few_rows_are_warned_of_beforehand() -> None:
    with pytest.warns(UserWarning, match="must be in more than all"):
        pipeline(PrivateVocabulary(), 0.1).fit(NOTES[:300], Y[:300])


def test_a_plan_holds_the_threshold_and_nothing_of_the_rows() -> None:
    """The same for other rows of the same shape."""

    def mechanism(notes: list[str]) -> Any:
        step = PrivateVocabulary(most=20)
        rows = step.read(notes)
        from tulle.methods.loss_functions import facts_without_model

        return step.releases(0.1, facts_without_model(rows.shape[0], rows.shape[1], 1))[0].mechanism

    assert mechanism(NOTES) == mechanism(["", SECRET] * (N // 2))
    assert type(mechanism(NOTES)) is ThresholdedGaussian


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    step = PrivateCategories(["job"], most=2)
    for found, masses in (({"job": ["a", "b", "c"]}, {"job": [0.1] * 3}), ({"job": ["a"]}, {"job": [-1.0]}), ({}, {})):
        with pytest.raises(ValueError, match="does not have what it learnt"):
            step.restore(["job"], found, masses)
