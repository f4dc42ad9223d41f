"""Planted bugs in private steps and in the pipelines that bill them. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_ANSWERS, _PIPELINE = (
    "tests/preprocessing/test_private_answers.py::",
    "tests/preprocessing/test_private_pipeline.py::",
)
_REPLAY = "tests/preprocessing/test_step_replay.py::test_private_steps_tell_nothing_but_their_answers"

PREPROCESSING_MUTANTS: tuple[Mutant, ...] = (
    # --- what a step learns ---
    Mutant(
        "steps that learn from exact answers",
        "IDF, means and quantiles of the training rows before a private fit; here with noisy ones on the bill",
        "run_steps(each, ask, public, X, use)",
        "run_steps(each, lambda n, q: ask(n, q) * 0 + q.evaluate(rows, public), public, X, use)",
        (_REPLAY + "[rows-longer-weights]",),
    ),
    Mutant(
        "weights from exact masses",
        "a vectoriser's IDF next to a private mean that nobody uses",
        "        step.learn(ask, public, mu)\n",
        "        step.learn(ask, public, mu)\n"
        '        step.weights_ = step.prepare(X).mean(axis=0) + 1e-9 if hasattr(step, "weights_") else None\n',
        (_ANSWERS + "test_the_floor_of_weights_is_that_of_their_noise", _REPLAY + "[rows-longer-weights]"),
    ),
    Mutant(
        "a scaler that keeps the range of the rows",
        "MinMaxScaler's data_min_ and data_max_: two people's entries, in every pickle",
        "        return np.where(_is_known(X), np.clip(X, -_LARGEST, _LARGEST), _BLANK)",
        "        self.range_ = np.min(X), np.max(X)\n"
        "        return np.where(_is_known(X), np.clip(X, -_LARGEST, _LARGEST), _BLANK)",
        (_REPLAY + "[rows-longer-scaler]",),
    ),
    Mutant(
        "a step that is fitted by itself",
        "fit_transform before the private fit, by habit: what it learns is on no bill",
        '"""Refused: what a step learns is billed by the pipeline that it stands in."""',
        "self.low_, self.high_, self.weights_ = np.min(X, axis=0), np.max(X, axis=0), np.mean(X, axis=0)\n"
        "        return self",
        (_PIPELINE + "test_a_step_by_itself_learns_nothing",),
    ),
    # --- rows by themselves ---
    Mutant(
        "columns centred by the mean of the rows at hand",
        "batch normalisation: every row depends on all others, and no clip makes up for it",
        "(np.clip(X, -_LARGEST, _LARGEST) - self.centre_)",
        "(np.clip(X, -_LARGEST, _LARGEST) - np.nanmean(np.where(_is_known(X), X, np.nan), axis=0))",
        (_ANSWERS + "test_a_row_is_transformed_by_itself_and_keeps_its_bounds[scaler]",),
    ),
    Mutant(
        "rows scaled by the longest of them",
        "one long row shortens all others, and tells of itself in each",
        "1 / lengths, 0.0))",
        "1 / lengths.max(), 0.0))",
        (_ANSWERS + "test_a_row_is_transformed_by_itself_and_keeps_its_bounds[weights]",),
    ),
    Mutant(
        "rows that do not count do so after a step",
        "a mask that is dropped on the way through a pipeline: a person has all of its rows in the model",
        "rows.blocks[:] = Rows(transformed, targets, active).blocks",
        "rows.blocks[:] = Rows(transformed, targets).blocks",
        (_PIPELINE + "test_rows_that_do_not_count_move_no_answer",),
    ),
    # --- the bill ---
    Mutant(
        "rounds of bisection at the price of one",
        "a search counted as one look at the rows",
        "float(np.sqrt(count / square))",
        "float(np.sqrt(1 / square))",
        (_ANSWERS + "test_answers_have_the_noise_of_their_share[1.0-True-1-quartiles]",),
    ),
    Mutant(
        "a share that is not charged",
        "the model is given all of the budget; what steps cost comes on top, or out of what they were promised",
        "math.sqrt(1 - sum(self.step_shares(public)))",
        "1.0",
        (_PIPELINE + "test_the_whole_budget_is_proved_and_shares_hold",),
    ),
    Mutant(
        "any step passes for a public one",
        "a pipeline that bills its last step and fits the others",
        "if peeks := check_pipeline(public):",
        "if peeks := check_pipeline(public)[:0]:",
        (_PIPELINE + "test_what_cannot_be_fitted_is_refused_before_anything_is_billed",),
    ),
    Mutant(
        "the time of every answer in the model",
        "met here: what callbacks of scikit-learn note of a fit stayed in the fitted pipeline, and in its pickle",
        "    _fit_with_steps = with_callbacks(_fit)",
        "    _fit_with_steps = _fit",
        (_REPLAY + "[rows-longer-weights]",),
    ),
    Mutant(
        "a search around a pipeline goes unnamed",
        "settings chosen by exact scores, in a report that says nothing of it",
        'type(last.steps[-1][1] if _is(last, "tulle", "PrivatePipeline") else last) is model',
        "type(last) is model",
        (_PIPELINE + "test_a_search_around_it_is_named_in_the_report",),
    ),
    Mutant(
        "memory that runs out after the bill",
        "a budget spent on a process that was killed",
        "_COPIES_OF_STEPS if steps and isinstance(X, np.ndarray) else 0",
        "0",
        (_PIPELINE + "test_memory_of_dense_rows_is_counted",),
    ),
)
