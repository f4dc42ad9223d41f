"""What each class of scikit-learn learns from the rows it is fitted to, by its settings, and what to use instead.

Classes are listed by name, so that no part of scikit-learn is imported to look for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KnownStep:
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
    return "the location and scale of each feature" if any((*by_default, *robust)) else ""


def _fill_values(step: Any) -> str:
    if getattr(step, "strategy", None) != "constant":
        return "its fill values"
    if getattr(step, "add_indicator", False):
        return "which features have missing values"
    # A column without any value is dropped unless the imputer is set to keep it.
    return "" if getattr(step, "keep_empty_features", False) else "which features are empty"


def _missing_features(step: Any) -> str:
    return "" if getattr(step, "features", None) == "all" else "which features have missing values"


def _categories(step: Any) -> str:
    if isinstance(getattr(step, "categories", "auto"), str):
        return "its categories"
    counted = (getattr(step, "min_frequency", None), getattr(step, "max_categories", None))
    return "which categories are rare" if counted != (None, None) else ""


def _knots(step: Any) -> str:
    return "the positions of its knots" if isinstance(getattr(step, "knots", "uniform"), str) else ""


def _kernel_width(step: Any) -> str:
    return "the width of its kernel" if isinstance(getattr(step, "gamma", 1.0), str) else ""


ON_PUBLIC_ROWS = "fit it to public rows and wrap it in sklearn.frozen.FrozenEstimator"

_TEXT = (
    "HashingVectorizer(alternate_sign=False, norm='l2'), TfidfVectorizer(use_idf=False, vocabulary=[...]) with "
    "declared words, or a TfidfVectorizer fitted to a public corpus and wrapped in sklearn.frozen.FrozenEstimator"
)

_SCALES = (
    "Bounds(normalise=True) in the model, FrozenEstimator(MinMaxScaler().fit([lows, highs])) with declared ranges in "
    f"place of rows, or {ON_PUBLIC_ROWS}"
)

ALL_FEATURES = "all features, with n_nonzero: the private fit selects among them, and its bill includes that"

_DIRECTIONS = f"all features, a random projection, or {ON_PUBLIC_ROWS}"

_CUTS = "SplineTransformer(knots=...) with declared knots, or FunctionTransformer with a fixed function"

_SHAPES = "FunctionTransformer(np.log1p) or another fixed function of single values"

_KERNEL = f"RBFSampler(gamma=...) with a number, PolynomialFeatures, or {ON_PUBLIC_ROWS}"

SETTINGS = "tulle.PrivateSearch, settings that you know, or settings found on public data"

ONE_MODEL = "one private model"

KNOWN_STEPS: dict[str, KnownStep] = {
    # words
    "TfidfVectorizer": KnownStep(_words, _TEXT),
    "TfidfTransformer": KnownStep(
        _inverse_frequencies, "TfidfTransformer(use_idf=False), or IDF weights of public text"
    ),
    "CountVectorizer": KnownStep(_vocabulary, _TEXT),
    "DictVectorizer": KnownStep(_always("the names of its features"), "FeatureHasher(alternate_sign=False)"),
    # scales
    "StandardScaler": KnownStep(_centre_and_scale, _SCALES),
    "RobustScaler": KnownStep(_centre_and_scale, _SCALES),
    "MinMaxScaler": KnownStep(_always("the least and the largest value of each feature"), _SCALES),
    "MaxAbsScaler": KnownStep(_always("the largest value of each feature"), _SCALES),
    "PowerTransformer": KnownStep(_always("a power for each feature"), _SHAPES),
    "QuantileTransformer": KnownStep(_always("the quantiles of each feature"), _SHAPES),
    "KBinsDiscretizer": KnownStep(_always("the edges of its bins"), _CUTS),
    "SplineTransformer": KnownStep(_knots, "SplineTransformer(knots=...) with declared knots"),
    # missing values
    "SimpleImputer": KnownStep(_fill_values, "SimpleImputer(strategy='constant', keep_empty_features=True)"),
    "KNNImputer": KnownStep(_always("whole rows"), "SimpleImputer(strategy='constant', keep_empty_features=True)"),
    "IterativeImputer": KnownStep(
        _always("a model of each feature"), "SimpleImputer(strategy='constant', keep_empty_features=True)"
    ),
    "MissingIndicator": KnownStep(_missing_features, "MissingIndicator(features='all')"),
    # categories
    "OneHotEncoder": KnownStep(
        _categories, "OneHotEncoder(categories=[[...], ...], handle_unknown='ignore') with declared categories"
    ),
    "OrdinalEncoder": KnownStep(
        _categories,
        "OrdinalEncoder(categories=[[...], ...], handle_unknown='use_encoded_value', unknown_value=-1) with declared "
        "categories",
    ),
    "TargetEncoder": KnownStep(
        _always("the mean label of each category"),
        "OneHotEncoder(categories=[[...], ...], handle_unknown='ignore') with declared categories",
        labels=True,
    ),
    # chosen features
    "VarianceThreshold": KnownStep(_always("which features vary"), ALL_FEATURES),
    **{
        name: KnownStep(_always("which features are correlated with the labels"), ALL_FEATURES, labels=True)
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
        name: KnownStep(_always("the directions of largest variance"), _DIRECTIONS)
        for name in ("PCA", "IncrementalPCA", "KernelPCA", "SparsePCA", "MiniBatchSparsePCA", "TruncatedSVD", "FastICA")
    },
    "LinearDiscriminantAnalysis": KnownStep(_always("directions that separate the classes"), _DIRECTIONS, labels=True),
    "NeighborhoodComponentsAnalysis": KnownStep(
        _always("directions that separate the classes"), _DIRECTIONS, labels=True
    ),
    **{
        name: KnownStep(_always("directions correlated with the labels"), _DIRECTIONS, labels=True)
        for name in ("CCA", "PLSCanonical", "PLSRegression", "PLSSVD")
    },
    "IsotonicRegression": KnownStep(_always("the labels as a function of a feature"), _CUTS, labels=True),
    "Nystroem": KnownStep(_always("some complete rows"), _KERNEL),
    "RBFSampler": KnownStep(_kernel_width, "RBFSampler(gamma=...) with a number"),
    # fitted, but to nothing of the rows; scikit-learn 1.6 does not tag FeatureHasher and HashingVectorizer as stateless
    **{
        name: KnownStep(_nothing, "")
        for name in (
            "FeatureHasher",
            "GaussianRandomProjection",
            "HashingVectorizer",
            "PolynomialCountSketch",
            "PolynomialFeatures",
            "SkewedChi2Sampler",
            "SparseRandomProjection",
        )
    },
}

# Models around models, and what they do with rows in addition to fitting the inner model.
SELECTORS = {
    "RFE": "which features are worth keeping, by weights",
    "RFECV": "which and how many features are worth keeping, by scores",
    "SequentialFeatureSelector": "which features are worth keeping, by scores",
}

SEARCHES = (
    "GridSearchCV",
    "HalvingGridSearchCV",
    "HalvingRandomSearchCV",
    "RandomizedSearchCV",
    "TunedThresholdClassifierCV",
)

REWEIGHTING = {
    "AdaBoostClassifier": "which rows are hard, by errors",
    "AdaBoostRegressor": "which rows are hard, by errors",
    "RANSACRegressor": "which rows are outliers, by residuals",
    "SelfTrainingClassifier": "labels, by confidence",
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

META_ESTIMATORS = (*SELECTORS, *SEARCHES, *REWEIGHTING, *_ENSEMBLES, "CalibratedClassifierCV")
