"""What a scikit-learn pipeline learns from private rows for free, and what to put in its place.

A private fit is billed. A scaler, a vocabulary or a chosen list of features before it is not: such a step is fitted to
the same rows, exactly, and what it learnt is published with the pipeline. Nothing here looks at rows.

Classes are recognised by name and package, so that no part of scikit-learn is imported to look for it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Literal

import numpy as np

from tulle.privacy import PrivacyWarning

Kind = Literal["peeks", "billed apart", "cannot be checked"]

# What a model protects: whole rows, or labels alone, where features are public and steps may learn from them.
Protects = Literal["rows", "labels"]


@dataclass(frozen=True)
class Peek:
    """A step that may tell something about private rows beside the bill.

    Attributes
    ----------
    step : str
        Its name, with the names of the steps that it is nested in ("columns__income"); of a bare estimator its class.
    kind : str
        "peeks": it learns from private rows, and no bill holds that. "billed apart": it fits a private model, whose
        bill is not in the `privacy_` of the last step. "cannot be checked": foreign code that may do anything.
    why : str
    instead : str
        What to use in its place.
    """

    step: str
    kind: Kind
    why: str
    instead: str

    def __str__(self) -> str:
        return f"{self.step} ({self.kind}): {self.why}. Instead: {self.instead}"


def check_pipeline(pipeline: Any) -> tuple[Peek, ...]:
    """Name the steps of a pipeline that learn from private rows without being billed for it.

    Looks at classes and settings alone: nothing is fitted, nothing is raised, no row is needed. A step in a
    `FrozenEstimator` passes: that it was fitted to public rows is your word.

    Parameters
    ----------
    pipeline : Pipeline, estimator, or sequence of steps
        Steps are estimators or (name, estimator) pairs. `ColumnTransformer`, `FeatureUnion`, searches, ensembles and
        `TransformedTargetRegressor` are looked into. Where the model protects labels alone (`tulle.local`), features
        are public, and only what looks at labels is named.

    Returns
    -------
    tuple of Peek
        In the order of the steps; empty where all that is learnt from the rows is on a bill. Print them.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from tulle import SparseClassifier
    >>> from tulle.pipelines import check_pipeline
    >>> [peek.step for peek in check_pipeline(make_pipeline(TfidfVectorizer(), SparseClassifier()))]
    ['tfidfvectorizer']
    >>> check_pipeline(make_pipeline(HashingVectorizer(alternate_sign=False), SparseClassifier()))
    ()
    """
    protects = _protects(pipeline)
    if isinstance(pipeline, (list, tuple)):
        return tuple(_check_steps(pipeline, (), protects))
    return tuple(_check(pipeline, (), protects))


# --- what is known of scikit-learn's steps ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """A step of scikit-learn: what it learns with the settings that it has ("" for nothing), and what to use instead.

    `labels` says whether it looks at labels too.
    """

    learns: Callable[[Any], str]
    instead: str
    labels: bool = False


def _always(learnt: str) -> Callable[[Any], str]:
    return lambda step: learnt


def _nothing(step: Any) -> str:
    """Of steps that are fitted to the number of features and rows, or to random numbers."""
    return ""


def _vocabulary(step: Any) -> str:
    return "" if getattr(step, "vocabulary", None) is not None else "its vocabulary"


def _inverse_frequencies(step: Any) -> str:
    return "IDF weights" if getattr(step, "use_idf", True) else ""


def _words(step: Any) -> str:
    return " and ".join(learnt for learnt in (_vocabulary(step), _inverse_frequencies(step)) if learnt)


def _centre_and_scale(step: Any) -> str:
    by_default = (getattr(step, "with_mean", False), getattr(step, "with_std", False))
    robust = (getattr(step, "with_centering", False), getattr(step, "with_scaling", False))
    return "where its features lie and how far they spread" if any((*by_default, *robust)) else ""


def _fill_values(step: Any) -> str:
    if getattr(step, "strategy", None) != "constant":
        return "its fill values"
    if getattr(step, "add_indicator", False):
        return "which features have missing values"
    # A column in which nobody has a value is dropped unless it is said to be kept.
    return "" if getattr(step, "keep_empty_features", False) else "which features are empty"


def _missing_features(step: Any) -> str:
    return "" if getattr(step, "features", None) == "all" else "which features have missing values"


def _categories(step: Any) -> str:
    if isinstance(getattr(step, "categories", "auto"), str):
        return "its categories"
    counted = (getattr(step, "min_frequency", None), getattr(step, "max_categories", None))
    return "which categories are rare" if counted != (None, None) else ""


def _knots(step: Any) -> str:
    return "the places of its knots" if isinstance(getattr(step, "knots", "uniform"), str) else ""


def _kernel_width(step: Any) -> str:
    return "the width of its kernel" if isinstance(getattr(step, "gamma", 1.0), str) else ""


_PUBLIC = "fit it to public rows and wrap it in sklearn.frozen.FrozenEstimator"

_TEXT = (
    "HashingVectorizer(alternate_sign=False, norm='l2'), TfidfVectorizer(use_idf=False, vocabulary=[...]) with "
    "declared words, or a TfidfVectorizer fitted to a public corpus and wrapped in sklearn.frozen.FrozenEstimator"
)
_SCALES = (
    "Bounds(normalise=True) in the model, FrozenEstimator(MinMaxScaler().fit([lows, highs])) with declared ranges in "
    f"place of rows, or {_PUBLIC}"
)
_CHOICE = "all features, with n_nonzero: the private fit chooses among them, on its bill"
_DIRECTIONS = f"all features, a random projection, or {_PUBLIC}"
_CUTS = "SplineTransformer(knots=...) with declared knots, or FunctionTransformer with a fixed function"
_SHAPES = "FunctionTransformer(np.log1p) or another fixed function of single values"
_KERNEL = f"RBFSampler(gamma=...) with a number, PolynomialFeatures, or {_PUBLIC}"
_SETTINGS = "tulle.PrivateSearch, settings that you know, or settings found on public data"
_ONE_MODEL = "one private model"

_KNOWN: dict[str, _Known] = {
    # words
    "TfidfVectorizer": _Known(_words, _TEXT),
    "TfidfTransformer": _Known(_inverse_frequencies, "TfidfTransformer(use_idf=False), or IDF weights of public text"),
    "CountVectorizer": _Known(_vocabulary, _TEXT),
    "DictVectorizer": _Known(_always("the names of its features"), "FeatureHasher(alternate_sign=False)"),
    # scales
    "StandardScaler": _Known(_centre_and_scale, _SCALES),
    "RobustScaler": _Known(_centre_and_scale, _SCALES),
    "MinMaxScaler": _Known(_always("the least and the largest value of each feature"), _SCALES),
    "MaxAbsScaler": _Known(_always("the largest value of each feature"), _SCALES),
    "PowerTransformer": _Known(_always("a power for each feature"), _SHAPES),
    "QuantileTransformer": _Known(_always("the quantiles of each feature"), _SHAPES),
    "KBinsDiscretizer": _Known(_always("the edges of its bins"), _CUTS),
    "SplineTransformer": _Known(_knots, "SplineTransformer(knots=...) with declared knots"),
    # missing values
    "SimpleImputer": _Known(_fill_values, "SimpleImputer(strategy='constant', keep_empty_features=True)"),
    "KNNImputer": _Known(_always("whole rows"), "SimpleImputer(strategy='constant', keep_empty_features=True)"),
    "IterativeImputer": _Known(
        _always("a model of each feature"), "SimpleImputer(strategy='constant', keep_empty_features=True)"
    ),
    "MissingIndicator": _Known(_missing_features, "MissingIndicator(features='all')"),
    # categories
    "OneHotEncoder": _Known(
        _categories, "OneHotEncoder(categories=[[...], ...], handle_unknown='ignore') with declared categories"
    ),
    "OrdinalEncoder": _Known(
        _categories,
        "OrdinalEncoder(categories=[[...], ...], handle_unknown='use_encoded_value', unknown_value=-1) with declared "
        "categories",
    ),
    "TargetEncoder": _Known(
        _always("the mean label of each category"),
        "OneHotEncoder(categories=[[...], ...], handle_unknown='ignore') with declared categories",
        labels=True,
    ),
    # chosen features
    "VarianceThreshold": _Known(_always("which features vary"), _CHOICE),
    **{
        name: _Known(_always("which features go with the labels"), _CHOICE, labels=True)
        for name in (
            "GenericUnivariateSelect",
            "SelectKBest",
            "SelectPercentile",
            "SelectFpr",
            "SelectFdr",
            "SelectFwe",
        )
    },
    # directions
    **{
        name: _Known(_always("directions that the rows vary in"), _DIRECTIONS)
        for name in ("PCA", "IncrementalPCA", "KernelPCA", "SparsePCA", "MiniBatchSparsePCA", "TruncatedSVD", "FastICA")
    },
    "LinearDiscriminantAnalysis": _Known(_always("directions that tell classes apart"), _DIRECTIONS, labels=True),
    "NeighborhoodComponentsAnalysis": _Known(_always("directions that tell classes apart"), _DIRECTIONS, labels=True),
    **{
        name: _Known(_always("directions that go with the labels"), _DIRECTIONS, labels=True)
        for name in ("CCA", "PLSCanonical", "PLSRegression", "PLSSVD")
    },
    "IsotonicRegression": _Known(_always("the labels along a feature"), _CUTS, labels=True),
    "Nystroem": _Known(_always("some of the rows, whole"), _KERNEL),
    "RBFSampler": _Known(_kernel_width, "RBFSampler(gamma=...) with a number"),
    # fitted, but to nothing of the rows
    **{
        name: _Known(_nothing, "")
        for name in (
            "GaussianRandomProjection",
            "PolynomialCountSketch",
            "PolynomialFeatures",
            "SkewedChi2Sampler",
            "SparseRandomProjection",
        )
    },
}

# Models around models, and what they do with rows beside fitting what is inside.
_SELECTORS = {
    "RFE": "which features are worth keeping, by weights",
    "RFECV": "which and how many features are worth keeping, by scores",
    "SequentialFeatureSelector": "which features are worth keeping, by scores",
}
_SEARCHES = (
    "GridSearchCV",
    "HalvingGridSearchCV",
    "HalvingRandomSearchCV",
    "RandomizedSearchCV",
    "TunedThresholdClassifierCV",
)
_REWEIGHTING = {
    "AdaBoostClassifier": "which rows are hard, by errors",
    "AdaBoostRegressor": "which rows are hard, by errors",
    "RANSACRegressor": "which rows are outliers, by residuals",
    "SelfTrainingClassifier": "labels by confidence",
}
_ENSEMBLES = (
    "BaggingClassifier",
    "BaggingRegressor",
    "ClassifierChain",
    "MultiOutputClassifier",
    "MultiOutputRegressor",
    "OneVsOneClassifier",
    "OneVsRestClassifier",
    "OutputCodeClassifier",
    "RegressorChain",
    "StackingClassifier",
    "StackingRegressor",
    "VotingClassifier",
    "VotingRegressor",
)


_AROUND = (*_SELECTORS, *_SEARCHES, *_REWEIGHTING, *_ENSEMBLES, "CalibratedClassifierCV")


# --- looking at one step ---------------------------------------------------------------------------------------------


def _check(step: Any, path: tuple[str, ...], protects: Protects) -> Iterator[Peek]:
    """The peeks of a step, and of all that is nested in it."""
    if step is None or (isinstance(step, str) and step in ("passthrough", "drop")):
        return
    name = "__".join(path) or type(step).__name__
    if _is(step, "tulle", "LinearModel", "PrivateSearch"):
        if not _is_private(step):
            yield Peek(
                name,
                "peeks",
                f"{type(step).__name__}(epsilon=None) is fitted without privacy, and no bill holds its weights",
                "give it an epsilon",
            )
    elif isinstance(step, type) or not hasattr(step, "fit"):
        # Its text is not shown: it might be rows.
        thing = f"the class {step.__name__}" if isinstance(step, type) else f"an object of type {type(step).__name__}"
        yield Peek(name, "cannot be checked", f"{thing} is no estimator", "an estimator of scikit-learn or tulle")
    elif _is(step, "sklearn", "FrozenEstimator"):
        return
    elif _is(step, "sklearn", "Pipeline"):
        yield from _check_steps(step.steps, path, protects)
    elif _is(step, "sklearn", "FeatureUnion"):
        yield from _check_steps(step.transformer_list, path, protects)
    elif _is(step, "sklearn", "ColumnTransformer"):
        yield from _check_columns(step, path, protects)
    elif _is(step, "sklearn", "TransformedTargetRegressor"):
        yield from _check_target(step, path)
        yield from _check(step.regressor, (*path, "regressor"), protects)
    elif _is(step, "sklearn", "FunctionTransformer"):
        yield from _check_function(name, step.func, "FunctionTransformer")
    elif _is(step, "sklearn", "SelectFromModel"):
        yield from _check_chosen_by_model(step, path, protects)
    elif around := _is(step, "sklearn", *_AROUND):
        yield from _check_around(step, around, path, protects)
    elif _is(step, "sklearn", "FixedThresholdClassifier"):
        yield from _check(step.estimator, (*path, "estimator"), protects)
    else:
        yield from _check_plain(step, name, protects)


def _check_steps(steps: Iterable[Any], path: tuple[str, ...], protects: Protects) -> Iterator[Peek]:
    """The peeks of steps: estimators, (name, estimator), or (name, estimator, columns)."""
    for step in steps:
        if isinstance(step, (list, tuple)) and len(step) >= 2 and isinstance(step[0], str):
            yield from _check(step[1], (*path, step[0]), protects)
        else:
            yield from _check(step, (*path, type(step).__name__.lower()), protects)


def _check_columns(step: Any, path: tuple[str, ...], protects: Protects) -> Iterator[Peek]:
    yield from _check_steps([*step.transformers, ("remainder", step.remainder)], path, protects)
    for name, *_, columns in step.transformers:
        # A selector by types and names looks at the table's form alone.
        if callable(columns) and not _is(columns, "sklearn", "make_column_selector"):
            yield Peek(
                "__".join((*path, name)),
                "cannot be checked",
                "its columns are chosen by a function, which is handed the rows",
                "names or numbers of columns, or sklearn.compose.make_column_selector",
            )


def _check_target(step: Any, path: tuple[str, ...]) -> Iterator[Peek]:
    """The transformer of a target learns from labels, and labels are private in every setting."""
    if step.transformer is not None:
        for peek in _check(step.transformer, (*path, "transformer"), "rows"):
            yield Peek(
                peek.step,
                peek.kind,
                peek.why,
                "Bounds(label=...) in the model, and a fixed func and inverse_func such as np.log1p and np.expm1",
            )
    else:
        yield from _check_function("__".join((*path, "func")), step.func, type(step).__name__)


def _check_function(name: str, function: Any, owner: str) -> Iterator[Peek]:
    # A partial of a ufunc holds constants beside the values that are handed to it.
    inner = function.func if isinstance(function, partial) else function
    if inner is not None and not isinstance(inner, np.ufunc):
        yield Peek(
            name,
            "cannot be checked",
            f"{owner} calls {getattr(inner, '__name__', inner)!r}, which sees all rows at once; if what it does to a "
            "row depends on that row alone, all is well",
            "a ufunc of numpy such as np.log1p, or functools.partial of one with declared numbers",
        )


def _check_chosen_by_model(step: Any, path: tuple[str, ...], protects: Protects) -> Iterator[Peek]:
    name = "__".join(path) or type(step).__name__
    if step.prefit:
        return  # as FrozenEstimator: what it was fitted to is the user's word
    if _is_private(step.estimator):
        yield Peek(
            name,
            "billed apart",
            f"the features are a second release: {type(step.estimator).__name__} has a bill of its own, at its own "
            "epsilon, which the last step's privacy_ does not hold",
            f"fit inside a tulle.Ledger and read the epsilon of both there; or {_CHOICE}",
        )
    else:
        yield _peek(name, step, "which features matter to a model", _CHOICE)


def _check_around(step: Any, around: str, path: tuple[str, ...], protects: Protects) -> Iterator[Peek]:
    """A model around models: what it does itself, then what is inside."""
    name = "__".join(path) or type(step).__name__
    inside = _inside(step)
    if around in _SELECTORS:
        yield _peek(name, step, _SELECTORS[around], _CHOICE)
    elif around in _SEARCHES:
        yield _peek(name, step, "settings by scores", _SETTINGS, verb="chooses")
    elif around in _REWEIGHTING:
        yield _peek(name, step, _REWEIGHTING[around], _ONE_MODEL)
    elif around == "CalibratedClassifierCV":
        instead = "loss='logistic', whose predict_proba needs no calibration, or calibrate on public rows"
        yield _peek(name, step, "a calibration of scores", instead)
    # A search, a selector and the like are named above: that their fits are billed one by one would add nothing.
    elif any(_is_private(model) for _, model in inside):
        yield Peek(
            name,
            "billed apart",
            f"{type(step).__name__} fits private models one by one, and each has a bill of its own; their sum is "
            "known to a Ledger alone",
            f"fit inside a tulle.Ledger and read the epsilon there; or {_ONE_MODEL}",
        )
    for nested, model in inside:
        yield from _check(model, (*path, nested), protects)
    if around.startswith("Stacking") and step.final_estimator is None:
        yield _peek(name, step, "how to weigh its models", "a private final_estimator, or " + _ONE_MODEL)


def _check_plain(step: Any, name: str, protects: Protects) -> Iterator[Peek]:
    """A step without others in it."""
    entry = _is(step, "sklearn", *_KNOWN)
    own = type(step).__module__.split(".")[0] == "sklearn"
    stateless, uses_labels = _tags(step)
    if entry:
        known = _KNOWN[entry]
        learnt = known.learns(step)
        if learnt and (protects == "rows" or known.labels):
            yield _peek(name, step, learnt, known.instead)
        if learnt or own:
            return
        # A class of somebody else's that builds on a harmless one may do anything.
    elif own:
        if not stateless and (protects == "rows" or uses_labels):
            yield _peek(name, step, "what it was fitted to predict or transform", f"a private model, or {_PUBLIC}")
        return
    elif stateless:
        return
    yield Peek(
        name,
        "cannot be checked",
        f"{type(step).__name__} is neither scikit-learn's nor tulle's, and is fitted to the private rows",
        f"if it learns nothing from rows, let its tags say requires_fit=False; else {_PUBLIC}",
    )


def _peek(name: str, step: Any, learnt: str, instead: str, *, verb: str = "learns") -> Peek:
    why = f"{type(step).__name__} {verb} {learnt} from private rows, without noise, and no bill holds that"
    return Peek(name, "peeks", why, instead)


def _tags(step: Any) -> tuple[bool, bool]:
    """Whether scikit-learn's tags call a step stateless, and whether it uses labels."""
    try:
        from sklearn.utils import get_tags

        tags = get_tags(step)
        predicts = tags.estimator_type in ("classifier", "regressor")
        # Some models predict before they are fitted, and are called stateless for it; they learn nevertheless.
        stateless = not tags.requires_fit and hasattr(step, "transform") and not hasattr(step, "predict")
        return stateless, predicts or bool(tags.target_tags.required)
    except Exception:  # foreign code: without tags nothing is known of it
        return False, True


