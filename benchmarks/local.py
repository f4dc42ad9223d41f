"""What local studies cost: answers against the random numbers in them, fits to randomised labels against a LASSO."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.linear_model import Lasso
from timing import Line, print_lines, ratio

from tulle import Bounds
from tulle.local import LabelPrivateSparseRegressor, User
from tulle.local.user_side.answer_format import GradientAsk, Question, encode_question
from tulle.local.user_side.ball import PrivUnit
from tulle.local.user_side.uniforms import SystemUniforms


def measure() -> Iterator[Line]:
    users, features = 2_000, 500
    channel = PrivUnit.best(1.0, 1.0, features)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((users, features)), rng.standard_normal(users)
    uniforms = SystemUniforms().draw(users, channel.n_uniforms)
    times = ratio(lambda: channel.answer(X, uniforms), lambda: rng.standard_normal((users, channel.n_uniforms)))
    yield "PrivUnit answers of 2,000 users, 500 features, times as many normal numbers", times, "a few"

    question = encode_question(Question("s", 1, 0.0, 1.0, GradientAsk(np.zeros(features), "identity", False), channel))

    def answer_one_by_one() -> None:
        for number in range(200):
            User(str(number), X[number], float(y[number]), max_epsilon=1.0).answer(question)

    times = ratio(answer_one_by_one, lambda: channel.answer(X, SystemUniforms().draw(users, channel.n_uniforms)), 3)
    what = "one user's answer, message read and written, times its share of a block of users"
    yield what, times * users / 200, "< 20"

    rows = rng.choice([-1.0, 1.0], (10_000, 1_000))
    labels = rows[:, :5].sum(axis=1) / 2
    warnings.simplefilter("ignore")
    private = LabelPrivateSparseRegressor(1.0, n_nonzero=5, bounds=Bounds(label=2.5), random_state=0)
    times = ratio(lambda: private.fit(rows, labels), lambda: Lasso(alpha=0.1).fit(rows, labels), 3)
    what = "label-private fit, 10,000 users, 1,000 features, times scikit-learn's LASSO on exact labels"
    yield what, times, "about 1"


if __name__ == "__main__":
    print_lines(measure())
