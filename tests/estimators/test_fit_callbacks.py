"""Without scikit-learn's fit callbacks, as before its version 1.9, fits and searches are the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tulle.estimators.fit_callbacks import SUPPORTED

CODE = """
import json, sys, warnings
if sys.argv[1] == "without":
    import sklearn.callback
    sys.modules["sklearn.callback"] = None  # its import fails, for this module of tulle alone
    import tulle.estimators.fit_callbacks
    sys.modules["sklearn.callback"] = sklearn.callback
import numpy as np
from tulle import Bounds, Budget, PrivateSearch, SparseClassifier, SparseRegressor
from tulle.estimators.fit_callbacks import SUPPORTED

X = np.random.default_rng(0).uniform(-1, 1, (300, 4))
told = {"supported": SUPPORTED, "set_callbacks": hasattr(SparseClassifier(), "set_callbacks")}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for cls in (SparseClassifier, SparseRegressor):
        model = cls(bounds=Bounds(row_linf=1.0, label=1.0), random_state=0, verbose=1).fit(X, X[:, 0] > 0)
        told[cls.__name__] = [model.coef_.tolist(), model.privacy_.epsilon, sorted(vars(model))]
    # Too few rows to estimate bounds: a warning that names the line that called fit.
    SparseClassifier(random_state=0).fit(X, X[:, 0] > 0)
    model = SparseClassifier(bounds=Bounds(row_linf=1.0), verbose=1)
    PrivateSearch(model, {"n_nonzero": [1, 2]}, Budget(1.0, 1e-5), n_trials=2.0).fit(X, X[:, 0] > 0)
told["warnings"] = sorted({(one.filename, one.lineno) for one in caught})
print(json.dumps(told))
"""


def fits(which: str) -> tuple[dict[str, Any], str]:
    """What fits in a fresh interpreter give, and what is on standard error but for how long they take."""
    done = subprocess.run([sys.executable, "-c", CODE, which], capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout), re.sub(r"\d+ s left", "", done.stderr)


@pytest.mark.skipif(not SUPPORTED, reason="scikit-learn before 1.9 has no callbacks: there is nothing to compare with")
def test_without_callbacks_fits_are_the_same() -> None:
    """Weights, ε, what is left on the model, progress, and the lines that warnings name."""
    (present, shown), (absent, shown_without) = fits("with"), fits("without")
    assert (present.pop("supported"), present.pop("set_callbacks")) == (True, True)
    assert (absent.pop("supported"), absent.pop("set_callbacks")) == (False, False)
    assert present == absent
    assert shown == shown_without
    assert "SparseClassifier: 1/3 answers" in shown
    assert {name for name, _ in present["warnings"]} == {"<string>"}