def _is(step: Any, package: str, *names: str) -> str:
    """Which of the named classes of a package a step is of, or derived from; "" for none."""
    for cls in type(step).__mro__:
        if cls.__module__.split(".")[0] == package and cls.__name__ in names:
            return cls.__name__
    return ""


def _inside(step: Any) -> list[tuple[str, Any]]:
    """The models that a model around models fits, with their names."""
    found: list[tuple[str, Any]] = []
    for attribute in ("estimator", "regressor", "final_estimator"):
        if hasattr(getattr(step, attribute, None), "fit"):
            found.append((attribute, getattr(step, attribute)))
    for model in getattr(step, "estimators", None) or ():
        if isinstance(model, (list, tuple)) and len(model) == 2:
            found.append((model[0], model[1]))
    return found


def _last_models(step: Any) -> list[Any]:
    """The models at the end of a pipeline: those of tulle, or whatever else stands there."""
    steps = step.steps if _is(step, "sklearn", "Pipeline") else step
    if isinstance(steps, (list, tuple)) and steps:
        last = steps[-1]
        return _last_models(last[1] if isinstance(last, (list, tuple)) and len(last) == 2 else last)
    inside = [] if _is(step, "tulle", "PrivateSearch") else _inside(step)
    if inside:
        return [model for _, one in inside for model in _last_models(one)]
    return [step]


