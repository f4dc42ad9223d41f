"""Saved models: one file of arrays and JSON, without pickles, that is checked when it is read.

The file holds values that were released by the fit and may be given away with it: weights, classes, names of features,
public settings, the privacy report. It holds no rows, and no `random_state`, since anyone who knows the seed can remove
the noise. The layout is described in docs/command_line.md.
"""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from tulle import __version__
from tulle.accounting.zcdp import AnyBudget
from tulle.estimators.bounds import Bounds
from tulle.estimators.column_settings import pack_columns
from tulle.estimators.saved_losses import OtherLossError, pack_own_loss, with_own_loss
from tulle.estimators.saved_steps import join_steps, split_steps
from tulle.files.archive import (
    ArchiveError,
    Arrays,
    UnknownPartError,
    describe_writer,
    make_from_file,
    read_archive,
    write_archive,
)
from tulle.files.class_labels import check_classes
from tulle.files.error_messages import PrivacyWarning
from tulle.files.number_text import rounded_up
from tulle.files.saved_models import model_class
from tulle.inference.evidence import Evidence
from tulle.methods import METHODS
from tulle.methods.loss_functions import LOSSES, Loss, resolve_loss
from tulle.reports.report import About, PrivacyReport
from tulle.trusted.plan import Budget

__all__ = ["Saved", "load", "load_saved", "save"]

KIND, VERSION = "tulle model", 5
# The layouts of a model without intervals, and without steps before it, which an older tulle can read.
_WITHOUT_INTERVALS, _WITHOUT_STEPS = 4, 3
# Reports in files of earlier versions do not hold in their delta what finite precision adds to it.
_COUNTS_FINITE_PRECISION = 2
# How the line begins that such a report gets when it is read.
WRITTEN_BEFORE = "This report was written before"

_WEIGHTS = ("coef_", "teacher_coef_")
_ARRAYS = ("intercept_", "classes_", "teacher_intercept_", "feature_names_in_")
_PARTS = ("values", "places", "shape")
_PLAIN = (bool, int, float, str, type(None))
# The largest number of columns of a table. A file states its number of zeros, and must not make us allocate terabytes.
_MOST_WEIGHTS = 2**31
# Settings of models that older versions of tulle do not know.
_ADDED = ("classes", "class_weight", "always", "feature_groups")
# What intervals are computed from, where there are any.
_OF_INTERVALS = "inference_"
_NUMBERS = ("n_features_in_", "n_iter_", "n_passes_", "n_thresholds_")


class Saved(NamedTuple):
    """A model from a file, and who asked for it."""

    model: Any
    about: About


def save(model: Any, path: str | os.PathLike[str], about: About | None = None) -> None:
    """Write a fitted model to one file, without pickles.

    Parameters
    ----------
    model : fitted SparseClassifier, SparseRegressor or estimator of `tulle.local`, or a pipeline that ends in one
        A `PrivatePipeline`, or a `Pipeline` of scikit-learn. Their public steps may be a `tulle.Schema`, or
        HashingVectorizer, FeatureHasher, Normalizer and Binarizer of scikit-learn. Of a `PrivateSearch` its
        `best_estimator_`. Of a loss of your own the name of its class and its plain settings are kept, not its code:
        `load` then needs ``loss=...``.
    path : path
        The file, by custom with the suffix .npz; an older one is replaced.
    about : About or None, default=None
        Who asked for it, when and what for.

    Examples
    --------
    >>> import numpy as np, os, tempfile
    >>> from tulle import Bounds, SparseRegressor, load, save
    >>> X = np.random.default_rng(0).uniform(-1, 1, (1000, 5))
    >>> model = SparseRegressor(2.0, n_nonzero=1, bounds=Bounds(row_linf=1.0, label=1.0)).fit(X, X[:, 2])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> save(model, path)
    >>> bool(np.array_equal(load(path).predict(X), model.predict(X)))
    True
    """
    steps, model = split_steps(model)
    kind = type(model).__name__
    if type(model) is not model_class(kind):
        raise TypeError(
            f"only tulle models can be saved, not a {kind}; the last step of a pipeline must be one, and of a search "
            "save best_estimator_"
        )
    check_is_fitted(model)
    arrays: Arrays = {}
    for name in _WEIGHTS:
        if hasattr(model, name):
            weights = sp.coo_array(getattr(model, name))
            arrays |= {
                f"{name}values": weights.data.astype(np.float64),
                f"{name}places": np.stack([np.asarray(axis, dtype=np.int64) for axis in weights.coords]),
                f"{name}shape": np.array(weights.shape, dtype=np.int64),
            }
    for name in _ARRAYS:
        if hasattr(model, name):
            arrays[name] = _plain(np.asarray(getattr(model, name)), name)
    settings = model.get_params(deep=False)
    # Left out where they are as they were before there was a choice: an older tulle can read it then.
    for name in _ADDED:
        if settings.get(name, ()) is None:
            del settings[name]
    if settings.get("inference") is False:
        del settings["inference"]
    header = {
        "tulle": __version__,
        "model": kind,
        "settings": _pack_all(settings),
        "fitted": {name: float(getattr(model, name)) for name in _NUMBERS if hasattr(model, name)},
        "sparse": bool(sp.issparse(model.coef_)),
        "privacy": model.privacy_.to_dict(),
        "about": dataclasses.asdict(about or About()),
    }
    version = _WITHOUT_INTERVALS if steps else _WITHOUT_STEPS
    if steps:
        header["steps"] = steps
    if hasattr(model, _OF_INTERVALS):
        version = VERSION
        header["inference"] = model.inference_.to_values()
        arrays |= {f"{_OF_INTERVALS}{name}": part for name, part in model.inference_.to_arrays().items()}
    write_archive(path, KIND, version, header, arrays)


