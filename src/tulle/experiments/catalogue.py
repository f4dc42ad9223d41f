"""Tables and figures of papers, run again: what the paper prints, its own noise with its true ε, and sound noise.

One TOML file in `published/` is one table or figure; the runner and the output are the same for all. A file has a
`title`, a `paper`, `notes`, `trials`, `delta`, and a `kind`:

    kind = "fits"        models of `lines` (method, parameters, calibration) on each of `data`, judged by `metric`
    kind = "curves"      the same against passes over the rows and hard thresholds; `sweep` of a line says which
    kind = "labels"      label-private regression against the number of users
    kind = "gaps"        the optimality gap of private logistic regression on Covertype
    kind = "federated"   the accuracy of a network that clients train together, against rounds
    kind = "clients"     the error of a linear model whose rows are at clients, against ε, for each trust model
    kind = "noise"       what the printed noise of the papers on batches proves

`tune` of a line is a small grid, or a list of grids that are searched together, searched by cross-validation on the
private rows as the papers did: such lines are called oracle-tuned, not private. `printed` of data names a CSV file
(method, epsilon, mean, std) next to the TOML file with the paper's numbers. `real` of data has the settings that
change where the paper's own files are in the folder; `substitute` says what runs where they are not. `fast` says what
remains with ``--fast``.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from tulle import datasets
from tulle.datasets.locations import available
from tulle.experiments.comparison_metrics import METRIC_NAMES
from tulle.experiments.peers import PEERS
from tulle.experiments.problems import FOLDS
from tulle.experiments.trial import NULL, SCIKIT_LEARN
from tulle.methods import METHODS
from tulle.reports.series import Point, Role, Series

_RESULTS_DEPEND_ON = "nothing"

_FOLDER = resources.files(__name__.rpartition(".")[0]) / "published"

Kind = Literal["fits", "curves", "labels", "gaps", "federated", "clients", "noise"]
TaskName = Literal["classification", "regression"]
Division = Literal["given", "random", "folds"]
Metric = Literal[
    "relative error",
    "test error",
    "1 − R²",
    "squared error",
    "half squared error",
    "logistic loss",
    "objective",
    "optimality gap",
]


# --- what a TOML file says -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """One panel of a figure, or the data of a table.

    Attributes
    ----------
    name : str
    source : str
        A function of `tulle.datasets`: one that draws data from a seed, or a loader of real data ("load_...").
    task : {"classification", "regression"}
    epsilons : tuple of float
    arguments : mapping
        Of the source.
    n_nonzero : int or None
    bounds : mapping
        Of `tulle.Bounds`.
    delta : float or None
        None: that of the whole table.
    metric : str
        "": that of the whole table.
    fit_intercept : bool or None
        None: with real data.
    split : {"given", "random", "folds"}
        Training and test rows as the file has them, others of the same number in each trial, or five folds of the
        training rows, one a trial.
    rows, features : int or None
        How many training rows and features are drawn at random in each trial; None: all.
    public_share : float
        In [0, 1): of the training rows, drawn in each trial: they lose their labels and are public.
    printed : str
        The file with the paper's numbers; "" where it prints none.
    printed_apart : str
        The name of a panel of their own for these numbers, where they are of other data; "": with the others.
    real : mapping
        Settings that differ where the files of the paper's own data are there: its source, name and so on.
    lines : sequence of str
        The names of the lines that are run on it; empty: all that are for its task.
    scaled : bool
        Whether methods of tulle are fitted behind a `PrivateScaler`, in a `PrivatePipeline` whose ε pays for both.
        `bounds` then are of scaled rows.
    same_rows : str
        A name that data have in common whose rows are the same: settings for one are not chosen on another.
    """

    name: str
    source: str
    task: TaskName
    epsilons: tuple[float, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    n_nonzero: int | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)
    delta: float | None = None
    metric: Metric | Literal[""] = ""
    fit_intercept: bool | None = None
    split: Division = "given"
    rows: int | None = None
    features: int | None = None
    public_share: float = 0.0
    printed: str = ""
    printed_apart: str = ""
    real: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()
    scaled: bool = False
    same_rows: str = ""

    @property
    def has_intercept(self) -> bool:
        return self.source.startswith("load_") if self.fit_intercept is None else self.fit_intercept

    @property
    def is_fixed(self) -> bool:
        """Whether all trials have the same rows."""
        whole = self.rows is None and self.features is None and self.public_share == 0
        return self.source.startswith("load_") and self.split == "given" and whole

    def division(self) -> dict[str, Any]:
        """How rows and features are chosen in a trial."""
        return {name: getattr(self, name) for name in ("split", "rows", "features", "public_share")}

    def measured(self) -> dict[str, Any]:
        """All that fits depend on."""
        left_out = (
            *("name", "epsilons", "metric", "printed", "printed_apart", "real", "fit_intercept", "lines"),
            *("scaled", "same_rows"),
        )
        said = {name: value for name, value in asdict(self).items() if name not in left_out}
        return {**said, "has_intercept": self.has_intercept, **({"scaled": True} if self.scaled else {})}

    def printed_series(self) -> dict[str, Series]:
        """What the paper prints, by its names of methods."""
        if not self.printed:
            return {}
        points: dict[str, list[Point]] = {}
        for row in csv.DictReader((_FOLDER / self.printed).read_text(encoding="utf-8").splitlines()):
            note = f"sd {row['std']}" if row["std"] else ""
            points.setdefault(row["method"], []).append(Point(float(row["epsilon"]), float(row["mean"]), None, note))
        return {name: Series(f"{name}, printed", "paper", tuple(found)) for name, found in points.items()}


@dataclass(frozen=True)
class Line:
    """One line of a table: a method with its parameters, and whose noise it draws.

    Attributes
    ----------
    name : str
    method : str
        A name of `tulle.methods.METHODS` or of `tulle.experiments.peers.PEERS`, "null model" or "scikit-learn".
    parameters : mapping
        Of the method. ``features = {uniform = [low, high]}`` are public features from a distribution,
        ``features = "public"`` the public rows of the data. ``n_nonzero`` is of the model: "all", or "2 s" for twice
        the number that the data says. ``step = "10 / row_l2²"`` is in units of the bound of a row.
        ``weight_norm = "true"`` is the norm of the weights that the data was drawn from.
    calibration : {"rigorous", "published"}
    private : bool
    tune : mapping, or sequence of mappings
        Values to choose parameters from by cross-validation on the private rows, which no budget pays for; a sequence
        of grids is searched as one.
    grid : {"ours", "printed"}
        Whose values `tune` has. Defaults are tried too with "ours", and not with "printed": the paper's.
    tuning_folds : int or None
        Of five; None: as many as the table says.
    tuned_on : {"own data", "other data"}
        Which rows `tune` is judged on. With "other data" the settings for a data set are those that are best on all
        other data sets of its task: no row of its own chooses them, and the line is not called oracle-tuned.
    sweep : mapping
        One parameter, and the values that it takes along a curve.
    printed : str
        The line's name in the paper's own numbers; "" where they have none.
    only : {"", "classification", "regression"}
        For data of one task alone.
    epsilons : sequence of float
        Those of the data that it is fitted at; empty: all.
    trials : int or None
        At most so many, for a line whose fits take long; None: as many as the others.
    fit_intercept : bool or None
        None: as the data says.
    curve : str
        The curve that the line is a point of; made by `sweep`.
    oracle : bool
        Its parameters, as the file has them, were chosen on the private rows.
    data : sequence of str
        The names of the data that it is for; empty: all.
    public : bool
        Whether the fit is given the public rows of the data.
    public_rows : int
        How many training rows, at most a fifth of them, lose their labels and are given to the fit as public rows. The
        private rows are fewer by as many.
    """

    name: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    calibration: Literal["rigorous", "published"] = "rigorous"
    private: bool = True
    tune: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    grid: Literal["ours", "printed"] = "ours"
    tuning_folds: int | None = None
    tuned_on: Literal["own data", "other data"] = "own data"
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    printed: str = ""
    only: TaskName | Literal[""] = ""
    epsilons: Sequence[float] = ()
    trials: int | None = None
    fit_intercept: bool | None = None
    curve: str = ""
    oracle: bool = False
    data: Sequence[str] = ()
    public: bool = False
    public_rows: int = 0

    def __post_init__(self) -> None:
        if self.public and self.public_rows:
            raise ValueError(f"{self.name}: public rows are those of the data or a part of the training rows, not both")
        if " | " in self.name:
            raise ValueError(f"the name of a line cannot hold ' | ': {self.name!r}")
        if self.tune and not self.private:
            raise ValueError(f"{self.name}: only private lines are tuned")

    @property
    def role(self) -> Role:
        if not self.private:
            return "reference"
        if self.calibration == "published" or self.parameters.get("variant") == "published":
            return "unsound"
        return "oracle" if (self.tune and self.tuned_on == "own data") or self.oracle else "honest"

    def measured(self) -> dict[str, Any]:
        """All that fits depend on."""
        said = {name: getattr(self, name) for name in ("method", "parameters", "calibration", "private")}
        said |= {"public": True} if self.public else {}
        said |= {"public_rows": self.public_rows} if self.public_rows else {}
        return said if self.fit_intercept is None else {**said, "fit_intercept": self.fit_intercept}

    def grids(self) -> list[Mapping[str, Sequence[Any]]]:
        """All grids that settings are chosen from; [] where none are."""
        if not self.tune:
            return []
        return [self.tune] if isinstance(self.tune, Mapping) else list(self.tune)

    def has_intercept(self, panel: Data) -> bool:
        return panel.has_intercept if self.fit_intercept is None else self.fit_intercept

    def swept(self) -> list[Line]:
        """One line for each value of the parameter that is swept over; itself, where none is."""
        if not self.sweep:
            return [self]
        ((parameter, values),) = self.sweep.items()
        return [
            replace(
                self,
                name=f"{self.name}, {parameter} = {value:g}",
                parameters={**self.parameters, parameter: value},
                sweep={},
                curve=self.name,
            )
            for value in values
        ]


@dataclass(frozen=True)
class Published:
    """A table or a figure of a paper, as its TOML file states it.

    `measures` are other scores of classifiers on test rows ("auc", "log_loss"), each in a panel of its own.
    """

    name: str
    title: str
    paper: str
    kind: Kind
    notes: tuple[str, ...] = ()
    metric: Metric = "relative error"
    delta: float = 1e-5
    trials: int = 1
    tuning_folds: int = 2
    times: bool = False
    measures: tuple[str, ...] = ()
    data: tuple[Data, ...] = ()
    lines: tuple[Line, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    substitute: str = ""
    promise: str = ""
    fast: Mapping[str, Any] = field(default_factory=dict)

    def promised(self) -> str:
        """The δ of every ε, and which data sets are neighbours; `promise` where the file says it."""
        others = [f"{panel.delta:g} for {panel.name}" for panel in self.data if panel.delta not in (None, self.delta)]
        return self.promise or f"{', '.join([f'δ = {self.delta:g}', *others])}, for replacing one row"

    def faster(self) -> Published:
        """The part of it that takes little time, as its file says."""
        budgets = self.fast.get("epsilons")
        panels = tuple(
            replace(panel, epsilons=tuple(e for e in panel.epsilons if budgets is None or e in budgets))
            for panel in _named(self.data, self.fast.get("data"))
        )
        if empty := [panel.name for panel in panels if not panel.epsilons]:
            raise ValueError(f"{self.name}: fast leaves {empty[0]} without a budget")
        return replace(
            self,
            data=panels,
            lines=tuple(_named(self.lines, self.fast.get("lines"))),
            trials=self.fast.get("trials", self.trials),
            settings={**self.settings, **self.fast.get("settings", {})},
            # The remaining panels may use the paper's own data.
            substitute=self.substitute if any(panel.real for panel in (panels or self.data)) or not self.data else "",
        )

    def with_real_data(self) -> Published:
        """The paper's own data in place of a substitute, where its files are in the folder that TULLE_DATA names."""
        panels = tuple(
            replace(panel, **panel.real, real={}) if panel.real and available(panel.real["source"]) else panel
            for panel in self.data
        )
        used = any(panel.real for panel in self.data) and not any(panel.real for panel in panels)
        return replace(self, data=panels, substitute="" if used else self.substitute)


