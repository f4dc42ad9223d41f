"""What a scikit-learn pipeline learns from private rows for free, and what to put in its place.

A private fit is billed. A scaler, a vocabulary or a chosen list of features before it is not: such a step is fitted to
the same rows, exactly, and what it learnt is published with the pipeline. Nothing here looks at rows.

Classes are recognised by name and package, so that no part of scikit-learn is imported to look for it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Literal

import numpy as np

from tulle.estimators.known_steps import (
    ALL_FEATURES,
    KNOWN_STEPS,
    META_ESTIMATORS,
    ON_PUBLIC_ROWS,
    ONE_MODEL,
    REWEIGHTING,
    SEARCHES,
    SELECTORS,
    SETTINGS,
)
from tulle.files.error_messages import PrivacyWarning
from tulle.reports.report import NOT_COVERED

Kind = Literal["peeks", "billed apart", "cannot be checked"]

# What a model protects: whole rows, or labels alone, where features are public and steps may learn from them.
Protects = Literal["rows", "labels"]


@dataclass(frozen=True)
class Peek:
    """A step that may tell something about private rows that is not on the bill.

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
    >>> from tulle.estimators.pipeline_checks import check_pipeline
    >>> [peek.step for peek in check_pipeline(make_pipeline(TfidfVectorizer(), SparseClassifier()))]
    ['tfidfvectorizer']
    >>> check_pipeline(make_pipeline(HashingVectorizer(alternate_sign=False), SparseClassifier()))
    ()
    """
    protects = _protects(pipeline)
    if isinstance(pipeline, (list, tuple)):
        return tuple(_check_steps(pipeline, (), protects))
    return tuple(_check(pipeline, (), protects))


# --- looking at one step ---------------------------------------------------------------------------------------------


def _check(step: Any, path: tuple[str, ...], protects: Protects) -> Iterator[Peek]:
    """The peeks of a step, and of all that is nested in it."""
    if step is None or (isinstance(step, str) and step in ("passthrough", "drop")):
        return
    name = "__".join(path) or type(step).__name__
    if _is(step, "tulle", "LinearModel", "PrivateSearch", "PrivatePipeline"):
        if not _is_private(step):
            yield Peek(
                name,
                "peeks",
                f"{type(step).__name__}(epsilon=None) is fitted without privacy, and no bill includes its weights",
                "give it an epsilon",
            )
    elif isinstance(step, type) or not hasattr(step, "fit"):
        # Its text is not shown: it might be rows.
        thing = f"the class {step.__name__}" if isinstance(step, type) else f"an object of type {type(step).__name__}"
        yield Peek(name, "cannot be checked", f"{thing} is no estimator", "an estimator of scikit-learn or tulle")
    elif _is(step, "sklearn", "FrozenEstimator") or _is_schema(step):
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
    elif around := _is(step, "sklearn", *META_ESTIMATORS):
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
                "its columns are chosen by a function that receives the rows",
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
    # A partial of a ufunc only fixes some of its arguments to constants.
    inner = function.func if isinstance(function, partial) else function
    if inner is not None and not isinstance(inner, np.ufunc):
        yield Peek(
            name,
            "cannot be checked",
            f"{owner} calls {getattr(inner, '__name__', inner)!r}, which sees all rows at once; that is safe only if "
            "its output for a row depends on that row alone",
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
            "epsilon, which the last step's privacy_ does not include",
            f"fit inside a tulle.Ledger and read the epsilon of both there; or {ALL_FEATURES}",
        )
    else:
        yield _peek(name, step, "which features matter to a model", ALL_FEATURES)


def _check_around(step: Any, around: str, path: tuple[str, ...], protects: Protects) -> Iterator[Peek]:
    """A model around models: what it does itself, then the models inside."""
    name = "__".join(path) or type(step).__name__
    inside = _inside(step)
    if around in SELECTORS:
        yield _peek(name, step, SELECTORS[around], ALL_FEATURES)
    elif around in SEARCHES:
        yield _peek(name, step, "settings by scores", SETTINGS, verb="chooses")
    elif around in REWEIGHTING:
        yield _peek(name, step, REWEIGHTING[around], ONE_MODEL)
    elif around == "CalibratedClassifierCV":
        instead = "loss='logistic', whose predict_proba needs no calibration, or calibrate on public rows"
        yield _peek(name, step, "a calibration of scores", instead)
    # Searches, selectors and so on are named above: that their fits are billed one by one would add nothing.
    elif any(_is_private(model) for _, model in inside):
        yield Peek(
            name,
            "billed apart",
            f"{type(step).__name__} fits several private models, each with its own bill; only a Ledger knows their sum",
            f"fit inside a tulle.Ledger and read the epsilon there; or {ONE_MODEL}",
        )
    for nested, model in inside:
        yield from _check(model, (*path, nested), protects)
    if around.startswith("Stacking") and step.final_estimator is None:
        yield _peek(name, step, "how to weigh its models", "a private final_estimator, or " + ONE_MODEL)


def _check_plain(step: Any, name: str, protects: Protects) -> Iterator[Peek]:
    """A step without others in it."""
    entry = _is(step, "sklearn", *KNOWN_STEPS)
    own = type(step).__module__.split(".")[0] == "sklearn"
    stateless, uses_labels = _tags(step)
    if entry:
        known = KNOWN_STEPS[entry]
        learnt = known.learns(step)
        if learnt and (protects == "rows" or known.labels):
            yield _peek(name, step, learnt, known.instead)
        if learnt or own:
            return
        # A third-party subclass of a harmless class may do anything.
    elif own:
        if not stateless and (protects == "rows" or uses_labels):
            yield _peek(
                name, step, "what it was fitted to predict or transform", f"a private model, or {ON_PUBLIC_ROWS}"
            )
        return
    elif stateless:
        return
    yield Peek(
        name,
        "cannot be checked",
        f"{type(step).__name__} is from neither scikit-learn nor tulle, and is fitted to the private rows",
        f"if it learns nothing from rows, set requires_fit=False in its tags; otherwise {ON_PUBLIC_ROWS}",
    )


def _peek(name: str, step: Any, learnt: str, instead: str, *, verb: str = "learns") -> Peek:
    why = f"{type(step).__name__} {verb} {learnt} from private rows, without noise, and no bill includes that"
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


def _is_schema(step: Any) -> bool:
    """Whether a step is a `tulle.Schema`: a subclass of somebody else may do anything."""
    return bool(_is(step, "tulle", "Schema")) and type(step).__module__.split(".")[0] == "tulle"


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
    """The models at the end of a pipeline, of tulle or not."""
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
        or (_is(model, "tulle", "LinearModel", "PrivatePipeline") and getattr(model, "epsilon", None) is not None)
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

    Returns lines for the privacy report: the same, what could not be checked, and what surrounds the fit (a search that
    chooses by scores, an ensemble). They name classes, steps and settings, and depend on no row.

    scikit-learn hands a pipeline's last step transformed rows, and nothing that says where they come from. The step
    can only learn of it from the stack, where `Pipeline.fit` waits for it. Frames of functions called fit are opened
    and no others: reading a frame's variables keeps them alive, the user's rows too.
    """
    if not _is_private(estimator):
        return ()
    protects = _protects(estimator)
    peeks: list[Peek] = []
    outside: list[Peek] = []
    schemas: list[str] = []
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
                schemas += [line for _, step in owner.steps[:-1] if _is_schema(step) for line in step.describe()]
            elif _is(owner, "sklearn", "TransformedTargetRegressor") and any(owner.regressor_ is one for one in inner):
                peeks = [*_check_target(owner, ()), *peeks]
            elif (around := _is(owner, "sklearn", *META_ESTIMATORS)) and _fits_a(owner, type(estimator)):
                own = _check_around(owner, around, (), protects)
                outside += [peek for peek in own if peek.step == type(owner).__name__]
            inner.append(owner)
        frame = frame.f_back
    said = [f"\n  {peek}" for peek in peeks if peek.kind == "peeks"]
    if said:
        warnings.warn(
            f"steps before {type(estimator).__name__} learnt from the same private rows, and the guarantee in "
            f"privacy_ does not cover them:{''.join(said)}",
            PrivacyWarning,
            stacklevel=_users_level(),
        )
    uncovered = (f"{NOT_COVERED} {peek.step} ({peek.kind}): {peek.why}." for peek in (*peeks, *outside))
    return (*schemas, *uncovered)


def _fits_a(around: Any, model: type) -> bool:
    """Whether a model around models fits one of this class."""
    lasts = [last for _, one in _inside(around) for last in _last_models(one)]
    return any(type(last.steps[-1][1] if _is(last, "tulle", "PrivatePipeline") else last) is model for last in lasts)


def _users_level() -> int:
    """The stack level, for a warning of the caller's, of the line outside of tulle and scikit-learn."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _NOT_THE_USER:
        level, frame = level + 1, frame.f_back
    return level