def load(path: str | os.PathLike[str], *, loss: Loss | None = None) -> Any:
    """The model that `save` wrote.

    Parameters
    ----------
    path : path
        The file, or a folder that ``tulle fit`` wrote.
    loss : Loss or None, default=None
        For a model that was fitted with a loss of your own: that loss. A file never decides which code is imported.

    Returns
    -------
    estimator
        Fitted, with the weights to the last bit; `random_state` is None. A method's settings that are not plain values
        (public features, a student) are not kept: such a model predicts but refuses to be fitted again. A `Pipeline`
        where one was saved.

    Raises
    ------
    tulle.files.archive.ArchiveError
        Where the file is damaged, changed, of another program or of a newer version of tulle.
    """
    return load_saved(path, loss=loss).model


def load_saved(path: str | os.PathLike[str], *, loss: Loss | None = None) -> Saved:
    """The model that `save` wrote, and who asked for it. As `load`."""
    if os.path.isdir(path):  # as `tulle fit` writes it
        path = os.path.join(path, "model.npz")
    header, arrays = read_archive(path, KIND, VERSION)
    try:
        model = _model(header, arrays, loss)
        whole = join_steps(header.get("steps", ()), model)
        told = _describe_old_report(header["format"], model.privacy_)
        about = make_from_file(About, {name: str(text) for name, text in header["about"].items()})
    except OtherLossError as error:
        raise OtherLossError(f"{os.fspath(path)} {error}") from None
    except UnknownPartError as error:
        raise ArchiveError(
            f"{os.fspath(path)} was made by {describe_writer(header)}, and has a part that this tulle {__version__} "
            f"does not know: {error}; upgrade tulle"
        ) from error
    except Exception as error:
        # A fault of a file may show anywhere: a missing part is a KeyError, a number for a list a TypeError.
        words = f"{error}" if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ArchiveError(f"{os.fspath(path)} is not a {KIND} file: {words}") from error
    if told:
        model.privacy_ = dataclasses.replace(model.privacy_, assumptions=(*model.privacy_.assumptions, told))
        warnings.warn(f"{os.fspath(path)}: {told}", PrivacyWarning, stacklevel=2)
    return Saved(whole, about)


def _describe_old_report(written_as: str, report: PrivacyReport) -> str:
    """The remark on a report that was written before finite precision was counted; "" for other reports."""
    if report.asked is None or int(written_as.rpartition(" ")[2]) >= _COUNTS_FINITE_PRECISION:
        return ""
    return (
        f"{WRITTEN_BEFORE} tulle included the effect of finite precision in δ: its δ omits that part, which by its "
        f"own value is at most {rounded_up(report.floating_point_slack, 2)} (SECURITY.md)."
    )


