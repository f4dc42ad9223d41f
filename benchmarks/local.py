"""What local studies cost: answers against the random numbers in them, fits to randomised labels against a LASSO."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.linear_model import Lasso

from tulle import Bounds
from tulle.local import LabelPrivateSparseRegressor, User
from tulle.local.ball import PrivUnit
from tulle.local.uniforms import SystemUniforms
from tulle.local.wire import GradientAsk, Question, encode_question


def _seconds(work: Callable[[], object], times: int = 3) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def measure() -> Iterator[tuple[str, float, str]]:
    """Lines (what, ratio, target)."""
    users, features = 2_000, 500
    channel = PrivUnit.best(1.0, 1.0, features)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((users, features)), rng.standard_normal(users)
    uniforms = SystemUniforms().draw(users, channel.n_uniforms)
    drawing = _seconds(lambda: rng.standard_normal((users, channel.n_uniforms)))
    yield (
        "PrivUnit answers of 2,000 users, 500 features / as many normal numbers",
        _seconds(lambda: channel.answer(X, uniforms)) / drawing,
        "a few",
    )

    question = encode_question(Question("s", 1, 0.0, 1.0, GradientAsk(np.zeros(features), "identity", False), channel))

    def answer_one_by_one() -> None:
        for number in range(200):
            User(str(number), X[number], float(y[number]), max_epsilon=1.0).answer(question)

    each = _seconds(answer_one_by_one) / 200
    yield (
        "one user's answer, message read and written / its share of a block of users",
        each / (_seconds(lambda: channel.answer(X, SystemUniforms().draw(users, channel.n_uniforms))) / users),
        "below 20",
    )

    rows = rng.choice([-1.0, 1.0], (10_000, 1_000))
    labels = rows[:, :5].sum(axis=1) / 2
    warnings.simplefilter("ignore")
    private = LabelPrivateSparseRegressor(1.0, n_nonzero=5, bounds=Bounds(label=2.5), random_state=0)
    yield (
        "label-private fit, 10,000 users, 1,000 features / LASSO of scikit-learn on exact labels",
        _seconds(lambda: private.fit(rows, labels)) / _seconds(lambda: Lasso(alpha=0.1).fit(rows, labels)),
        "about 1",
    )


if __name__ == "__main__":
    for line in measure():
        print(*line)
