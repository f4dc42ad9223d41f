"""Steps that learn from private rows for free are named, harmless ones are not, and a fit inside a pipeline warns."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import RFE, SelectFromModel, SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.utils import all_estimators

from tulle import Bounds, Budget, Ledger, PrivateSearch, SparseClassifier, SparseRegressor, load, save
from tulle.estimators.pipeline_checks import Peek, check_pipeline, warn_of_peeks
from tulle.files.error_messages import PrivacyWarning
from tulle.local import LabelPrivateSparseClassifier, LabelPrivateSparseRegressor, LocalSparseRegressor
from tulle.reports.pages import fit_page
from tulle.reports.report import About, PrivacyReport

PRIVATE = SparseClassifier(1.0, bounds=Bounds(row_linf=1.0), random_state=0)
SEED = np.random.default_rng(0)
X = SEED.uniform(-1, 1, (2_000, 6))
Y = X[:, 2] > 0


def kinds(pipeline: Any) -> dict[str, str]:
    """What is said of each step that something is said of."""
    return {peek.step: peek.kind for peek in check_pipeline(pipeline)}


# --- steps called harmless are, and steps said to peek do ------------------------------------------------------------

WORDS = ("fever", "cough", "rash", "pain", "sleep", "drug", "nausea", "chill")


def inputs_for(step: Any, seed: int) -> tuple[Any, Any]:
    """Rows that a transformer accepts, and labels. Seeds 0 and 1 are rows to fit to, 2 are rows to transform."""
    rng = np.random.default_rng(seed)
    labels = np.arange(40) % 2
    name = type(step).__name__
    if isinstance(step, (CountVectorizer, HashingVectorizer)):
        return [" ".join(rng.choice(WORDS[seed : seed + 6], 5)) for _ in labels], labels
    if name in ("DictVectorizer", "FeatureHasher"):
        return [dict.fromkeys(rng.choice(WORDS[seed : seed + 6], 3), 1.0) for _ in labels], labels
    if isinstance(step, (OneHotEncoder, OrdinalEncoder, TargetEncoder)):
        return rng.choice(list(("abc", "bcd", "bc")[seed]), (40, 2)).astype(object), labels
    if name == "PatchExtractor":
        return rng.uniform(size=(4, 12, 12)), labels[:4]
    if name == "KernelCenterer":
        return rng.uniform(size=(40, 40)), labels
    rows = rng.uniform(0.01, 0.5 + seed, (40, 5))
    if "Imputer" in name or name == "MissingIndicator":
        if seed < 2:
            rows[:, seed] = np.nan  # a feature that no row has
            rows[: 2 * seed, 3] = np.nan
        rows[::3, 2] = np.nan
    elif name == "VarianceThreshold":
        rows[:, seed] = 1.0
    elif name == "TfidfTransformer":
        rows[: 10 * seed, 1] = 0.0
    else:
        rows[:, seed] += 5 * labels
    return rows, labels


def told_apart(step: Any) -> bool:
    """Whether what a step makes of the same rows depends on the rows that it was fitted to."""
    target, _ = inputs_for(step, 2)
    made = []
    for seed in (0, 1):
        fitted = clone(step)
        if "random_state" in fitted.get_params():
            fitted.set_params(random_state=0)
        rows, labels = inputs_for(step, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = fitted.fit(rows, labels).transform(target)
        made.append(out.toarray() if sp.issparse(out) else np.asarray(out))
    if made[0].shape != made[1].shape:
        return True
    return not np.array_equal(made[0], made[1], equal_nan=made[0].dtype.kind == "f")


def keeps_empty_features() -> bool:
    """Whether an imputer of constants keeps a column without values by default, as scikit-learn before 1.8 does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        made = SimpleImputer(strategy="constant").fit_transform([[np.nan, 1.0]])
    return bool(made.shape[1] == 2)


