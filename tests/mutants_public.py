"""Planted bugs in fits with public rows or frequencies. See tests/mutants.py."""

from __future__ import annotations

from planted import Mutant

_AGAIN, _KNOWLEDGE, _ARGUMENT = (
    "tests/methods/test_fit_again.py::",
    "tests/transfer/test_public_knowledge.py::",
    "tests/estimators/test_public_argument.py::",
)
_BOUNDARY, _REPLAY = "tests/test_trust_boundary.py::", "tests/trusted/test_sensitivity_replay.py::"

PUBLIC_MUTANTS: tuple[Mutant, ...] = (
    # --- the check ---
    Mutant(
        "a check without noise",
        "a test of fit before the private part, on the rows themselves: which way a fit goes is an answer about them",
        "            return release.mechanism.release(exact, sensitivity, self._generator, then)",
        "            answer = release.mechanism.release(exact, sensitivity, self._generator, then)\n"
        '            return exact if name == "check" else answer',
        (_AGAIN + "test_the_answers_to_the_check_have_the_noise_that_was_planned",),
    ),
    Mutant(
        "a path chosen by what was not released",
        "the noisy answer goes on the bill, and an exact one decides",
        "return view if answers[0] >= view.least_share * view.expected_share * answers[1] else None",
        'return view if getattr(ask, "__self__", None) is not None else None',
        (_BOUNDARY + "test_no_method_reaches_for_rows[fit_again.py]",),
    ),
    Mutant(
        "half the noise of a mean square",
        "a mean of squares moves one way only, which was counted already",
        "self.level * public.rows_per_unit / public.n_rows\n        if self.norm",
        "self.level * public.rows_per_unit / (2 * public.n_rows)\n        if self.norm",
        (_REPLAY + "test_both_paths_after_a_check_are_replayed",),
    ),
    Mutant(
        "two answers to the check at the price of one",
        "a ratio is one number, and takes two releases",
        "gaussian(settings.check_share / 2), 2)",
        "gaussian(settings.check_share), 2)",
        (_AGAIN + "test_the_check_is_paid_for",),
    ),
    Mutant(
        "a check by the length of rows",
        "a plan that follows estimated bounds was not billed: it tells them",
        "check_share = min(max((100 / (public.n_rows",
        "check_share = min(max((100 * public.row_l2 / (public.n_rows",
        (_AGAIN + "test_a_plan_with_public_knowledge_does_not_depend_on_the_bounds",),
    ),
    # --- the fit in public directions ---
    Mutant(
        "a fit in public directions that is softer than planned",
        "the determinant of a person's rows taken for that of one",
        "kappa = math.expm1(fit.log_determinant / public.rows_per_unit)",
        "kappa = math.expm1(fit.log_determinant)",
        (_AGAIN + "test_both_paths_ask_for_what_was_planned",),
    ),
    Mutant(
        "candidates from the private rows",
        "a vocabulary, a filter of rare words or a PCA that is fitted to the private rows before the private fit",
        'knowledge = read_public(public, X.shape[1], getattr(self, "feature_names_in_", None))',
        "knowledge = read_public(X, X.shape[1])",
        (_ARGUMENT + "test_frequencies_leave_features_out[fit_again]",),
    ),
    # --- what is public, and what is said of it ---
    Mutant(
        "public rows in the model",
        "they need not be anybody's secret, and need not be everybody's either: a model is published, they were lent",
        "                request = replace(request, method=request.method.with_public(knowledge))\n",
        "                request = replace(request, method=request.method.with_public(knowledge))\n"
        "                self.public_rows_ = knowledge.rows\n",
        (_ARGUMENT + "test_nothing_of_the_public_rows_is_kept[fit again]",),
    ),
    Mutant(
        "public rows in the method",
        "an object that remembers one fit in the next, which was told of no public rows and says so in its report",
        "informed = copy.copy(self)",
        "informed = self",
        (_AGAIN + "test_a_method_forgets_the_public_rows_of_a_fit",),
        at="FitAgain.with_public",
    ),
    Mutant(
        "a table of private rows as public ones",
        "train passed for test, as a DataFrame: every guarantee is gone, and nothing says so",
        "return [column for column in columns if isinstance(column, np.ndarray)]",
        "return []",
        (_KNOWLEDGE + "test_private_tables_are_no_public_ones",),
        needs="pandas",
    ),
    Mutant(
        "columns of public rows by their place",
        "tables joined by position: directions of other features, which a check that is noisy may let pass",
        "if names is not None and columns is not None and list(columns) != list(names):",
        "if names is not None and columns is not None and len(columns) != len(names):",
        (_KNOWLEDGE + "test_columns_of_other_names_are_refused",),
        needs="pandas",
    ),
    Mutant(
        "frequencies that are none",
        "NaN sorts last and a negative number first: features are kept by what is an error",
        "if not (np.isfinite(values).all() and values.min() >= 0 and values.max() > 0):",
        "if not np.isfinite(values).any():",
        (_KNOWLEDGE + "test_frequencies_that_make_no_sense",),
    ),
    Mutant(
        "a report that does not say what was declared public",
        "a guarantee without its conditions: nobody asks where the public rows came from",
        "return () if self._knowledge is None else (self._knowledge.assumption(),)",
        "return ()",
        (_KNOWLEDGE + "test_the_report_says_what_the_promise_counts_on",),
    ),
)
