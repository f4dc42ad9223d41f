"""Steps of a pipeline in a saved model: public ones alone, by their settings, without pickles.

A step that was fitted to private rows would be given away with the model and is refused; one that learns nothing is
made again from its settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from tulle.schema.declared_schema import Schema

# Steps of scikit-learn that learn nothing from rows, not even their number of columns.
_STATELESS = {
    "HashingVectorizer": "sklearn.feature_extraction.text",
    "FeatureHasher": "sklearn.feature_extraction",
    "Normalizer": "sklearn.preprocessing",
    "Binarizer": "sklearn.preprocessing",
}
_PLAIN = (bool, int, float, str, type(None))


def split_steps(model: Any) -> tuple[list[dict[str, Any]], Any]:
    """The steps of a pipeline before its model as plain values, and the model; of a model by itself, none."""
    if not (type(model).__name__ == "Pipeline" and type(model).__module__.startswith("sklearn")):
        return [], model
    *before, (name, last) = model.steps
    packed = [_pack_step(*step) for step in before if step[1] not in (None, "passthrough")]
    return ([*packed, {"name": name}] if packed else []), last


def _pack_step(name: str, step: Any) -> dict[str, Any]:
    if type(step) is Schema:
        columns = getattr(step, "feature_names_in_", None)
        if columns is None:
            raise ValueError(f"the step {name!r} of the pipeline is not fitted")
        return {"name": name, "step": "Schema", "settings": step.to_dict(), "columns": [str(one) for one in columns]}
    kind = type(step).__name__
    if type(step).__module__.startswith(f"{_STATELESS.get(kind, '-')}"):
        settings = {key: _plain(name, key, value) for key, value in step.get_params(deep=False).items()}
        return {"name": name, "step": kind, "settings": settings}
    raise TypeError(
        f"the step {name!r} ({kind}) cannot be saved without a pickle; steps that can: Schema, {', '.join(_STATELESS)}"
    )


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
    from sklearn.pipeline import Pipeline

    *before, last = steps
    made = [(str(step["name"]), _unpack_step(step)) for step in before]
    pipeline = Pipeline([*made, (str(last["name"]), model)])
    name_weights(pipeline)
    return pipeline


def _unpack_step(step: Mapping[str, Any]) -> Any:
    kind, settings = step["step"], step["settings"]
    if kind == "Schema":
        return Schema(**settings).restore([str(name) for name in step["columns"]])
    if kind not in _STATELESS:
        raise ValueError(f"unknown step {kind!r}")
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
    return model.steps[-1][1] if hasattr(model, "steps") else model


def schema_before(model: Any) -> Schema | None:
    """The schema that encodes the rows of a pipeline's model; None where there is none."""
    steps: Sequence[Any] = getattr(model, "steps", [])
    return steps[0][1] if len(steps) == 2 and type(steps[0][1]) is Schema else None


def name_weights(pipeline: Any) -> None:
    """Give the model at the end of a pipeline the names of its features, where a schema encodes them just before."""
    if (schema := schema_before(pipeline)) is not None:
        last_model(pipeline).weight_names_ = schema.get_feature_names_out()