# Made for labels, for one column, or unable to transform other rows than those of the fit.
NO_STEPS = {"LabelBinarizer", "LabelEncoder", "MultiLabelBinarizer", "IsotonicRegression", "TSNE"}


def ready_made() -> list[Any]:
    """Every transformer of scikit-learn that needs no arguments."""
    steps = []
    for name, cls in all_estimators(type_filter="transformer"):
        try:
            step = cls()
        except TypeError:
            continue
        if name not in NO_STEPS:
            steps.append(step)
    return steps


@pytest.mark.parametrize("step", ready_made(), ids=lambda step: type(step).__name__)
def test_the_verdict_on_every_transformer_of_scikit_learn_is_what_fitting_it_shows(step: Any) -> None:
    """With default settings: a step is named exactly if what it makes of rows depends on what it was fitted to."""
    # Small enough for rows of five features.
    topics = 2 if "Dirichlet" in type(step).__name__ else 1
    small = {"n_components": topics, "n_features": 64, "k": 2, "n_neighbors": 3}
    step.set_params(**{name: value for name, value in small.items() if name in step.get_params()})
    assert (kinds(step) == {type(step).__name__: "peeks"}) is told_apart(step)
    assert set(kinds(step).values()) <= {"peeks"}


HARMLESS = [
    TfidfVectorizer(use_idf=False, vocabulary=WORDS),
    CountVectorizer(vocabulary=WORDS),
    TfidfTransformer(use_idf=False),
    StandardScaler(with_mean=False, with_std=False),
    RobustScaler(with_centering=False, with_scaling=False),
    SimpleImputer(strategy="constant", keep_empty_features=True),
    MissingIndicator(features="all"),
    OneHotEncoder(categories=[["a", "b", "c"]] * 2, handle_unknown="ignore"),
    OrdinalEncoder(categories=[["a", "b", "c"]] * 2, handle_unknown="use_encoded_value", unknown_value=-1),
    SplineTransformer(knots=np.linspace(0, 3, 4)[:, None].repeat(5, axis=1)),
    RBFSampler(gamma=0.5, n_components=3),
    FunctionTransformer(),
    FunctionTransformer(np.log1p),
    FunctionTransformer(partial(np.multiply, np.arange(1.0, 6.0))),
    FrozenEstimator(StandardScaler().fit(np.eye(5))),
    FrozenEstimator(MinMaxScaler().fit([[0.0] * 5, [9.0] * 5])),
    PolynomialFeatures(2),
]


@pytest.mark.parametrize("step", HARMLESS, ids=lambda step: type(step).__name__)
def test_settings_that_make_a_step_harmless_are_known(step: Any) -> None:
    """Nothing is said of it, and fitting it to other rows changes nothing."""
    assert check_pipeline(step) == ()
    assert not told_apart(step)


@pytest.mark.parametrize(
    ("step", "learnt"),
    [
        (TfidfVectorizer(), "its vocabulary and IDF weights"),
        (TfidfVectorizer(use_idf=False), "its vocabulary from"),
        (TfidfVectorizer(vocabulary=WORDS), "learns IDF weights"),
        (SimpleImputer(), "its fill values"),
        (SimpleImputer(strategy="constant"), "which features are empty"),
        (
            SimpleImputer(strategy="constant", keep_empty_features=True, add_indicator=True),
            "which features have missing",
        ),
        (OneHotEncoder(), "its categories"),
        (
            OneHotEncoder(categories=[["a", "b", "c"]] * 2, min_frequency=9, handle_unknown="ignore"),
            "categories are rare",
        ),
        (RBFSampler(gamma="scale", n_components=3), "the width of its kernel"),
        (StandardScaler(with_mean=False), "scale of each feature"),
    ],
    ids=str,
)
def test_what_a_step_learns_is_said_for_the_settings_that_it_has(step: Any, learnt: str) -> None:
    """Half a harmless setting is not harmless, and the reason is the half that is missing."""
    peeks = check_pipeline(step)
    assert [peek.kind for peek in peeks] == ["peeks"]
    assert learnt in peeks[0].why
    if learnt == "which features are empty" and keeps_empty_features():
        return  # it warns of empty features, which the fit says then, and makes the same of all rows
    assert told_apart(step)