def _model(header: Mapping[str, Any], arrays: Arrays, loss: Loss | None) -> Any:
    _check_parts(header, arrays)
    if not isinstance(header.get("tulle", ""), str):
        raise ValueError("the version of tulle that wrote it is not a string")
    kind = header["model"]
    cls = model_class(kind)
    if cls is None:
        raise UnknownPartError(f"unknown model class {kind!r}")
    _check_settings(header["settings"])
    settings = with_own_loss(header["settings"], loss)
    model = make_from_file(cls, {name: _unpack(name, value) for name, value in settings.items()})
    for name, figure in header["fitted"].items():
        setattr(model, name, float(figure) if name == "n_passes_" else int(figure))
    for name in _ARRAYS:
        if name in arrays:
            setattr(model, name, arrays[name] if arrays[name].ndim else arrays[name].item())
    if "feature_names_in_" in arrays:
        model.feature_names_in_ = arrays["feature_names_in_"].astype(object)  # as scikit-learn holds them
    outputs = _outputs(model)
    for name in _WEIGHTS:
        if f"{name}values" in arrays:
            setattr(model, name, _weights(arrays, name, (*outputs, model.n_features_in_)))
    model.privacy_ = PrivacyReport.from_dict(header["privacy"])
    if "inference" in header:
        model.inference_ = _evidence(header["inference"], arrays, model)
    _check(model, outputs)
    model.support_ = np.flatnonzero(np.any(np.atleast_2d(model.coef_) != 0, axis=0))
    return model.sparsify() if header["sparse"] else model


def _evidence(values: Mapping[str, Any], arrays: Arrays, model: Any) -> Evidence:
    parts: dict[str, Any] = {
        name.removeprefix(_OF_INTERVALS): part for name, part in arrays.items() if name.startswith(_OF_INTERVALS)
    }
    evidence = Evidence(**parts, **values)
    evidence.check()
    if np.any(evidence.features >= model.n_features_in_) or len(np.unique(evidence.features)) < len(evidence.features):
        raise ValueError("it has intervals of features that it does not have")
    weights = evidence.all_weights(model.n_features_in_, len(evidence.estimates) > len(evidence.features))
    if not np.array_equal(weights[:-1, 0], np.ravel(model.coef_)) or weights[-1, 0] != np.ravel(model.intercept_)[0]:
        raise ValueError("its intervals are those of other weights")
    return evidence