def _named(things: Sequence[Any], names: Sequence[str] | None) -> list[Any]:
    """Those of some names; all where none are named. A name that nothing has is a mistake in the file."""
    if names is None:
        return list(things)
    unknown = set(names) - {thing.name for thing in things}
    if unknown:
        raise ValueError(f"unknown name {sorted(unknown)[0]!r}")
    return [thing for thing in things if thing.name in names]


def names() -> list[str]:
    """The names of all tables and figures."""
    return sorted(Path(file.name).stem for file in _FOLDER.iterdir() if file.name.endswith(".toml"))


def published(name: str) -> Published:
    """The table or figure of that name."""
    if name not in names():
        raise ValueError(f"unknown table or figure {name!r}; choose among {', '.join(names())}")
    return stated(name, (_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def stated(name: str, text: str) -> Published:
    """What the text of a TOML file states; an error where it says something unknown."""
    says = tomllib.loads(text)
    known = {one.name for one in fields(Published)} - {"name"}
    if unknown := sorted(set(says) - known):
        raise ValueError(f"{name}: {unknown[0]} is unknown; choose among {', '.join(sorted(known))}")
    says["data"] = tuple(
        Data(**{**panel, "epsilons": tuple(map(float, panel["epsilons"]))}) for panel in says.get("data", ())
    )
    says["lines"] = tuple(line for line in says.get("lines", ()) for line in Line(**line).swept())
    says["notes"], says["measures"] = tuple(says.get("notes", ())), tuple(says.get("measures", ()))
    of = Published(name=name, **says)
    _check(of)
    return of


def _check(of: Published) -> None:
    """Refuse what would be taken for something else in silence."""
    known = {"data", "epsilons", "lines", "settings", "trials"}
    if unknown := sorted(set(of.fast) - known):
        raise ValueError(f"{of.name}: {unknown[0]} of fast is unknown; choose among {', '.join(sorted(known))}")
    of.faster()
    for folds in (of.tuning_folds, *(line.tuning_folds for line in of.lines if line.tuning_folds is not None)):
        if not 1 <= folds <= FOLDS:
            raise ValueError(f"{of.name}: tuning_folds must lie between 1 and {FOLDS}, got {folds}")
    for what, value, allowed in [
        ("kind", of.kind, get_args(Kind)),
        ("metric", of.metric, get_args(Metric)),
        *(("split", panel.split, get_args(Division)) for panel in of.data),
        *(("task", panel.task, get_args(TaskName)) for panel in of.data),
        *(("metric", panel.metric, ("", *get_args(Metric))) for panel in of.data),
        *(("only", line.only, ("", *get_args(TaskName))) for line in of.lines),
        *(("grid", line.grid, ("ours", "printed")) for line in of.lines),
        *(("tuned_on", line.tuned_on, ("own data", "other data")) for line in of.lines),
        *(("measures", measure, METRIC_NAMES["classification"]) for measure in of.measures),
        *(("method", line.method, (*METHODS, *PEERS, NULL, SCIKIT_LEARN)) for line in of.lines),
    ]:
        if value not in allowed:
            raise ValueError(f"{of.name}: {what} = {value!r} is unknown; choose among {', '.join(allowed)}")
    budgets = {epsilon for panel in of.data for epsilon in panel.epsilons}
    for line in of.lines:
        if missing := sorted(set(line.epsilons) - budgets):
            raise ValueError(f"{of.name}: {line.name} is fitted at ε = {missing[0]:g}, which no data has")
    for panel in of.data:
        if panel.real:
            replace(panel, **panel.real)  # raises where it says something unknown
            if "source" not in panel.real:
                raise ValueError(f"{of.name}: real of {panel.name} has no source")
        if not hasattr(datasets, panel.source):
            raise ValueError(f"{of.name}: there is no {panel.source} in tulle.datasets")
    for panel in of.data:
        _named(of.lines, panel.lines or None)  # raises where it says something unknown
    for line in of.lines:
        _named(of.data, line.data)
        if line.method in PEERS and line.only != "regression":
            raise ValueError(f'{of.name}: {line.name} is for regression; add only = "regression"')