def _is_private(step: Any) -> bool:
    """Whether a step, or a pipeline's last, is a model of tulle's that is fitted with privacy."""
    return any(
        _is(model, "tulle", "PrivateSearch")
        or (_is(model, "tulle", "LinearModel") and getattr(model, "epsilon", None) is not None)
        for model in _last_models(step)
    )


def _protects(pipeline: Any) -> Protects:
    models = _last_models(pipeline)
    return "labels" if models and all(getattr(model, "_protects", "rows") == "labels" for model in models) else "rows"


# --- from inside a fit -----------------------------------------------------------------------------------------------

# How far up the stack a pipeline is looked for. From a model's fit to a pipeline's there are about five frames, and
# about fifteen more for each search around it.
_MOST_FRAMES = 100

_FITS = ("fit", "fit_transform", "fit_predict")
_NOT_THE_USER = ("tulle", "sklearn", "joblib", "contextlib")


def warn_of_peeks(estimator: Any) -> tuple[str, ...]:
    """Warn, before anything is spent, if the pipeline that an estimator is being fitted in peeked at private rows.

    Returns lines for the privacy report: the same, what could not be checked, and what is done around the fit (a search
    that chooses by scores, an ensemble). They name classes, steps and settings, and depend on no row.

    scikit-learn hands a pipeline's last step transformed rows, and nothing that says where they come from. The step
    can only learn of it from the stack, where `Pipeline.fit` waits for it. Frames of functions called fit are opened
    and no others: reading a frame's variables keeps them alive, the user's rows too.
    """
    if not _is_private(estimator):
        return ()
    protects = _protects(estimator)
    peeks: list[Peek] = []
    outside: list[Peek] = []
    inner = [estimator]
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if code.co_name in _FITS and code.co_varnames[:1] == ("self",):
            owner: Any = frame.f_locals.get("self")
            if _is(owner, "sklearn", "Pipeline") and any(owner.steps[-1][1] is one for one in inner):
                peeks = [*_check_steps(owner.steps[:-1], (), protects), *peeks]
            elif _is(owner, "sklearn", "TransformedTargetRegressor") and any(owner.regressor_ is one for one in inner):
                peeks = [*_check_target(owner, ()), *peeks]
            elif (around := _is(owner, "sklearn", *_AROUND)) and _fits_a(owner, type(estimator)):
                own = _check_around(owner, around, (), protects)
                outside += [peek for peek in own if peek.step == type(owner).__name__]
            inner.append(owner)
        frame = frame.f_back
    said = [f"\n  {peek}" for peek in peeks if peek.kind == "peeks"]
    if said:
        warnings.warn(
            f"steps before {type(estimator).__name__} learnt from the same private rows, and the promise of privacy_ "
            f"does not cover them:{''.join(said)}",
            PrivacyWarning,
            stacklevel=_users_level(),
        )
    return tuple(f"The promise does not cover {peek.step} ({peek.kind}): {peek.why}." for peek in (*peeks, *outside))


def _fits_a(around: Any, model: type) -> bool:
    """Whether a model around models fits one of this class."""
    return any(type(last) is model for _, one in _inside(around) for last in _last_models(one))


def _users_level() -> int:
    """The stack level, for a warning of the caller's, of the line outside of tulle and scikit-learn."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _NOT_THE_USER:
        level, frame = level + 1, frame.f_back
    return level