# --- nested steps are found ------------------------------------------------------------------------------------------


def test_the_line_of_a_peek_says_where_why_and_what_instead() -> None:
    """One readable line a step: the text of the README's promise, with a remedy."""
    (peek,) = check_pipeline(Pipeline([("words", TfidfVectorizer()), ("model", PRIVATE)]))
    assert isinstance(peek, Peek)
    line = str(peek)
    assert "\n" not in line
    assert line.startswith("words (peeks): TfidfVectorizer learns its vocabulary and IDF weights from private rows")
    assert "no bill includes that. Instead: HashingVectorizer(alternate_sign=False, norm='l2')" in line


def test_nested_steps_are_named_by_their_path() -> None:
    """Pipelines, columns, what remains of them, and unions are looked into."""
    columns = ColumnTransformer(
        [
            ("number", make_pipeline(SimpleImputer(), StandardScaler()), [0, 1]),
            ("word", OneHotEncoder(categories=[["a", "b"]]), [2]),
            ("dropped", "drop", [3]),
            ("kept", "passthrough", [4]),
        ],
        remainder=MinMaxScaler(),
    )
    union = FeatureUnion([("few", PCA(2)), ("sign", Binarizer()), ("out", "drop"), ("all", "passthrough")])
    pipeline = Pipeline([("columns", columns), ("union", union), ("none", None), ("model", PRIVATE)])
    assert kinds(pipeline) == {
        "columns__number__simpleimputer": "peeks",
        "columns__number__standardscaler": "peeks",
        "columns__remainder": "peeks",
        "union__few": "peeks",
    }
    assert kinds(pipeline.steps) == kinds(pipeline)
    assert kinds([columns, union, PRIVATE]) == {
        "columntransformer__number__simpleimputer": "peeks",
        "columntransformer__number__standardscaler": "peeks",
        "columntransformer__remainder": "peeks",
        "featureunion__few": "peeks",
    }


def test_columns_that_a_function_chooses_cannot_be_checked() -> None:
    """A selector by types is fine; a function is handed the rows."""
    columns = [("a", "passthrough", make_column_selector("a")), ("b", "passthrough", lambda rows: [0])]
    assert kinds(make_pipeline(ColumnTransformer(columns), PRIVATE)) == {"columntransformer__b": "cannot be checked"}


def test_private_models_alone_are_clean_and_others_peek() -> None:
    """A bare estimator is checked too: what is fitted without privacy is a release without a bill."""
    search = PrivateSearch(SparseClassifier(), {"n_nonzero": [1, 2]}, Budget(1.0, 1e-5))
    assert kinds(VotingClassifier([("a", search)])) == {"VotingClassifier": "billed apart"}
    for clean in (PRIVATE, search, LocalSparseRegressor(), FixedThresholdClassifier(PRIVATE), "passthrough", None, []):
        assert check_pipeline(clean) == ()
    assert kinds(SparseRegressor(None)) == {"SparseRegressor": "peeks"}
    assert kinds(LogisticRegression()) == {"LogisticRegression": "peeks"}
    assert kinds(GaussianProcessRegressor()) == {"GaussianProcessRegressor": "peeks"}  # tagged as needing no fit
    assert kinds(make_pipeline(Normalizer(), LogisticRegression())) == {"logisticregression": "peeks"}


