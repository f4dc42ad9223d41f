"""Planted bugs in private steps and in the pipelines that bill them. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_ANSWERS, _PIPELINE = (
    "tests/preprocessing/test_private_answers.py::",
    "tests/preprocessing/test_private_pipeline.py::",
)
_SETS, _COLUMNS, _BLOCKS = (
    "tests/preprocessing/test_thresholded_sets.py::",
    "tests/preprocessing/test_private_columns.py::",
    "tests/preprocessing/test_steps_on_blocks.py::",
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
        "        step.learn(step.name_answers(ask, X), public, mu)\n",
        "        step.learn(step.name_answers(ask, X), public, mu)\n"
        '        step.weights_ = step.prepare(X).mean(axis=0) + 1e-9 if hasattr(step, "weights_") else None\n',
        (_ANSWERS + "test_the_floor_of_weights_is_that_of_their_noise", _REPLAY + "[rows-longer-weights]"),
    ),
    Mutant(
        "a scaler that keeps the range of the rows",
        "MinMaxScaler's data_min_ and data_max_: two people's entries, in every pickle",
        "        return np.where(_is_known(X), np.clip(X, -LARGEST, LARGEST), _BLANK)",
        "        self.range_ = np.min(X), np.max(X)\n"
        "        return np.where(_is_known(X), np.clip(X, -LARGEST, LARGEST), _BLANK)",
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
        "(np.clip(X, -LARGEST, LARGEST) - self.centre_)",
        "(np.clip(X, -LARGEST, LARGEST) - np.nanmean(np.where(_is_known(X), X, np.nan), axis=0))",
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
    Mutant(
        "rows on disk that do not count do so after a step",
        "the mask belongs to the rows in memory, and those that are read again from files have none",
        "vars(transformed.rows(first_rows))",
        "vars(transformed.rows(None))",
        (_BLOCKS + "test_rows_that_do_not_count_do_not_count_there[blocks-weights]",),
    ),
    Mutant(
        "a step divides by zero, and every row of its block is lost",
        "numbers that are not finite behind the check of files: one row's makes a whole sum count as nothing",
        "        self._leave_out(~np.isfinite(self._rows).all(axis=1))\n\n\ndef _take",
        "\n\ndef _take",
        (_BLOCKS + "test_what_a_step_made_not_finite_counts_as_nothing[dense]",),
    ),
    Mutant(
        "a step divides by zero, in sparse blocks",
        "as above",
        "            bad[self._csc.indices[~finite]] = True\n            self._leave_out(bad)",
        "            bad[self._csc.indices[~finite]] = True",
        (_BLOCKS + "test_what_a_step_made_not_finite_counts_as_nothing[sparse]",),
    ),
    Mutant(
        "a batch of rows as they are stored",
        "transforms that training applies to epochs and not to the rows that a sampler picks: the noise is for others",
        "return self.changes(block[1][numbers] if self.folder.sparse else block[numbers])",
        "return block[1][numbers] if self.folder.sparse else block[numbers]",
        (_BLOCKS + "test_steps_learn_from_a_folder_as_from_an_array[batches, poisson-scaler]",),
    ),
    Mutant(
        "missing numbers that no step marks",
        "a check that is skipped because a later step would do it, in pipelines without that step",
        "find_spread(X, y, missing=first.takes_missing)",
        "find_spread(X, y, missing=True)",
        (
            "tests/cluster/test_private_steps_on_dask.py::"
            "test_what_cannot_be_fitted_is_refused_before_anything_is_billed[missing, weights]",
        ),
        needs="distributed",
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
    # --- values that are found ---
    Mutant(
        "a vocabulary of all words",
        "CountVectorizer's: every word that one person wrote, by name",
        "released = (exact.values > 0) & (noisy > self.threshold(sensitivity, count))",
        "released = exact.values > 0",
        (_COLUMNS + "test_a_word_that_one_row_has_is_nowhere",),
    ),
    Mutant(
        "a threshold for one key of a row",
        "set unions that bound the chance of one item and not of all items that one person has",
        "squares = np.minimum(least * ",
        "squares = np.minimum(most * 0.99 * ",
        (_SETS + "test_the_threshold_is_for_the_worst_that_one_unit_can_have[1000-1-20.0]",),
    ),
    Mutant(
        "a threshold that leaves the mass of the key out",
        "the noise is compared with the threshold, as if a key that one person has had no mass",
        "log_ndtr((upper - threshold) / sigma)",
        "log_ndtr(-threshold / sigma + 0 * upper)",
        (_SETS + "test_what_one_unit_alone_has_is_released_as_rarely_as_is_said[1]",),
    ),
    Mutant(
        "a threshold for one row of a person",
        "the unit is a person, the bound that of a row",
        "found = find_threshold(scale / one_row, self.left, self.most_keys, self.rows_per_unit)",
        "found = find_threshold(scale / one_row, self.left, self.most_keys, 1)",
        (_SETS + "test_what_one_unit_alone_has_is_released_as_rarely_as_is_said[2]",),
    ),
    Mutant(
        "keys of rows that do not count",
        "a word list made of all rows before a person's surplus rows are left out",
        "released = (exact.values > 0) & (noisy",
        "released = (exact.values >= 0) & (noisy",
        (_SETS + "test_keys_that_only_rows_have_which_do_not_count_are_never_released",),
    ),
    Mutant(
        "thresholds that delta does not pay for",
        "a release that is epsilon-private but for a chance that is counted nowhere",
        "        return self.left\n",
        "        return 0.0\n",
        (_SETS + "test_the_price_is_that_of_gaussian_noise_and_a_part_of_delta",),
        at="ThresholdedGaussian.inexact",
    ),
    Mutant(
        "a text's words at full mass each",
        "counts of words: a long text moves a thousand of them, and the noise is for one",
        "SHORTENED / np.sqrt(self._n_columns * np.clip(lengths, 1, most))",
        "SHORTENED / np.sqrt(self._n_columns * np.clip(lengths, 1, 1))",
        (_SETS + "test_a_row_is_read_by_itself",),
    ),
    Mutant(
        "rows that are too long count",
        "the clip is left to what reads the rows",
        "minlength=n_rows) <= _STEPS",
        "minlength=n_rows) >= 0",
        (_SETS + "test_a_row_that_is_none_of_keys_counts_as_nothing",),
    ),
    Mutant(
        "entries of all signs count",
        "met here: a bound for vectors without negative entries, on rows that nobody checks for them",
        "wrong = (entries != 0) & ~((entries >= (1.0 - 1e-8) / math.sqrt(self.most_keys))",
        "wrong = (entries != 0) & ~((abs(entries) >= (1.0 - 1e-8) / math.sqrt(self.most_keys))",
        (_SETS + "test_a_row_that_is_none_of_keys_counts_as_nothing",),
    ),
    Mutant(
        "a threshold for other keys than the rows have",
        "met here: query and mechanism each state the most keys of a row, and nothing compares them",
        "if (exact.most_keys, exact.rows_per_unit) != (self.most_keys, self.rows_per_unit):",
        "if exact.rows_per_unit != self.rows_per_unit:",
        (_SETS + "test_no_other_mechanism_answers",),
    ),
    Mutant(
        "cells that write on the terminal",
        "met here: a category with a line break and a forged line of a report in it",
        "return () if text is None else (_clean(text),)",
        "return () if text is None else (text[:LONGEST_VALUE],)",
        (_COLUMNS + "test_found_values_are_printed_on_one_line",),
    ),
    Mutant(
        "names in the order of the rows",
        "a released list that says which word occurs first",
        "return dict(sorted(found.items()))",
        "return found",
        (_COLUMNS + "test_released_names_are_in_alphabetical_order",),
    ),
    Mutant(
        "memory for one block that runs out after the bill",
        "as above, by rows that fit into memory while nothing is done to them",
        "_COPIES_OF_STEPS * spread.block_bytes if steps and spread is not None else 0",
        "0",
        (_BLOCKS + "test_memory_of_a_dense_block_is_counted",),
    ),
)
