"""`tulle.compare`: methods, estimators and budgets compared on public or synthetic rows, from Python.

Scores on rows are not private, and no ledger can bill them: on private rows a comparison is for people who may see
the rows, and choosing by it uses the rows again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp

from tulle.estimators.bounds import Bounds
from tulle.experiments.compared_models import is_estimator, read_methods
from tulle.experiments.comparison import EPSILONS, Comparison, run_comparison
from tulle.experiments.comparison_metrics import read_metrics
from tulle.experiments.comparison_table import figures, table
from tulle.experiments.examples import Examples
from tulle.files.install_hints import import_pandas
from tulle.files.notebook_html import html_paragraphs, html_table

if TYPE_CHECKING:
    import pandas

WARNING = (
    "Scores were computed on the rows themselves, without noise. Of public or synthetic rows they may be published. Of "
    "private rows nothing here may be released, no ledger was billed, and a method chosen by these scores depends on "
    "the rows beyond its epsilon: use tulle.PrivateSearch to choose and tulle.private_score to judge within a budget."
)


@dataclass(frozen=True, eq=False)
class ComparisonResult:
    """What a comparison found. Printing shows tables, and so do notebooks.

    Attributes
    ----------
    rows : list of dict
        One for each fit: `method`, `epsilon` (None without privacy), `trial`, `score` (the error: less is better), each
        metric by its name, `proved` (the epsilon that is proved; None where none is stated), `nonzero`, `seconds` and
        `failed` ("" where it did not fail).
    summary : mapping
        Means and standard errors over trials, as comparison.json of `tulle compare` has them.
    left_out : mapping of str to str
        Methods that cannot fit such a model, and why; where no methods were named.
    note : str
        What may be done with the result.
    """

    rows: list[dict[str, Any]]
    summary: Mapping[str, Any]
    left_out: Mapping[str, str]
    note: str = WARNING

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the scores: the error, and those that were asked for."""
        return (str(self.summary["metric"]), *self.summary.get("metrics", ()))

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a DataFrame. Needs pandas."""
        return import_pandas().DataFrame(self.rows)

    def plot(self, metric: str | None = None, *, ax: Any = None) -> Any:
        """A score against epsilon, a line for each method, with 95 % intervals of the means. Needs matplotlib.

        Parameters
        ----------
        metric : str or None, default=None
            One of `metrics`; None: the error.
        ax : matplotlib Axes or None, default=None
            None: a new figure.

        Returns
        -------
        matplotlib Axes
        """
        from tulle.reports.plots import plot_comparison

        if metric is not None and metric not in self.metrics:
            raise ValueError(f"metric {metric!r} was not measured; choose among {', '.join(self.metrics)}")
        return plot_comparison(self.summary, None if metric == self.metrics[0] else metric, ax=ax)

    def __str__(self) -> str:
        return f"{table(self.summary)}\n{self._left_out()}{self.note}"

    def _left_out(self) -> str:
        return "".join(f"Left out: {name} ({reason}).\n" for name, reason in self.left_out.items())

    def _repr_html_(self) -> str:
        named = zip((None, *self.metrics[1:]), self.metrics)
        tables = "".join(html_table(*figures(self.summary, metric), caption=name) for metric, name in named)
        told = [self.note, *self._left_out().splitlines(), *self.summary["warnings"]]
        told += [f"Failed: {one['method']}, trial {one['trial']}: {one['reason']}" for one in self.summary["failed"]]
        return tables + html_paragraphs(told)


def compare(
    methods: Any,
    X: Any,
    y: Any,
    epsilons: Sequence[float] = EPSILONS,
    *,
    metrics: Any = (),
    X_test: Any = None,
    y_test: Any = None,
    groups: Any = None,
    public: Any = None,
    task: Literal["classification", "regression"] | None = None,
    trials: int = 5,
    delta: float | None = None,
    test_share: float = 0.3,
    seed: int = 0,
    bounds: Bounds | None = None,
    settings: Mapping[str, Any] | None = None,
    name: str = "rows",
    folder: str | Path | None = None,
    jobs: int | None = 1,
    restart: bool = False,
    progress: bool = False,
) -> ComparisonResult:
    """Compare methods and budgets on rows that are public or synthetic.

    Every line is fitted at every epsilon, several times, each time on another split of the rows and with other noise;
    so are the fit without privacy and a model without features. Scores on test rows have no noise: they are not
    private. On private rows the result must not be released, and choosing a method by it leaks what no epsilon counts
    (`tulle.PrivateSearch` chooses within a budget). It is refused while a `tulle.Ledger` is open: no ledger can bill
    it.

    Parameters
    ----------
    methods : None, str, method, estimator, sequence of these, or mapping of names to these
        Names of `tulle.methods.METHODS`, objects such as ``HardThresholding(n_iter=5)``, or estimators. None: all
        methods that can fit such a model. An estimator is cloned, and given `epsilon`, `delta` and `random_state` where
        it has such parameters; one without `epsilon` is fitted once in each trial, and is not private.
    X : array or sparse array of shape (n, d), or table of numbers
    y : array of shape (n,)
    epsilons : sequence of float, default=(0.5, 1, 2, 4, 8)
        Each in (0, inf).
    metrics : str, callable, sequence of these, or mapping of names to these, default=()
        Scores besides the error: "accuracy", "auc", "log_loss" (classification), "r2" (regression); a function of
        targets and predictions whose first parameter is `y_true`, as those of ``sklearn.metrics``; or a scorer, a
        function of a fitted model, rows and targets.
    X_test, y_test : arrays or None, default=None
        Rows to test on; None: a random share of the rows, another one in each trial.
    groups : array of shape (n,) or None, default=None
        Person ids. A person is either in the training rows or in the test rows.
    public : array, sparse array or None, default=None
        Public rows, for the methods that can use them.
    task : {"classification", "regression"} or None, default=None
        None: by the first estimator, else regression where y are numbers with a fraction.
    trials : int, default=5
        At least 1.
    delta : float or None, default=None
        In [0, 1); None: min(1e-5, 1 / (10 training rows)).
    test_share : float, default=0.3
        In (0, 1).
    seed : int, default=0
        Splits and noise derive from it.
    bounds : Bounds or None, default=None
        Of the rows, for methods.
    settings : mapping or None, default=None
        Other parameters of the model, for methods: n_nonzero, loss, fit_intercept, classes.
    name : str, default="rows"
        Of the data.
    folder : path or None, default=None
        Where results are kept: a comparison that was stopped goes on there, and with more methods, budgets or trials
        only the new fits run. None: a temporary folder.
    jobs : int or None, default=1
        Processes, at least 1; None: one per core.
    restart : bool, default=False
        Delete what the folder holds.
    progress : bool, default=False
        Show how far it is on standard error.

    Returns
    -------
    ComparisonResult

    Examples
    --------
    >>> import tulle
    >>> from tulle.datasets import dp_ight_figure1
    >>> data = dp_ight_figure1(n=400, d=10, s=2)
    >>> result = tulle.compare(["auto"], data.X, data.y, [1.0], trials=1, bounds=tulle.Bounds(row_linf=4.0, label=4.0))
    >>> [row["method"] for row in result.rows]
    ['null model', 'auto', 'auto']
    """
    names, given = (None, {}) if methods is None else read_methods(methods)
    rows = Examples(_read_table(X), np.asarray(y), None if groups is None else np.asarray(groups))
    if len(rows.y) != len(rows):
        raise ValueError(f"X has {len(rows)} rows and y {len(rows.y)}")
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test go together: pass both or neither")
    chosen = task or _find_task(rows.y, given)
    comparison = Comparison(
        name=name,
        rows=rows,
        task=chosen,
        test=None if X_test is None else Examples(_read_table(X_test), np.asarray(y_test)),
        epsilons=tuple(map(float, epsilons)),
        trials=trials,
        delta=delta,
        settings={**(settings or {}), **({} if bounds is None else {"bounds": bounds})},
        test_share=test_share,
        seed=seed,
        public=None if public is None else _read_table(public),
        given=given,
        metrics=read_metrics(metrics, chosen),
        **({} if names is None else {"methods": names}),
    )
    comparison, left_out = comparison.able() if names is None else (comparison, {})
    how: dict[str, Any] = {"jobs": jobs, "restart": restart, "progress": progress}
    if folder is not None:
        summary, finished = run_comparison(comparison, Path(folder), **how)
    else:
        with tempfile.TemporaryDirectory(prefix="tulle-compare-") as temporary:
            summary, finished = run_comparison(comparison, Path(temporary), **how)
    lines = [
        {
            "method": one.cell.method,
            "epsilon": one.cell.epsilon,
            "trial": one.cell.trial,
            **{
                metric: one.values.get(metric) for metric in ("score", *summary.get("metrics", ()), "proved", "nonzero")
            },
            "seconds": one.seconds,
            "failed": one.failed,
        }
        for one in finished
    ]
    return ComparisonResult(lines, summary, left_out)


def _read_table(X: Any) -> Any:
    """Rows as an array or a CSR array."""
    if sp.issparse(X):
        return sp.csr_array(X)
    array = np.asarray(X)
    if array.ndim != 2 or array.dtype.kind not in "buif":
        raise ValueError(
            f"compare takes rows of numbers, of shape (n, d); got shape {array.shape}, dtype {array.dtype}. Encode raw "
            "tables first, for example with tulle.Schema"
        )
    return array


def _find_task(y: Any, given: Mapping[str, Any]) -> Literal["classification", "regression"]:
    from sklearn.base import is_classifier, is_regressor

    for one in given.values():
        if is_estimator(one) and (is_classifier(one) or is_regressor(one)):
            return "classification" if is_classifier(one) else "regression"
    fractions = y.dtype.kind == "f" and bool(np.any(y != np.round(y)))
    return "regression" if fractions else "classification"