def _check_parts(header: Mapping[str, Any], arrays: Arrays) -> None:
    """Raise where something is there that `save` does not write: a file that is given away holds nothing else."""
    parts = {"format", "tulle", "model", "settings", "fitted", "sparse", "privacy", "about", "steps", "inference"}
    weights = {f"{name}{part}" for name in _WEIGHTS for part in _PARTS}
    intervals = [f"{_OF_INTERVALS}{field.name}" for field in dataclasses.fields(Evidence)] * ("inference" in header)
    for given, known in (
        (header, parts),
        (header["fitted"], set(_NUMBERS)),
        (arrays, weights.union(_ARRAYS, intervals)),
    ):
        if unknown := sorted(set(given) - known):
            raise UnknownPartError(f"it contains {', '.join(unknown)}, which no model has")


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Raise where a setting is none that `save` writes and a later fit would go by."""
    if settings.get("random_state") is not None:
        raise ValueError("it contains a seed: the person who wrote it would know the noise of the next fit")
    if settings.get("rho") is not None:
        AnyBudget(rho=settings["rho"], delta=settings.get("delta") or 1e-6)
    if settings.get("epsilon") is not None:
        Budget(settings["epsilon"], settings.get("delta") or 0.0)
    kept = settings.get("n_nonzero")
    if kept is not None and not (type(kept) is int and kept >= 1):
        raise ValueError(f"n_nonzero is {kept!r}")
    if settings.get("classes") is not None:
        check_classes(settings["classes"])
    for name in ("fit_intercept", "inference"):
        if not isinstance(settings.get(name, True), bool):
            raise ValueError(f"{name} is {settings[name]!r}")


def _outputs(model: Any) -> tuple[int, ...]:
    """The shape of the intercept: () for a regression, else one for each class, or one for two classes."""
    if not is_classifier(model):
        if hasattr(model, "classes_"):
            raise ValueError("a regression has no classes")
        return ()
    classes = np.asarray(getattr(model, "classes_", ()))
    if classes.ndim != 1 or len(classes) < 2 or len(np.unique(classes)) < len(classes):
        raise ValueError("it has fewer than two different classes")
    if model.classes is not None and check_classes(model.classes).tolist() != classes.tolist():
        raise ValueError("its classes differ from those it declares")
    return (1 if len(classes) == 2 else len(classes),)


def _weights(arrays: Arrays, name: str, shape: tuple[int, ...]) -> Any:
    values, places, written = (arrays[f"{name}{part}"] for part in _PARTS)
    # Before memory is allocated: a small file must not request more memory than there is.
    if shape[-1] < 1 or math.prod(shape) > _MOST_WEIGHTS or written.tolist() != list(shape):
        raise ValueError(f"{name} is of shape {written.tolist()}, but its classes and features require {list(shape)}")
    if values.dtype != np.float64 or values.ndim != 1 or places.dtype.kind != "i":
        raise ValueError(f"{name} does not contain numbers and their indices")
    if places.shape != (len(shape), len(values)) or len(np.unique(places, axis=1).T) < len(values):
        raise ValueError(f"{name} has indices that do not match its weights")
    if np.any(places < 0) or np.any(places >= written[:, None]) or not np.all(np.isfinite(values)):
        raise ValueError(f"{name} has weights at invalid indices or that are not finite")
    dense = np.zeros(shape)
    dense[tuple(places)] = values
    return dense


def _check(model: Any, outputs: tuple[int, ...]) -> None:
    """Raise unless the parts of a model fit together, and it can predict."""
    for coef, intercept in (("coef_", "intercept_"), ("teacher_coef_", "teacher_intercept_")):
        if hasattr(model, coef) != hasattr(model, intercept) or not hasattr(model, "coef_"):
            raise ValueError(f"it must have both {coef} and {intercept}")
        constant = np.asarray(getattr(model, intercept, np.zeros(outputs)))
        if constant.shape != outputs or constant.dtype.kind != "f" or not np.all(np.isfinite(constant)):
            raise ValueError(f"{intercept} does not contain a finite number for each output")
    names = getattr(model, "feature_names_in_", None)
    if names is not None and (names.shape != (model.n_features_in_,) or not all(isinstance(n, str) for n in names)):
        raise ValueError(f"its feature names are not {model.n_features_in_:,} strings")
    if not isinstance(getattr(model, "bounds", None), Bounds | None):
        raise ValueError("the setting bounds does not contain bounds")
    if hasattr(model, "loss"):
        if isinstance(model.loss, str) and model.loss not in LOSSES:
            raise UnknownPartError(f"loss={model.loss!r} is unknown")
        resolve_loss(model.loss, "classification" if is_classifier(model) else "regression")


def _plain(array: Any, name: str) -> Any:
    """An array of objects as one of strings, where all of them are."""
    if array.dtype != object:
        return array
    if not all(isinstance(item, str) for item in array.ravel()):
        raise ValueError(f"{name} contains Python objects, which only a pickle could store; use numbers or strings")
    return array.astype(np.str_)


def _pack(name: str, value: Any) -> Any:
    """A setting as plain JSON."""
    if name == "random_state":
        return None  # the seed is what the promise rests on
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if name == "classes":
        return check_classes(value).tolist()
    if isinstance(value, Bounds):
        kept = {key: item for key, item in dataclasses.asdict(value).items() if key != "offset" or item is not None}
        return {"bounds": _pack_all(kept)}
    if name == "class_weight" and isinstance(value, Mapping):
        return {"classes": [[_pack("class", label), _pack("weight", weight)] for label, weight in value.items()]}
    if name in ("always", "feature_groups"):
        return pack_columns(value)
    if name == "loss" and type(value) in LOSSES.values():
        return {"loss": type(value).__name__, "settings": _pack_all(dataclasses.asdict(value))}
    if name == "loss" and isinstance(value, Loss):
        return pack_own_loss(value)
    if name == "method":
        names = {cls: key for key, cls in METHODS.items()}
        settings = value.get_params(deep=False) if hasattr(value, "get_params") else {}
        lost = sorted(key for key, item in settings.items() if not isinstance(item, (*_PLAIN, np.generic)))
        if type(value) not in names or lost:
            return f"{names.get(type(value), type(value).__name__)} (saved without {', '.join(lost) or 'its code'})"
        return {"method": names[type(value)], "settings": _pack_all(settings)}
    raise ValueError(f"{name}={value!r} cannot be saved without a pickle; use a value that tulle knows by name")


def _pack_all(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _pack(name, value) for name, value in settings.items()}


def _unpack(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if name == "bounds":
        return make_from_file(Bounds, value["bounds"])
    if name == "class_weight":
        return dict(value["classes"])
    if name == "feature_groups":
        return value["groups"]
    settings = {key: _unpack(key, item) for key, item in value["settings"].items()}
    if name == "loss":
        return make_from_file(_find(name, {cls.__name__: cls for cls in LOSSES.values()}, value["loss"]), settings)
    if name == "method":
        return make_from_file(_find(name, METHODS, value["method"]), settings)
    raise UnknownPartError(f"the setting {name!r} is not a plain value")


def _find(what: str, known: Mapping[str, Any], name: str) -> Any:
    if name not in known:
        raise UnknownPartError(f"unknown {what} {name!r}")
    return known[name]
