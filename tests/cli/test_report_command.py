"""`tulle report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands_and_files import DATASET, fit_words, one_line

from tulle import Budget, FileLedger, load, private_score

COMPARISON = {
    "format": "tulle comparison 1",
    "data": "visits.csv",
    "task": "classification",
    "metric": "test error",
    "n_train": 700,
    "n_test": 300,
    "n_features": 50,
    "delta": 1e-5,
    "trials": 5,
    "seed": 0,
    "tulle": "0.1.0",
    "rows": [
        {
            "method": "auto",
            "epsilon": epsilon,
            "mean": 0.2 / epsilon,
            "standard_error": 0.01,
            "trials": 5,
            "proved": epsilon,
            "nonzero": 20.0,
        }
        for epsilon in (0.5, 1.0, 2.0)
    ],
    "no_privacy": {"method": "auto", "mean": 0.05, "standard_error": 0.0, "nonzero": 20.0},
    "null_model": {"mean": 0.5},
}


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "comparison.json").write_text(json.dumps(COMPARISON))
    return folder


def test_the_public_report(run: Any, model: Path) -> None:
    """Written again beside the model, as the fit wrote it."""
    before = (model / "report.html").read_bytes()
    (model / "report.html").unlink()
    ran = run("report", model, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.values == {"report": str(model / "report.html"), "internal": False}
    assert (model / "report.html").read_bytes() == before


def test_an_audit_feeds_the_report(run: Any, model: Path, audited: Path, tmp_path: Path) -> None:
    """What `tulle audit --output` wrote is what `tulle report --audit` reads."""
    assert run("report", model, "--audit", audited, "-o", tmp_path / "signed.html").code == 0
    assert "The audit" in (tmp_path / "signed.html").read_text(encoding="utf-8")
    assert "The audit" not in (model / "report.html").read_text(encoding="utf-8")


def test_accuracy_is_for_the_internal_form_alone(run: Any, model: Path, compared: Path) -> None:
    """Errors on private rows are no part of a public report; the internal one is another file and says what it is."""
    message = one_line(run("report", model, "--comparison", compared), "report")
    assert message == "accuracy on private rows is not for release: pass --internal with --comparison"
    ran = run("report", model, "--comparison", compared, "--internal")
    assert ran.out == f"Written: {model.with_name(model.name + '-internal.html')} (not for release)\n"
    page = model.with_name(f"{model.name}-internal.html").read_text(encoding="utf-8")
    assert "Accuracy" in page
    assert "Accuracy" not in (model / "report.html").read_text(encoding="utf-8")


def test_a_ledger_is_for_the_internal_form_alone(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """What was spent on the data set, as the ledger has it now."""
    assert run(*fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)).code == 0
    assert "cap epsilon" not in (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert "not for release" in one_line(run("report", tmp_path / "m", "--ledger", ledger), "report")
    assert run("report", tmp_path / "m", "--ledger", ledger, "--internal").code == 0
    assert "cap epsilon = 3" in (tmp_path / "m-internal.html").read_text(encoding="utf-8")


def test_the_report_of_a_comparison_is_internal(run: Any, compared: Path) -> None:
    """In the comparison's folder, marked as not for release."""
    ran = run("report", compared, "--json")
    assert ran.values == {"report": str(compared / "report.html"), "internal": True}
    assert (compared / "report.html").exists()
    assert "belong to the report of a model" in one_line(run("report", compared, "--audit", "x.json"), "report")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "3",
        '"text"',
        "{}",
        '{"epsilon": 1}',
        "\0",
        '{"format": "tulle comparison 1", "rows": 3, "hit_rates": 3}',
    ],
)
def test_damaged_results_are_refused(run: Any, model: Path, compared: Path, content: str) -> None:
    """Of an audit or of a comparison: one line, and the report that is there stays."""
    before = (model / "report.html").read_bytes()
    (compared / "comparison.json").write_text(content)
    words = "is damaged, or was not written by tulle"
    assert words in one_line(run("report", model, "--internal", "--comparison", compared), "report")
    assert words in one_line(run("report", model, "--audit", compared / "comparison.json"), "report")
    assert words in one_line(run("report", compared), "report")
    assert (model / "report.html").read_bytes() == before


def test_reports_overwrite_nothing_that_they_read(run: Any, model: Path, audited: Path) -> None:
    """Neither the model nor the audit."""
    for output in (model / "model.npz", audited):
        before = output.read_bytes()
        assert "would be overwritten" in one_line(run("report", model, "--audit", audited, "-o", output), "report")
        assert output.read_bytes() == before
    assert "does not exist; tulle compare and" in one_line(run("report", model, "--audit", "nowhere.json"), "report")
    assert "does not exist; pass a folder" in one_line(run("report", model / "nowhere"), "report")


