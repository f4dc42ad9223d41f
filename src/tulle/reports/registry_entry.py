"""An entry for a public registry of differentially private deployments, from what the public report says.

What only the people know who release the model is left as a marked blank.
"""

from __future__ import annotations

import math
from typing import Any

from tulle.files.number_text import rounded_up
from tulle.reports.pages.fit_page import keep_public
from tulle.reports.release_words import describe_release
from tulle.reports.report import About, BillLine, PrivacyReport, arithmetic_line
from tulle.reports.undermining import find_peeks, find_public_inputs
from tulle.reports.yaml_text import write_yaml

BLANK = "TO BE FILLED IN"

# Releases that learn how rows are prepared, and that choose among settings.
_PREPARING = (
    "class counts",
    "categories and words",
    "column masses",
    "quartiles",
    "row_l2 quantile",
    "row_linf quantile",
    "label quantile",
)
_CHOOSING = "search"


def registry_entry(model: Any, about: About) -> str:
    """The entry of a fitted model, as YAML.

    Parameters
    ----------
    model : estimator
        Fitted with privacy.
    about : About
        Who asked what. Who asked, the state of the ledger and hashes of files are left out.

    Raises
    ------
    ValueError
        Where no ε is proved: a registry of private releases has no place for such a fit.
    """
    return write_yaml(entry_fields(model, about))


def entry_fields(model: Any, about: About) -> dict[str, Any]:
    """The fields of the entry, before they are written."""
    report: PrivacyReport = model.privacy_
    if report.asked is None or not math.isfinite(report.epsilon):
        raise ValueError("no epsilon is proved for this fit: it has no place in a registry of private releases")
    about = keep_public(about)
    return {
        "name": about.title.strip() or about.default_title() or _blank("the name of the release"),
        "curators": _blank("who is responsible for the data and for this release"),
        "intended_use": about.purpose.strip() or _blank("what the model is for"),
        "product_type": "machine-learning model",
        "region": _blank("where the people in the data live"),
        "sector": _blank("such as health, education, statistics office"),
        "date": about.made.strip() or _blank("when the model was fitted"),
        "privacy": _privacy(report),
        "deployment": {
            "model": _deployment(report),
            "release": "static: one fitted model, its weights and its report",
            "data": about.data.strip() or _blank("which data"),
            "data_type": _blank("what a row is, and where rows come from"),
            "target": about.target.strip() or _blank("what the model predicts"),
            "access_type": _blank("who may get the model: the public, or named recipients"),
        },
        "unprotected_quantities": _unprotected(model, report),
        "actors_and_trust": [*report.who_saw_what, _blank("who runs the machine, and who may read it")],
        "composition": _composition(report),
        "preprocessing": _preparation(report),
        "tuning": _tuning(report),
        "public_inputs": list(find_public_inputs(report)),
        "post_processing": "All that is computed from the answers on the bill: weights, thresholds, intervals.",
        "mechanisms": _mechanisms(report),
        "assumptions": list(report.assumptions),
        "justification": _blank("why this epsilon, delta and unit are acceptable for these people"),
    }


def _blank(what: str) -> str:
    return f"{BLANK}: {what}"


def _privacy(report: PrivacyReport) -> dict[str, Any]:
    variant = "pure differential privacy" if report.delta == 0 else "approximate differential privacy"
    return {
        "variant": variant,
        "unit": report.unit.partition(";")[0],
        "adjacency": report.unit,
        "epsilon": _up(report.epsilon),
        "delta": _up(report.delta),
        "rho": _up(report.rho),
        "mu": _up(report.mu),
        "zero_out_epsilon": _up(report.zero_out),
        "requested": report.requested(),
        "proof": f"{report.accountant}; calibration: {report.calibration}",
        "noise_from_a_seed": report.seeded,
    }


def _up(value: float | None) -> float | None:
    """Rounded up, as on the page."""
    return None if value is None else float(rounded_up(value))


def _deployment(report: PrivacyReport) -> str:
    if report.unit.startswith("one user's"):
        return "local"
    return "federated" if any(line.startswith("Trust model: ") for line in report.who_saw_what) else "central"


def _unprotected(model: Any, report: PrivacyReport) -> dict[str, Any]:
    classes = getattr(model, "classes_", None)
    return {
        "rows": report.n_rows if report.n_rows is not None else _blank("the number of rows, see the unit"),
        "features": int(model.n_features_in_),
        "classes": None if classes is None else [str(label) for label in classes],
    }


def _composition(report: PrivacyReport) -> dict[str, Any]:
    return {
        "within_this_release": f"all {sum(line.count for line in report.bill):,} releases together, "
        f"{report.accountant}",
        "with_other_releases": _blank("which other releases are about the same people, and the total allowed"),
        "on_a_ledger": bool(report.billed),
    }


def _is_preparing(line: BillLine) -> bool:
    return line.release.rpartition(": ")[2] in _PREPARING


def _preparation(report: PrivacyReport) -> list[dict[str, Any]]:
    billed = [line for line in report.bill if _is_preparing(line)]
    steps: list[dict[str, Any]] = [
        {"step": f"{line.release}: {describe_release(line)}", "loss_accounted_for": True} for line in billed
    ]
    steps += [{"step": line, "loss_accounted_for": False} for line in find_peeks(report)]
    before = _blank("what was done to the rows before tulle read them, and whether it looked at them")
    return [*steps, {"step": before, "loss_accounted_for": _blank("yes or no")}]


def _tuning(report: PrivacyReport) -> dict[str, Any]:
    searched = any(line.release == _CHOOSING for line in report.bill)
    return {
        "search_on_the_bill": searched,
        "loss_accounted_for": searched or _blank("yes or no; whether settings were chosen by looking at these rows"),
    }


def _mechanisms(report: PrivacyReport) -> dict[str, Any]:
    return {
        "library": "tulle",
        "version": report.version or None,
        "method": report.method,
        "releases": [
            {
                "name": line.release,
                "mechanism": line.mechanism,
                "times": line.count,
                "noise_per_sensitivity": line.noise_per_sensitivity,
                "tells": describe_release(line),
            }
            for line in report.bill
        ],
        "floating_point": arithmetic_line(report.floating_point_slack, report.slack_is_for),
        "timing": "Running time is not protected.",
    }
