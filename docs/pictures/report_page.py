"""Screenshots of a report, in chromium: `python docs/pictures/report_page.py`, about a minute.

A real fit, audit and comparison on a table that is made here. The fit draws fresh noise, as a fit for release must, so
the pictures differ from run to run. Needs the extras `browser` and `test`, and chromium (TULLE_CHROMIUM names another).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from playwright.sync_api import sync_playwright
from scipy.special import expit

from tulle import Bounds, SparseClassifier
from tulle.audit import audit_model
from tulle.experiments.comparison import Comparison, Examples, compare
from tulle.reports.pages import fit_page
from tulle.reports.report import About

HERE = Path(__file__).resolve().parent
ROWS, EPSILON, WEIGHTS = 30_000, 1.0, 16
KINDS = ("emergency", "ward", "outpatient", "lab", "imaging", "pharmacy", "phone", "home_care", "dialysis", "surgery")
PERIODS = ("last_week", "last_month", "last_quarter", "last_year")
BOUNDS = Bounds(row_linf=1.0)
METHODS, EPSILONS, TRIALS = ("screen_refine", "hard_thresholding", "frank_wolfe"), (0.1, 0.3, 1.0, 3.0), 3


def visits() -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    """Made patients: which kinds of contact they had when, and whether they came back. Few columns matter."""
    rng = np.random.default_rng(7)
    columns = [f"{kind}_{period}" for kind in KINDS for period in PERIODS]
    X = pd.DataFrame((rng.random((ROWS, len(columns))) < 0.3).astype(float), columns=columns)
    matter = {
        "emergency_last_week": 1.9,
        "emergency_last_month": 1.1,
        "ward_last_quarter": 1.3,
        "dialysis_last_month": 1.6,
        "home_care_last_week": -1.5,
        "phone_last_week": -0.9,
        "pharmacy_last_month": -0.7,
    }
    margins = X[list(matter)].to_numpy() @ np.array(list(matter.values())) - 0.9
    return X, np.where(rng.random(ROWS) < expit(margins), "readmitted", "not readmitted")


def main() -> None:
    X, y = visits()
    model = SparseClassifier(EPSILON, n_nonzero=WEIGHTS, bounds=BOUNDS).fit(X, y)
    audited = audit_model(
        SparseClassifier(EPSILON, n_nonzero=1, bounds=BOUNDS), runs=4_000, pilot_runs=200, seed=0, n_jobs=2
    )
    about = About(
        title="Who comes back within 30 days",
        asked_by="Quality office",
        purpose="To plan calls after discharge",
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        data="visits (a table made for this picture)",
        ledger=f"ε = {EPSILON:g} of 3 spent on these rows",
    )
    subject = Comparison(
        "visits",
        Examples(X.to_numpy(), y),
        "classification",
        methods=METHODS,
        epsilons=EPSILONS,
        trials=TRIALS,
        settings={"bounds": BOUNDS, "n_nonzero": WEIGHTS},
    )
    with tempfile.TemporaryDirectory() as folder:
        comparison = compare(subject, Path(folder), jobs=2)
    public = fit_page(model, about, audit=audited.to_dict())
    internal = fit_page(model, about, audit=audited.to_dict(), comparison=comparison, internal=True)
    with sync_playwright() as playwright:
        path = os.environ.get("TULLE_CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for name, page, width, height, scheme, anchor in (
            ("report_390", public, 390, 1180, "light", None),
            ("report_1280", public, 1280, 1500, "light", None),
            ("report_dark_390", public, 390, 1180, "dark", "features"),
            ("report_internal_1280", internal, 1280, 1040, "light", "accuracy"),
        ):
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                device_scale_factor=2 if width == 390 else 1,
            )
            shown = context.new_page()
            shown.set_content(page)
            if anchor is not None:
                shown.evaluate(f"document.getElementById('{anchor}').scrollIntoView()")
            shown.screenshot(path=HERE / f"{name}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