@pytest.mark.parametrize(
    ("around", "said", "instead"),
    [
        (GridSearchCV(PRIVATE, {"n_nonzero": [1, 2]}), {"GridSearchCV": "peeks"}, "PrivateSearch"),
        (CalibratedClassifierCV(PRIVATE), {"CalibratedClassifierCV": "peeks"}, "predict_proba"),
        (AdaBoostClassifier(PRIVATE), {"AdaBoostClassifier": "peeks"}, "one private model"),
        (RFE(PRIVATE), {"RFE": "peeks"}, "n_nonzero"),
        (BaggingClassifier(PRIVATE), {"BaggingClassifier": "billed apart"}, "Ledger"),
        (VotingClassifier([("a", PRIVATE), ("b", PRIVATE)]), {"VotingClassifier": "billed apart"}, "Ledger"),
        (StackingClassifier([("a", PRIVATE)], PRIVATE), {"StackingClassifier": "billed apart"}, "Ledger"),
        (SelectFromModel(PRIVATE), {"SelectFromModel": "billed apart"}, "Ledger"),
        (SelectFromModel(SparseClassifier(None)), {"SelectFromModel": "peeks"}, "n_nonzero"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_models_around_private_models(around: Any, said: dict[str, str], instead: str) -> None:
    """Searches choose by looking; ensembles fit private models one by one, which a ledger alone adds up."""
    assert kinds(around) == said
    assert all(instead in peek.instead for peek in check_pipeline(around))


def test_what_stands_inside_a_model_around_models_is_checked_too() -> None:
    """A pipeline inside a search, a model without privacy inside a vote, stacking that weighs without privacy."""
    search = GridSearchCV(make_pipeline(StandardScaler(), PRIVATE), {})
    assert kinds(make_pipeline(PCA(2), search)) == {
        "pca": "peeks",
        "gridsearchcv": "peeks",
        "gridsearchcv__estimator__standardscaler": "peeks",
    }
    vote = VotingClassifier([("a", PRIVATE), ("b", LogisticRegression())])
    assert kinds(vote) == {"VotingClassifier": "billed apart", "b": "peeks"}
    assert [peek.kind for peek in check_pipeline(StackingClassifier([("a", PRIVATE)]))] == ["billed apart", "peeks"]
    prefit = SelectFromModel(clone(PRIVATE).fit(X, Y), prefit=True)
    assert check_pipeline(make_pipeline(prefit, PRIVATE)) == ()


def test_targets_are_private_too() -> None:
    """A scaler of labels learns from them, in every setting; a fixed function does not."""
    for model in (SparseRegressor(), LabelPrivateSparseRegressor()):
        scaled = TransformedTargetRegressor(model, transformer=StandardScaler())
        (peek,) = check_pipeline(scaled)
        assert (peek.step, peek.kind) == ("transformer", "peeks")
        assert "Bounds(label=...)" in peek.instead
        assert check_pipeline(TransformedTargetRegressor(model, func=np.log1p, inverse_func=np.expm1)) == ()
        odd = TransformedTargetRegressor(model, func=lambda y: y - y.mean(), inverse_func=lambda y: y)
        assert kinds(odd) == {"func": "cannot be checked"}


def test_where_labels_alone_are_private_features_may_be_learnt_from() -> None:
    """Scalers and vocabularies are fine then; what looks at labels is named, and searches are."""
    model = LabelPrivateSparseClassifier()
    assert check_pipeline(make_pipeline(TfidfVectorizer(), TruncatedSVD(), StandardScaler(), model)) == ()
    assert kinds(make_pipeline(StandardScaler(), SelectKBest(), model)) == {"selectkbest": "peeks"}
    assert kinds(make_pipeline(TargetEncoder(), model)) == {"targetencoder": "peeks"}
    assert kinds(GridSearchCV(make_pipeline(StandardScaler(), model), {})) == {"GridSearchCV": "peeks"}
    assert kinds(make_pipeline(StandardScaler(), LocalSparseRegressor())) == {"standardscaler": "peeks"}


class Foreign(TransformerMixin, BaseEstimator):
    """Somebody else's transformer."""

    def __init__(self, stateless: bool = False) -> None:
        self.stateless = stateless

    def fit(self, X: Any, y: Any = None) -> Foreign:
        return self

    def transform(self, X: Any) -> Any:
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = not self.stateless
        return tags


class ForeignScaler(StandardScaler):
    """Builds on a class that is known."""


class Untagged:
    """Has a fit and nothing else."""

    def fit(self, X: Any, y: Any = None) -> Untagged:
        return self


def test_foreign_steps_cannot_be_checked_unless_their_tags_say_stateless() -> None:
    """What derives from a peeking class peeks; what derives from a harmless one may still do anything."""
    assert check_pipeline(Foreign(stateless=True)) == ()
    assert kinds(Foreign()) == {"Foreign": "cannot be checked"}
    assert kinds(ForeignScaler()) == {"ForeignScaler": "peeks"}
    assert kinds(ForeignScaler(with_mean=False, with_std=False)) == {"ForeignScaler": "cannot be checked"}
    assert kinds(Untagged()) == {"Untagged": "cannot be checked"}
    assert kinds(FunctionTransformer(lambda rows: rows - rows.mean())) == {"FunctionTransformer": "cannot be checked"}


@pytest.mark.parametrize(
    "thing", [3, "words", X, StandardScaler, object(), [("a",)], {"a": 1}], ids=lambda thing: type(thing).__name__
)
def test_nothing_is_raised_and_no_rows_are_shown(thing: Any) -> None:
    """Whatever is handed over is told to be no estimator; values are not printed, they might be rows."""
    (peek,) = check_pipeline(thing)
    assert peek.kind == "cannot be checked"
    assert "is no estimator" in peek.why
    assert "0." not in str(peek)


# --- fits inside a pipeline ------------------------------------------------------------------------------------------


def caught(fit: Any) -> list[Any]:
    """The privacy warnings of a fit."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit()
    return [one for one in found if one.category is PrivacyWarning]


def test_a_fit_in_a_peeking_pipeline_warns_once_on_the_users_line() -> None:
    """One warning, for all steps, that points at this file."""
    pipeline = make_pipeline(StandardScaler(), Binarizer(), PCA(3), clone(PRIVATE))
    (warning,) = caught(lambda: pipeline.fit(X, Y))
    assert "steps before SparseClassifier learnt from the same private rows" in str(warning.message)
    assert "standardscaler (peeks)" in str(warning.message)
    assert "pca (peeks)" in str(warning.message)
    assert "binarizer" not in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.filterwarnings("error::tulle.files.error_messages.PrivacyWarning")
def test_the_warning_comes_before_anything_is_spent() -> None:
    """With the warning as an error nothing is billed and nothing is fitted."""
    pipeline = make_pipeline(StandardScaler(), clone(PRIVATE))
    with Ledger(Budget(1.0, 1e-5)) as ledger, pytest.raises(PrivacyWarning, match="standardscaler"):
        pipeline.fit(X, Y)
    assert ledger.fits == []
    assert not hasattr(pipeline[-1], "coef_")


@pytest.mark.parametrize(
    "pipeline",
    [
        make_pipeline(StandardScaler(), SparseClassifier(None)),
        make_pipeline(Normalizer(), FunctionTransformer(np.tanh), PRIVATE),
        make_pipeline(FunctionTransformer(lambda rows: rows), Foreign(), PRIVATE),
        make_pipeline(FrozenEstimator(StandardScaler().fit(X)), PRIVATE),
        make_pipeline(StandardScaler(), LabelPrivateSparseClassifier(random_state=0)),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=["no privacy", "stateless", "unknown", "frozen", "features are public", "not ours"],
)
def test_a_fit_in_other_pipelines_does_not(pipeline: Any) -> None:
    """Without a promise, with nothing learnt, with what cannot be checked, and where features are public."""
    assert caught(lambda: clone(pipeline).fit(X, Y)) == []


def test_local_models_warn_too() -> None:
    """Of rows where rows are private, of what saw the labels where labels are."""
    bounds = Bounds(row_linf=1.0, label=1.0)
    whole = make_pipeline(StandardScaler(), LocalSparseRegressor(bounds=bounds, random_state=0))
    (warning,) = caught(lambda: whole.fit(X, X[:, 2]))
    assert "standardscaler (peeks)" in str(warning.message)
    labels = make_pipeline(StandardScaler(), SelectKBest(k=3), LabelPrivateSparseClassifier(random_state=0))
    (warning,) = caught(lambda: labels.fit(X, Y))
    assert "selectkbest (peeks)" in str(warning.message)
    assert "standardscaler" not in str(warning.message)


def test_pipelines_around_pipelines_and_searches_are_found() -> None:
    """Steps of all pipelines around the fit, in their order; and the scaler of a target."""
    nested = make_pipeline(MinMaxScaler(), make_pipeline(StandardScaler(), clone(PRIVATE)))
    (warning,) = caught(lambda: nested.fit(X, Y))
    assert str(warning.message).index("minmaxscaler (peeks)") < str(warning.message).index("standardscaler (peeks)")
    search = make_pipeline(MinMaxScaler(), GridSearchCV(clone(PRIVATE), {"n_nonzero": [1, 2]}, cv=2))
    found = caught(lambda: search.fit(X, Y))
    assert len(found) == 2 * 2 + 1  # each fit of the search, and its refit
    assert all("minmaxscaler (peeks)" in str(one.message) and one.filename == __file__ for one in found)
    found = caught(lambda: cross_val_score(make_pipeline(StandardScaler(), clone(PRIVATE)), X, Y, cv=2))
    assert len(found) == 2
    regressor = SparseRegressor(1.0, bounds=Bounds(row_linf=1.0, label=3.0), random_state=0)
    target = TransformedTargetRegressor(regressor, transformer=StandardScaler())
    (warning,) = caught(lambda: target.fit(X, X[:, 2]))
    assert "transformer (peeks)" in str(warning.message)


def test_a_private_search_in_a_pipeline_warns_once() -> None:
    """Not once a trial: the number of trials is secret."""
    search = PrivateSearch(clone(PRIVATE), {"n_nonzero": [1, 2]}, Budget(1.0, 1e-5), random_state=0)
    (warning,) = caught(lambda: make_pipeline(StandardScaler(), search).fit(X, Y))
    assert "steps before PrivateSearch" in str(warning.message)
    assert "standardscaler (peeks)" in str(warning.message)
    assert warning.filename == __file__
    assert caught(lambda: clone(search).fit(X, Y)) == []


def lines_about(report: PrivacyReport) -> list[str]:
    """What a report says of preparations, on paper and in JSON alike."""
    found = [line for line in report.assumptions if line.startswith("The guarantee does not cover")]
    assert [line for line in json.loads(report.to_json())["assumptions"] if line in found] == found
    return found


def test_what_a_pipeline_did_stands_in_the_report(tmp_path: Path) -> None:
    """In privacy_, its JSON, the saved model and the page to be signed: the console is gone by then."""
    scaled = make_pipeline(StandardScaler(), FunctionTransformer(lambda rows: rows), Normalizer(), clone(PRIVATE))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = scaled.fit(X, Y)[-1]
    assert len(lines_about(model.privacy_)) == 2
    first, second = lines_about(model.privacy_)
    assert first == (
        "The guarantee does not cover standardscaler (peeks): StandardScaler learns the location and scale of each "
        "feature from private rows, without noise, and no bill includes that."
    )
    assert second.startswith("The guarantee does not cover functiontransformer (cannot be checked): ")
    save(model, tmp_path / "model.npz")
    assert lines_about(load(tmp_path / "model.npz").privacy_) == [first, second]
    assert first in fit_page(model, About())
    assert lines_about(clone(model).fit(X, Y).privacy_) == []


@pytest.mark.parametrize("other", [np.zeros_like(X), 1000 * X])
def test_what_a_report_says_of_a_pipeline_depends_on_no_row(other: Any) -> None:
    pipelines = [make_pipeline(MinMaxScaler(), clone(PRIVATE)) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = [lines_about(model.fit(rows, Y)[-1].privacy_) for model, rows in zip(pipelines, (X, other))]
    assert said[0] == said[1] != []


def test_searches_and_ensembles_stand_in_the_reports_of_their_models() -> None:
    """What chose a model by scores on private rows is named where the model is signed."""
    grid = {"sparseclassifier__n_nonzero": [1, 2]}
    search = GridSearchCV(make_pipeline(MaxAbsScaler(), clone(PRIVATE)), grid, cv=2)
    bagging = BaggingClassifier(clone(PRIVATE), n_estimators=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best = search.fit(X, Y).best_estimator_[-1]
        parts = bagging.fit(X, Y).estimators_
    assert len(lines_about(best.privacy_)) == 2
    scaler, chosen = lines_about(best.privacy_)
    assert "maxabsscaler (peeks)" in scaler
    assert chosen == (
        "The guarantee does not cover GridSearchCV (peeks): GridSearchCV chooses settings by scores from private rows, "
        "without noise, and no bill includes that."
    )
    for part in parts:
        line = "".join(lines_about(part.privacy_))
        assert line.startswith("The guarantee does not cover BaggingClassifier (billed apart): ")


def test_private_searches_and_local_models_have_it_in_their_reports() -> None:
    search = PrivateSearch(clone(PRIVATE), {"n_nonzero": [1, 2]}, Budget(1.0, 1e-5), random_state=0)
    local = LocalSparseRegressor(bounds=Bounds(row_linf=1.0, label=1.0), random_state=0)
    for model, labels in ((search, Y), (local, X[:, 2])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = make_pipeline(StandardScaler(), model).fit(X, labels)[-1]
        (line,) = lines_about(found.privacy_)
        assert "standardscaler (peeks)" in line


class Fits(BaseEstimator):
    """Fits a private model to rows of its own, inside its own fit."""

    def fit(self, X: Any, y: Any) -> Fits:
        self.model_ = clone(PRIVATE).fit(X[:, :3], y)
        return self


def test_a_pipeline_on_the_stack_that_ends_in_another_model_is_not_blamed() -> None:
    """The scaler's pipeline waits on the stack, but its last step is no part of what is fitted."""

    class Elsewhere(Pipeline):
        def fit(self, X: Any, y: Any = None, **params: Any) -> Any:
            return clone(PRIVATE).fit(X, y)

    assert caught(lambda: Elsewhere([("scaler", StandardScaler()), ("model", Fits())]).fit(X, Y)) == []
    # The model of a step that does belong to the pipeline is a model behind the scaler.
    (warning,) = caught(lambda: make_pipeline(StandardScaler(), Fits()).fit(X, Y))
    assert "standardscaler (peeks)" in str(warning.message)


def test_rows_in_the_users_variables_are_not_kept_alive() -> None:
    """Looking up the stack opens no frame of the user's: what they delete after a fit is gone."""
    import weakref

    rows = X.copy()
    gone = weakref.ref(rows)
    make_pipeline(Normalizer(), clone(PRIVATE)).fit(rows, Y)
    del rows
    assert gone() is None


def test_without_a_pipeline_none_is_imported() -> None:
    """A private fit loads no part of scikit-learn's pipelines, and checking a step does not need to."""
    code = (
        "import sys\nimport numpy as np\nfrom tulle import Bounds, SparseClassifier\n"
        "SparseClassifier(bounds=Bounds(row_l2=1.0)).fit(np.eye(20), np.arange(20) % 2)\n"
        "assert 'tulle.estimators.pipeline_checks' in sys.modules\nassert 'sklearn.pipeline' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


class Endless:
    """A frame of a stack without an end."""

    f_code = warn_of_peeks.__code__
    steps = 0

    @property
    def f_back(self) -> Endless:
        Endless.steps += 1
        return self


def test_looking_for_a_pipeline_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However deep the stack, a model that is fitted without a pipeline looks at a hundred frames."""
    monkeypatch.setattr(
        "tulle.estimators.pipeline_checks.sys", SimpleNamespace(modules=sys.modules, _getframe=lambda depth: Endless())
    )
    warn_of_peeks(PRIVATE)
    assert Endless.steps == 100


# --- weights with names ----------------------------------------------------------------------------------------------


def sparse_model(coef: Any, classes: Any = None) -> Any:
    """A model with these weights, as if fitted."""
    model: Any = SparseRegressor() if classes is None else SparseClassifier()
    if classes is not None:
        model.classes_ = np.asarray(classes)
    model.coef_, model.intercept_ = np.asarray(coef, dtype=float), 0.0
    model.n_features_in_ = model.coef_.shape[-1]
    return model


def test_named_weights_come_by_falling_magnitude_without_zeros() -> None:
    """Of equal weights the earlier feature comes first; without names features are numbered."""
    model = sparse_model([0.5, 0.0, -2.0, -0.5])
    assert model.named_weights() == [("x2", -2.0), ("x0", 0.5), ("x3", -0.5)]
    assert model.named_weights(["a", "b", "c", "d"]) == [("c", -2.0), ("a", 0.5), ("d", -0.5)]
    assert model.named_weights(np.array(["a", "b", "c", "d"], dtype=object))[0] == ("c", -2.0)
    assert model.sparsify().named_weights() == [("x2", -2.0), ("x0", 0.5), ("x3", -0.5)]
    assert type(model.named_weights()[0][0]) is str
    assert type(model.named_weights()[0][1]) is float


def test_named_weights_speak_for_a_class() -> None:
    """Of two classes the second unless said otherwise; of more, one must be said."""
    two = sparse_model([[1.0, -3.0]], ["no", "yes"])
    assert two.named_weights() == two.named_weights(of="yes") == [("x1", -3.0), ("x0", 1.0)]
    assert two.named_weights(of="no") == [("x1", 3.0), ("x0", -1.0)]
    assert two.sparsify().named_weights(of="no") == [("x1", 3.0), ("x0", -1.0)]
    three = sparse_model([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]], [10, 20, 30])
    assert three.named_weights(["a", "b"], of=30) == [("b", 4.0), ("a", 3.0)]
    assert three.sparsify().named_weights(of=np.int64(20)) == [("x1", 2.0)]
    with pytest.raises(ValueError, match=r"3 classes; choose one with of=\.\.\., one of \[10, 20, 30\]"):
        three.named_weights()
    with pytest.raises(ValueError, match="of=7 is none of"):
        three.named_weights(of=7)
    with pytest.raises(ValueError, match="SparseRegressor has no classes"):
        sparse_model([1.0]).named_weights(of=0)


def test_named_weights_take_the_tables_names_and_check_others() -> None:
    """The names of a data frame's columns arrive by themselves; as many names as features are needed."""
    import pandas as pd

    table = pd.DataFrame(X, columns=list("abcdef"))
    model = SparseClassifier(4.0, n_nonzero=1, bounds=Bounds(row_linf=1.0), random_state=0).fit(table, Y)
    ((name, weight),) = model.named_weights()
    assert name == "c"
    assert weight == model.coef_[0, 2] > 0
    assert model.named_weights(["p", "q", "r", "s", "t", "u"]) == [("r", weight)]
    for names, got in ((["a", "b"], "got 2 names"), ("abcdef", "got 'abcdef'")):
        with pytest.raises(ValueError, match=f"one name for each of the model's 6 features, {got}"):
            model.named_weights(names)
    with pytest.raises(ValueError, match="not fitted"):
        SparseClassifier().named_weights()


def test_local_models_name_their_weights_too() -> None:
    """The method is the linear model's."""
    model = LabelPrivateSparseClassifier(8.0, n_nonzero=1, random_state=0).fit(X, Y)
    assert [name for name, _ in model.named_weights()] == ["x2"]