def test_a_fit_in_a_ledger_is_at_the_ledgers_delta(run: Any, place: Path, tmp_path: Path) -> None:
    """Unless another is asked for: a promise at a laxer delta is worth less there than it says."""
    FileLedger.create(tmp_path / "strict.json", DATASET, Budget(3.0, 1e-9))
    words = fit_words(place, tmp_path / "m", "--ledger", tmp_path / "strict.json", "--dataset", DATASET)
    assert run(*words).code == 0
    assert json.loads((tmp_path / "m" / "privacy.json").read_text())["delta"] == 1e-9


def test_a_fit_never_writes_over_what_it_reads(run: Any, place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Rows called weights.csv and a page called privacy.json lie where the model would go: refused, and untouched."""
    monkeypatch.chdir(tmp_path)
    Path("weights.csv").write_bytes((place / "outcome.csv").read_bytes())
    Path("privacy.json").write_text("{}")
    before = {name: Path(name).read_bytes() for name in ("weights.csv", "privacy.json")}
    words = ["fit", "weights.csv", "--target", "outcome", "--epsilon", "1", "--row-linf", "1", "-o", "."]
    assert "exists; choose another folder" in one_line(run(*words), "fit")
    assert "would be overwritten" in one_line(run(*words, "--replace"), "fit")
    assert {name: Path(name).read_bytes() for name in before} == before


def test_a_report_never_writes_over_a_ledger(run: Any, model: Path, tmp_path: Path) -> None:
    """Neither over the folder nor over a file of it; a model does not go into it either."""
    FileLedger.create(tmp_path / "budget", DATASET, Budget(3.0, 1e-4))
    files = {file: file.read_bytes() for file in (tmp_path / "budget").rglob("*.json")}
    for words in (("report", model), ("report", model, "--internal", "--ledger", tmp_path / "budget")):
        assert "it is a folder" in one_line(run(*words, "-o", tmp_path / "budget"), "report")
        for file in files:
            assert "is a ledger and would be overwritten" in one_line(run(*words, "-o", file), "report")
    assert "contains a ledger" in one_line(run(*fit_words(model, tmp_path / "budget")), "fit")
    assert {file: file.read_bytes() for file in (tmp_path / "budget").rglob("*.json")} == files


def test_an_internal_report_lies_outside_of_what_is_for_release(run: Any, model: Path, monkeypatch: Any) -> None:
    """Also where the command is given from inside the folder."""
    monkeypatch.chdir(model)
    assert run("report", ".", "--internal").code == 0
    assert run("report", "model.npz", "--internal").code == 0
    assert model.with_name(f"{model.name}-internal.html").exists()
    assert not list(model.glob("*internal*"))


@pytest.mark.parametrize("wrong", ["", "cmp"])
def test_a_model_goes_into_a_folder_of_its_own(
    run: Any, place: Path, tmp_path: Path, monkeypatch: Any, wrong: str
) -> None:
    """Not into the folder of a comparison, which is not for release, nor into one that was not named."""
    monkeypatch.chdir(tmp_path)
    Path("cmp").mkdir()
    Path("cmp", "comparison.json").write_text("{}")
    message = one_line(run(*fit_words(place, wrong, "--replace")), "fit")
    assert "contains a comparison" in message or "-o is empty" in message


@pytest.mark.parametrize(
    "forged", [{"epsilon": "inf"}, {"confidence": 50}, {"delta": -1}, {"runs": 0}, {"hit_rates": [3.0]}]
)
def test_a_forged_audit_is_refused(
    run: Any, model: Path, audited: Path, tmp_path: Path, forged: dict[str, Any]
) -> None:
    """Figures that no audit can have found do not come onto a page that somebody signs."""
    (tmp_path / "forged.json").write_text(json.dumps(json.loads(audited.read_text()) | forged))
    message = one_line(run("report", model, "--audit", tmp_path / "forged.json", "-o", tmp_path / "r.html"), "report")
    assert "is damaged, or was not written by tulle" in message
    assert not (tmp_path / "r.html").exists()


def test_a_verdict_is_computed_and_not_believed(run: Any, model: Path, audited: Path, tmp_path: Path) -> None:
    """A file that says "refuted: false" beside an epsilon above the claim."""
    values = json.loads(audited.read_text()) | {"epsilon": 5.0, "claimed": 1.0, "refuted": False}
    (tmp_path / "forged.json").write_text(json.dumps(values))
    assert run("report", model, "--audit", tmp_path / "forged.json", "-o", tmp_path / "r.html").code == 0
    assert "The claim is false" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_title_is_for_this_page_alone(run: Any, model: Path, tmp_path: Path) -> None:
    assert run("report", model, "--title", "Another", "-o", tmp_path / "page.html").code == 0
    assert "<h1><bdi>Another</bdi></h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Another" not in (model / "report.html").read_text(encoding="utf-8")
    assert "--title must be printable text" in one_line(run("report", model, "--title", "a\nb"), "report")


def test_a_registry_entry_and_a_card_are_written_alone(run: Any, model: Path, tmp_path: Path) -> None:
    """The page that is there, perhaps signed, stays as it is."""
    before = (model / "report.html").read_bytes()
    (model / "report.html").unlink()
    entry, card = tmp_path / "entry.yaml", tmp_path / "card.md"
    ran = run("report", model, "--registry", entry, "--card", card, "--json")
    assert ran.values == {"registry": str(entry), "card": str(card), "internal": False}
    assert not (model / "report.html").exists()
    assert entry.read_text(encoding="utf-8").startswith('name: "Model of outcome on outcome.csv')
    assert card.read_text(encoding="utf-8").startswith("# Model of outcome on outcome.csv")
    assert run("report", model, "--registry", entry, "-o", model / "report.html").code == 0
    assert (model / "report.html").read_bytes() == before


@pytest.mark.parametrize("option", ["--registry", "--card"])
def test_what_is_public_is_not_made_of_the_internal_form(run: Any, model: Path, tmp_path: Path, option: str) -> None:
    assert "are public; omit --internal" in one_line(
        run("report", model, "--internal", option, tmp_path / "x"), "report"
    )
    assert not (tmp_path / "x").exists()
    assert "files of their own" in one_line(
        run("report", model, option, tmp_path / "x", "-o", tmp_path / "x"), "report"
    )
    assert "would be overwritten" in one_line(run("report", model, option, model / "model.npz"), "report")


def test_a_score_is_for_the_card_and_must_have_been_paid_for(run: Any, model: Path, tmp_path: Path) -> None:
    path, card = tmp_path / "score.json", tmp_path / "card.md"
    saved = load(model)
    X = np.random.default_rng(0).uniform(-1, 1, (200, saved.n_features_in_))
    labels = np.resize(saved.classes_, 200)
    path.write_text(private_score(saved, X, labels, epsilon=0.5).to_json(), encoding="utf-8")
    assert "pass --card FILE" in one_line(run("report", model, "--score", path), "report")
    assert run("report", model, "--card", card, "--score", path).code == 0
    assert "on 200 private rows" in card.read_text(encoding="utf-8")
    path.write_text(private_score(saved, X, labels, epsilon=0.5, random_state=0).to_json(), encoding="utf-8")
    assert "was not paid for" in one_line(run("report", model, "--card", card, "--score", path), "report")
    assert "does not exist; write what PrivateScore" in one_line(
        run("report", model, "--card", card, "--score", tmp_path / "nothing"), "report"
    )


def test_the_internal_report_lists_the_entries_of_the_ledger(
    run: Any, place: Path, tmp_path: Path, ledger: Path
) -> None:
    words = ("--ledger", ledger, "--dataset", DATASET, "--by", "Dr. Other")
    assert run(*fit_words(place, tmp_path / "m", *words)).code == 0
    assert run("report", tmp_path / "m", "--ledger", ledger, "--internal").code == 0
    page = (tmp_path / "m-internal.html").read_text(encoding="utf-8")
    assert "All entries, the latest first" in page
    assert "Dr. Other" in page
    assert "Dr. Other" not in (tmp_path / "m" / "report.html").read_text(encoding="utf-8")


OLD = Path(__file__).parent.parent / "written_before"


@pytest.mark.parametrize("name", sorted(path.name for path in OLD.glob("*.npz")))
@pytest.mark.filterwarnings("ignore")
def test_models_of_earlier_versions_have_a_report(run: Any, tmp_path: Path, name: str) -> None:
    assert run("report", OLD / name, "-o", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Before you sign" in page
    assert "Zero-out" not in page
    assert run("report", OLD / name, "--card", tmp_path / "card.md").code == 0
    entry = run("report", OLD / name, "--registry", tmp_path / "entry.yaml")
    assert entry.code == (2 if name == "no_privacy.npz" else 0)
