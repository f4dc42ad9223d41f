"""The models of a comparison: of a method by name or as an object, or an estimator of any library.

Nothing here is for release: fits draw noise from known seeds.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from tulle.estimators.sparse import SparseClassifier, SparseRegressor
from tulle.experiments.examples import Examples
from tulle.methods import METHODS, resolve_method

_RESERVED_NAMES = ("null model", "no privacy")
_LONGEST_NAME = 48


def read_methods(given: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the lines of a comparison, and the objects behind those that are no names of methods.

    Parameters
    ----------
    given : str, method, estimator, iterable of these, or mapping of names to these
    """
    if isinstance(given, str) or hasattr(given, "get_params"):
        given = (given,)
    named: Iterable[tuple[str, Any]] = given.items() if isinstance(given, Mapping) else _with_names(list(given))
    names: list[str] = []
    objects: dict[str, Any] = {}
    for name, one in named:
        if isinstance(one, str) and one == name:
            names.append(name)
            continue
        if name in METHODS or name in _RESERVED_NAMES or not name.strip():
            raise ValueError(f"{name!r} cannot be the name of a line; pass a mapping of other names to methods")
        names.append(name)
        objects[name] = one if is_estimator(one) else resolve_method(one)
    return tuple(names), objects


def _with_names(given: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Each with a name: of an object how it is written, or its class where that is long, with a number from the second
    on."""
    used: Counter[str] = Counter()
    for one in given:
        name = one if isinstance(one, str) else " ".join(repr(one).split())
        name = name if len(name) <= _LONGEST_NAME else type(one).__name__
        used[name] += 1
        again = used[name] > 1 and not isinstance(one, str)
        yield f"{name} ({used[name]})" if again else name, one


def is_estimator(one: Any) -> bool:
    """Whether it is a model of its own and no method of one."""
    return all(hasattr(one, name) for name in ("fit", "predict", "get_params")) and not hasattr(one, "releases")


def takes_budget(one: Any) -> bool:
    """Whether a line is fitted at every epsilon: a method, or an estimator with that parameter."""
    return not is_estimator(one) or "epsilon" in one.get_params(deep=False)


def make_model(one: Any, task: str, epsilon: float | None, delta: float, seed: int, settings: Mapping[str, Any]) -> Any:
    """An unfitted model of a line.

    Parameters
    ----------
    one : str, method or estimator
        An estimator is cloned, with the epsilon, the delta and the seed where it has such parameters.
    task : {"classification", "regression"}
    epsilon : float or None
    delta : float
    seed : int
        Of the noise.
    settings : mapping
        Other parameters of tulle's model, for methods.
    """
    if not is_estimator(one):
        kind = SparseClassifier if task == "classification" else SparseRegressor
        return kind(epsilon, delta, method=one, random_state=seed, **settings)
    model = clone(one)
    known = model.get_params(deep=False)
    wanted: dict[str, Any] = {"random_state": seed % 2**32}  # numpy's older generators take no more
    if epsilon is not None:
        wanted |= {"epsilon": epsilon, "delta": delta}
    return model.set_params(**{name: value for name, value in wanted.items() if name in known})


def fit_model(model: Any, train: Examples, public: Any) -> Any:
    """Fit a model, with person ids and public rows where it has them."""
    given = {"groups": train.groups, "public": public}
    given = {name: value for name, value in given.items() if value is not None}
    known = inspect.signature(model.fit).parameters if given else {}
    if missing := [name for name in given if name not in known]:
        raise ValueError(f"{type(model).__name__}.fit takes no {missing[0]}")
    return model.fit(train.X, train.y, **given)


def constant_model(task: str, train: Examples) -> Any:
    """The best model that looks at no feature: the commonest class with the shares of all, or the mean."""
    from sklearn.dummy import DummyClassifier, DummyRegressor

    dummy = DummyClassifier(strategy="prior") if task == "classification" else DummyRegressor()
    return dummy.fit(np.zeros((len(train), 1)), train.y)


def proved_epsilon(model: Any) -> float | None:
    """The epsilon that a fitted model proves; None for models of other libraries, which prove none here."""
    report = getattr(model, "privacy_", None)
    return None if report is None else float(report.epsilon)


def count_nonzero(model: Any) -> int | None:
    """The features that a linear model uses; None for other models."""
    coef = getattr(model, "coef_", None)
    if coef is None:
        return None
    coef = np.atleast_2d(coef.toarray() if hasattr(coef, "toarray") else np.asarray(coef))
    return int(np.count_nonzero(np.any(coef != 0, axis=0)))


def to_plain(value: Any) -> Any:
    """A setting as JSON has it; of an object, a checksum of all that it holds."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        from joblib import hash as checksum

        return f"{type(value).__name__} {checksum(value)}"


def describe_object(one: Any) -> str:
    """What the results of a line depend on: the class of the object and a checksum of its parameters."""
    parameters = one.get_params() if hasattr(one, "get_params") else vars(one)
    return f"{type(one).__module__}.{type(one).__qualname__} {to_plain({**parameters, '': None})}"
