"""Self-contained HTML pages: the report that a privacy officer reads and signs, comparisons, results of experiments.

A page is one file. It asks the network for nothing and runs no script; phones, paper and dark screens can show it.

>>> from tulle.estimators import SparseRegressor
>>> from tulle.pages import fit_page
>>> from tulle.report import About
>>> model = SparseRegressor(epsilon=None).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
>>> "Nothing is promised" in fit_page(model, About(title="A test"))
True
"""

from tulle.pages.comparison_page import comparison_page
from tulle.pages.fit_page import fit_page
from tulle.pages.panels import figure_svg
from tulle.pages.results_page import results_page
from tulle.pages.weights import fingerprint

__all__ = ["comparison_page", "figure_svg", "fingerprint", "fit_page", "results_page"]
