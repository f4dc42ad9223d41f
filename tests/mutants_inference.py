"""Planted bugs in intervals, and in the fit that they rest on. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_COVERAGE, _FIT, _SUMMARY, _ROWS = (
    "tests/inference/test_coverage.py::",
    "tests/inference/test_interval_fit.py::",
    "tests/inference/test_summary.py::",
    "tests/trusted/test_clipped_sum.py::",
)

INFERENCE_MUTANTS: tuple[Mutant, ...] = (
    # --- what intervals count ---
    Mutant(
        "a standard error without the noise term",
        "the textbook's sandwich for private estimates: it covers 51 to 91 % where it says 95",
        "noise = scores.noise_variance * np.eye(len(before))",
        "noise = 0 * scores.noise_variance * np.eye(len(before))",
        (_COVERAGE + "test_intervals_cover[logistic]",),
    ),
    Mutant(
        "estimates with the penalty's bias",
        "intervals around a ridge's weights, which are not where the interval's centre should be",
        "pull = settings.constants.penalty * (weights - centre)",
        "pull = 0 * settings.constants.penalty * (weights - centre)",
        (_COVERAGE + "test_estimates_are_not_shrunk[poisson]",),
    ),
    Mutant(
        "the model taken as right",
        "the inverse Hessian as covariance: wrong where counts vary more than Poisson's, or variances differ",
        "    ratios = np.maximum(1 + part * away, _LEAST_RATIO)",
        "    ratios = np.ones(len(away))",
        (
            "tests/inference/test_noisy_matrices.py::test_variances_that_differ_are_found_where_noise_is_small_and_doubted_"
            "where_it_is_not",
        ),
    ),
    Mutant(
        "residuals cut at the label bound",
        "a prediction of one sign and a target of the other are off by up to twice that",
        "public.label * (2 if _has_loss(public, Squared) else 1)",
        "public.label",
        (_COVERAGE + "test_residuals_beyond_the_label_bound_count",),
    ),
    Mutant(
        "noise in the curvature that is not counted",
        "an inverse of a noisy matrix, used as if it were exact",
        "found[np.arange(f), np.arange(f)] += among",
        "found *= 0",
        ("tests/inference/test_noisy_matrices.py::test_errors_along_a_vector_are_as_large_as_is_said[diagonal]",),
    ),
    Mutant(
        "the noise of a released curvature that is not counted",
        "a residual of the noisy equation, taken as exact",
        "+ curvature.noise_covariance(before)",
        "+ 0 * curvature.noise_covariance(before)",
        (_COVERAGE + "test_every_weight_of_a_category_is_covered[squared]",),
    ),
    Mutant(
        "entries below the noise taken for 0",
        "shrinkage that is good on average: weights of a category then share an error, and their intervals miss",
        "_CORRECTIONS_FROM_ZERO, _CORRECTIONS = 2, 1",
        "_CORRECTIONS_FROM_ZERO, _CORRECTIONS = 0, 0",
        (_COVERAGE + "test_every_weight_of_a_category_is_covered[squared]",),
    ),
    Mutant(
        "a straight line where slopes are bent",
        "Wald's interval of a feature that nearly decides the outcome (Hauck and Donner)",
        "            curves = row.find_curves(",
        "            row.find_curves(",
        (_COVERAGE + "test_every_weight_of_a_category_is_covered[logistic]",),
    ),
    Mutant(
        "a spread of gradients with weights, not their squares",
        "survey weights taken for numbers of rows",
        "factors = weights * np.clip(slopes,",
        "factors = np.sqrt(weights) * np.clip(slopes,",
        (
            "tests/inference/test_weighted_intervals.py::test_without_noise_they_are_those_of_statsmodels[weights-squared]",
        ),
    ),
    Mutant(
        "a curvature without the offsets",
        "rates whose exposure is in the fit and not in its Hessian",
        "margins, weights = rows @ self.weights + row_offsets(targets), row_weights(targets)",
        "margins, weights = rows @ self.weights + 0 * row_offsets(targets), row_weights(targets)",
        ("tests/inference/test_weighted_intervals.py::test_without_noise_they_are_those_of_statsmodels[both-poisson]",),
    ),
    # --- chosen features ---
    Mutant(
        "features chosen by rows that weights are fitted to, too",
        "the winner's curse: the features that look best in these rows look better than they are",
        "rows.blocks[:] = part if name in split.names else rest",
        "rows.blocks[:] = part if name in split.names else [*part, *rest]",
        (_FIT + "test_rows_that_choose_features_are_used_for_nothing_else[0]",),
    ),
    Mutant(
        "rows divided by what is in them",
        "a split by a sorted column, or by a hash of a row: which part a row is in then depends on other rows",
        "    count = split.count(n_rows)\n",
        '    drawn = np.argsort(np.concatenate([block.targets + block.norms("l2") for block in rows.blocks]))\n'
        "    count = split.count(n_rows)\n",
        (_FIT + "test_which_rows_these_are_depends_on_no_cell",),
    ),
    Mutant(
        "p-values of features that the same rows have chosen",
        "stepwise regression's p-values, in every paper that reports them",
        '    if evidence.choice == "same rows":\n        tests =',
        '    if evidence.choice == "nobody":\n        tests =',
        (_SUMMARY + "test_chosen_by_the_same_rows_there_are_no_p_values",),
    ),
    # --- what leaves, and what is refused ---
    Mutant(
        "a curvature of rows that are centred by all rows",
        "a covariance instead of a second moment: a line then depends on other rows, and no clip makes up for it",
        "        margins, weights = rows @ self.weights",
        "        rows = rows - rows.mean(axis=0)\n        margins, weights = rows @ self.weights",
        (_ROWS + "test_a_row_function_treats_each_row_by_itself[rows by curvature]",),
    ),
    Mutant(
        "intervals refused where they are not finite, after the bill",
        "a check of results that raises: whether it does is a bit about the rows, and the budget is gone",
        "    determined &= all(bool(np.isfinite(part).all()) for part in found)\n",
        '    if np.abs(scores.start).max() > 1e-3 and curvature.n_floored:\n        raise ValueError("singular")\n',
        (_FIT + "test_any_rows_get_an_answer[zeros-logistic]",),
    ),
    Mutant(
        "more weights than there is a limit for",
        "a matrix of as many noisy entries as memory has room for",
        "public.n_features > MOST_COLUMNS or public.n_nonzero > MOST_WEIGHTS",
        "public.n_features > MOST_COLUMNS or public.n_nonzero > 10 * MOST_WEIGHTS",
        (_FIT + "test_bad_settings_are_refused_before_anything_is_released",),
    ),
    Mutant(
        "rows of one person taken as independent",
        "standard errors without clusters: ten visits count as ten people",
        '        if public.rows_per_unit > 1 and not self.periods:\n            raise ValueError("intervals',
        '        if public.rows_per_unit > 1000:\n            raise ValueError("intervals',
        (_FIT + "test_bad_settings_are_refused_before_anything_is_released",),
    ),
    Mutant(
        "a file with intervals of other weights",
        "two tables that were saved at different times, in one model",
        "if not np.array_equal(weights[:-1, 0], np.ravel(model.coef_)) or weights",
        "if not weights.size and weights",
        (_SUMMARY + "test_forged_files_are_refused",),
    ),
)
