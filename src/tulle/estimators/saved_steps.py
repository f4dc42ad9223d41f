"""Steps of a pipeline in a saved model: public ones by their settings, private ones with what was released.

No pickles. A step that learnt from private rows without a bill is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from tulle.estimators.private_pipeline import PrivatePipeline
from tulle.files.archive import UnknownPartError, make_from_file
from tulle.preprocessing import PrivateImputer, PrivateScaler, PrivateWeights
from tulle.preprocessing.private_columns import FindsKeys, PrivateCategories, PrivateColumns, PrivateVocabulary
from tulle.preprocessing.private_step import PrivateStep
from tulle.schema.declared_schema import Schema

# Steps of scikit-learn that learn nothing from rows, not even their number of columns.
_STATELESS = {
    "HashingVectorizer": "sklearn.feature_extraction.text",
    "FeatureHasher": "sklearn.feature_extraction",
    "Normalizer": "sklearn.preprocessing",
    "Binarizer": "sklearn.preprocessing",
}
# Steps that learnt from private rows: what they learnt was released, and is on the bill of the model.
_PRIVATE: dict[str, Any] = {cls.__name__: cls for cls in (PrivateWeights, PrivateScaler, PrivateImputer)}
# Those that found values of columns, which are text.
_FINDING: dict[str, Any] = {cls.__name__: cls for cls in (PrivateColumns, PrivateCategories, PrivateVocabulary)}
_PLAIN = (bool, int, float, str, type(None))


def split_steps(model: Any) -> tuple[list[dict[str, Any]], Any]:
    """The steps of a pipeline before its model as plain values, and the model; of a model by itself, none."""
    of_sklearn = type(model).__name__ == "Pipeline" and type(model).__module__.startswith("sklearn")
    if type(model) is not PrivatePipeline and not of_sklearn:
        return [], model
    packed = [_pack_step(*step) for step in steps_before(model)]
    return ([*packed, {"name": model.steps[-1][0]}] if packed else []), last_model(model)


def _pack_step(name: str, step: Any) -> dict[str, Any]:
    if type(step) is Schema:
        columns = getattr(step, "feature_names_in_", None)
        if columns is None:
            raise ValueError(f"the step {name!r} of the pipeline is not fitted")
        return {"name": name, "step": "Schema", "settings": step.to_dict(), "columns": [str(one) for one in columns]}
    kind = type(step).__name__
    if type(step) in _PRIVATE.values():
        settings = {key: _plain(name, key, value) for key, value in step.get_params(deep=False).items()}
        learnt = {key: np.asarray(getattr(step, key)).tolist() for key in step.learnt}
        return {"name": name, "step": kind, "settings": settings, "learnt": learnt}
    if type(step) in _FINDING.values():
        return {"name": name, "step": kind, "settings": _finding_settings(step), **step.learnt_values()}
    if type(step).__module__.startswith(f"{_STATELESS.get(kind, '-')}"):
        settings = {key: _plain(name, key, value) for key, value in step.get_params(deep=False).items()}
        return {"name": name, "step": kind, "settings": settings}
    raise TypeError(
        f"the step {name!r} ({kind}) cannot be saved without a pickle; steps that can: Schema, "
        f"{', '.join((*_PRIVATE, *_FINDING, *_STATELESS))}"
    )


def _finding_settings(step: FindsKeys) -> dict[str, Any]:
    settings = step.get_params(deep=False)
    if "schema" in settings:
        settings["schema"] = settings["schema"].to_dict()
    if "columns" in settings:
        settings["columns"] = [str(one) for one in settings["columns"]]
    return settings


def _plain(step: str, name: str, value: Any) -> Any:
    if isinstance(value, type) and issubclass(value, np.generic):
        return {"dtype": np.dtype(value).name}
    if isinstance(value, tuple) and all(isinstance(one, int) for one in value):
        return {"tuple": list(value)}
    if not isinstance(value, _PLAIN):
        raise ValueError(f"{step}: {name}={value!r} cannot be saved without a pickle; use a plain value")
    return value


def join_steps(steps: Sequence[Mapping[str, Any]], model: Any) -> Any:
    """The pipeline that `split_steps` took apart; the model itself where there were no steps."""
    if not steps:
        return model
    *before, last = steps
    return make_pipeline([(str(step["name"]), _unpack_step(step)) for step in before], str(last["name"]), model)


def make_pipeline(steps: Sequence[tuple[str, Any]], name: str, model: Any) -> Any:
    """The fitted pipeline of fitted steps and of a fitted model with this name; without steps, the model itself."""
    if not steps:
        return model
    if any(isinstance(step, PrivateStep) for _, step in steps):
        pipeline: Any = PrivatePipeline.restore(steps, name, model)
    else:
        from sklearn.pipeline import Pipeline

        pipeline = Pipeline([*steps, (name, model)])
    if (schema := schema_before(pipeline)) is not None:
        first = _steps_before(pipeline)[0]
        model.weight_names_ = (first if isinstance(first, FindsKeys) else schema).get_feature_names_out()
    return pipeline


def _unpack_step(step: Mapping[str, Any]) -> Any:
    kind, settings = step["step"], step["settings"]
    if kind == "Schema":
        return make_from_file(Schema, settings).restore([str(name) for name in step["columns"]])
    if kind in _PRIVATE:
        made = make_from_file(_PRIVATE[kind], {name: _unpack_setting(value) for name, value in settings.items()})
        if set(step["learnt"]) != set(made.learnt):
            raise ValueError(f"the step {step['name']!r} does not have what it learnt")
        for name, values in step["learnt"].items():
            numbers = np.asarray(values, dtype=np.float64)
            if numbers.ndim != 1 or not np.all(np.isfinite(numbers)):
                raise ValueError(f"the step {step['name']!r} has numbers that are not finite")
            setattr(made, name, numbers)
        return made
    if kind in _FINDING:
        own = dict(settings)
        if "schema" in own:
            own["schema"] = make_from_file(Schema, own["schema"])
        return make_from_file(_FINDING[kind], own).restore(step["columns"], step["found"], step["masses"])
    if kind not in _STATELESS:
        raise UnknownPartError(f"unknown step {kind!r}")
    cls = getattr(import_module(_STATELESS[kind]), kind)
    return cls(**{name: _unpack_setting(value) for name, value in settings.items()})


def _unpack_setting(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"dtype"} and np.dtype(value["dtype"]).kind in "biuf":
        return np.dtype(value["dtype"]).type
    if isinstance(value, dict) and set(value) == {"tuple"} and all(type(one) is int for one in value["tuple"]):
        return tuple(value["tuple"])
    if not isinstance(value, _PLAIN):
        raise ValueError("a step has a setting that is no plain value")
    return value


def last_model(model: Any) -> Any:
    """The model at the end of a pipeline, or the model itself."""
    if type(model) is PrivatePipeline:
        return model.model_
    return model.steps[-1][1] if hasattr(model, "steps") else model


def steps_before(model: Any) -> list[tuple[str, Any]]:
    """The fitted steps of a pipeline before its model, with their names; of a model by itself, none."""
    if type(model) is PrivatePipeline:
        return model.fitted_steps()
    return [step for step in getattr(model, "steps", [])[:-1] if not (step[1] is None or isinstance(step[1], str))]


def _steps_before(model: Any) -> list[Any]:
    return [step for _, step in steps_before(model)]


def schema_before(model: Any) -> Schema | None:
    """The schema that reads the rows of a pipeline, which no step but private ones follows; else None."""
    first, *others = _steps_before(model) or [None]
    schema = first.schema_ if isinstance(first, FindsKeys) else first
    return schema if type(schema) is Schema and all(isinstance(one, PrivateStep) for one in others) else None


def takes_missing(model: Any) -> bool:
    """Whether rows to predict for may have missing numbers: where the first step fills them."""
    first, *_ = _steps_before(model) or [None]
    return isinstance(first, PrivateStep) and first.takes_missing


def transform_encoded(model: Any, X: Any) -> Any:
    """Rows that the schema of a pipeline read, as its model sees them."""
    steps = _steps_before(model)
    for step in steps if isinstance(steps[0], FindsKeys) else steps[1:]:
        X = step.transform(X)
    return X
