"""Planted bugs in weights, offsets and class weights. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_ROWS, _FRONT = "tests/backends/test_weighted_rows.py::", "tests/estimators/test_model_features.py::"
_COLUMNS = "tests/estimators/test_column_rules.py::"
_REPLAY = "tests/estimators/test_features_replay.py::test_weights_and_offsets_tell_nothing_but_the_answers"
_GRADIENT = _ROWS + "test_no_neighbour_moves_a_gradient_of_an_objective_further"

FEATURE_MUTANTS: tuple[Mutant, ...] = (
    # --- each row by itself, and none for more than one ---
    Mutant(
        "weights above one",
        "sample weights as scikit-learn takes them: a row of weight 50 in a sum whose noise is for one of weight 1",
        "np.clip(np.nan_to_num(weights, nan=0.0), 0.0, 1.0)",
        "np.maximum(np.nan_to_num(weights, nan=0.0, posinf=0.0), 0.0)",
        (
            _ROWS + "test_what_is_billed_bounds_the_exact_loss_of_privacy[1.0-logistic]",
            _GRADIENT + "[logistic]",
            _FRONT + "test_extreme_weights_and_offsets_are_clipped_one_by_one",
        ),
    ),
    Mutant(
        "weights below zero",
        "a row that is subtracted: the objective is no longer convex, and its minimiser may be anywhere",
        "np.clip(np.nan_to_num(weights, nan=0.0), 0.0, 1.0)",
        "np.minimum(np.nan_to_num(weights, nan=0.0), 1.0)",
        (_GRADIENT + "[poisson]", _ROWS + "test_the_slopes_are_those_of_the_weighted_loss"),
    ),
    Mutant(
        "weights that are not numbers",
        "np.clip, which leaves NaN as it is",
        "np.clip(np.nan_to_num(weights, nan=0.0), 0.0, 1.0)",
        "np.clip(weights, 0.0, 1.0)",
        (_ROWS + "test_the_slopes_are_those_of_the_weighted_loss",),
    ),
    Mutant(
        "offsets of any length",
        "an exposure of 0, and its logarithm",
        "np.clip(np.nan_to_num(offsets, nan=0.0), -bound, bound)",
        "np.nan_to_num(offsets, nan=0.0)",
        (_GRADIENT + "[logistic]", _FRONT + "test_extreme_weights_and_offsets_are_clipped_one_by_one"),
    ),
    Mutant(
        "weights scaled to a mean of one",
        "the weighted mean of every textbook: all rows move when one weight does",
        "            weights = self._weights[part]\n",
        "            weights = 0.5 * self._weights[part] / max(self._weights.mean(), 1e-300)\n",
        (_ROWS + "test_the_weight_of_a_row_is_its_own",),
    ),
    Mutant(
        "class weights above one",
        "class_weight as scikit-learn takes it, which multiplies what a row can do",
        "weight in weights / weights.max()))",
        "weight in weights))",
        (_FRONT + "test_class_weights_are_weights_of_rows_the_largest_being_one",),
    ),
    Mutant(
        "the weights of other rows",
        "a batch whose rows are taken by number, and whose weights are the first ones",
        "            found.weights = self.weights[key]\n",
        "            found.weights = self.weights[: len(found)]\n",
        (_ROWS + "test_batches_carry_the_weights_of_their_rows_whether_or_not_all_rows_count",),
    ),
    Mutant(
        "weights that are lost where a row does not count",
        "met here: a batch with a row that does not count has new targets, and an error said so after the bill",
        "        if not same or self.weights is None:\n",
        "        if same or self.weights is None:\n",
        (_ROWS + "test_batches_carry_the_weights_of_their_rows_whether_or_not_all_rows_count",),
    ),
    # --- what is looked at ---
    Mutant(
        "class weights from exact counts",
        "class_weight='balanced' of scikit-learn: how many rows each class has, to the last one",
        "request.balance.learn(ask, public,",
        "request.balance.learn(lambda n, q: ask(n, q) * 0 + q.evaluate(rows, public), public,",
        (_FRONT + "test_balanced_weights_follow_from_the_noisy_answer",),
    ),
    Mutant(
        "a model that remembers the sum of weights",
        "n_samples_weighted_ and the like, in every pickle",
        "            advance = progress.advance\n",
        "            advance = progress.advance\n"
        "            self.weight_sum_ = 0.0 if inputs.numbers is None else float(inputs.numbers.weights.sum())\n",
        (
            _REPLAY
            + "[weights, fit_again, logistic, constant columns, one row alone, declared, dense, people with 3 rows]",
        ),
    ),
    Mutant(
        "weights of zero are refused",
        "scikit-learn's check: an error that says of all rows that none counts",
        '        weights = clip_weights(read_row_numbers(given.sample_weight, "sample_weight", n_rows))\n',
        '        weights = clip_weights(read_row_numbers(given.sample_weight, "sample_weight", n_rows))\n'
        "        if not weights.any():\n"
        '            raise ValueError("all weights are zero")\n',
        (_REPLAY + "[weights, hard_thresholding gaussian, poisson, constant columns, zero, estimated, sparse, rows]",),
    ),
    # --- certificates ---
    Mutant(
        "minimisers with offsets that nothing certifies",
        "a bound on how far a minimiser is, proved without offsets",
        "        if shifted and not is_certified(",
        "        if not shifted and not is_certified(",
        (_ROWS + "test_what_the_proof_does_not_cover_is_not_certified",),
    ),
    Mutant(
        "the loss at an offset of zero",
        "f(0) - inf f for f(o) - inf f",
        "return float(np.logaddexp(0.0, offset_bound))",
        "return float(np.logaddexp(0.0, 0.0))",
        (_ROWS + "test_a_minimiser_is_no_further_away_than_the_proof_says",),
    ),
    Mutant(
        "a penalty that is not raised",
        "a plan that is refused after the bill",
        "        penalty *= 2\n",
        "        return penalty\n",
        (
            _ROWS + "test_a_penalty_is_raised_only_where_rows_are_many",
            _ROWS + "test_a_raised_penalty_is_certified_for_any_centre",
        ),
    ),
    # --- what the report says ---
    Mutant(
        "rows whose weights faster code passes over",
        "two ways to one sum, of which one does not know of a new argument",
        ' and not getattr(loss, "weighted", False)',
        "",
        (_FRONT + "test_faster_code_for_rows_without_weights_stands_back",),
    ),
    Mutant(
        "a bound on offsets that is not asked for",
        "diffprivlib's bounds, taken from the rows where none are declared",
        '        if private:\n            raise ValueError("an offset needs a bound',
        '        if not private:\n            raise ValueError("an offset needs a bound',
        (_FRONT + "test_what_cannot_be_had_is_refused_before_anything_is_billed",),
    ),
    # --- rules about columns ---
    Mutant(
        "features that stay in are dropped",
        "a covariate that the protocol fixed, screened out for its small score",
        "fixed = self.always if always else ()",
        "fixed: tuple[int, ...] = ()",
        (_COLUMNS + "test_features_stay_in_whatever_the_rows_say",),
    ),
    Mutant(
        "a group of which single columns are kept",
        "the dummies of one category, some of them",
        "groups = np.arange(n_features) if self.groups is None else self.groups\n        return GroupThreshold",
        "groups = np.arange(n_features)\n        return GroupThreshold",
        (_COLUMNS + "test_columns_of_a_group_come_and_go_together",),
    ),
)
