"""Self-contained HTML pages: the report that a privacy officer reads and signs, comparisons, results of experiments.

A page is one file. It asks the network for nothing and runs no script; phones, paper and dark screens can show it.

>>> from tulle.estimators.sparse import SparseRegressor
>>> from tulle.reports.pages import fit_page
>>> from tulle.reports.report import About
>>> model = SparseRegressor(epsilon=None).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
>>> "No privacy guarantee" in fit_page(model, About(title="A test"))
True
"""

from tulle.reports.pages.audit_page import audit_page
from tulle.reports.pages.comparison_page import comparison_page
from tulle.reports.pages.fit_page import fit_page
from tulle.reports.pages.ledger_page import ledger_page
from tulle.reports.pages.panels import figure_svg
from tulle.reports.pages.results_page import results_page
from tulle.reports.pages.sequential_page import sequential_page
from tulle.reports.pages.weight_tables import fingerprint

_RESULTS_DEPEND_ON = "nothing"

__all__ = [
    "audit_page",
    "comparison_page",
    "figure_svg",
    "fingerprint",
    "fit_page",
    "ledger_page",
    "results_page",
    "sequential_page",
]
