"""scikit-learn's fit callbacks, which it has since version 1.9. With older versions models have none.

Whether callbacks are missing is decided by an import, not by a version number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as _with_callbacks

    SUPPORTED = True
except ImportError:
    SUPPORTED = False

    if not TYPE_CHECKING:

        class CallbackSupportMixin:
            """Adds nothing: without ``set_callbacks`` no callback can be asked for."""

        def _with_callbacks(fit: Any) -> Any:
            """The method, called as it is. Through a function, as scikit-learn 1.9 does it: warnings of a fit name the
            line that called it, so many frames up."""

            @wraps(fit)
            def call_fit(*arguments: Any, **named: Any) -> Any:
                return fit(*arguments, **named)

            return call_fit


__all__ = ["SUPPORTED", "CallbackSupportMixin", "FitTask", "with_callbacks", "without_callbacks"]

F = TypeVar("F", bound=Callable[..., Any])


def with_callbacks(method: F) -> F:
    """scikit-learn's decorator of the same name, which has no types: without this, `fit` would return Any."""
    return cast(F, _with_callbacks(method))


def without_callbacks(model: Any) -> Any:
    """The model, with its callbacks removed."""
    return model.set_callbacks() if SUPPORTED else model


class FitTask:
    """A fit as callbacks see it: a begin, answers and an end. They get the estimator, and no rows or answers.

    Parameters
    ----------
    estimator : estimator
    n_answers : int or None
        How many answers there will be; None if that is not known in advance.
    """

    def __init__(self, estimator: Any, n_answers: int | None) -> None:
        self._estimator = estimator
        self._context: Any = None
        if SUPPORTED:
            self._context = estimator._init_callback_context(task_name="fit", max_subtasks=n_answers)
            self._context.call_on_fit_task_begin(estimator=estimator)

    def answered(self) -> None:
        """One more answer was released."""
        if SUPPORTED:
            task = self._context.subcontext(task_name="answer")
            task.call_on_fit_task_begin(estimator=self._estimator)
            task.call_on_fit_task_end(estimator=self._estimator)

    def end(self) -> None:
        if SUPPORTED:
            self._context.call_on_fit_task_end(estimator=self._estimator)
