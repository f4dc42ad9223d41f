"""For each setting of a search the epsilon at which its fit takes the price of one trial."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from tulle.estimators.beforehand import warn_beforehand
from tulle.estimators.memory_check import check_memory
from tulle.estimators.request import FitRequest
from tulle.estimators.row_numbers import refuse_features
from tulle.methods.loss_functions import Loss
from tulle.transfer.public_features import check_not_private
from tulle.transfer.public_knowledge import PublicKnowledge
from tulle.trusted.events import FloatArray
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.tuning.best_of_trials import TrialPrice

_NO_EPSILON = "its releases keep within the price of a trial at no epsilon"


@dataclass(frozen=True, eq=False)
class _Parts:
    """The rows, as every trial sees them. Which row is in which part looks at no data."""

    training: npt.NDArray[np.intp]
    training_rows: Any
    held_out_rows: Any
    held_out_labels: Any


class _Offers:
    """For each setting the epsilon at which its fit takes all of the trial's price. Looks at no features of rows.

    The labels are looked at as a single fit looks at them before it spends anything: which classes there are, where
    none were declared, and whether a loss accepts them.

    Parameters
    ----------
    template : estimator
        That rows and labels were checked by.
    price : TrialPrice
    delta : float
        At which fits are planned.
    n_training : int
    rows, labels : arrays
        All of them, from the intake.
    knowledge : PublicKnowledge or None
        Public knowledge about the features, for every trial.
    """

    def __init__(
        self,
        template: Any,
        price: TrialPrice,
        delta: float,
        n_training: int,
        rows: Any,
        labels: Any,
        knowledge: PublicKnowledge | None = None,
    ) -> None:
        self.price = price
        self.delta = delta
        self._template = template
        self._shape = (n_training, rows.shape[1])
        self._rows = rows
        self._labels = labels
        self._knowledge = knowledge
        # All but exact where all releases are Gaussian.
        self._guess = gaussian_epsilon(price.mu, delta) * (1 - 1e-6)
        self._known: dict[Hashable, float] = {}

    def split(self, generator: np.random.Generator, n_held_out: int) -> _Parts:
        """The rows to train on and the others, at random."""
        shuffled = generator.permutation(self._rows.shape[0])
        training, held_out = np.sort(shuffled[n_held_out:]), np.sort(shuffled[:n_held_out])
        return _Parts(training, self._rows[training], self._rows[held_out], self._labels[held_out])

    def model(self, params: dict[str, Any]) -> Any:
        """A model with these settings. Values are cloned: models of several trials must not share objects."""
        model = clone(self._template)
        return model.set_params(**{name: clone(value, safe=False) for name, value in params.items()})

    def prepare(self, model: Any) -> tuple[FloatArray, Loss]:
        """The targets of all rows as the model's loss wants them, and the loss; tells the model of its features.

        The classes are the declared ones, or those of all rows, not of the training rows: the former are published.
        """
        check_not_private(getattr(model.method, "features", None), self._rows)
        # The rows were checked once, for all models.
        model.n_features_in_ = self._rows.shape[1]
        if hasattr(self._template, "feature_names_in_"):
            model.feature_names_in_ = self._template.feature_names_in_
        refuse_features(model, "PrivateSearch")
        targets, loss = model._targets(self._labels)
        return targets, loss

    def request(self, model: Any, loss: Loss) -> FitRequest:
        """The request for a fit of this model to the training rows."""
        if getattr(model, "inference", False):
            raise ValueError("intervals do not hold for the best of several fits; search without inference=True")
        # Many fits share one bill, which has no room for what finite precision might take of each of them.
        request = replace(model._request(loss, self._shape[0]), exact_only=True)
        if self._knowledge is None:
            return request
        return replace(request, method=request.method.with_public(self._knowledge))

    def check(self, params: dict[str, Any]) -> None:
        """Raise where no fit with these settings can be planned."""
        with _speaking_of(params):
            model = self.model(params)
            _, loss = self.prepare(model)
            if math.isinf(self._share(model, loss, self._guess)):
                raise ValueError(_NO_EPSILON)
            request = self.request(model.set_params(epsilon=self._guess, delta=self.delta), loss)
            check_memory(self._rows, request.plan_all(self._shape))

    def epsilon(self, params: dict[str, Any]) -> float:
        """The epsilon of a fit with these settings."""
        key = _key(params)
        if key is not None and key in self._known:
            return self._known[key]
        with _speaking_of(params):
            model = self.model(params)
            _, loss = self.prepare(model)
            found = _dearest(lambda epsilon: self._share(model, loss, epsilon), self._guess)
        if key is not None:
            self._known[key] = found
        return found

    def warnings_of(self, params: dict[str, Any]) -> list[str]:
        """What a fit with these settings warns of before it spends anything."""
        epsilon = self.epsilon(params)
        with _speaking_of(params):
            model = self.model(params).set_params(epsilon=epsilon, delta=self.delta)
            _, loss = self.prepare(model)
            request = self.request(model, loss)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                warn_beforehand(request, request.plan_all(self._shape))
        return [str(warning.message) for warning in caught]

    def _share(self, model: Any, loss: Loss, epsilon: float) -> float:
        request = self.request(model.set_params(epsilon=epsilon, delta=self.delta), loss)
        if request.bounds.rows_per_person > 1:
            raise ValueError("a person's rows could be in both parts; PrivateSearch protects single rows only")
        return max(self.price.share(one.plan) for one in request.plan_all(self._shape))


@contextmanager
def _speaking_of(params: dict[str, Any]) -> Iterator[None]:
    """Silence warnings, which could be counted, and say in errors which settings they are about."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        raise ValueError(f"the settings {params} of param_distributions cannot be fitted: {error}") from error


def _dearest(share: Callable[[float], float], guess: float) -> float:
    """The largest epsilon, to a part in a thousand, that takes no more than the price."""
    # Room for the rounding of calibrations, which a ledger's confirmation allows for.
    most, enough = 1 - 1e-7, 0.999
    low, high = 0.0, math.inf
    for _ in range(100):
        taken = share(guess)
        if taken <= most:
            low = guess
        else:
            high = guess
        if enough <= taken <= most or 0 < low < high < low * 1.0001:
            return low
        # Costs grow about as the square of epsilon.
        guess *= math.sqrt((most + enough) / 2 / taken) if 0 < taken < math.inf else 0.5
        if not low < guess < high:
            guess = 2 * low if math.isinf(high) else math.sqrt(low * high) if low > 0 else high / 4
    raise ValueError(_NO_EPSILON)


def _key(params: dict[str, Any]) -> Hashable | None:
    """What tells settings apart, or None where some value cannot be hashed. 1, 1.0 and True are three values."""
    key = tuple((name, type(value), value) for name, value in sorted(params.items()))
    try:
        hash(key)
    except TypeError:
        return None
    return key
