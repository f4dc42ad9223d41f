"""The entry for a public registry: field by field, nothing invented, nothing internal."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from page_samples import ABOUT, HOSTILE_NAMES, REPORT, fitted, released

from tulle import Bounds, Budget, PrivateSearch, SparseClassifier
from tulle.files.number_text import rounded_up
from tulle.local import LabelPrivateSparseClassifier
from tulle.methods import HardThresholding
from tulle.reports.pages import fit_page
from tulle.reports.registry_entry import BLANK, entry_fields, registry_entry
from tulle.reports.report import NOT_COVERED, About, PrivacyReport

PEEK = f"{NOT_COVERED} scaler (peeks): StandardScaler learns means from private rows."


def entry(report: PrivacyReport = REPORT, about: About = ABOUT, **more: Any) -> dict[str, Any]:
    """As a registry reads it."""
    yaml = pytest.importorskip("yaml")
    model = released([[0.0, 2.0]], intercept=np.zeros(1), report=report, classes=["no", "yes"], **more)
    read: dict[str, Any] = yaml.safe_load(registry_entry(model, about))
    assert read == entry_fields(model, about)
    return read


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]


def test_every_field_of_a_registry_is_there() -> None:
    read = entry(replace(REPORT, n_rows=1000, rho=0.05, mu=0.25, zero_out=0.5, billed=("entry 3, head abc",)))
    assert read["name"] == ABOUT.title
    assert read["intended_use"] == ABOUT.purpose
    assert read["product_type"] == "machine-learning model"
    assert read["date"] == ABOUT.made
    assert read["privacy"] == {
        "variant": "approximate differential privacy",
        "unit": "one row",
        "adjacency": REPORT.unit,
        "epsilon": 1.0,
        "delta": 1e-5,
        "rho": 0.05,
        "mu": 0.25,
        "zero_out_epsilon": 0.5,
        "requested": "ε = 1, δ = 1e-05",
        "proof": "Gaussian differential privacy; calibration: rigorous",
        "noise_from_a_seed": False,
    }
    assert read["deployment"]["model"] == "central"
    assert read["deployment"]["data"] == ABOUT.data
    assert read["unprotected_quantities"] == {"rows": 1000, "features": 2, "classes": ["no", "yes"]}
    assert read["actors_and_trust"][:-1] == list(REPORT.who_saw_what)
    assert read["composition"]["on_a_ledger"] is True
    assert "13 releases" in read["composition"]["within_this_release"]
    assert read["mechanisms"]["library"] == "tulle"
    assert read["mechanisms"]["version"] == REPORT.version
    assert read["mechanisms"]["timing"] == "Running time is not protected."
    assert read["mechanisms"]["floating_point"] == "Finite precision uses 1e-12 of δ, included in the stated δ."
    noises = [(line["name"], line["times"], line["noise_per_sensitivity"]) for line in read["mechanisms"]["releases"]]
    assert noises == [("bound", 1, 20.0), ("step", 12, 15.3)]
    assert read["assumptions"] == list(REPORT.assumptions)


@pytest.mark.parametrize(
    "path",
    [
        ("curators",),
        ("region",),
        ("sector",),
        ("justification",),
        ("deployment", "data_type"),
        ("deployment", "access_type"),
        ("deployment", "target"),
        ("composition", "with_other_releases"),
        ("tuning", "loss_accounted_for"),
    ],
)
def test_what_only_people_know_is_a_marked_blank(path: tuple[str, ...]) -> None:
    value: Any = entry()
    for key in path:
        value = value[key]
    assert value.startswith(f"{BLANK}: ")


def test_what_is_not_proved_is_null_and_not_a_number() -> None:
    privacy = entry()["privacy"]
    assert [privacy[name] for name in ("rho", "mu", "zero_out_epsilon")] == [None] * 3
    assert entry(replace(REPORT, delta=0.0))["privacy"]["variant"] == "pure differential privacy"


def test_no_epsilon_is_smaller_than_the_proved_one() -> None:
    privacy = entry(replace(REPORT, epsilon=1.0000001, delta=1.00000001e-5, mu=0.2500001, zero_out=0.50000001))
    found = privacy["privacy"]
    assert found["epsilon"] == float(rounded_up(1.0000001)) > 1
    assert found["delta"] > 1.00000001e-5
    assert found["mu"] > 0.25
    assert found["zero_out_epsilon"] > 0.5


def test_preprocessing_is_listed_with_whether_it_was_accounted_for() -> None:
    bill = (*REPORT.bill, replace(REPORT.bill[0], release="quartiles"))
    read = entry(replace(REPORT, bill=bill, assumptions=(*REPORT.assumptions, PEEK)))["preprocessing"]
    assert read[0]["step"].startswith("quartiles: ")
    assert read[0]["loss_accounted_for"] is True
    assert read[1] == {"step": PEEK, "loss_accounted_for": False}
    assert all(value.startswith(BLANK) for value in read[2].values())


@pytest.mark.filterwarnings("ignore")
def test_a_billed_search_is_accounted_for() -> None:
    X, y = np.random.default_rng(0).uniform(-1, 1, (400, 4)), np.arange(400) % 2
    trial = SparseClassifier(method=HardThresholding(n_iter=2), bounds=Bounds(row_linf=1.0))
    search = PrivateSearch(trial, {"n_nonzero": [1, 2]}, Budget(4.0, 1e-5), n_trials=2, random_state=0).fit(X, y)
    read = entry_fields(search.best_estimator_, ABOUT)
    assert read["tuning"] == {"search_on_the_bill": True, "loss_accounted_for": True}


@pytest.mark.filterwarnings("ignore")
def test_the_deployment_model_of_local_and_federated_studies() -> None:
    X, y = np.random.default_rng(0).uniform(-1, 1, (300, 3)), np.arange(300) % 2
    local = LabelPrivateSparseClassifier(2.0, random_state=0).fit(X, y)
    assert entry_fields(local, About())["deployment"]["model"] == "local"
    federated = replace(REPORT, who_saw_what=("Trust model: masked sums. Every client added its share.",))
    assert entry(federated)["deployment"]["model"] == "federated"


def test_nothing_internal_and_nothing_beyond_the_public_report_is_in_it() -> None:
    digest = "8f" * 32
    about = replace(ABOUT, data=f"visits.csv (sha256:{digest})", target="readmitted", ignored="patient")
    written = registry_entry(fitted(), about)
    for word in (ABOUT.asked_by, "visits.ledger", digest):
        assert word not in written
    page = fit_page(fitted(), about)
    said = [leaf for leaf in leaves(entry_fields(fitted(), about)) if isinstance(leaf, str)]
    typed = [text for text in said if any(word in text for word in ("visits", "discharge", "comes back", "back"))]
    assert typed
    for text in typed:
        assert text.split(" (")[0] in page or text.startswith(BLANK) or text in ("not back", "back")


def test_hostile_words_stay_words() -> None:
    about = About(HOSTILE_NAMES[0], data=HOSTILE_NAMES[3], target="a: b\n- c", purpose="no")
    read = entry(about=about)
    assert read["intended_use"] == "no"
    assert read["deployment"]["target"] == "a: b\n- c"
    assert read["name"] == HOSTILE_NAMES[0]


@pytest.mark.parametrize("report", [replace(REPORT, asked=None), replace(REPORT, epsilon=math.inf)])
def test_a_fit_without_a_guarantee_has_no_entry(report: PrivacyReport) -> None:
    with pytest.raises(ValueError, match="no epsilon is proved"):
        registry_entry(released([1.0], report=report), ABOUT)
